import dataclasses
import functools
import gc
import itertools
import math
import weakref

import keras
import numpy as np
import pytest
from helpers import read_tf1, refusal, slow_except
from keras import ops

from albert_tf import weights
from albert_tf.model import heads, models
from albert_tf.model.config import AlbertConfig
from albert_tf.model.layers import ACTIVATIONS, Attention, FeedForward, gelu

# The largest difference that counts as the same number in float32.
BOUND = 2e-5

BACKEND = keras.backend.backend()
tensorflow_only = pytest.mark.skipif(
    BACKEND != "tensorflow", reason="tf.function and its XLA exist on TensorFlow alone"
)


def difference(ours, recorded):
    assert ours.shape == recorded.shape
    return np.abs(ours - recorded).max()


def inputs_of(recorded, *more):
    keys = ("input_ids", "input_mask", "segment_ids", *more)
    return {key: recorded[f"in/{key}"] for key in keys}


# --- the released numbers ---


@pytest.mark.parametrize("name", ["model_small", "model_grouped"])
def test_encoder_gives_the_released_outputs(name, data, golden, arrays, monkeypatch):
    recorded = golden(name)
    softmax, probabilities = ops.softmax, []

    def note(scores):
        probabilities.append(softmax(scores))
        return probabilities[-1]

    monkeypatch.setattr(ops, "softmax", note)
    encoder = models.AlbertEncoder(
        AlbertConfig.from_json_file(data / f"{name}.config.json")
    )
    weights.load(encoder, data / f"{name}.ckpt")
    outputs = arrays(encoder(inputs_of(recorded)))
    for key in ("embedding_output", "sequence_output", "pooled_output"):
        assert difference(outputs[key], recorded[f"out/{key}"]) <= BOUND
    depth = sum(key.startswith("out/encoder_layer_") for key in recorded)
    assert len(outputs["encoder_outputs"]) == len(probabilities) == depth
    for i in range(depth):
        layer = outputs["encoder_outputs"][i]
        assert difference(layer, recorded[f"out/encoder_layer_{i}"]) <= BOUND
        ours = arrays(probabilities[i])
        assert difference(ours, recorded[f"out/attention_probs_{i}"]) <= BOUND
    # Mask and segments have the released defaults.
    outputs = arrays(encoder({"input_ids": recorded["in/input_ids"][:2, :7]}))
    for key in ("sequence_output", "pooled_output"):
        assert difference(outputs[key], recorded[f"out_defaults/{key}"]) <= BOUND


@pytest.fixture
def released_pretrainer(data, golden, write_checkpoint):
    """The recorded pretraining model, loaded from a checkpoint."""
    model = models.AlbertPretrainer(
        AlbertConfig.from_json_file(data / "model_small.config.json")
    )
    weights.load(model, write_checkpoint(golden("pretrain_small")))
    return model


def pretraining_losses(model, recorded):
    outputs = model(inputs_of(recorded, "masked_lm_positions"))
    each_masked = heads.masked_lm_loss(
        outputs["mlm_logits"], recorded["in/masked_lm_ids"]
    )
    shares = recorded["in/masked_lm_weights"]
    masked = ops.sum(each_masked * shares) / (shares.sum() + heads.MASKED_LM_EPSILON)
    each_order = heads.classification_loss(
        outputs["sop_logits"], recorded["in/next_sentence_labels"][:, 0]
    )
    order = ops.mean(each_order)
    return {
        "masked_lm_logits": ops.reshape(outputs["mlm_logits"], (20, -1)),
        "masked_lm_log_probs": ops.reshape(
            ops.log_softmax(outputs["mlm_logits"]), (20, -1)
        ),
        "masked_lm_per_example_loss": ops.reshape(each_masked, (20,)),
        "masked_lm_loss": masked,
        "sentence_order_logits": outputs["sop_logits"],
        "sentence_order_log_probs": ops.log_softmax(outputs["sop_logits"]),
        "sentence_order_per_example_loss": each_order,
        "sentence_order_loss": order,
        "total_loss": masked + order,
    }


