"""The layers of ALBERT's encoder (paper 3.1), written with `keras.ops` only.

Letters of every shape in this package:

    B batch           T tokens of an input     P masked positions of an input
    C choices         K labels                 S start candidates of a span
    V vocabulary      E embedding size         H hidden size
    I intermediate size                        Q query positions
    L layers          N attention heads        D head size, H / N

Matrix products run in the compute dtype of the layer's policy; softmax and layer
normalisation always run in float32.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

import keras
from keras import ops

from albert_tf.model.config import AlbertConfig

# From tf.contrib.layers.layer_norm, which the released code calls.
NORM_EPSILON = 1e-12

# Added to the score of a masked position, which then gets probability 0 in the softmax.
# The value is from the released code.
MASKED_SCORE = -10000.0

# Constants of GELU's tanh form: sqrt(2 / pi), and the factor of x^3.
_GELU_SCALE = 0.7978845608028654
_GELU_CUBIC = 0.044715


def custom_gradient(on_torch: Callable | None = None) -> Callable:
    """Decorates a function that returns its value and its gradient function.

    The result is a function that returns only the value, and has this gradient. The
    decorated function may read only its arguments, which are tensors.

    TensorFlow keeps a custom gradient for the life of the process, together with the
    graph in which it was called. So in a graph, this decorator calls the function as a
    `tf.function`: TensorFlow then keeps only the graph of this function, once for each
    signature.

    On PyTorch, autograd computes the gradient: tensors that a custom gradient saves
    would defeat activation checkpointing.

    Args:
        on_torch: the function to call on PyTorch instead of the decorated function.
            None calls the decorated function and drops its gradient function.
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
            return eager(*args) if tf.executing_eagerly() else in_graph(*args)

        return call

    return decorate


# The argument of `fuse_gelu` while its context is active in this thread. Without an
# active context, nothing is fused.
_fuse = contextvars.ContextVar[Callable]("_fuse", default=lambda function: function)


@contextlib.contextmanager
def fuse_gelu(fuse: Callable):
    """Returns a context in which `gelu` calls `fuse(_gelu)` instead of `_gelu`.

    A TensorFlow graph reads and writes the whole tensor for each operation, a dozen
    times for GELU. In bfloat16 on a CPU, GELU then takes longer than the matrix product
    before it. A fused function, such as one compiled by XLA, reads and writes once.

    Args:
        fuse: takes a function of tensors, and returns a function with the same results
            up to rounding. The returned function needs no gradient.
    """
    token = _fuse.set(fuse)
    try:
        yield
    finally:
        _fuse.reset(token)


def gelu(x):
    """Gaussian error linear unit in the tanh form of the released code.

    `x * 0.5 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))` (Hendrycks & Gimpel 2016).
    The forward pass also computes the slope. So the gradient is one product, and one
    tensor of x's size stays in memory for the backward pass instead of six.
    """
    if keras.backend.backend() == "torch":
        return ops.gelu(x, approximate=True)
    value_and_slope = _fuse.get()(_gelu)
    return _with_slope(x, *value_and_slope(ops.stop_gradient(x)))


@custom_gradient()
def _with_slope(x, y, slope):
    """Returns y, with `slope` as its gradient with respect to x."""
    return y, lambda upstream: (upstream * slope, None, None)


def _gelu(x):
    """Returns the value and the slope of GELU."""
    inner = _GELU_SCALE + (_GELU_SCALE * _GELU_CUBIC) * ops.square(x)
    gate = 0.5 + 0.5 * ops.tanh(x * inner)
    y = x * gate
    # y' = gate + x gate'. With u = x * inner: gate' = 2 gate (1 - gate) u', and
    # u' = 3 inner - 2 scale.
    slope = gate + y * (1.0 - gate) * (6.0 * inner - 4.0 * _GELU_SCALE)
    return y, slope


