"""Models in a few lines of Python, with scikit-learn's conventions.

In reading order:

    rows        converts tables (DataFrame, dicts, tf.data, arrays) to rows of JSON
    notebooks   a table and curves that `fit` shows in a notebook
    base        base classes with from_pretrained, fit, evaluate, save, export
    texts       TextClassifier, TextRegressor, TokenClassifier
    questions   QuestionAnswerer, MultipleChoice
    pretraining Pretrainer
    pretrained  FillMask, Scorer, SentenceOrder, Embedder: tasks without fine-tuning

`fit` does the same as the scripts that train, and `predict` the same as `predict.py`,
with the packages `train` and `serve`. As in the scripts, TensorFlow's own log lines
are off, unless TF_CPP_MIN_LOG_LEVEL in the environment turns them on.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow's import reads it
