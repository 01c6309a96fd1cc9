"""Formats predictions as the released code does, and for the GLUE website."""

import re
from collections.abc import Sequence

import numpy as np

from albert_tf.tasks.text_task import Example, TextTask

_HEADER = "index\tprediction\n"
_SEPARATORS = re.compile("[\t\r\n]")


def released_files(
    task: TextTask, examples: Sequence[Example], outputs: np.ndarray
) -> dict[str, str]:
    """Returns the files that the released code writes for a test table.

    `test_results.tsv` has a line with the outputs of each example. `submit_results.tsv`
    has a header, and a line with the guid and the label of each example. **As
    released**, except that numbers in `submit_results.tsv` are clipped to their bounds.

    Args:
        task: the task.
        examples: n examples.
        outputs: float [n, K] probabilities, or float [n, 1] numbers of a regression.

    Returns:
        The contents of each file by its name.
    """
    # `tolist` would return float64 numbers, which print more digits than float32.
    lines = ("\t".join(map(str, row)) + "\n" for row in np.asarray(outputs))
    texts = task.decode_labels(task.decode(outputs))
    return {
        "test_results.tsv": "".join(lines),
        "submit_results.tsv": _format_table(examples, texts),
    }


def glue_file(task: TextTask, examples: Sequence[Example], outputs: np.ndarray) -> str:
    """Returns the contents of a submission file for the GLUE website.

    Args:
        task: a task of GLUE.
        examples: n examples.
        outputs: see `released_files`; numbers are written with three decimals.
    """
    predictions = task.decode(outputs)
    if task.labels is None:
        texts = [f"{number:.3f}" for number in predictions.tolist()]
    else:
        texts = task.decode_labels(predictions)
    return _format_table(examples, texts)


def _format_table(examples: Sequence[Example], texts: Sequence[str]) -> str:
    """Returns a header, and a line with the guid and the text of each prediction."""
    # A cell of a CSV table can contain tabs and line ends, which become spaces here.
    lines = (
        f"{_SEPARATORS.sub(' ', example.guid)}\t{_SEPARATORS.sub(' ', text)}\n"
        for example, text in zip(examples, texts, strict=True)
    )
    return _HEADER + "".join(lines)
