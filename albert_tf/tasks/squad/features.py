"""Divides questions into the model's windows: `[CLS] question [SEP] context [SEP]`.

A context that is longer than a window is divided into several windows, which start
`doc_stride` tokens apart. `encode` tokenizes each text once; only this part is slow.
`Windows` makes a window only when it is accessed.

Letters: Q questions, P contexts, N tokens of all contexts, W windows, T tokens of a
window, C tokens of the context in a window.

**As released:** ids, masks, windows and targets. The released code aligns tokens with
the text approximately, and drops a question if this fails, for example in Hangul. Here
the tokenizer returns the offsets, and no question is dropped.
"""

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.tasks.squad.locating import locate
from albert_tf.tasks.squad.reading import Answer, Dataset, Question
from albert_tf.text.tokenization import Tokenizer

# As released: each token of the context in a window adds this to the scores of the
# window's tokens, see `_best_windows`.
PER_TOKEN = 0.01
# Values in `answers` of `encode` for questions without the tokens of an answer.
_NO_ANSWER, _SKIPPED = -1, -2


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Window:
    """The tokens of a question and of a part of its context.

    Attributes:
        question: the question.
        text: the full context.
        ids: int32 [T], without padding.
        context_start: position of the first token of the context in `ids`.
        spans: int32 [C, 2], characters [begin, end) in `text` of each token of the
            context, without white space at the ends. A token that is only a word mark
            has an empty span.
        max_context: bool [C], whether each token has more context in this window than
            in any other window; an answer begins only at such a token.
        start_position: position of the answer's first token; 0, the position of [CLS],
            if there is no answer or the window does not contain all of it.
        end_position: position of the answer's last token, or 0.
    """

    question: Question
    text: str
    ids: np.ndarray
    context_start: int
    spans: np.ndarray
    max_context: np.ndarray
    start_position: int
    end_position: int

    def answer(self, first: int, last: int) -> tuple[int, int, str]:
        """Returns the characters [begin, end) of a span of tokens, and their text.

        Args:
            first: index of the first token, in [0, C).
            last: index of the last token, in [first, C).
        """
        begin = int(self.spans[first, 0])
        # If the last token is only a word mark, the text before it ends in white space.
        text = self.text[begin : int(self.spans[last, 1])].strip()
        return begin, begin + len(text), text

    def features(self, length: int) -> dict[str, np.ndarray]:
        """Returns the inputs of the model, with padding at the end.

        Args:
            length: number of positions with padding, at least T.

        Returns:
            `input_ids`, `input_mask` (1 except for padding), `segment_ids` (1 for the
            context and the [SEP] after it) and `p_mask` (0 for [CLS] and the context,
            otherwise 1), int32 [length]; these are the released names.
        """
        count, start = len(self.ids), self.context_start
        names = ("input_ids", "input_mask", "segment_ids", "p_mask")
        features = {name: np.zeros(length, np.int32) for name in names}
        features["input_ids"][:count] = self.ids
        features["input_mask"][:count] = 1
        features["segment_ids"][start:count] = 1
        features["p_mask"][1:] = 1
        features["p_mask"][start : count - 1] = 0
        return features


