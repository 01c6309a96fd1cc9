"""Estimates the memory that a training step takes, before any step is made."""

from typing import Any

import keras

from albert_tf.data import cores
from albert_tf.errors import InputError

GIB = 1 << 30
# The estimate is a little too high: only one that is clearly above is refused.
_TOLERANCE = 1.2


def step_bytes(model: keras.Model, task, config, replicas: int) -> float:
    """Estimates the bytes that a training step takes on each device, a little too high.

    Args:
        model: the model.
        task: what is trained.
        config: a `TrainingSettings`.
        replicas: number of devices.
    """
    microbatches = config.gradient_accumulation_steps
    rows = config.train_batch_size // replicas // microbatches
    size, width = model.config.hidden_size, 2 if "16" in model.compute_dtype else 4
    layers = model.config.num_hidden_layers * model.config.inner_group_num
    recomputed = model.config.recompute == "block"
    # In float32: weights, gradients and two slots, and as much again in an update. A
    # second microbatch has gradients of its own beside their sum.
    state = (8 if microbatches == 1 else 10) * 4 * model.count_params()
    # The gradients of all layers' kernels are there at once, in the compute dtype; of
    # recomputed blocks they are added as they come, in float32, with copies on the way.
    kernels = size * (4 * size + 2 * model.config.intermediate_size)
    state += kernels * (16 if recomputed else layers * width)
    # Per token and layer: what the backward pass of GELU, norms and attention reads.
    scores = model.config.num_attention_heads * task.sequence_length
    block = 9 * size + 4 * model.config.intermediate_size + scores
    if model.config.attention_probs_dropout_prob:
        block += scores
    activations = layers * size + block if recomputed else layers * block
    activations += 2 * scores  # on the way, of one layer at a time
    per_token = activations * width + task.outputs_per_token * 4
    return state + rows * task.tokens_at_once * per_token


def check(model: keras.Model, task, config, strategy: Any) -> None:
    """Refuses training steps that do not fit into the memory of this machine's CPU.

    What other processes use is not counted. A GPU's own memory is left to TensorFlow,
    which names the tensor that did not fit.

    Args:
        model: the model.
        task: what is trained.
        config: a `TrainingSettings`.
        strategy: on which devices.

    Raises:
        InputError: a step takes more than there is, see `cores.memory`.
    """
    devices = strategy.extended.worker_devices
    on_cpu = [device for device in devices if "CPU" in device]
    if not (config.do_train and config.check_memory and on_cpu):
        return
    needed = step_bytes(model, task, config, strategy.num_replicas_in_sync)
    needed *= len(on_cpu)
    available = cores.memory()
    if needed > _TOLERANCE * available:
        raise InputError(
            f"--train_batch_size={config.train_batch_size}: a step needs about "
            f"{needed / GIB:.1f} GiB of memory, and this process can have "
            f"{available / GIB:.1f} GiB; expected a smaller batch, more "
            f"--gradient_accumulation_steps or --recompute=block, or --nocheck_memory "
            f"to try"
        )
