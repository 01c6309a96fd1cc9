"""Models for other runtimes: LiteRT (TensorFlow Lite) and ONNX.

The blocks that ALBERT's layers share are in these files once.

signatures  inputs and outputs of each class of model, and its graph in float32
litert      to LiteRT
onnx_graph  to ONNX: the graph written by hand, the shared block as a function
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from albert_tf.data.files import atomic
from albert_tf.errors import InputError
from albert_tf.serve.runtimes.signatures import in_float32, signature
from albert_tf.serve.sessions import SUFFIXES, Session, check_installed, load

__all__ = [
    "SUFFIXES",
    "choose",
    "in_tensorflow",
    "load",
    "save",
    "session_of",
]

# Neither format holds more in one file.
MOST_BYTES = 2**31 - 2**20

Runner = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


def save(
    model: keras.Model,
    path: str | Path,
    format: str,
    *,
    precision: str = "float32",
    outputs: Sequence[str] = (),
) -> Path:
    """Writes a model for another runtime; all of it or nothing.

    The inputs are int32, all of them needed: `input_ids`, `input_mask` and
    `segment_ids` [B, T] ([B, C, T] for choices), and where the model has them `p_mask`
    [B, T] and `masked_lm_positions` [B, P]. Outputs are named as in Keras.

    Args:
        model: one of the models of `albert_tf.model.models`.
        path: a file that ends in `.tflite` or `.onnx`.
        format: "litert" or "onnx".
        precision: how the weights are stored. With "float16" and "float32" the
            runtime computes in float32; with "int8" it also rounds what is multiplied
            with a weight to 8 bits, with a scale found as it runs: LiteRT one for each
            token, ONNX one for the whole batch, so that there an answer depends a
            little on the batch. LiteRT's int8 file of a pretraining model has the word
            table twice, rounded for the lookup and for the output.
        outputs: names of the outputs; without it those of the head, or
            `sequence_output` and `pooled_output` of an encoder.

    Returns:
        the path.

    Raises:
        InputError: a file name that does not end as the format's do, an unknown output,
            a model that is not one of ours or is too large for the format, no package
            `onnx`, or a path that cannot be written.
    """
    path = Path(path)
    if path.suffix != SUFFIXES.get(format):
        ends = ", ".join(f"{end} ({name})" for name, end in SUFFIXES.items())
        raise InputError(f"{path}, format={format!r}: expected a file of {ends}")
    spec = signature(model, outputs)
    size = model.count_params() * np.dtype(precision).itemsize
    if size > MOST_BYTES:
        raise InputError(
            f"{path}: {size:,} bytes of weights; the format holds {MOST_BYTES:,}"
        )
    _write(path, module_of(format).convert(in_float32(model), spec, precision))
    return path


def session_of(model: keras.Model, format: str, outputs: Sequence[str] = ()) -> Session:
    """Returns what another runtime computes of a model, with the weights of now.

    Args:
        model: one of the models of `albert_tf.model.models`.
        format: "litert" or "onnx".
        outputs: see `save`.

    Raises:
        InputError: see `save` and `load`.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"model{SUFFIXES.get(format, '')}")
        return load(save(model, path, format, outputs=outputs))


def in_tensorflow(
    model: keras.Model, outputs: Sequence[str] = (), *, eagerly: bool = False
) -> Runner:
    """Returns a function that runs a model in TensorFlow on arrays by name.

    Args:
        model: one of the models of `albert_tf.model.models`.
        outputs: see `save`; also "encoder_outputs", [B, L, T, H].
        eagerly: run without a graph, which takes seconds to make. All batches share
            one, whatever their sizes.
    """
    import tensorflow as tf

    names = outputs or [*signature(model).outputs]

    def compute(batch: Mapping[str, Any]) -> dict[str, Any]:
        outputs = model(batch)
        layers = outputs.get("encoder_outputs", ())
        if "encoder_outputs" in names:
            return {"encoder_outputs": tf.stack(layers, axis=1)}
        return {name: outputs[name] for name in names}

    graphs: list[Callable] = []

    def run(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if not (graphs or eagerly):
            sizes = {name: [None] * x.ndim for name, x in batch.items()}
            specs = {n: tf.TensorSpec(size, tf.int32) for n, size in sizes.items()}
            graph = tf.function(compute, input_signature=[specs], autograph=False)
            graphs.append(graph)
        call = compute if eagerly else graphs[0]
        outputs = call({name: tf.constant(x) for name, x in batch.items()})
        return {name: value.numpy() for name, value in outputs.items()}

    return run


def choose(
    model: keras.Model,
    outputs: Sequence[str],
    runtime: str,
    *,
    is_large: bool,
    log: Callable[[str], None] | None = None,
) -> Runner:
    """Returns what runs a model.

    Args:
        model: one of the models of `albert_tf.model.models`.
        outputs: see `save`.
        runtime: "tensorflow", "onnx" or "litert"; "auto" with a `log`: ONNX Runtime
            where it is installed, no GPU is there, and the job is large; else
            TensorFlow.
        is_large: whether the job is more than a batch, so that a graph is worth its
            time.
        log: logs a line that says which.
    """
    import tensorflow as tf

    if runtime in ("onnx", "litert"):
        return session_of(model, runtime, outputs)
    has_gpu = tf.config.list_logical_devices("GPU")
    if runtime == "auto" and is_large and log is not None and not has_gpu:
        try:
            session = session_of(model, "onnx", outputs)
        except InputError as reason:
            log(f"Computed by TensorFlow, not by ONNX Runtime: {reason}")
        else:
            log("Computed by ONNX Runtime; --runtime names another")
            return session
    return in_tensorflow(model, outputs, eagerly=log is not None and not is_large)


def module_of(format: str) -> Any:
    """Returns the module of a format, with `convert`.

    Raises:
        InputError: a package that it needs is not installed.
    """
    if format == "litert":
        from albert_tf.serve.runtimes import litert

        return litert
    check_installed("onnx", "onnxruntime")
    from albert_tf.serve.runtimes import onnx_graph

    return onnx_graph


def _write(path: Path, contents: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
    with atomic(str(path)) as file:
        file.write(contents)
