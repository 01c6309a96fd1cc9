"""The layers of ALBERT's encoder (paper 3.1), written with `keras.ops` alone.

Letters of every shape in this package:

    B batch           T tokens of an input     P masked positions of an input
    C choices         K labels                 S start candidates of a span
    V vocabulary      E embedding size         H hidden size
    L layers          N attention heads        D = H / N

Matrix products run in the compute dtype of the layer's policy; softmax and layer
normalisation always run in float32.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import keras
from keras import ops

from albert_tf.model.config import AlbertConfig

# Released code: tf.contrib.layers.layer_norm.
NORM_EPSILON = 1e-12

# Released code: added to the score of a masked position, so that it takes no part in
# the softmax.
MASKED_SCORE = -10000.0


# sqrt(2 / pi), of the tanh form of GELU.
_GELU_SCALE = 0.7978845608028654
_GELU_CUBIC = 0.044715


def own_gradient(on_torch: Callable | None = None) -> Callable:
    """Decorates a function that returns its value and the gradient's function.

    TensorFlow registers a custom gradient for the life of the process, with the graph
    that it was called in and all that this graph uses. So in a graph the function is
    called as a `tf.function`: its own graph is registered, once for each signature, and
    uses no variables. The function may use nothing but its arguments, tensors.

    On PyTorch the chain rule serves: what a gradient of our own holds, PyTorch's
    recomputation would keep, and a result that it holds is freed late.

    Args:
        on_torch: takes its place on PyTorch, where there is something faster; None:
            the function itself, without its gradient.
    """

    def decorate(function):
        if keras.backend.backend() == "torch":
            return on_torch or (lambda *args: function(*args)[0])
        eager = ops.custom_gradient(function)
        if keras.backend.backend() != "tensorflow":
            return eager
        import tensorflow as tf

        in_graph = tf.function(eager, autograph=False)

        @functools.wraps(function)
        def call(*args):
            return (eager if tf.executing_eagerly() else in_graph)(*args)

        return call

    return decorate


# What `fusing` gives to its thread.
_fuse = contextvars.ContextVar[Callable]("_fuse", default=lambda function: function)


@contextlib.contextmanager
def fusing(fuse: Callable):
    """Within this context, `gelu` is computed by what `fuse` makes of its operations.

    A graph of TensorFlow reads and writes the whole tensor for each operation, a dozen
    times for GELU: in bfloat16 on a CPU that takes longer than the product before it.

    Args:
        fuse: takes a function of tensors, and returns one of the same values, perhaps
            rounded otherwise. It needs no gradient.
    """
    token = _fuse.set(fuse)
    try:
        yield
    finally:
        _fuse.reset(token)


def gelu(x):
    """Gaussian error linear unit in its tanh form, as released.

    `x * 0.5 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))` (Hendrycks & Gimpel 2016).
    The slope is computed on the way forward: the backward pass then keeps one tensor
    of x's size instead of six, and is one product.
    """
    if keras.backend.backend() == "torch":
        return ops.gelu(x, approximate=True)
    return _with_slope(x, *_fuse.get()(_gelu)(ops.stop_gradient(x)))


@own_gradient()
def _with_slope(x, y, slope):
    """Returns y, whose gradient by x is the slope."""
    return y, lambda upstream: (upstream * slope, None, None)


def _gelu(x):
    """Returns the value and the slope of GELU."""
    inner = _GELU_SCALE + (_GELU_SCALE * _GELU_CUBIC) * ops.square(x)
    gate = 0.5 + 0.5 * ops.tanh(x * inner)
    y = x * gate
    return y, gate + y * (1.0 - gate) * (6.0 * inner - 4.0 * _GELU_SCALE)


@own_gradient()
def attend(query, key, value, mask_scores, *kept):
    """Mixes values by the softmax of the products of queries and keys.

    The chain rule sums, for each query, the probabilities times their gradients. That
    sum is also the product of the result and its gradient (Dao et al. 2022, appendix
    B.2), which are T / D times smaller. So of the tensors [B, N, Q, T] the backward
    pass reads the probabilities alone, and what dropout makes of them.

    Args:
        query: float [B, N, Q, D] of Q positions that ask, scaled.
        key: float [B, N, T, D].
        value: float [B, N, T, D].
        mask_scores: float32 [B, 1, 1, T], added to the products; gets no
            gradient.
        *kept: with dropout one tensor, float [B, N, Q, T], that the probabilities are
            multiplied by; gets no gradient.

    Returns:
        float [B, Q, N, D], as what follows reads it: kept once, for that and for the
        backward pass. The softmax runs in float32.
    """
    scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
    scores = ops.cast(scores, "float32") + mask_scores
    probabilities = ops.cast(ops.softmax(scores), query.dtype)
    shares = probabilities * kept[0] if kept else probabilities
    mixed = ops.transpose(ops.matmul(shares, value), (0, 2, 1, 3))

    def gradient(upstream):
        product = ops.cast(upstream, "float32") * ops.cast(mixed, "float32")
        mean = ops.sum(product, -1, keepdims=True)
        upstream, mean = (ops.transpose(x, (0, 2, 1, 3)) for x in (upstream, mean))
        of_value = ops.matmul(ops.transpose(shares, (0, 1, 3, 2)), upstream)
        of_shares = ops.matmul(upstream, ops.transpose(value, (0, 1, 3, 2)))
        if kept:  # read here, the factors themselves would have to be kept
            of_scores = shares * of_shares - probabilities * ops.cast(mean, query.dtype)
        else:
            difference = ops.cast(of_shares, "float32") - mean
            of_scores = probabilities * ops.cast(difference, query.dtype)
        of_query = ops.matmul(of_scores, key)
        of_key = ops.matmul(ops.transpose(of_scores, (0, 1, 3, 2)), query)
        return of_query, of_key, of_value, None, *[None for _ in kept]

    return mixed, gradient


def attend_fused(query, key, value, mask_scores):
    """Does what `attend` does, without dropout, by Keras's attention.

    On JAX and a GPU, in 16 bits, that is cuDNN's (Dao et al. 2022): no probabilities
    are written to memory. It wants even numbers of positions.
    """
    query, key, value = (ops.transpose(x, (0, 2, 1, 3)) for x in (query, key, value))
    positions = query.shape[1], key.shape[1]
    bias = ops.broadcast_to(mask_scores, (ops.shape(query)[0], 1, *positions))
    return ops.dot_product_attention(query, key, value, bias=bias, scale=1.0)


@own_gradient()
def lookup(table, ids):
    """Picks rows of a table, with a gradient that is dense.

    TensorFlow's own gradient of a lookup lists a row as often as it was picked, and
    the norm of that list is not the norm of the gradient. **As released:** clipping
    used the norm of the list on CPU and GPU, the true norm on TPU; here it is the true
    one everywhere.

    Args:
        table: float [V, E].
        ids: int [B, T], each in [0, V).

    Returns:
        float [B, T, E].
    """

    def gradient(upstream):
        rows = ops.reshape(upstream, (-1, table.shape[1]))
        flat = ops.reshape(ids, (-1,))
        return ops.segment_sum(rows, flat, num_segments=table.shape[0]), None

    return ops.take(table, ids, axis=0), gradient


ACTIVATIONS = {
    "gelu": gelu,
    "gelu_erf": lambda x: ops.gelu(x, approximate=False),
    "relu": ops.relu,
    "tanh": ops.tanh,
    "linear": lambda x: x,
    None: lambda x: x,
}


# The kernels that `cast_once` gives to its thread, by the id of their layer.
_kernels = contextvars.ContextVar[Mapping]("_kernels", default=MappingProxyType({}))


class Dense(keras.layers.Dense):
    """Keras's dense layer, to which `cast_once` gives another kernel for a while."""

    @property
    def kernel(self):
        """The float32 variable, or what `cast_once` gives."""
        return _kernels.get().get(id(self), super().kernel)


