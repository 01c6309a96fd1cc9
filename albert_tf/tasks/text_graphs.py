"""Classes and numbers of a text, or of a pair of texts, in a graph."""

import math
from collections.abc import Sequence

import tensorflow as tf

from albert_tf.errors import InputError
from albert_tf.model import models
from albert_tf.tasks.answer import (
    Answer,
    TextInputs,
    beginnings,
    check_kind,
    rounded,
    text_specs,
)
from albert_tf.tasks.text_task import THRESHOLD
from albert_tf.text.tokenization import Tokenizer


def classifier(
    model: models.AlbertClassifier,
    tokenizer: Tokenizer,
    *,
    labels: Sequence[str],
    max_seq_length: int,
    pairs: bool = False,
    multi_label: bool = False,
    threshold: float | None = None,
) -> Answer:
    """Returns what classifies texts.

    Inputs: `text`, string [B]; or `text_a` and `text_b`. Outputs: `probabilities`,
    float32 [B, K]; `labels`, string [B, K], whose they are; where each text has one
    label, `label`, string [B], and `probability`, float32 [B]; where it may have any
    number, `chosen`, int32 [B, K], 1 for those it has.

    Args:
        model: with an output for each label.
        tokenizer: the vocabulary.
        labels: in the order of the model's outputs.
        max_seq_length: most tokens of an input.
        pairs: whether a text has a second one.
        multi_label: whether labels are independent (sigmoid, not softmax).
        threshold: probability from which on a label is chosen, or the second of two
            labels; None takes the likeliest label, and 0.5 with `multi_label`.

    Raises:
        InputError: the labels, the length, the threshold or the vocabulary do not fit.
    """
    _check_labels(model, labels, multi_label, threshold)
    inputs = TextInputs(model, tokenizer, max_seq_length)
    least = THRESHOLD if threshold is None else threshold
    names = tf.constant(list(labels))

    def respond(**texts):
        logits = model(inputs(*texts.values()))["logits"]
        probabilities = tf.sigmoid(logits) if multi_label else tf.nn.softmax(logits)
        every = tf.broadcast_to(names, tf.shape(probabilities))
        outputs = {"probabilities": probabilities, "labels": every}
        if multi_label:
            return {**outputs, "chosen": tf.cast(probabilities >= least, tf.int32)}
        best = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
        if threshold is not None:
            best = tf.cast(probabilities[:, 1] >= least, tf.int32)
        probability = tf.gather(probabilities, best, batch_dims=1)
        return {**outputs, "label": tf.gather(names, best), "probability": probability}

    def describe(outputs):
        each = dict(zip(labels, rounded(outputs["probabilities"]), strict=True))
        if multi_label:
            has = zip(labels, outputs["chosen"], strict=True)
            return {"labels": [k for k, c in has if c], "probabilities": each}
        return {
            "label": outputs["label"].decode(),
            "probability": rounded(outputs["probability"]),
            "probabilities": each,
        }

    specs = text_specs(pairs)
    shorten = beginnings(tokenizer, max_seq_length, *specs)
    return Answer(model, inputs, respond, specs, describe, shorten=shorten)


def regressor(
    model: models.AlbertClassifier,
    tokenizer: Tokenizer,
    *,
    max_seq_length: int,
    pairs: bool = False,
    bounds: tuple[float, float] | None = None,
) -> Answer:
    """Returns what gives texts a number.

    Inputs: `text`, string [B]; or `text_a` and `text_b`. Output: `value`, float32 [B].

    Args:
        model: with one output.
        tokenizer: the vocabulary.
        max_seq_length: most tokens of an input.
        pairs: whether a text has a second one.
        bounds: least and greatest value to answer.

    Raises:
        InputError: the model, the length or the vocabulary do not fit.
    """
    check_kind(model, models.AlbertClassifier)
    if model.head.num_labels != 1:
        raise InputError(f"a model of {model.head.num_labels} outputs; expected 1")
    inputs = TextInputs(model, tokenizer, max_seq_length)
    low, high = bounds or (-math.inf, math.inf)

    def respond(**texts):
        value = model(inputs(*texts.values()))["logits"][:, 0]
        return {"value": tf.clip_by_value(value, low, high)}

    def describe(outputs):
        return {"value": rounded(outputs["value"])}

    specs = text_specs(pairs)
    shorten = beginnings(tokenizer, max_seq_length, *specs)
    return Answer(model, inputs, respond, specs, describe, shorten=shorten)


def _check_labels(model, labels, multi_label: bool, threshold: float | None) -> None:
    check_kind(model, models.AlbertClassifier)
    if len(labels) != model.head.num_labels:
        raise InputError(
            f"{len(labels)} labels ({', '.join(labels)}); expected "
            f"{model.head.num_labels}, one for each output of the model"
        )
    if threshold is None:
        return
    if not 0 <= threshold <= 1:
        raise InputError(f"threshold {threshold}: expected a probability in [0, 1]")
    if not multi_label and len(labels) != 2:
        raise InputError(
            f"threshold {threshold} with {len(labels)} labels of which a text has one; "
            f"expected 2 labels"
        )
