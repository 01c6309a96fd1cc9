"""`albert-tf predict` as a script of the checkout: see --help."""

from albert_tf import commands

if __name__ == "__main__":
    commands.run("predict")