@custom_gradient()
def scaled_dot_product_attention(query, key, value, mask_scores, *dropout_mask):
    """Sums the values, weighted by the softmax of the products of queries and keys.

    The gradient of the softmax needs a sum for each query: the probabilities times
    their gradients. This sum equals the dot product of the function's result and the
    result's gradient (Dao et al. 2022, appendix B.2). The dot product is cheaper,
    because its factors are T / D times smaller than the probabilities.

    Of the forward pass's tensors of shape [B, N, Q, T], the backward pass reads only
    two: the probabilities before and after dropout.

    Args:
        query: float [B, N, Q, D] of Q query positions, multiplied by 1 / sqrt(D).
        key: float [B, N, T, D].
        value: float [B, N, T, D].
        mask_scores: float32 [B, 1, 1, T], added to the products; has no gradient.
        *dropout_mask: with dropout one tensor, float [B, N, Q, T], by which the
            probabilities are multiplied; has no gradient.

    Returns:
        float [B, Q, N, D], the layout that the output layer reads. The backward pass
        then needs no copy of the result in another layout. The softmax runs in float32.
    """
    scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
    scores = ops.cast(scores, "float32") + mask_scores
    probabilities = ops.cast(ops.softmax(scores), query.dtype)
    # The factors of the values are the probabilities after dropout.
    factors = probabilities * dropout_mask[0] if dropout_mask else probabilities
    mixed = ops.transpose(ops.matmul(factors, value), (0, 2, 1, 3))

    def gradient(upstream):
        product = ops.cast(upstream, "float32") * ops.cast(mixed, "float32")
        # The sum in the docstring: a mean of gradients, weighted by the probabilities.
        mean = ops.sum(product, -1, keepdims=True)
        upstream = ops.transpose(upstream, (0, 2, 1, 3))
        mean = ops.transpose(mean, (0, 2, 1, 3))
        d_value = ops.matmul(ops.transpose(factors, (0, 1, 3, 2)), upstream)
        d_factors = ops.matmul(upstream, ops.transpose(value, (0, 1, 3, 2)))
        # The gradient of the probabilities is the dropout mask times `d_factors`. This
        # function reads `factors`, which contains the mask, instead of the mask itself.
        # Otherwise the mask would stay in memory until the backward pass.
        if dropout_mask:
            d_scores = factors * d_factors
            d_scores -= probabilities * ops.cast(mean, query.dtype)
        else:
            difference = ops.cast(d_factors, "float32") - mean
            d_scores = probabilities * ops.cast(difference, query.dtype)
        d_query = ops.matmul(d_scores, key)
        d_key = ops.matmul(ops.transpose(d_scores, (0, 1, 3, 2)), query)
        return d_query, d_key, d_value, None, *[None for _ in dropout_mask]

    return mixed, gradient


def fused_attention(query, key, value, mask_scores):
    """Computes `scaled_dot_product_attention` without dropout by Keras's function.

    On JAX, with a GPU and a dtype of 16 bits, Keras calls cuDNN's attention (Dao et al.
    2022). cuDNN writes no probabilities to memory, and needs even values of Q and T.
    """
    query, key, value = (ops.transpose(x, (0, 2, 1, 3)) for x in (query, key, value))
    positions = query.shape[1], key.shape[1]
    bias = ops.broadcast_to(mask_scores, (ops.shape(query)[0], 1, *positions))
    return ops.dot_product_attention(query, key, value, bias=bias, scale=1.0)


@custom_gradient()
def embedding_lookup(table, ids):
    """Looks up rows of a table, with a dense gradient.

    TensorFlow's gradient is a list of rows with repetitions, and the norm of that
    list is not the norm of the gradient. Clipping here uses the true norm everywhere.
    **As released:** unlike here, the released code uses the norm of the list on CPU and
    GPU, and the true norm only on TPU.

    Args:
        table: float [V, E].
        ids: int [B, T], each in [0, V).

    Returns:
        float [B, T, E].
    """

    def gradient(upstream):
        rows = ops.reshape(upstream, (-1, table.shape[1]))
        flat_ids = ops.reshape(ids, (-1,))
        return ops.segment_sum(rows, flat_ids, num_segments=table.shape[0]), None

    return ops.take(table, ids, axis=0), gradient


# {value of `hidden_act` in the configuration: its function}.
ACTIVATIONS = {
    "gelu": gelu,
    "gelu_erf": lambda x: ops.gelu(x, approximate=False),
    "relu": ops.relu,
    "tanh": ops.tanh,
    "linear": lambda x: x,
    None: lambda x: x,
}


# {`id` of a layer: replacement of its kernel}, from all contexts of `replace_kernels`
# that are active in this thread.
_kernels = contextvars.ContextVar[Mapping]("_kernels", default=MappingProxyType({}))


class Dense(keras.layers.Dense):
    """Keras's dense layer, with a kernel that `replace_kernels` can replace."""

    @property
    def kernel(self):
        """The float32 variable, or its replacement."""
        return _kernels.get().get(id(self), super().kernel)


@contextlib.contextmanager
def replace_kernels(layers: Iterable[Dense], kernels: Iterable):
    """Returns a context in which `kernels` replace the kernels of `layers` in order."""
    by_id = {id(layer): kernel for layer, kernel in zip(layers, kernels, strict=True)}
    token = _kernels.set({**_kernels.get(), **by_id})
    try:
        yield
    finally:
        _kernels.reset(token)