@contextlib.contextmanager
def cast_once(layers: Iterable[Dense]):
    """Within this context, each layer multiplies with one cast of its kernel.

    A shared block is applied L times in one pass. In mixed precision each of them would
    read the same float32 kernel to cast it, and add up float32 gradients. In float32
    nothing changes.
    """
    given = {
        id(layer): ops.cast(layer.kernel, layer.compute_dtype)
        for layer in layers
        if layer.compute_dtype != layer.variable_dtype
    }
    token = _kernels.set({**_kernels.get(), **given})
    try:
        yield
    finally:
        _kernels.reset(token)


def dense(
    config: AlbertConfig,
    units: int,
    name: str,
    *,
    stddev: float | None = None,
    **options,
) -> Dense:
    """Returns a dense layer that starts as released: cut normal kernel, zero bias."""
    start = initializer(stddev or config.initializer_range)
    return Dense(units, kernel_initializer=start, name=name, **options)


def initializer(stddev: float) -> keras.initializers.Initializer:
    """Returns the released initial distribution: normal, cut at two deviations."""
    return keras.initializers.TruncatedNormal(stddev=stddev)


@own_gradient(
    on_torch=lambda *args: ops.layer_normalization(*args, epsilon=NORM_EPSILON)
)
def normalise(x, gamma, beta):
    """Normalises the last axis to mean 0 and variance 1, then scales and shifts it.

    With its gradient written out, both ways take 0.7 of the time that Keras's form and
    the chain rule take in TensorFlow on a CPU.

    Args:
        x: float32 [..., H].
        gamma: float32 [H], the scale.
        beta: float32 [H], the shift.

    Returns:
        float32 [..., H].
    """
    centred = x - ops.mean(x, -1, keepdims=True)
    variance = ops.mean(ops.square(centred), -1, keepdims=True)
    inverse = ops.rsqrt(variance + NORM_EPSILON)
    normed = centred * inverse

    def gradient(upstream):
        of_normed = upstream * gamma
        both = of_normed * normed
        of_x = of_normed - ops.mean(of_normed, -1, keepdims=True)
        of_x -= normed * ops.mean(both, -1, keepdims=True)
        rows = tuple(range(len(x.shape) - 1))
        of_gamma = ops.sum(upstream * normed, rows)
        return of_x * inverse, of_gamma, ops.sum(upstream, rows)

    return normed * gamma + beta, gradient


