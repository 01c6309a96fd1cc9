"""Filling the gaps of a text."""

import tensorflow as tf

from albert_tf.errors import InputError
from albert_tf.model import models
from albert_tf.serve.graphs.signatures import (
    TEXTS,
    Service,
    TextInputs,
    check_kind,
)
from albert_tf.text import in_graph
from albert_tf.text.inputs import MASK
from albert_tf.text.tokenization import WORD_MARK, Tokenizer


def fill_mask(
    model: models.AlbertPretrainer,
    tokenizer: Tokenizer,
    *,
    max_seq_length: int,
    top_k: int = 5,
) -> Service:
    """Returns a model that fills gaps.

    Input: `text`, string [B], with [MASK] for each missing piece; for how it is cut see
    `inputs.encode_masked`. Outputs, for the M gaps of the text that has most: `pieces`,
    string [B, M, k], the likeliest first, as the vocabulary spells them; their
    `probabilities`, float32 [B, M, k]; and `beyond_length`, int32 [B], how many gaps
    stand beyond `max_seq_length` and are not answered. Where a text has fewer gaps,
    pieces are "" and probabilities 0.

    Args:
        model: with a masked LM head.
        tokenizer: the vocabulary.
        max_seq_length: most tokens of an input.
        top_k: k.

    Raises:
        InputError: the model, the length, k or the vocabulary do not fit.
    """
    check_kind(model, models.AlbertPretrainer)
    if not 1 <= top_k <= tokenizer.vocab_size:
        raise InputError(
            f"top_k {top_k}: expected 1 to {tokenizer.vocab_size}, the pieces of the "
            f"vocabulary"
        )
    inputs = TextInputs(model, tokenizer, max_seq_length)
    pieces = [tokenizer.id_to_piece(id) for id in range(tokenizer.vocab_size)]
    # A model may have more ids than its vocabulary.
    pieces += [""] * (model.config.vocab_size - len(pieces))
    names, mask = tf.constant(pieces), tokenizer.mask_id
    space = tokenizer.piece_to_id(WORD_MARK)
    space = -1 if space == tokenizer.unk_id else space

    def answer(text):
        tokens = inputs.of_pieces(_masked_pieces(text, inputs, mask, space))
        shape = tf.shape(tokens["input_ids"])
        places = tf.broadcast_to(tf.range(shape[1]), shape)
        gaps = tf.ragged.boolean_mask(places, tokens["input_ids"] == mask)
        positions = gaps.to_tensor()
        outputs = model({**tokens, "masked_lm_positions": positions})
        best, ids = tf.math.top_k(tf.nn.softmax(outputs["mlm_logits"]), top_k)
        beyond = _count_masks(text) - tf.cast(gaps.row_lengths(), tf.int32)
        there = tf.sequence_mask(gaps.row_lengths(), tf.shape(positions)[1])[..., None]
        return {
            "pieces": tf.where(there, tf.gather(names, ids), ""),
            "probabilities": tf.where(there, best, 0.0),
            "beyond_length": tf.maximum(beyond, 0),
        }

    return Service(model, inputs, answer, {"text": TEXTS})


def _count_masks(texts: tf.Tensor) -> tf.Tensor:
    """Counts the gaps of texts, string [B]: int32 [B]."""
    return tf.cast(tf.strings.split(texts, MASK).row_lengths() - 1, tf.int32)


def _masked_pieces(
    texts: tf.Tensor, inputs: TextInputs, mask: int, space: int
) -> tf.RaggedTensor:
    """Does what `inputs.encode_masked` does, for string [B]: int32 [B, None]."""
    parts = tf.strings.split(texts, MASK)
    flat, row = parts.values, parts.value_rowids()
    later = tf.pad(row[1:] == row[:-1], [[1, 0]])[: tf.size(row)]
    pieces = inputs.tokenize(flat)
    starts, lengths = pieces.row_starts(), pieces.row_lengths()
    padded = tf.concat([pieces.values, [-1]], axis=0)
    first = tf.where(lengths > 0, tf.gather(padded, starts), -1)
    extra = later & (first == space) & ~in_graph.begins_with_space(flat)
    left_out = tf.cast(extra & (lengths > 0), tf.int64)
    joined = in_graph.assemble(
        [
            in_graph.single(mask, tf.cast(later, tf.int64)),
            (pieces.values, starts + left_out, lengths - left_out),
        ]
    )
    splits = tf.gather(joined.row_splits, parts.row_splits)
    return tf.RaggedTensor.from_row_splits(joined.values, splits, validate=False)
