"""Questions to the windows that a model reads: `[CLS] question [SEP] context [SEP]`.

A context longer than a window is read in several, each `doc_stride` tokens after the
one before. What belongs to a context is worked out once for all of its questions, and
the place of every token comes from the tokenizer, so the time is linear. `encode` cuts
texts into tokens, the only slow part; `Windows` lays windows over these without making
them, so half a million of them cost next to nothing until one is asked for.

T counts the tokens of a window, C those of the context in it, Q questions, P contexts
and W windows.

**As released:** ids, masks, windows and targets. The release finds the place of a token
by an approximate alignment for each question, and drops the questions where that fails
(Hangul, for one); none is dropped here.
"""

import dataclasses
import functools
from collections.abc import Iterable, Sequence

import numpy as np

from albert_tf.errors import InputError
from albert_tf.tasks.squad.locating import locate
from albert_tf.tasks.squad.reading import Answer, Dataset, Question
from albert_tf.text.tokenization import Tokenizer

# As many tokens of windows are remembered to have the most context there.
_REMEMBERED_WINDOWS = 4096
# As released: what a token of a window adds to the context of each of its tokens.
PER_TOKEN = 0.01
# Where there is no answer to learn, and where the question is left out.
_NO_TOKEN, _SKIPPED = -1, -2


@dataclasses.dataclass(frozen=True)
class Lengths:
    """How long windows are; see the released flags of the same names.

    Attributes:
        max_seq_length: tokens of a window at most, T.
        doc_stride: tokens between the beginnings of two windows at most.
        max_query_length: later tokens of a question are cut off.

    Raises:
        InputError: a context would have no room.
    """

    max_seq_length: int = 384
    doc_stride: int = 128
    max_query_length: int = 64

    def __post_init__(self):
        needed = self.max_query_length + 4
        if self.max_seq_length < needed:
            raise InputError(
                f"max_seq_length {self.max_seq_length}: expected at least {needed}, "
                f"max_query_length and 4 more"
            )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Context:
    """A context's tokens.

    Attributes:
        text: as in the file.
        ids: int32 [N], the tokens.
        spans: int32 [N, 2], where each stands in `text`, [begin, end) in characters.
            They hold no white space at their ends; a lone word mark is empty.
    """

    text: str
    ids: np.ndarray
    spans: np.ndarray

    @classmethod
    def each(cls, texts: Sequence[str], tokenizer: Tokenizer) -> "list[Context]":
        """Cuts texts into tokens."""
        return [
            cls(text, np.array(ids, np.int32), np.array(spans, np.int32).reshape(-1, 2))
            for text, (ids, spans) in zip(
                texts, tokenizer.encode_batch_with_offsets(texts), strict=True
            )
        ]

    def locate(self, answer: Answer) -> tuple[int, int]:
        """Returns the first and the last token of an answer.

        They are the smallest run of tokens that holds all of the answer but the white
        space at its ends; of an answer without tokens (joiners alone) the token
        after it stands for it. Both are -1 where the context has no tokens.
        """
        bare = answer.text.strip()
        begin = answer.start + answer.text.index(bare)
        ends, begins = self.spans[:, 1], self.spans[:, 0]
        first = int(np.searchsorted(ends, begin, side="right"))
        last = int(np.searchsorted(begins, begin + len(bare), side="left")) - 1
        first = min(first, len(self.ids) - 1)
        return first, max(first, last)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Window:
    """What a model reads of a question and its context at once.

    Attributes:
        question: what is asked.
        context: what it is asked about.
        index: number of the window among those of its question, from 0.
        ids: int32 [T], without padding.
        context_start: position of the first token of the context in `ids`.
        first_token: the token of the context that stands there.
        max_context: bool [C], whether the token has more text around it here than in
            any other window; answers may begin at these only.
        start_position: position of the answer's first token. Where there is no answer,
            or not all of it is in this window, it is 0, the position of [CLS].
        end_position: position of its last token, in the same way.
    """

    question: Question
    context: Context
    index: int
    ids: np.ndarray
    context_start: int
    first_token: int
    max_context: np.ndarray
    start_position: int = 0
    end_position: int = 0

    def answer(self, first: int, last: int) -> tuple[int, int, str]:
        """Returns the characters [begin, end) from a token to another, and their text.

        Args:
            first: in [0, C).
            last: in [first, C).
        """
        begin = int(self.context.spans[self.first_token + first, 0])
        end = int(self.context.spans[self.first_token + last, 1])
        # A lone word mark at the end stands after white space.
        text = self.context.text[begin:end].strip()
        return begin, begin + len(text), text

    def features(self, length: int) -> dict[str, np.ndarray]:
        """Returns what a model takes, with padding at the end.

        Args:
            length: positions with padding, at least T.

        Returns:
            `input_ids`, `input_mask` (1 but for padding), `segment_ids` (1 for the
            context and the [SEP] after it) and `p_mask` (1 where no answer begins or
            ends, 0 for [CLS] and the context), int32 [length], with the released names.
        """
        count, start = len(self.ids), self.context_start
        input_ids, input_mask, segment_ids = np.zeros((3, length), np.int32)
        input_ids[:count] = self.ids
        input_mask[:count] = 1
        segment_ids[start:count] = 1
        p_mask = np.ones(length, np.int32)
        p_mask[0] = 0
        p_mask[start : count - 1] = 0
        return {
            "input_ids": input_ids,
            "input_mask": input_mask,
            "segment_ids": segment_ids,
            "p_mask": p_mask,
        }

    def targets(self) -> dict[str, int]:
        """Returns what a model learns, with the released names."""
        return {
            "start_positions": self.start_position,
            "end_positions": self.end_position,
            "is_impossible": int(self.start_position == 0),
        }


