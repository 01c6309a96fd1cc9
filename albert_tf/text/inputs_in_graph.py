"""`inputs` as TensorFlow operations, for what is exported: the same ids, cut alike."""

from collections.abc import Sequence

import tensorflow as tf


def join(
    first: tf.RaggedTensor,
    second: tf.RaggedTensor | None,
    max_seq_length: int | tf.Tensor,
    cls_id: int,
    sep_id: int,
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Makes `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`, as `inputs.encode` does.

    Args:
        first: int32 [B, None], the pieces of each first text.
        second: int32 [B, None], those of the second; None where there is one text.
        max_seq_length: most tokens of an input.
        cls_id: id of [CLS].
        sep_id: id of [SEP].

    Returns:
        The ids, int32 [B, None], and the tokens of segment 0, int64 [B].
    """
    first_lengths = first.row_lengths()
    if second is None:
        second = tf.RaggedTensor.from_row_lengths(
            tf.zeros([0], tf.int32), tf.zeros_like(first_lengths), validate=False
        )
    second_lengths = second.row_lengths()
    is_pair = tf.cast(second_lengths > 0, tf.int64)
    room = tf.maximum(tf.cast(max_seq_length, tf.int64) - 2 - is_pair, 0)
    first_kept, second_kept = kept_lengths(first_lengths, second_lengths, room)
    one = tf.ones_like(is_pair)
    ids = assemble(
        [
            single(cls_id, one),
            (first.values, first.row_starts(), first_kept),
            single(sep_id, one),
            (second.values, second.row_starts(), second_kept),
            single(sep_id, is_pair),
        ]
    )
    return ids, first_kept + 2


Part = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


def single(id: int, count: tf.Tensor) -> Part:
    """Returns the part of `assemble` that is one id, where `count`, int64 [B], is 1."""
    return tf.constant([id]), tf.zeros_like(count), count


def assemble(parts: Sequence[Part]) -> tf.RaggedTensor:
    """Puts the parts of each row one after the other.

    `tf.concat` does this with many more operations, among them assertions.

    Args:
        parts: values, int32 [N]; and where in them each row's part begins and how long
            it is, int64 [B] each.

    Returns:
        int32 [B, None].
    """
    sizes = [tf.size(values, tf.int64) for values, _, _ in parts]
    offsets = tf.unstack(tf.cumsum(sizes, exclusive=True), len(parts))
    starts = [
        start + offset for (_, start, _), offset in zip(parts, offsets, strict=True)
    ]
    length = tf.stack([length for _, _, length in parts], axis=1)  # [B, parts]
    flat = tf.reshape(tf.stack(starts, axis=1), [-1])
    places = tf.ragged.range(flat, flat + tf.reshape(length, [-1])).values
    pool = tf.concat([values for values, _, _ in parts], axis=0)
    return tf.RaggedTensor.from_row_lengths(
        tf.gather(pool, places), tf.reduce_sum(length, axis=1), validate=False
    )


def kept_lengths(
    first: tf.Tensor, second: tf.Tensor, room: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Does what `inputs.kept_lengths` does, for int64 [B]."""
    half = room // 2
    shorter = tf.minimum(first, second)
    rest = room - shorter
    longer_first = second < first
    cut_first = tf.where(longer_first, rest, first)
    cut_second = tf.where(longer_first, second, rest)
    one_is_short = shorter <= half
    cut_first = tf.where(one_is_short, cut_first, room - half)
    cut_second = tf.where(one_is_short, cut_second, half)
    fits = first + second <= room
    return tf.where(fits, first, cut_first), tf.where(fits, second, cut_second)


def pad(
    ids: tf.RaggedTensor,
    first_lengths: tf.Tensor,
    pad_id: int,
    length: int | tf.Tensor | None = None,
) -> dict[str, tf.Tensor]:
    """Makes a batch, as `inputs.pad` does.

    Args:
        ids: int32 [B, None].
        first_lengths: int64 [B], tokens of segment 0.
        pad_id: the id after the end of an input.
        length: T; None takes that of the longest input.

    Returns:
        `input_ids`, `input_mask` and `segment_ids`, int32 [B, T] each.
    """
    padded = ids.to_tensor(
        pad_id, shape=None if length is None else tf.stack([-1, length])
    )
    length = tf.shape(padded)[1]
    mask = tf.sequence_mask(ids.row_lengths(), length, tf.int32)
    first = tf.sequence_mask(first_lengths, length, tf.int32)
    return {"input_ids": padded, "input_mask": mask, "segment_ids": mask - first}
