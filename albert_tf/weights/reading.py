"""Opens files and folders of weights, of whatever format they are."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from albert_tf import errors
from albert_tf.errors import InputError
from albert_tf.model import models
from albert_tf.model.config import AlbertConfig, read_json_object
from albert_tf.weights import checkpoints, released
from albert_tf.weights.names import HEADS, IGNORED, expand, released_name

# Hugging Face's "gelu" is the exact form, not the released one.
HF_ACTIVATIONS = {
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu": "gelu_erf",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}


@dataclasses.dataclass(frozen=True)
class Source:
    """An opened file or folder of weights.

    Attributes:
        format: "tf1", "hf", "kerashub", "model_garden", or "keras" (of this package: a
            `.keras` file or a SavedModel).
        path: what was opened, for messages.
        shapes: the shape of every tensor by name, without those that are no weights.
        ignored: the shape of every tensor that is no weight, such as a slot of an
            optimizer, by name.
        read: returns one tensor by name, numpy; also one that is no weight.
        config: returns the configuration beside the weights; raises InputError
            if there is none.
        fresh_model: returns a new model of the kind that was saved, where the format
            says which; else None.
        adapt: returns the configuration that the weights need, of the one of their
            authors.
    """

    format: str
    path: str
    shapes: Mapping[str, tuple[int, ...]]
    ignored: Mapping[str, tuple[int, ...]]
    read: Callable[[str], np.ndarray]
    config: Callable[[], AlbertConfig]
    fresh_model: Callable[[], keras.Model] | None = None
    adapt: Callable[[AlbertConfig], AlbertConfig] = lambda config: config


def open_source(path: str | Path, checkpoint: str = "best") -> Source:
    """Recognises and opens weights; see `load` for what they can be.

    Args:
        path: a file, folder, checkpoint prefix or name.
        checkpoint: which one of a folder of TF1 checkpoints, "best" or "newest", see
            `checkpoints.choose`.

    Raises:
        InputError: nothing there, an unknown format, or a damaged file.
    """
    if checkpoint not in checkpoints.CHOICES:
        raise InputError(
            f"checkpoint={checkpoint!r}: expected one of "
            f"{', '.join(checkpoints.CHOICES)}"
        )
    path = released.resolve(path)
    if path.is_dir():
        return _open_folder(path, checkpoint)
    if path.suffix in _OPENERS:
        _check_exists(path)
        return _OPENERS[path.suffix](path)
    prefix = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", str(path))
    if Path(f"{prefix}.index").exists():
        return _open_tf_checkpoint(prefix, Path(prefix).parent)
    _check_exists(path)
    raise InputError(
        f"{path}: not a file of weights; expected a TF checkpoint's prefix or .index "
        f"file, .safetensors, .h5, .keras, or a folder"
    )


def _source(format: str, path, shapes, read, config, rename=lambda name: name):
    """Sorts a file's tensors into weights and others."""
    ignored = {name for name in shapes if IGNORED[format].search(name)}
    ours = {rename(name): name for name in sorted(shapes) if name not in ignored}
    return Source(
        format=format,
        path=str(path),
        shapes={name: tuple(shapes[theirs]) for name, theirs in ours.items()},
        ignored={name: tuple(shapes[name]) for name in sorted(ignored)},
        read=lambda name: read(name if name in ignored else ours[name]),
        config=config,
    )


def _check_exists(path: Path) -> None:
    if not path.exists():
        raise InputError(
            f"{path}: no such file, folder or checkpoint prefix"
            f"{released.names_for(path)}"
        )


def _open_folder(folder: Path, checkpoint: str) -> Source:
    if (folder / "saved_model.pb").exists():
        variables = str(folder / "variables" / "variables")
        source = _open_tf_checkpoint(variables, folder / "assets")
        return dataclasses.replace(source, path=str(folder))
    if list(folder.glob("*.safetensors")):
        return _open_safetensors(folder)
    if (folder / "model.weights.h5").exists():
        return _open_kerashub(folder / "model.weights.h5")
    if (folder / "pytorch_model.bin").exists():
        raise InputError(
            f"{folder}: pytorch_model.bin is a pickle, which is never read because it "
            f"can run code; save the model as safetensors"
        )
    return _open_tf_checkpoint(str(checkpoints.choose(folder, checkpoint)), folder)


