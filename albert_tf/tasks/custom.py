"""Anybody's own table of text as a task, by flags."""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from albert_tf.data import tables
from albert_tf.data.tables import Column
from albert_tf.errors import InputError
from albert_tf.tasks import metrics
from albert_tf.tasks.settings.classification import CUSTOM, ClassificationSettings
from albert_tf.tasks.text_task import Score, TextTask, split_labels

_METRICS: dict[str, tuple[str, dict[str, Score]]] = {
    "classification": (
        "eval_accuracy",
        {
            "eval_accuracy": metrics.accuracy,
            "macro_f1": metrics.macro_f1,
            "matthew_corr": metrics.matthews,
        },
    ),
    "multi_label": (
        "micro_f1",
        {
            "micro_f1": metrics.micro_f1,
            "macro_f1": metrics.macro_f1,
            "eval_accuracy": metrics.accuracy,
        },
    ),
    "regression": (
        "pearson",
        {
            "pearson": metrics.pearson,
            "spearman": metrics.spearman,
            "MSE": metrics.mean_squared_error,
        },
    ),
}
_DEFAULT_KIND = "classification"
_NAMED = 20
# How pandas, NumPy, JSON, Python, R, SQL and Excel write a missing value.
_MISSING = {"nan", "NaN", "null", "None", "<NA>", "NA", "NULL", "#N/A"}


def declare(
    settings: ClassificationSettings,
    folder: ClassificationSettings | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> TextTask:
    """Returns the task that the flags describe.

    Args:
        settings: the flags.
        folder: what the `task.json` of the model stores: it counts where neither labels
            nor a training table are given.
        log: gets the labels of the training table, and warnings about them.

    Raises:
        InputError: no table is named, or the labels are needed and unknown.
    """
    named = {
        "train": settings.train_file,
        "dev": settings.dev_file,
        "test": settings.test_file,
    }
    files = {split: file for split, file in named.items() if file is not None}
    if not files:
        raise InputError(
            "--task_name=custom: expected --train_file, --dev_file or --test_file"
        )
    settings = _completed(settings, folder)
    return _task(
        settings,
        _labels(settings, log),
        files=files,
        headers=dict.fromkeys(files, settings.columns) if settings.columns else {},
        text=settings.text_columns,
    )


def of_model(stored: ClassificationSettings) -> TextTask:
    """Returns the task of a model without its data, from its `task.json`."""
    text = ("text",) if stored.texts == 1 else ("text_a", "text_b")
    return _task(stored, stored.labels, files={}, text=text)


def _task(
    settings: ClassificationSettings, labels: tuple[str, ...] | None, **others: Any
) -> TextTask:
    key_metric, scores = _METRICS[settings.kind or _DEFAULT_KIND]
    return TextTask(
        name=settings.task_name or CUSTOM,
        source="the user's own",
        label=settings.label_column,
        labels=labels,
        label_separator=_separator(settings),
        bounds=settings.bounds,
        index=settings.index_column,
        metrics=scores,
        key_metric=key_metric,
        **others,
    )


def _completed(
    settings: ClassificationSettings, folder: ClassificationSettings | None
) -> ClassificationSettings:
    """Takes from the model what the flags leave open."""
    if folder is None or settings.train_file or settings.labels:
        return settings
    kind = settings.kind or folder.kind
    return dataclasses.replace(
        settings,
        kind=kind,
        labels=None if kind == "regression" else folder.labels,
        label_separator=folder.label_separator or settings.label_separator,
    )


def _labels(
    settings: ClassificationSettings, log: Callable[[str], None]
) -> tuple[str, ...] | None:
    if settings.kind == "regression":
        return None
    labels = set(settings.labels or ())
    if not labels:
        if settings.train_file is None:
            raise InputError(
                "--labels: expected where neither --train_file nor a task.json in "
                "--output_dir names them"
            )
        counts = _count_labels(settings.train_file, settings)
        labels = set(counts)
        for line in _remarks(settings.train_file, counts):
            log(line)
    least = 1 if settings.kind == "multi_label" else 2
    if len(labels) < least:
        where = "--labels" if settings.labels else settings.train_file
        raise InputError(
            f"{where}: {len(labels)} different labels {sorted(labels)}; expected at "
            f"least {least}"
        )
    return settings.labels or tuple(sorted(labels, key=_by_number_then_word))


def _count_labels(path: str, settings: ClassificationSettings) -> Counter[str]:
    separator = _separator(settings)
    table = tables.read(
        path,
        [Column(settings.label_column, may_be_empty=separator is not None)],
        lambda values: split_labels(values[0], separator),
        header=settings.columns or None,
        skip_bad_rows=settings.skip_bad_rows,
        dialect=settings.dialect,
    )
    return Counter(itertools.chain.from_iterable(table.rows))


def _remarks(path: str, counts: Counter[str]) -> Iterator[str]:
    """Yields lines for the log on the labels of a table."""
    few = [f"{label!r} {count:,}" for label, count in counts.most_common(_NAMED)]
    more = len(counts) - len(few)
    others = f" and {more:,} others" if more else ""
    yield f"{path}: labels {', '.join(few)}{others}"
    alike: dict[str, list[str]] = {}
    for label in counts:
        alike.setdefault("".join(label.split()).casefold(), []).append(label)
    for labels in alike.values():
        if len(labels) > 1:
            named = ", ".join(map(repr, sorted(labels)))
            yield f"Warning: {path}: labels {named} differ only in case or spaces"
    for label in sorted(_MISSING & counts.keys()):
        yield f"Warning: {path}: {label!r}, as for a missing value, counts as a label"


def _separator(settings: ClassificationSettings) -> str | None:
    if settings.kind != "multi_label":
        return None
    return settings.label_separator or ","


def _by_number_then_word(label: str) -> tuple[bool, float, str]:
    """Puts numbers first, in their own order: -1 before 1, and 2 before 10."""
    try:
        number = float(label)
    except ValueError:
        number = math.nan
    is_number = math.isfinite(number)
    return (not is_number, number if is_number else 0.0, label)
