import math
import threading

import keras
import numpy as np
import pytest
from keras import ops

from albert_tf.model import layers

POINTS = np.array([-3.0, -1.0, -0.25, 0.0, 0.5, 1.0, 2.5], "float32")


def tanh_gelu(x):
    """The formula as the paper of GELU writes it, for autodiff to differentiate."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1.0 + ops.tanh(inner))


def exact_gelu(x):
    return np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gelu", lambda x: ops.convert_to_numpy(tanh_gelu(ops.convert_to_tensor(x)))),
        ("gelu_erf", exact_gelu),
        ("relu", lambda x: np.maximum(x, 0)),
        ("tanh", np.tanh),
        ("linear", lambda x: x),
        (None, lambda x: x),
    ],
)
def test_activation_follows_its_formula(name, expected):
    y = ops.convert_to_numpy(layers.ACTIVATIONS[name](ops.convert_to_tensor(POINTS)))
    np.testing.assert_allclose(y, expected(POINTS), atol=1e-6)


def test_gelu_at_one_worked_by_hand():
    # tanh(0.7978846 * 1.044715) = 0.6823839; half of 1 + that.
    assert float(layers.gelu(ops.convert_to_tensor(1.0))) == pytest.approx(
        0.8411920, abs=1e-6
    )


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow",
    reason="only TensorFlow has gradients that are lists of rows",
)
def test_lookup_has_a_dense_gradient_in_the_embeddings(tiny, tokens):
    import tensorflow as tf

    layer = layers.Embeddings(tiny())
    layer.build()
    batch = tokens()
    with tf.GradientTape() as tape:
        embedded = layer(batch["input_ids"], batch["segment_ids"])
    tables = [layer.word.value, layer.segment.value, layer.position.value]
    gradients = tape.gradient(embedded, tables)
    # A list of rows (IndexedSlices) has another norm than the gradient it stands for.
    assert all(isinstance(gradient, tf.Tensor) for gradient in gradients)


def norm(x):
    """Layer normalisation with gamma 1 and beta 0."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True))


def test_layer_norm_has_the_released_epsilon(arrays):
    # Deviations of 1e-6: an epsilon of 1e-12 halves their square, 1e-3 erases them.
    x = np.array([[1e-6, -1e-6]], "float32")
    layer = layers.LayerNormalization("norm")
    np.testing.assert_allclose(
        arrays(layer(x)), [[math.sqrt(0.5), -math.sqrt(0.5)]], rtol=1e-5
    )


def test_attention_with_dropout_has_the_gradient_of_its_formula(differentiate):
    random = np.random.default_rng(6)
    batch, heads, asking, length, size = 2, 3, 5, 7, 4

    def normal(*shape):
        return random.standard_normal(shape, "float32")

    query, key, value = (
        keras.Variable(normal(batch, heads, rows, size))
        for rows in (asking, length, length)
    )
    mask = ops.convert_to_tensor(-1e4 * random.integers(0, 2, (batch, 1, 1, length)))
    mask = ops.cast(mask, "float32")
    kept = 1.25 * random.integers(0, 2, (batch, heads, asking, length))
    kept = ops.convert_to_tensor(kept, "float32")
    factor = ops.convert_to_tensor(normal(batch, asking, heads, size))

    def formula():
        scores = ops.einsum("bnqd,bntd->bnqt", query, key) + mask
        shares = ops.softmax(scores) * kept
        return ops.sum(factor * ops.einsum("bnqt,bntd->bqnd", shares, value))

    def attended():
        parts = [ops.copy(part) for part in (query, key, value)]
        return ops.sum(factor * layers.scaled_dot_product_attention(*parts, mask, kept))

    variables = [query, key, value]
    for gradient, expected in zip(
        differentiate(attended, variables),
        differentiate(formula, variables),
        strict=True,
    ):
        np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=2e-6)


def test_parts_of_one_shape_start_at_different_values(tiny, arrays):
    layer = layers.Attention(tiny())
    layer.build()
    kernels = [
        arrays(part.kernel).tobytes()
        for part in (layer.query, layer.key, layer.value, layer.output_dense)
    ]
    assert len(set(kernels)) == 4


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_softmax_runs_in_float32(policy, tiny, monkeypatch):
    seen = []
    softmax = ops.softmax

    def note(x, axis=-1):
        seen.append(keras.backend.standardize_dtype(x.dtype))
        return softmax(x, axis)

    monkeypatch.setattr(ops, "softmax", note)
    layer = layers.Attention(tiny(), dtype=policy)
    layer.build()
    compute_dtype = policy.removeprefix("mixed_")
    output = layer(ops.ones((2, 7, 12), compute_dtype), ops.zeros((2, 1, 1, 7)))
    assert seen == ["float32"]
    assert keras.backend.standardize_dtype(output.dtype) == compute_dtype


@pytest.mark.parametrize(
    ("compute_dtype", "half_a_digit"), [("bfloat16", 2**-8), ("float16", 2**-11)]
)
def test_norms_run_in_float32(compute_dtype, half_a_digit, arrays):
    # Far from zero the mean needs more digits than the compute dtype has.
    x = 8 + np.random.default_rng(5).standard_normal((2, 7, 12), "float32")
    x = ops.cast(x, compute_dtype)
    normed = layers.LayerNormalization("norm")(x)
    assert keras.backend.standardize_dtype(normed.dtype) == "float32"
    expected = norm(arrays(ops.cast(x, "float32")))
    np.testing.assert_allclose(arrays(normed), expected, rtol=half_a_digit, atol=1e-5)


def test_embeddings_are_summed_in_float32(tiny, tokens, arrays):
    batch = tokens()
    layer = layers.Embeddings(tiny(), dtype="mixed_bfloat16")
    plain = layers.Embeddings(tiny(), dtype="float32")
    for one in (layer, plain):
        one.build()
    plain.set_weights(layer.get_weights())
    mixed, exact = (
        one(batch["input_ids"], batch["segment_ids"]) for one in (layer, plain)
    )
    rounded = ops.cast(exact, "bfloat16")
    assert keras.backend.standardize_dtype(mixed.dtype) == "bfloat16"
    np.testing.assert_array_equal(
        arrays(ops.cast(mixed, "float32")), arrays(ops.cast(rounded, "float32"))
    )


def test_kernels_are_cast_once_and_only_for_their_own_thread(tiny):
    layer = layers.dense(tiny(), 5, "dense", dtype="mixed_bfloat16")
    layer.build((None, 3))
    seen = []
    with layers.cast_once([layer]):
        assert keras.backend.standardize_dtype(layer.kernel.dtype) == "bfloat16"
        assert layer.kernel is layer.kernel
        other = threading.Thread(target=lambda: seen.append(layer.kernel))
        other.start()
        other.join()
    assert seen[0] is layer.kernel
    assert keras.backend.standardize_dtype(layer.kernel.dtype) == "float32"