def _open_tf_checkpoint(prefix: str, folder: Path) -> Source:
    import tensorflow as tf
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    def read(name):
        with errors.reading(f"{prefix}: {name}", "a whole checkpoint, undamaged"):
            return reader.get_tensor(name)

    def config():
        return AlbertConfig.from_json_file(folder / "albert_config.json")

    with errors.reading(prefix, "a readable checkpoint"):
        reader = tf.train.load_checkpoint(prefix)
        shapes = reader.get_variable_to_shape_map()
    graph_key = "_CHECKPOINTABLE_OBJECT_GRAPH"
    if graph_key not in shapes:
        source = _source("tf1", prefix, shapes, read, config, released_name)
        return _with_one_word_table(source) if _SECOND in source.shapes else source
    # A TF2 checkpoint has its tensors under attribute paths; the graph that it carries
    # says what each variable is called.
    with errors.reading(prefix, "a checkpoint with a readable object graph"):
        graph = trackable_object_graph_pb2.TrackableObjectGraph()
        graph.ParseFromString(read(graph_key))
        _check_is_no_preprocessing(prefix, graph)
        own, keys = _own_model(graph), _variable_keys(graph)
    _check_author(prefix, keys)
    if own is not None:
        return _open_saved_model(prefix, own, shapes, read, config)
    return _source(
        "model_garden",
        prefix,
        {name: shapes[key] for name, key in keys.items() if key in shapes},
        lambda name: read(keys[name]),
        config,
        lambda name: name.removeprefix("bert/"),
    )


_FIRST, _SECOND = (f"bert/embeddings/word_embeddings{end}" for end in ("", "_2"))


def _with_one_word_table(source: Source) -> Source:
    """Multiplies the two tables of albert_zh, which is what they do to a word.

    It projects word embeddings to the width H before it adds those of positions and
    segments, which are as wide: this is a model with E = H.
    """
    sizes = source.shapes[_FIRST][0], source.shapes[_SECOND][1]
    shapes = {name: shape for name, shape in source.shapes.items() if name != _SECOND}

    def read(name):
        first = source.read(name)
        return first @ source.read(_SECOND) if name == _FIRST else first

    def adapt(config):
        return dataclasses.replace(config, embedding_size=config.hidden_size)

    return dataclasses.replace(
        source,
        shapes={**shapes, _FIRST: sizes},
        read=read,
        config=lambda: adapt(source.config()),
        adapt=adapt,
    )


def _check_author(path: Any, names: Iterable[str]) -> None:
    if any("albert_model/" in name for name in names):
        raise InputError(
            f"{path}: weights of kamalkraj's ALBERT-TF2.0, a layout that is not read; "
            f"expected the TF-Hub module or checkpoint that they were made from"
        )


def _variable_keys(graph) -> dict[str, str]:
    """Returns checkpoint key by variable name, of a TF2 checkpoint's object graph."""
    return {
        item.full_name: item.checkpoint_key
        for node in graph.nodes
        for item in node.attributes
    }


def _check_is_no_preprocessing(prefix: str, graph) -> None:
    """Refuses the module beside an encoder that turns text into its inputs."""
    if not {"tokenize", "bert_pack_inputs"} <= _children(graph, graph.nodes[0]).keys():
        return
    folder = Path(prefix).parents[1]
    encoder = "that of the encoder"
    if folder.name.endswith("_preprocess"):
        encoder += f", such as {str(folder).removesuffix('_preprocess')}"
    raise InputError(
        f"{folder}: a TF-Hub module of preprocessing, which has no weights; expected "
        f"{encoder}"
    )


def _children(graph, node) -> dict[str, Any]:
    return {child.local_name: graph.nodes[child.node_id] for child in node.children}


def _keys(graph, node) -> dict[str, str]:
    variables = _children(graph, node).items()
    return {n: item.checkpoint_key for n, v in variables for item in v.attributes}


def _own_model(graph) -> tuple[str, dict[str, str], dict[str, str]] | None:
    """Returns what `saved_models.save` noted, None if another program saved.

    That is the model's class, and the keys of its options and its weights by name.
    """
    root = _children(graph, graph.nodes[0])
    if "model" not in root or "weights" not in root:
        return None
    for kind, options in _children(graph, root["model"]).items():
        if kind in HEADS:
            return kind, _keys(graph, options), _keys(graph, root["weights"])
    return None


def _open_saved_model(prefix, own, shapes, read, config) -> Source:
    """Opens a SavedModel of this package, whose names are those of `.keras` files."""
    kind, options, keys = own

    def fresh_model():
        make = getattr(models, kind)
        with errors.reading(prefix, "whole options of a model"):
            given = {name: int(read(key)) for name, key in options.items()}
            inspect.signature(make).bind(config(), **given)
        return make(config(), **given)

    source = _source(
        "keras",
        prefix,
        {name: shapes[key] for name, key in keys.items() if key in shapes},
        lambda name: read(keys[name]),
        config,
    )
    return dataclasses.replace(source, fresh_model=fresh_model)


def _open_safetensors(path: Path) -> Source:
    import safetensors

    folder = path if path.is_dir() else path.parent
    whole = path / "model.safetensors"
    files = [path]
    if path.is_dir():
        files = [whole] if whole.exists() else sorted(path.glob("*.safetensors"))
    shapes, home = {}, {}
    for file in files:
        with errors.reading(file, "a readable safetensors file"):
            opened = safetensors.safe_open(file, framework="numpy")
            for name in opened.keys():  # noqa: SIM118 (not a mapping)
                shapes[name] = tuple(opened.get_slice(name).get_shape())
                home[name] = opened
    bare = "embeddings.word_embeddings.weight" in shapes

    def rename(name):
        # AlbertModel alone is saved without the name that its heads give it.
        return f"albert.{name}" if bare else name

    def read(name):
        with errors.reading(f"{path}: {name}", "a tensor of floating point numbers"):
            return home[name].get_tensor(name)

    return _source(
        "hf",
        path,
        shapes,
        read,
        lambda: _hf_config(folder / "config.json"),
        rename,
    )


