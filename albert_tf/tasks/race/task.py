"""Choosing one of several answers: RACE and sets like it, `run_race.py`."""

import collections
import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from albert_tf.data import cache, cores
from albert_tf.data.batches import ByLength
from albert_tf.errors import InputError
from albert_tf.model import heads
from albert_tf.model.models import AlbertMultipleChoice
from albert_tf.tasks import base
from albert_tf.tasks.base import Arrays, Split, Splits
from albert_tf.tasks.race import features, graph, reading
from albert_tf.tasks.race.features import Features, Lengths
from albert_tf.tasks.race.reading import LETTERS, LEVELS, Question
from albert_tf.tasks.serving import ServingFunction
from albert_tf.tasks.settings.answer import AnswerSettings
from albert_tf.tasks.settings.fine_tuning import FILES, FLAGS
from albert_tf.tasks.settings.race import RaceSettings


class MultipleChoice(base.FineTuningTask):
    """One of C choices is right (paper, RACE).

    The metrics are `eval_accuracy` and `eval_loss` as released, and where the questions
    have levels `middle_accuracy` and `high_accuracy`.
    """

    kinds = ("multiple_choice",)
    settings_class = RaceSettings
    key_metric = "eval_accuracy"

    def __init__(self, settings: Any, *args: Any, **kwargs: Any):
        super().__init__(settings, *args, **kwargs)
        self.lengths = Lengths(settings.max_seq_length, settings.max_qa_length)
        self._choices = settings.choices or 0
        self.tokens_per_example = self._choices * settings.max_seq_length

    @classmethod
    def read_examples(cls, settings, saved_settings, config, log):
        splits: Splits = {
            part: [Split(part, _read(settings, part))] for part in config.parts
        }
        choices = (saved_settings.choices if saved_settings else None) or 0
        read = (question for [split] in splits.values() for question in split.examples)
        choices = max((len(question.options) for question in read), default=choices)
        return dataclasses.replace(settings, choices=choices), splits

    def cache_key(self, split: Split) -> dict[str, Any]:
        texts = (
            text
            for question in split.examples
            for text in (question.article, *map(question.completed, question.numbers))
        )
        return {
            "texts": cache.digest(texts),
            "choices": cache.digest(str(len(q.options)) for q in split.examples),
            "vocabulary": self.tokenizer.fingerprint,
            "max_qa_length": self.lengths.max_qa_length,
        }

    def encode(self, split: Split) -> Arrays:
        encoded = features.encode(
            self.tokenizer,
            split.examples,
            self.lengths,
            num_threads=cores.available(),
        )
        return dict(vars(encoded))

    def features(self, split: Split, arrays: Arrays) -> Features:
        return Features(**arrays)

    def summary(self, split: Split) -> list[str]:
        levels = collections.Counter(q.level for q in split.examples if q.level)
        parts = ", ".join(f"{level} {count:,}" for level, count in levels.items())
        articles = len(split.features.article_bounds) - 1
        counts = sorted({len(question.options) for question in split.examples})
        choices = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        line = (
            f"{split.name}: {len(split.features):,} questions with {choices} choices "
            f"about {articles:,} articles"
        )
        return [
            line + (f" ({parts})" if parts else ""),
            *(f"  {line}" for line in split.features.describe(self.lengths)),
        ]

    def dataset(self, splits: Sequence[Split], *, with_labels: bool) -> ByLength:
        [split] = splits
        answers = _answers(split)
        if with_labels and (unknown := np.flatnonzero(answers < 0)).size:
            question = split.examples[unknown[0]]
            raise InputError(
                f"{question.location}: no answer; expected one to train or evaluate on"
            )

        def make(rows, length):
            batch = split.features.batch(
                rows, self._choices, length, self.lengths, self.tokenizer
            )
            return {**batch, "labels": answers[rows]} if with_labels else batch

        used = np.minimum(split.features.whole_lengths, self.lengths.max_seq_length)
        return ByLength(used, make, self.lengths.max_seq_length, self.multiple)

    def build_model(self):
        return AlbertMultipleChoice(self.config)

    def loss_weights(self, batch: base.Batch) -> dict[str, Any]:
        return {"loss": ops.sum(base.example_weights(batch))}

    def loss_sums(self, outputs: base.Outputs, batch: base.Batch) -> dict[str, Any]:
        """Returns the summed cross-entropy of the choices."""
        each = heads.classification_loss(outputs["logits"], batch["labels"])
        return {"loss": ops.sum(each * base.example_weights(batch))}

    def prediction_outputs(
        self, outputs: base.Outputs, batch: base.Batch
    ) -> dict[str, Any]:
        """Keeps the probabilities of the choices, [B, C]."""
        return {"probabilities": ops.softmax(outputs["logits"])}

    def postprocess(self, split: Split, predictions: base.Predictions) -> np.ndarray:
        """Returns the probabilities of the choices as one array, float32 [n, C]."""
        return np.array([row["probabilities"] for row in predictions])

    def compute_metrics(self, split: Split, answers: np.ndarray) -> dict[str, float]:
        """Returns the accuracies of all questions with an answer, and of each level."""
        questions = split.examples[: len(answers)]
        known = [question.answer is not None for question in questions]
        if not any(known):
            return {}
        return accuracies(answers[known], list(itertools.compress(questions, known)))

    def write(self, split: Split, answers: np.ndarray) -> dict[str, str]:
        """Returns a line for each question, and the scores where answers are known."""
        scores: dict[str, float] = {"questions": len(split.examples)}
        if metrics := self.compute_metrics(split, answers):
            right = _answers(split)
            given = answers[right >= 0, right[right >= 0]]
            loss = -np.log(np.maximum(given, 1e-30)).mean()
            scores |= {"answered": len(given), "eval_loss": float(loss), **metrics}
        lines = (json.dumps(line) + "\n" for line in _lines(answers, split.examples))
        return {
            "predictions.jsonl": "".join(lines),
            "predict_results.txt": "".join(
                f"{key} = {scores[key]}\n" for key in sorted(scores)
            ),
        }

    def serving_fn(self, model, options: AnswerSettings) -> ServingFunction:
        return graph.multiple_choice(
            model,
            self.tokenizer,
            max_seq_length=options.max_seq_length or self.lengths.max_seq_length,
            max_qa_length=self.lengths.max_qa_length,
        )


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


