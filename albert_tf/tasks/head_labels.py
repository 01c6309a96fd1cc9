"""Which output of another program's classifier has which label of a task, by name."""

import re
from collections.abc import Sequence

# Each line is one label, as data sets and models spell it; letters and digits alone.
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
    """Returns for each label of a task the number of the head's output that has it.

    Letter case does not count, nor do spaces, hyphens and underscores within a name;
    some labels have several names. "LABEL_0" is the label "0".

    Args:
        labels: of the task.
        head: the labels of the head's outputs, in their order.
        names: what others call the labels of the task, in their order.

    Returns:
        None if the labels are not the same.
    """
    if sorted(labels) == sorted(head):
        return [head.index(label) for label in labels]
    found = [_plain(label) for label in head]
    for wanted in ([_plain(label) for label in each] for each in (labels, names)):
        if len(set(found)) == len(found) and sorted(wanted) == sorted(found):
            return [found.index(label) for label in wanted]
    return None


def _plain(label: str) -> str:
    word = re.sub(r"(?<=\w)[\s_-]+(?=\w)", "", label.strip().casefold())
    word = re.sub(r"^label(?=\d+$)", "", word)
    return _FIRST.get(word, word)
