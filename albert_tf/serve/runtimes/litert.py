"""LiteRT (TensorFlow Lite) files, converted from the Keras model."""

import keras

from albert_tf.serve.runtimes.signatures import Signature


def convert(model: keras.Model, signature: Signature, precision: str) -> bytes:
    """Returns the contents of a .tflite file with one signature.

    The converter stores equal constants only once. So the file has the weights of a
    shared block only once, although the graph uses them in each layer.
    """
    import tensorflow as tf

    specs = {
        name: tf.TensorSpec(
            [None if isinstance(size, str) else size for size in shape], tf.int32, name
        )
        for name, shape in signature.inputs.items()
    }

    @tf.function(input_signature=[specs], autograph=False)
    def call(inputs):
        outputs = model(inputs)
        return {name: outputs[name] for name in signature.outputs}

    # With a trackable object, the converter keeps the names of the signature. The
    # object must own the variables that the function uses.
    root = tf.Module()
    root.variables_of_model = [variable.value for variable in model.variables]
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [call.get_concrete_function()], root
    )
    # DEFAULT stores int8 weights, unless `supported_types` names another type.
    if precision != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if precision == "float16":
        converter.target_spec.supported_types = [tf.float16]
    return converter.convert()