# What Hugging Face lets vary and the released model does not.
_HF_FIXED = {"layer_norm_eps": 1e-12, "position_embedding_type": "absolute"}


def _hf_config(path: Path) -> AlbertConfig:
    values = read_json_object(path)
    keys = {item.name for item in dataclasses.fields(AlbertConfig)}
    released = {key: value for key, value in values.items() if key in keys}
    activation = str(values.get("hidden_act", "gelu_new"))
    if values.get("model_type") != "albert" or activation not in HF_ACTIVATIONS:
        raise InputError(
            f"{path}: model_type={values.get('model_type')!r} with hidden_act="
            f"{activation!r}: expected 'albert' with one of "
            f"{', '.join(HF_ACTIVATIONS)}"
        )
    for key, expected in _HF_FIXED.items():
        if values.get(key, expected) != expected:
            raise InputError(f"{path}: {key}={values[key]!r}: expected {expected!r}")
    released["hidden_act"] = HF_ACTIVATIONS[activation]
    return _config_of(path, lambda: AlbertConfig.from_dict(released))


def _open_kerashub(path: Path) -> Source:
    import h5py

    shapes: dict[str, tuple[int, ...]] = {}
    tensors = {}

    def collect(file: Path, prefix: str):
        opened = h5py.File(file, "r")
        items = []
        opened.visititems(lambda name, item: items.append((name, item)))
        for name, item in items:
            if isinstance(item, h5py.Dataset):
                # A whole task in one file has the backbone as one of its layers.
                whole = name.removeprefix("layers/albert_backbone/")
                beside = "layers/albert_backbone" in opened and whole == name
                key = ("task/" if beside else prefix) + whole
                shapes[key], tensors[key] = item.shape, item

    with errors.reading(path, "a readable HDF5 file"):
        collect(path, "")
        if path.with_name("task.weights.h5").exists():
            collect(path.with_name("task.weights.h5"), "task/")
    _check_author(path, shapes)
    if "layers/reversible_embedding/vars/0" not in shapes:
        raise InputError(
            f"{path}: not the weights of a KerasHub ALBERT backbone; what Keras's "
            f"save_weights wrote for a model of this package, its load_weights reads"
        )

    def read(name):
        with errors.reading(f"{path}: {name}", "a readable HDF5 file"):
            return tensors[name][()]

    return _source(
        "kerashub",
        path,
        shapes,
        read,
        lambda: _kerashub_config(path.with_name("config.json")),
    )


def _kerashub_config(path: Path) -> AlbertConfig:
    values = read_json_object(path)
    config: Any = values.get("config")
    if not str(values.get("class_name")).startswith("Albert"):
        raise InputError(
            f"{path}: class_name={values.get('class_name')!r}: expected AlbertBackbone"
        )
    return _config_of(
        path,
        lambda: AlbertConfig(
            vocab_size=config["vocabulary_size"],
            embedding_size=config["embedding_dim"],
            hidden_size=config["hidden_dim"],
            num_hidden_layers=config["num_layers"],
            num_hidden_groups=config["num_groups"],
            num_attention_heads=config["num_heads"],
            intermediate_size=config["intermediate_dim"],
            inner_group_num=config["num_inner_repetitions"],
            hidden_dropout_prob=config["dropout"],
            attention_probs_dropout_prob=config["dropout"],
            max_position_embeddings=config["max_sequence_length"],
            type_vocab_size=config["num_segments"],
        ),
    )


def _config_of(path: Path, make: Callable[[], AlbertConfig]) -> AlbertConfig:
    """Returns a configuration made of a file's values, naming the file in mistakes."""
    try:
        return make()
    except InputError as mistake:
        raise InputError(f"{path}: {mistake}") from None
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: incomplete configuration: {error!r}") from None


def _open_keras(path: Path) -> Source:
    with errors.reading(path, "a readable .keras file"):
        model = keras.models.load_model(path, compile=False, safe_mode=True)
    if type(model).__name__ not in HEADS:
        raise InputError(
            f"{path}: holds a {type(model).__name__}, expected one of "
            f"{', '.join(HEADS)}"
        )
    targets = {target.name: target for target in expand(model, "keras")}
    source = _source(
        "keras",
        path,
        {name: target.shape for name, target in targets.items()},
        lambda name: targets[name].to_theirs(targets[name].value()),
        lambda: model.config,
    )
    return dataclasses.replace(
        source, fresh_model=lambda: type(model).from_config(model.get_config())
    )


_OPENERS = {
    ".safetensors": _open_safetensors,
    ".h5": _open_kerashub,
    ".keras": _open_keras,
}
