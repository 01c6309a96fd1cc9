"""Reads TF1 checkpoints of the release and of albert_zh."""

import dataclasses
import re
from pathlib import Path

from albert_tf import errors
from albert_tf.model.config import AlbertConfig
from albert_tf.weights.formats import tf2
from albert_tf.weights.names import to_released_name
from albert_tf.weights.source import Source

_TABLE, _TABLE_2 = (f"bert/embeddings/word_embeddings{end}" for end in ("", "_2"))


def find_prefix(path: Path) -> Path:
    """Returns a checkpoint's prefix, given the prefix or a file of the checkpoint."""
    return Path(re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", str(path)))


def open(path: Path) -> Source:
    """Opens a checkpoint, or a SavedModel's checkpoint without running the model.

    If a checkpoint's contents show that it is from TF2, `tf2` opens it.
    """
    import tensorflow as tf

    prefix, config_folder = find_prefix(path), path.parent
    if path.is_dir():
        prefix, config_folder = path / "variables/variables", path / "assets"
    with errors.wrap_read(prefix, "a readable checkpoint"):
        reader = tf.train.load_checkpoint(str(prefix))
        shapes = reader.get_variable_to_shape_map()
    # The names in the checkpoint by released name.
    keys = {to_released_name(key): key for key in shapes}
    # albert_zh projects word embeddings to the width H before it adds embeddings of
    # positions and segments, so the product of its two tables is a table with E = H.
    has_product = _TABLE_2 in shapes
    if has_product:
        shapes[_TABLE] = [shapes[_TABLE][0], shapes[keys.pop(_TABLE_2)][1]]

    def read(name):
        key = keys.get(name, name)
        with errors.wrap_read(f"{prefix}: {key}", "a whole checkpoint, undamaged"):
            tensor = reader.get_tensor(key)
            is_product = has_product and key == _TABLE
            return tensor @ reader.get_tensor(_TABLE_2) if is_product else tensor

    def adapt(config):
        size = config.hidden_size if has_product else config.embedding_size
        return dataclasses.replace(config, embedding_size=size)

    def config():
        file = config_folder / "albert_config.json"
        return adapt(AlbertConfig.from_json_file(file))

    location = path if path.is_dir() else prefix
    if tf2.GRAPH in shapes:
        return tf2.open(location, prefix, shapes, read, config)
    tensors = {name: shapes[key] for name, key in keys.items()}
    return Source("tf1", location, tensors, read, config, adapt=adapt)
