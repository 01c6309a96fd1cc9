"""Formats predictions as the released code does, and for GLUE's site."""

import re
from collections.abc import Sequence

import numpy as np

from albert_tf.tasks.text_task import Example, TextTask

_HEADER = "index\tprediction\n"
_SEPARATORS = re.compile("[\t\r\n]")


def released_files(
    task: TextTask, examples: Sequence[Example], outputs: np.ndarray
) -> dict[str, str]:
    """Returns the files that the released code writes for a test table, by name.

    `test_results.tsv` has the outputs of an example in each line, `submit_results.tsv`
    has a header, and the guid and label of an example in each line. **As released**,
    except that the numbers of regressions are clipped to their bounds in the latter.

    Args:
        task: the task.
        examples: n examples.
        outputs: float [n, K] probabilities, or float [n, 1] numbers of a regression.
    """
    # `tolist` would give float64, which shows more digits than a float32 has.
    lines = ("\t".join(map(str, row)) + "\n" for row in np.asarray(outputs))
    words = task.decode_labels(task.decode(outputs))
    return {
        "test_results.tsv": "".join(lines),
        "submit_results.tsv": _two_columns(examples, words),
    }


def glue_file(task: TextTask, examples: Sequence[Example], outputs: np.ndarray) -> str:
    """Returns the contents of the file that GLUE's site takes.

    Args:
        task: a task of GLUE.
        examples: n examples.
        outputs: see `released_files`; scores are written with three decimals.
    """
    predictions = task.decode(outputs)
    if task.labels is None:
        words = [f"{number:.3f}" for number in predictions.tolist()]
    else:
        words = task.decode_labels(predictions)
    return _two_columns(examples, words)


def _two_columns(examples: Sequence[Example], words: Sequence[str]) -> str:
    # A cell of a CSV table may contain a tab or the end of a line.
    lines = (
        f"{_SEPARATORS.sub(' ', example.guid)}\t{_SEPARATORS.sub(' ', word)}\n"
        for example, word in zip(examples, words, strict=True)
    )
    return _HEADER + "".join(lines)
