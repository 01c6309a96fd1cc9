"""Weights in and out of the formats of four code bases; nothing is ever unpickled.

In reading order:

    settings      the flags of every script that opens a model
    names         the table: what each tensor is called and how it lies in each format
    released      names of released checkpoints and of Hugging Face's, downloaded
    checkpoints   which checkpoint of a folder: the best, the newest
    source        what an opened file or folder offers
    formats       one module for each format, and which one a path has (`open_source`)
    loading       sets a model's weights from it (`load`, `model_for`)
    writing       TF1 checkpoints, Hugging Face's folders, .keras files (`save`)
    huggingface   config.json and tokenizer.json for transformers
    metadata      task.json and vocabulary.json, which stand beside weights
    folder        opens a model: checkpoint, configuration, vocabulary, casing, task
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from albert_tf.weights.formats import open_source
    from albert_tf.weights.loading import MisfitError, Report, load, model_for
    from albert_tf.weights.source import Source
    from albert_tf.weights.writing import save

# Imported when first used: settings name checkpoints without TensorFlow.
_MODULES = {"Source": "source", "open_source": "formats", "save": "writing"}

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
    if name in __all__:
        module = _MODULES.get(name, "loading")
        return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
