import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import InputError
from albert_tf.model import layers
from albert_tf.tasks.settings.training import TrainingSettings
from albert_tf.train import loop, step
from albert_tf.train.step import Trainer


@pytest.fixture
def scaled():
    """Makes a trainer in float16; all values of its gradients are the argument."""

    def make(gradient):
        config = TrainingSettings(
            output_dir="", precision="float16", num_warmup_steps=0, train_batch_size=1
        )
        strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
        with strategy.scope():
            model = keras.layers.Dense(3, use_bias=False)
            model.build((None, 2))
            optimizer = loop.build_optimizer(config)
            optimizer.build(model.trainable_variables)
        task = types.SimpleNamespace(
            training=None,
            loss_weights=lambda batch: {"loss": tf.constant(1.0)},
            finalize_metrics=lambda means: means,
        )
        trainer = Trainer(task, config, strategy, model, optimizer)
        trainer._compute_gradients = lambda *_: (
            tf.constant([0.25, 6.0, 0.5, 2.0]),  # as `_pack`: loss, tokens, one pair
            [tf.fill((2, 3), gradient)],
        )
        trainer._variables, trainer._metric_names = (
            model.trainable_variables,
            {"train": ["loss"]},
        )
        trainer._iterator = Endless()
        return trainer, optimizer

    return make


class Endless:
    element_spec = tf.TensorSpec([], tf.float32)

    def __next__(self):
        return tf.constant(0.0)


def test_gradients_that_stay_infinite_end_the_run(scaled):
    trainer, optimizer = scaled(float("inf"))
    for number in range(15):
        trainer.train(1)
        scale = keras.ops.convert_to_numpy(optimizer.dynamic_scale)
        assert scale == 2.0 ** (14 - number)
    with pytest.raises(InputError) as mistake:
        trainer.train(3)
    assert str(mistake.value).startswith(
        "step 1: the loss is 0.25, the norm of the gradient inf, at a learning rate of "
        "0.00176 and a loss scale of 1. "
    )


def test_the_norm_of_a_gradient_is_right_where_the_loss_scale_grows(scaled):
    trainer, optimizer = scaled(2.0**15)
    optimizer.step_counter.assign(optimizer.dynamic_growth_steps - 1)
    metrics = trainer.train(1)
    assert keras.ops.convert_to_numpy(optimizer.dynamic_scale) == 2.0**16
    assert metrics["gradient_norm"] == pytest.approx(6**0.5)


def test_steps_in_a_loop_on_the_device_are_the_same_steps(scaled):
    def train(on_tpu):
        trainer, optimizer = scaled(None)
        trainer.model.set_weights([np.ones((2, 3))])
        trainer._on_tpu = on_tpu
        trainer._compute_gradients = lambda batch, _: (
            tf.stack([batch, 6.0, batch, 2.0]),
            [tf.fill((2, 3), batch * optimizer.dynamic_scale)],
        )
        trainer._iterator = iter(tf.data.Dataset.from_tensor_slices([0.1, 0.2, 0.3]))
        metrics = trainer.train(3)
        names = ("loss", "learning_rate", "gradient_norm")
        return [metrics[name] for name in names], *trainer.model.get_weights()

    (metrics, weights), (other_metrics, other_weights) = map(train, (False, True))
    assert other_metrics == pytest.approx(metrics, rel=1e-6)
    np.testing.assert_allclose(other_weights, weights, atol=1e-6)
    assert (weights != 1).all()


def gelu_and_slope(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layers.gelu(x)
    return y, tape.gradient(y, x)


def test_a_fused_gelu_rounds_once():
    x = tf.cast(tf.linspace(-6.0, 6.0, 1001), tf.bfloat16)
    with layers.fuse_gelu(step._fuse):
        compiled = tf.function(gelu_and_slope).get_concrete_function(x)
    calls = [op for op in compiled.graph.get_operations() if "Call" in op.type]
    fused = [op for op in calls if op.node_def.attr["_XlaMustCompile"].b]
    # No intermediate result and no gradient of one.
    assert [len(op.outputs) for op in fused] == [2]
    exact = gelu_and_slope(tf.cast(x, tf.float32))
    for actual, plain, expected in zip(
        compiled(x), gelu_and_slope(x), exact, strict=True
    ):
        assert actual.dtype == tf.bfloat16
        once = 2**-8 * np.abs(expected) + 1e-5  # 8 bits, and the rounding of float32
        assert (np.abs(tf.cast(actual, tf.float32) - expected) <= once).all()
        assert (np.abs(tf.cast(plain, tf.float32) - expected) > once).any()
