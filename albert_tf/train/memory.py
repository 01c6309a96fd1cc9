"""Estimates the memory that training takes, before any step is made."""

from typing import Any

import keras

from albert_tf.data import cores
from albert_tf.errors import InputError

GIB = 1 << 30
# Fitted, as the other factors, to docs/benchmarks/2026-11-25-memory.md, on CPUs alone:
# TensorFlow's allocators leave gaps between tensors.
_WITH_GAPS = 1.17
# What a process takes beside tensors: Python, TensorFlow, a graph.
_PROCESS = 0.75 * GIB
# The estimate was 0.84 to 1.14 of what was measured: only one that is clearly above is
# refused.
_TOLERANCE = 1.2


def step_bytes(model: keras.Model, task, config, replicas: int) -> float:
    """Estimates the bytes that the tensors of a training step take on each device.

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
    # In float32: weights, two slots, gradients. A second microbatch has gradients of
    # its own beside their sum.
    kinds = 4 if microbatches == 1 else 5
    if replicas > 1:
        # The update does not wait for the gradients: what it makes of the others alone
        # is in memory, too. Fitted to two CPUs.
        kinds += 4
    state = kinds * 4 * model.count_params()
    # Per token and layer: what the backward pass of GELU, norms and attention reads.
    scores = model.config.num_attention_heads * task.sequence_length
    block = 8 * size + 2 * model.config.intermediate_size + scores
    if model.config.attention_probs_dropout_prob:
        block += scores
    kept = layers * size + block if recomputed else layers * block
    tokens = rows * task.tokens_at_once
    activations = tokens * kept * width
    # The gradients of a kernel are added as they come, with copies on the way. In 16
    # bits they wait for each other, in the place of what the backward pass of their
    # layers has read; recomputed blocks have kernels of their own there.
    kernels = size * (4 * size + 2 * model.config.intermediate_size)
    if recomputed or width == 4:
        activations += kernels * 12
    else:
        activations = max(activations, layers * kernels * width)
    outputs = tokens * task.outputs_per_token * 4
    return (state + activations + outputs) * _WITH_GAPS


def run_bytes(model: keras.Model, task, config, strategy: Any) -> float:
    """Estimates the memory of a training run: of each GPU, or of this process.

    Args:
        model: the model.
        task: what is trained.
        config: a `TrainingSettings`.
        strategy: on which devices.

    Returns:
        Bytes. On a CPU they are those of the whole process; they were 0.84 to 1.14 of
        the peaks that were measured (docs/benchmarks/2026-11-25-memory.md).
    """
    needed = step_bytes(model, task, config, strategy.num_replicas_in_sync)
    devices = cpu_devices(strategy)
    return _PROCESS + devices * needed if devices else needed


def cpu_devices(strategy: Any) -> int:
    """Returns how many of this process's devices are CPUs."""
    return sum("CPU" in device for device in strategy.extended.worker_devices)


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
        InputError: training takes more than there is, see `cores.memory`.
    """
    if not (config.do_train and config.check_memory and cpu_devices(strategy)):
        return
    needed = run_bytes(model, task, config, strategy)
    available = cores.memory()
    if needed > _TOLERANCE * available:
        raise InputError(
            f"--train_batch_size={config.train_batch_size}: training needs about "
            f"{needed / GIB:.1f} GiB of memory, and this process can have "
            f"{available / GIB:.1f} GiB; expected a smaller batch, more "
            f"--gradient_accumulation_steps or --recompute=block, or --nocheck_memory "
            f"to try"
        )
