"""Reads `.keras` files of this package."""

from pathlib import Path

import keras

from albert_tf import errors
from albert_tf.errors import InputError
from albert_tf.model import models  # noqa: F401 (registers the classes)
from albert_tf.weights.names import HEADS, Source, expand


def open(path: Path) -> Source:
    """Opens a file in Keras's safe mode, which runs no code of the file."""
    with errors.wrap_read(path, "a readable .keras file"):
        model = keras.models.load_model(path, compile=False, safe_mode=True)
    name = type(model).__name__
    if name not in HEADS:
        raise InputError(f"{path}: holds a {name}, expected one of {', '.join(HEADS)}")
    targets = {str(target.name): target for target in expand(model, "keras")}
    return Source(
        "keras",
        path,
        {name: target.shape for name, target in targets.items()},
        read=lambda name: keras.ops.convert_to_numpy(targets[name].variable),
        config=lambda: model.config,
        build_model=lambda: type(model).from_config(model.get_config()),
    )
