"""Labels, numbers and embeddings of texts, or of pairs of texts, in a graph."""

import math
from collections.abc import Sequence

import keras
import tensorflow as tf

from albert_tf.errors import InputError
from albert_tf.model import models
from albert_tf.tasks.serving import (
    ServingFunction,
    TextInputs,
    text_specs,
)
from albert_tf.tasks.text_pipeline import check_threshold
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
) -> ServingFunction:
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
    if len(labels) != model.head.num_labels:
        raise InputError(
            f"{len(labels)} labels ({', '.join(labels)}); expected "
            f"{model.head.num_labels}, one for each output of the model"
        )
    check_threshold(labels, multi_label, threshold)
    inputs = TextInputs(model, tokenizer, max_seq_length)
    names = tf.constant(list(labels))

    def respond(**texts):
        logits = model(inputs(*texts.values()))["logits"]
        probabilities = tf.sigmoid(logits) if multi_label else tf.nn.softmax(logits)
        every = tf.broadcast_to(names, tf.shape(probabilities))
        outputs = {"probabilities": probabilities, "labels": every}
        if multi_label:
            least = THRESHOLD if threshold is None else threshold
            return {**outputs, "chosen": tf.cast(probabilities >= least, tf.int32)}
        choice = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
        if threshold is not None:
            choice = tf.cast(probabilities[:, 1] >= threshold, tf.int32)
        own = tf.gather(probabilities, choice, batch_dims=1)
        return {**outputs, "label": tf.gather(names, choice), "probability": own}

    return ServingFunction(model, inputs, respond, text_specs(pairs))


def regressor(
    model: models.AlbertClassifier,
    tokenizer: Tokenizer,
    *,
    max_seq_length: int,
    pairs: bool = False,
    bounds: tuple[float, float] | None = None,
) -> ServingFunction:
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
    if model.head.num_labels != 1:
        raise InputError(f"a model of {model.head.num_labels} outputs; expected 1")
    inputs = TextInputs(model, tokenizer, max_seq_length)

    def respond(**texts):
        logits = model(inputs(*texts.values()))["logits"]
        lowest, highest = bounds or (-math.inf, math.inf)
        return {"value": tf.clip_by_value(logits[:, 0], lowest, highest)}

    return ServingFunction(model, inputs, respond, text_specs(pairs))


def embeddings(
    model: keras.Model,
    tokenizer: Tokenizer,
    *,
    max_seq_length: int,
) -> ServingFunction:
    """Returns what embeds texts, by every layer.

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
    graph = TextInputs(encoder, tokenizer, max_seq_length)

    def respond(text):
        tokens = graph(text)
        outputs = encoder(tokens)
        layers = tf.stack(outputs["encoder_outputs"], axis=1)  # [B, L, T, H]
        layers = tf.cast(layers, tf.float32)
        weight = tf.cast(tokens["input_mask"], tf.float32)[:, None, :, None]
        mean = tf.reduce_sum(layers * weight, 2) / tf.reduce_sum(weight, 2)
        pooled = tf.cast(outputs["pooled_output"], tf.float32)
        return {"pooled": pooled, "mean": mean, "first": layers[:, :, 0]}

    return ServingFunction(encoder, graph, respond, text_specs(pairs=False))
