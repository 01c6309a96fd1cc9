"""Loads and saves weights in several formats; reads no pickle, which could run code.

`load` reads weights of the released code, Hugging Face, KerasHub, Model Garden and this
package. `save` writes weights for the released code, Hugging Face and this package.

In reading order:

    settings      the flags of scripts that open a model
    names         the table: names and layouts of all tensors in all formats; `Source`,
                  the common interface of opened files and folders
    released      downloads weights of the release or of Hugging Face by name
    checkpoints   the best or the newest checkpoint of a folder
    formats       one module for each format; `open_source` recognises the format
    loading       loads weights into a model (`load`, `model_for`)
    writing       writes TF1 checkpoints, Hugging Face's folders, .keras files (`save`)
    huggingface   makes config.json and tokenizer.json for transformers
    metadata      reads and writes task.json and vocabulary.json, metadata of weights
    folder        finds the checkpoint, config, vocabulary and task in folders
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from albert_tf.weights.formats import open_source
    from albert_tf.weights.loading import MisfitError, load, model_for
    from albert_tf.weights.names import Source
    from albert_tf.weights.writing import save

# An import of `weights.settings` runs this file first, and must not import TensorFlow.
# So each name in `__all__` is imported from its module only when it is first used.
# Names in `__all__` that this table lacks are in the module `loading`.
_MODULES = {"Source": "names", "open_source": "formats", "save": "writing"}

__all__ = ["MisfitError", "Source", "load", "model_for", "open_source", "save"]


def __getattr__(name):
    if name in __all__:
        module = _MODULES.get(name, "loading")
        return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
