"""Reads Hugging Face's files of safetensors, and folders with one file or shards."""

import dataclasses
from pathlib import Path
from typing import Any

from albert_tf import errors
from albert_tf.data import json_values
from albert_tf.errors import InputError
from albert_tf.model.config import AlbertConfig
from albert_tf.weights.names import Source

# The activations of AlbertConfig by their names in Hugging Face. There "gelu" is the
# exact function; the released "gelu" is an approximation.
ACTIVATIONS = {
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu": "gelu_erf",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
# Keys of Hugging Face's configuration whose values are constants in the released model.
_FIXED = {"layer_norm_eps": 1e-12, "position_embedding_type": "absolute"}


def open(path: Path) -> Source:
    """Opens a file, or a folder with `model.safetensors` or its shards."""
    import safetensors

    config_file = (path if path.is_dir() else path.parent) / "config.json"
    files = [path]
    if path.is_dir():
        files = [*path.glob("model.safetensors")] or sorted(path.glob("*.safetensors"))
    # The opened file of each tensor, by the name of the tensor.
    shards: dict[str, Any] = {}
    for file in files:
        with errors.wrap_read(file, "a readable safetensors file"):
            shard = safetensors.safe_open(file, framework="numpy")
            shards |= dict.fromkeys(shard.keys(), shard)
    # In the table of `weights.names`, the encoder's names begin with "albert.".
    # transformers saves an AlbertModel, which has no head, without this prefix.
    prefix = "albert." if "embeddings.word_embeddings.weight" in shards else ""

    def read(name):
        key = name.removeprefix(prefix)
        with errors.wrap_read(f"{path}: {key}", "a tensor of floating point numbers"):
            return shards[key].get_tensor(key)

    shapes = {
        prefix + key: shard.get_slice(key).get_shape() for key, shard in shards.items()
    }
    return Source("hf", path, shapes, read, config=lambda: _read_config(config_file))


def _read_config(path: Path) -> AlbertConfig:
    """Reads a `config.json` of Hugging Face as an `AlbertConfig`."""
    values = json_values.read_object(path)
    keys = {item.name for item in dataclasses.fields(AlbertConfig)}
    config = {key: value for key, value in values.items() if key in keys}
    activation = str(values.get("hidden_act", "gelu_new"))
    if values.get("model_type") != "albert" or activation not in ACTIVATIONS:
        raise InputError(
            f"{path}: model_type={values.get('model_type')!r} with hidden_act="
            f"{activation!r}: expected 'albert' with one of {', '.join(ACTIVATIONS)}"
        )
    for key, expected in _FIXED.items():
        if values.get(key, expected) != expected:
            raise InputError(f"{path}: {key}={values[key]!r}: expected {expected!r}")
    config["hidden_act"] = ACTIVATIONS[activation]
    return AlbertConfig.from_dict(config, path)
