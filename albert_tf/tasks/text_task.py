"""A data set of texts or pairs of texts: its tables, labels and metrics.

A data set is one frozen `TextTask` in `catalogue.TASKS`:

    BOOLQ = TextTask(
        name="boolq",
        files={"train": "BoolQ/train.jsonl", "dev": "BoolQ/val.jsonl"},
        text=("question", "passage"),
        labels=("false", "true"),
    )
"""

import ast
import contextlib
import dataclasses
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from albert_tf.data import tables
from albert_tf.data.tables import Column, RowError, Table, Value
from albert_tf.errors import InputError
from albert_tf.tasks import metrics
from albert_tf.tasks.metrics import Score

Label = str | float | tuple[str, ...] | None

# Minimum probability of a predicted label, with several labels per example.
DEFAULT_THRESHOLD = 0.5
# Maximum number of labels that a message lists.
_LABELS_IN_A_MESSAGE = 10


class Example(NamedTuple):
    """One row of a table.

    Attributes:
        guid: the value of the index column, or the row's number from 0.
        text_a: the text, or the first text of a pair.
        text_b: the second text of a pair; None for a single text.
        label: a label, a number, or several labels; None in test tables.
    """

    guid: str
    text_a: str
    text_b: str | None
    label: Label


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextTask:
    """A data set of texts or pairs of texts with labels or numbers.

    Attributes:
        name: the value of `--task_name`.
        files: the path of each split's table, in the root folder of the benchmark. The
            name of a split is "train", or begins with "dev" or "test". Test tables
            have no labels.
        text: the column of the text, or the two columns of a pair.
        label: the column of the label.
        labels: all labels, in the order of the model's outputs. None for regression; ()
            until they are read from the training table.
        metrics: the metrics to report, by name.
        key_metric: the metric whose highest value marks the best checkpoint.
        label_separator: separator of several labels per example; None if each example
            has one label.
        bounds: lowest and highest number of a regression.
        index: the column that identifies the rows, if any.
        headers: the column names of splits whose tables have no header.
        submission: the name of the submission file of each split that the benchmark's
            website scores.
        label_names: other names of the labels, in the same order. The labels stored
            with existing weights may have these names, for example ("negative",
            "positive") for ("0", "1").
        aliases: other names of the task.
    """

    name: str
    files: Mapping[str, str]
    text: tuple[str | Column, ...]
    label: str = "label"
    labels: tuple[str, ...] | None
    metrics: Mapping[str, Score] = dataclasses.field(
        default_factory=lambda: {"eval_accuracy": metrics.accuracy}
    )
    key_metric: str = "eval_accuracy"
    label_separator: str | None = None
    bounds: tuple[float, float] | None = None
    index: str | None = "index"
    headers: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    submission: Mapping[str, str] = dataclasses.field(default_factory=dict)
    label_names: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The task type in `task.json`."""
        if self.labels is None:
            return "regression"
        return "multi_label" if self.label_separator else "classification"

    @property
    def num_outputs(self) -> int:
        """Number of outputs of the model: the number of labels, or 1 for regression."""
        return len(self.labels) if self.labels else 1

    def path(self, split: str, data_dir: str | Path = "") -> Path:
        """Returns the path of a split's table.

        Args:
            split: a key of `files`.
            data_dir: the root folder of the benchmark, or the folder of the task.

        Raises:
            InputError: the task has no such split, or there is no such file.
        """
        if split not in self.files:
            raise InputError(
                f"task {self.name}: no {split} table; it has {', '.join(self.files)}"
            )
        root_path = Path(data_dir, self.files[split])
        folder_path = Path(data_dir, root_path.name)
        for path in (root_path, folder_path):
            if path.is_file():
                return path
        other = f" (nor {folder_path})" if folder_path != root_path else ""
        raise InputError(
            f"{root_path}: no such file{other}; expected the {split} table of "
            f"the task {self.name}"
        )

    def read(
        self,
        split: str,
        data_dir: str | Path = "",
        *,
        skip_bad_rows: bool = False,
        **options: Any,
    ) -> Table[Example]:
        """Reads the examples of a split.

        An empty cell is an empty text. A pair of two empty texts is a broken row,
        except in test tables, because each row of a test table gets a prediction.

        Args:
            split: a key of `files`.
            data_dir: the root folder of the benchmark, or the folder of the task.
            skip_bad_rows: whether to skip broken rows, except in test tables.
            **options: further options of `tables.read`.

        Raises:
            InputError: there is no such table, it cannot be read, or a row is broken.
        """
        is_test = split.startswith("test")
        index = [Column(self.index, required=False)] if self.index else []
        columns = [Column(c) if isinstance(c, str) else c for c in self.text]
        texts = [column._replace(may_be_empty=True) for column in columns]
        label = Column(self.label, may_be_empty=self.label_separator is not None)
        row_numbers = itertools.count()

        # The values are in the order of the columns below: index, texts and label.
        def make_row(values: list[Value]) -> Example:
            guid = values.pop(0) if index else None
            cells = [_require_text(value) for value in values[: len(texts)]]
            if len(cells) == 2 and not is_test and not "".join(cells).strip():
                raise RowError("both texts are empty")
            return Example(
                guid=_require_text(guid or str(next(row_numbers))),
                text_a=cells[0],
                text_b=cells[1] if len(cells) > 1 else None,
                label=None if is_test else self._parse_label(values[-1]),
            )

        return tables.read(
            self.path(split, data_dir),
            [*index, *texts] if is_test else [*index, *texts, label],
            make_row,
            header=self.headers.get(split),
            skip_bad_rows=skip_bad_rows and not is_test,
            **options,
        )

    def targets(self, examples: Sequence[Example]) -> np.ndarray:
        """Returns the labels of examples, in the form of the results of `decode`."""
        values: list[Any] = [example.label for example in examples]
        if self.labels is None:
            return np.array(values, np.float32)
        class_numbers = {label: number for number, label in enumerate(self.labels)}
        if self.label_separator is None:
            return np.array([class_numbers[label] for label in values], np.int32)
        targets = np.zeros((len(values), len(class_numbers)), np.int32)
        for row, labels in zip(targets, values, strict=True):
            row[[class_numbers[label] for label in labels]] = 1
        return targets

    def decode(self, outputs: np.ndarray) -> np.ndarray:
        """Makes predictions from outputs of the model.

        **As released**, except that numbers of a regression are clipped to the bounds.

        Args:
            outputs: for n examples, probabilities of K labels, float [n, K], or numbers
                of a regression, float [n, 1].

        Returns:
            Class numbers, int32 [n]. With several labels per example: 1 for predicted
            labels and 0 for others, int32 [n, K]. For a regression: numbers within the
            bounds, float32 [n].
        """
        outputs = np.asarray(outputs)
        if self.labels is None:
            low, high = self.bounds or (-math.inf, math.inf)
            return np.clip(outputs.reshape(len(outputs)), low, high).astype(np.float32)
        if self.label_separator is not None:
            return (outputs >= DEFAULT_THRESHOLD).astype(np.int32)
        return outputs.argmax(axis=-1).astype(np.int32)

    def compute_metrics(
        self, targets: np.ndarray, predictions: np.ndarray
    ) -> dict[str, float]:
        """Returns the metrics by name.

        Args:
            targets: the result of `targets`.
            predictions: the result of `decode`.
        """
        return {
            name: score(targets, predictions) for name, score in self.metrics.items()
        }

    def decode_labels(self, predictions: np.ndarray) -> list[str]:
        """Returns a text for each prediction of `decode`: its labels or its number."""
        if self.labels is None:
            return [str(number) for number in predictions]
        if self.label_separator is None:
            return [self.labels[number] for number in predictions]
        return [
            self.label_separator.join(self.labels[i] for i in np.flatnonzero(row))
            for row in predictions
        ]

    def _parse_label(self, value: Value) -> Label:
        """Returns the label, the labels or the number in a cell."""
        if self.labels is None:
            return self._parse_number(_require_text(value))
        labels = split_labels(value, self.label_separator)
        for label in labels:
            # If `self.labels` is (), the table decides which labels there are.
            if self.labels and label not in self.labels:
                names = ", ".join(map(repr, self.labels[:_LABELS_IN_A_MESSAGE]))
                more = len(self.labels) - _LABELS_IN_A_MESSAGE
                others = f" and {more} more" if more > 0 else ""
                raise RowError(f"label {label!r}; expected one of {names}{others}")
        return labels[0] if self.label_separator is None else labels

    def _parse_number(self, text: str) -> float:
        """Returns the number of a regression; raises RowError if it is not valid."""
        low, high = self.bounds or (-math.inf, math.inf)
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or not low <= number <= high:
            within = f" in [{low:g}, {high:g}]" if self.bounds else ""
            raise RowError(f"label {text!r}; expected a number{within}")
        return number


def split_labels(value: Value, separator: str | None) -> tuple[str, ...]:
    """Returns the labels in a cell, without surrounding white space.

    Args:
        value: the items of a list in a JSON table, or the text of a cell. If there is a
            separator, the text can have three forms: a list as JSON or Python writes
            it; an object whose only value is such a list, as Label Studio writes it; or
            labels with separators between them.
        separator: the separator of several labels; None for a single label.

    Raises:
        RowError: there are several labels instead of one, or a list cannot be read.
    """
    if separator is None:
        if isinstance(value, tuple) and len(value) == 1:
            value = value[0]
        return (_require_text(value).strip(),)
    parts: Iterable[str] = value if isinstance(value, tuple) else ()
    if isinstance(value, str):
        cell = value.strip()
        has_brackets = cell[:1] + cell[-1:] in ("[]", "{}")
        parts = map(str, _parse_list(cell)) if has_brackets else cell.split(separator)
    return tuple(part.strip() for part in parts if part.strip())


def _parse_list(cell: str) -> list[Any]:
    """Returns the items of a list in JSON or Python, or of an object with one list.

    Raises:
        RowError: the cell has no list of texts and integers.
    """
    for parse in (json.loads, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            labels = parse(cell)
            # NumPy prints an array without commas, and Python would read "['a' 'b']" as
            # ['ab']. So a value from `literal_eval` is used only if Python prints it as
            # the text of the cell, apart from white space and the kind of quotes.
            is_python = parse is ast.literal_eval
            if is_python and _normalize(repr(labels)) != _normalize(cell):
                continue
            if isinstance(labels, dict) and len(labels) == 1:
                labels = next(iter(labels.values()))
            is_list = isinstance(labels, list)
            if is_list and all(isinstance(each, str | int) for each in labels):
                return labels
    raise RowError(f"{cell!r}; expected a list of labels in JSON or Python")


def _normalize(text: str) -> str:
    """Returns a text without white space, and with single instead of double quotes."""
    return "".join(text.split()).replace('"', "'")


def _require_text(value: Value) -> str:
    """Returns the text of a cell; raises RowError if it has a list or no value."""
    if not isinstance(value, str):
        raise RowError(f"a list {list(value or ())}; expected one text or number")
    return value
