"""Choosing one of several answers: the model side of RACE and of sets like it."""

import dataclasses
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from keras import ops

from albert_tf.data import cache
from albert_tf.data.batches import ByLength
from albert_tf.errors import InputError
from albert_tf.model import heads
from albert_tf.model.config import AlbertConfig
from albert_tf.model.models import AlbertMultipleChoice
from albert_tf.tasks import base
from albert_tf.tasks.race import features
from albert_tf.tasks.race.features import Features, Lengths
from albert_tf.tasks.race.reading import LEVELS, Question
from albert_tf.text.tokenization import Tokenizer

KIND = "multiple_choice"

# Version 2, which has seen no dropout, diverges from this learning rate on.
_RISKY_RATE = 2e-5
# An accuracy within so many standard deviations of guessing may be guessing.
_DEVIATIONS = 2.0


@dataclasses.dataclass(frozen=True)
class Split:
    """Questions and what they are made into.

    Attributes:
        name: "train", "dev", "test".
        questions: n questions of C choices.
        features: theirs.
    """

    name: str
    questions: Sequence[Question]
    features: Features

    @property
    def answers(self) -> np.ndarray:
        """The right choice of each question, int32 [n]; -1 where it is not known."""
        found = (-1 if q.answer is None else q.answer for q in self.questions)
        return np.fromiter(found, np.int32, len(self.questions))


def convert(
    task_name: str,
    name: str,
    questions: Sequence[Question],
    tokenizer: Tokenizer,
    lengths: Lengths,
    folder: Path,
    num_threads: int = 1,
    unsaved: list[Callable[[], None]] | None = None,
) -> Split:
    """Cuts questions into pieces, or takes these from a file of an earlier run.

    Args:
        task_name: begins the name of the file.
        name: of the split.
        questions: as read.
        tokenizer: cuts texts into pieces.
        lengths: how long inputs may be.
        folder: gets `<task>_<split>.npz`.
        num_threads: at most so many threads tokenize.
        unsaved: see `cache.load_or_make`.

    Raises:
        InputError: see `cache.load_or_make`.
    """
    texts = hashlib.sha256()
    for question in questions:
        for text in (question.article, question.text, *question.options):
            texts.update(f"{len(text)} ".encode() + text.encode(errors="surrogatepass"))
    made_from = {
        "texts": texts.hexdigest(),
        "choices": len(questions[0].options),
        "vocabulary": tokenizer.fingerprint,
        "max_qa_length": lengths.max_qa_length,
    }

    def make() -> cache.Arrays:
        found = features.encode(tokenizer, questions, lengths, num_threads=num_threads)
        return dict(vars(found))

    path = folder / f"{task_name}_{name}.npz"
    arrays, _ = cache.load_or_make(path, made_from, make, unsaved)
    return Split(name, questions, Features(**arrays))


