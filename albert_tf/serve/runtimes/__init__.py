"""Writes models for LiteRT (TensorFlow Lite) and ONNX Runtime.

In both formats, weights that several layers share are stored only once.

    signatures  the inputs and outputs of each model class
    litert      writes LiteRT files
    onnx_graph  writes ONNX files, node by node

Letters of shapes: B batch, C choices, T tokens of an input, P masked positions of an
input, L layers, H hidden size.
"""

import importlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from albert_tf import errors
from albert_tf.data import files
from albert_tf.errors import InputError
from albert_tf.serve.runtimes.signatures import build_signature, convert_to_float32
from albert_tf.serve.sessions import SUFFIXES, Session, load

__all__ = ["SUFFIXES", "build_runner", "choose", "load", "open_session", "save"]

# Maximum number of bytes of weights. Both formats limit a file to 2 GiB; one MiB is for
# the rest of the file.
MAX_BYTES = 2**31 - 2**20

Runner = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


def save(
    model: keras.Model,
    path: str | Path,
    format: str,
    *,
    precision: str = "float32",
    outputs: Sequence[str] = (),
) -> Path:
    """Writes a model for another runtime.

    The inputs are int32 and required: `input_ids`, `input_mask` and `segment_ids`
    [B, T] ([B, C, T] for multiple choice). Some models also have the input `p_mask`
    [B, T] or `masked_lm_positions` [B, P]. Outputs have the same names as in Keras.

    Args:
        model: one of the models of `albert_tf.model.models`.
        path: a file that ends in `.tflite` or `.onnx`.
        format: "litert" or "onnx".
        precision: type of the stored weights: "float32", "float16" or "int8". With the
            first two, the runtime computes in float32. With "int8", the runtime also
            rounds the inputs of matrix products to 8 bits. LiteRT computes a scale for
            each token. ONNX Runtime computes one scale for the whole batch, so the
            outputs of a row depend slightly on the other rows.
            LiteRT's int8 file of a pretraining model has the word table twice, rounded
            once for the lookup and once for the output.
        outputs: names of the outputs. Default: the outputs of the head, or
            `sequence_output` and `pooled_output` of an encoder.

    Returns:
        The path.

    Raises:
        InputError: the suffix does not fit the format, an output is unknown, the model
            is too large or not of this package, `onnx` is not installed, or the path
            cannot be written.
    """
    path = Path(path)
    if path.suffix != SUFFIXES.get(format):
        ends = ", ".join(f"{end} ({name})" for name, end in SUFFIXES.items())
        raise InputError(f"{path}, format={format!r}: must end in {ends}")
    signature = build_signature(model, outputs)
    size = model.count_params() * np.dtype(precision).itemsize
    if size > MAX_BYTES:
        raise InputError(
            f"{path}: {size:,} bytes of weights; the format holds {MAX_BYTES:,}"
        )
    if format == "onnx":
        for package in ("onnx", "onnxruntime"):
            errors.check_installed("ONNX", package, extra="onnx")
    module = "litert" if format == "litert" else "onnx_graph"
    writer = importlib.import_module(f"{__name__}.{module}")
    contents = writer.convert(convert_to_float32(model), signature, precision)
    files.write(path, contents)
    return path


def open_session(
    model: keras.Model, format: str, outputs: Sequence[str] = ()
) -> Session:
    """Opens a model with its current weights in another runtime.

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


def build_runner(
    model: keras.Model, outputs: Sequence[str] = (), *, eagerly: bool = False
) -> Runner:
    """Returns a function that runs a model in TensorFlow.

    Args:
        model: one of the models of `albert_tf.model.models`.
        outputs: see `save`; or only "encoder_outputs", [B, L, T, H].
        eagerly: whether to run without a graph. A graph is faster, but tracing it takes
            seconds. It is traced once, for batches of all sizes.
    """
    import tensorflow as tf

    names = outputs or list(build_signature(model).outputs)

    def compute(batch: Mapping[str, Any]) -> dict[str, Any]:
        tensors = model(batch)
        if "encoder_outputs" in names:
            return {"encoder_outputs": tf.stack(tensors["encoder_outputs"], axis=1)}
        return {name: tensors[name] for name in names}

    # Without `eagerly`, the graph's inputs get the names and ranks of the first batch.
    call: Callable | None = compute if eagerly else None

    def forward(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        nonlocal call
        if call is None:
            shapes = {name: [None] * x.ndim for name, x in batch.items()}
            specs = {n: tf.TensorSpec(shape, tf.int32) for n, shape in shapes.items()}
            call = tf.function(compute, input_signature=[specs], autograph=False)
        tensors = call({name: tf.constant(x) for name, x in batch.items()})
        return {name: value.numpy() for name, value in tensors.items()}

    return forward


def choose(
    model: keras.Model,
    outputs: Sequence[str],
    runtime: str,
    *,
    is_large: bool,
    log: Callable[[str], None] | None = None,
) -> Runner:
    """Returns a function that runs a model in a runtime, which may be "auto".

    Args:
        model: one of the models of `albert_tf.model.models`.
        outputs: see `save`.
        runtime: "tensorflow", "onnx", "litert" or "auto". "auto" is ONNX Runtime if
            `is_large` is true, `log` is not None and there is no GPU. Otherwise "auto"
            is TensorFlow.
        is_large: whether the inputs are more than a batch.
        log: a function that logs the choice, if a command calls. It must be None for a
            call from Python.
    """
    import tensorflow as tf

    if runtime in ("onnx", "litert"):
        return open_session(model, runtime, outputs)
    has_gpu = tf.config.list_logical_devices("GPU")
    if runtime == "auto" and is_large and log is not None and not has_gpu:
        try:
            session = open_session(model, "onnx", outputs)
        except InputError as error:
            log(f"Using TensorFlow, not ONNX Runtime: {error}")
        else:
            log("Using ONNX Runtime; see --runtime")
            return session
    # A command ends after its inputs. If they are few, tracing a graph takes longer
    # than it saves. A call from Python may be followed by others, which use the graph.
    return build_runner(model, outputs, eagerly=log is not None and not is_large)
