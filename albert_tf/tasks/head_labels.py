"""Matches the labels of a loaded head with the labels of a task, by name."""

import re
from collections.abc import Sequence

# Each line has the normalized synonyms of one label; `_normalize` returns the first.
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
    """Returns the index of each label of a task among a head's outputs.

    Letter case, and spaces, hyphens and underscores within a name are ignored. Some
    labels have synonyms. "LABEL_0" equals "0".

    Args:
        labels: the task's labels.
        head: the labels of the head, in the order of its outputs.
        names: other names of the task's labels, in the same order.

    Returns:
        None if the labels differ.
    """
    if sorted(labels) == sorted(head):
        return [head.index(label) for label in labels]
    outputs = [_normalize(label) for label in head]
    for task_labels in (labels, names):
        candidate = [_normalize(label) for label in task_labels]
        if len(set(outputs)) == len(outputs) and sorted(candidate) == sorted(outputs):
            return [outputs.index(label) for label in candidate]
    return None


def _normalize(label: str) -> str:
    word = re.sub(r"(?<=\w)[\s_-]+(?=\w)", "", label.strip().casefold())
    word = re.sub(r"^label(?=\d+$)", "", word)
    return _CANONICAL.get(word, word)
