"""The optimizers and the learning rate do what the released ones did, step by step."""

import json

import keras
import numpy as np
import pytest
from helpers import DATA, SHARED, refusal
from keras import ops

from albert_tf import AlbertConfig, AlbertPretrainer, weights
from albert_tf.model import heads, optimizers
from albert_tf.weights.names import expand

CURVE = SHARED / "golden/training_curve_lamb"
TABLES = json.loads((DATA / "lr_tables.json").read_text())
BOTH = pytest.mark.parametrize("name", ["adamw", "lamb"])
CLASSES = {"adamw": optimizers.AdamW, "lamb": optimizers.Lamb}

on_tensorflow = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="of the TensorFlow backend"
)

# Its gradient is 0 in exact arithmetic: the recorded one is rounding noise, which AdamW
# divides by its epsilon of 1e-6. Some processors moved it by 4e-5 in five steps.
NOISE = "attention_1/self/key/bias"


def variable(values, name="kernel"):
    return keras.Variable(np.array(values, "float32"), name=name)


def numpy(x):
    return ops.convert_to_numpy(x)


# --- the learning rate ---


@pytest.mark.parametrize("table", TABLES)
def test_rates_are_exactly_the_released_ones(table):
    schedule = optimizers.WarmupPolynomialDecay(
        table["init_lr"],
        table["num_train_steps"],
        table["num_warmup_steps"],
        power=table["poly_power"],
        start_warmup_step=table["start_warmup_step"],
    )
    rates = [numpy(schedule(ops.convert_to_tensor(k))) for k in range(len(table["lr"]))]
    assert {rate.dtype for rate in rates} == {np.dtype("float32")}
    # The release went below 0 before its warm-up began.
    np.testing.assert_array_equal(rates, np.maximum(np.float32(table["lr"]), 0))


@pytest.mark.parametrize("power", [0.5, 1.0, 3.0])
def test_the_rate_ends_at_zero_however_the_steps_divide(power):
    # 49 * (1 / 49) is not 1 in float32.
    for total in (3, 41, 49, 10_000_000):
        schedule = optimizers.WarmupPolynomialDecay(0.1, total, 0, power=power)
        assert numpy(schedule(total)) == numpy(schedule(2 * total)) == 0
        assert 0 <= numpy(schedule(total - 1)) < 0.1


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("learning_rate", -1.0, "a number of at least 0"),
        ("learning_rate", float("nan"), "a number of at least 0"),
        ("power", -0.5, "a number of at least 0"),
        ("num_train_steps", 0, "an integer of at least 1"),
        ("num_warmup_steps", -1, "an integer of at least 0"),
        ("num_warmup_steps", 0.1, "an integer of at least 0"),
        ("start_warmup_step", -2, "an integer of at least 0"),
    ],
)
def test_rates_that_make_no_sense_are_refused(name, value, message):
    sizes = {"learning_rate": 0.1, "num_train_steps": 7, "num_warmup_steps": 2}
    refused = refusal(optimizers.WarmupPolynomialDecay, **{**sizes, name: value})
    assert refused.startswith(f"{name}={value}: expected {message}")


# --- one step, by hand ---


def test_one_step_of_adamw_by_hand():
    # Both gradients together have the norm 5, which is clipped to 2.5: 1.5 and 2.
    w, b = variable([4.0]), variable([3.0], "output_bias")
    optimizer = optimizers.AdamW(
        0.1, weight_decay=0.5, beta_1=0.5, beta_2=0.75, epsilon=1.0, global_clipnorm=2.5
    )
    optimizer.apply([ops.array([3.0]), ops.array([4.0])], [w, b])
    # m = 0.75, v = 0.5625: 0.75 / 1.75 + 0.5 * 4; the bias does not decay.
    assert numpy(w)[0] == pytest.approx(4 - 0.1 * (0.75 / 1.75 + 2))
    assert numpy(b)[0] == pytest.approx(3 - 0.1 * (1 / 2))
    assert numpy(optimizer.slots(b)["adam_m"])[0] == pytest.approx(1)
    assert numpy(optimizer.slots(w)["adam_v"])[0] == pytest.approx(0.5625)


