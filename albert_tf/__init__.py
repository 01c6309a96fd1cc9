"""ALBERT (Lan et al., ICLR 2020, arXiv 1909.11942) in TensorFlow 2 and Keras 3.

These are the packages, in reading order. The docstring of each lists its modules:

    model       the encoder, its heads and the optimizers, in keras.ops
    weights     loads weights of Google's released code, Hugging Face, this package,
                KerasHub and TF Model Garden; saves weights for the first three
    text        tokenizes text, in Python and in a TensorFlow graph
    data        records, tables and batches
    corpus      makes pretraining records from raw text
    tasks       the data, head, loss and metrics of each task
    train       the training loop, checkpoints, reports, fine-tuning
    serve       predicts on raw text; exports to SavedModel, TF-Hub, LiteRT, ONNX
    estimators  TextClassifier and others, with fit, predict and save
    commands    the commands of `albert-tf`

`errors` has the exception for a user's mistake. `flags` makes flags from the fields of
settings classes.

Parts of the paper, by section:

    3.1  factorized embeddings            model.layers.Embeddings, and the projection
                                          of model.models.AlbertEncoder
    3.1  parameter sharing                model.config.AlbertConfig.parameter_sharing,
                                          model.models.AlbertEncoder
    3.1  sentence-order prediction        corpus.pairs, model.heads.SentenceHead
    3.1  masked LM, n-gram masking        corpus.masking, model.heads.MaskedLMHead
    3.2  sizes (table 1)                  model.config.PUBLISHED
    4.1  LAMB, batches of 4,096           model.optimizers.Lamb, tasks.pretraining
    4.2  GLUE, SQuAD, RACE                tasks.glue, tasks.squad, tasks.race
    4.8  dropout                          model.config.AlbertConfig.hidden_dropout_prob

A module is imported when its name is first used. So a program waits for TensorFlow only
if it uses a module that needs TensorFlow.

Before `keras.models.load_model` opens a `.keras` file of this package, the classes in
the file must be registered with Keras. This import registers them:
`from albert_tf import models, optimizers`.

On x86 processors this package turns oneDNN on in TensorFlow, unless the environment
variable TF_ENABLE_ONEDNN_OPTS is set or TensorFlow is already imported. By default,
TensorFlow uses oneDNN only on processors whose AVX-512 has instructions for neural
networks. On a processor with AVX2, oneDNN made pretraining steps 1.15 to 1.2 times as
fast.
"""

import importlib
import os
import platform

if platform.machine().lower() in ("x86_64", "amd64"):
    # TensorFlow reads the variable when it is imported.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

# The public classes of each module.
_CLASSES = {
    "errors": ("InputError",),
    "estimators.pretrained": ("Embedder", "FillMask", "Scorer", "SentenceOrder"),
    "estimators.pretraining": ("Pretrainer",),
    "estimators.questions": ("MultipleChoice", "QuestionAnswerer"),
    "estimators.texts": ("TextClassifier", "TextRegressor", "TokenClassifier"),
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
# The module of each public class.
_CLASS_MODULES = {name: module for module, names in _CLASSES.items() for name in names}
# {public module or package: the package that contains it, with a dot}. For example,
# `albert_tf.config` is the module `albert_tf.model.config`. The value is "" for the
# modules and packages directly in `albert_tf`.
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

__all__ = [*_CLASS_MODULES, *_MODULES]


def __getattr__(name):
    if name in _CLASS_MODULES:
        return getattr(
            importlib.import_module(f"albert_tf.{_CLASS_MODULES[name]}"), name
        )
    if name in _MODULES:
        return importlib.import_module(f"albert_tf.{_MODULES[name]}{name}")
    raise AttributeError(f"module 'albert_tf' has no attribute {name!r}")


def __dir__():
    return __all__
