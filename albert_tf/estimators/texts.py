"""Estimators that predict labels or numbers for texts, pairs of texts and words.

Data for texts and pairs is a table with texts and labels: the path of a .csv, .tsv or
.jsonl file, a DataFrame, a list of dicts, a dict of columns, or a `tf.data.Dataset`. Or
it is a list of texts or of pairs of texts, and a list of labels.

Letters of shapes: n texts or pairs, K classes.
"""

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pandas
from sklearn.base import ClassifierMixin, RegressorMixin

from albert_tf.errors import InputError
from albert_tf.estimators import rows
from albert_tf.estimators.base import COMMON_SETTINGS, FineTuned, Values
from albert_tf.tasks.classification import Classification
from albert_tf.tasks.settings.classification import (
    ClassificationSettings,
    ClassifierRunSettings,
)
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings
from albert_tf.tasks.settings.tagging import TaggingSettings
from albert_tf.tasks.tagging.task import Tagging

_PAIR = ("text_a", "text_b")


class _Texts(FineTuned):
    """Base of `TextClassifier` and `TextRegressor`, which take texts or pairs."""

    family = Classification
    settings_classes = (ClassificationSettings, ClassifierRunSettings, *COMMON_SETTINGS)
    files: ClassVar = {"train": "train_file", "dev": "dev_file", "test": "test_file"}

    def _prepare_split(self, split, data, labels, values):
        # Returns the flags of the split: the path of its file, the columns of the table
        # and the kind of the labels.
        kind = values.get("kind") or self.task_types[0]
        if kind not in self.task_types:
            kinds = " or ".join(self.task_types)
            raise InputError(f"{type(self).__name__}: kind={kind!r}; expected {kinds}")
        columns, label = _list_columns(values), str(values.get("label_column", "label"))
        flags = {"task_name": "custom", "kind": kind, "label_column": label}
        if labels is not None or not rows.is_path(data):
            # If the user names no columns, the table may have the columns in `_PAIR`
            # instead of "text".
            pair = [(*_PAIR, label)] if columns == ("text",) else []
            # The columns whose values are lists.
            lists = (label,) if kind == "multi_label" else ()
            table = rows.read(data, [(*columns, label), *pair], split, lists, labels)
            columns = tuple(table[0])[:-1]  # without the label: one or two texts
            if split == "train" and kind != "regression":
                flags["labels_are_json"] = _are_json([row[label] for row in table])
            data = self._write_rows(table, values["output_dir"], split)
        return {**flags, self.files[split]: data, "text_columns": columns}

    def _to_inputs(self, examples):
        # An example has an id, a text, the second text of a pair or None, and a label.
        return [a if b is None else (a, b) for _, a, b, _ in examples]

    def _read(self, data, fields, choices=()):
        # A table may have columns with the names of `fields`, or with the names of the
        # training data's columns. If the training data had pairs, but `fields` is a
        # single text, only the names of `fields` are possible. The argument `choices`
        # of the overridden method is not used. `_to_flags({})` has this object's
        # settings.
        columns = _list_columns(vars(self._saved_settings) | self._to_flags({}))
        choices = [columns] if len(columns) <= len(fields) else []
        return super()._read(data, fields, choices)