@dataclasses.dataclass(frozen=True, eq=False)
class Tokens:
    """The tokens of a dataset's contexts and questions, one after the other.

    Attributes:
        context_ids: int32 [N].
        context_spans: int32 [N, 2], see `Context.spans`.
        context_bounds: int64 [P + 1]; context i has the tokens from bound i to i + 1.
        question_ids: int32 [M].
        question_bounds: int64 [Q + 1], in the same way.
        answers: int32 [Q, 2], the first and the last token of each answer to train on,
            counted in its context; -1 where there is none, -2 where the question is
            left out.
        notes: str [N], what to log about the answers.
    """

    context_ids: np.ndarray
    context_spans: np.ndarray
    context_bounds: np.ndarray
    question_ids: np.ndarray
    question_bounds: np.ndarray
    answers: np.ndarray
    notes: np.ndarray


def encode(
    dataset: Dataset,
    tokenizer: Tokenizer,
    *,
    training: bool = False,
    skip_bad_rows: bool = False,
) -> Tokens:
    """Cuts contexts and questions into tokens.

    Args:
        dataset: the questions.
        tokenizer: cuts texts into tokens.
        training: look for each question's first answer; else none is needed.
        skip_bad_rows: see `locate`.

    Raises:
        InputError: an answer to train on is missing; see `locate`.
    """
    paragraphs = dataset.paragraphs
    contexts = Context.each([each.context for each in paragraphs], tokenizer)
    questions = tokenizer.encode_batch(question.text for question in dataset.questions)
    answers = np.full((len(questions), 2), _NO_TOKEN, np.int32)
    notes: list[str] = []
    if training:
        located = locate(dataset, tokenizer, skip_bad_rows)
        owners = _owners(dataset)
        for number, answer in located.answers.items():
            answers[number] = contexts[owners[number]].locate(answer)
        answers[list(located.skipped)] = _SKIPPED
        notes = located.notes
    return Tokens(
        context_ids=_flat([context.ids for context in contexts]),
        context_spans=_flat([context.spans for context in contexts]).reshape(-1, 2),
        context_bounds=_bounds(len(context.ids) for context in contexts),
        question_ids=_flat(questions),
        question_bounds=_bounds(map(len, questions)),
        answers=answers,
        notes=np.array(notes, str),
    )


def _owners(dataset: Dataset) -> np.ndarray:
    """Returns the number of each question's paragraph, int64 [Q]."""
    asked = [len(paragraph.questions) for paragraph in dataset.paragraphs]
    return np.repeat(np.arange(len(asked)), asked)


def _flat(parts: Sequence[Sequence[int] | np.ndarray]) -> np.ndarray:
    arrays = [np.asarray(part, np.int32).reshape(-1) for part in parts]
    return np.concatenate(arrays) if arrays else np.zeros(0, np.int32)


def _bounds(lengths: Iterable[int]) -> np.ndarray:
    return np.cumsum([0, *lengths], dtype=np.int64)


