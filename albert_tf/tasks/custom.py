"""Makes the `TextTask` that settings describe: of the catalogue or for a user's table.

The module also finds the labels in a user's table.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from albert_tf.errors import InputError
from albert_tf.tasks import catalogue, metrics
from albert_tf.tasks.metrics import Score
from albert_tf.tasks.settings.classification import CUSTOM, ClassificationSettings
from albert_tf.tasks.text_task import Example, TextTask

# Metrics of a user's table by task type. The first metric of a type is its key metric.
_METRICS: dict[str, dict[str, Score]] = {
    "classification": {
        "eval_accuracy": metrics.accuracy,
        "macro_f1": metrics.macro_f1,
        "matthew_corr": metrics.matthews,
    },
    "multi_label": {
        "micro_f1": metrics.micro_f1,
        "macro_f1": metrics.macro_f1,
        "eval_accuracy": metrics.accuracy,
    },
    "regression": metrics.REGRESSION,
}
# Maximum number of labels that a log line lists.
_LABELS_IN_A_LINE = 20
# Missing values as written by pandas, NumPy, JSON, Python, R, SQL and Excel.
_MISSING = {"nan", "NaN", "null", "None", "<NA>", "NA", "NULL", "#N/A"}


def from_settings(settings: ClassificationSettings) -> TextTask:
    """Makes the task that settings describe.

    If the settings have no labels, the labels of the task are (); for a regression
    None. With (), the caller must use `find_labels`, which reads the training table.

    Args:
        settings: the settings from flags or from a `task.json`.
    """
    kind, labels = settings.kind or "classification", settings.labels or ()
    if task := catalogue.TASKS.get(settings.task_name or ""):
        is_regression = task.labels is None
        # The labels of the settings are in the order of the model's outputs.
        return dataclasses.replace(task, labels=None if is_regression else labels)
    paths = {key: getattr(settings, f"{key}_file") for key in ("train", "dev", "test")}
    files = {split: path for split, path in paths.items() if path is not None}
    separator = settings.label_separator or ","
    return TextTask(
        name=settings.task_name or CUSTOM,
        files=files,
        headers=dict.fromkeys(files, settings.columns) if settings.columns else {},
        text=settings.text_columns,
        label=settings.label_column,
        labels=None if kind == "regression" else labels,
        label_separator=separator if kind == "multi_label" else None,
        bounds=settings.bounds,
        index=settings.index_column,
        metrics=_METRICS[kind],
        key_metric=next(iter(_METRICS[kind])),
    )


def merge_saved_settings(
    settings: ClassificationSettings, saved_settings: ClassificationSettings | None
) -> ClassificationSettings:
    """Adds the model's task type and labels to the settings of a user's table.

    They are added only if the user gives neither a training table nor --labels.

    Args:
        settings: the flags.
        saved_settings: the settings in the model's `task.json`, or None.

    Raises:
        InputError: no table is given, there are too few labels, or there are neither
            labels nor a training table to find them in.
    """
    if not (settings.train_file or settings.dev_file or settings.test_file):
        raise InputError(
            "--task_name=custom: requires --train_file, --dev_file or --test_file"
        )
    if saved_settings and not settings.train_file and not settings.labels:
        kind = settings.kind or saved_settings.kind
        settings = dataclasses.replace(
            settings,
            kind=kind,
            labels=None if kind == "regression" else saved_settings.labels,
            label_separator=saved_settings.label_separator or settings.label_separator,
        )
    if settings.labels:
        _check_count("--labels", settings.kind, settings.labels)
    elif settings.kind != "regression" and settings.train_file is None:
        raise InputError(
            "--labels: required without --train_file or a task.json in --output_dir"
        )
    return settings


def find_labels(
    task: TextTask, examples: Iterable[Example], log: Callable[[str], None]
) -> tuple[str, ...]:
    """Returns the sorted labels of a training table; logs their counts.

    Raises:
        InputError: there are too few labels.
    """
    counts: Counter[str] = Counter()
    for example in examples:
        label: Any = example.label
        counts.update(label if isinstance(label, tuple) else (label,))
    for line in _describe_labels(task.files["train"], counts):
        log(line)
    _check_count(task.files["train"], task.kind, counts)
    return tuple(sorted(counts, key=_natural_sort_key))


def settings_fields(task: TextTask) -> dict[str, Any]:
    """Returns the settings that describe a task, by name: values for `task.json`."""
    return {
        "task_name": task.name,
        "kind": task.kind,
        "labels": task.labels,
        "label_names": task.label_names,
        "labels_are_fixed": task.name in catalogue.TASKS,
        "label_separator": task.label_separator,
        "bounds": task.bounds,
        "texts": len(task.text),
        # An item of `text` is a `Column`, or the name of a column.
        "text_columns": tuple(getattr(each, "name", each) for each in task.text),
        "label_column": task.label,
    }


def _check_count(location: str, kind: str | None, labels: Collection[str]) -> None:
    """Checks that there are enough labels for a task type.

    Args:
        location: the flag or file with the labels, for the message.
        kind: the task type; None for classification.
        labels: the different labels.
    """
    least = 1 if kind == "multi_label" else 2
    if len(labels) < least:
        raise InputError(
            f"{location}: {len(labels)} different labels {sorted(labels)}; expected at "
            f"least {least}"
        )


def _describe_labels(path: str, counts: Counter[str]) -> Iterator[str]:
    """Yields log lines: the labels of a table, and warnings about suspicious labels."""
    entries = [
        f"{label!r} {count:,}" for label, count in counts.most_common(_LABELS_IN_A_LINE)
    ]
    num_others = len(counts) - len(entries)
    others = f" and {num_others:,} others" if num_others else ""
    yield f"{path}: labels {', '.join(entries)}{others}"
    # The labels, grouped by their form without case and spaces.
    variants: dict[str, list[str]] = {}
    for label in counts:
        variants.setdefault("".join(label.split()).casefold(), []).append(label)
    for labels in variants.values():
        if len(labels) > 1:
            names = ", ".join(map(repr, sorted(labels)))
            yield f"Warning: {path}: labels {names} differ only in case or spaces"
    for label in sorted(_MISSING & counts.keys()):
        yield f"Warning: {path}: {label!r} looks like a missing value, but is a label"


def _natural_sort_key(label: str) -> tuple[bool, float, str]:
    """Returns a key that sorts numbers by value, before words: -1, 1, 2, 10, yes."""
    try:
        number = float(label)
    except ValueError:
        number = math.nan
    is_number = math.isfinite(number)
    return (not is_number, number if is_number else 0.0, label)
