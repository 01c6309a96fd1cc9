"""Models in LiteRT and ONNX Runtime, compared with the same models in Keras."""

import importlib.util
import os

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import models
from albert_tf.model.config import AlbertConfig
from albert_tf.serve import runtimes

if keras.backend.backend() != "tensorflow":
    pytest.skip("LiteRT converts TensorFlow's graphs", allow_module_level=True)

HAVE_ONNX = all(map(importlib.util.find_spec, ("onnx", "onnxruntime")))
NEEDS_ONNX = pytest.mark.skipif(not HAVE_ONNX, reason="onnx is not installed")
FORMATS = ["litert", pytest.param("onnx", marks=NEEDS_ONNX)]
LITERT_IS_SLOW = [pytest.param("litert", marks=pytest.mark.slow), FORMATS[1]]

# Rounding errors of float32 sums in another order.
BOUND = 2e-5

CONDITIONAL = {"start_log_probs", "start_top_log_probs", "start_top_index"}
CONDITIONAL |= {"end_top_log_probs", "end_top_index", "cls_logits"}
# The models, and the names of their outputs.
MODELS = {
    "encoder": (models.AlbertEncoder, {"sequence_output", "pooled_output"}),
    "pretrainer": (models.AlbertPretrainer, {"mlm_logits", "sop_logits"}),
    "masked_lm": (lambda c: models.AlbertPretrainer(c, False), {"mlm_logits"}),
    "classifier": (lambda c: models.AlbertClassifier(c, 3), {"logits"}),
    "choices": (models.AlbertMultipleChoice, {"logits"}),
    "tokens": (lambda c: models.AlbertTokenClassifier(c, 4), {"logits"}),
    "spans": (models.AlbertSpanLabeler, {"start_logits", "end_logits"}),
    "conditional": (
        *(lambda c: models.AlbertConditionalSpanLabeler(c, 3, 2), CONDITIONAL),
    ),
}


@pytest.fixture
def written(tmp_path):
    """Writes a model and opens it in its runtime."""

    def write(model, format, **options):
        path = tmp_path / f"{format}{len(os.listdir(tmp_path))}"
        path = path.with_suffix(runtimes.SUFFIXES[format])
        assert runtimes.save(model, path, format, **options) == path
        return runtimes.load(path, num_threads=1)

    return write


def random_weights(model, seed=5):
    """Changes all weights at random, including those that start as 0 or 1."""
    random = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        value = np.asarray(variable) + random.normal(0, 0.2, variable.shape)
        variable.assign(value)
    return model


