"""Estimators that predict labels or numbers for texts, pairs of texts and words.

Data for texts and pairs is a table with texts and labels: the path of a .csv, .tsv or
.jsonl file, a DataFrame, a list of dicts, a dict of columns, or a `tf.data.Dataset`. Or
it is a list of texts or of pairs of texts, and a list of labels.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin

from albert_tf.errors import InputError
from albert_tf.estimators import rows
from albert_tf.estimators.base import COMMON_SETTINGS, FineTuned
from albert_tf.tasks.classification import Classification
from albert_tf.tasks.settings.classification import (
    ClassificationSettings,
    ClassifierRunSettings,
)
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings
from albert_tf.tasks.settings.tagging import TaggingSettings
from albert_tf.tasks.tagging.task import Tagging
from albert_tf.weights.folder import ModelFolder

_PAIR = ("text_a", "text_b")


class _Texts(FineTuned):
    """Base of `TextClassifier` and `TextRegressor`."""

    family = Classification
    settings_classes = (ClassificationSettings, ClassifierRunSettings, *COMMON_SETTINGS)
    files: ClassVar = {"train": "train_file", "dev": "dev_file", "test": "test_file"}

    def _prepare_split(self, split, data, labels, values, folder):
        kind = values.get("kind", self.task_types[0])
        if kind not in self.task_types:
            raise InputError(
                f"{type(self).__name__}: kind={kind!r}; expected "
                f"{' or '.join(self.task_types)}"
            )
        text, label = _text_columns(values), str(values.get("label_column", "label"))
        flags = {"task_name": "custom", "kind": kind, "label_column": label}
        is_multi_label = kind == "multi_label"
        if labels is not None or not rows.is_path(data):
            alternatives = [(*_PAIR, label)] if text == ("text",) else []
            lists = (label,) if is_multi_label else ()
            table = rows.read(data, (*text, label), split, lists, alternatives, labels)
            # The text columns that were found; the last column is the label.
            text = tuple(table[0])[:-1]
            label_lists = [v if isinstance(v := r[label], list) else [v] for r in table]
            if is_multi_label:
                # The columns of a DataFrame of labels are the classes.
                classes = [*getattr(labels, "columns", values.get("labels") or ())]
                if _is_multi_hot(label_lists):
                    label_lists = _decode_multi_hot(label_lists, classes, split)
                    flags["labels"] = classes
                for row, names in zip(table, label_lists, strict=True):
                    row[label] = names
            if split == "train" and kind != "regression":
                flags["labels_are_json"] = _are_json(label_lists, split)
            data = self._write_rows(table, split, folder)
        return {**flags, self.files[split]: str(data), "text_columns": text}

    def _to_values(self, examples):
        return [
            e.text_a if e.text_b is None else (e.text_a, e.text_b) for e in examples
        ]

    def _read(self, data, fields):
        # Columns as in the training, or with the names of the model's fields.
        text = _text_columns(self._stored_flags | self._to_flags({}))
        columns = [each for each in (text, tuple(fields)) if len(each) <= len(fields)]
        data = [data] if isinstance(data, str) else data
        table = rows.read(data, columns[0], "texts", alternatives=columns[1:])
        return [dict(zip(fields, row.values(), strict=False)) for row in table]


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
            sorted. `threshold` is for `classes_[1]`.
    """

    task_types = ("classification", "multi_label")

    @property
    def classes_(self) -> np.ndarray:
        """The labels in the order of the outputs."""
        values: list[Any] = self._labels
        if ModelFolder(self.folder).task.get("labels_are_json"):
            values = [json.loads(label) for label in values]
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
        classes = dict(zip(self._labels, self.classes_.tolist(), strict=True))
        if "label" in answers[0]:
            labels = [classes[answer["label"]] for answer in answers]
            return np.array(labels, self.classes_.dtype)
        # np.array would make an array of rank 2 from lists of equal length.
        array = np.empty(len(answers), object)
        array[:] = [[classes[label] for label in a["labels"]] for a in answers]
        return array

    def predict_proba(self, texts: Any, **options: Any) -> np.ndarray:
        """Returns the probability of each class, float [n, K]; see `predict`."""
        dicts = (answer["probabilities"] for answer in self(texts, **options))
        # With `top_k`, an answer has only some labels.
        table = [[row.get(label, np.nan) for label in self._labels] for row in dicts]
        return np.array(table)

    @property
    def _labels(self) -> list[str]:
        """The labels of the model, as texts."""
        return list(ModelFolder(self.folder).task["labels"])


class TextRegressor(RegressorMixin, _Texts):
    """Predicts a number for texts or pairs; settings as for `TextClassifier`."""

    task_types = ("regression",)

    def predict(self, texts: Any, **options: Any) -> np.ndarray:
        """Returns the number of each text, float [n]; see `TextClassifier.predict`."""
        return np.array([answer["value"] for answer in self(texts, **options)])


class TokenClassifier(FineTuned):
    """Labels words: named entities, parts of speech; settings of `run_tagging.py`.

    Data is the path of a file in CoNLL-2003's columns or of JSON lines, or a table with
    lists in the columns `tokens` and `tags`. `token_column` and `label_column` are
    other names of columns, or numbers of a CoNLL file's columns. Tags of entities are
    IOB2.
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
        names = (values.get("token_column"), values.get("label_column"))
        # A setting replaces the class's own name of a column.
        columns = [name or own for name, own in zip(names, self.columns, strict=True)]
        return columns, columns

    def _to_values(self, examples):
        return [" ".join(sentence.words) for sentence in examples]


def _text_columns(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the columns of the text or pair, from the values of flags."""
    names = values.get("text_columns", "text")
    return tuple(map(str, [names] if isinstance(names, (str, int)) else names))


def _are_json(label_lists: Sequence[Sequence[Any]], split: str) -> bool:
    """Whether labels are numbers or truth values, not texts."""
    are_texts = {isinstance(label, str) for labels in label_lists for label in labels}
    if len(are_texts) == 2:
        raise InputError(f"{split}: labels are texts and numbers; use one type")
    return are_texts == {False}


def _is_multi_hot(label_lists: Sequence[Sequence[Any]]) -> bool:
    """Whether each row has a 0 or 1 for each label, not a list of labels."""
    same_length = len(set(map(len, label_lists))) == 1 and len(label_lists[0]) > 1
    return same_length and all(
        label in (0, 1) for labels in label_lists for label in labels
    )


def _decode_multi_hot(
    label_lists: Sequence[Sequence[Any]], names: Sequence[Any], split: str
) -> list[list[Any]]:
    """Returns lists of labels for rows of 0 and 1.

    Raises:
        InputError: the number of names differs from the length of the rows.
    """
    if len(names) != len(label_lists[0]):
        raise InputError(
            f"{split}: each row has {len(label_lists[0])} labels, all of them 0 or 1; "
            f"expected lists of labels, or classes=[...] with a name for each"
        )
    return [[*itertools.compress(names, row)] for row in label_lists]
