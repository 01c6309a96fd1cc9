"""Makes windows, the inputs of a model: `[CLS] question [SEP] context [SEP]`.

A context that is longer than a window is divided into several windows, which start
`doc_stride` tokens apart. `encode` tokenizes each text once. This is slow, so its
arrays are cached. `Windows` makes each window from these arrays when it is accessed.

Letters: Q questions, P contexts, N tokens of all contexts, W windows, T tokens of a
window, C tokens of the context in a window.

**As released:** ids, masks, windows and targets. One difference: the released code
aligns tokens with the text approximately, and drops a question if this fails, for
example in Hangul. Here the tokenizer returns the offsets, so this cannot fail.
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

# As released: each context token of a window adds this number to the scores by which
# `_find_best_windows` chooses a window for each token.
SCORE_PER_TOKEN = 0.01
# Values in the array `answers` of `encode`: the first if no answer was located for a
# question, the second if training skips the question.
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
            (SentencePiece's "▁") has an empty span.
        max_context: bool [C], whether a token has more context in this window than in
            the others, see `_find_best_windows`. A predicted answer begins only at such
            a token.
        start_position: position of the true answer's first token in `ids`; 0, the
            position of [CLS], if the window does not contain a complete answer.
        end_position: position of the true answer's last token, or 0.
    """

    question: Question
    text: str
    ids: np.ndarray
    context_start: int
    spans: np.ndarray
    max_context: np.ndarray
    start_position: int
    end_position: int

    def extract_answer(self, first: int, last: int) -> tuple[int, int, str]:
        """Returns the characters [begin, end) of a span of tokens, and their text.

        Args:
            first: index of the first token among the window's context tokens, in
                [0, C).
            last: index of the last token, in [first, C).
        """
        begin = int(self.spans[first, 0])
        # `strip` removes the white space at the end of the text. The text ends in white
        # space if the last token is only a word mark.
        text = self.text[begin : int(self.spans[last, 1])].strip()
        return begin, begin + len(text), text

    def make_inputs(self, length: int) -> dict[str, np.ndarray]:
        """Returns the inputs of the model for this window, with padding at the end.

        Args:
            length: number of positions with padding, at least T.

        Returns:
            `input_ids`, `input_mask` (1 except for padding), `segment_ids` (1 for the
            context and the [SEP] after it) and `p_mask` (0 for [CLS] and the context,
            otherwise 1), int32 [length]; these are the released names.
        """
        count, context_start = len(self.ids), self.context_start
        names = ("input_ids", "input_mask", "segment_ids", "p_mask")
        features = {name: np.zeros(length, np.int32) for name in names}
        features["input_ids"][:count] = self.ids
        features["input_mask"][:count] = 1
        features["segment_ids"][context_start:count] = 1
        features["p_mask"][1:] = 1
        features["p_mask"][context_start : count - 1] = 0
        return features


def encode(
    dataset: Dataset,
    tokenizer: Tokenizer,
    *,
    training: bool = False,
    skip_bad_rows: bool = False,
) -> dict[str, np.ndarray]:
    """Tokenizes contexts and questions, and locates the answers for training.

    Args:
        dataset: the questions.
        tokenizer: the tokenizer with the model's vocabulary.
        training: whether to locate the first answer of each question.
        skip_bad_rows: whether training skips questions without an answer in the
            context, instead of raising an error.

    Returns:
        Arrays by name:

        - `context_ids`: int32 [N], the tokens of all contexts;
        - `context_spans`: int32 [N, 2], the characters of each token, see `Window`;
        - `context_bounds`: int64 [P + 1]; context i has the tokens
          [context_bounds[i], context_bounds[i + 1]);
        - `question_ids` and `question_bounds`: the same for questions;
        - `answers`: int32 [Q, 2], the indices of the first and the last token of each
          answer in its context; -1 without an answer or without `training`, -2 if the
          question is skipped;
        - `notes`: texts to log about the answers.

    Raises:
        InputError: a question has no answer to train on, see `locate`.
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
        paragraphs = _find_paragraphs(dataset)
        for index, answer in locations.answers.items():
            answers[index] = _find_tokens(spans[paragraphs[index]], answer)
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

    White space at the ends of the answer is ignored. An answer without tokens, such as
    a zero-width joiner, gets the token after it. If the context has no tokens, the
    result is (-1, -1).

    Args:
        spans: int32 [tokens, 2], the characters of each token of the context.
        answer: the answer, with its true location.
    """
    text = answer.text.strip()
    begin = answer.start + answer.text.index(text)
    # The first token that ends after `begin`, and the last one that begins before the
    # end of the answer.
    first = int(np.searchsorted(spans[:, 1], begin, side="right"))
    last = int(np.searchsorted(spans[:, 0], begin + len(text), side="left")) - 1
    first = min(first, len(spans) - 1)  # an answer after the last token
    return first, max(first, last)