def encode(
    dataset: Dataset,
    tokenizer: Tokenizer,
    *,
    training: bool = False,
    skip_bad_rows: bool = False,
) -> dict[str, np.ndarray]:
    """Tokenizes contexts and questions.

    Args:
        dataset: the questions.
        tokenizer: the vocabulary.
        training: whether to locate the first answer of each question.
        skip_bad_rows: see `locate`.

    Returns:
        `context_ids`, int32 [N], the tokens of all contexts; `context_spans`, int32
        [N, 2], see `Window.spans`; `context_bounds`, int64 [P + 1], context i has the
        tokens [context_bounds[i], context_bounds[i + 1]); `question_ids` and
        `question_bounds`, the same for questions; `answers`, int32 [Q, 2], the indices
        of the first and the last token of each answer in its context, -1 without an
        answer, -2 if the question is skipped; `notes`, texts to log about the answers.

    Raises:
        InputError: see `locate`.
    """
    texts = [paragraph.context for paragraph in dataset.paragraphs]
    contexts, spans = [], []
    for ids, offsets in tokenizer.encode_batch_with_offsets(texts):
        contexts.append(ids)
        spans.append(np.array(offsets, np.int32).reshape(-1, 2))
    questions = [question.text for question in dataset.questions]
    answers = np.full((len(questions), 2), _NO_ANSWER, np.int32)
    notes: list[str] = []
    if training:
        locations = locate(dataset, tokenizer, skip_bad_rows)
        notes = locations.notes
        paragraphs = _paragraph_indices(dataset)
        for number, answer in locations.answers.items():
            answers[number] = _find_tokens(spans[paragraphs[number]], answer)
        answers[list(locations.reasons)] = _SKIPPED
    context_ids, context_bounds = _concatenate(contexts)
    question_ids, question_bounds = _concatenate(tokenizer.encode_batch(questions))
    return {
        "context_ids": context_ids,
        "context_spans": np.concatenate(spans),
        "context_bounds": context_bounds,
        "question_ids": question_ids,
        "question_bounds": question_bounds,
        "answers": answers,
        "notes": np.array(notes, str),
    }


def _find_tokens(spans: np.ndarray, answer: Answer) -> tuple[int, int]:
    """Returns the indices of the first and the last token of an answer.

    The tokens are the smallest span that contains the answer without the white space
    at its ends. An answer without tokens, such as a zero-width joiner, gets the
    token after it. If the context has no tokens, the result is (-1, -1).
    """
    text = answer.text.strip()
    begin = answer.start + answer.text.index(text)
    first = int(np.searchsorted(spans[:, 1], begin, side="right"))
    last = int(np.searchsorted(spans[:, 0], begin + len(text), side="left")) - 1
    first = min(first, len(spans) - 1)
    return first, max(first, last)


def _paragraph_indices(dataset: Dataset) -> np.ndarray:
    """Returns the index of each question's paragraph, int64 [Q]."""
    counts = [len(paragraph.questions) for paragraph in dataset.paragraphs]
    return np.repeat(np.arange(len(counts)), counts)