def cast_once(layers: Iterable[Dense]):
    """Returns a context in which each layer's kernel is cast only once.

    A pass applies a shared block L times. In mixed precision, each application would
    otherwise cast the same float32 kernel again. Each application would then also give
    a float32 gradient, which needs twice the memory. With one cast, the gradients of a
    kernel are added up in the compute dtype. In float32, the context changes nothing.
    """
    # The layers in mixed precision.
    subset = [layer for layer in layers if layer.compute_dtype != layer.variable_dtype]
    casts = [ops.cast(layer.kernel, layer.compute_dtype) for layer in subset]
    return replace_kernels(subset, casts)


def order_gradients(x, layers: Sequence[Dense]):
    """Makes the backward pass add up kernel gradients before it leaves a block.

    The backward pass begins with the last block. It adds up the kernel gradients of the
    block with the input `x` and of all later blocks. Only then does it continue with
    the earlier blocks, through the gradient of `x`.

    TensorFlow adds up a variable's gradients only when it has all of them. So without
    this order, a graph holds L gradients of a shared kernel at the same time: 3.6 GiB
    in a step of xlarge.

    Args:
        x: the input of a block.
        layers: the block's dense layers that earlier blocks also use.

    Returns:
        x, and a context. The caller must run this block and all later blocks in the
        context, and give this block the returned x.
    """
    x, *kernels = _wait_for_kernels(x, *(ops.copy(layer.kernel) for layer in layers))
    return x, replace_kernels(layers, kernels)


@custom_gradient()
def _wait_for_kernels(x, *kernels):
    """Returns its arguments; the gradient of `x` waits for the kernels' gradients."""

    def gradient(d_x, *d_kernels):
        # A zero that depends on all kernel gradients. An infinite kernel gradient would
        # make it NaN, but then the step is useless in any case.
        zero = sum(0.0 * d_kernel[0, 0] for d_kernel in d_kernels)
        return d_x + ops.cast(zero, d_x.dtype), *d_kernels

    return (x, *kernels), gradient


def dense(
    config: AlbertConfig,
    units: int,
    name: str,
    *,
    stddev: float | None = None,
    **options,
) -> Dense:
    """Builds a dense layer with the released initial values.

    The kernel is drawn by `initializer`; the bias is zeros.

    Args:
        config: the model's configuration.
        units: the size of the output.
        name: the name of the layer.
        stddev: standard deviation of the initial kernel; None for the configuration's
            `initializer_range`.
        **options: other arguments of the layer.
    """
    kernel_initializer = initializer(stddev or config.initializer_range)
    return Dense(units, kernel_initializer=kernel_initializer, name=name, **options)


def initializer(stddev: float) -> keras.initializers.Initializer:
    """Returns the initializer of the released code.

    It draws from a normal distribution, truncated at two standard deviations.
    """
    return keras.initializers.TruncatedNormal(stddev=stddev)


@custom_gradient(
    on_torch=lambda *args: ops.layer_normalization(*args, epsilon=NORM_EPSILON)
)
def layer_norm(x, gamma, beta):
    """Normalises the last axis to mean 0 and variance 1, then scales and shifts it.

    With this custom gradient, the forward and backward pass take 0.7 of the time of
    Keras's layer in TensorFlow on a CPU.

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
        d_normed = upstream * gamma
        product = d_normed * normed
        d_x = d_normed - ops.mean(d_normed, -1, keepdims=True)
        d_x -= normed * ops.mean(product, -1, keepdims=True)
        axes = tuple(range(len(x.shape) - 1))
        d_gamma = ops.sum(upstream * normed, axes)
        return d_x * inverse, d_gamma, ops.sum(upstream, axes)

    return normed * gamma + beta, gradient


class LayerNormalization(keras.layers.LayerNormalization):
    """Keras's layer normalisation in float32, computed by `layer_norm`."""

    def __init__(self, name: str):
        super().__init__(epsilon=NORM_EPSILON, dtype="float32", name=name)

    def call(self, inputs):
        """Takes float [..., H] of any dtype; returns float32 [..., H]."""
        inputs = ops.cast(inputs, "float32")
        # `copy` makes tensors, because a custom gradient does not accept variables.
        return layer_norm(inputs, ops.copy(self.gamma), ops.copy(self.beta))


