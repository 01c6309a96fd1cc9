"""What an opened file or folder of weights offers, whatever its format."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from albert_tf.model.config import AlbertConfig
from albert_tf.weights.names import IGNORED


@dataclasses.dataclass(frozen=True)
class Source:
    """An opened file or folder of weights.

    Attributes:
        format: "tf1", "hf", "kerashub", "model_garden", or "keras" (of this package: a
            `.keras` file or a SavedModel).
        path: what was opened, for messages.
        shapes: the shape of every tensor by name, without those that are no weights.
        ignored: the shape of every tensor that is no weight, such as a slot of an
            optimizer, by name.
        read: returns one tensor by name, numpy; also one that is no weight.
        config: returns the configuration beside the weights; raises InputError
            if there is none.
        build_model: returns a new model of the kind that was saved, if the format
            says which; else None.
        adapt: returns the configuration that the weights need, given the one of their
            authors.
    """

    format: str
    path: str
    shapes: Mapping[str, tuple[int, ...]]
    ignored: Mapping[str, tuple[int, ...]]
    read: Callable[[str], np.ndarray]
    config: Callable[[], AlbertConfig]
    build_model: Callable[[], keras.Model] | None = None
    adapt: Callable[[AlbertConfig], AlbertConfig] = lambda config: config


def sort_tensors(
    format: str,
    path: Any,
    shapes: Mapping[str, Any],
    read: Callable[[str], np.ndarray],
    config: Callable[[], AlbertConfig],
    rename: Callable[[str], str] = lambda name: name,
    build_model: Callable[[], keras.Model] | None = None,
) -> Source:
    """Returns a source whose tensors are sorted into weights and others.

    Args:
        format: see `Source`.
        path: see `Source`.
        shapes: of all tensors, by the names in the file.
        read: returns a tensor by its name in the file.
        config: see `Source`.
        rename: returns the name that the table has, given the one in the file.
        build_model: see `Source`.
    """
    ignored = {name for name in shapes if IGNORED[format].search(name)}
    in_file = {rename(name): name for name in sorted(shapes) if name not in ignored}
    return Source(
        format=format,
        path=str(path),
        shapes={name: tuple(shapes[theirs]) for name, theirs in in_file.items()},
        ignored={name: tuple(shapes[name]) for name in sorted(ignored)},
        read=lambda name: read(name if name in ignored else in_file[name]),
        config=config,
        build_model=build_model,
    )
