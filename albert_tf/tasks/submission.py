"""Formats predictions as released, and for the GLUE website."""

import re
from collections.abc import Sequence

import numpy as np

from albert_tf.tasks.text_task import Example, TextTask

_HEADER = "index\tprediction\n"
_SEPARATORS = re.compile("[\t\r\n]")


def released_files(
    task: TextTask, examples: Sequence[Example], outputs: np.ndarray
) -> dict[str, str]:
    """Returns the released files for a test table: contents by name.

    `test_results.tsv` has a line with the outputs of each example. `submit_results.tsv`
    has a header, and a line with the guid and the label of each example. **As
    released**, except that regressions are clipped to their bounds in the latter.

    Args:
        task: the task.
        examples: n examples.
        outputs: float [n, K] probabilities, or float [n, 1] numbers of a regression.
    """
    # `tolist` would return float64 numbers, which print more digits than float32.
    lines = ("\t".join(map(str, row)) + "\n" for row in np.asarray(outputs))
    words = task.decode_labels(task.decode(outputs))
    return {
        "test_results.tsv": "".join(lines),
        "submit_results.tsv": _two_columns(examples, words),
    }


def glue_file(task: TextTask, examples: Sequence[Example], outputs: np.ndarray) -> str:
    """Returns the contents of a submission file for the GLUE website.

    Args:
        task: a task of GLUE.
        examples: n examples.
        outputs: see `released_files`; numbers get three decimals.
    """
    predictions = task.decode(outputs)
    if task.labels is None:
        words = [f"{number:.3f}" for number in predictions.tolist()]
    else:
        words = task.decode_labels(predictions)
    return _two_columns(examples, words)


def _two_columns(examples: Sequence[Example], words: Sequence[str]) -> str:
    # A cell of a CSV table can contain tabs and line ends.
    lines = (
        f"{_SEPARATORS.sub(' ', example.guid)}\t{_SEPARATORS.sub(' ', word)}\n"
        for example, word in zip(examples, words, strict=True)
    )
    return _HEADER + "".join(lines)
