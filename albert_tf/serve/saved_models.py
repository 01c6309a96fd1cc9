"""Writes SavedModels that other programs load, and what they need inside.

A SavedModel of this package holds its model's variables once, under the names that
`weights` has for them, and the configuration as an asset; so `weights.load` reads it.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from albert_tf.data import files, stopping
from albert_tf.errors import InputError
from albert_tf.weights.names import expand


def reusable(call: Callable, layers: Sequence[keras.Layer] = ()) -> tf.train.Checkpoint:
    """Returns an object that is callable again when it is loaded.

    It follows TF-Hub's interface of reusable SavedModels: `variables`,
    `trainable_variables` and `regularization_losses`, which `hub.KerasLayer` looks for.

    Args:
        call: a `tf.function`.
        layers: whose variables it uses.
    """
    # A tf.Module has `variables` too, but as properties, which are not saved.
    root = tf.train.Checkpoint()
    root.__call__ = call
    if layers:
        every = [v for layer in layers for v in layer.variables]
        root.variables = [variable.value for variable in every]
        root.trainable_variables = [v.value for v in every if v.trainable]
        root.regularization_losses = []
    return root


def save(
    root: Any,
    folder: str | Path,
    *,
    signatures: Mapping[str, Callable] | None = None,
    model: keras.Model | None = None,
    assets: Mapping[str, bytes] | None = None,
) -> None:
    """Writes a SavedModel; all of it or nothing.

    A signature takes its tensors by name. So that `keras.layers.TFSMLayer`, which hands
    on a single argument, can call it too, the object has a function of the same name,
    of the tensor or of a dict of several.

    Args:
        root: what is saved: a trackable object.
        folder: is made; an older SavedModel there is replaced.
        signatures: concrete functions of tensors by name, for programs that do not
            know the object, by name.
        model: whose weights are stored by name, and its configuration.
        assets: contents of files to put beside the variables, by name.

    Raises:
        InputError: the folder cannot be written, or holds something else.
    """
    contents_of = dict(assets or {})
    for name, signature in (signatures or {}).items():
        setattr(root, name, _callable_by_keras(signature))
    if model is not None:
        # A shared variable has several names, and is stored once.
        root.weights = {t.ours: t.variable.value for t in expand(model, "keras")}
        root.model = {type(model).__name__: _options(model)}
        contents_of["albert_config.json"] = model.config.to_json_string().encode()
    with _replaced(Path(folder)) as new, _quiet("absl"), _quiet("tensorflow"):
        root.assets = []
        (new.parent / "assets").mkdir()
        for name, contents in contents_of.items():
            path = new.parent / "assets" / name
            path.write_bytes(contents)
            root.assets.append(tf.saved_model.Asset(str(path)))
        tf.saved_model.save(root, str(new), signatures=signatures)


def _options(model: keras.Model) -> dict[str, tf.Variable]:
    """Returns what makes such a model beside its configuration: numbers by name."""
    given = {**model.get_config()}
    for name in ("name", "dtype", "config"):
        del given[name]
    return {name: tf.Variable(int(n)) for name, n in given.items() if n is not None}


def check_writable(folder: str | Path) -> None:
    """Refuses a folder that `save` would refuse, before the work of making a model.

    Raises:
        InputError: it cannot be written, or holds something else.
    """
    with _beside(Path(folder)):
        pass


@contextlib.contextmanager
def _replaced(folder: Path) -> Iterator[Path]:
    """Yields an empty folder that takes the place of another when all went well."""
    with _beside(folder) as work:
        new, old = work / "new", work / files.REPLACED / folder.name
        yield new
        old.parent.mkdir()
        with stopping.held():
            if folder.exists():
                folder.rename(old)
            new.rename(folder)


@contextlib.contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """Yields a temporary folder in the parent of one that can be written."""
    if folder.exists() and not _may_be_replaced(folder):
        raise InputError(
            f"{folder}: exists and is no SavedModel; expected a new folder"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with files.temporary_in(folder.parent) as work:
            yield work
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}") from None


def _callable_by_keras(signature: Callable) -> Callable:
    """Returns a function of a signature's one tensor, or of a dict of its tensors."""
    _, specs = signature.structured_input_signature  # type: ignore[attr-defined]
    names = sorted(specs)

    def call(inputs):
        given = {names[0]: inputs} if len(names) == 1 else inputs
        return signature(**given)

    of_one = specs[names[0]] if len(names) == 1 else dict(specs)
    return tf.function(call, input_signature=[of_one], autograph=False)


@contextlib.contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Mutes what a logger reports of each file, under its temporary name."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(max(level, logging.WARNING))
    try:
        yield
    finally:
        logger.setLevel(level)


def _may_be_replaced(folder: Path) -> bool:
    is_empty = folder.is_dir() and not any(folder.iterdir())
    return is_empty or (folder / "saved_model.pb").exists()
