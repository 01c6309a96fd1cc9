"""Asks of records what comes next, instead of what is masked: --causal_lm.

A masked LM learns from the 15 % of the tokens that it predicts; a causal LM predicts
all of them. On short runs a masked LM that starts from its weights learns sooner
(docs/benchmarks/2026-11-26-causal-first.md).
"""

import tensorflow as tf

Batch = dict[str, tf.Tensor]


def ask(batch: Batch, seed: int, places: tf.Tensor) -> Batch:
    """Asks at every position for the token after it, inside `tf.data`.

    Args:
        batch: parsed records, masked already or not.
        seed: not used: nothing is drawn.
        places: not used.

    Returns:
        The batch with the original `input_ids`; `masked_lm_positions`, int32 [B, T - 1]
        from 0 on; `masked_lm_ids`, the tokens after these; `masked_lm_weights`, float32
        and 0 where those are padding.
    """
    ids, mask = batch["input_ids"], batch["input_mask"]
    if "masked_lm_ids" in batch:
        slots = tf.where(batch["masked_lm_weights"] > 0)
        columns = tf.gather_nd(batch["masked_lm_positions"], slots)
        places_of_masks = tf.stack([slots[:, 0], tf.cast(columns, tf.int64)], axis=1)
        originals = tf.gather_nd(batch["masked_lm_ids"], slots)
        ids = tf.tensor_scatter_nd_update(ids, places_of_masks, originals)
    after = ids[:, 1:]
    return {
        **batch,
        "input_ids": ids,
        "masked_lm_positions": tf.zeros_like(after) + tf.range(after.shape[1]),
        "masked_lm_ids": after,
        "masked_lm_weights": tf.cast(mask[:, 1:], tf.float32),
    }
