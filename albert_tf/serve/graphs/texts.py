"""Models of one text or of a pair: classes, numbers, sentence order, embeddings."""

import math
from collections.abc import Sequence

import keras
import tensorflow as tf

from albert_tf.errors import InputError
from albert_tf.model import models
from albert_tf.serve.graphs.signatures import (
    TEXTS,
    Service,
    TextInputs,
    check_kind,
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
) -> Service:
    """Returns a classifier.

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

    def answer(**texts):
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

    return Service(model, inputs, answer, _texts(pairs))


def regressor(
    model: models.AlbertClassifier,
    tokenizer: Tokenizer,
    *,
    max_seq_length: int,
    pairs: bool = False,
    bounds: tuple[float, float] | None = None,
) -> Service:
    """Returns a regression.

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

    def answer(**texts):
        value = model(inputs(*texts.values()))["logits"][:, 0]
        return {"value": tf.clip_by_value(value, low, high)}

    return Service(model, inputs, answer, _texts(pairs))


def sentence_order(
    model: models.AlbertPretrainer,
    tokenizer: Tokenizer,
    *,
    max_seq_length: int,
) -> Service:
    """Returns the judgement of sentence order.

    Inputs: `text_a` and `text_b`, string [B]. Output: `in_order`, float32 [B], the
    probability that they stand in order (of a model trained so: that they belong
    together).

    Args:
        model: with a sentence head.
        tokenizer: the vocabulary.
        max_seq_length: most tokens of an input.

    Raises:
        InputError: the model, the length or the vocabulary do not fit.
    """
    check_kind(model, models.AlbertPretrainer)
    if model.sentence is None:
        raise InputError("a model without a sentence head; expected one with it")
    inputs = TextInputs(model, tokenizer, max_seq_length)

    def answer(text_a, text_b):
        # A graph leaves out the masked LM, which nobody reads.
        logits = model(inputs(text_a, text_b))["sop_logits"]
        return {"in_order": tf.nn.softmax(logits)[:, 0]}

    return Service(model, inputs, answer, _texts(pairs=True))


def embeddings(
    model: keras.Model, tokenizer: Tokenizer, *, max_seq_length: int
) -> Service:
    """Returns embeddings of texts, of every layer.

    Input: `text`, string [B]. Outputs: `pooled`, float32 [B, H]; `mean` and `first`,
    float32 [B, L, H], of the outputs of each layer the mean over the tokens of the
    text, [CLS] and [SEP] included, and the one of [CLS]: `mean[:, -1]` is of the last.

    Args:
        model: an `AlbertEncoder`, or a model with one, whose head is left out.
        tokenizer: the vocabulary.
        max_seq_length: most tokens of an input.

    Raises:
        InputError: the length or the vocabulary do not fit.
    """
    encoder = model if isinstance(model, models.AlbertEncoder) else model.encoder
    inputs = TextInputs(encoder, tokenizer, max_seq_length)

    def answer(text):
        tokens = inputs(text)
        outputs = encoder(tokens)
        layers = tf.stack(outputs["encoder_outputs"], axis=1)  # [B, L, T, H]
        layers = tf.cast(layers, tf.float32)
        weight = tf.cast(tokens["input_mask"], tf.float32)[:, None, :, None]
        mean = tf.reduce_sum(layers * weight, 2) / tf.reduce_sum(weight, 2)
        pooled = tf.cast(outputs["pooled_output"], tf.float32)
        return {"pooled": pooled, "mean": mean, "first": layers[:, :, 0]}

    return Service(encoder, inputs, answer, _texts(pairs=False))


def _texts(pairs: bool) -> dict[str, tf.TensorSpec]:
    return {"text_a": TEXTS, "text_b": TEXTS} if pairs else {"text": TEXTS}


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
