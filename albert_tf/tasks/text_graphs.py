"""Serving functions for labels, numbers and embeddings of texts.

B is the number of texts or pairs in a batch, and T the number of tokens of the longest
one.
"""

import math
from collections.abc import Sequence

import keras
import tensorflow as tf

from albert_tf.errors import InputError
from albert_tf.model import models
from albert_tf.tasks.pipelines import check_labels
from albert_tf.tasks.serving import ServingFunction, TextInputs, check_class, text_specs
from albert_tf.tasks.text_pipeline import check_threshold
from albert_tf.tasks.text_task import DEFAULT_THRESHOLD
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
    """Returns a function that predicts labels of texts.

    Inputs: `text`, string [B]; for pairs `text_a` and `text_b`, string [B] each.
    Outputs, for K labels: `probabilities`, float32 [B, K], and `labels`, string [B, K].
    A task with one label per text also has `label`, string [B], and `probability`,
    float32 [B]. A task with several labels per text also has `chosen`, int32 [B, K]: 1
    for each predicted label, and 0 for others.

    Args:
        model: the model, which has an output for each label.
        tokenizer: the model's tokenizer.
        labels: the labels, in the order of the model's outputs.
        max_seq_length: maximum number of tokens of an input.
        pairs: whether the inputs are pairs of texts.
        multi_label: whether a text can have several labels (sigmoid, not softmax).
        threshold: with `multi_label`, the minimum probability of a predicted label, by
            default 0.5. Otherwise, the minimum probability at which the second of two
            labels is predicted; by default, the most likely label is predicted.

    Raises:
        InputError: the model, the labels, the length, the threshold or the vocabulary
            do not fit.
    """
    check_class(model, models.AlbertClassifier)
    check_labels(labels, model.head.num_labels)
    check_threshold(labels, multi_label, threshold)
    inputs = TextInputs(model, tokenizer, max_seq_length)
    label_names = tf.constant(list(labels))

    # `texts` has the keys of `text_specs`: one text, or the first and the second text.
    def answer(**texts):
        logits = model(inputs(*texts.values()))["logits"]
        probabilities = tf.sigmoid(logits) if multi_label else tf.nn.softmax(logits)
        names = tf.broadcast_to(label_names, tf.shape(probabilities))
        outputs = {"probabilities": probabilities, "labels": names}
        if multi_label:
            limit = DEFAULT_THRESHOLD if threshold is None else threshold
            return {**outputs, "chosen": tf.cast(probabilities >= limit, tf.int32)}
        choice = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
        if threshold is not None:
            choice = tf.cast(probabilities[:, 1] >= threshold, tf.int32)
        outputs["probability"] = tf.gather(probabilities, choice, batch_dims=1)
        return {**outputs, "label": tf.gather(label_names, choice)}

    return ServingFunction(model, inputs, answer, text_specs(pairs))


def regressor(
    model: models.AlbertClassifier,
    tokenizer: Tokenizer,
    *,
    max_seq_length: int,
    pairs: bool = False,
    bounds: tuple[float, float] | None = None,
) -> ServingFunction:
    """Returns a function that predicts a number for each text.

    Inputs: `text`, string [B]; for pairs `text_a` and `text_b`, string [B] each.
    Output: `value`, float32 [B].

    Args:
        model: a model with one output.
        tokenizer: the model's tokenizer.
        max_seq_length: maximum number of tokens of an input.
        pairs: whether the inputs are pairs of texts.
        bounds: lowest and highest value of the output; None for no bounds.

    Raises:
        InputError: the model, the length or the vocabulary do not fit.
    """
    check_class(model, models.AlbertClassifier)
    if model.head.num_labels != 1:
        raise InputError(f"a model of {model.head.num_labels} outputs; expected 1")
    inputs = TextInputs(model, tokenizer, max_seq_length)

    # `texts` has the keys of `text_specs`: one text, or the first and the second text.
    def answer(**texts):
        logits = model(inputs(*texts.values()))["logits"]
        low, high = bounds or (-math.inf, math.inf)
        return {"value": tf.clip_by_value(logits[:, 0], low, high)}

    return ServingFunction(model, inputs, answer, text_specs(pairs))


def embeddings(
    model: keras.Model, tokenizer: Tokenizer, *, max_seq_length: int
) -> ServingFunction:
    """Returns a function that computes embeddings of texts from all layers.

    Input: `text`, string [B]. Outputs, float32, for L layers of hidden size H:

    - `pooled` [B, H]: the pooled output of the encoder;
    - `mean` [B, L, H]: the mean of each layer's outputs over all tokens, with [CLS] and
      [SEP];
    - `first` [B, L, H]: each layer's output for [CLS].

    Args:
        model: an `AlbertEncoder`, or a model with the attribute `encoder`.
        tokenizer: the model's tokenizer.
        max_seq_length: maximum number of tokens of an input.

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

    return ServingFunction(encoder, inputs, answer, text_specs(pairs=False))
