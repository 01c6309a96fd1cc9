"""Makes next tokens the targets of records, instead of what is masked: --causal_lm.

A masked LM learns from the 15 % of the tokens that it predicts; a causal LM predicts
all of them. On short runs a masked LM that starts from its weights learns sooner
(docs/benchmarks/2026-11-26-causal-first.md).
"""

import tensorflow as tf

from albert_tf.corpus import dynamic_masking


def set_targets(
    batch: dynamic_masking.Batch, seed: int, places: tf.Tensor
) -> dynamic_masking.Batch:
    """Has every position predict the token after it, inside `tf.data`.

    Args:
        batch: parsed records, masked already or not.
        seed: not used, as nothing is drawn: batches are prepared by this signature.
        places: not used.

    Returns:
        The batch with the original `input_ids`; `masked_lm_positions`, int32 [B, T - 1]
        from 0 on; `masked_lm_ids`, the tokens after these; `masked_lm_weights`, float32
        and 0 where those are padding.
    """

    def unmasked(*values):
        return dynamic_masking.unmasked(dict(zip(batch, values, strict=True)))

    ids = tf.numpy_function(unmasked, [*batch.values()], tf.int32)
    ids.set_shape(batch["input_ids"].shape)
    after = ids[:, 1:]
    return {
        **batch,
        "input_ids": ids,
        "masked_lm_positions": tf.zeros_like(after) + tf.range(after.shape[1]),
        "masked_lm_ids": after,
        "masked_lm_weights": tf.cast(batch["input_mask"][:, 1:], tf.float32),
    }
