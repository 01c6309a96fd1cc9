"""Matches the labels of a loaded head with the labels of a task, by name."""

import re
from collections.abc import Sequence

# Each line has the spellings of one label, only letters and digits.
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
_FIRST = {
    word: line.split()[0] for line in _SYNONYMS.split("\n") for word in line.split()
}


def match(
    labels: Sequence[str], head: Sequence[str], names: Sequence[str] = ()
) -> list[int] | None:
    """Returns the index of each label of a task among a head's outputs.

    Letter case is ignored, and so are spaces, hyphens and underscores within a name.
    Some labels have synonyms. "LABEL_0" is the label "0".

    Args:
        labels: the task's labels.
        head: labels of the head's outputs, in their order.
        names: other names of the task's labels, in their order.

    Returns:
        None if the labels differ.
    """
    if sorted(labels) == sorted(head):
        return [head.index(label) for label in labels]
    given = [_normalize(label) for label in head]
    for each in (labels, names):
        candidate = [_normalize(label) for label in each]
        if len(set(given)) == len(given) and sorted(candidate) == sorted(given):
            return [given.index(label) for label in candidate]
    return None


def _normalize(label: str) -> str:
    word = re.sub(r"(?<=\w)[\s_-]+(?=\w)", "", label.strip().casefold())
    word = re.sub(r"^label(?=\d+$)", "", word)
    return _FIRST.get(word, word)
