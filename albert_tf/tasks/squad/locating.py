"""Finds the answers to train on in their contexts.

A file may count `answer_start` in UTF-16 units or in bytes, as some label tools do, and
an answer may differ from its context in white space, normal form or letter case, if the
tokenizer makes the same tokens of both.
"""

import functools
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from albert_tf import errors
from albert_tf.errors import InputError
from albert_tf.tasks.squad.reading import Answer, Dataset
from albert_tf.text.tokenization import CharacterMap, Tokenizer

# What `answer_start` may count beside characters: an encoding, and the bytes of a unit.
_UNITS = {"UTF-16 units": ("utf-16-le", 2), "bytes of UTF-8": ("utf-8", 1)}


class Located(NamedTuple):
    """The answers of a dataset, by the numbers of their questions.

    Attributes:
        answers: as the contexts have them; impossible questions have none.
        skipped: why a question cannot be trained on.
        notes: lines to log.
    """

    answers: dict[int, Answer]
    skipped: dict[int, str]
    notes: list[str]


def locate(
    dataset: Dataset, tokenizer: Tokenizer, skip_bad_rows: bool = False
) -> Located:
    """Finds the first answer of each question.

    If not all answers are at `answer_start`, whatever it counts, each is taken from the
    nearest location.

    Args:
        dataset: to train on.
        tokenizer: decides which texts are alike.
        skip_bad_rows: leave out questions that cannot be trained on.

    Raises:
        InputError: questions that are not impossible have no answer, or one that is
            empty or not in its context; with `skip_bad_rows`, only if no question is
            left.
    """
    asked = [
        (p.context, question) for p in dataset.paragraphs for question in p.questions
    ]
    wanted: dict[int, _Wanted] = {}
    skipped: dict[int, str] = {}
    for number, (context, question) in enumerate(asked):
        if question.is_impossible:
            continue
        if not question.answers:
            skipped[number] = "no answer"
            continue
        wanted[number] = _Wanted(context, question.answers[0], tokenizer)
        if wanted[number].nearest is None:
            text = errors.quote(question.answers[0].text)
            skipped[number] = f"{text} is not in its context"
            del wanted[number]

    def named(reasons: Mapping[int, str]) -> str:
        return ", ".join(f"{asked[n][1].id!r} ({why})" for n, why in reasons.items())

    some = f"{dataset.path}: {len(skipped):,} of {len(asked):,} questions"
    if skipped and not (skip_bad_rows and len(skipped) < len(asked)):
        raise InputError(
            f"{some} have no answer to train on: {named(skipped)}; expected texts from "
            f"the contexts, or --skip_bad_rows to leave such questions out"
        )
    notes = [f"Warning: {some} are left out: {named(skipped)}"] if skipped else []
    for unit in ("characters", *_UNITS):
        found = {n: one.at(one.start(unit)) for n, one in wanted.items()}
        if all(found.values()):
            break
    else:
        unit, found = "characters", {n: one.nearest for n, one in wanted.items()}
    answers = {number: answer for number, answer in found.items() if answer}
    moved = {
        number: f"{answer.start - wanted[number].begin:+,}"
        for number, answer in answers.items()
        if answer.start != wanted[number].begin
    }
    if unit != "characters":
        notes.append(f"{dataset.path}: every answer_start counts {unit}")
    elif moved:
        notes.append(
            f"Warning: {dataset.path}: {len(moved):,} of {len(wanted):,} answers are "
            f"not at answer_start and were moved to the nearest location, by these "
            f"numbers of characters: {named(moved)}"
        )
    return Located(answers, skipped, notes)


class _Wanted:
    """An answer to look for in a context.

    Attributes:
        begin: where it is said to begin, its white space left out.
    """

    def __init__(self, context: str, answer: Answer, tokenizer: Tokenizer):
        self._context, self._start = context, answer.start
        self._text = answer.text.strip()
        self._indent = len(answer.text) - len(answer.text.lstrip())
        self._tokenizer = tokenizer
        self.begin = answer.start + self._indent

    def start(self, unit: str) -> int:
        """Returns `answer_start` in characters if it counts such units."""
        if unit not in _UNITS:
            return self._start
        encoding, size = _UNITS[unit]
        before = self._context.encode(encoding)[: size * max(self._start, 0)]
        return len(before.decode(encoding, "ignore"))

    def at(self, start: int) -> Answer | None:
        """Returns the answer as it is at a character of the context, if it is."""
        begin = start + self._indent
        if self._text and start >= 0 and self._context.startswith(self._text, begin):
            return Answer(self._text, begin)
        return next((answer for answer in self._matches if answer.start == begin), None)

    @functools.cached_property
    def nearest(self) -> Answer | None:
        """The answer at `answer_start`, or else at the nearest location, if any."""
        return self.at(self._start) or min(
            self._matches,
            key=lambda answer: abs(answer.start - self.begin),
            default=None,
        )

    @functools.cached_property
    def _matches(self) -> list[Answer]:
        """Each part of the context that has the tokens of the answer, in order."""
        context, folded = self._context, self._context.translate(_FOLDED)
        origins = np.repeat(
            np.arange(len(context)), [len(_FOLDED[ord(c)]) for c in context]
        )
        wanted, ids = self._text.translate(_FOLDED), self._tokenizer.encode(self._text)
        parts = []
        at = folded.find(wanted) if wanted else -1
        while at >= 0:
            begin, end = int(origins[at]), int(origins[at + len(wanted) - 1]) + 1
            while end < len(context) and unicodedata.combining(context[end]):
                end += 1
            if self._tokenizer.encode(context[begin:end]) == ids:
                parts.append(Answer(context[begin:end], begin))
            at = folded.find(wanted, at + 1)
        return parts


def _fold(character: str) -> str:
    """Drops whatever a tokenizer may drop, so that no likely part is missed."""
    decomposed = unicodedata.normalize("NFKD", character).casefold()
    return "".join(c for c in decomposed if unicodedata.category(c)[0] not in "CMZ")


_FOLDED = CharacterMap(_fold)
