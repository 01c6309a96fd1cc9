"""Locates the training answers in their contexts.

The file's `answer_start` need not be exact. Some label tools count it in UTF-16 units
or in bytes; `locate` recognizes these units. A wrong `answer_start` is corrected. The
text of an answer may differ from the context in white space, Unicode normal form or
letter case, if both texts have the same tokens.
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

# Units of `answer_start` other than characters: {name: (encoding, bytes per unit)}.
_UNITS = {"UTF-16 units": ("utf-16-le", 2), "bytes of UTF-8": ("utf-8", 1)}


class Locations(NamedTuple):
    """The located answers of a dataset, by the indices of their questions.

    Attributes:
        answers: answers with the texts and starts that they have in the contexts, only
            for questions that are neither impossible nor skipped.
        reasons: why a question is skipped, for each skipped question.
        notes: texts to log.
    """

    answers: dict[int, Answer]
    reasons: dict[int, str]
    notes: list[str]


def locate(
    dataset: Dataset, tokenizer: Tokenizer, skip_bad_rows: bool = False
) -> Locations:
    """Locates the first answer of each question.

    `answer_start` may count characters, UTF-16 units or bytes of UTF-8. The function
    tries these units in this order, and uses the first one with which `answer_start` is
    right for all answers. If no unit is right, `answer_start` counts characters, and
    each answer gets the location of its text that is nearest to its `answer_start`.

    Args:
        dataset: the training questions.
        tokenizer: makes the tokens in which an answer and its context must agree.
        skip_bad_rows: whether to skip questions without an answer in the context.

    Raises:
        InputError: a question that is not impossible has no answer, an empty answer, or
            an answer that is not in its context. With `skip_bad_rows`: no question
            remains.
    """
    questions = list(dataset.questions)
    pairs = [(q, p.context) for p in dataset.paragraphs for q in p.questions]
    searches = {
        i: _Search(context, question.answers[0], tokenizer)
        for i, (question, context) in enumerate(pairs)
        if question.answers and not question.is_impossible
    }
    # `searches` has the questions to train on, and `reasons` why other questions cannot
    # be trained on; both by the index of the question.
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
            f"{share} have no answer to train on: {format_ids(reasons)}; correct the "
            f"answers, or use --skip_bad_rows to leave such questions out"
        )
    notes = [f"Warning: {share} are left out: {format_ids(reasons)}"] if reasons else []
    # `matches` has the located answer of each question in `searches`, or None.
    for unit in ("characters", *_UNITS):
        matches = {i: s.find(s.convert_start(unit)) for i, s in searches.items()}
        if all(matches.values()):
            break
    else:  # no unit is right for all answers
        unit, matches = "characters", {i: s.nearest for i, s in searches.items()}
    answers = {i: answer for i, answer in matches.items() if answer}
    # Distances from `answer_start` to the location, such as "+2", if they are not 0.
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
    """Searches the context of a question for its answer.

    Attributes:
        begin: `answer_start` plus the length of the white space at the beginning of the
            answer.
    """

    def __init__(self, context: str, answer: Answer, tokenizer: Tokenizer):
        self._context, self._start = context, answer.start
        self._text = answer.text.strip()
        self._indent = len(answer.text) - len(answer.text.lstrip())
        self._tokenizer = tokenizer
        self.begin = answer.start + self._indent

    def convert_start(self, unit: str) -> int:
        """Returns `answer_start` in characters, if the file counts it in `unit`."""
        if unit not in _UNITS:
            return self._start
        encoding, size = _UNITS[unit]
        before = self._context.encode(encoding)[: size * max(self._start, 0)]
        return len(before.decode(encoding, "ignore"))

    def find(self, start: int) -> Answer | None:
        """Returns the answer at an `answer_start`; None if the context differs there.

        Args:
            start: `answer_start` in characters.
        """
        begin = start + self._indent
        if self._text and start >= 0 and self._context.startswith(self._text, begin):
            return Answer(self._text, begin)
        return next((answer for answer in self._matches if answer.start == begin), None)

    @functools.cached_property
    def nearest(self) -> Answer | None:
        """The answer at the location nearest to `answer_start`, or None."""
        return self.find(self._start) or min(
            self._matches,
            key=lambda answer: abs(answer.start - self.begin),
            default=None,
        )

    @functools.cached_property
    def _matches(self) -> list[Answer]:
        """All parts of the context with the same tokens as the answer, in order."""
        # The search uses folded texts, so that it finds all parts with equal tokens.
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
            # `folded` has no accents. Those after the last character belong to the
            # match.
            while end < len(context) and unicodedata.combining(context[end]):
                end += 1
            if self._tokenizer.encode(context[begin:end]) == ids:
                matches.append(Answer(context[begin:end], begin))
            index = folded.find(text, index + 1)
        return matches


def _fold(character: str) -> str:
    """Folds a character; texts with the same tokens become equal if they are folded.

    Characters that a tokenizer may drop become "": control characters (category C),
    combining marks (M) and white space (Z).
    """
    decomposed = unicodedata.normalize("NFKD", character).casefold()
    return "".join(c for c in decomposed if unicodedata.category(c)[0] not in "CMZ")


_FOLD_MAP = CharacterMap(_fold)
