"""Questions to the inputs of the model: `[CLS] article [SEP] question option [SEP]`.

The tokens of an article are stored once, however many questions and options it is read
with; inputs are put together batch by batch.

**As released:** of a question with its option the last `max_qa_length` tokens are kept,
and the article is cut at its end so that both fit. Segment 1 is the question's.
"""

import array
import dataclasses
from collections.abc import Sequence

import numpy as np

from albert_tf.errors import InputError
from albert_tf.tasks.race.reading import Question
from albert_tf.text import inputs
from albert_tf.text.inputs import Inputs
from albert_tf.text.tokenization import Tokenizer

# [CLS] and two [SEP].
_SPECIAL = 3
# Texts of which the tokens are held as lists at once.
_CHUNK = 10_000


@dataclasses.dataclass(frozen=True)
class Lengths:
    """How long inputs are; see the released flags of the same names.

    Attributes:
        max_seq_length: most tokens of an input, [CLS] and [SEP] included.
        max_qa_length: most tokens of a question with its option.

    Raises:
        InputError: an article would have no room.
    """

    max_seq_length: int = 512
    max_qa_length: int = 128

    def __post_init__(self) -> None:
        needed = self.max_qa_length + _SPECIAL + 1
        if self.max_seq_length < needed:
            raise InputError(
                f"--max_seq_length={self.max_seq_length}: expected at least {needed}, "
                f"--max_qa_length={self.max_qa_length} and {_SPECIAL + 1} more"
            )


@dataclasses.dataclass(frozen=True)
class Features:
    """The tokens of n questions with their choices.

    Attributes:
        article_ids: int32, the tokens of all articles one after the other.
        article_bounds: int64; article i holds [bounds[i], bounds[i + 1]) of them.
        article_of: int32 [n], the article of each question.
        choice_ids: int32, the tokens of all questions with their options, cut.
        choice_bounds: int64 [m + 1] for m choices of all questions.
        question_bounds: int64 [n + 1]; question q has the choices [bounds[q],
            bounds[q + 1]).
        choices_cut: int64 [], how many of these were cut.
    """

    article_ids: np.ndarray
    article_bounds: np.ndarray
    article_of: np.ndarray
    choice_ids: np.ndarray
    choice_bounds: np.ndarray
    question_bounds: np.ndarray
    choices_cut: np.ndarray

    def __len__(self) -> int:
        """Returns the number of questions."""
        return len(self.article_of)

    @property
    def whole_lengths(self) -> np.ndarray:
        """Tokens of each question's longest input if no article were cut, int64 [n]."""
        of_choices = np.diff(self.choice_bounds)
        longest = np.maximum.reduceat(of_choices, self.question_bounds[:-1])
        return np.diff(self.article_bounds)[self.article_of] + longest + _SPECIAL

    def describe(self, lengths: Lengths) -> list[str]:
        """Says in words how long inputs are, and how much was cut."""
        whole, most = self.whole_lengths, lengths.max_seq_length
        used = np.minimum(whole, most)
        lost = whole[whole > most] - most
        lines = [
            f"{used.mean():.1f} tokens of a choice on average, {used.max()} at most"
        ]
        if lost.size:
            cut = np.unique(self.article_of[whole > most])
            lines.append(
                f"{len(cut):,} of {len(self.article_bounds) - 1:,} articles cut to fit "
                f"--max_seq_length={most}, for {len(lost):,} questions, by "
                f"{lost.mean():.1f} tokens on average, {lost.max()} at most"
            )
        if self.choices_cut:
            lines.append(
                f"{self.choices_cut:,} choices longer than --max_qa_length="
                f"{lengths.max_qa_length}: their last tokens are kept"
            )
        return lines

    def batch(
        self,
        rows: Sequence[int] | np.ndarray,
        choices: int,
        length: int,
        lengths: Lengths,
        tokenizer: Tokenizer,
    ) -> dict[str, np.ndarray]:
        """Makes the inputs of some questions.

        Args:
            rows: numbers of the questions, B.
            choices: of every question of the batch, C; those that a question does not
                have are padding.
            length: tokens of every row of the batch, T.
            lengths: that the features were made with.
            tokenizer: likewise.

        Returns:
            `input_ids`, `input_mask` and `segment_ids`, int32 [B, C, T] each.

        Raises:
            ValueError: an input is longer than `length`.
        """
        cls, sep = [tokenizer.cls_id], [tokenizer.sep_id]
        parts, first_lengths = [], []
        places: list[int] = []
        for place, row in enumerate(rows):
            begin, end = self.article_bounds[self.article_of[row] :][:2]
            numbers = range(*self.question_bounds[row:][:2])
            places += range(place * choices, place * choices + len(numbers))
            for number in numbers:
                first, last = self.choice_bounds[number:][:2]
                room = lengths.max_seq_length - _SPECIAL - (last - first)
                article = self.article_ids[begin : min(end, begin + room)]
                question = self.choice_ids[first:last]
                parts.append(np.concatenate([cls, article, sep, question, sep]))
                first_lengths.append(len(article) + 2)
        bounds = np.cumsum([0, *map(len, parts)])
        together = Inputs(np.concatenate(parts), bounds, np.array(first_lengths), 0, 0)
        padded = inputs.pad(together, range(len(parts)), length, tokenizer.pad_id)
        batch = {}
        for name, value in padded.items():
            filler = tokenizer.pad_id if name == "input_ids" else 0
            batch[name] = np.full((len(rows) * choices, length), filler, np.int32)
            batch[name][places] = value
        shape = (len(rows), choices, length)
        return {name: value.reshape(shape) for name, value in batch.items()}


def encode(
    tokenizer: Tokenizer,
    questions: Sequence[Question],
    lengths: Lengths,
    *,
    num_threads: int = 1,
) -> Features:
    """Cuts articles, questions and options into tokens.

    Args:
        tokenizer: the vocabulary.
        questions: one or more.
        lengths: how long inputs may be.
        num_threads: at most so many threads tokenize.
    """
    numbers: dict[str, int] = {}
    article_of = [numbers.setdefault(q.article, len(numbers)) for q in questions]
    completed = [q.completed(i) for q in questions for i in range(len(q.options))]
    article_ids, article_bounds, _ = _tokens(tokenizer, list(numbers), num_threads)
    choice_ids, choice_bounds, cut = _tokens(
        tokenizer, completed, num_threads, last=lengths.max_qa_length
    )
    return Features(
        article_ids,
        article_bounds,
        np.array(article_of, np.int32),
        choice_ids,
        choice_bounds,
        np.cumsum([0, *(len(question.options) for question in questions)]),
        np.array(cut),
    )


def _tokens(
    tokenizer: Tokenizer, texts: Sequence[str], num_threads: int, last: int = 0
) -> tuple[np.ndarray, np.ndarray, int]:
    """Returns the tokens of texts one after the other, their bounds, how many were cut.

    With `last`, the last so many tokens of each text are kept.
    """
    ids, ends, cut = array.array("i"), array.array("q", [0]), 0
    for begin in range(0, len(texts), _CHUNK):
        for tokens in tokenizer.encode_batch(
            texts[begin : begin + _CHUNK], num_threads
        ):
            cut += bool(last) and len(tokens) > last
            ids.extend(tokens[-last:])
            ends.append(len(ids))
    return np.array(ids, np.int32), np.array(ends, np.int64), cut
