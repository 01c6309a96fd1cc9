"""Asks which of two sentences is right: `python -m albert_tf.recipes.minimal_pairs`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("albert_tf.recipes.minimal_pairs", run_name="__main__")
