"""Questions to the windows that a model reads: `[CLS] question [SEP] context [SEP]`.

A context longer than a window is read in several, each `doc_stride` pieces after the
one before. What belongs to a context is worked out once for all of its questions, and
the place of every piece comes from the tokenizer, so the time is linear.

T counts the pieces of a window, C those of the context in it.

**As released:** ids, masks, windows and targets. The release finds the place of a piece
by an approximate alignment for each question, and drops the questions where that fails
(Hangul, say); none is dropped here.
"""

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np

from albert_tf.errors import InputError
from albert_tf.tasks.squad.reading import Answer, Dataset, Question, training_answer
from albert_tf.tokenization import Tokenizer

# Windows of this many pairs of context length and question length are remembered.
_REMEMBERED_WINDOWS = 4096


@dataclasses.dataclass(frozen=True)
class Lengths:
    """How long windows are; see the released flags of the same names.

    Attributes:
        max_seq_length: pieces of a window at most, T.
        doc_stride: pieces between the beginnings of two windows at most.
        max_query_length: later pieces of a question are cut off.

    Raises:
        InputError: a context would have no room, or windows would not advance.
    """

    max_seq_length: int = 384
    doc_stride: int = 128
    max_query_length: int = 64

    def __post_init__(self):
        for name in ("doc_stride", "max_query_length"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} {getattr(self, name)}: expected 1 or more")
        needed = self.max_query_length + 4
        if self.max_seq_length < needed:
            raise InputError(
                f"max_seq_length {self.max_seq_length}: expected at least {needed}, "
                f"max_query_length and 4 more"
            )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Context:
    """A context's pieces.

    Attributes:
        text: as in the file.
        ids: int32 [N], the pieces.
        spans: int32 [N, 2], where each stands in `text`, [begin, end) in characters.
            They hold no white space at their ends; a lone word mark is empty.
    """

    text: str
    ids: np.ndarray
    spans: np.ndarray

    @classmethod
    def of(cls, text: str, tokenizer: Tokenizer) -> "Context":
        """Cuts a text into pieces."""
        ids, spans = tokenizer.encode_with_offsets(text)
        return cls(
            text,
            np.array(ids, np.int32),
            np.array(spans, np.int32).reshape(len(spans), 2),
        )

    def locate(self, answer: Answer) -> tuple[int, int]:
        """Returns the first and the last piece of an answer.

        They are the smallest run of pieces that holds all of the answer but the white
        space at its ends; of an answer without pieces (joiners alone, say) the piece
        after it stands for it. Both are -1 where the context has no pieces.
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
        context_start: position of the first piece of the context in `ids`.
        first_piece: the piece of the context that stands there.
        max_context: bool [C], whether the piece has more text around it here than in
            any other window; answers may begin at these only.
        start_position: position of the answer's first piece. Where there is no answer,
            or not all of it is in this window, it is 0, the position of [CLS].
        end_position: position of its last piece, in the same way.
    """

    question: Question
    context: Context
    index: int
    ids: np.ndarray
    context_start: int
    first_piece: int
    max_context: np.ndarray
    start_position: int = 0
    end_position: int = 0

    @property
    def spans(self) -> np.ndarray:
        """Where the context's pieces stand in its text, int32 [C, 2]."""
        return self.context.spans[self.first_piece :][: len(self.max_context)]

    def answer(self, first: int, last: int) -> tuple[int, int, str]:
        """Returns the characters [begin, end) from a piece to another, and their text.

        Args:
            first: in [0, C).
            last: in [first, C).
        """
        begin = int(self.context.spans[self.first_piece + first, 0])
        end = int(self.context.spans[self.first_piece + last, 1])
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


def windows(
    dataset: Dataset,
    tokenizer: Tokenizer,
    lengths: Lengths,
    *,
    training: bool = False,
) -> Iterator[Window]:
    """Makes the windows of every question, in the order of the file.

    Args:
        dataset: the questions.
        tokenizer: cuts questions and contexts into pieces.
        lengths: of windows.
        training: look for each question's first answer; else none is needed.

    Yields:
        One window or more for each question.

    Raises:
        InputError: an answer to train on is missing; see `training_answer`.
    """
    for paragraph in dataset.paragraphs:
        context = Context.of(paragraph.context, tokenizer)
        asked = paragraph.questions
        encoded = tokenizer.encode_batch(question.text for question in asked)
        for question, query in zip(asked, encoded, strict=True):
            target = None
            if training:
                answer = training_answer(dataset.path, context.text, question)
                target = context.locate(answer) if answer else None
            yield from _windows_of(question, query, context, tokenizer, lengths, target)


def _windows_of(
    question: Question,
    query: list[int],
    context: Context,
    tokenizer: Tokenizer,
    lengths: Lengths,
    target: tuple[int, int] | None,
) -> Iterator[Window]:
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    query = query[: lengths.max_query_length]
    room = lengths.max_seq_length - len(query) - 3
    begin = np.array([cls, *query, sep], np.int32)
    end = np.array([sep], np.int32)
    places = _places(len(context.ids), room, lengths.doc_stride)
    for index, (first, max_context) in enumerate(places):
        last = first + len(max_context)
        start_position = end_position = 0
        if target and first <= target[0] and target[1] < last:
            start_position, end_position = (len(begin) + p - first for p in target)
        yield Window(
            question,
            context,
            index,
            np.concatenate([begin, context.ids[first:last], end]),
            len(begin),
            first,
            max_context,
            start_position,
            end_position,
        )


@functools.lru_cache(_REMEMBERED_WINDOWS)
def _places(count: int, room: int, stride: int) -> tuple[tuple[int, np.ndarray], ...]:
    """Lays windows over the pieces of a context.

    Args:
        count: pieces of the context; with none there is one empty window.
        room: pieces of it in a window.
        stride: see `Lengths.doc_stride`.

    Returns:
        For each window its first piece, and whether each of its pieces has the most
        context in it: bool.
    """
    firsts = list(range(0, max(count - room, 0), min(room, stride)))
    firsts.append(firsts[-1] + min(room, stride) if firsts else 0)
    lasts = [min(first + room, count) for first in firsts]
    best = np.full(count, -1.0)
    owner = np.zeros(count, np.int64)
    for index, (first, last) in enumerate(zip(firsts, lasts, strict=True)):
        length = last - first
        before = np.arange(length)
        # As released: the smaller side counts, and a hundredth of the window's length.
        score = np.minimum(before, before[::-1]) + 0.01 * length
        better = score > best[first:last]
        best[first:last][better] = score[better]
        owner[first:last][better] = index
    return tuple(
        (first, owner[first:last] == index)
        for index, (first, last) in enumerate(zip(firsts, lasts, strict=True))
    )
