"""Asks which of two sentences is right: albert_tf/recipes/minimal_pairs.py."""

from albert_tf import flags
from albert_tf.recipes import minimal_pairs

if __name__ == "__main__":
    flags.run(minimal_pairs.main, (minimal_pairs.Settings,), text=minimal_pairs.__doc__)
