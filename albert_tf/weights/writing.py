"""Writes weights, for the released code, Hugging Face and this package."""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from albert_tf.data.files import atomic_folder
from albert_tf.errors import InputError, wrap_write
from albert_tf.model import models
from albert_tf.model.config import AlbertConfig
from albert_tf.text.tokenization import Tokenizer
from albert_tf.weights import huggingface, names
from albert_tf.weights.checkpoints import BEST


def save(
    model: keras.Model,
    path: str | Path,
    format: str,
    *,
    optimizer: keras.optimizers.Optimizer | None = None,
    extra: Mapping[str, np.ndarray] | None = None,
    tokenizer: Tokenizer | None = None,
    task: Mapping[str, Any] | None = None,
) -> Path:
    """Writes a model's weights and its configuration, all files or none.

    If the process is killed while it writes, it may leave an incomplete checkpoint,
    which has no `.index` file. An older checkpoint of the same name may then be lost.

    Args:
        model: one of the models of `albert_tf.model.models`.
        path: for "tf1" a folder, which gets the checkpoint `model.ckpt-best` and
            `albert_config.json`. But if the last part is a name such as "model.ckpt-5"
            or "ckpt", and the path is no folder, it is the checkpoint's prefix. For
            "hf" a folder, which gets `model.safetensors` and `config.json`. For "keras"
            a .keras file.
        format: "tf1" (for the released code), "hf" (for `transformers`) or "keras"
            (for Keras with this package). "tf1" and "hf" have no names for layers that
            share only attention or only feed-forward parameters. All L layers of such
            models are written, with `num_hidden_groups` = L.
        optimizer: one of `albert_tf.optimizers`, whose slots and number of updates are
            written under their released names; only for "tf1".
        extra: other tensors by name; each name begins with "albert_tf/". `load` ignores
            these tensors, and `open_source(path).read(name)` reads them; only for
            "tf1".
        tokenizer: written to the same folder, as vocabulary and `tokenizer.json`; only
            for "hf".
        task: keys and values as in a run's `task.json`. The "labels" and "kind" of a
            classifier become `id2label` and `problem_type`. The "max_seq_length" of any
            model becomes `model_max_length` of the tokenizer; only for "hf".

    Returns:
        The written prefix, folder or file, which `load` accepts.

    Raises:
        TypeError: the format does not support one of the arguments.
        InputError: the format is unknown, the format cannot hold the model or the
            optimizer, or the path cannot be written.
    """
    # Only options that are set are passed on. An option that the format does not
    # support raises TypeError in the call below.
    options = {"optimizer": optimizer, "extra": extra, "tokenizer": tokenizer}
    options = {key: value for key, value in (options | {"task": task}).items() if value}
    writers: Any = {"tf1": _save_tf1, "hf": _save_hf, "keras": _save_keras}
    if format not in writers:
        raise InputError(f"format={format!r}: expected one of {', '.join(writers)}")
    return writers[format](model, Path(path), **options)


def _read_tensors(model, format: str, optimizer=None) -> dict[str, Any]:
    """Returns a model's weights, and an optimizer's state, as tensors of a format.

    Args:
        model: the model.
        format: "tf1" or "hf".
        optimizer: the optimizer; None to leave it out.

    Returns:
        The tensors by name: NumPy arrays, or for "tf1" on TensorFlow the values of the
        variables, because TensorFlow writes them without a copy.
    """
    targets = names.expand(model, format)
    if optimizer is not None:
        targets += names.expand_optimizer(optimizer, model, targets)
    missing = {t.path: t.variable.shape for t in targets if t.name is None}
    if missing:
        shapes = names.format_shapes(missing)
        raise InputError(f"format={format!r} cannot hold these weights: {shapes}")
    tensors = {str(t.name): t.to_format(t.variable) for t in targets}
    if format == "tf1" and keras.backend.backend() == "tensorflow":
        return tensors
    to_numpy = keras.ops.convert_to_numpy
    # "C", because a transposed tensor of PyTorch is only another view of its memory.
    return {name: np.asarray(to_numpy(x), order="C") for name, x in tensors.items()}


def _regroup(config: AlbertConfig) -> AlbertConfig:
    """Returns the configuration of a model in the formats "tf1" and "hf".

    These formats have no `parameter_sharing`: in them, the layers of a group share all
    parameters. With any other value than "all", no two layers share all parameters, so
    each layer becomes a group.
    """
    if config.parameter_sharing == "all":
        return config
    return dataclasses.replace(
        config, num_hidden_groups=len({*config.block_map}), parameter_sharing="all"
    )


# Each of the functions below writes one format. It has the arguments of `save` that the
# format supports, and returns the path that `load` accepts.
def _save_tf1(model, path: Path, optimizer=None, extra=None) -> Path:
    import tensorflow as tf

    # Names such as "ckpt" and "model.ckpt-5" are prefixes, unless they are folders.
    is_prefix = re.match(r"(.*\.)?ckpt", path.name) and not path.is_dir()
    prefix = path if is_prefix else path / BEST
    tensors = _read_tensors(model, "tf1", optimizer)
    tensors |= {name: np.asarray(value) for name, value in (extra or {}).items()}
    with wrap_write(path), atomic_folder(prefix.parent) as new:
        tf.raw_ops.SaveV2(
            prefix=str(new / prefix.name),
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=list(tensors.values()),
        )
        (new / "checkpoint").write_text(f'model_checkpoint_path: "{prefix.name}"\n')
        text = _regroup(model.config).to_json_string()
        (new / "albert_config.json").write_text(text)
    return prefix


def _save_hf(model, folder: Path, tokenizer=None, task=None) -> Path:
    import safetensors.numpy

    tensors = _read_tensors(model, "hf")
    # transformers' AlbertModel, which has no head, has no prefix in its names.
    if isinstance(model, models.AlbertEncoder):
        tensors = {name.removeprefix("albert."): x for name, x in tensors.items()}
    files = huggingface.make_files(model, _regroup(model.config), task or {}, tokenizer)
    with wrap_write(folder), atomic_folder(folder) as new:
        # Some versions of transformers reject a file without this metadata.
        safetensors.numpy.save_file(
            tensors, new / "model.safetensors", metadata={"format": "pt"}
        )
        for name, contents in files.items():
            (new / name).write_bytes(contents)
    return folder


def _save_keras(model, path: Path) -> Path:
    if path.suffix != ".keras":
        raise InputError(f"{path}: format 'keras' needs a name that ends in .keras")
    with wrap_write(path), atomic_folder(path.parent) as new:
        model.save(new / path.name)
    return path
