"""Reads TF2 checkpoints of Model Garden, and of this package's SavedModels.

The tensors of a TF2 checkpoint are named by attribute paths. Its object graph has the
names of the variables.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from albert_tf import errors
from albert_tf.errors import InputError
from albert_tf.model import models
from albert_tf.model.config import AlbertConfig
from albert_tf.weights.names import HEADS
from albert_tf.weights.source import Source

# The name of the tensor that holds the object graph.
GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def open(
    path: Path,
    prefix: Path,
    shapes: Mapping[str, Any],
    read: Callable[[str], Any],
    config: Callable[[], AlbertConfig],
) -> Source:
    """Opens a checkpoint with an object graph.

    Args:
        path: the folder of a SavedModel, or the checkpoint's prefix.
        prefix: the checkpoint's prefix.
        shapes: shapes of all tensors of the checkpoint, by key.
        read: returns a tensor by key.
        config: returns the configuration in the checkpoint's folder.

    Raises:
        InputError: the checkpoint is damaged, or of kamalkraj's ALBERT-TF2.0.
    """
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    with errors.wrap_read(prefix, "a checkpoint with a readable object graph"):
        graph = trackable_object_graph_pb2.TrackableObjectGraph()
        graph.ParseFromString(read(GRAPH))
        saved_model = _find_saved_model(graph)
        variables = [item for node in graph.nodes for item in node.attributes]
        keys = {item.full_name: item.checkpoint_key for item in variables}
    check_author(prefix, keys)
    keys = {name.removeprefix("bert/"): key for name, key in keys.items()}
    build_model = None
    if saved_model is not None:
        kind, options, keys = saved_model

        def build_model():
            values = {name: int(read(key)) for name, key in options.items()}
            return getattr(models, kind)(config(), **values)

    return Source(
        "model_garden" if saved_model is None else "keras",
        path,
        {name: shapes[key] for name, key in keys.items() if key in shapes},
        lambda name: read(keys[name]),
        config,
        build_model,
    )


def check_author(path: Any, names: Any) -> None:
    """Checks that no variable has a name of kamalkraj's ALBERT-TF2.0."""
    if any("albert_model/" in name for name in names):
        raise InputError(
            f"{path}: weights of kamalkraj's ALBERT-TF2.0, a layout that is not read; "
            f"expected the TF-Hub module or checkpoint that they were made from"
        )


def _children(graph, node) -> dict[str, Any]:
    """Returns the nodes that are attributes of a node, by attribute name."""
    return {child.local_name: graph.nodes[child.node_id] for child in node.children}


def _keys(graph, node) -> dict[str, str]:
    """Returns the keys of a node's variables in the checkpoint, by attribute name."""
    variables = _children(graph, node).items()
    return {n: item.checkpoint_key for n, v in variables for item in v.attributes}


def _find_saved_model(graph) -> tuple[str, dict[str, str], dict[str, str]] | None:
    """Returns the model's class, and the keys of its options and weights by name.

    `saved_models.save` stores these. For SavedModels of other programs, returns None.
    """
    root = _children(graph, graph.nodes[0])
    if "model" in root and "weights" in root:
        for kind, options in _children(graph, root["model"]).items():
            if kind in HEADS:
                return kind, _keys(graph, options), _keys(graph, root["weights"])
    return None