def test_pretraining_has_the_released_losses(released_pretrainer, golden, arrays):
    recorded = golden("pretrain_small")
    for key, ours in arrays(pretraining_losses(released_pretrainer, recorded)).items():
        assert difference(ours, recorded[f"out/{key}"]) <= BOUND, key


def test_pretraining_gradients(released_pretrainer, golden, assert_released_gradients):
    recorded = golden("pretrain_small")
    compared = assert_released_gradients(
        released_pretrainer,
        lambda: pretraining_losses(released_pretrainer, recorded)["total_loss"],
        recorded,
        zeros=("key/bias",),
        norm="out/global_norm_dense",
    )
    assert len(compared) == len(released_pretrainer.trainable_variables)


# --- counts ---


def abstract(kind, config, **options):
    """Makes a model whose variables have shapes but no memory."""
    with keras.StatelessScope(initialize_variables=False):
        model = kind(config, **options)
    # Else Keras would initialize these variables, 2 GB in all, in a later test.
    keras.utils.clear_session(free_memory=False)
    return model


BASE = AlbertConfig.named("albert_base_v2")
# Encoder and pooler (paper table 1: 12M, 18M, 60M, 235M; KerasHub's presets).
SIZES = {
    "base": 11_683_584,
    "large": 17_683_968,
    "xlarge": 58_724_864,
    "xxlarge": 222_595_584,
}


@pytest.mark.parametrize("size", SIZES)
def test_published_sizes_have_the_published_counts(size, golden):
    recorded = golden("variables_published_sizes.json")[size]
    config = AlbertConfig.named(f"albert_{size}_v2")
    encoder = abstract(models.AlbertEncoder, config)
    assert encoder.count_params() == SIZES[size] == recorded["parameters_bert"]
    pretrainer = abstract(models.AlbertPretrainer, config)
    with_heads = recorded["parameters_with_pretraining_heads"]
    assert pretrainer.count_params() == with_heads
    assert len(pretrainer.trainable_variables) == len(recorded["variables"])


def test_counts_do_not_change_when_the_depth_doubles():
    config = dataclasses.replace(BASE, num_hidden_layers=24)
    assert abstract(models.AlbertEncoder, config).count_params() == SIZES["base"]


# Where nothing is shared (BERT), the paper leaves out the pooler.
@pytest.mark.parametrize(
    ("embedding_size", "sharing", "with_pooler", "millions"),
    [
        (128, "all", True, 12),
        (128, "attention", True, 64),
        (128, "ffn", True, 38),
        (128, "none", False, 89),
        (768, "all", True, 31),
        (768, "attention", True, 83),
        (768, "ffn", True, 57),
        (768, "none", False, 108),
    ],
)
def test_sharing_has_the_papers_counts(embedding_size, sharing, with_pooler, millions):
    changes = {"embedding_size": embedding_size, "parameter_sharing": sharing}
    encoder = abstract(models.AlbertEncoder, dataclasses.replace(BASE, **changes))
    pooler = 0 if with_pooler else encoder.pooler.count_params()
    assert round((encoder.count_params() - pooler) / 1e6) == millions


# --- inputs ---


@pytest.mark.parametrize("changes", [{}, {"parameter_sharing": "none"}])
def test_padding_changes_no_real_position(changes, tiny, tokens, arrays):
    model = models.AlbertPretrainer(tiny(num_hidden_layers=2, **changes))
    batch = tokens()
    random = np.random.default_rng(17)
    padded = {
        "input_ids": random.integers(0, 23, (2, 13), "int32"),
        "segment_ids": random.integers(0, 10, (2, 13), "int32"),
        "input_mask": np.zeros((2, 13), "int32"),
    }
    for key, longer in padded.items():
        longer[:, :7] = batch[key]
    # The second row has padding of its own, whose tokens must not matter either.
    padded["input_ids"][1, 4:7] = 22 - batch["input_ids"][1, 4:7]
    padded["masked_lm_positions"] = batch["masked_lm_positions"]
    short, long = arrays(model(batch)), arrays(model(padded))
    real = batch["input_mask"] == 1
    layers = short["encoder_outputs"], long["encoder_outputs"]
    for ours, theirs in zip(*layers, strict=True):
        np.testing.assert_allclose(ours[real], theirs[:, :7][real], atol=BOUND)
    for key in ("pooled_output", "mlm_logits", "sop_logits"):
        np.testing.assert_allclose(short[key], long[key], atol=BOUND)


