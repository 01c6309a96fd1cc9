"""Hugging Face's folders and files of safetensors, whole or in shards."""

import dataclasses
from pathlib import Path

from albert_tf import errors
from albert_tf.data import json_values
from albert_tf.errors import InputError
from albert_tf.model.config import AlbertConfig
from albert_tf.weights.source import Source

# Hugging Face's "gelu" is the exact form, not the released one.
ACTIVATIONS = {
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu": "gelu_erf",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
# Settings of Hugging Face that are constants in the released model.
_FIXED = {"layer_norm_eps": 1e-12, "position_embedding_type": "absolute"}


def open(path: Path) -> Source:
    """Opens a file, or a folder with `model.safetensors` or its shards."""
    import safetensors

    folder = path if path.is_dir() else path.parent
    single = path / "model.safetensors"
    files = [path]
    if path.is_dir():
        files = [single] if single.exists() else sorted(path.glob("*.safetensors"))
    shapes, home = {}, {}
    for file in files:
        with errors.wrap_read(file, "a readable safetensors file"):
            opened = safetensors.safe_open(file, framework="numpy")
            for name in opened.keys():  # noqa: SIM118 (not a mapping)
                shapes[name] = tuple(opened.get_slice(name).get_shape())
                home[name] = opened
    # An AlbertModel without heads is saved without this prefix.
    start = "albert." if "embeddings.word_embeddings.weight" in shapes else ""

    def read(name):
        with errors.wrap_read(f"{path}: {name}", "a tensor of floating point numbers"):
            return home[name].get_tensor(name)

    def config():
        return _config(folder / "config.json")

    return Source("hf", path, shapes, read, config, lambda name: start + name)


def _config(path: Path) -> AlbertConfig:
    values = json_values.read_object(path)
    keys = {item.name for item in dataclasses.fields(AlbertConfig)}
    released = {key: value for key, value in values.items() if key in keys}
    activation = str(values.get("hidden_act", "gelu_new"))
    if values.get("model_type") != "albert" or activation not in ACTIVATIONS:
        raise InputError(
            f"{path}: model_type={values.get('model_type')!r} with hidden_act="
            f"{activation!r}: expected 'albert' with one of {', '.join(ACTIVATIONS)}"
        )
    for key, expected in _FIXED.items():
        if values.get(key, expected) != expected:
            raise InputError(f"{path}: {key}={values[key]!r}: expected {expected!r}")
    released["hidden_act"] = ACTIVATIONS[activation]
    return AlbertConfig.from_dict(released, path)
