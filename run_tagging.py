"""Runs `albert-tf tag` from a checkout; see --help."""

from albert_tf import commands

if __name__ == "__main__":
    commands.run_command("tag")
