"""ALBERT (Lan et al., ICLR 2020, arXiv 1909.11942) in TensorFlow 2 and Keras 3.

Where the paper's parts are:

    3.1  factorised embedding, shared blocks, masked LM and sentence order   layers,
         heads, models
    3.2  sizes                                                               config

Names are imported when they are first used, so that programs which only read text need
not wait for TensorFlow. `keras.models.load_model` still finds the classes of this
package's `.keras` files, see `registration`.

On x86 processors TensorFlow computes with oneDNN, unless the environment's
TF_ENABLE_ONEDNN_OPTS says otherwise or TensorFlow was imported before this package. It
would do so by itself where there is AVX-512 for neural networks; with AVX2, steps of
pretraining were 1.15 to 1.2 times as fast.
"""

import importlib
import os
import platform

from albert_tf.model import registration

if platform.machine().lower() in ("x86_64", "amd64"):
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # TensorFlow's import reads it

_HOME = {
    "AlbertClassifier": "model.models",
    "AlbertConditionalSpanLabeler": "model.models",
    "AlbertConfig": "model.config",
    "AlbertEncoder": "model.models",
    "AlbertMultipleChoice": "model.models",
    "AlbertPretrainer": "model.models",
    "AlbertSpanLabeler": "model.models",
    "InputError": "errors",
}
# Public modules that stand in a room, and the rooms.
_MODULES = {
    **dict.fromkeys(("config", "heads", "layers", "models", "optimizers"), "model."),
    **dict.fromkeys(("graphs", "hub", "predict", "runtimes"), "serve."),
    "records": "data.",
    "tokenization": "text.",
    "vocabulary": "corpus.",
    **dict.fromkeys(("corpus", "data", "errors", "flags", "model", "serve"), ""),
    **dict.fromkeys(("tasks", "text", "train", "weights"), ""),
}

__all__ = [*_HOME, *_MODULES]


def __getattr__(name):
    if name in _HOME:
        return getattr(importlib.import_module(f"albert_tf.{_HOME[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"albert_tf.{_MODULES[name]}{name}")
    raise AttributeError(f"module 'albert_tf' has no attribute {name!r}")


def __dir__():
    return __all__


registration.register()