class DropoutSeeds:
    """The seeds of one forward pass: a different one for each dropout.

    The encoder draws all seeds before its first block. So if the backward pass computes
    a block again (`recompute`), the block has the same seeds and drops the same values.

    Args:
        generator: the generator of the model; None for a pass without dropout.
    """

    def __init__(self, generator: keras.random.SeedGenerator | None):
        self._base = None if generator is None else generator.next()
        self._offset = 0

    def next(self):
        """Returns another seed, int [2]; None without dropout."""
        if self._base is None:
            return None
        # Keras on PyTorch uses only the sum of a seed's two numbers, and the generator
        # adds 1 to the second number in each pass. If this method also added 1, later
        # passes would repeat the sums. 1 << 20 is more than the usual number of passes.
        self._offset += 1 << 20
        return self._base + ops.convert_to_tensor([self._offset, 0], self._base.dtype)


class _FixedSeed(keras.random.SeedGenerator):
    """A generator that always returns one seed, and has no variable."""

    def __init__(self, value):
        self.value = value
        # Keras on PyTorch draws from the global state if this is None.
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
    """Base class of layers that keep the configuration of their model in `config`.

    Keras does not cast the arguments of these layers. So mask scores and embedding
    tables stay in float32. The dense layers in them cast their own inputs.
    """

    # Names of a head's attributes that `get_config` of its model saves.
    options: tuple[str, ...] = ()

    def __init__(self, config: AlbertConfig, **kwargs):
        super().__init__(autocast=False, **kwargs)
        self.config = config

    def dense(self, units: int, name: str, **options) -> Dense:
        """Builds a dense layer with this layer's dtype; see the function `dense`."""
        return dense(self.config, units, name, dtype=self.dtype_policy, **options)


class Embeddings(ConfiguredLayer):
    """Word, segment and position embeddings of width E, normalised.

    This is the factorised embedding of paper 3.1; `AlbertEncoder` projects E to H.
    """

    def __init__(self, config: AlbertConfig, **kwargs):
        super().__init__(config, **kwargs)
        self.norm = LayerNormalization("norm")

    def build(self, input_shape=None):
        def add_table(name, rows):
            return self.add_weight(
                shape=(rows, self.config.embedding_size),
                initializer=initializer(self.config.initializer_range),
                autocast=False,
                name=name,
            )

        self.word = add_table("word", self.config.vocab_size)
        self.segment = add_table("segment", self.config.type_vocab_size)
        self.position = add_table("position", self.config.max_position_embeddings)
        self.norm.build((None, None, self.config.embedding_size))

    def call(self, input_ids, segment_ids, seed=None):
        """Embeds tokens.

        Args:
            input_ids: int [B, T], each in [0, V). T is at most
                `max_position_embeddings`.
            segment_ids: int [B, T], each below `type_vocab_size`.
            seed: int [2] for dropout, or None for inference.

        Returns:
            float [B, T, E], after normalisation and dropout.
        """
        summed = embedding_lookup(ops.copy(self.word), input_ids)
        summed += embedding_lookup(ops.copy(self.segment), segment_ids)
        summed += self.position[: ops.shape(input_ids)[1]]
        normed = ops.cast(self.norm(summed), self.compute_dtype)
        return dropout(normed, self.config.hidden_dropout_prob, seed)