def test_a_too_long_input_is_refused(tiny):
    model = models.AlbertEncoder(tiny(num_hidden_layers=1))
    model({"input_ids": np.zeros((2, 17), "int32")})
    assert refusal(model, {"input_ids": np.zeros((2, 18), "int32")}) == (
        "input_ids has 18 tokens, but the configuration's max_position_embeddings is 17"
    )


def test_without_positions_every_token_is_predicted(tiny, tokens, arrays):
    model = models.AlbertPretrainer(tiny(num_hidden_layers=1))
    batch = tokens()
    chosen = arrays(model(batch))["mlm_logits"]
    positions = batch.pop("masked_lm_positions")
    everywhere = arrays(model(batch))["mlm_logits"]
    assert (chosen.shape, everywhere.shape) == ((2, 6, 23), (2, 7, 23))
    for row in range(2):
        np.testing.assert_allclose(
            chosen[row], everywhere[row, positions[row]], atol=1e-6
        )


# --- precision and compilation ---


def twin(model, **changes):
    """The same weights in a model with another configuration or policy."""
    dtype = changes.pop("dtype", model.dtype_policy)
    other = type(model)(dataclasses.replace(model.config, **changes), dtype=dtype)
    other.set_weights(model.get_weights())
    return other


def cuts_off(dtype):
    """Whether products are cut off to their last bit, not rounded to the nearest.

    TensorFlow does so in bfloat16 on a CPU without instructions for it. That is twice
    the error of rounding, and always towards 0.
    """
    above_half = 0.75 * 2.0**-7  # of the last bit of 1 in bfloat16
    row = ops.cast([[1.0, above_half]], dtype)
    product = ops.matmul(row, ops.ones((2, 1), dtype))
    return float(ops.cast(product, "float32")[0, 0]) == 1.0


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_is_near_float32(policy, released_pretrainer, golden, arrays):
    inputs = inputs_of(golden("pretrain_small"), "masked_lm_positions")
    exact = arrays(released_pretrainer(inputs))
    mixed = twin(released_pretrainer, dtype=policy)(inputs)
    compute_dtype = policy.removeprefix("mixed_")
    for key in ("embedding_output", "sequence_output", "pooled_output"):
        assert keras.backend.standardize_dtype(mixed[key].dtype) == compute_dtype
    for key in ("mlm_logits", "sop_logits"):
        assert keras.backend.standardize_dtype(mixed[key].dtype) == "float32"
    near = keras.tree.map_structure(lambda x: ops.cast(x, "float32"), mixed)
    bound = 6e-2 if cuts_off(compute_dtype) else 3e-2
    keras.tree.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=bound, atol=bound),
        arrays(near),
        exact,
    )


def total(outputs):
    """A number that depends on every output."""
    return ops.sum(ops.log_softmax(outputs["mlm_logits"])[..., 3]) + ops.sum(
        ops.log_softmax(outputs["sop_logits"])[..., 1]
    )


def run_with_tape(model, batch, **options):
    """Returns the outputs, and the gradients of a number that depends on all."""
    import tensorflow as tf

    with tf.GradientTape() as tape:
        outputs = model(batch, **options)
        loss = total(outputs)
    return outputs, tape.gradient(loss, [v.value for v in model.trainable_variables])


@tensorflow_only
@pytest.mark.parametrize("xla", [False, True], ids=["graph", "xla"])
def test_compiled_passes_agree_with_eager_ones(xla, tiny, tokens, arrays):
    import tensorflow as tf

    model = models.AlbertPretrainer(tiny(num_hidden_layers=1))
    batch = tokens()

    # Neither the batch nor the lengths are known to the graph.
    unknown = {key: tf.TensorSpec([None, None], tf.int32) for key in batch}
    run = functools.partial(run_with_tape, model)
    signature = None if xla else [unknown]
    compiled = tf.function(run, jit_compile=xla, input_signature=signature)
    batch = {key: tf.constant(x) for key, x in batch.items()}
    eager, graph = arrays(run(batch)), arrays(compiled(batch))
    keras.tree.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, atol=BOUND), eager, graph
    )