class Windows(Sequence[Window]):
    """The windows of every question, in the order of the file; made when asked for.

    Args:
        dataset: the questions.
        tokens: what `encode` made of all of it.
        tokenizer: that made the tokens.
        lengths: of windows.

    Attributes:
        dataset: as given.
        questions: Q questions, in the order of the file.
        bounds: int64 [Q + 1]; question i has the windows from bound i to i + 1: one or
            more, or none if it is left out.
        lengths: int32 [W], tokens of each window, T.
        notes: what to log about the answers, see `Tokens`.
    """

    def __init__(
        self, dataset: Dataset, tokens: Tokens, tokenizer: Tokenizer, lengths: Lengths
    ):
        self.dataset = dataset
        self.questions = list(dataset.questions)
        self.notes = tokens.notes.tolist()
        self._tokens = tokens
        self._special = tokenizer.cls_id, tokenizer.sep_id
        self._max_query_length = lengths.max_query_length
        self._owner = _owners(dataset)
        self._contexts = self._views()
        queries = np.minimum(np.diff(tokens.question_bounds), lengths.max_query_length)
        self._room = lengths.max_seq_length - queries - 3
        self._step = np.minimum(self._room, lengths.doc_stride)
        self._counts = np.diff(tokens.context_bounds)[self._owner]
        beyond = np.maximum(self._counts - self._room, 0)
        each = -(-beyond // self._step) + 1
        each[tokens.answers[:, 0] == _SKIPPED] = 0
        self.bounds = np.concatenate([[0], np.cumsum(each)])
        index = np.arange(self.bounds[-1]) - np.repeat(self.bounds[:-1], each)
        left = np.repeat(self._counts, each) - index * np.repeat(self._step, each)
        inside = np.minimum(left, np.repeat(self._room, each))
        self.lengths = (inside + np.repeat(queries, each) + 3).astype(np.int32)

    def __len__(self) -> int:
        """Returns the number of windows, W."""
        return len(self.lengths)

    def __getitem__(self, number):
        """Makes a window.

        Args:
            number: in [0, W).
        """
        if not 0 <= number < len(self):
            raise IndexError(number)
        asked = int(np.searchsorted(self.bounds, number, side="right")) - 1
        index = int(number - self.bounds[asked])
        context = self._contexts[self._owner[asked]]
        room, step = int(self._room[asked]), int(self._step[asked])
        first = index * step
        inside = context.ids[first : first + room]
        begin, end = self._ends(asked)
        start_position = end_position = 0
        answer = self._tokens.answers[asked]
        if first <= answer[0] and answer[1] < first + len(inside):
            start_position, end_position = (len(begin) + answer - first).tolist()
        return Window(
            self.questions[asked],
            context,
            index,
            np.concatenate([begin, inside, end]),
            len(begin),
            first,
            _max_context(len(context.ids), room, step, index),
            start_position,
            end_position,
        )

    @property
    def split_answers(self) -> int:
        """The number of answers that are whole in no window."""
        first, last = self._tokens.answers.T
        index = np.minimum(first // self._step, np.diff(self.bounds) - 1)
        return int(((first >= 0) & (last >= index * self._step + self._room)).sum())

    def batch(
        self, rows: np.ndarray, length: int, targets: bool = False
    ) -> dict[str, np.ndarray]:
        """Makes a batch: `Window.features`, int32 [B, length], of some windows.

        Args:
            rows: numbers of windows, int [B].
            length: positions with padding.
            targets: add `Window.targets`, int32 [B].
        """
        windows = [self[int(row)] for row in rows]
        parts = [window.features(length) for window in windows]
        if targets:
            parts = [
                {**part, **{k: np.int32(v) for k, v in window.targets().items()}}
                for part, window in zip(parts, windows, strict=True)
            ]
        return {name: np.stack([part[name] for part in parts]) for name in parts[0]}

    def _views(self) -> list[Context]:
        tokens, bounds = self._tokens, self._tokens.context_bounds.tolist()
        return [
            Context(
                paragraph.context,
                tokens.context_ids[begin:end],
                tokens.context_spans[begin:end],
            )
            for paragraph, begin, end in zip(
                self.dataset.paragraphs, bounds[:-1], bounds[1:], strict=True
            )
        ]

    def _ends(self, asked: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns what stands before and after the context of a question."""
        cls, sep = self._special
        begin, end = self._tokens.question_bounds[asked : asked + 2]
        query = self._tokens.question_ids[begin:end][: self._max_query_length]
        return (
            np.concatenate([[cls], query, [sep]]).astype(np.int32),
            np.array([sep], np.int32),
        )


def windows(
    dataset: Dataset,
    tokenizer: Tokenizer,
    lengths: Lengths,
    *,
    training: bool = False,
) -> Windows:
    """Makes the windows of every question; see `encode` and `Windows`."""
    tokens = encode(dataset, tokenizer, training=training)
    return Windows(dataset, tokens, tokenizer, lengths)


@functools.lru_cache(_REMEMBERED_WINDOWS)
def _max_context(count: int, room: int, step: int, index: int) -> np.ndarray:
    """Finds the tokens that have the most context in a window.

    Args:
        count: tokens of the context.
        room: tokens of it in a window at most.
        step: tokens between the beginnings of two windows.
        index: number of the window.

    Returns:
        bool [C].
    """
    own = _context_scores(count, room, step, index)
    most = np.ones(len(own), bool)
    neighbours = -(-room // step)
    windows = -(-max(count - room, 0) // step) + 1
    for other in range(
        max(0, index - neighbours), min(windows, index + neighbours + 1)
    ):
        theirs = _context_scores(count, room, step, other)
        # The tokens that both have, counted in either.
        shift = (other - index) * step
        begin, end = max(shift, 0), min(len(own), shift + len(theirs))
        if begin >= end:
            continue
        ours, same = slice(begin, end), slice(begin - shift, end - shift)
        # Of windows with equal scores the first one counts.
        beaten = (
            theirs[same] >= own[ours] if other < index else theirs[same] > own[ours]
        )
        most[ours] &= ~beaten
    return most


def _context_scores(count: int, room: int, step: int, index: int) -> np.ndarray:
    """Returns how much context each token of a window has in it, float64 [C].

    As released: the smaller side counts, and a hundredth of the window's length.
    """
    length = min(room, count - index * step)
    before = np.arange(length)
    return np.minimum(before, before[::-1]) + PER_TOKEN * length
