"""Pipelines that predict labels or numbers for texts or pairs of texts."""

from collections.abc import Sequence

import numpy as np

from albert_tf.errors import InputError
from albert_tf.tasks import custom, pipelines
from albert_tf.tasks.settings.classification import ClassificationSettings
from albert_tf.tasks.text_task import DEFAULT_THRESHOLD


class TextPipeline(pipelines.FineTunedPipeline):
    """Base of the pipelines that predict labels or a number for a text or a pair."""

    settings_class = ClassificationSettings
    output_names = ("logits",)

    def __init__(self, settings, config, tokenizer, options):
        super().__init__(settings, config, tokenizer, options)
        self.task = custom.from_settings(settings)
        # The key `texts` in `task.json` is the number of texts per row. Without this
        # key, each row may have one text or two. The first text of a pair is `text_a`
        # if all rows are pairs, otherwise `text`.
        self.fields = {"text": pipelines.ONE_TEXT, "text_b": pipelines.OPTIONAL_TEXT}
        if settings.texts is not None:
            names = ("text_a", "text_b") if settings.texts == 2 else ("text",)
            self.fields = dict.fromkeys(names, pipelines.ONE_TEXT)

    def preprocess(self, row):
        # The values are in the order of `fields`: a text, or a first and a second text.
        return pipelines.Example(row, [self.join(*row.values())])


class ClassificationPipeline(TextPipeline):
    """Predicts one label, or several labels, for a text or a pair of texts."""

    option_names = ("threshold", "top_k", "labels")

    def __init__(self, settings, config, tokenizer, options):
        super().__init__(settings, config, tokenizer, options)
        self.labels: tuple[str, ...] = self.task.labels or ()
        self.multi_label = self.task.kind == "multi_label"
        self.threshold, self.top_k = options.threshold, options.top_k
        check_threshold(self.labels, self.multi_label, self.threshold)

    def score(self, example, outputs):
        logits = outputs[0]["logits"]
        pipelines.check_labels(self.labels, len(logits))
        if self.multi_label:
            return np.float32(1 / (1 + np.exp(-np.float64(logits))))
        return pipelines.softmax(logits)

    def decide(self, row, scores):
        floats = pipelines.round_floats(scores)
        probabilities = dict(zip(self.labels, floats, strict=True))
        # The probabilities that the answer shows; by default all, in the labels' order.
        top = probabilities
        if self.top_k is not None:
            best = sorted(top, key=top.__getitem__, reverse=True)[: self.top_k]
            top = {label: probabilities[label] for label in best}
        if self.multi_label:
            threshold = DEFAULT_THRESHOLD if self.threshold is None else self.threshold
            labels = [self.labels[i] for i in np.flatnonzero(scores >= threshold)]
            return {"labels": labels, "probabilities": top}
        choice = int(scores.argmax())
        # A threshold requires two labels, see `check_threshold`. It is the minimum
        # probability at which the second label is predicted.
        if self.threshold is not None:
            choice = int(scores[1] >= self.threshold)
        label = self.labels[choice]
        probability = probabilities[label]
        return {"label": label, "probability": probability, "probabilities": top}


class RegressionPipeline(TextPipeline):
    """Predicts a number for a text or a pair of texts."""

    def score(self, example, outputs):
        return outputs[0]["logits"]

    def decide(self, row, scores):
        values = self.task.decode(scores[None])  # a batch with one example
        return {"value": pipelines.round_floats(values[0])}


def check_threshold(
    labels: Sequence[str],
    multi_label: bool,
    threshold: float | None,
    name: str = "threshold ",
) -> None:
    """Checks that a threshold is a probability and fits the labels.

    Args:
        labels: the labels of the task.
        multi_label: whether a text can have several labels.
        threshold: the threshold, or None.
        name: the text directly before the threshold in an error message, such as
            "--threshold_to_export=".

    Raises:
        InputError: the threshold does not fit.
    """
    if threshold is None:
        return
    if not 0 <= threshold <= 1:
        raise InputError(f"{name}{threshold}: must be in [0, 1]")
    if not multi_label and len(labels) != 2:
        raise InputError(
            f"{name}{threshold}: requires two labels, or several labels per text; got "
            f"{len(labels)} labels"
        )
