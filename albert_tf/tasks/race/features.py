"""Encodes questions as model inputs: `[CLS] article [SEP] question option [SEP]`.

The tokens of an article are stored only once, although several questions and options
need them. `Features.make_batch` assembles the inputs.

**As released:** the question with its option keeps the last `max_qa_length` tokens, and
the article is truncated at its end. Segment 1 is the question with its option and the
last [SEP].
"""

import dataclasses
from collections.abc import Sequence, Sized
from typing import Any

import numpy as np

from albert_tf.tasks.race.reading import Question
from albert_tf.text.tokenization import Tokenizer

# Number of special tokens of an input: [CLS] and two [SEP].
_SPECIAL = 3
# Number of texts that are tokenized at a time. The tokenizer returns lists, which need
# much more memory than the arrays that are made from them.
_CHUNK = 10_000


@dataclasses.dataclass(frozen=True)
class Features:
    """The tokens of n questions with A articles and M choices.

    A choice is a question with one of its options.

    Attributes:
        article_ids: int32, the tokens of all articles, concatenated.
        article_bounds: int64 [A + 1]; article i has the tokens
            [article_bounds[i], article_bounds[i + 1]).
        article_of: int32 [n], index of each question's article.
        choice_ids: int32, the tokens of all choices, truncated and concatenated.
        choice_bounds: int64 [M + 1]; choice j has the tokens
            [choice_bounds[j], choice_bounds[j + 1]).
        question_bounds: int64 [n + 1]; question q has the choices
            [question_bounds[q], question_bounds[q + 1]).
        choices_cut: int64 [], number of choices that are truncated.
        max_seq_length: int64 [], maximum number of tokens of an input.
    """

    article_ids: np.ndarray
    article_bounds: np.ndarray
    article_of: np.ndarray
    choice_ids: np.ndarray
    choice_bounds: np.ndarray
    question_bounds: np.ndarray
    choices_cut: np.ndarray
    max_seq_length: np.ndarray

    def __len__(self) -> int:
        """Returns the number of questions."""
        return len(self.article_of)

    @property
    def full_lengths(self) -> np.ndarray:
        """Number of tokens of each question's longest input, int64 [n].

        A question has one input for each choice. The number includes the whole article,
        before it is truncated.
        """
        choice_lengths = np.diff(self.choice_bounds)
        longest = np.maximum.reduceat(choice_lengths, self.question_bounds[:-1])
        return np.diff(self.article_bounds)[self.article_of] + longest + _SPECIAL

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each question's longest truncated input, int64 [n]."""
        return np.minimum(self.full_lengths, self.max_seq_length)

    def make_batch(
        self,
        rows: Sequence[int] | np.ndarray,
        choices: int,
        length: int,
        tokenizer: Tokenizer,
    ) -> dict[str, np.ndarray]:
        """Makes a batch of questions.

        Args:
            rows: int [B], indices of the questions.
            choices: C, number of choices per question. If a question has fewer choices,
                padding replaces the missing ones.
            length: T, number of tokens of each input, with padding.
            tokenizer: the tokenizer of `encode`.

        Returns:
            `input_ids`, `input_mask` and `segment_ids`, int32 [B, C, T] each.
        """
        cls, sep = [tokenizer.cls_id], [tokenizer.sep_id]
        shape = (len(rows), choices, length)
        batch = {
            "input_ids": np.full(shape, tokenizer.pad_id, np.int32),
            "input_mask": np.zeros(shape, np.int32),
            "segment_ids": np.zeros(shape, np.int32),
        }
        for i, row in enumerate(rows):
            article = _take(self.article_ids, self.article_bounds, self.article_of[row])
            # The indices of the choices of this question among all choices.
            indices = range(*self.question_bounds[row : row + 2])
            for j, index in enumerate(indices):
                choice = _take(self.choice_ids, self.choice_bounds, index)
                rest = self.max_seq_length - _SPECIAL - len(choice)
                ids = np.concatenate([cls, article[:rest], sep, choice, sep])
                batch["input_ids"][i, j, : len(ids)] = ids
                batch["input_mask"][i, j, : len(ids)] = 1
                begin = len(ids) - len(choice) - 1  # of segment 1
                batch["segment_ids"][i, j, begin : len(ids)] = 1
        return batch


def encode(
    tokenizer: Tokenizer,
    questions: Sequence[Question],
    settings: Any,
    num_threads: int = 1,
) -> Features:
    """Tokenizes each article, and each question with each of its options.

    Args:
        tokenizer: the tokenizer with the model's vocabulary.
        questions: one or more questions.
        settings: settings with `max_seq_length` and `max_qa_length`.
        num_threads: maximum number of threads.
    """
    index_of: dict[str, int] = {}  # {article: its index}
    article_of = [index_of.setdefault(q.article, len(index_of)) for q in questions]
    texts = [choice for question in questions for choice in question.choices]
    articles = _tokenize(tokenizer, [*index_of], num_threads)
    choices = _tokenize(tokenizer, texts, num_threads)
    limit = settings.max_qa_length
    truncated = [ids[-limit:] for ids in choices]
    return Features(
        article_ids=np.concatenate(articles),
        article_bounds=_compute_bounds(articles),
        article_of=np.array(article_of, np.int32),
        choice_ids=np.concatenate(truncated),
        choice_bounds=_compute_bounds(truncated),
        question_bounds=_compute_bounds([question.options for question in questions]),
        choices_cut=np.array(sum(len(ids) > limit for ids in choices)),
        max_seq_length=np.array(settings.max_seq_length),
    )


def _tokenize(
    tokenizer: Tokenizer, texts: Sequence[str], num_threads: int
) -> list[np.ndarray]:
    """Returns the ids of each text, int32."""
    ids: list[np.ndarray] = []
    for begin in range(0, len(texts), _CHUNK):
        rows = tokenizer.encode_batch(texts[begin : begin + _CHUNK], num_threads)
        ids += [np.array(row, np.int32) for row in rows]
    return ids


def _compute_bounds(items: Sequence[Sized]) -> np.ndarray:
    """Returns the bounds of concatenated items, int64 [items + 1].

    Item i has the indices [bounds[i], bounds[i + 1]) in the concatenation.
    """
    return np.cumsum([0, *map(len, items)])


def _take(values: np.ndarray, bounds: np.ndarray, index: int) -> np.ndarray:
    """Returns the values of item `index` from an array of concatenated items."""
    return values[bounds[index] : bounds[index + 1]]
