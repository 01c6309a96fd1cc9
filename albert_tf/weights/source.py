"""What an opened file or folder of weights offers, whatever its format."""

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from albert_tf.model.config import AlbertConfig
from albert_tf.weights.names import IGNORED


class Source:
    """An opened file or folder of weights.

    Args:
        format: "tf1", "hf", "kerashub", "model_garden", or "keras" (of this package: a
            `.keras` file or a SavedModel).
        path: what was opened, for messages.
        tensors: the shape of every tensor by its name in the file.
        read: returns a tensor by its name in the file, numpy.
        config: returns the configuration beside the weights; raises InputError
            if there is none.
        rename: returns the name that the table has, given the one in the file.
        build_model: returns a new model of the kind that was saved, if the format
            says which; else None.

    Attributes:
        format: as given.
        path: as given, a text.
        shapes: the shape of every tensor by name, without those that are no weights.
        ignored: the shape of every tensor that is no weight, such as a slot of an
            optimizer, by name.
        config: as given.
        build_model: as given.
    """

    def __init__(
        self,
        format: str,
        path: Any,
        tensors: Mapping[str, Any],
        read: Callable[[str], np.ndarray],
        config: Callable[[], AlbertConfig],
        rename: Callable[[str], str] = lambda name: name,
        build_model: Callable[[], keras.Model] | None = None,
    ):
        self.format = format
        self.path = str(path)
        self.config = config
        self.build_model = build_model
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.ignored: dict[str, tuple[int, ...]] = {}
        self._names = {}
        self._read = read
        for name in sorted(tensors):
            is_ignored = IGNORED[format].search(name)
            ours = name if is_ignored else rename(name)
            self._names[ours] = name
            shapes = self.ignored if is_ignored else self.shapes
            shapes[ours] = tuple(tensors[name] or ())

    def read(self, name: str) -> np.ndarray:
        """Returns one tensor by name; also one that is no weight."""
        return self._read(self._names[name])

    def adapt(self, config: AlbertConfig) -> AlbertConfig:
        """Returns the configuration that the weights need, given their authors'."""
        return config