def test_one_step_of_lamb_by_hand():
    w, gamma = variable([3.0, 4.0]), variable([2.0], "gamma")
    optimizer = optimizers.Lamb(
        0.1, weight_decay=0.5, beta_1=0, beta_2=0, epsilon=0.0, global_clipnorm=None
    )
    optimizer.apply([ops.array([-6.0, 8.0]), ops.array([7.0])], [w, gamma])
    # Without memory each moment is the gradient: -1 and 1, and half the weight.
    update = np.array([-1 + 1.5, 1 + 2.0])
    ratio = 5 / np.sqrt(0.25 + 9)
    np.testing.assert_allclose(numpy(w), [3, 4] - 0.1 * ratio * update, rtol=1e-6)
    assert numpy(gamma)[0] == pytest.approx(2 - 0.1)


# --- recorded steps ---


@pytest.fixture(scope="module")
def small(golden):
    """Returns a function that resets the recorded model, and its batch."""
    recorded = {**golden("model_small"), **golden("pretrain_small")}
    batch = {k[3:]: v for k, v in recorded.items() if k.startswith("in/")}
    config = AlbertConfig.from_dict(golden("model_small.config.json"))
    model = AlbertPretrainer(config)

    def reset():
        for target in expand(model, "tf1"):
            target.variable.assign(target.from_format(recorded[f"var/{target.name}"]))
        return model

    return reset, batch


def loss_of(model, batch):
    inputs = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions")
    outputs = model({key: batch[key] for key in inputs}, training=True)
    shares = ops.cast(batch["masked_lm_weights"], "float32")
    each = heads.masked_lm_loss(outputs["mlm_logits"], batch["masked_lm_ids"])
    masked_lm = ops.sum(each * shares) / (ops.sum(shares) + heads.MASKED_LM_EPSILON)
    labels = ops.reshape(batch["next_sentence_labels"], (-1,))
    sentence = heads.classification_loss(outputs["sop_logits"], labels)
    return masked_lm, ops.mean(sentence)


def schedule_of_recording():
    return optimizers.WarmupPolynomialDecay(0.02, 8, 2)


def recorded_gradients(model, golden):
    recorded = golden("pretrain_small")
    of = {id(t.variable): t for t in expand(model, "tf1")}
    targets = [of[id(v)] for v in model.trainable_variables]
    return [t.from_format(recorded[f"grad/{t.name}"]) for t in targets]


def assert_close(target, ours, expected, bound, noise=0.0):
    """Compares values with those recorded, relative to the largest."""
    error = np.abs(numpy(target.to_format(ours)) - expected).max()
    assert error <= bound * np.abs(expected).max() + noise, target.name


def assert_weights(model, recorded, section, bound, noise=0.0):
    for target in expand(model, "tf1"):
        expected = recorded[f"{section}/{target.name}"]
        added = noise if target.name.endswith(NOISE) else 0
        assert_close(target, numpy(target.variable), expected, bound, added)


@BOTH
def test_recorded_gradients_lead_to_the_recorded_weights(name, small, golden):
    # The rate of the first step is 0, so that the second has the same gradients.
    model = small[0]()
    optimizer = CLASSES[name](schedule_of_recording())
    gradients = [ops.array(g) for g in recorded_gradients(model, golden)]
    variables = model.trainable_variables
    before = [numpy(v) for v in variables]
    optimizer.apply(gradients, variables)
    for a, b in zip(before, variables, strict=True):
        np.testing.assert_array_equal(a, numpy(b))
    optimizer.apply(gradients, variables)
    recorded = golden("optimizers")
    assert_weights(model, recorded, f"{name}_onehot/step2", 1e-6)
    norm = np.linalg.norm(numpy(optimizers.norms(gradients)))
    assert norm == pytest.approx(recorded[f"{name}_onehot/global_norm"][0], rel=1e-6)
    assert int(numpy(optimizer.iterations)) == 2


