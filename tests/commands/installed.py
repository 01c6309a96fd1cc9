"""What `make package` asks of the installed wheel, run by the Python that has it."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import albert_tf

BIN = Path(sys.prefix) / "bin"


def run(*arguments):
    command = [BIN / "albert-tf", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main():
    files = importlib.metadata.files("albert_tf")
    own = {file.parts[0] for file in files if ".dist-info" not in file.parts[0]}
    assert own - {".."} == {"albert_tf"}, own
    scripts = {file.name for file in files if file.parts[0] == ".."}
    assert scripts == {"albert-tf"}, scripts
    package = Path(albert_tf.__file__).parent
    assert package.is_relative_to(sys.prefix), package
    assert (package / "py.typed").exists()
    assert run("--help").stdout.startswith("ALBERT in TensorFlow 2")
    assert run("--version").stdout == f"albert_tf {albert_tf.__version__}\n"
    assert "    albert-tf classify --task_name" in run("classify", "--help").stdout
    # The recipe is read, and then a folder is missing.
    result = run("classify", "--flagfile=recipes/mrpc.flags")
    assert result.stderr == "error: --output_dir: required, see --help\n", result
    print("albert-tf works as installed")


if __name__ == "__main__":
    main()
