"""ALBERT (Lan et al., ICLR 2020, arXiv 1909.11942) in TensorFlow 2 and Keras 3.

Where the paper's parts are:

    3.1  factorised embedding, shared blocks, masked LM and sentence order   layers,
         heads, models
    3.2  sizes                                                               config

Names are imported when they are first used, so that programs which only read text need
not wait for TensorFlow.
"""

import importlib

_HOME = {
    "AlbertClassifier": "models",
    "AlbertConditionalSpanLabeler": "models",
    "AlbertConfig": "config",
    "AlbertEncoder": "models",
    "AlbertMultipleChoice": "models",
    "AlbertPretrainer": "models",
    "AlbertSpanLabeler": "models",
    "InputError": "errors",
}
_MODULES = (
    *("config", "corpus", "errors", "graph_tokenization", "heads", "layers", "models"),
    *("hub", "predict", "records", "runtimes", "serving", "tokenization", "vocabulary"),
    "weights",
)

__all__ = [*_HOME, *_MODULES]


def __getattr__(name):
    if name in _HOME:
        return getattr(importlib.import_module(f"albert_tf.{_HOME[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"albert_tf.{name}")
    raise AttributeError(f"module 'albert_tf' has no attribute {name!r}")


def __dir__():
    return __all__
