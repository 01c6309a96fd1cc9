"""Reads KerasHub's presets and weights files."""

import functools
from pathlib import Path

from albert_tf import errors
from albert_tf.data import json_values
from albert_tf.errors import InputError
from albert_tf.model.config import AlbertConfig
from albert_tf.weights.names import Source

BACKBONE = "model.weights.h5"
_TASK = "task.weights.h5"
# For each field of AlbertConfig, the key of KerasHub's configuration.
_KEYS = {
    "vocab_size": "vocabulary_size",
    "embedding_size": "embedding_dim",
    "hidden_size": "hidden_dim",
    "num_hidden_layers": "num_layers",
    "num_hidden_groups": "num_groups",
    "num_attention_heads": "num_heads",
    "intermediate_size": "intermediate_dim",
    "inner_group_num": "num_inner_repetitions",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "dropout",
    "max_position_embeddings": "max_sequence_length",
    "type_vocab_size": "num_segments",
}


def open(path: Path) -> Source:
    """Opens a preset folder or its weights file.

    If the folder also has a `task.weights.h5`, the source contains the tensors of the
    backbone and of the task (prefix `task/`).
    """
    import h5py

    path = path / BACKBONE if path.is_dir() else path
    tensors: dict[str, h5py.Dataset] = {}

    def collect(prefix, name, item):
        if isinstance(item, h5py.Dataset):
            tensors[prefix + name] = item

    with errors.wrap_read(path, "a readable HDF5 file"):
        for file, prefix in ((path, ""), (path.with_name(_TASK), "task/")):
            if file.exists():
                h5py.File(file, "r").visititems(functools.partial(collect, prefix))
    if "layers/reversible_embedding/vars/0" not in tensors:
        raise InputError(
            f"{path}: not the weights of a KerasHub ALBERT backbone; to read a file of "
            f"Keras's `save_weights`, use `load_weights`"
        )

    def read(name):
        with errors.wrap_read(f"{path}: {name}", "a readable HDF5 file"):
            return tensors[name][()]

    shapes = {name: item.shape for name, item in tensors.items()}
    config_file = path.with_name("config.json")
    return Source("kerashub", path, shapes, read, lambda: _read_config(config_file))


def _read_config(path: Path) -> AlbertConfig:
    """Reads a `config.json` of KerasHub as an `AlbertConfig`."""
    values = json_values.read_object(path)
    keys = ", ".join(dict.fromkeys(_KEYS.values()))
    with errors.wrap_read(path, f"an AlbertBackbone with the keys {keys}"):
        sizes = {field: values["config"][key] for field, key in _KEYS.items()}
    return AlbertConfig.from_dict(sizes, path)
