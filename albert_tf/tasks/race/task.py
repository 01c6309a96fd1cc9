"""Multiple choice: RACE and similar data sets, `run_race.py`."""

import dataclasses
import json
from typing import Any

import numpy as np
from keras import ops

from albert_tf.data import cores
from albert_tf.errors import InputError
from albert_tf.model import heads
from albert_tf.model.models import AlbertMultipleChoice
from albert_tf.tasks import base
from albert_tf.tasks.base import Arrays, Split, Splits
from albert_tf.tasks.race import features, graph, reading
from albert_tf.tasks.race.features import Features
from albert_tf.tasks.race.reading import LETTERS, LEVELS, Question
from albert_tf.tasks.settings.fine_tuning import FILES, FLAGS
from albert_tf.tasks.settings.race import RaceSettings


class MultipleChoice(base.FineTuningTask):
    """Selects the correct one of C choices, as for RACE in the paper.

    The metrics are `eval_accuracy` and `eval_loss`, as released. If questions have
    levels, the metrics include `middle_accuracy` and `high_accuracy`, too.
    """

    task_types = ("multiple_choice",)
    main_metrics = ("eval_accuracy",)

    def __init__(self, settings: Any, *args: Any, **kwargs: Any):
        super().__init__(settings, *args, **kwargs)
        self._choices = settings.choices or 0  # C
        self.tokens_per_example = self._choices * settings.max_seq_length

    @classmethod
    def read_examples(cls, settings, saved_settings, run_settings, log):
        splits: Splits = {
            part: [Split(part, _read(settings, part))]
            for part in run_settings.split_names
        }
        # Numbers of options of all questions; each part has one split.
        counts = [len(q.options) for [split] in splits.values() for q in split.examples]
        saved_choices = saved_settings and saved_settings.choices
        # A run that only exports reads no data and keeps the model's number of choices.
        choices = max(counts, default=saved_choices or 0)
        return dataclasses.replace(settings, choices=choices), splits

    def encode(self, split: Split) -> Arrays:
        questions, threads = split.examples, cores.available()
        return vars(features.encode(self.tokenizer, questions, self.settings, threads))

    def features(self, split: Split, arrays: Arrays) -> Features:
        return Features(**arrays)

    def summary(self, split: Split) -> list[str]:
        features, lines = split.features, super().summary(split)
        if num_cut := int((features.full_lengths > features.max_seq_length).sum()):
            lines.append(
                f"  {num_cut:,} questions with a truncated article "
                f"(--max_seq_length={features.max_seq_length})"
            )
        if features.choices_cut:
            lines.append(
                f"  {features.choices_cut:,} choices truncated at their beginning "
                f"(--max_qa_length={self.settings.max_qa_length})"
            )
        return lines

    def dataset(self, splits, *, with_labels):
        [split] = splits
        labels = _get_labels(split)
        if with_labels and (unlabeled := np.flatnonzero(labels < 0)).size:
            question = split.examples[unlabeled[0]]
            raise InputError(
                f"{question.location}: no answer; training and evaluation need one"
            )

        features = split.features

        def make_batch(rows, length):
            batch = features.make_batch(rows, self._choices, length, self.tokenizer)
            return {**batch, "labels": labels[rows]} if with_labels else batch

        return self.bucket(features.lengths, make_batch)

    def build_model(self):
        return AlbertMultipleChoice(self.config)

    def loss_sums(self, outputs: base.Outputs, batch: base.Batch) -> dict[str, Any]:
        """Returns the sum of the cross-entropies of the questions."""
        losses = heads.classification_loss(outputs["logits"], batch["labels"])
        return {"loss": ops.sum(losses * base.example_weights(batch))}

    def compute_metrics(self, split: Split, answers: np.ndarray) -> dict[str, float]:
        """Returns the accuracy of all labeled questions, and of each level.

        Args:
            split: the questions.
            answers: the probabilities of choices for the first n questions, float32
                [n, C]. If --max_eval_steps ends the evaluation early, the other
                questions have no predictions.
        """
        labels = _get_labels(split)[: len(answers)]
        levels = np.array([q.level for q in split.examples[: len(answers)]], str)
        is_correct = answers.argmax(axis=-1) == labels
        masks = {"eval_accuracy": labels >= 0}
        for level in LEVELS:
            masks[f"{level}_accuracy"] = (labels >= 0) & (levels == level)
        return {
            name: float(is_correct[mask].mean())
            for name, mask in masks.items()
            if mask.any()
        }

    def prediction_files(self, split: Split, answers: np.ndarray) -> dict[str, str]:
        """Returns the prediction files: contents by name.

        `predict_results.txt` has the number of questions; if some are labeled, it also
        has their number, the loss and the accuracies.

        Args:
            split: n questions.
            answers: the probabilities of choices, float32 [n, C].
        """
        scores: dict[str, float] = {"questions": len(split.examples)}
        if metrics := self.compute_metrics(split, answers):
            labels = _get_labels(split)
            # The probability of the correct choice of each labeled question.
            correct = answers[labels >= 0, labels[labels >= 0]]
            loss = -np.log(np.maximum(correct, 1e-30)).mean()  # never log(0)
            # `answered` is the number of questions with a label; its name in the file
            # is fixed.
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

    def serving_fn(self, model, threshold):
        return graph.multiple_choice(model, self.tokenizer, self.settings)


def _read(settings: RaceSettings, part: str) -> list[Question]:
    """Reads the questions of a part of the data: "train", "dev" or "test"."""
    file_flag = FILES[part]
    if path := getattr(settings, file_flag):
        return reading.read_file(path, settings.encoding)
    if settings.data_dir is None:
        flag = FLAGS[part]
        raise InputError(
            f"--{flag}: requires --data_dir or --{file_flag}; or use --no{flag}"
        )
    # Both levels are read, unless --middle_only or --high_only is given.
    levels = [level for level in LEVELS if getattr(settings, f"{level}_only")] or LEVELS
    return reading.read_split(settings.data_dir, part, levels, settings.encoding)


def _get_labels(split: Split) -> np.ndarray:
    """Returns the index of each question's correct choice, int32; -1 if unlabeled."""
    labels = (-1 if q.answer is None else q.answer for q in split.examples)
    return np.fromiter(labels, np.int32, len(split.examples))