@pytest.fixture(scope="module")
def train(small):
    """Takes five steps; returns the model, the losses and the gradient norms."""
    import tensorflow as tf

    reset, batch = small
    model = reset()
    variables = model.trainable_variables

    @tf.function(autograph=False)
    def differentiate():
        with tf.GradientTape() as tape:
            loss = sum(loss_of(model, batch))
        gradients = tape.gradient(loss, [v.value for v in variables])
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]

    def call(optimizer, divisors=(1, 1, 1, 1, 1)):
        losses, norms = [], []
        reset()
        for divisor in divisors:
            loss, gradients = differentiate()
            gradients = [gradient / divisor for gradient in gradients]
            optimizer.apply(gradients, variables)
            losses.append(loss)
            norms.append(np.linalg.norm(numpy(optimizers.norms(gradients))))
        return model, losses, norms

    return call


@on_tensorflow
@BOTH
def test_five_steps_end_where_the_recorded_ones_did(name, train, golden):
    recorded = golden("optimizers")
    optimizer = CLASSES[name](schedule_of_recording())
    model, losses, norms = train(optimizer)
    section = f"{name}_onehot"
    np.testing.assert_allclose(losses, recorded[f"{section}/loss"][:5], rtol=2e-6)
    np.testing.assert_allclose(norms, recorded[f"{section}/global_norm"], rtol=5e-6)
    # The model's noise of 1e-7 in gradients near 0 is scaled up to whole steps.
    assert_weights(model, recorded, f"{section}/step5", 1e-4, noise=1e-4)
    for target in expand(model, "tf1"):
        for slot, value in optimizer.slots(target.variable).items():
            expected = recorded[f"{section}/slots_after5/{target.name}/{slot}"]
            ours = numpy(target.to_format(value))
            noise = 1e-8 if target.name.endswith(NOISE) else 0
            bound = 1e-4 * np.abs(expected).max() + noise
            assert np.abs(ours - expected).max() <= bound, (target.name, slot)


@on_tensorflow
def test_five_steps_give_the_slots_of_the_release(train, golden, data):
    # It was made with lookups, which the release clipped by another norm.
    norms = golden("optimizers")["lamb_lookup/global_norm"]
    optimizer = optimizers.Lamb(schedule_of_recording(), global_clipnorm=None)
    model, *_ = train(optimizer, divisors=norms)
    released = AlbertPretrainer(model.config)
    theirs = optimizers.Lamb(schedule_of_recording())
    weights.load(released, data / "pretrain_small_lamb5.ckpt", optimizer=theirs)
    assert int(numpy(theirs.iterations)) == int(numpy(optimizer.iterations)) == 5
    for a, b in zip(
        model.trainable_variables, released.trainable_variables, strict=True
    ):
        # The softmax drops what a bias of keys adds: its gradient is 0, so its slots
        # are the processor's rounding, and its steps too, which epsilon alone damps.
        noise = 1e-8 if "key/bias" in a.path else 0
        bound = max(3e-5, 0.02 * noise / 1e-6)
        np.testing.assert_allclose(numpy(a), numpy(b), rtol=0, atol=bound)
        for slot in ("adam_m", "adam_v"):
            ours, loaded = numpy(optimizer.slots(a)[slot]), numpy(theirs.slots(b)[slot])
            bound = 1e-4 * np.abs(loaded).max() + noise
            assert np.abs(ours - loaded).max() <= bound, (a.path, slot)


@pytest.mark.parametrize("scale", ["1", "0.001"])
def test_clipping_scales_down_and_never_up(scale, small, golden):
    model, recorded, section = small[0](), golden("optimizers"), f"clip_scale_{scale}"
    optimizer = optimizers.AdamW(optimizers.WarmupPolynomialDecay(0.02, 8, 0))
    gradients = recorded_gradients(model, golden)
    gradients = [ops.array(float(scale) * gradient) for gradient in gradients]
    optimizer.apply(gradients, model.trainable_variables)
    norm = np.linalg.norm(numpy(optimizers.norms(gradients)))
    assert norm == pytest.approx(recorded[f"{section}/global_norm"], rel=1e-6)
    checked = 0
    for target in expand(model, "tf1"):
        key = f"{section}/after1/{target.name}"
        if key in recorded:
            assert_close(target, numpy(target.variable), recorded[key], 1e-6)
            slot = numpy(optimizer.slots(target.variable)["adam_m"])
            expected = recorded[f"{section}/adam_m/{target.name}"]
            assert_close(target, slot, expected, 2e-6)
            checked += 1
    assert checked == 11