@pytest.mark.skipif(BACKEND != "jax", reason="jax.jit exists on JAX alone")
def test_jitted_passes_agree_with_eager_ones(tiny, tokens, arrays):
    import jax

    model = models.AlbertPretrainer(tiny(num_hidden_layers=1))
    values = [variable.value for variable in model.trainable_variables]
    state = [variable.value for variable in model.non_trainable_variables]

    def forward(values, batch):
        return model.stateless_call(values, state, batch)[0]

    eager, jitted = arrays(model(tokens())), arrays(jax.jit(forward)(values, tokens()))
    keras.tree.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, atol=BOUND), eager, jitted
    )


# --- recompute ---


@pytest.mark.parametrize(
    ("rate", "mode"),
    [
        pytest.param(0.0, "eager", marks=pytest.mark.slow),
        (0.3, "eager"),
        pytest.param(0.3, "xla", marks=[tensorflow_only, pytest.mark.slow]),
    ],
)
def test_recompute_keeps_the_gradients(rate, mode, tiny, tokens, differentiate, arrays):
    rates = {"hidden_dropout_prob": rate, "attention_probs_dropout_prob": rate}
    keras.utils.set_random_seed(7)
    model = models.AlbertPretrainer(tiny(num_hidden_layers=2, **rates))

    def gradients(model):
        def loss():
            return total(model(tokens(), training=True))

        return differentiate(loss, model.trainable_variables)

    def compiled_gradients(model):
        import tensorflow as tf

        compiled = tf.function(run_with_tape, jit_compile=True)
        return arrays(compiled(model, tokens(), training=True)[1])

    pair = []
    for one in (model, twin(model, recompute="block")):
        one.encoder.seed_generator.state.assign([5, 3])
        pair.append((gradients if mode == "eager" else compiled_gradients)(one))
    for one, other in zip(*pair, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6 * max(1, np.abs(one).max()))


@tensorflow_only
@pytest.mark.parametrize("recompute", ["none", "block"])
def test_gradients_of_shared_kernels_are_added_layer_by_layer(recompute, tiny, tokens):
    import tensorflow as tf

    model = models.AlbertEncoder(tiny(recompute=recompute, num_hidden_layers=3))
    kernel = model.blocks[0].feed_forward.intermediate.kernel

    def gradient(batch):
        with tf.GradientTape() as tape:
            loss = ops.sum(model(batch, training=True)["sequence_output"])
        return tape.gradient(loss, kernel.value)

    graph = tf.function(gradient).get_concrete_function(tokens()).graph
    sums = [op for op in graph.get_operations() if op.type == "AddN"]
    sums = [op for op in sums if op.outputs[0].shape == kernel.shape]
    # One sum of three gradients would need all of them in memory.
    assert [len(op.inputs) for op in sums] == [2] * 2


@pytest.mark.skipif(BACKEND != "jax", reason="only JAX tells what a pass stores")
def test_recompute_stores_only_the_input_of_each_block(tiny):
    import jax

    batch = {"input_ids": np.zeros((8, 32), "int32")}
    changes = {"intermediate_size": 5, "max_position_embeddings": 32}

    def bytes_of_a_layer(recompute):
        stored = []
        for layers in (1, 2):
            model = models.AlbertEncoder(
                tiny(num_hidden_layers=layers, recompute=recompute, **changes)
            )

            def forward(values, model=model):
                with keras.StatelessScope(
                    list(zip(model.trainable_variables, values, strict=True))
                ):
                    return model(batch)["sequence_output"]

            _, pull = jax.vjp(forward, [v.value for v in model.trainable_variables])
            stored.append(sum(x.nbytes for x in jax.tree.leaves(pull)))
        return stored[1] - stored[0]

    one_input = 8 * 32 * 12 * 4
    assert bytes_of_a_layer("block") == one_input
    # A tensor [B, N, T, T] is 8 times the input: only one is stored.
    assert 17 < bytes_of_a_layer("none") / one_input < 19