def _read(settings: RaceSettings, part: str) -> list[Question]:
    file = FILES[part]
    if path := getattr(settings, file):
        return reading.read_file(path, settings.encoding)
    if settings.data_dir is None:
        flag = FLAGS[part]
        raise InputError(
            f"--{flag}: expected --data_dir or --{file} with it, or --no{flag}"
        )
    levels: tuple[str, ...] = LEVELS
    if settings.high_only or settings.middle_only:
        levels = ("high",) if settings.high_only else ("middle",)
    return reading.read_split(settings.data_dir, part, levels, settings.encoding)


def _answers(split: Split) -> np.ndarray:
    """Returns the right choice of each question, int32 [n]; -1 where it is unknown."""
    answers = (-1 if q.answer is None else q.answer for q in split.examples)
    return np.fromiter(answers, np.int32, len(split.examples))


def _lines(
    probabilities: np.ndarray, questions: Sequence[Question]
) -> Iterator[Mapping[str, Any]]:
    """Yields the objects of `predictions.jsonl`."""
    for question, row in zip(questions, probabilities, strict=True):
        choice = int(row.argmax())
        line = {
            "id": question.id,
            "choice": choice,
            "letter": LETTERS[choice],
            "probabilities": [float(value) for value in row[: len(question.options)]],
        }
        if question.answer is not None:
            line["answer"] = question.answer
        yield line
