"""Estimators that predict labels or numbers for texts, pairs of texts and words.

Data for texts and pairs is a table with texts and labels: the path of a .csv, .tsv or
.jsonl file, a DataFrame, a list of dicts, a dict of columns, or a `tf.data.Dataset`. Or
it is a list of texts or of pairs of texts, and a list of labels.
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
    """Base of `TextClassifier` and `TextRegressor`."""

    family = Classification
    settings_classes = (ClassificationSettings, ClassifierRunSettings, *COMMON_SETTINGS)
    files: ClassVar = {"train": "train_file", "dev": "dev_file", "test": "test_file"}

    def _prepare_split(self, split, data, labels, values):
        kind = values.get("kind") or self.task_types[0]
        if kind not in self.task_types:
            kinds = " or ".join(self.task_types)
            raise InputError(f"{type(self).__name__}: kind={kind!r}; expected {kinds}")
        text, label = _text_columns(values), str(values.get("label_column", "label"))
        flags = {"task_name": "custom", "kind": kind, "label_column": label}
        if labels is not None or not rows.is_path(data):
            # Without the setting `text`, a table may have pairs of texts.
            pair = [(*_PAIR, label)] if text == ("text",) else []
            lists = (label,) if kind == "multi_label" else ()
            table = rows.read(data, [(*text, label), *pair], split, lists, labels)
            text = tuple(table[0])[:-1]  # the columns that the table has
            if split == "train" and kind != "regression":
                flags["labels_are_json"] = _are_json([row[label] for row in table])
            data = self._write_rows(table, values["output_dir"], split)
        return {**flags, self.files[split]: data, "text_columns": text}

    def _to_values(self, examples):
        return [a if b is None else (a, b) for _, a, b, _ in examples]

    def _read(self, data, fields, choices=()):
        # A table may have the columns of the training.
        text = _text_columns(vars(self._saved_settings) | self._to_flags({}))
        choices = [text] if len(text) <= len(fields) else []
        return super()._read(data, fields, choices)


class TextClassifier(ClassifierMixin, _Texts):
    """Classifies texts or pairs of texts.

    Settings are the flags of `run_classifier.py`, `text` and `label`. `text` is the
    column of the text, or a tuple of the two columns of a pair. `label` is the column
    of the label. With `kind="multi_label"` each text has a list of labels.
    `class_weights` is "balanced", or a dict of labels to numbers.

        model = TextClassifier.from_pretrained("albert_base_v2")
        model.fit(train, validation=dev, text="review", label="stars", epochs=3)
        model.predict(["A fine film."])

    Attributes:
        classes_: the labels, with their types in the data of `fit`, in the order of
            `predict_proba`. They have the order of the setting `classes`, or else are
            sorted. `threshold` applies to `classes_[1]`.
    """

    task_types = ("classification", "multi_label")

    @property
    def classes_(self) -> np.ndarray:
        """The labels in the order of the outputs."""
        decode = json.loads if self._saved_settings.labels_are_json else str
        values = [decode(label) for label in self._saved_settings.labels]
        # Otherwise NumPy would convert labels of several types to one type.
        return np.array(values, None if len(set(map(type, values))) == 1 else object)

    def predict(self, texts: Any, **options: Any) -> np.ndarray:
        """Returns the label of each text.

        Args:
            texts: a list of texts or of pairs, a table with their columns, or the path
                of a file.
            **options: see `AnswerSettings`: `threshold`, `runtime`, `batch_size`.

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
        # NumPy would make an array of rank 2 from lists of equal length.
        lists = [[classes[label] for label in answer["labels"]] for answer in answers]
        return pandas.Series(lists, dtype=object).to_numpy()

    def predict_proba(self, texts: Any, **options: Any) -> np.ndarray:
        """Returns the probability of each class, float [n, K]; see `predict`."""
        dicts = [answer["probabilities"] for answer in self(texts, **options)]
        # With `top_k`, an answer has only some labels; the others are NaN.
        return pandas.DataFrame(dicts, columns=self._saved_settings.labels).to_numpy()


class TextRegressor(RegressorMixin, _Texts):
    """Predicts a number for texts or pairs; settings as for `TextClassifier`."""

    task_types = ("regression",)

    def predict(self, texts: Any, **options: Any) -> np.ndarray:
        """Returns the number of each text, float [n]; see `TextClassifier.predict`."""
        return np.array([answer["value"] for answer in self(texts, **options)])


class TokenClassifier(FineTuned):
    """Labels words: named entities, parts of speech; settings of `run_tagging.py`.

    Data is the path of a file in CoNLL-2003's columns or of JSON lines, or a table with
    lists in the columns `tokens` and `tags`. `token_column` and `label_column` select
    other columns by name, or by number in a CoNLL file. Tags of entities are IOB2.
    """

    family = Tagging
    settings_classes = (TaggingSettings, FineTuningSettings, *COMMON_SETTINGS)
    columns = lists = ("tokens", "tags")

    def predict(self, texts: Any, **options: Any) -> list[list[dict[str, Any]]]:
        """Returns the spans of each text.

        Args:
            texts: raw texts, of any length; or the path of a file, whose words are
                joined by spaces.
            **options: see `AnswerSettings`: `runtime`, `batch_size`.

        Returns:
            For each text a list of dicts with `type`, `text`, `begin`, `end`
            (characters of the text) and `probability`.

        Raises:
            InputError: the model is not fine-tuned, or a row is not a text.
        """
        return [answer["spans"] for answer in self(texts, **options)]

    def _columns(self, values):
        tokens, tags = values.get("token_column"), values.get("label_column")
        columns = (tokens or "tokens", tags or "tags")
        return columns, columns

    def _to_values(self, examples):
        return [" ".join(sentence.words) for sentence in examples]


def _text_columns(values: Values) -> tuple[str, ...]:
    """Returns the columns of the text or pair, from the values of flags."""
    names = values.get("text_columns", "text")
    names = [names] if isinstance(names, (str, int)) else names
    return tuple(map(str, names))


def _are_json(labels: Sequence[Any]) -> bool:
    """Whether labels, or the items of lists of labels, are not texts.

    Raises:
        InputError: labels are texts and numbers, or rows of 0 and 1.
    """
    lists = [each if isinstance(each, list) else [each] for each in labels]
    if any(each.count(0) > 1 or each.count(1) > 1 for each in lists):
        raise InputError("train: labels are rows of 0 and 1 or batches; expected names")
    are_texts = {isinstance(label, str) for each in lists for label in each}
    if len(are_texts) == 2:
        raise InputError("train: labels are texts and numbers; use one type")
    return are_texts == {False}
