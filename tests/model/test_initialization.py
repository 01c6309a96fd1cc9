"""Attention that starts nearby."""

import keras
import numpy as np
import pytest
from keras import ops

from albert_tf import AlbertConfig
from albert_tf.model import initialization
from albert_tf.model.models import AlbertEncoder

SIZES = {
    "vocab_size": 23,
    "embedding_size": 32,
    "hidden_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 20,
    "max_position_embeddings": 40,
    "initializer_range": 0.05,
}


def numpy(x):
    return ops.convert_to_numpy(x)


def attention_at_first(encoder, positions=30):
    """The first layer's probabilities, [N, T, T], where all tokens are the same."""
    ids = np.full((1, positions), 7)
    hidden = encoder.embeddings(ids, np.zeros_like(ids))
    hidden = encoder.projection(hidden) if encoder.projection else hidden
    attention = encoder.blocks[0].attention
    query, key = (
        numpy(attention._split_heads(part(hidden)))[0]
        for part in (attention.query, attention.key)
    )
    scores = query @ key.transpose(0, 2, 1) / np.sqrt(query.shape[-1])
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    return scores / scores.sum(-1, keepdims=True)


@pytest.mark.parametrize(
    "changes", [{}, {"embedding_size": 48}], ids=["E < H", "E = H"]
)
@pytest.mark.parametrize("sharing", ["all", "ffn", "none"])
def test_attention_is_highest_nearby_in_every_head(changes, sharing):
    keras.utils.set_random_seed(3)
    config = AlbertConfig(**{**SIZES, **changes}, parameter_sharing=sharing)
    encoder = AlbertEncoder(config)
    size = numpy(encoder.embeddings.position).std()
    before = attention_at_first(encoder).mean((0, 1)).std()
    initialization.attend_nearby(encoder)
    assert numpy(encoder.embeddings.position).std() == pytest.approx(size, rel=0.2)
    after = attention_at_first(encoder)
    near = np.abs(np.subtract.outer(np.arange(30), np.arange(30)))
    for head in after:
        by_distance = [head[near == d].mean() for d in (0, 1, 2)]
        by_distance.append(head[near > 5].mean())
        assert by_distance == sorted(by_distance, reverse=True)
        assert by_distance[1] > 1.2 * by_distance[-1]
    assert before < 0.01
    kernels = {numpy(b.attention.query.kernel).tobytes() for b in encoder.blocks}
    assert len(kernels) == config.num_attentions


def test_the_seed_decides_the_draws():
    made = []
    for seed in (3, 3, 4):
        keras.utils.set_random_seed(seed)
        encoder = AlbertEncoder(AlbertConfig(**SIZES))
        initialization.attend_nearby(encoder)
        made.append([numpy(x) for x in encoder.trainable_variables])
    for a, b in zip(made[0], made[1], strict=True):
        np.testing.assert_array_equal(a, b)
    assert any((a != b).any() for a, b in zip(made[0], made[2], strict=True))