@BOTH
def test_recorded_edge_cases(name, golden, differentiate):
    # A weight of zeros, a gradient of zeros, no path to the loss, and two biases.
    recorded = golden("optimizers")
    section = f"edge_{name}"
    names = (
        *("zero_weight/kernel", "zero_grad/kernel", "plain/kernel", "plain/bias"),
        *("no_path/kernel", "big/output_bias"),
    )
    w = [variable(recorded[f"{section}/step0/{n}"], n.split("/")[1]) for n in names]
    x = ops.convert_to_tensor(recorded[f"{section}/in_x"])
    schedule = optimizers.WarmupPolynomialDecay(0.1, 10, 0)
    optimizer = CLASSES[name](schedule)

    def loss():
        return (
            ops.sum(w[0] * x)
            + 0 * ops.sum(w[1])
            + ops.sum(ops.square(w[2]) * x)
            + ops.sum(ops.square(w[3]))
            + 3 * ops.sum(ops.square(w[5]))
        )

    for step in (1, 2, 3):
        gradients = [ops.array(g) for g in differentiate(loss, w)]
        gradients[4] = None
        optimizer.apply(gradients, w)
        for n, v in zip(names, w, strict=True):
            expected = recorded[f"{section}/step{step}/{n}"]
            np.testing.assert_allclose(numpy(v), expected, rtol=1e-6, atol=1e-7)


# --- properties ---


@BOTH
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_spoils_every_weight(name, bad):
    w = [variable([1.0, 2.0]), variable([3.0], "bias")]
    CLASSES[name](0.1).apply([ops.array([1.0, bad]), ops.array([1.0])], w)
    assert all(np.isnan(numpy(v)).all() for v in w)


def test_the_names_of_layers_do_not_stop_the_decay():
    with keras.name_scope("debiased"):
        w = variable([1.0, 2.0])
    assert w.path == "debiased/kernel"
    optimizers.AdamW(0.1).apply([ops.zeros(2)], [w])
    np.testing.assert_allclose(numpy(w), 0.999 * np.array([1, 2]), rtol=1e-6)


def test_the_weights_of_a_model_that_decay_are_its_tables_and_kernels(tiny):
    variables = AlbertPretrainer(tiny(num_hidden_layers=1)).trainable_variables
    before = [numpy(v) for v in variables]
    for v, x in zip(variables, before, strict=True):
        v.assign(x + 1)
    optimizer = optimizers.AdamW(0.1)
    optimizer.apply([ops.zeros(v.shape) for v in variables], variables)
    decayed = {
        v.name
        for v, x in zip(variables, before, strict=True)
        if not (numpy(v) == x + 1).all()
    }
    assert decayed == {"word", "segment", "position", "kernel"}


@BOTH
def test_the_configuration_makes_the_same_optimizer(name):
    schedule = optimizers.WarmupPolynomialDecay(0.3, 11, 4, 2.0, start_warmup_step=1)
    optimizer = CLASSES[name](
        schedule, 0.02, beta_1=0.8, beta_2=0.95, epsilon=1e-3, global_clipnorm=0.7
    )
    stored = json.loads(json.dumps(keras.saving.serialize_keras_object(optimizer)))
    copy = keras.saving.deserialize_keras_object(stored)
    assert type(copy) is CLASSES[name]
    assert copy.get_config() == optimizer.get_config()
    pair = [variable([1.0, 2.0]), variable([1.0, 2.0])]
    for _ in range(4):
        for v, o in zip(pair, (optimizer, copy), strict=True):
            o.apply([ops.array([0.5, -2.0])], [v])
    np.testing.assert_array_equal(numpy(pair[0]), numpy(pair[1]))
    assert abs(numpy(pair[0]) - [1, 2]).min() > 0.1


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="of the JAX backend")
@BOTH
def test_the_stateless_update_is_the_same(name):
    import jax

    gradients = [ops.array([3.0, -4.0]), ops.array([1.0])]
    w, copy = ([variable([1.0, 2.0]), variable([3.0], "bias")] for _ in range(2))
    CLASSES[name](0.1).apply(gradients, w)
    optimizer = CLASSES[name](0.1)
    optimizer.build(copy)
    values, _ = jax.jit(optimizer.stateless_apply)(
        [v.value for v in optimizer.variables], gradients, [v.value for v in copy]
    )
    for a, b in zip(w, values, strict=True):
        np.testing.assert_allclose(numpy(a), numpy(b), rtol=1e-6)


