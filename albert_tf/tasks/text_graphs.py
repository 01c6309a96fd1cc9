"""Classes and numbers of a text, or of a pair of texts, in a graph."""

from collections.abc import Sequence

import tensorflow as tf
from keras import ops

from albert_tf.errors import InputError
from albert_tf.model import models
from albert_tf.tasks import row_answers
from albert_tf.tasks.answer import (
    Answer,
    TextInputs,
    check_kind,
    text_specs,
)
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
    names = tf.constant(list(labels))

    def respond(**texts):
        logits = model(inputs(*texts.values()))["logits"]
        outputs = row_answers.labelled(ops, logits, multi_label, threshold)
        every = tf.broadcast_to(names, tf.shape(outputs["probabilities"]))
        if not multi_label:
            outputs["label"] = tf.gather(names, outputs.pop("choice"))
        return {**outputs, "labels": every}

    describe = row_answers.describe_labels(labels)
    return Answer(model, inputs, respond, text_specs(pairs), describe)


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

    def respond(**texts):
        logits = model(inputs(*texts.values()))["logits"]
        return {"value": row_answers.bounded(ops, logits, bounds)}

    describe = row_answers.describe_value
    return Answer(model, inputs, respond, text_specs(pairs), describe)


def _check_labels(model, labels, multi_label: bool, threshold: float | None) -> None:
    check_kind(model, models.AlbertClassifier)
    if len(labels) != model.head.num_labels:
        raise InputError(
            f"{len(labels)} labels ({', '.join(labels)}); expected "
            f"{model.head.num_labels}, one for each output of the model"
        )
    row_answers.check_threshold(labels, multi_label, threshold)
