"""Locates the training answers in their contexts.

Some label tools count `answer_start` in UTF-16 units or in bytes. An answer may differ
from its context in white space, normal form or letter case, if both have the same
tokens.
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

# Units of `answer_start` other than characters: encoding and bytes per unit.
_UNITS = {"UTF-16 units": ("utf-16-le", 2), "bytes of UTF-8": ("utf-8", 1)}


class Locations(NamedTuple):
    """The answers of a dataset, by the indices of their questions.

    Attributes:
        answers: answers with the texts and starts that they have in the contexts;
            impossible questions have none.
        reasons: for each skipped question, the reason.
        notes: lines to log.
    """

    answers: dict[int, Answer]
    reasons: dict[int, str]
    notes: list[str]


def locate(
    dataset: Dataset, tokenizer: Tokenizer, skip_bad_rows: bool = False
) -> Locations:
    """Locates the first answer of each question.

    `answer_start` counts characters, or another unit if it fits all answers. If no unit
    fits, each answer is located nearest to its `answer_start`.

    Args:
        dataset: the training questions.
        tokenizer: an answer may differ from its context if their tokens are equal.
        skip_bad_rows: whether to skip questions without an answer in the context.

    Raises:
        InputError: a question that is not impossible has no answer, an empty one, or
            one that is not in its context. With `skip_bad_rows`: no question remains.
    """
    questions = list(dataset.questions)
    pairs = [(q, p.context) for p in dataset.paragraphs for q in p.questions]
    searches = {
        i: _Search(context, question.answers[0], tokenizer)
        for i, (question, context) in enumerate(pairs)
        if question.answers and not question.is_impossible
    }
    # The reason for each question that cannot be trained on.
    reasons: dict[int, str] = {}
    for i, question in enumerate(questions):
        if not question.is_impossible and i not in searches:
            reasons[i] = "no answer"
        elif i in searches and searches[i].nearest is None:
            del searches[i]
            text = errors.quote(question.answers[0].text)
            reasons[i] = f"{text} is not in its context"

    def format_ids(texts: Mapping[int, str]) -> str:
        return ", ".join(f"{questions[i].id!r} ({text})" for i, text in texts.items())

    share = f"{dataset.path}: {len(reasons):,} of {len(questions):,} questions"
    if reasons and not (skip_bad_rows and len(reasons) < len(questions)):
        raise InputError(
            f"{share} have no answer to train on: {format_ids(reasons)}; correct their "
            f"texts, or use --skip_bad_rows to leave such questions out"
        )
    notes = [f"Warning: {share} are left out: {format_ids(reasons)}"] if reasons else []
    for unit in ("characters", *_UNITS):
        matches = {i: each.find(each.start_in(unit)) for i, each in searches.items()}
        if all(matches.values()):
            break
    else:
        unit, matches = "characters", {i: each.nearest for i, each in searches.items()}
    answers = {i: answer for i, answer in matches.items() if answer}
    moves = {
        i: f"{answer.start - searches[i].begin:+,}"
        for i, answer in answers.items()
        if answer.start != searches[i].begin
    }
    if unit != "characters":
        notes.append(f"{dataset.path}: every answer_start counts {unit}")
    elif moves:
        notes.append(
            f"Warning: {dataset.path}: {len(moves):,} of {len(searches):,} answers are "
            f"not at answer_start and were moved to the nearest location, by these "
            f"numbers of characters: {format_ids(moves)}"
        )
    return Locations(answers, reasons, notes)


class _Search:
    """The search for an answer in its context.

    Attributes:
        begin: `answer_start`, moved past the white space that begins the answer.
    """

    def __init__(self, context: str, answer: Answer, tokenizer: Tokenizer):
        self._context, self._start = context, answer.start
        self._text = answer.text.strip()
        self._indent = len(answer.text) - len(answer.text.lstrip())
        self._tokenizer = tokenizer
        self.begin = answer.start + self._indent

    def start_in(self, unit: str) -> int:
        """Converts `answer_start` from a unit to characters."""
        if unit not in _UNITS:
            return self._start
        encoding, size = _UNITS[unit]
        before = self._context.encode(encoding)[: size * max(self._start, 0)]
        return len(before.decode(encoding, "ignore"))

    def find(self, start: int) -> Answer | None:
        """Returns the answer at a character of the context; None if it is not there."""
        begin = start + self._indent
        if self._text and start >= 0 and self._context.startswith(self._text, begin):
            return Answer(self._text, begin)
        return next((answer for answer in self._matches if answer.start == begin), None)

    @functools.cached_property
    def nearest(self) -> Answer | None:
        """The answer at `answer_start` or the nearest location; None if not found."""
        return self.find(self._start) or min(
            self._matches,
            key=lambda answer: abs(answer.start - self.begin),
            default=None,
        )

    @functools.cached_property
    def _matches(self) -> list[Answer]:
        """All parts of the context that have the tokens of the answer, in order."""
        context, folded = self._context, self._context.translate(_FOLD_MAP)
        # The index in `context` of each character of `folded`.
        origins = np.repeat(
            np.arange(len(context)), [len(_FOLD_MAP[ord(c)]) for c in context]
        )
        text, ids = self._text.translate(_FOLD_MAP), self._tokenizer.encode(self._text)
        matches = []
        index = folded.find(text) if text else -1
        while index >= 0:
            begin, end = int(origins[index]), int(origins[index + len(text) - 1]) + 1
            while end < len(context) and unicodedata.combining(context[end]):
                end += 1
            if self._tokenizer.encode(context[begin:end]) == ids:
                matches.append(Answer(context[begin:end], begin))
            index = folded.find(text, index + 1)
        return matches


def _fold(character: str) -> str:
    """Normalizes a character, and drops it if a tokenizer may drop it."""
    decomposed = unicodedata.normalize("NFKD", character).casefold()
    return "".join(c for c in decomposed if unicodedata.category(c)[0] not in "CMZ")


_FOLD_MAP = CharacterMap(_fold)
