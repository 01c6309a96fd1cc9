"""Reads TensorFlow's checkpoints and SavedModels, without running a model.

Here, a key is the name of a tensor in a checkpoint. In a TF1 checkpoint, the key is the
name of the variable. In a TF2 checkpoint (of Model Garden or in a SavedModel of this
package), the key is a path of attributes, and the checkpoint also stores an object
graph, which has the name of the variable for each key.
"""

import re
from pathlib import Path

from albert_tf import errors
from albert_tf.model import models
from albert_tf.model.config import AlbertConfig
from albert_tf.weights import names
from albert_tf.weights.names import Source

# The name of the tensor that holds the object graph.
_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def find_prefix(path: Path) -> Path:
    """Returns the prefix of a checkpoint; `path` is the prefix or one of its files."""
    return Path(re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", str(path)))


def open(path: Path) -> Source:
    """Opens a checkpoint by its prefix or `.index` file, or a SavedModel's folder."""
    import tensorflow as tf

    source_path = prefix = find_prefix(path)
    config_folder = path.parent
    if path.is_dir():
        source_path, prefix = path, path / "variables/variables"
        config_folder = path / "assets"
    with errors.wrap_read(prefix, "a readable checkpoint"):
        reader = tf.train.load_checkpoint(str(prefix))
        shapes = reader.get_variable_to_shape_map()

    def read_key(key):
        with errors.wrap_read(f"{prefix}: {key}", "a whole checkpoint, undamaged"):
            return reader.get_tensor(key)

    def config():
        return AlbertConfig.from_json_file(config_folder / "albert_config.json")

    def build_model():
        values = {name: int(read_key(key)) for name, key in options.items()}
        return getattr(models, class_name)(config(), **values)

    if _GRAPH in shapes:
        with errors.wrap_read(prefix, "a checkpoint with a readable object graph"):
            class_name, options, keys = _read_graph(read_key(_GRAPH))
        format = "keras" if class_name else "model_garden"
    else:
        format, class_name, options = "tf1", "", {}
        # In a TF-Hub module, the released names begin with "module/".
        keys = {key.removeprefix("module/"): key for key in shapes}
    # `read` also takes keys, because tensors that are not weights may have no name.
    return Source(
        format=format,
        path=source_path,
        tensors={name: shapes[key] for name, key in keys.items() if key in shapes},
        read=lambda name: read_key(keys.get(name, name)),
        config=config,
        build_model=build_model if class_name else None,
    )


def _read_graph(contents: bytes) -> tuple[str, dict[str, str], dict[str, str]]:
    """Reads the object graph of a TF2 checkpoint.

    `saved_models.save` of this package stores three things as attributes of the root:
    the class of the model, its options (the arguments of the class except the
    configuration) and its weights.

    Returns:
        The name of the class; the key of each option by name; the key of each weight by
        its name in the table of `weights.names`. If the root lacks the attributes, as
        in Model Garden, the class is "", and there are no options. The names of the
        weights are then the names of the variables without the prefix "bert/".
    """
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(contents)

    def children(node):
        """Returns a node's children by name."""
        return {child.local_name: graph.nodes[child.node_id] for child in node.children}

    def keys(node):
        """Returns the keys of the tensors of a node's children, by the child's name."""
        variables = children(node).items()
        return {n: item.checkpoint_key for n, v in variables for item in v.attributes}

    root = children(graph.nodes[0])
    if "model" in root and "weights" in root:
        for class_name, options in children(root["model"]).items():
            if class_name in names.HEADS:
                return class_name, keys(options), keys(root["weights"])
    variables = [item for node in graph.nodes for item in node.attributes]
    by_name = {v.full_name.removeprefix("bert/"): v.checkpoint_key for v in variables}
    return "", {}, by_name
