"""The common interface of opened files and folders of weights."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from albert_tf.model.config import AlbertConfig
from albert_tf.weights.names import IGNORED


@dataclasses.dataclass
class Source:
    """An opened file or folder of weights.

    Args:
        tensors: the shape of every tensor, by the name that the table in `names` gives
            to it in this format.

    Attributes:
        format: "tf1", "hf", "kerashub", "model_garden", or "keras" (of this package: a
            `.keras` file or a SavedModel).
        path: the path as a text, for messages.
        read: returns a tensor by name, even if it is not a weight.
        config: returns the configuration of the weights; raises InputError if there is
            none.
        build_model: returns a new model of the class that was saved; None if the format
            does not store the class.
        adapt: changes a configuration to fit the weights, which may have another
            embedding size than the configuration says.
        shapes: the shape of every weight by name.
        ignored: the shape of every other tensor by name, such as slots of an optimizer.
    """

    format: str
    path: Any
    tensors: dataclasses.InitVar[Mapping[str, Any]]
    read: Callable[[str], np.ndarray]
    config: Callable[[], AlbertConfig]
    build_model: Callable[[], keras.Model] | None = None
    adapt: Callable[[AlbertConfig], AlbertConfig] = lambda config: config

    def __post_init__(self, tensors):
        self.path = str(self.path)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.ignored: dict[str, tuple[int, ...]] = {}
        for name in sorted(tensors):
            shapes = self.ignored if IGNORED[self.format].search(name) else self.shapes
            # The shape of an empty HDF5 data set is None.
            shapes[name] = tuple(tensors[name] or ())