def _find_paragraphs(dataset: Dataset) -> np.ndarray:
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
        notes: texts to log about the answers.
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
        self._paragraphs = _find_paragraphs(dataset)
        # `_query_lengths`, `_sizes`, `_steps`, `totals` and `counts` have one number
        # for each question. `_query_lengths` are the lengths after truncation.
        self._query_lengths = np.minimum(
            np.diff(tokens["question_bounds"]), settings.max_query_length
        )
        # Maximum numbers of context tokens in a window; 3 for [CLS] and two [SEP].
        self._sizes = settings.max_seq_length - self._query_lengths - 3
        # Numbers of tokens between the starts of two windows.
        self._steps = np.minimum(self._sizes, settings.doc_stride)
        # `totals` are the numbers of context tokens, `counts` the numbers of windows.
        totals = np.diff(tokens["context_bounds"])[self._paragraphs]
        # `-(-a // b)` is a / b rounded up.
        counts = -(-np.maximum(totals - self._sizes, 0) // self._steps) + 1
        counts[tokens["answers"][:, 0] == _SKIPPED] = 0
        self.bounds = np.concatenate([[0], np.cumsum(counts)])
        # For each window: the index of its question (`rows`), its index among the
        # windows of this question (`index_in_question`), and the number of tokens from
        # its first context token to the end of the context (`rest`).
        rows = np.repeat(np.arange(len(counts)), counts)
        index_in_question = np.arange(len(rows)) - self.bounds[rows]
        rest = totals[rows] - index_in_question * self._steps[rows]
        lengths = np.minimum(rest, self._sizes[rows]) + self._query_lengths[rows] + 3
        self.lengths = lengths.astype(np.int32)

    def __len__(self) -> int:
        """Returns the number of windows, W."""
        return len(self.lengths)

    def __getitem__(self, index):
        """Makes a window.

        Args:
            index: index of the window, in [0, W).
        """
        if not 0 <= index < len(self):
            raise IndexError(index)
        tokens = self._tokens
        # `row` is the index of the question, and `index_in_question` the index of the
        # window among the windows of this question.
        row = int(np.searchsorted(self.bounds, index, side="right")) - 1
        index_in_question = int(index - self.bounds[row])
        size, step = int(self._sizes[row]), int(self._steps[row])
        # The window has the tokens [first, first + count) of the context. In the tokens
        # of all contexts, the context has the indices [begin, end).
        first = index_in_question * step
        paragraph = self._paragraphs[row]
        begin, end = tokens["context_bounds"][paragraph : paragraph + 2].tolist()
        part = slice(begin + first, min(begin + first + size, end))
        count = part.stop - part.start
        query = tokens["question_ids"][tokens["question_bounds"][row] :]
        query = query[: self._query_lengths[row]]
        context_start = len(query) + 2
        answer = tokens["answers"][row]
        positions = [0, 0]
        # If the question has no answer, `answer[0]` is negative.
        if first <= answer[0] and answer[1] < first + count:
            positions = (context_start + answer - first).tolist()
        context = tokens["context_ids"][part]
        ids = np.concatenate([self._cls, query, self._sep, context, self._sep])
        best = _find_best_windows(end - begin, size, step)[first : first + count]
        return Window(
            question=self.questions[row],
            text=self.dataset.paragraphs[paragraph].context,
            ids=ids,
            context_start=context_start,
            spans=tokens["context_spans"][part],
            max_context=best == index_in_question,
            start_position=positions[0],
            end_position=positions[1],
        )

    @property
    def split_answer_count(self) -> int:
        """The number of answers that no window contains completely."""
        first, last = self._tokens["answers"].T
        # For each question, `index` is the last window that contains the answer's first
        # token. If this window does not contain the whole answer, no window does.
        index = np.minimum(first // self._steps, np.diff(self.bounds) - 1)
        return int(((first >= 0) & (last >= index * self._steps + self._sizes)).sum())

    def make_batch(
        self, rows: np.ndarray, length: int, targets: bool = False
    ) -> dict[str, np.ndarray]:
        """Makes a batch of windows: the arrays of `Window.make_inputs`, stacked.

        Args:
            rows: indices of B windows, int [B].
            length: number of positions with padding.
            targets: whether to add `start_positions`, `end_positions` and
                `is_impossible`, int32 [B]; these are the released names.

        Returns:
            Arrays by name: the inputs of the model, int32 [B, length], and the targets.
        """
        windows = [self[int(row)] for row in rows]
        parts = [window.make_inputs(length) for window in windows]
        batch = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
        if targets:
            positions = [(each.start_position, each.end_position) for each in windows]
            start, end = np.array(positions, np.int32).T
            batch |= {"start_positions": start, "end_positions": end}
            batch["is_impossible"] = (start == 0).astype(np.int32)
        return batch


def make_windows(
    dataset: Dataset, tokenizer: Tokenizer, settings: Any, *, training: bool = False
) -> Windows:
    """Tokenizes all questions and contexts, and divides them into windows.

    Args:
        dataset: the questions.
        tokenizer: the tokenizer with the model's vocabulary.
        settings: settings with `max_seq_length`, `doc_stride`, `max_query_length`.
        training: whether to locate the answers, for targets.
    """
    tokens = encode(dataset, tokenizer, training=training)
    return Windows(dataset, tokens, tokenizer, settings)


@functools.lru_cache(4096)
def _find_best_windows(count: int, size: int, step: int) -> np.ndarray:
    """Returns for each token of a context the window in which it has most context.

    **As released:** a token has a score in each window that contains it. The score is
    the number of context tokens before or after the token in the window, whichever is
    smaller, plus `SCORE_PER_TOKEN` times the number of all context tokens of the
    window. If several windows have the highest score, the first one counts.

    Args:
        count: number of tokens of the context.
        size: maximum number of tokens of the context in a window.
        step: number of tokens between the starts of two windows.

    Returns:
        The index of each token's window, int64 [count].
    """
    # Scores are not negative, so -1 is below the score of any window.
    best, best_scores = np.zeros(count, np.int64), np.full(count, -1.0)
    # `first` is the index of a window's first token in the context. The last window is
    # the first one that reaches the end of the context.
    for index, first in enumerate(range(0, max(count - size, 0) + step, step)):
        length = min(size, count - first)
        # Numbers of context tokens before each token of the window, and after it.
        before, after = np.arange(length), np.arange(length)[::-1]
        part = slice(first, first + length)
        scores = np.minimum(before, after) + SCORE_PER_TOKEN * length
        best[part][scores > best_scores[part]] = index
        best_scores[part] = np.maximum(scores, best_scores[part])
    return best