class LayerNormalization(keras.layers.LayerNormalization):
    """Keras's layer normalisation in float32, computed by `normalise`."""

    def __init__(self, name: str):
        super().__init__(epsilon=NORM_EPSILON, dtype="float32", name=name)

    def call(self, inputs):
        """Takes float [..., H] of any dtype; returns float32 [..., H]."""
        inputs = ops.cast(inputs, "float32")
        # As tensors: a gradient of our own is no variable's.
        return normalise(inputs, ops.copy(self.gamma), ops.copy(self.beta))


class DropoutSeeds:
    """Hands every dropout of one forward pass its own seed.

    The seeds are fixed before the pass, so that a block which is computed a second
    time in the backward pass (`recompute`) drops the same values again.
    """

    def __init__(self, generator: keras.random.SeedGenerator):
        self._base = generator.next()
        self._drawn = 0

    def next(self):
        """Returns a seed, int [2], that no other call of this pass returns."""
        # Keras on PyTorch takes the sum of both parts, and the generator counts passes
        # in the second: steps of 1 would give every pass the seeds of the one before.
        self._drawn += 1 << 20
        return self._base + ops.convert_to_tensor([self._drawn, 0], self._base.dtype)


class _FixedSeed(keras.random.SeedGenerator):
    """A seed that `keras.random` takes as it is: it holds no variable."""

    def __init__(self, value):
        self.value = value
        # Keras on PyTorch reads this: with None it would draw from the global state.
        self._initial_seed = 0

    def next(self, ordered=True):
        return self.value


def dropout(x, rate: float, seed):
    """Sets a share of `x` to zero and scales the rest up.

    Args:
        x: float tensor.
        rate: share set to zero, in [0, 1).
        seed: int [2] from `DropoutSeeds`, or None to leave x as it is (inference).
    """
    if seed is None or not rate:
        return x
    return keras.random.dropout(x, rate, seed=_FixedSeed(seed))


