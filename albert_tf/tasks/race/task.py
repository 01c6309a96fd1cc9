"""Multiple choice: RACE and similar data sets, `run_race.py`."""

import dataclasses
import json
from typing import Any

import numpy as np
from keras import ops

from albert_tf.data import cache, cores
from albert_tf.errors import InputError
from albert_tf.model import heads
from albert_tf.model.models import AlbertMultipleChoice
from albert_tf.tasks import base
from albert_tf.tasks.base import Arrays, Split, Splits
from albert_tf.tasks.race import features, graph, reading
from albert_tf.tasks.race.features import Features
from albert_tf.tasks.race.reading import LETTERS, LEVELS, Question
from albert_tf.tasks.serving import ServingFunction
from albert_tf.tasks.settings.answer import AnswerSettings
from albert_tf.tasks.settings.fine_tuning import FILES, FLAGS
from albert_tf.tasks.settings.race import RaceSettings


class MultipleChoice(base.FineTuningTask):
    """Selects the correct one of C choices (paper, RACE).

    The metrics are `eval_accuracy` and `eval_loss`, as released; and `middle_accuracy`
    and `high_accuracy` for questions with levels.
    """

    task_types = ("multiple_choice",)
    settings_class = RaceSettings
    key_metric = "eval_accuracy"

    def __init__(self, settings: Any, *args: Any, **kwargs: Any):
        super().__init__(settings, *args, **kwargs)
        self._choices = settings.choices or 0
        self.tokens_per_example = self._choices * settings.max_seq_length

    @classmethod
    def read_examples(cls, settings, saved_settings, config, log):
        splits: Splits = {
            part: [Split(part, _read(settings, part))] for part in config.parts
        }
        counts = [len(q.options) for [split] in splits.values() for q in split.examples]
        saved_choices = saved_settings and saved_settings.choices
        choices = max(counts, default=saved_choices or 0)
        return dataclasses.replace(settings, choices=choices), splits

    def cache_key(self, split: Split) -> dict[str, Any]:
        texts = (text for q in split.examples for text in (q.article, *q.choices))
        return {
            "texts": cache.digest(texts),
            "choices": cache.digest(str(len(q.options)) for q in split.examples),
            "vocabulary": self.tokenizer.fingerprint,
            "max_qa_length": self.settings.max_qa_length,
        }

    def encode(self, split: Split) -> Arrays:
        arguments = self.tokenizer, split.examples, self.settings
        return vars(features.encode(*arguments, num_threads=cores.available()))

    def features(self, split: Split, arrays: Arrays) -> Features:
        return Features(**arrays)

    def summary(self, split: Split) -> list[str]:
        features, limit = split.features, self.settings.max_seq_length
        lengths = features.full_lengths
        used = np.minimum(lengths, limit)
        counts = sorted({len(question.options) for question in split.examples})
        choices = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        lines = [
            f"{split.name}: {len(features):,} questions with {choices} choices about "
            f"{len(features.article_bounds) - 1:,} articles, {used.mean():.1f} tokens "
            f"of a choice on average, {used.max()} at most"
        ]
        if cut := int((lengths > limit).sum()):
            lines.append(
                f"  {cut:,} questions with a truncated article "
                f"(--max_seq_length={limit})"
            )
        if features.choices_cut:
            lines.append(
                f"  {features.choices_cut:,} choices truncated at their beginning "
                f"(--max_qa_length={self.settings.max_qa_length})"
            )
        return lines

    def dataset(self, splits, *, with_labels):
        [split] = splits
        answers = _answers(split)
        if with_labels and (unknown := np.flatnonzero(answers < 0)).size:
            question = split.examples[unknown[0]]
            raise InputError(
                f"{question.location}: no answer; training and evaluation need one"
            )

        def make(rows, length):
            batch = split.features.batch(
                rows, self._choices, length, self.settings, self.tokenizer
            )
            return {**batch, "labels": answers[rows]} if with_labels else batch

        used = np.minimum(split.features.full_lengths, self.settings.max_seq_length)
        return self.bucket(used, make)

    def build_model(self):
        return AlbertMultipleChoice(self.config)

    def loss_sums(self, outputs: base.Outputs, batch: base.Batch) -> dict[str, Any]:
        """Returns the sum of the cross-entropies of the questions."""
        each = heads.classification_loss(outputs["logits"], batch["labels"])
        return {"loss": ops.sum(each * base.example_weights(batch))}

    def prediction_outputs(self, outputs, batch):
        """Returns the probabilities of the choices, [B, C]."""
        return {"probabilities": ops.softmax(outputs["logits"])}

    def postprocess(self, split: Split, predictions: base.Predictions) -> np.ndarray:
        """Returns the probabilities of the choices as one array, float32 [n, C]."""
        return np.array([row["probabilities"] for row in predictions])

    def compute_metrics(self, split: Split, answers: np.ndarray) -> dict[str, float]:
        """Returns the accuracy of all labeled questions, and of each level."""
        gold = _answers(split)[: len(answers)]
        levels = np.array([q.level for q in split.examples[: len(answers)]], str)
        right = answers.argmax(axis=-1) == gold
        parts = {"eval_accuracy": gold >= 0}
        for level in LEVELS:
            parts[f"{level}_accuracy"] = (gold >= 0) & (levels == level)
        return {
            name: float(right[part].mean())
            for name, part in parts.items()
            if part.any()
        }

    def write(self, split: Split, answers: np.ndarray) -> dict[str, str]:
        """Returns the predictions, and the scores if answers are known."""
        scores: dict[str, float] = {"questions": len(split.examples)}
        if metrics := self.compute_metrics(split, answers):
            gold = _answers(split)
            correct = answers[gold >= 0, gold[gold >= 0]]
            loss = -np.log(np.maximum(correct, 1e-30)).mean()
            scores |= {"answered": len(correct), "eval_loss": float(loss), **metrics}
        lines = []
        for question, row in zip(split.examples, answers, strict=True):
            choice = int(row.argmax())
            line = {
                "id": question.id,
                "choice": choice,
                "letter": LETTERS[choice],
                "probabilities": row[: len(question.options)].astype(float).tolist(),
            }
            if question.answer is not None:
                line["answer"] = question.answer
            lines.append(json.dumps(line) + "\n")
        return {
            "predictions.jsonl": "".join(lines),
            "predict_results.txt": "".join(
                f"{key} = {scores[key]}\n" for key in sorted(scores)
            ),
        }

    def serving_fn(self, model, options: AnswerSettings) -> ServingFunction:
        length = options.max_seq_length or self.settings.max_seq_length
        settings = dataclasses.replace(self.settings, max_seq_length=length)
        return graph.multiple_choice(model, self.tokenizer, settings)


def _read(settings: RaceSettings, part: str) -> list[Question]:
    file = FILES[part]
    if path := getattr(settings, file):
        return reading.read_file(path, settings.encoding)
    if settings.data_dir is None:
        flag = FLAGS[part]
        raise InputError(
            f"--{flag}: requires --data_dir or --{file}; or use --no{flag}"
        )
    only = [level for level in LEVELS if getattr(settings, f"{level}_only")]
    levels = only or LEVELS
    return reading.read_split(settings.data_dir, part, levels, settings.encoding)


def _answers(split: Split) -> np.ndarray:
    """Returns the correct choice of each question, int32 [n]; -1 if unknown."""
    answers = (-1 if q.answer is None else q.answer for q in split.examples)
    return np.fromiter(answers, np.int32, len(split.examples))
