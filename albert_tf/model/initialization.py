"""A start for short runs: attention that looks at near positions and like tokens.

With the released initial weights attention is the same everywhere, and a masked LM is
blind for neighbours until it has learned from millions of tokens where they are.
"""

import math

import keras
import numpy as np

from albert_tf.model.models import AlbertEncoder

# Wavelengths of positions: from 2 pi to so many times as much.
_LONGEST = 1000.0
# Scores grow with its square: at 0.8 near positions get some times the average.
_SIMILARITY = 0.8


def attend_nearby(encoder: AlbertEncoder) -> None:
    """Replaces what decides where attention looks at first, and nothing else.

    - The table of positions: sines and cosines (Vaswani et al., 2017), as large as it
      was, so that near positions are alike.
    - The step from E to H: orthogonal, so that what is alike stays so.
    - The kernels of queries and keys: the same, so that what is alike has the highest
      score (mimetic initialization, Trockman & Kolter, 2023).

    The draws are Keras's: `keras.utils.set_random_seed` decides them.
    """
    config = encoder.config
    position = encoder.embeddings.position
    size = keras.ops.convert_to_numpy(position).std()
    position.assign(size * math.sqrt(2) * _waves(*position.shape))
    if encoder.projection is not None:
        gain = math.sqrt(config.hidden_size / config.embedding_size)
        kernel = encoder.projection.kernel
        kernel.assign(keras.initializers.Orthogonal(gain)(kernel.shape))
    deviation = _SIMILARITY / math.sqrt(config.hidden_size)
    attentions = {id(block.attention): block.attention for block in encoder.blocks}
    for attention in attentions.values():
        kernel = keras.random.normal(attention.query.kernel.shape, stddev=deviation)
        attention.query.kernel.assign(kernel)
        attention.key.kernel.assign(kernel)


def _waves(positions: int, size: int) -> np.ndarray:
    """Returns sines and cosines of positions, float [positions, size]."""
    count = -(-size // 2)
    speeds = _LONGEST ** -(np.arange(count) / count)
    angles = np.arange(positions)[:, None] * speeds
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)[:, :size]