class MultipleChoice(base.FineTuningTask):
    """One of C choices is right (paper, RACE).

    The figures are `eval_accuracy` and `eval_loss` as released, and where the questions
    have levels `middle_accuracy` and `high_accuracy`.

    Args:
        name: of the data set.
        config: the model's.
        tokenizer: that made the features.
        lengths: how long inputs may be.
        choices: of a question, C.
        training: the questions to train on, if any.
        evaluation: those to evaluate on, if any.
        choices_at_once: see `AlbertMultipleChoice`.
        pretrained_without_dropout: whether the model's own file has no dropout, as
            those of version 2.
        multiple: see `ByLength`.

    Raises:
        InputError: a question to train or evaluate on has no answer.
    """

    key_metric = "eval_accuracy"

    def __init__(
        self,
        name: str,
        config: AlbertConfig,
        tokenizer: Tokenizer,
        lengths: Lengths,
        choices: int,
        *,
        training: Split | None = None,
        evaluation: Split | None = None,
        choices_at_once: int | None = None,
        pretrained_without_dropout: bool = False,
        multiple: int = 8,
    ):
        self.name = name
        self.config = config
        self.tokenizer = tokenizer
        self.lengths = lengths
        self.tokens_per_example = choices * lengths.max_seq_length
        self._choices = choices
        self._choices_at_once = choices_at_once
        self._pretrained_without_dropout = pretrained_without_dropout
        self._multiple = multiple
        self._evaluated = evaluation
        self.training = self.source(training, labelled=True) if training else None
        self.evaluation = self.source(evaluation, labelled=True) if evaluation else None

    @property
    def description(self) -> dict[str, Any]:
        """The kind of task, and how inputs are made."""
        return {
            "kind": KIND,
            "task": self.name,
            "choices": self._choices,
            "max_seq_length": self.lengths.max_seq_length,
            "max_qa_length": self.lengths.max_qa_length,
        }

    @property
    def sequence_length(self) -> int:
        """Tokens of a choice, at most."""
        return self.lengths.max_seq_length

    @property
    def tokens_at_once(self) -> int:
        """Tokens of a question that training holds at once, at most."""
        choices = min(self._choices_at_once or self._choices, self._choices)
        return choices * self.sequence_length

    @property
    def chance_losses(self) -> dict[str, float]:
        """The loss of guessing."""
        return {"loss": math.log(self._choices)}

    def source(self, split: Split, *, labelled: bool) -> ByLength:
        """Returns the batches of a split.

        Args:
            split: the questions.
            labelled: whether batches have `labels`.

        Raises:
            InputError: they should, and a question has no answer.
        """
        answers = split.answers
        if labelled and (unknown := np.flatnonzero(answers < 0)).size:
            question = split.questions[unknown[0]]
            raise InputError(
                f"{question.place}: no answer; expected one to train or evaluate on"
            )

        def make(rows, length):
            batch = split.features.batch(rows, length, self.lengths, self.tokenizer)
            return {**batch, "labels": answers[rows]} if labelled else batch

        used = np.minimum(split.features.whole_lengths, self.lengths.max_seq_length)
        return ByLength(used, make, self.lengths.max_seq_length, self._multiple)

    def build_model(self):
        """Creates the encoder with a score for each choice."""
        return AlbertMultipleChoice(self.config, self._choices_at_once)

    def weights(self, batch: base.Batch) -> dict[str, Any]:
        """Returns the number of questions."""
        return {"loss": ops.sum(base.example_weights(batch))}

    def sums(self, outputs: base.Outputs, batch: base.Batch) -> dict[str, Any]:
        """Returns the summed cross-entropy of the choices."""
        _, each = heads.classification_loss(outputs["logits"], batch["labels"])
        return {"loss": ops.sum(each * base.example_weights(batch))}

    def metrics(
        self, outputs: base.Outputs, batch: base.Batch
    ) -> dict[str, tuple[Any, Any]]:
        """Returns none: `score` has them."""
        return {}

    def predictions(self, outputs: base.Outputs, batch: base.Batch) -> dict[str, Any]:
        """Keeps the probabilities of the choices, [B, C]."""
        return {"probabilities": ops.softmax(outputs["logits"])}

    def score(
        self, predictions: base.Predictions, figures: Mapping[str, float]
    ) -> dict[str, float]:
        """Computes the accuracies: of all, and of each level."""
        found = stacked(predictions)
        questions = self._evaluated.questions if self._evaluated else ()
        scores = accuracies(found, questions[: len(found)])
        return {"eval_loss": figures["loss"], **scores}

    def complaint(self, figures: Mapping[str, float]) -> str | None:
        """Names an accuracy that guessing might have."""
        if self._evaluated is None or self.key_metric not in figures:
            return None
        count, chance = len(self._evaluated.questions), 1 / self._choices
        deviation = math.sqrt(chance * (1 - chance) / count)
        accuracy = figures[self.key_metric]
        if accuracy > chance + _DEVIATIONS * deviation:
            return None
        return (
            f"{self.key_metric} {accuracy:.3f} is what guessing gives ({chance:.3f}, "
            f"give or take {deviation:.3f}): the model has learned nothing yet, or has "
            f"diverged. A lower --learning_rate, a larger --train_batch_size or a "
            f"longer --warmup_step may help"
        )

    def hints(self, learning_rate: float, train_batch_size: int) -> list[str]:
        """Warns of settings with which models of version 2 diverge."""
        if not self._pretrained_without_dropout or learning_rate < _RISKY_RATE:
            return []
        return [
            f"the model's file has no dropout, as those of version 2, which diverge on "
            f"RACE with the settings of version 1: for these --learning_rate=1e-5 and "
            f"no --albert_dropout_prob (recipes/race_v2.flags), not {learning_rate:g}"
        ]


def stacked(predictions: base.Predictions) -> np.ndarray:
    """Returns what `MultipleChoice.predictions` kept as one array, float32 [n, C]."""
    return np.array([found["probabilities"] for found in predictions])


def accuracies(
    probabilities: np.ndarray, questions: Sequence[Question]
) -> dict[str, float]:
    """Returns the share of right choices: `eval_accuracy`, and of each level.

    Args:
        probabilities: float [n, C].
        questions: n questions with answers, one or more.
    """
    right = probabilities.argmax(axis=-1) == [question.answer for question in questions]
    levels = np.array([question.level for question in questions])
    scores = {"eval_accuracy": float(right.mean())}
    for level in LEVELS:
        if (levels == level).any():
            scores[f"{level}_accuracy"] = float(right[levels == level].mean())
    return scores
