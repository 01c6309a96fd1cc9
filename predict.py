"""Runs `albert-tf predict` from a checkout; see --help."""

from albert_tf import commands

if __name__ == "__main__":
    commands.run_command("predict")
