"""Encodes questions as model inputs: `[CLS] article [SEP] question option [SEP]`.

The tokens of an article are stored only once, although several questions and options
need them. `Features.batch` assembles the inputs.

**As released:** the question with its option keeps the last `max_qa_length` tokens, and
the article is truncated at its end. Segment 1 is the question with its option and the
last [SEP].
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.tasks.race.reading import Question
from albert_tf.text.tokenization import Tokenizer

# Number of special tokens of an input: [CLS] and two [SEP].
_SPECIAL = 3
# Number of texts that are tokenized at a time. The tokenizer returns lists, which take
# much more memory than arrays.
_CHUNK = 10_000


@dataclasses.dataclass(frozen=True)
class Features:
    """The tokens of n questions with their choices.

    A choice is a question with one of its options.

    Attributes:
        article_ids: int32, the tokens of all articles, concatenated.
        article_bounds: int64 [a + 1] for a articles; article i has the tokens
            [article_bounds[i], article_bounds[i + 1]).
        article_of: int32 [n], index of each question's article.
        choice_ids: int32, the tokens of all choices, truncated and concatenated.
        choice_bounds: int64 [m + 1] for m choices of all questions; choice j has the
            tokens [choice_bounds[j], choice_bounds[j + 1]).
        question_bounds: int64 [n + 1]; question q has the choices
            [question_bounds[q], question_bounds[q + 1]).
        choices_cut: int64 [], number of truncated choices.
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

        The whole article counts, even if the input has only its beginning.
        """
        choice_lengths = np.diff(self.choice_bounds)
        longest = np.maximum.reduceat(choice_lengths, self.question_bounds[:-1])
        return np.diff(self.article_bounds)[self.article_of] + longest + _SPECIAL

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each question's longest input, truncated, int64 [n]."""
        return np.minimum(self.full_lengths, self.max_seq_length)

    def batch(
        self,
        rows: Sequence[int] | np.ndarray,
        choices: int,
        length: int,
        tokenizer: Tokenizer,
    ) -> dict[str, np.ndarray]:
        """Makes a batch of questions.

        Args:
            rows: int [B], indices of the questions.
            choices: C, number of choices per question. The missing choices of a
                question with fewer choices are padding.
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
            # `bounds[k:][:2]` is the begin and the end of item k.
            begin, end = self.article_bounds[self.article_of[row] :][:2]
            for j, index in enumerate(range(*self.question_bounds[row:][:2])):
                choice = self.choice_ids[slice(*self.choice_bounds[index:][:2])]
                max_length = self.max_seq_length - _SPECIAL - len(choice)
                article = self.article_ids[begin : min(end, begin + max_length)]
                ids = np.concatenate([cls, article, sep, choice, sep])
                batch["input_ids"][i, j, : len(ids)] = ids
                batch["input_mask"][i, j, : len(ids)] = 1
                batch["segment_ids"][i, j, len(article) + 2 : len(ids)] = 1
        return batch


def encode(
    tokenizer: Tokenizer,
    questions: Sequence[Question],
    settings: Any,
    num_threads: int = 1,
) -> Features:
    """Tokenizes articles, and questions with their options.

    Args:
        tokenizer: the vocabulary.
        questions: one or more questions.
        settings: settings with `max_seq_length` and `max_qa_length`.
        num_threads: maximum number of threads.
    """
    articles: dict[str, int] = {}
    article_of = [articles.setdefault(q.article, len(articles)) for q in questions]
    choices = [choice for question in questions for choice in question.choices]
    article_ids, article_bounds, _ = _tokenize(tokenizer, [*articles], num_threads)
    choice_ids, choice_bounds, choices_cut = _tokenize(
        tokenizer, choices, num_threads, keep_last=settings.max_qa_length
    )
    return Features(
        article_ids=article_ids,
        article_bounds=article_bounds,
        article_of=np.array(article_of, np.int32),
        choice_ids=choice_ids,
        choice_bounds=choice_bounds,
        question_bounds=np.cumsum([0, *(len(q.options) for q in questions)]),
        choices_cut=np.array(choices_cut),
        max_seq_length=np.array(settings.max_seq_length),
    )


def _tokenize(
    tokenizer: Tokenizer, texts: Sequence[str], num_threads: int, keep_last: int = 0
) -> tuple[np.ndarray, np.ndarray, int]:
    """Returns the tokens of all texts, their bounds, and the number of truncated texts.

    Each text keeps its last `keep_last` tokens; 0 keeps all.
    """
    ids, num_truncated = [], 0
    for begin in range(0, len(texts), _CHUNK):
        for tokens in tokenizer.encode_batch(
            texts[begin : begin + _CHUNK], num_threads
        ):
            num_truncated += bool(keep_last) and len(tokens) > keep_last
            # `tokens[-0:]` is all tokens.
            ids.append(np.array(tokens[-keep_last:], np.int32))
    return np.concatenate(ids), np.cumsum([0, *map(len, ids)]), num_truncated
