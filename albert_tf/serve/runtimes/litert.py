"""LiteRT (TensorFlow Lite) files: written from the Keras model, and run."""

import threading
from collections.abc import Callable
from pathlib import Path

import keras

from albert_tf.data import cores, quiet
from albert_tf.errors import InputError
from albert_tf.serve.runtimes.signatures import Signature


def convert(model: keras.Model, signature: Signature, precision: str) -> bytes:
    """Returns a .tflite file's contents, with one signature of the given names.

    The converter keeps equal constants once, so the shared blocks are.
    """
    import tensorflow as tf

    specification = {
        name: tf.TensorSpec([_number(size) for size in shape], tf.int32, name=name)
        for name, shape in signature.inputs.items()
    }

    @tf.function(input_signature=[specification], autograph=False)
    def call(inputs):
        outputs = model(inputs)
        return {name: outputs[name] for name in signature.outputs}

    # The names of inputs and outputs are kept only for an object that can be saved.
    root = tf.Module()
    root.variables_of_model = [variable.value for variable in model.variables]
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [call.get_concrete_function()], root
    )
    if precision != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if precision == "float16":
        converter.target_spec.supported_types = [tf.float16]
    return converter.convert()


def _number(size: str | int) -> int | None:
    return None if isinstance(size, str) else size


def load(path: Path, num_threads: int | None) -> tuple[list[str], Callable]:
    """Opens a file: its inputs, and a function of them."""
    from ai_edge_litert.interpreter import Interpreter

    try:
        # By itself it would take a single thread.
        threads = num_threads or cores.available()
        with quiet.standard_error():
            interpreter = Interpreter(str(path), num_threads=threads)
            interpreter.allocate_tensors()  # which logs that it uses XNNPACK
    except (ValueError, RuntimeError):
        raise InputError(f"{path}: no LiteRT model") from None
    # A signature's runner gives its inputs the sizes of what they are given.
    run = interpreter.get_signature_runner()
    lock = threading.Lock()  # An interpreter holds the inputs and outputs of one call.

    def call(inputs):
        with lock:
            return run(**inputs)

    return list(run.get_input_details()), call