class TextClassifier(ClassifierMixin, _Texts):
    """Classifies texts or pairs of texts.

    Settings are the flags of `run_classifier.py`, and `text` and `label`. `text` is the
    name of the column with the text; for pairs, it is a tuple of two names. `label` is
    the name of the column with the label. With `kind="multi_label"`, each text has a
    list of labels. `class_weights` is "balanced", or a dict {label: weight}.

        model = TextClassifier.from_pretrained("albert_base_v2")
        model.fit(train, validation=dev, text="review", label="stars", epochs=3)
        model.predict(["A fine film."])

    Attributes:
        classes_: the labels, with the same types as in the data of `fit` (for example
            int), in the order of the columns of `predict_proba`. This is the order of
            the setting `classes`; without this setting, the labels are sorted.
            `threshold` applies to `classes_[1]`.
    """

    task_types = ("classification", "multi_label")

    @property
    def classes_(self) -> np.ndarray:
        """The labels, with the same types as in the data of `fit` (for example int)."""
        decode = json.loads if self._saved_settings.labels_are_json else str
        values = [decode(label) for label in self._saved_settings.labels]
        # With the dtype object, NumPy does not convert labels of several types to one.
        return np.array(values, None if len(set(map(type, values))) == 1 else object)

    def predict(self, texts: Any, **options: Any) -> np.ndarray:
        """Returns the label of each text.

        Args:
            texts: a list of texts or of pairs, a table with their columns, or the path
                of a file.
            **options: see `PipelineSettings`: `threshold`, `runtime`, `batch_size`.

        Returns:
            An array [n] of labels; with `kind="multi_label"` an array [n] of lists of
            labels.

        Raises:
            InputError: the model is not fine-tuned, or a row is no text.
        """
        answers = self(texts, **options)
        labels = self._saved_settings.labels
        classes = dict(zip(labels, self.classes_.tolist(), strict=True))
        if "label" in answers[0]:
            return np.array([classes[a["label"]] for a in answers], self.classes_.dtype)
        # `np.array` would make an array of rank 2 from lists of equal length.
        lists = [[classes[label] for label in answer["labels"]] for answer in answers]
        return pandas.Series(lists, dtype=object).to_numpy()

    def predict_proba(self, texts: Any, **options: Any) -> np.ndarray:
        """Returns the probability of each class, float [n, K]; see `predict`."""
        dicts = [answer["probabilities"] for answer in self(texts, **options)]
        # With `top_k`, an answer has only some labels; the others are NaN.
        return pandas.DataFrame(dicts, columns=self._saved_settings.labels).to_numpy()


class TextRegressor(RegressorMixin, _Texts):
    """Predicts a number for each text or pair; settings as for `TextClassifier`."""

    task_types = ("regression",)

    def predict(self, texts: Any, **options: Any) -> np.ndarray:
        """Returns the number of each text, float [n]; see `TextClassifier.predict`."""
        return np.array([answer["value"] for answer in self(texts, **options)])


class TokenClassifier(FineTuned):
    """Labels words, such as named entities; settings are the flags of `run_tagging.py`.

    Data is the path of a file in CoNLL-2003's columns or of JSON lines, or a table with
    lists in the columns `tokens` and `tags`. `token_column` and `label_column` select
    other columns by name, or by number in a CoNLL file. Tags of entities are in IOB2
    (B-PER, I-PER, O), or in a notation that is converted to it, such as BIOES. IOB1
    needs `tag_scheme`. Labels that mark no entities need it only if one of them is O or
    begins with B- or I-.
    """

    family = Tagging
    settings_classes = (TaggingSettings, FineTuningSettings, *COMMON_SETTINGS)
    columns = lists = ("tokens", "tags")

    def predict(self, texts: Any, **options: Any) -> list[list[dict[str, Any]]]:
        """Returns the labelled spans of each text, such as the named entities.

        Args:
            texts: raw texts of any length; or the path of a file as for `fit`, whose
                words are joined by spaces.
            **options: see `PipelineSettings`: `runtime`, `batch_size`.

        Returns:
            For each text a list of dicts with `type`, `text`, `begin`, `end`
            (characters of the text) and `probability`.

        Raises:
            InputError: the model is not fine-tuned, or a row is not a text.
        """
        return [answer["spans"] for answer in self(texts, **options)]

    def _find_columns(self, values):
        # The values of both columns are lists.
        tokens, tags = values.get("token_column"), values.get("label_column")
        columns = (tokens or "tokens", tags or "tags")
        return columns, columns

    def _to_inputs(self, examples):
        return [" ".join(sentence.words) for sentence in examples]


def _list_columns(values: Values) -> tuple[str, ...]:
    """Returns the one or two names of the columns of texts, from {flag: value}."""
    names = values.get("text_columns", "text")
    names = [names] if isinstance(names, (str, int)) else names
    return tuple(map(str, names))


def _are_json(labels: Sequence[Any]) -> bool:
    """Whether labels are numbers or other values of JSON, and not texts.

    Args:
        labels: a label of each example, or with multi_label a list of its labels.

    Raises:
        InputError: each label is a list of zeros and ones: one-hot labels, or the
            labels of a whole batch; or some labels are texts and others are not.
    """
    lists = [each if isinstance(each, list) else [each] for each in labels]
    if all(len(each) > 1 and all(x in (0, 1) for x in each) for each in lists):
        raise InputError("train: labels are rows of 0 and 1; expected names of labels")
    are_texts = {isinstance(label, str) for each in lists for label in each}
    if len(are_texts) == 2:
        raise InputError("train: labels are texts and numbers; use one type")
    return are_texts == {False}
