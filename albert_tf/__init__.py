"""ALBERT (Lan et al., ICLR 2020, arXiv 1909.11942) in TensorFlow 2 and Keras 3.

The rooms, in reading order; each one's own docstring lists its files:

    model      the encoder, its heads and the optimizers, in keras.ops
    weights    one table of names for four code bases; opens, loads and saves models
    text       strings to ids, in Python and in a TensorFlow graph
    data       records, tables and batches
    corpus     raw text to pretraining records
    tasks      tasks: data, head, loss, scores
    train      the step, the one loop, checkpoints, reports, fine-tuning
    serve      answers to raw text; SavedModel, TF-Hub, LiteRT, ONNX
    estimators TextClassifier and others: fit, predict, save in a few lines
    commands   the commands of `albert-tf`, which the scripts of a checkout run
    errors, flags      the one exception; settings classes as command lines

Where the paper's parts are:

    3.1  factorised embedding             model.layers.Embeddings, and the projection
                                          of model.models.AlbertEncoder
    3.1  parameters shared by layers      model.config.AlbertConfig.parameter_sharing,
                                          model.models.AlbertEncoder
    3.1  sentence order prediction        corpus.pairs, model.heads.SentenceHead
    3.1  masked language model, n-grams   corpus.masking, model.heads.MaskedLMHead
    3.2  sizes (table 1)                  model.config.PUBLISHED
    4.1  LAMB, batches of 4,096           model.optimizers.Lamb, tasks.pretraining
    4.2  GLUE, SQuAD, RACE                tasks.glue, tasks.squad, tasks.race
    4.8  additional data, dropout         AlbertConfig.hidden_dropout_prob

Names are imported when they are first used, so that programs which only read text need
not wait for TensorFlow. Before `keras.models.load_model` reads a `.keras` file of this
package, import what it holds: `from albert_tf import models, optimizers`.

On x86 processors TensorFlow computes with oneDNN, unless the environment's
TF_ENABLE_ONEDNN_OPTS says otherwise or TensorFlow was imported before this package. It
would do so by itself where there is AVX-512 for neural networks; with AVX2, steps of
pretraining were 1.15 to 1.2 times as fast.
"""

import importlib
import os
import platform

if platform.machine().lower() in ("x86_64", "amd64"):
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # TensorFlow's import reads it

# Classes by module.
_CLASSES = {
    "errors": ("InputError",),
    "estimators.pretrained": ("Embedder", "FillMask", "Scorer", "SentenceOrder"),
    "estimators.pretraining": ("Pretrainer",),
    "estimators.questions": ("MultipleChoice", "QuestionAnswerer"),
    "estimators.texts": ("TextClassifier", "TextRegressor"),
    "estimators.words": ("TokenClassifier",),
    "model.config": ("AlbertConfig",),
    "model.models": (
        "AlbertClassifier",
        "AlbertConditionalSpanLabeler",
        "AlbertEncoder",
        "AlbertMultipleChoice",
        "AlbertPretrainer",
        "AlbertSpanLabeler",
        "AlbertTokenClassifier",
    ),
}
_HOME = {name: module for module, names in _CLASSES.items() for name in names}
# Public modules that stand in a room, and the rooms.
_MODULES = {
    **dict.fromkeys(("config", "heads", "layers", "models", "optimizers"), "model."),
    **dict.fromkeys(("hub", "predict", "runtimes"), "serve."),
    **dict.fromkeys(("datasets", "records"), "data."),
    "tokenization": "text.",
    "vocabulary": "corpus.",
    **dict.fromkeys(("commands", "corpus", "data", "errors", "estimators"), ""),
    **dict.fromkeys(("flags", "model", "serve", "tasks", "text", "train"), ""),
    "weights": "",
}

__version__ = "0.1.0"  # pyproject.toml reads it

__all__ = [*_HOME, *_MODULES]


def __getattr__(name):
    if name in _HOME:
        return getattr(importlib.import_module(f"albert_tf.{_HOME[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"albert_tf.{_MODULES[name]}{name}")
    raise AttributeError(f"module 'albert_tf' has no attribute {name!r}")


def __dir__():
    return __all__