class Attention(ConfiguredLayer):
    """Multi-head self-attention with its residual sum and normalisation."""

    def __init__(self, config: AlbertConfig, **kwargs):
        super().__init__(config, **kwargs)
        size = config.hidden_size
        self.query = self.dense(size, "query")
        self.key = self.dense(size, "key")
        self.value = self.dense(size, "value")
        self.output_dense = self.dense(size, "output")
        self.norm = LayerNormalization("norm")

    def build(self, input_shape=None):
        shape = (None, None, self.config.hidden_size)
        for part in (self.query, self.key, self.value, self.output_dense, self.norm):
            part.build(shape)

    def call(self, hidden, mask_scores, seeds=(None, None), select=None):
        """Returns for each position a mixture of all positions that are not padding.

        Args:
            hidden: float [B, T, H].
            mask_scores: float32 [B, 1, 1, T], 0 if a position is real and
                `MASKED_SCORE` if it is padding.
            seeds: two dropout seeds, for the probabilities and for the output; each is
                None for inference.
            select: takes float [B, T, H] and returns the states of Q query positions,
                [B, Q, H]; None keeps all positions.

        Returns:
            float [B, T, H]; [B, Q, H] with `select`.
        """
        scale = self.config.head_size**-0.5
        states = hidden if select is None else select(hidden)
        query = self._split_heads(self.query(states)) * scale
        key = self._split_heads(self.key(hidden))
        value = self._split_heads(self.value(hidden))
        dropout_mask = self._draw_dropout_mask(query, key, seeds[0])
        if self._can_fuse(query, key) and not dropout_mask:
            mixed = fused_attention(query, key, value, mask_scores)
        else:
            mixed = scaled_dot_product_attention(
                query, key, value, mask_scores, *dropout_mask
            )
        mixed = ops.reshape(mixed, ops.shape(states))
        output = dropout(
            self.output_dense(mixed), self.config.hidden_dropout_prob, seeds[1]
        )
        return ops.cast(self.norm(states + output), self.compute_dtype)

    def _can_fuse(self, query, key):
        """Whether `fused_attention` may compute the attention.

        It may on JAX, in a 16-bit dtype, with even numbers of positions.
        """
        if keras.backend.backend() != "jax" or self.compute_dtype == "float32":
            return False
        return query.shape[2] % 2 == 0 and key.shape[2] % 2 == 0

    def _draw_dropout_mask(self, query, key, seed):
        """Returns a list with one mask; without dropout, an empty list."""
        rate = self.config.attention_probs_dropout_prob
        if seed is None or not rate:
            return []
        shape = (*ops.shape(query)[:3], ops.shape(key)[2])
        return [dropout(ops.ones(shape, self.compute_dtype), rate, seed)]

    def _split_heads(self, x):
        """Turns float [B, T, H] into [B, N, T, D]."""
        batch, length, _ = ops.shape(x)
        shape = (batch, length, self.config.num_attention_heads, self.config.head_size)
        return ops.transpose(ops.reshape(x, shape), (0, 2, 1, 3))


class FeedForward(ConfiguredLayer):
    """Two dense layers and an activation, with a residual sum and normalisation."""

    def __init__(self, config: AlbertConfig, **kwargs):
        super().__init__(config, **kwargs)
        self.intermediate = self.dense(config.intermediate_size, "intermediate")
        self.output_dense = self.dense(config.hidden_size, "output")
        self.norm = LayerNormalization("norm")
        self.activation = ACTIVATIONS[config.hidden_act]

    def build(self, input_shape=None):
        shape = (None, None, self.config.hidden_size)
        self.intermediate.build(shape)
        self.output_dense.build((None, None, self.config.intermediate_size))
        self.norm.build(shape)

    def call(self, hidden, seed=None):
        """Transforms each position separately.

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
        attention: the attention layer; blocks with the same layer share its parameters.
        feed_forward: the feed-forward layer; blocks can share it in the same way.
    """

    def __init__(
        self,
        config: AlbertConfig,
        attention: Attention,
        feed_forward: FeedForward,
        **kwargs,
    ):
        super().__init__(config, **kwargs)
        self.attention = attention
        self.feed_forward = feed_forward

    def build(self, input_shape=None):
        for part in (self.attention, self.feed_forward):
            if not part.built:
                part.build()

    def dense_layers(self) -> list[Dense]:
        """Returns the six dense layers of the block."""
        attention, ffn = self.attention, self.feed_forward
        inputs = [attention.query, attention.key, attention.value]
        return [*inputs, attention.output_dense, ffn.intermediate, ffn.output_dense]

    def call(self, hidden, mask_scores, seeds=(None, None, None), select=None):
        """Applies the block.

        Args:
            hidden: float [B, T, H].
            mask_scores: float32 [B, 1, 1, T], see `Attention`.
            seeds: three dropout seeds, for the attention probabilities, the attention
                output and the feed-forward output; each is None for inference.
            select: selects the query positions, see `Attention`.

        Returns:
            float [B, T, H]; [B, Q, H] with `select`.
        """

        def apply(hidden):
            mixed = self.attention(hidden, mask_scores, seeds=seeds[:2], select=select)
            return self.feed_forward(mixed, seed=seeds[2])

        if self.config.recompute != "block":
            return apply(hidden)

        layers = self.dense_layers()
        # In TensorFlow, the kernels must be arguments of the recomputed function,
        # because other tensors that the function reads get no gradient. On JAX, they
        # must not be arguments, because JAX would store them once for each layer.
        argument_layers = layers if keras.backend.backend() == "tensorflow" else []

        def cast_and_apply(hidden, *kernels):
            with replace_kernels(argument_layers, kernels), cast_once(layers):
                return apply(hidden)

        return keras.remat(cast_and_apply)(
            hidden, *(ops.copy(layer.kernel) for layer in argument_layers)
        )