def batch(model, rows, length, seed=3):
    """Makes a batch of all inputs; its second row has padding."""
    random = np.random.default_rng(seed)
    config = model.config
    mask = np.ones((rows, length), "int32")
    mask[1:, length // 2 :] = 0
    inputs = {
        "input_ids": random.integers(0, config.vocab_size, mask.shape, "int32"),
        "input_mask": mask,
        "segment_ids": random.integers(0, config.type_vocab_size, mask.shape, "int32"),
    }
    if isinstance(model, models.AlbertMultipleChoice):
        rows = {
            name: np.stack([x, np.roll(x, 1, -1), np.roll(x, 3, -1)], 1)
            for name, x in inputs.items()
        }
        rows["input_mask"][0, 2] = 0  # a choice of padding
        return rows
    if isinstance(model, models.AlbertConditionalSpanLabeler):
        inputs["p_mask"] = (random.random(mask.shape) < 0.3).astype("int32")
    if isinstance(model, models.AlbertPretrainer):
        inputs["masked_lm_positions"] = random.integers(0, length, (rows, 6), "int32")
    return inputs


def assert_equal(model, run, names, sizes=((2, 7), (1, 5)), bound=BOUND):
    for rows, length in sizes:
        inputs = batch(model, rows, length)
        expected, outputs = model(inputs), run(inputs)
        assert outputs.keys() == names
        for name, output in outputs.items():
            wanted = keras.ops.convert_to_numpy(expected[name])
            assert output.shape == wanted.shape
            assert output.dtype == wanted.dtype
            np.testing.assert_allclose(output, wanted, rtol=1e-6, atol=bound)


# LiteRT's converter is slow. Each other head is one dense layer, as in the pretrainer
# that test_convert runs there.
IN_RUNTIMES = [("litert", "conditional")]
IN_RUNTIMES += [
    pytest.param("litert", kind, marks=pytest.mark.slow)
    for kind in ("encoder", "pretrainer", "choices")
]
IN_RUNTIMES += [pytest.param("onnx", kind, marks=NEEDS_ONNX) for kind in MODELS]


@pytest.mark.parametrize(("format", "kind"), IN_RUNTIMES)
def test_a_model_answers_as_in_keras_whatever_the_size_of_the_batch(
    kind, format, tiny, written
):
    layers = 2 if kind == "encoder" else 1
    build, names = MODELS[kind]
    model = random_weights(build(tiny(num_hidden_layers=layers)))
    assert_equal(model, written(model, format), names)


@pytest.mark.parametrize("format", FORMATS)
def test_the_released_encoder_gives_its_recorded_outputs(format, data, golden, written):
    from albert_tf import weights

    config = AlbertConfig.from_json_file(data / "model_small.config.json")
    model = models.AlbertEncoder(config)
    weights.load(model, data / "model_small.ckpt")
    recorded = golden("model_small")
    names = ("input_ids", "input_mask", "segment_ids")
    inputs = {name: recorded[f"in/{name}"] for name in names}
    outputs = written(model, format)(inputs)
    real = inputs["input_mask"] > 0
    for name, output in outputs.items():
        expected = recorded[f"out/{name}"]
        if name == "sequence_output":
            output, expected = output[real], expected[real]
        np.testing.assert_allclose(output, expected, rtol=0, atol=BOUND)


@NEEDS_ONNX
@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_groups": 2, "inner_group_num": 2, "hidden_act": "relu"},
        {"parameter_sharing": "attention", "hidden_act": "gelu_erf"},
        {"parameter_sharing": "ffn", "embedding_size": 12, "hidden_act": "tanh"},
        {"parameter_sharing": "none", "hidden_act": None},
    ],
)
def test_every_sharing_and_activation_is_in_the_graph(changes, tiny, written):
    config = tiny(**changes, num_hidden_layers=3)
    model = random_weights(models.AlbertPretrainer(config))
    names = {"mlm_logits", "sop_logits"}
    assert_equal(model, written(model, "onnx"), names, sizes=[(2, 7)])


@pytest.mark.parametrize("format", LITERT_IS_SLOW)
def test_a_model_of_lower_precision_is_written_in_float32(format, tiny, written):
    policy = {"litert": "mixed_bfloat16", "onnx": "bfloat16"}[format]
    config = tiny(num_hidden_layers=1, recompute="block")
    low = random_weights(models.AlbertEncoder(config, dtype=policy))
    plain = models.AlbertEncoder(tiny(num_hidden_layers=1))
    plain.set_weights([np.asarray(x, "float32") for x in low.get_weights()])
    names = {"sequence_output", "pooled_output"}
    assert_equal(plain, written(low, format), names)


@pytest.fixture
def wide(tiny):
    """Makes a model whose shared block, 442 kB, has most of the weights."""
    sizes = {"vocab_size": 50, "hidden_size": 96, "intermediate_size": 384}
    sizes |= {"max_position_embeddings": 16, "type_vocab_size": 2}

    def build(layers):
        config = tiny(**sizes, num_hidden_layers=layers, initializer_range=0.02)
        return random_weights(models.AlbertEncoder(config))

    return build


# Bytes of the nodes of a layer, without weights.
LAYER = {"litert": 24_000, "onnx": 5_000}


