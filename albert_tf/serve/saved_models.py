"""Writes SavedModels for other programs.

`weights.load` can read such a SavedModel: its attribute `weights` has each variable by
its name, and its assets have the model's configuration.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from albert_tf.data import files
from albert_tf.errors import InputError
from albert_tf.tasks.serving import ServingFunction
from albert_tf.weights import metadata
from albert_tf.weights.names import expand


def make_reusable(
    call: Callable, layers: Sequence[keras.Layer] = ()
) -> tf.train.Checkpoint:
    """Returns the root object of a SavedModel that can be called after it is loaded.

    The object has the attributes of TF-Hub's reusable SavedModels, which
    `hub.KerasLayer` reads: `variables`, `trainable_variables` and
    `regularization_losses`.

    Args:
        call: a `tf.function`.
        layers: the layers whose variables `call` uses.
    """
    # Not a tf.Module, whose `variables` is a property and is not saved.
    root = tf.train.Checkpoint()
    root.__call__ = call
    if layers:
        variables = [v for layer in layers for v in layer.variables]
        root.variables = [variable.value for variable in variables]
        root.trainable_variables = [v.value for v in variables if v.trainable]
        root.regularization_losses = []
    return root


def export(serving_fn: ServingFunction, folder: str | Path) -> None:
    """Writes a model that takes raw text, with the signature `serving_default`.

    The SavedModel needs TensorFlow and tensorflow_text, not this package. Batches
    and texts may have any size.

    Args:
        serving_fn: the serving function of a task.
        folder: the folder to create; an older SavedModel there is replaced.

    Raises:
        InputError: the folder cannot be written.
    """
    root = tf.train.Checkpoint()
    root.graph = serving_fn.graph
    save(
        root,
        folder,
        model=serving_fn.model,
        signatures={"serving_default": serving_fn.compile()},
        assets={metadata.VOCABULARY: serving_fn.graph.vocabulary},
    )


def save(
    root: Any,
    folder: str | Path,
    *,
    signatures: Mapping[str, Callable] | None = None,
    model: keras.Model | None = None,
    assets: Mapping[str, bytes] | None = None,
) -> None:
    """Writes a SavedModel; after a failure the folder is unchanged.

    For each signature, `root` also gets a function of the same name that takes a tensor
    or a dict. `keras.layers.TFSMLayer` needs this function: the layer passes one
    argument, but a signature takes tensors by name.

    Args:
        root: a trackable object.
        folder: the folder to create; an older SavedModel there is replaced.
        signatures: concrete functions of named tensors.
        model: a model; its class, configuration and weights are also stored.
        assets: contents of further files, by name.

    Raises:
        InputError: the folder cannot be written, or has other files.
    """
    asset_files = dict(assets or {})
    for name, signature in (signatures or {}).items():
        setattr(root, name, _wrap_for_keras(signature))
    if model is not None:
        # A variable that layers share has several names, but is stored once.
        root.weights = {t.path: t.variable.value for t in expand(model, "keras")}
        # The key tells `weights.load` the model's class.
        root.model = {type(model).__name__: _collect_options(model)}
        asset_files[metadata.CONFIG] = model.config.to_json_string().encode()
    with _make_sibling(Path(folder)) as work:
        root.assets = []
        (work / "assets").mkdir()
        for name, contents in asset_files.items():
            path = work / "assets" / name
            path.write_bytes(contents)
            root.assets.append(tf.saved_model.Asset(str(path)))
        tf.saved_model.save(root, str(work / "new"), signatures=signatures)
        for path in (work / "new").rglob("*"):
            if path.is_file():
                files.flush(path)
        # The older SavedModel is deleted together with `work`.
        if Path(folder).exists():
            Path(folder).rename(work / "old")
        (work / "new").rename(folder)


def _collect_options(model: keras.Model) -> dict[str, tf.Variable]:
    """Returns the numbers that a model's constructor takes, as variables by name.

    All arguments of the constructor are numbers, except the name, the dtype and the
    configuration. A SavedModel can store variables, but no Python numbers.
    """
    return {
        name: tf.Variable(int(value))
        for name, value in model.get_config().items()
        if name not in ("name", "dtype", "config") and value is not None
    }


def check_writable(folder: str | Path) -> None:
    """Checks before a long run that `save` can write a folder.

    Raises:
        InputError: the folder cannot be written, or has other files.
    """
    with _make_sibling(Path(folder)):
        pass


@contextlib.contextmanager
def _make_sibling(folder: Path) -> Iterator[Path]:
    """Yields a temporary folder next to `folder`, and deletes it at the end.

    Raises:
        InputError: `folder` cannot be written, or has other files.
    """
    is_empty = folder.is_dir() and not any(folder.iterdir())
    is_saved_model = (folder / "saved_model.pb").exists()
    if folder.exists() and not (is_empty or is_saved_model):
        raise InputError(f"{folder}: exists and is no SavedModel; use a new folder")
    work = folder.with_name(f".{folder.name}.writing")
    try:
        shutil.rmtree(work, ignore_errors=True)  # left by a killed process
        work.mkdir(parents=True)
        yield work
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _wrap_for_keras(signature: Callable) -> Callable:
    """Returns a signature as a function of one argument.

    The argument is a tensor if the signature has one input, else a dict of tensors.
    """
    _, specs = signature.structured_input_signature  # type: ignore[attr-defined]
    if len(specs) > 1:
        return tf.function(
            lambda inputs: signature(**inputs), [dict(specs)], autograph=False
        )
    [(name, spec)] = specs.items()
    return tf.function(lambda x: signature(**{name: x}), [spec], autograph=False)