class ConfiguredLayer(keras.layers.Layer):
    """A layer of a configured model.

    It casts nothing by itself: its dense layers cast what they multiply, and what has
    to stay in float32 (scores of the mask, tables) stays.
    """

    # Arguments of the constructor beside the configuration, which are attributes too.
    options: tuple[str, ...] = ()

    def __init__(self, config: AlbertConfig, **kwargs):
        super().__init__(autocast=False, **kwargs)
        self.config = config


class Embeddings(ConfiguredLayer):
    """Word, segment and position embeddings of width E, normalised.

    The factorised embedding of paper 3.1: the step from E to H is `AlbertEncoder`'s.
    """

    def __init__(self, config: AlbertConfig, **kwargs):
        super().__init__(config, **kwargs)
        self.norm = LayerNormalization("norm")

    def build(self, input_shape=None):
        def table(name, rows):
            return self.add_weight(
                shape=(rows, self.config.embedding_size),
                initializer=initializer(self.config.initializer_range),
                autocast=False,
                name=name,
            )

        self.word = table("word", self.config.vocab_size)
        self.segment = table("segment", self.config.type_vocab_size)
        self.position = table("position", self.config.max_position_embeddings)
        self.norm.build((None, None, self.config.embedding_size))

    def call(self, input_ids, segment_ids, seed=None):
        """Embeds tokens.

        Args:
            input_ids: int [B, T], each in [0, V); T at most the longest position.
            segment_ids: int [B, T], each below `type_vocab_size`.
            seed: int [2] for dropout, or None for inference.

        Returns:
            float [B, T, E], after normalisation and dropout.
        """
        summed = lookup(ops.copy(self.word), input_ids)
        summed += lookup(ops.copy(self.segment), segment_ids)
        summed += self.position[: ops.shape(input_ids)[1]]
        normed = ops.cast(self.norm(summed), self.compute_dtype)
        return dropout(normed, self.config.hidden_dropout_prob, seed)


class Attention(ConfiguredLayer):
    """Multi-head self-attention with its residual sum and normalisation."""

    def __init__(self, config: AlbertConfig, **kwargs):
        super().__init__(config, **kwargs)
        size = config.hidden_size
        self.query = dense(config, size, "query", dtype=self.dtype_policy)
        self.key = dense(config, size, "key", dtype=self.dtype_policy)
        self.value = dense(config, size, "value", dtype=self.dtype_policy)
        self.output_dense = dense(config, size, "output", dtype=self.dtype_policy)
        self.norm = LayerNormalization("norm")

    def build(self, input_shape=None):
        shape = (None, None, self.config.hidden_size)
        for part in (self.query, self.key, self.value, self.output_dense, self.norm):
            part.build(shape)

    def call(self, hidden, mask_scores, seeds=(None, None), pick=None):
        """Mixes every position with the positions it attends to.

        Args:
            hidden: float [B, T, H].
            mask_scores: float32 [B, 1, 1, T], 0 where a position is real and
                `MASKED_SCORE` where it is padding.
            seeds: two dropout seeds, for the probabilities and for the output.
            pick: takes float [B, T, H] and returns the Q positions wanted of it,
                [B, Q, H]; None for all.

        Returns:
            float [B, T, H]; [B, Q, H] with `pick`.
        """
        scale = self.config.head_size**-0.5
        asking = hidden if pick is None else pick(hidden)
        query = self._split_heads(self.query(asking)) * scale
        key = self._split_heads(self.key(hidden))
        value = self._split_heads(self.value(hidden))
        kept = self._kept(query, key, seeds[0])
        if not kept and self._can_fuse(query.shape[2], key.shape[2]):
            mixed = attend_fused(query, key, value, mask_scores)
        else:
            mixed = attend(query, key, value, mask_scores, *kept)
        mixed = ops.reshape(mixed, ops.shape(asking))
        output = dropout(
            self.output_dense(mixed), self.config.hidden_dropout_prob, seeds[1]
        )
        return ops.cast(self.norm(asking + output), self.compute_dtype)

    def _can_fuse(self, *lengths):
        """Whether `attend_fused` may do better than `attend`."""
        if keras.backend.backend() != "jax" or self.compute_dtype == "float32":
            return False
        return all(length % 2 == 0 for length in lengths)

    def _kept(self, query, key, seed):
        """Returns the factors of dropout for `attend`: one tensor, or none."""
        rate = self.config.attention_probs_dropout_prob
        if seed is None or not rate:
            return []
        shape = (*ops.shape(query)[:3], ops.shape(key)[2])
        return [dropout(ops.ones(shape, self.compute_dtype), rate, seed)]

    def _split_heads(self, x):
        """Turns float [B, T, H] into [B, N, T, D]."""
        batch, length, _ = ops.shape(x)
        heads = (batch, length, self.config.num_attention_heads, self.config.head_size)
        return ops.transpose(ops.reshape(x, heads), (0, 2, 1, 3))


