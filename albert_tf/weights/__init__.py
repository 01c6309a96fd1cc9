"""Weights in and out: released TF1 checkpoints, TF-Hub, Hugging Face, KerasHub.

Nothing is ever unpickled.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from albert_tf.weights.loading import MisfitError, Report, load, model_for
    from albert_tf.weights.reading import Source, open_source
    from albert_tf.weights.writing import save

# Imported when first used: settings name checkpoints without TensorFlow.
_HOME = {
    **dict.fromkeys(("MisfitError", "Report", "load", "model_for"), "loading"),
    **dict.fromkeys(("Source", "open_source"), "reading"),
    "save": "writing",
}

__all__ = [
    "MisfitError",
    "Report",
    "Source",
    "load",
    "model_for",
    "open_source",
    "save",
]


def __getattr__(name):
    if name in _HOME:
        module = importlib.import_module(f"albert_tf.weights.{_HOME[name]}")
        return getattr(module, name)
    raise AttributeError(f"module 'albert_tf.weights' has no attribute {name!r}")