def _concatenate(parts: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the items of all parts, int32, and their bounds, int64."""
    bounds = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    return np.fromiter(itertools.chain.from_iterable(parts), np.int32), bounds


class Windows(Sequence[Window]):
    """The windows of all questions, in the order of the file.

    Args:
        dataset: the questions.
        tokens: the arrays of `encode`.
        tokenizer: the tokenizer of `encode`.
        settings: settings with `max_seq_length`, `doc_stride`, `max_query_length`.

    Attributes:
        dataset: the questions.
        questions: Q questions, in the order of the file.
        bounds: int64 [Q + 1]; question i has the windows [bounds[i], bounds[i + 1]),
            none if it is skipped.
        lengths: int32 [W], number of tokens of each window, T.
        notes: lines to log about the answers.
    """

    def __init__(
        self,
        dataset: Dataset,
        tokens: Mapping[str, np.ndarray],
        tokenizer: Tokenizer,
        settings: Any,
    ):
        self.dataset = dataset
        self.questions = list(dataset.questions)
        self.notes = tokens["notes"].tolist()
        self._tokens = tokens
        self._cls = np.array([tokenizer.cls_id], np.int32)
        self._sep = np.array([tokenizer.sep_id], np.int32)
        self._paragraphs = _paragraph_indices(dataset)
        # `_query_lengths`, `_sizes` and `_steps` have a number for each question.
        self._query_lengths = np.minimum(
            np.diff(tokens["question_bounds"]), settings.max_query_length
        )
        # Maximum number of context tokens in a window; 3 for [CLS] and two [SEP].
        self._sizes = settings.max_seq_length - self._query_lengths - 3
        self._steps = np.minimum(self._sizes, settings.doc_stride)
        totals = np.diff(tokens["context_bounds"])[self._paragraphs]
        # `-(-a // b)` is a / b rounded up.
        counts = -(-np.maximum(totals - self._sizes, 0) // self._steps) + 1
        counts[tokens["answers"][:, 0] == _SKIPPED] = 0
        self.bounds = np.concatenate([[0], np.cumsum(counts)])
        # The question of each window, and the window's number within the question.
        rows = np.repeat(np.arange(len(counts)), counts)
        index = np.arange(len(rows)) - self.bounds[rows]
        rest = totals[rows] - index * self._steps[rows]
        lengths = np.minimum(rest, self._sizes[rows]) + self._query_lengths[rows] + 3
        self.lengths = lengths.astype(np.int32)

    def __len__(self) -> int:
        """Returns the number of windows, W."""
        return len(self.lengths)

    def __getitem__(self, number):
        """Makes a window.

        Args:
            number: index of the window, in [0, W).
        """
        if not 0 <= number < len(self):
            raise IndexError(number)
        tokens = self._tokens
        row = int(np.searchsorted(self.bounds, number, side="right")) - 1
        index = int(number - self.bounds[row])
        size, step = int(self._sizes[row]), int(self._steps[row])
        first = index * step  # the window's first token in the context
        paragraph = self._paragraphs[row]
        begin, end = tokens["context_bounds"][paragraph : paragraph + 2].tolist()
        part = slice(begin + first, min(begin + first + size, end))
        count = part.stop - part.start
        query = tokens["question_ids"][tokens["question_bounds"][row] :]
        query = query[: self._query_lengths[row]]
        context_start = len(query) + 2
        answer = tokens["answers"][row]
        positions = [0, 0]
        if first <= answer[0] and answer[1] < first + count:
            positions = (context_start + answer - first).tolist()
        context = tokens["context_ids"][part]
        ids = np.concatenate([self._cls, query, self._sep, context, self._sep])
        best = _best_windows(end - begin, size, step)[first : first + count]
        question, text = self.questions[row], self.dataset.paragraphs[paragraph].context
        fields = ids, context_start, tokens["context_spans"][part], best == index
        return Window(question, text, *fields, *positions)

    @property
    def split_answers(self) -> int:
        """The number of answers that no window contains completely."""
        first, last = self._tokens["answers"].T
        # Of the windows with the first token, the last one ends latest.
        index = np.minimum(first // self._steps, np.diff(self.bounds) - 1)
        return int(((first >= 0) & (last >= index * self._steps + self._sizes)).sum())

    def batch(
        self, rows: np.ndarray, length: int, targets: bool = False
    ) -> dict[str, np.ndarray]:
        """Makes a batch of windows: `Window.features`, int32 [B, length].

        Args:
            rows: indices of windows, int [B].
            length: number of positions with padding.
            targets: whether to add `start_positions`, `end_positions` and
                `is_impossible`, int32 [B]; these are the released names.
        """
        windows = [self[int(row)] for row in rows]
        parts = [window.features(length) for window in windows]
        batch = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
        if targets:
            positions = [(each.start_position, each.end_position) for each in windows]
            start, end = np.array(positions, np.int32).T
            batch |= {"start_positions": start, "end_positions": end}
            batch["is_impossible"] = (start == 0).astype(np.int32)
        return batch


def windows(
    dataset: Dataset, tokenizer: Tokenizer, settings: Any, *, training: bool = False
) -> Windows:
    """Makes the windows of all questions; see `encode` and `Windows`."""
    tokens = encode(dataset, tokenizer, training=training)
    return Windows(dataset, tokens, tokenizer, settings)


@functools.lru_cache(4096)
def _best_windows(count: int, size: int, step: int) -> np.ndarray:
    """Returns the window in which each token has the most context.

    **As released:** the score of a token's context is the smaller number of context
    tokens at its two sides, plus `PER_TOKEN` times the number of context tokens in the
    window. The first of several windows with the highest score is returned.

    Args:
        count: number of tokens of the context.
        size: maximum number of tokens of the context in a window.
        step: number of tokens between the starts of two windows.

    Returns:
        The index of the window, int64 [count].
    """
    # All scores are at least 0.
    best, best_scores = np.zeros(count, np.int64), np.full(count, -1.0)
    # `first` is the first token of each window.
    for index, first in enumerate(range(0, max(count - size, 0) + step, step)):
        length = min(size, count - first)
        before, part = np.arange(length), slice(first, first + length)
        scores = np.minimum(before, before[::-1]) + PER_TOKEN * length
        best[part][scores > best_scores[part]] = index
        best_scores[part] = np.maximum(scores, best_scores[part])
    return best
