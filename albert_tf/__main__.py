"""Runs a command: `albert-tf NAME` or `python -m albert_tf NAME`."""

import sys

import albert_tf
from albert_tf import commands


def main() -> None:
    """Runs the command that the first argument names, and ends the process."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in commands.COMMANDS:
        commands.run_command(name, sys.argv[1:])
    elif name in ("--help", "-h", "-?"):
        print(_help())
    elif name == "--version":
        print(f"albert_tf {albert_tf.__version__}")
    else:
        expected = ", ".join(commands.COMMANDS)
        sys.stderr.write(f"error: {name or 'no command'}: expected one of {expected}\n")
        sys.exit(2)


def _help() -> str:
    """Returns the help text, with the table in the docstring of `commands`."""
    # The table is the third paragraph of that docstring.
    table = (commands.__doc__ or "").split("\n\n")[2]
    return f"""\
ALBERT in TensorFlow 2 and Keras 3: albert-tf COMMAND --name=value ...

{table}

    albert-tf COMMAND --help    help of a command, and its flags
    albert-tf --version         the version of the package"""


if __name__ == "__main__":
    main()