# The next test also fails if LiteRT's file has the weights of a layer twice.
@pytest.mark.parametrize("format", LITERT_IS_SLOW)
def test_layers_that_share_weights_store_them_once(format, wide, tmp_path):
    bytes_of = {}
    for layers in (1, 2):
        path = tmp_path / f"{layers}{runtimes.SUFFIXES[format]}"
        runtimes.save(wide(layers), path, format)
        bytes_of[layers] = path.stat().st_size
    weights = 4 * wide(2).count_params()
    assert weights > 450_000
    assert weights < bytes_of[1] < weights + LAYER[format] + 20_000
    assert bytes_of[2] < bytes_of[1] + LAYER[format]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("precision", "share", "least", "most"),
    [("float16", 1 / 2, 1e-5, 1e-2), ("int8", 1 / 4, 1e-3, 0.2)],
)
def test_shorter_weights_make_a_smaller_file_and_a_small_difference(
    precision, share, least, most, format, wide, tmp_path
):
    keras.utils.set_random_seed(3)
    model = wide(2)
    path = tmp_path / f"a{runtimes.SUFFIXES[format]}"
    runtimes.save(model, path, format, precision=precision)
    weights = 4 * model.count_params() * share
    # Biases and norms of an int8 file stay in float32.
    assert 0.99 * weights < path.stat().st_size < weights + 2 * LAYER[format] + 30_000
    inputs = batch(model, 4, 9)
    ours, theirs = (
        keras.ops.convert_to_numpy(run(inputs)["sequence_output"])
        for run in (model, runtimes.load(path))
    )
    difference = np.abs(ours - theirs)[inputs["input_mask"] > 0]
    assert least < difference.max() < most
    assert difference.mean() < difference.max() / 3


@pytest.mark.parametrize("format", LITERT_IS_SLOW)
def test_outputs_can_be_chosen(format, tiny, written):
    model = random_weights(models.AlbertPretrainer(tiny(num_hidden_layers=2)))
    run = written(model, format, outputs=("sop_logits", "pooled_output"))
    names = {"sop_logits", "pooled_output"}
    assert_equal(model, run, names, sizes=[(2, 7)])
    inputs = batch(model, 2, 7)
    del inputs["masked_lm_positions"]  # no output needs it
    assert run(inputs).keys() == names


def test_what_cannot_be_written_is_said(tiny, tmp_path, monkeypatch, refuses):
    monkeypatch.chdir(tmp_path)
    model = models.AlbertClassifier(tiny(), 3)
    with refuses("a.onnx, format='litert': must end in .tflite (litert), .onnx (onnx)"):
        runtimes.save(model, "a.onnx", "litert")
    with refuses("outputs='sop': AlbertClassifier has logits, pooled_output"):
        runtimes.save(model, "a.onnx", "onnx", outputs=("sop",))
    assert not os.listdir(tmp_path)


def test_the_package_that_onnx_needs_is_named(tiny, tmp_path, monkeypatch, refuses):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with refuses("ONNX needs the package onnx: pip install 'albert_tf[onnx]'"):
        runtimes.save(models.AlbertEncoder(tiny()), tmp_path / "a.onnx", "onnx")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.pb", b"", "{path}: must end in .tflite or .onnx"),
        ("a.onnx", None, "{path}: no such file"),
        ("a.tflite", b"nothing", "{path}: not a LiteRT model"),
        pytest.param(
            "a.onnx", b"nothing", "{path}: not an ONNX model", marks=NEEDS_ONNX
        ),
    ],
)
def test_what_cannot_be_opened_is_said(name, content, message, tmp_path, refuses):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with refuses(message.format(path=path)):
        runtimes.load(path)


@pytest.mark.parametrize("eagerly", [False, True])
def test_batches_of_all_sizes_share_a_graph(tiny, monkeypatch, eagerly):
    model = models.AlbertClassifier(tiny(num_hidden_layers=1), 3)
    run, traced = runtimes.build_runner(model, eagerly=eagerly), []
    call = models.AlbertClassifier.call

    def counted(self, inputs, training=False):
        traced.append(tf.executing_eagerly())
        return call(self, inputs, training=training)

    monkeypatch.setattr(models.AlbertClassifier, "call", counted)
    for shape in ((1, 4), (2, 5), (3, 4), (1, 7)):
        ids = np.ones(shape, np.int32)
        batch = {"input_ids": ids, "input_mask": ids, "segment_ids": 0 * ids}
        found = run(batch)["logits"]
        expected = keras.ops.convert_to_numpy(call(model, batch)["logits"])
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert traced == ([True] * 4 if eagerly else [False])