# --- the last layer of models that read the pooler ---


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 2, "recompute": "block"},
        {"num_hidden_layers": 2, "parameter_sharing": "none"},
        {"num_hidden_layers": 1},
        {"num_hidden_layers": 1, "inner_group_num": 2, "recompute": "block"},
    ],
    ids=["shared", "unshared", "one layer", "inner blocks"],
)
def test_selected_positions(changes, tiny, tokens, differentiate, arrays):
    encoder = models.AlbertEncoder(tiny(**changes))
    batch, positions = tokens(), ops.convert_to_tensor([[3, 0, 6], [1, 1, 0]])
    random = np.random.default_rng(3)
    shapes = (2, 1), (2, 1), (2, 3, 1)
    factors = [random.standard_normal(shape, "float32") for shape in shapes]

    def whole():
        outputs = encoder(batch)
        states = heads.gather_positions(outputs["sequence_output"], positions)
        return outputs["pooled_output"], outputs["pooled_output"], states

    def selected():
        return encoder.pooled(batch), *encoder.encode_positions(batch, positions)

    def gradients(encode):
        def loss():
            pairs = zip(encode(), factors, strict=True)
            return sum(ops.sum(ops.multiply(x, factor)) for x, factor in pairs)

        return differentiate(loss, encoder.trainable_variables)

    expected = gradients(whole)
    assert max(np.abs(gradient).max() for gradient in expected) > 0.05
    for one, other in zip(arrays(whole()), arrays(selected()), strict=True):
        np.testing.assert_allclose(one, other, atol=BOUND)
    for one, other in zip(expected, gradients(selected), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.fixture
def last_lengths(monkeypatch):
    """Has a model's feed-forward layer note how many positions it is given."""

    def noting(model):
        feed_forward = model.encoder.blocks[0].feed_forward
        lengths, call = [], feed_forward.call

        def note(hidden, **kwargs):
            lengths.append(hidden.shape[1])
            return call(hidden, **kwargs)

        monkeypatch.setattr(feed_forward, "call", note)
        return lengths

    return noting


@pytest.mark.parametrize(
    ("kind", "options"),
    [(models.AlbertClassifier, {"num_labels": 3}), (models.AlbertMultipleChoice, {})],
)
def test_last_layer_computes_one_position(kind, options, tiny, tokens, last_lengths):
    model = kind(tiny(num_hidden_layers=3), **options)
    lengths = last_lengths(model)
    model(inputs_for(kind, tokens()), training=True)
    assert lengths == [7, 7, 1]


@pytest.mark.parametrize("sentence_head", [True, False])
def test_logits_of_masked_positions(sentence_head, tiny, tokens, last_lengths, arrays):
    model = models.AlbertPretrainer(
        tiny(num_hidden_layers=3), sentence_head=sentence_head
    )
    batch = {**tokens(), "masked_lm_positions": ops.convert_to_tensor([[5, 2], [3, 0]])}
    expected = model(batch)
    lengths = last_lengths(model)
    actual = model.logits(batch)
    assert lengths == [7, 7, 3]
    assert set(actual) == {"mlm_logits", "sop_logits"} & set(expected)
    assert ("sop_logits" in actual) == sentence_head
    for name, logits in actual.items():
        np.testing.assert_allclose(
            arrays(logits), arrays(expected[name]), atol=BOUND, err_msg=name
        )
    message = refusal(model.logits, {"input_ids": batch["input_ids"]})
    assert "lack 'masked_lm_positions'; got" in message


@pytest.mark.parametrize("sharing", ["all", "none"])
def test_recompute_keeps_the_dtype(sharing, tiny, tokens, differentiate, monkeypatch):
    dtypes = []

    def note(x):
        dtypes.append(keras.backend.standardize_dtype(x.dtype))
        return gelu(x)

    monkeypatch.setitem(ACTIVATIONS, "gelu", note)
    config = tiny(num_hidden_layers=2, recompute="block", parameter_sharing=sharing)
    model = models.AlbertEncoder(config, dtype="mixed_bfloat16")

    def loss():
        output = model(tokens(), training=True)["sequence_output"]
        return ops.sum(ops.cast(output, "float32") ** 3)

    gradients = differentiate(loss, model.trainable_variables)
    assert len(dtypes) >= 2 and set(dtypes) == {"bfloat16"}
    assert {str(gradient.dtype) for gradient in gradients} == {"float32"}


# --- dropout and initial values ---

RECORDED_HEADS = {
    "pretraining": (models.AlbertPretrainer, {}, 0.1),
    "classifier": (models.AlbertClassifier, {"num_labels": 3}, 0.1),
    "regression": (models.AlbertClassifier, {"num_labels": 1}, 0.1),
    "squad_v1": (models.AlbertSpanLabeler, {}, 0.1),
    "squad_v2": (models.AlbertConditionalSpanLabeler, {}, 0.3),
    "race": (models.AlbertMultipleChoice, {}, 0.3),
}
# A regression model has the class of the classifier.
HEADS_THAT_DIFFER = [name for name in RECORDED_HEADS if name != "regression"]


def recorded_model(name, num_hidden_layers=3):
    """The model of one entry of heads_init_decay_dropout.json."""
    kind, options, head_dropout = RECORDED_HEADS[name]
    config = AlbertConfig(
        vocab_size=2110,
        embedding_size=32,
        hidden_size=64,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=48,
        initializer_range=0.05,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.2,
        classifier_dropout_prob=head_dropout,
    )
    return kind(config, **options)


def recorded_inputs(name):
    """Inputs of the recorded shapes: 2 rows of 16, or 2 questions of 4 choices."""
    shape = (2, 4, 16) if name == "race" else (2, 16)
    inputs = {"input_ids": np.arange(np.prod(shape), dtype="int32").reshape(shape)}
    if name == "squad_v2":
        inputs["p_mask"] = np.zeros((2, 16), "int32")
        inputs["start_positions"] = np.array([3, 5], "int32")
    return inputs


class Drops(list):
    """Every dropout of a pass, as (input, rate, output).

    `replace`, if set, is done instead: it gets the dropout's number and its input.
    """

    replace = None

    def note(self, x, rate, drop):
        y = self.replace(len(self), x) if self.replace else drop()
        self.append((x, rate, y))
        return y

    def sites(self):
        return [(tuple(x.shape), rate) for x, rate, _ in self]


@pytest.fixture
def drops(monkeypatch):
    """The dropouts of the following passes."""
    seen = Drops()
    function, layer_call = keras.random.dropout, keras.layers.Dropout.call

    def note_function(x, rate, seed):
        return seen.note(x, rate, lambda: function(x, rate, seed=seed))

    @functools.wraps(layer_call)
    def note_layer(self, x, training=False):
        if not training:
            return x
        return seen.note(x, self.rate, lambda: layer_call(self, x, training=True))

    monkeypatch.setattr(keras.random, "dropout", note_function)
    monkeypatch.setattr(keras.layers.Dropout, "call", note_layer)
    return seen


@pytest.mark.parametrize("name", slow_except(HEADS_THAT_DIFFER, RECORDED_HEADS))
def test_training_drops_where_and_as_much_as_released(name, golden, drops, arrays):
    recorded = golden("heads_init_decay_dropout.json")[name]["dropout_sites"]
    model = recorded_model(name)
    model(recorded_inputs(name), training=True)
    if isinstance(model, models.AlbertClassifier | models.AlbertMultipleChoice):
        # The release computed the last layer for positions that nothing reads, too.
        *_, probabilities, attended, output, _ = recorded
        for _, shape, _ in (probabilities, attended, output):
            assert shape[-2] == 16
            shape[-2] = 1
    assert drops.sites() == [
        (tuple(shape), pytest.approx(rate)) for _, shape, rate in recorded
    ]
    for x, rate, y in arrays(list(drops)):
        kept = y != 0
        np.testing.assert_allclose(y[kept], x[kept] / (1 - rate), rtol=1e-5)
        deviation = math.sqrt(rate * (1 - rate) / x.size)
        assert np.mean(~kept) == pytest.approx(rate, abs=5 * deviation)


def test_no_two_dropouts_drop_the_same_values(tiny, tokens, drops, arrays):
    model = models.AlbertEncoder(tiny(num_hidden_layers=2, hidden_dropout_prob=0.5))
    for _ in range(2):
        model(tokens(), training=True)
    patterns = [(y != 0).tobytes() for _, _, y in arrays(list(drops))]
    # Two passes of the embeddings and of two dropouts in each of two layers.
    assert len(set(patterns)) == len(patterns) == 10


@pytest.mark.parametrize("name", slow_except(HEADS_THAT_DIFFER, RECORDED_HEADS))
def test_inference_drops_nothing(name, drops, arrays):
    model = recorded_model(name)
    first, second = (arrays(model(recorded_inputs(name))) for _ in range(2))
    assert drops == []
    keras.tree.map_structure(np.testing.assert_array_equal, first, second)


@pytest.mark.xfail(
    BACKEND == "torch",
    reason="keras.random.truncated_normal draws four times, then takes any value",
    strict=False,
)
@pytest.mark.parametrize("name", RECORDED_HEADS)
def test_initial_values_are_distributed_as_released(name, golden, tmp_path):
    keras.utils.set_random_seed(7)
    ours = read_tf1(weights.save(recorded_model(name), tmp_path / "initial", "tf1"))
    recorded = golden("heads_init_decay_dropout.json")[name]["variables"]
    assert ours.keys() == recorded.keys()
    for variable, expected in recorded.items():
        values = ours[variable]
        assert list(values.shape) == expected["shape"]
        if "TruncatedNormal" not in expected["init_ops"]:
            np.testing.assert_array_equal(values, expected["mean"])
            continue
        # Cut at two deviations, of 0.05 or 0.02.
        cut = 0.1 if expected["absmax"] > 0.04 else 0.04
        assert np.abs(values).max() <= cut
        # Each sampled deviation is known to 1 / sqrt(2 n) of itself: five times both.
        known_to = 5 * math.sqrt(2) / math.sqrt(2 * values.size)
        assert values.std() == pytest.approx(expected["std"], rel=known_to), variable


# --- heads ---

HEADS = {
    "classifier": (models.AlbertClassifier, {"num_labels": 3}),
    "choice": (models.AlbertMultipleChoice, {}),
    "tokens": (models.AlbertTokenClassifier, {"num_labels": 4}),
    "span": (models.AlbertSpanLabeler, {}),
    "conditional span": (
        models.AlbertConditionalSpanLabeler,
        {"start_n_top": 3, "end_n_top": 4},
    ),
}


def inputs_for(kind, batch):
    if kind is models.AlbertMultipleChoice:
        keys = ("input_ids", "input_mask", "segment_ids")
        return {key: np.stack([batch[key]] * 3, axis=1) for key in keys}
    if kind is models.AlbertConditionalSpanLabeler:
        return {**batch, "p_mask": 1 - batch["input_mask"]}
    return batch


@pytest.mark.parametrize(("kind", "options"), HEADS.values(), ids=HEADS)
def test_heads_have_float32_outputs_in_mixed_precision(kind, options, tiny, tokens):
    config = tiny(num_hidden_layers=1)
    model = kind(config, dtype="mixed_bfloat16", **options)
    states = {"embedding_output", "encoder_outputs", "sequence_output", "pooled_output"}
    for name, output in model(inputs_for(kind, tokens())).items():
        if name not in states and not name.endswith("index"):
            assert keras.backend.standardize_dtype(output.dtype) == "float32", name


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ("input_id", "have 'input_id'"),
        ("input_mask", "lack input_ids"),
        ("input_ids token_type_ids", "have 'token_type_ids'"),
        ("token_ids padding_mask", "have 'token_ids', 'padding_mask'"),
    ],
)
@pytest.mark.parametrize("kind", [models.AlbertPretrainer, models.AlbertMultipleChoice])
def test_inputs_of_other_names_are_refused(kind, keys, fault, tiny):
    shape = (2, 3, 5) if kind is models.AlbertMultipleChoice else (2, 5)
    inputs = {key: np.ones(shape, "int32") for key in keys.split()}
    assert refusal(kind(tiny(num_hidden_layers=1)), inputs) == (
        f"the inputs {fault}; expected input_ids, input_mask, segment_ids"
    )


