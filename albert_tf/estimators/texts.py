"""Texts and pairs of texts to labels or numbers.

Data is a table with texts and labels: the path of a .csv, .tsv or .jsonl file, a
DataFrame, a list of dicts, a dict of columns, or a `tf.data.Dataset`. Or it is a list
of texts, or of pairs of them, with a list of labels beside it.
"""

import json
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin

from albert_tf.errors import InputError
from albert_tf.estimators import rows
from albert_tf.estimators.base import FineTuned
from albert_tf.tasks.classification import Classification
from albert_tf.tasks.settings.classification import ClassifierRunSettings
from albert_tf.weights.folder import ModelFolder

_PAIR = ("text_a", "text_b")


class _Texts(FineTuned):
    """What both kinds share."""

    family = Classification
    run_settings = ClassifierRunSettings
    files = types.MappingProxyType({"train": "train_file", "dev": "dev_file"})
    own = types.MappingProxyType({"text": "text", "label": "label"})

    def _write(self, split, data, labels, values: Mapping, folder: Path):
        text, label = _columns(values["text"]), values["label"]
        if labels is not None:
            text, table = _apart(data, text, split)
            data = rows.beside(table, label, labels, split)
        if not rows.is_path(data):
            table = rows.read(data, (*text, label), split)
            data = self._store(table, split, folder)
            if split == "train":
                self._note_labels(table, label)
        return {
            "task_name": "custom",
            self.files[split]: str(data),
            "text_columns": text,
            "label_column": label,
            "kind": values.get("kind", self.kinds[0]),
        }

    def _check(self, settings):
        super()._check(settings)
        if settings.get("kind", self.kinds[0]) not in self.kinds:
            raise InputError(
                f"{type(self).__name__}: kind={settings['kind']!r}; expected "
                f"{' or '.join(self.kinds)}"
            )

    def _note_labels(self, table: Sequence[rows.Row], label: str) -> None:
        return

    def _rows(self, data: Any) -> list[dict[str, Any]]:
        fields = tuple(self.predictor().fields)
        data = [data] if isinstance(data, str) else data
        if not rows.has_columns(data) and not hasattr(data, "element_spec"):
            data = list(data)  # a generator, whose first row says what it has
        text = _columns(self._values.get("text", fields))
        if len(text) != len(fields) or not rows.has_columns(data):
            text = fields
        table = rows.read(data, text, "texts")
        return [dict(zip(fields, row.values(), strict=True)) for row in table]


class TextClassifier(ClassifierMixin, _Texts):
    """Sorts texts, or pairs of texts, into classes.

    Settings are the flags of `run_classifier.py`; beside them `text`, the column of the
    text, or a tuple of both columns of a pair, and `label`, the column of the label.
    With `kind="multi_label"` each text has any number of labels, given as a list.

        model = TextClassifier.from_pretrained("albert_base_v2")
        model.fit(train, validation=dev, text="review", label="stars", epochs=3)
        model.predict(["A fine film."])

    Attributes:
        classes_: the labels in rising order, which `predict_proba` has, too. They are
            the values that `fit` was given; of a model that was loaded, texts.
    """

    kinds = ("classification", "multi_label")

    @property
    def classes_(self) -> np.ndarray:
        """The labels in rising order, as scikit-learn has them."""
        values = [self._value(label) for label in self._labels]
        return np.array(values, None if len(set(map(type, values))) == 1 else object)

    def predict(self, texts: Any, **options: Any) -> "Labels":
        """Returns the label of each text.

        Args:
            texts: a list of texts, or of pairs; or a table with their columns.
            **options: see `AnswerSettings`: `threshold`, `runtime`, `batch_size`.

        Returns:
            An array [n], whose attribute `probabilities` is what `predict_proba`
            returns. With `kind="multi_label"`, a list of labels for each text.

        Raises:
            InputError: the model is not fine-tuned, or a row is no text.
        """
        answers = self(texts, **options)
        classes = {label: self._value(label) for label in self._labels}
        probabilities = _probabilities(answers, self._labels)
        if answers and "labels" in answers[0]:
            chosen = [[classes[label] for label in a["labels"]] for a in answers]
            array = np.empty(len(chosen), object)
            array[:] = chosen
            return Labels.of(array, probabilities)
        array = np.array([classes[answer["label"]] for answer in answers])
        return Labels.of(array, probabilities)

    def predict_proba(self, texts: Any, **options: Any) -> np.ndarray:
        """Returns the probability of each class, float [n, K]; see `predict`."""
        return _probabilities(self(texts, **options), self._labels)

    @property
    def _labels(self) -> list[str]:
        """The labels as the model names them, in the order of `classes_`."""
        labels = list(ModelFolder(self.folder).task["labels"])
        if len({type(self._value(label)) for label in labels}) == 1:
            labels.sort(key=self._value)
        return labels

    def _value(self, label: str) -> Any:
        """Returns a label as `fit` was given it."""
        return getattr(self, "_originals", {}).get(label, label)

    def _note_labels(self, table, label):
        self._originals: dict[str, Any] = {}
        for row in table:
            value = row[label]
            for each in value if isinstance(value, list) else [value]:
                text = each if isinstance(each, str) else json.dumps(each)
                self._originals.setdefault(text, each)


class TextRegressor(RegressorMixin, _Texts):
    """Gives texts, or pairs of texts, a number; settings as for `TextClassifier`."""

    kinds = ("regression",)

    def predict(self, texts: Any, **options: Any) -> np.ndarray:
        """Returns the number of each text, float [n]; see `TextClassifier.predict`."""
        return np.array([answer["value"] for answer in self(texts, **options)])


class Labels(np.ndarray):
    """Labels of texts, with their probabilities beside them.

    Attributes:
        probabilities: float [n, K], as `predict_proba` returns them.
    """

    probabilities: np.ndarray | None = None

    @classmethod
    def of(cls, labels: np.ndarray, probabilities: np.ndarray) -> "Labels":
        """Puts both together."""
        array = labels.view(cls)
        array.probabilities = probabilities
        return array


def _probabilities(answers, labels: Sequence[str]) -> np.ndarray:
    rows = [[answer["probabilities"][label] for label in labels] for answer in answers]
    return np.array(rows).reshape(len(rows), len(labels))


def _columns(text: Any) -> tuple[str, ...]:
    columns = (text,) if isinstance(text, str) else tuple(text)
    if len(columns) not in (1, 2):
        raise InputError(f"text={text!r}: expected the name of a column, or of two")
    return columns


def _apart(
    texts: Any, text: tuple[str, ...], name: str
) -> tuple[tuple[str, ...], list[rows.Row]]:
    """Returns the names of columns, and the rows, of texts whose labels are apart."""
    if rows.is_path(texts):
        raise InputError(
            f"{name}: a path with labels apart; expected a table that holds them, or a "
            f"list of texts"
        )
    if not rows.has_columns(texts):
        texts = list(texts)
        text = ("text",) if isinstance(next(iter(texts), ""), str) else _PAIR
    return text, rows.read(texts, text, name)
