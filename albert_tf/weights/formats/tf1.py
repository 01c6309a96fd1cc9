"""TF1 checkpoints: those of the release, and of albert_zh."""

import dataclasses
import re
from pathlib import Path

from albert_tf import errors
from albert_tf.model.config import AlbertConfig
from albert_tf.weights.formats import tf2
from albert_tf.weights.names import to_released_name
from albert_tf.weights.source import Source

_FIRST, _SECOND = (f"bert/embeddings/word_embeddings{end}" for end in ("", "_2"))


def prefix_of(path: Path) -> Path:
    """Returns a checkpoint's prefix, given that or one of its files."""
    return Path(re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", str(path)))


def open(path: Path) -> Source:
    """Opens a checkpoint, or that of a SavedModel, which is not run.

    A checkpoint of TF2 is recognised by its contents.
    """
    import tensorflow as tf

    prefix, config_folder = prefix_of(path), path.parent
    if path.is_dir():
        prefix, config_folder = path / "variables/variables", path / "assets"
    with errors.wrap_read(prefix, "a readable checkpoint"):
        reader = tf.train.load_checkpoint(str(prefix))
        shapes = reader.get_variable_to_shape_map()

    def read(name):
        with errors.wrap_read(f"{prefix}: {name}", "a whole checkpoint, undamaged"):
            return reader.get_tensor(name)

    def config():
        return AlbertConfig.from_json_file(config_folder / "albert_config.json")

    location = path if path.is_dir() else prefix
    if tf2.GRAPH in shapes:
        return tf2.open(location, prefix, shapes, read, config)
    kind = _OneWordTable if _SECOND in shapes else Source
    return kind("tf1", location, shapes, read, config, to_released_name)


class _OneWordTable(Source):
    """Multiplies the two word tables of albert_zh.

    albert_zh projects word embeddings to the width H before it adds those of positions
    and segments, so this is a model with E = H.
    """

    def __init__(self, format, path, tensors, read, config, rename):
        def adapted():
            return self.adapt(config())

        super().__init__(format, path, tensors, read, adapted, rename)
        self.shapes[_FIRST] = (self.shapes[_FIRST][0], self.shapes.pop(_SECOND)[1])

    def read(self, name):
        table = super().read(name)
        return table @ super().read(_SECOND) if name == _FIRST else table

    def adapt(self, config):
        return dataclasses.replace(config, embedding_size=config.hidden_size)
