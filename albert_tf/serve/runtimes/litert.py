"""LiteRT (TensorFlow Lite) files, written from the Keras model."""

import keras

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
