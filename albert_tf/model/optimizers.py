"""LAMB and AdamW as released, and their learning rate, written with `keras.ops` only.

Keras's `Lamb` and `AdamW` correct the bias of their moments, and decay the weights
before the update. The released optimizers do not correct the bias, and decay the
weights in the update.
"""

import math

import keras
import numpy as np
from keras import ops

from albert_tf.errors import InputError

# Weights whose names end in one of these have no decay and no LAMB scaling. The
# released code excludes the same weights: names with LayerNorm, layer_norm or bias.
_EXCLUDED = ("gamma", "beta", "bias")


@keras.saving.register_keras_serializable("albert_tf")
class WarmupPolynomialDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up followed by polynomial decay to 0, as released.

    The step s is the number of updates before this update. The rate is:

        decay:    learning_rate * (1 - min(s, num_train_steps) / num_train_steps)^power
        warm-up:  learning_rate * (s - start_warmup_step) / num_warmup_steps

    The warm-up lasts while `s < start_warmup_step + num_warmup_steps`, even beyond the
    end of training. The decay counts from step 0, so the rate drops at the end of the
    warm-up. From `num_train_steps` on, the decay formula gives 0, unless `power` is 0.

    Before `start_warmup_step`, the rate is 0. **As released:** the released rate is
    negative there.

    Args:
        learning_rate: the rate without warm-up and decay, at least 0 (published for
            pretraining: 0.00176).
        num_train_steps: steps until the rate is 0, at least 1.
        num_warmup_steps: steps of the warm-up, 0 for none.
        power: exponent of the decay, at least 0: 1 for a linear decay, 0 for none.
        start_warmup_step: step at which the warm-up begins; ignored without a warm-up.

    Raises:
        InputError: an argument is out of its range.
    """

    def __init__(
        self,
        learning_rate: float,
        num_train_steps: int,
        num_warmup_steps: int,
        power: float = 1.0,
        start_warmup_step: int = 0,
    ):
        _check_number("learning_rate", learning_rate)
        _check_number("power", power)
        _check_steps("num_train_steps", num_train_steps, least=1)
        _check_steps("num_warmup_steps", num_warmup_steps)
        _check_steps("start_warmup_step", start_warmup_step)
        self.learning_rate = learning_rate
        self.num_train_steps = num_train_steps
        self.num_warmup_steps = num_warmup_steps
        self.power = power
        self.start_warmup_step = start_warmup_step

    def __call__(self, step):
        """Returns the rate, float32 [], of a step, int []."""
        step = ops.cast(step, "float32")
        # The order of operations is that of the released graph, because another order
        # rounds differently. At step `num_train_steps`, rounding can leave a small
        # number above 0, for example with 41 steps; `where` makes it 0.
        remaining = ops.maximum(1.0 - step * (1.0 / self.num_train_steps), 0.0)
        remaining = ops.where(step < self.num_train_steps, remaining, 0.0)
        rate = self.learning_rate * ops.power(remaining, self.power)
        if not self.num_warmup_steps:
            return rate
        elapsed = step - self.start_warmup_step
        slope = np.float32(self.learning_rate) / np.float32(self.num_warmup_steps)
        warmup = ops.maximum(elapsed, 0.0) * slope
        return ops.where(elapsed < self.num_warmup_steps, warmup, rate)

    def get_config(self):
        return dict(vars(self))


class AlbertAdamBase(keras.optimizers.Optimizer):
    """The common part of the two released optimizers.

    The update of a weight w with the clipped gradient g and the moments m and v, whose
    bias is not corrected:

        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * g^2
        u = m / (sqrt(v) + epsilon) + weight_decay * w
        w = w - rate * u

    Weights whose names end in gamma, beta or bias do not decay. A global norm that is
    not finite makes every weight NaN, as in TensorFlow's clipping. Under
    `tf.distribute`, the caller must first sum the gradients over the replicas, because
    clipping uses the norm of the sum.

    Update number s, counted from 0, uses the rate of step s. **As released:** on CPU,
    the released train_op used the rate of step s + 1. On TPU, the released code clipped
    the gradient of each replica before the sum.

    Args:
        learning_rate: a schedule, or a constant float.
        weight_decay: factor of the weight w in the update u.
        beta_1: decay of the first moment m, in [0, 1).
        beta_2: decay of the second moment v, in [0, 1).
        epsilon: number added to the root of the second moment.
        global_clipnorm: maximum global norm of the gradients; None for no clipping.
        name: name of the optimizer.
    """

    def __init__(
        self,
        learning_rate,
        weight_decay: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        global_clipnorm: float | None = 1.0,
        name: str | None = None,
    ):
        super().__init__(
            learning_rate,
            weight_decay=weight_decay,
            global_clipnorm=global_clipnorm,
            name=name,
        )
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        # The index of each variable in the argument of `build`, by the variable's `id`.
        self._indices: dict[int, int] = {}

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self._adam_m, self._adam_v = self.add_optimizer_variables(
            variables, ["adam_m", "adam_v"]
        )
        self._variables_to_update = list(variables)
        self._indices = {id(variable): i for i, variable in enumerate(variables)}

    def slots(self, variable) -> dict[str, keras.Variable]:
        """Returns a variable's slots by their released names, adam_m and adam_v.

        Returns an empty dict for a variable that was not given to `build`.
        """
        index = self._indices.get(id(variable))
        if index is None:
            return {}
        return {"adam_m": self._adam_m[index], "adam_v": self._adam_v[index]}

    def apply(self, grads, trainable_variables=None):
        """Clips gradients by their global norm, and updates the variables.

        Args:
            grads: a gradient for each variable; None leaves the variable unchanged.
            trainable_variables: the variables; by default the argument of `build`.
        """
        variables = trainable_variables or self._variables_to_update
        if not self.built:
            self.build(variables)
        pairs = [
            # Reshaping makes TensorFlow's IndexedSlices dense.
            (ops.reshape(gradient, variable.shape), variable)
            for gradient, variable in zip(grads, variables, strict=True)
            if gradient is not None
        ]
        scale = ops.ones(())
        if self.global_clipnorm is not None:
            norm = ops.sqrt(ops.sum(ops.square(norms([g for g, _ in pairs]))))
            scale = self.global_clipnorm / ops.maximum(norm, self.global_clipnorm)
            scale += norm - norm  # makes the scale NaN if the norm is infinite
        rate = self.learning_rate
        for gradient, variable in pairs:
            self.update_step(gradient, variable, rate, scale)
        self.iterations.assign_add(1)

    def update_step(self, gradient, variable, learning_rate, scale=1.0):
        """Updates one variable and its slots.

        Args:
            gradient: the variable's gradient, not clipped.
            variable: the variable.
            learning_rate: float32 [].
            scale: float32 [], the factor of gradient clipping.
        """
        # Scalars are multiplied first, because each product with a tensor reads the
        # whole tensor. `apply` computes the same `square` for the global norm; a graph
        # computes the square only once.
        rate = ops.cast(learning_rate, variable.dtype)
        scale = ops.cast(scale, variable.dtype)
        gradient = ops.cast(gradient, variable.dtype)
        slots = self.slots(variable)
        m = self.beta_1 * slots["adam_m"] + ((1.0 - self.beta_1) * scale) * gradient
        self.assign(slots["adam_m"], m)
        square = ops.square(gradient)
        v = self.beta_2 * slots["adam_v"] + ((1.0 - self.beta_2) * scale**2) * square
        self.assign(slots["adam_v"], v)
        update = m / (ops.sqrt(v) + self.epsilon)
        if variable.name.endswith(_EXCLUDED):
            self.assign(variable, variable - rate * update)
        else:
            self.assign(variable, self._apply_decay_and_rate(variable, update, rate))

    def _apply_decay_and_rate(self, variable, update, rate):
        """Returns the new value of a variable that decays.

        `update` is m / (sqrt(v) + epsilon): this method adds the decay to it.
        """
        raise NotImplementedError  # implemented by AdamW and Lamb

    def get_config(self):
        config = super().get_config()
        names = ("name", "learning_rate", "weight_decay", "global_clipnorm")
        attributes = {n: getattr(self, n) for n in ("beta_1", "beta_2", "epsilon")}
        return {name: config[name] for name in names} | attributes


@keras.saving.register_keras_serializable("albert_tf")
class AdamW(AlbertAdamBase):
    """Adam with weight decay in the update u, not in the gradient g, as released.

    Arguments and attributes: `AlbertAdamBase`. The released fine-tuning used AdamW,
    even for models that were pretrained with LAMB.
    """

    def _apply_decay_and_rate(self, variable, update, rate):
        return (1.0 - rate * self.weight_decay) * variable - rate * update


@keras.saving.register_keras_serializable("albert_tf")
class Lamb(AlbertAdamBase):
    """LAMB (You et al., 2020, arXiv 1904.00962), as released, for pretraining.

    Arguments and attributes: `AlbertAdamBase`. For a weight with decay, the rate is
    multiplied by the norm of the weight over the norm of u. If either norm is 0, the
    factor is 1.
    """

    def _apply_decay_and_rate(self, variable, update, rate):
        update += self.weight_decay * variable
        weight_norm, update_norm = _norm(variable), _norm(update)
        valid = ops.logical_and(weight_norm > 0, update_norm > 0)
        # The inner `where` prevents a division by 0.
        ratio = ops.where(valid, weight_norm / ops.where(valid, update_norm, 1.0), 1.0)
        return variable - (rate * ops.cast(ratio, variable.dtype)) * update


def norms(gradients):
    """Returns the Euclidean norm of each tensor, float32 [number of tensors]."""
    return ops.stack([_norm(gradient) for gradient in gradients])


def _norm(x):
    """Returns the Euclidean norm, float32 [], of a tensor."""
    return ops.sqrt(ops.sum(ops.square(ops.cast(x, "float32"))))


def _check_number(name: str, value: float) -> None:
    if not (isinstance(value, int | float) and 0 <= value < math.inf):
        raise InputError(f"{name}={value!r}: expected a number of at least 0")


def _check_steps(name: str, value: int, least: int = 0) -> None:
    if not (isinstance(value, int) and value >= least):
        raise InputError(f"{name}={value!r}: expected an integer of at least {least}")
