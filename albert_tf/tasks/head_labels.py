"""Matches the labels of a loaded head with the labels of a task, by name."""

import re
from collections.abc import Sequence

# Each line has the names of one label, in small letters and without spaces, hyphens and
# underscores. `_normalize` replaces a name by the first name of its line.
_SYNONYMS = """
entailment entails entailed
contradiction contradicts contradictory
notentailment nonentailment noentailment
equivalent paraphrase duplicate
notequivalent nonequivalent notparaphrase nonparaphrase notduplicate nonduplicate
acceptable grammatical
unacceptable notacceptable ungrammatical
positive pos
negative neg
"""
_CANONICAL = {
    word: line.split()[0] for line in _SYNONYMS.split("\n") for word in line.split()
}


def match(
    labels: Sequence[str], head: Sequence[str], names: Sequence[str] = ()
) -> list[int] | None:
    """Returns for each label of a task the index of the head's output with this label.

    Letter case is ignored, and so are spaces, hyphens and underscores within a label.
    Names on the same line of `_SYNONYMS` are equal, and "LABEL_0" equals "0".

    Args:
        labels: the task's labels.
        head: the labels of the head, in the order of its outputs.
        names: other names of the task's labels, in the same order.

    Returns:
        The indices; None if the head has other labels. If two labels of the head count
        as equal, its labels must be exactly `labels`.
    """
    if sorted(labels) == sorted(head):
        return [head.index(label) for label in labels]
    outputs = [_normalize(label) for label in head]
    are_unique = len(set(outputs)) == len(outputs)
    for task_labels in (labels, names):
        expected = [_normalize(label) for label in task_labels]
        if are_unique and sorted(expected) == sorted(outputs):
            return [outputs.index(label) for label in expected]
    return None


def _normalize(label: str) -> str:
    """Returns the form of a label in which `match` compares labels."""
    word = re.sub(r"(?<=\w)[\s_-]+(?=\w)", "", label.strip().casefold())
    word = re.sub(r"^label(?=\d+$)", "", word)
    return _CANONICAL.get(word, word)
