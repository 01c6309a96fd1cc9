"""Pipelines for labels or numbers of texts and of pairs of texts."""

import math
from collections.abc import Sequence

import numpy as np

from albert_tf.errors import InputError
from albert_tf.tasks import custom, pipelines
from albert_tf.tasks.settings.classification import ClassificationSettings
from albert_tf.tasks.text_task import THRESHOLD


class TextPipeline(pipelines.FineTunedPipeline):
    """Base of both pipelines."""

    settings_class = ClassificationSettings
    outputs = ("logits",)

    def __init__(self, settings, config, tokenizer, options):
        super().__init__(settings, config, tokenizer, options)
        self.task = custom.from_settings(settings)
        self.fields = {"text": False, "text_b": None}  # if `task.json` does not say
        if settings.texts is not None:
            names = ("text_a", "text_b") if settings.texts == 2 else ("text",)
            self.fields = dict.fromkeys(names, False)

    def preprocess(self, row):
        return pipelines.Example(row, [self.join(*row.values())])


class ClassificationPipeline(TextPipeline):
    """One label per text, or several."""

    options = ("threshold", "top_k", "labels")

    def __init__(self, settings, config, tokenizer, options):
        super().__init__(settings, config, tokenizer, options)
        self.labels: tuple[str, ...] = self.task.labels or ()
        self.multi_label = self.task.kind == "multi_label"
        self.threshold, self.top_k = options.threshold, options.top_k
        check_threshold(self.labels, self.multi_label, self.threshold)

    def select(self, inputs, outputs):
        logits = outputs["logits"]
        pipelines.check_labels(self.labels, len(logits))
        if self.multi_label:
            return np.float32(1 / (1 + np.exp(-np.float64(logits))))
        return pipelines.softmax(logits)

    def score(self, example, outputs):
        [probabilities] = outputs
        return probabilities

    def decide(self, row, scores):
        each = dict(zip(self.labels, pipelines.round_floats(scores), strict=True))
        listed = each
        if self.top_k is not None:
            best = sorted(each, key=each.__getitem__, reverse=True)[: self.top_k]
            listed = {label: each[label] for label in best}
        if self.multi_label:
            least = THRESHOLD if self.threshold is None else self.threshold
            chosen = np.flatnonzero(scores >= least)
            labels = [self.labels[i] for i in chosen]
            return {"labels": labels, "probabilities": listed}
        choice = int(scores.argmax())
        if self.threshold is not None:
            choice = int(scores[1] >= self.threshold)
        label = self.labels[choice]
        return {"label": label, "probability": each[label], "probabilities": listed}


class RegressionPipeline(TextPipeline):
    """The number of a text."""

    def score(self, example, outputs):
        [value] = outputs[0]["logits"]
        return value

    def decide(self, row, scores):
        lowest, highest = self.task.bounds or (-math.inf, math.inf)
        return {"value": pipelines.round_floats(np.clip(scores, lowest, highest))}


def check_threshold(
    labels: Sequence[str], multi_label: bool, threshold: float | None
) -> None:
    """Checks that a threshold is a probability, and that the task has one."""
    if threshold is None:
        return
    if not 0 <= threshold <= 1:
        raise InputError(f"threshold {threshold}: must be in [0, 1]")
    if not multi_label and len(labels) != 2:
        raise InputError(
            f"threshold {threshold}: requires two labels, or several labels per text; "
            f"got {len(labels)} labels"
        )