@tensorflow_only
def test_a_graph_is_freed_with_its_function(tiny, tokens):
    import tensorflow as tf

    model = models.AlbertPretrainer(tiny(num_hidden_layers=1))
    run = functools.partial(run_with_tape, model)
    graph = weakref.ref(tf.function(run).get_concrete_function(tokens()).graph)
    gc.collect()
    assert graph() is None


def test_choices_without_tokens_have_no_probability(tiny, tokens, arrays):
    model = models.AlbertMultipleChoice(tiny(num_hidden_layers=1))
    rows = tokens()
    rows = {key: rows[key] for key in ("input_ids", "input_mask", "segment_ids")}
    three = {key: np.stack([x, x[:, ::-1], x], 1) for key, x in rows.items()}
    two = {key: x[:, :2] for key, x in three.items()}
    three["input_mask"] = three["input_mask"] * np.array([1, 1, 0], "int32")[:, None]
    actual, expected = (arrays(ops.softmax(model(x)["logits"])) for x in (three, two))
    np.testing.assert_allclose(actual[:, :2], expected, atol=1e-6)
    assert (actual[:, 2] == 0).all()


@pytest.mark.parametrize(
    ("sharing", "groups", "inner", "attentions", "feed_forwards"),
    [
        ("all", 1, 1, "00000", "00000"),
        ("attention", 1, 1, "00000", "01234"),
        ("ffn", 1, 1, "01234", "00000"),
        ("none", 1, 1, "01234", "01234"),
        ("none", 5, 1, "01234", "01234"),
        ("all", 2, 1, "00011", "00011"),
        ("attention", 2, 1, "00011", "01234"),
        ("ffn", 3, 1, "01234", "00112"),
        ("all", 1, 2, "0101010101", "0101010101"),
        ("all", 2, 2, "0101012323", "0101012323"),
        ("attention", 1, 2, "0101010101", "0123456789"),
        ("ffn", 2, 2, "0123456789", "0101012323"),
    ],
)
def test_every_layer_uses_the_parameters_of_its_group(
    sharing, groups, inner, attentions, feed_forwards, tiny, tokens, monkeypatch
):
    used = {Attention: [], FeedForward: []}
    for kind, calls in used.items():

        @functools.wraps(kind.call)
        def note(self, hidden, *args, _calls=calls, **kwargs):
            _calls.append(self)
            return hidden

        monkeypatch.setattr(kind, "call", note)
        monkeypatch.setattr(kind, "build", lambda self, input_shape=None: None)
    config = tiny(
        parameter_sharing=sharing, num_hidden_groups=groups, inner_group_num=inner
    )
    models.AlbertEncoder(config)({"input_ids": tokens()["input_ids"]})
    for kind, expected in ((Attention, attentions), (FeedForward, feed_forwards)):
        distinct = list(dict.fromkeys(used[kind]))
        assert "".join(str(distinct.index(one)) for one in used[kind]) == expected


@pytest.mark.parametrize("name", slow_except(["squad_v2"], RECORDED_HEADS))
def test_every_dropout_changes_the_outputs_in_its_own_way(name, drops, arrays):
    model = recorded_model(name, num_hidden_layers=1)

    def outputs_without(site):
        def halve(i, x):
            odd = ops.arange(x.shape[-1]) % 2
            return x * ops.cast(odd, x.dtype) if i == site else x

        drops.clear()
        drops.replace = halve
        outputs = arrays(model(recorded_inputs(name), training=True))
        return np.concatenate([x.ravel() for x in keras.tree.flatten(outputs)])

    outputs_without(None)
    results = [outputs_without(site) for site in (None, *range(len(drops)))]
    for one, other in itertools.combinations(results, 2):
        assert np.abs(one - other).max() > 1e-6