class FeedForward(ConfiguredLayer):
    """Two dense layers with an activation between, residual sum, normalisation."""

    def __init__(self, config: AlbertConfig, **kwargs):
        super().__init__(config, **kwargs)
        self.intermediate = dense(
            config, config.intermediate_size, "intermediate", dtype=self.dtype_policy
        )
        self.output_dense = dense(
            config, config.hidden_size, "output", dtype=self.dtype_policy
        )
        self.norm = LayerNormalization("norm")
        self.activation = ACTIVATIONS[config.hidden_act]

    def build(self, input_shape=None):
        shape = (None, None, self.config.hidden_size)
        self.intermediate.build(shape)
        self.output_dense.build((None, None, self.config.intermediate_size))
        self.norm.build(shape)

    def call(self, hidden, seed=None):
        """Transforms every position by itself.

        Args:
            hidden: float [B, T, H].
            seed: dropout seed of the output, or None for inference.

        Returns:
            float [B, T, H].
        """
        output = self.output_dense(self.activation(self.intermediate(hidden)))
        output = dropout(output, self.config.hidden_dropout_prob, seed)
        return ops.cast(self.norm(hidden + output), self.compute_dtype)


class Block(ConfiguredLayer):
    """One Transformer block: attention, then feed-forward.

    Args:
        config: the model's configuration.
        attention: an `Attention` that other blocks may hold too, or None for an own
            one. Holding one in several blocks is how its parameters are shared.
        feed_forward: likewise.
    """

    def __init__(
        self,
        config: AlbertConfig,
        attention: Attention | None = None,
        feed_forward: FeedForward | None = None,
        **kwargs,
    ):
        super().__init__(config, **kwargs)
        policy = self.dtype_policy
        self.attention = attention or Attention(config, dtype=policy, name="attention")
        self.feed_forward = feed_forward or FeedForward(
            config, dtype=policy, name="feed_forward"
        )

    def build(self, input_shape=None):
        for part in (self.attention, self.feed_forward):
            if not part.built:
                part.build()

    def dense_layers(self) -> list[Dense]:
        """Returns the six dense layers of the block."""
        attention, feed_forward = self.attention, self.feed_forward
        return [
            attention.query,
            attention.key,
            attention.value,
            attention.output_dense,
            feed_forward.intermediate,
            feed_forward.output_dense,
        ]

    def call(self, hidden, mask_scores, seeds=(None, None, None), pick=None):
        """Applies the block.

        Args:
            hidden: float [B, T, H].
            mask_scores: float32 [B, 1, 1, T], see `Attention`.
            seeds: three dropout seeds: attention probabilities, attention output,
                feed-forward output.
            pick: what of the positions is wanted, see `Attention`.

        Returns:
            float [B, T, H]; [B, Q, H] with `pick`.
        """

        def apply(hidden):
            attended = self.attention(hidden, mask_scores, seeds=seeds[:2], pick=pick)
            return self.feed_forward(attended, seed=seeds[2])

        if self.config.recompute != "block":
            return apply(hidden)

        def cast_and_apply(hidden):
            with cast_once(self.dense_layers()):
                return apply(hidden)

        return keras.remat(cast_and_apply)(hidden)
