"""Writes weights, for the released code, Hugging Face and this package."""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from albert_tf.data.files import write_together
from albert_tf.errors import InputError, writing
from albert_tf.model import models
from albert_tf.model.config import AlbertConfig
from albert_tf.text.tokenization import Tokenizer
from albert_tf.weights import huggingface
from albert_tf.weights.checkpoints import BEST
from albert_tf.weights.names import (
    STEP,
    Target,
    check_optimizer,
    expand,
    expand_slots,
    listed,
)


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
    """Writes a model's weights and its configuration; all of it or nothing.

    A process that is killed meanwhile leaves no checkpoint's index without its whole
    data; a checkpoint that it was about to replace under the same name may be gone.

    Args:
        model: one of the models of `albert_tf.model.models`.
        path: for "tf1" a folder, which gets the checkpoint `model.ckpt-best` and
            `albert_config.json`; or the checkpoint's prefix, if its last part has
            "ckpt" at its beginning or after a dot. For "hf" a folder, which gets
            `model.safetensors` and `config.json`. For "keras" a file that ends in
            `.keras`.
        format: "tf1" (for the released code), "hf" (for `transformers`), "keras".
        optimizer: one of `albert_tf.optimizers`, whose slots and number of updates are
            written under their released names; for "tf1" alone.
        extra: other tensors by name, beginning with "albert_tf/": `load` passes over
            them, and `open_source(path).read(name)` reads them; for "tf1" alone.
        tokenizer: is written beside the weights, see `huggingface.tokenizer_files`;
            for "hf" alone.
        task: what the outputs mean, as in a run's `task.json`: of a classifier the
            "labels" and the "kind", which become `id2label` and `problem_type`; of any
            model "max_seq_length"; for "hf" alone.

    Returns:
        the prefix, folder or file written, as `load` takes it.

    Raises:
        InputError: an unknown format, a model, an optimizer or an extra tensor that
            the format has no place for, or a path that cannot be written. Models
            whose layers share only attention or only feed-forward are written layer by
            layer, with `num_hidden_groups` at the number of layers: the other formats
            can not tie them.
    """
    _check_arguments(format, optimizer, extra, tokenizer, task)
    if format == "tf1":
        return _save_tf1(model, path, optimizer, extra or {})
    if format == "hf":
        return _save_hf(model, path, tokenizer, task or {})
    return _save_keras(model, path)


def _check_arguments(format: str, optimizer, extra, tokenizer, task) -> None:
    formats = ("tf1", "hf", "keras")
    if format not in formats:
        raise InputError(f"format={format!r}: expected one of {', '.join(formats)}")
    for argument, given, only in (
        ("optimizer", optimizer, "tf1"),
        ("extra", extra, "tf1"),
        ("tokenizer", tokenizer, "hf"),
        ("task", task, "hf"),
    ):
        if format != only and given is not None:
            raise InputError(f"{argument}= with format={format!r}: expected {only!r}")


def _targets(model, format: str) -> list[Target]:
    """Returns a model's weights, which all have a place in a format."""
    targets = expand(model, format)
    homeless = {t.ours: t.variable.shape for t in targets if t.name is None}
    if homeless:
        raise InputError(
            f"format={format!r} has no place for these weights of "
            f"{type(model).__name__}: {listed(homeless)}"
        )
    return targets


def _arrays(targets: Iterable[Target]) -> dict[str, np.ndarray]:
    """Returns arrays by name."""
    return {str(target.name): target.to_theirs(target.value()) for target in targets}


def _untied(config: AlbertConfig) -> AlbertConfig:
    """Returns the configuration that the written groups have in other formats."""
    if config.parameter_sharing == "all":
        return config
    return dataclasses.replace(
        config,
        num_hidden_groups=len({*config.block_map}),
        parameter_sharing="all",
    )


def _training_state(model, optimizer, extra) -> dict[str, Any]:
    """Returns what a TF1 checkpoint of a training run has beside the weights."""
    for name in extra:
        if not name.startswith("albert_tf/"):
            raise InputError(f"extra={name!r}: expected a name that begins albert_tf/")
    tensors: dict[str, Any] = {name: np.asarray(x) for name, x in extra.items()}
    if optimizer is not None:
        check_optimizer(optimizer, model)
        tensors |= _tensors(expand_slots(optimizer, expand(model, "tf1")))
        step = keras.ops.convert_to_numpy(optimizer.iterations)
        tensors[STEP] = np.asarray(step, np.int64)
    return tensors


def _tensors(targets: Iterable[Target]) -> dict[str, Any]:
    """Returns by name what TensorFlow can write without copies of all of it."""
    if keras.backend.backend() != "tensorflow":
        return _arrays(targets)
    return {str(target.name): target.tensor() for target in targets}


def _save_tf1(model, path: str | Path, optimizer, extra) -> Path:
    import tensorflow as tf

    folder = Path(path)
    if re.match(r"(.*\.)?ckpt", folder.name) and not folder.is_dir():
        prefix, folder = folder, folder.parent
    else:
        prefix = folder / BEST
    tensors = _tensors(_targets(model, "tf1"))
    tensors |= _training_state(model, optimizer, extra)
    with writing(path), write_together(folder) as new:
        tf.raw_ops.SaveV2(
            prefix=str(new / prefix.name),
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=list(tensors.values()),
        )
        (new / "checkpoint").write_text(f'model_checkpoint_path: "{prefix.name}"\n')
        text = _untied(model.config).to_json_string()
        (new / "albert_config.json").write_text(text)
    return prefix


def _save_hf(
    model, path: str | Path, tokenizer: Tokenizer | None, task: Mapping[str, Any]
) -> Path:
    import safetensors.numpy

    tensors = _arrays(_targets(model, "hf"))
    if isinstance(model, models.AlbertEncoder):
        tensors = {name.removeprefix("albert."): x for name, x in tensors.items()}
    files = huggingface.files(model, _untied(model.config), task, tokenizer)
    with writing(path), write_together(Path(path)) as new:
        safetensors.numpy.save_file(
            tensors, new / "model.safetensors", metadata={"format": "pt"}
        )
        for name, contents in files.items():
            (new / name).write_bytes(contents)
    return Path(path)


def _save_keras(model, path: str | Path) -> Path:
    path = Path(path)
    if path.suffix != ".keras":
        raise InputError(f"{path}: a file of format 'keras' has to end in .keras")
    with writing(path), write_together(path.parent) as new:
        model.save(new / path.name)
    return path