# --- TensorFlow ---


@on_tensorflow
def test_rows_that_were_looked_up_twice_count_once():
    import tensorflow as tf

    table, dense = variable(np.ones((5, 2))), variable(np.ones((5, 2)))
    rows = tf.constant([[1.0, 2.0], [5.0, 0.0], [3.0, 1.0]])
    sparse = tf.IndexedSlices(rows, tf.constant([4, 1, 4]), tf.constant([5, 2]))
    one, other = optimizers.Lamb(0.1), optimizers.Lamb(0.1)
    one.apply([sparse], [table])
    other.apply([tf.convert_to_tensor(sparse)], [dense])
    np.testing.assert_array_equal(numpy(table), numpy(dense))


# --- two hundred recorded steps: the warm-up, and the second half ---


def curve_batches():
    import tensorflow as tf

    ints = {"input_ids": 128, "input_mask": 128, "segment_ids": 128}
    ints |= {"masked_lm_positions": 20, "masked_lm_ids": 20, "next_sentence_labels": 1}
    spec = {key: tf.io.FixedLenFeature([size], tf.int64) for key, size in ints.items()}
    spec["masked_lm_weights"] = tf.io.FixedLenFeature([20], tf.float32)
    records = tf.data.TFRecordDataset(str(CURVE / "batches.tfrecord"))
    return records.batch(16, drop_remainder=True).map(
        lambda batch: tf.io.parse_example(batch, spec)
    )


@on_tensorflow
@pytest.mark.skipif(not CURVE.exists(), reason="needs the recorded training run")
@pytest.mark.parametrize(
    ("start", "steps"), [pytest.param("init", 25, marks=pytest.mark.slow), ("mid", 100)]
)
def test_a_recorded_training_run_is_repeated(start, steps):
    import tensorflow as tf

    model = AlbertPretrainer(AlbertConfig.from_json_file(CURVE / "config.json"))
    optimizer = optimizers.Lamb(optimizers.WarmupPolynomialDecay(0.003, 200, 20))
    resumed = optimizer if start == "mid" else None
    weights.load(model, CURVE / f"{start}.ckpt", optimizer=resumed)
    first = int(numpy(optimizer.iterations))
    assert first == {"init": 0, "mid": 100}[start]
    variables = model.trainable_variables
    optimizer.build(variables)

    @tf.function
    def step(batch):
        with tf.GradientTape() as tape:
            masked_lm, sentence = loss_of(model, batch)
            total = masked_lm + sentence
        gradients = tape.gradient(total, [v.value for v in variables])
        optimizer.apply(gradients, variables)
        return tf.stack([total, masked_lm, sentence])

    batches = curve_batches().skip(first).take(steps)
    losses = np.array([step(batch) for batch in batches])
    recorded = json.loads((CURVE / "losses.json").read_text())
    expected = recorded["losses [total, mlm, sop]"][first : first + steps]
    # An absolute bound; rounding noise alone moved the released losses by 1e-6.
    np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-4)
    if start == "mid":
        final, state = AlbertPretrainer(model.config), optimizers.Lamb(0.1)
        weights.load(final, CURVE / "final.ckpt", optimizer=state)
        assert int(numpy(state.iterations)) == int(numpy(optimizer.iterations))
        for a, b in zip(variables, final.trainable_variables, strict=True):
            np.testing.assert_allclose(numpy(a), numpy(b), rtol=0, atol=1e-5)
