"""Per-label scores and the confusion matrix of a task, as lines to read."""

from collections.abc import Mapping, Sequence

import numpy as np

from albert_tf.tasks import metrics
from albert_tf.tasks.text_task import TextTask

# With more labels the lines of the matrix are wider than a terminal.
_MOST_COLUMNS = 12


def describe(task: TextTask, targets: np.ndarray, predictions: np.ndarray) -> str:
    """Returns a table of precision, recall and F1 of each label, in percent.

    Where each example has one label, and labels are few, the confusion matrix follows:
    a line for each true label, a column for each predicted one.

    Args:
        task: a task that has labels.
        targets: what `task.targets` returns.
        predictions: what `task.predict` returns.

    Raises:
        ValueError: the task is a regression.
    """
    if task.labels is None:
        raise ValueError(f"task {task.name}: a regression has no labels")
    count = len(task.labels)
    scores = metrics.per_label(targets, predictions, count)
    table = of_scores("label", dict(zip(task.labels, scores, strict=True)), "examples")
    if task.label_separator is not None or count > _MOST_COLUMNS:
        return table
    matrix = metrics.confusion_matrix(targets, predictions, count)
    lines = [["true \\ predicted", *task.labels]]
    for label, row in zip(task.labels, matrix.tolist(), strict=True):
        lines.append([label, *map(str, row)])
    return f"{table}\n{_aligned(lines)}"


def of_scores(title: str, scores: Mapping[str, Sequence[float]], counted: str) -> str:
    """Returns a line for each label with its precision, recall and F1, in percent.

    Args:
        title: of the labels.
        scores: a row of `metrics.per_label` for each.
        counted: what the last number of a row counts.
    """
    lines = [[title, "precision", "recall", "f1", counted]]
    for label, row in scores.items():
        percent = [f"{100 * value:.1f}" for value in row[: metrics.SUPPORT]]
        lines.append([label, *percent, f"{row[metrics.SUPPORT]:.0f}"])
    return _aligned(lines)


def _aligned(lines: list[list[str]]) -> str:
    """Joins cells to lines: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "".join(
        line[0].ljust(widths[0])
        + "".join(
            f"  {cell.rjust(width)}"
            for cell, width in zip(line[1:], widths[1:], strict=True)
        )
        + "\n"
        for line in lines
    )
