"""Anybody's own table of text as a task, declared by flags."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from albert_tf.data import tables
from albert_tf.data.tables import Column
from albert_tf.errors import InputError
from albert_tf.tasks import metrics
from albert_tf.tasks.settings.classification import CustomSettings
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
_DIGITS = 18


def declare(
    config: CustomSettings,
    *,
    skip_bad_rows: bool = False,
    known: Mapping[str, Any] | None = None,
) -> TextTask:
    """Returns the task that the flags describe.

    Args:
        config: the flags.
        skip_bad_rows: skip broken rows of the training table while labels are looked
            for; reading it as examples reports them.
        known: what the `task.json` of the model says: it counts where neither labels
            nor a training table are given.

    Raises:
        InputError: no table is named, or the labels are needed and cannot be found.
    """
    named = {
        "train": config.train_file,
        "dev": config.dev_file,
        "test": config.test_file,
    }
    files = {split: file for split, file in named.items() if file is not None}
    if not files:
        raise InputError(
            "--task_name=custom: expected --train_file, --dev_file or --test_file"
        )
    config = _completed(config, known or {})
    key_metric, scores = _METRICS[config.kind or _DEFAULT_KIND]
    return TextTask(
        name="custom",
        source="the user's own",
        files=files,
        headers=dict.fromkeys(files, config.columns) if config.columns else {},
        text=config.text_columns,
        label=config.label_column,
        labels=_labels(config, skip_bad_rows),
        label_separator=_separator(config),
        index=config.index_column,
        metrics=scores,
        key_metric=key_metric,
    )


def _completed(config: CustomSettings, known: Mapping[str, Any]) -> CustomSettings:
    """Takes from the model what the flags leave open."""
    if known.get("kind") not in _METRICS or config.train_file or config.labels:
        return config
    return dataclasses.replace(
        config,
        kind=config.kind or known["kind"],
        labels=() if config.kind == "regression" else tuple(known.get("labels") or ()),
        label_separator=known.get("label_separator") or config.label_separator,
    )


def _labels(config: CustomSettings, skip_bad_rows: bool) -> tuple[str, ...] | None:
    if config.kind == "regression":
        return None
    found = set(config.labels)
    if not found:
        if config.train_file is None:
            raise InputError(
                "--labels: expected where neither --train_file nor a task.json in "
                "--output_dir says them"
            )
        found = _labels_in(config.train_file, config, skip_bad_rows)
    least = 1 if config.kind == "multi_label" else 2
    if len(found) < least:
        where = "--labels" if config.labels else config.train_file
        raise InputError(
            f"{where}: {len(found)} different labels {sorted(found)}; expected at "
            f"least {least}"
        )
    return config.labels or tuple(sorted(found, key=_by_number_then_word))


def _labels_in(path: str, config: CustomSettings, skip_bad_rows: bool) -> set[str]:
    separator = _separator(config)
    table = tables.read(
        path,
        [Column(config.label_column, may_be_empty=separator is not None)],
        lambda values: split_labels(values[0], separator),
        header=config.columns or None,
        skip_bad_rows=skip_bad_rows,
    )
    return {label for labels in table.rows for label in labels}


def _separator(config: CustomSettings) -> str | None:
    return config.label_separator if config.kind == "multi_label" else None


def _by_number_then_word(label: str) -> tuple[bool, int, str]:
    """Puts whole numbers first, in their own order: 2 before 10."""
    # Python refuses to read numbers of thousands of digits.
    is_number = label.isdecimal() and len(label) <= _DIGITS
    return (not is_number, int(label) if is_number else 0, label)
