"""Weights in and out: released TF1 checkpoints, TF-Hub, Hugging Face, KerasHub.

One table says what every module is called in each format; loading reads it from right
to left and saving from left to right. Nothing is ever unpickled.
"""

import contextlib
import dataclasses
import json
import logging
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from albert_tf import models
from albert_tf.config import AlbertConfig, read_json_object
from albert_tf.errors import InputError


@dataclasses.dataclass(frozen=True)
class Row:
    """One module and its name in every format.

    Attributes:
        ours: attribute path from the model; `{b}` is a block's place in the encoder.
        kind: what the module holds: "table" (one matrix), "vector", "norm" (gamma,
            beta), "dense" (kernel, bias), and dense layers that some format stores
            differently: "split" (onto heads), "merge" (from heads), "output".
        tf1: name in the released code; `{g}`, `{i}` are group and inner group.
        hf: name in Hugging Face's PyTorch models.
        kerashub: path in a KerasHub weights file; `task/` is the file of the head.
        model_garden: name in a TF2 checkpoint or TF-Hub module of Model Garden.

    A name is None where a format has no such module.
    """

    ours: str
    kind: str
    tf1: str | None
    hf: str | None = None
    kerashub: str | None = None
    model_garden: str | None = None


_TF1_BLOCK = "bert/encoder/transformer/group_{g}/inner_group_{i}/"
_HF_BLOCK = "albert.encoder.albert_layer_groups.{g}.albert_layers.{i}."
_KH_BLOCK = "layers/transformer_encoder{n}/"

# fmt: off
ENCODER = (
    Row("encoder.embeddings.word", "table", "bert/embeddings/word_embeddings",
        "albert.embeddings.word_embeddings", "layers/reversible_embedding",
        "word_embeddings"),
    Row("encoder.embeddings.segment", "table", "bert/embeddings/token_type_embeddings",
        "albert.embeddings.token_type_embeddings", "layers/embedding",
        "type_embeddings"),
    Row("encoder.embeddings.position", "table", "bert/embeddings/position_embeddings",
        "albert.embeddings.position_embeddings", "layers/position_embedding",
        "position_embedding"),
    Row("encoder.embeddings.norm", "norm", "bert/embeddings/LayerNorm",
        "albert.embeddings.LayerNorm", "layers/layer_normalization",
        "embeddings/layer_norm"),
    Row("encoder.projection", "dense", "bert/encoder/embedding_hidden_mapping_in",
        "albert.encoder.embedding_hidden_mapping_in", "layers/dense",
        "embedding_projection"),
    *(
        Row(f"encoder.blocks.{{b}}.attention.{part}", "split",
            f"{_TF1_BLOCK}attention_1/self/{part}", f"{_HF_BLOCK}attention.{part}",
            f"{_KH_BLOCK}_self_attention_layer/{part}_dense",
            f"transformer/self_attention/{part}")
        for part in ("query", "key", "value")
    ),
    Row("encoder.blocks.{b}.attention.output_dense", "merge",
        _TF1_BLOCK + "attention_1/output/dense", _HF_BLOCK + "attention.dense",
        _KH_BLOCK + "_self_attention_layer/output_dense",
        "transformer/self_attention/attention_output"),
    Row("encoder.blocks.{b}.attention.norm", "norm", _TF1_BLOCK + "LayerNorm",
        _HF_BLOCK + "attention.LayerNorm", _KH_BLOCK + "_self_attention_layer_norm",
        "transformer/self_attention_layer_norm"),
    Row("encoder.blocks.{b}.feed_forward.intermediate", "dense",
        _TF1_BLOCK + "ffn_1/intermediate/dense", _HF_BLOCK + "ffn",
        _KH_BLOCK + "_feedforward_intermediate_dense", "transformer/intermediate"),
    Row("encoder.blocks.{b}.feed_forward.output_dense", "dense",
        _TF1_BLOCK + "ffn_1/intermediate/output/dense", _HF_BLOCK + "ffn_output",
        _KH_BLOCK + "_feedforward_output_dense", "transformer/output"),
    Row("encoder.blocks.{b}.feed_forward.norm", "norm", _TF1_BLOCK + "LayerNorm_1",
        _HF_BLOCK + "full_layer_layer_norm", _KH_BLOCK + "_feedforward_layer_norm",
        "transformer/output_layer_norm"),
    Row("encoder.pooler", "dense", "bert/pooler/dense", "albert.pooler",
        "layers/dense_1", "pooler_transform"),
)

_CHOOSER = (
    Row("head.output_dense", "output", "output_{leaf}", "classifier",
        "task/layers/dense"),
)

HEADS: Mapping[str, tuple[Row, ...]] = {
    "AlbertEncoder": (),
    "AlbertPretrainer": (
        Row("masked_lm.transform", "dense", "cls/predictions/transform/dense",
            "predictions.dense", "task/layers/masked_lm_head/_intermediate_dense",
            "cls/predictions/transform/dense"),
        Row("masked_lm.norm", "norm", "cls/predictions/transform/LayerNorm",
            "predictions.LayerNorm",
            "task/layers/masked_lm_head/_intermediate_layer_norm",
            "cls/predictions/transform/LayerNorm"),
        Row("masked_lm.output_bias", "vector", "cls/predictions/output_bias",
            "predictions.bias", "task/layers/masked_lm_head/vars/0",
            "cls/predictions/output_bias/bias"),
        Row("sentence.output_dense", "output", "cls/seq_relationship/output_{leaf}",
            "sop_classifier.classifier"),
    ),
    "AlbertClassifier": _CHOOSER,
    "AlbertMultipleChoice": _CHOOSER,
    "AlbertSpanLabeler": (
        Row("head.output_dense", "output", "cls/squad/output_{leaf}", "qa_outputs"),
    ),
    "AlbertConditionalSpanLabeler": (
        Row("head.start", "dense", "start_logits/dense"),
        Row("head.end_hidden", "dense", "end_logits/dense_0"),
        Row("head.end_norm", "norm", "end_logits/LayerNorm"),
        Row("head.end", "dense", "end_logits/dense_1"),
        Row("head.answer_hidden", "dense", "answer_class/dense_0"),
        Row("head.answer", "dense", "answer_class/dense_1"),
    ),
}

# What the parts of a module are called, after the module's name.
LEAVES = {
    "tf1": {"table": "", "vector": "", "kernel": "/kernel", "bias": "/bias",
            "gamma": "/gamma", "beta": "/beta"},
    "hf": {"table": ".weight", "vector": "", "kernel": ".weight", "bias": ".bias",
           "gamma": ".weight", "beta": ".bias"},
    "kerashub": {"table": "/vars/0", "vector": "", "kernel": "/vars/0",
                 "bias": "/vars/1", "gamma": "/vars/0", "beta": "/vars/1"},
    "model_garden": {"table": "/embeddings", "vector": "", "kernel": "/kernel",
                     "bias": "/bias", "gamma": "/gamma", "beta": "/beta"},
    "keras": {"table": "", "vector": "", "kernel": ".kernel", "bias": ".bias",
              "gamma": ".gamma", "beta": ".beta"},
}
# fmt: on

# Tensors of a file that are no weights of a model.
IGNORED = {
    # Slots of both released optimizers, and the number of updates.
    "tf1": re.compile(r"/adam_[mv]$|^global_step$"),
    # A constant of older versions; the decoder, which is the word table again.
    "hf": re.compile(r"position_ids$|^predictions\.decoder\."),
    "kerashub": re.compile(r"^(task/)?optimizer/|seed_generator"),
    "model_garden": re.compile(r"^save_counter$|^Variable$|optimizer|iter$"),
    "keras": re.compile(r"(?!)"),
}

# Hugging Face's "gelu" is the exact form, not the released one.
_HF_ACTIVATIONS = {
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
        format: "tf1", "hf", "kerashub", "model_garden" or "keras".
        path: what was opened, for messages.
        shapes: the shape of every tensor by name, without those that are no weights.
        ignored: names of the tensors that are no weights.
        read: returns one tensor by name, numpy.
        config: returns the configuration found beside the weights; raises InputError
            if there is none.
    """

    format: str
    path: str
    shapes: Mapping[str, tuple[int, ...]]
    ignored: tuple[str, ...]
    read: Callable[[str], np.ndarray]
    config: Callable[[], AlbertConfig]


@dataclasses.dataclass(frozen=True)
class Report:
    """What `load` did.

    Attributes:
        format: the format that the path was recognised as.
        loaded: our names of the weights that were set.
        missing: our names and shapes of the weights that were left alone.
        unused: names and shapes of the file's tensors that had no place.
        ignored: names of the file's tensors that are no weights of a model.
    """

    format: str
    loaded: tuple[str, ...]
    missing: Mapping[str, tuple[int, ...]]
    unused: Mapping[str, tuple[int, ...]]
    ignored: tuple[str, ...]


def load(
    model: keras.Model,
    path: str | Path,
    *,
    only: str | Sequence[str] | None = None,
    allow_missing: Sequence[str] = (),
    init_from_group0: bool = False,
) -> Report:
    """Sets a model's weights from a file or folder, whose format it finds out.

    Args:
        model: one of the models of `albert_tf.models`.
        path: a released TF1 checkpoint (prefix, `.index` file or folder), a TF-Hub
            folder (TF1, or TF2 of Model Garden), a Hugging Face folder or
            `.safetensors` file, a KerasHub preset folder or its weights file, or a
            `.keras` file of this package.
        only: parts of the model to load, such as "encoder"; the rest of the model and
            of the file is left alone.
        allow_missing: beginnings of our names that may be absent from the file, such
            as "encoder.pooler" for Hugging Face's question answering models.
        init_from_group0: where the file has no group g, take its group 0: starts a
            model with own parameters per layer from a shared one, which is what the
            released flag of this name was meant to do.

    Returns:
        what was loaded, missing, unused and ignored. What is missing or unused is
        also logged as a warning.

    Raises:
        InputError: nothing there, an unknown or damaged file, and, unless allowed
            above, a weight that is not in the file, a tensor that has no place, or a
            shape that differs. The message lists every one with its shape.
    """
    source = open_source(path)
    targets = _wanted(model, source.format, only)
    names = {
        target: _find(target.name, source.shapes, init_from_group0)
        for target in targets
    }
    missing = {t.ours: t.shape for t, name in names.items() if name is None}
    used = set(names.values())
    unused = {n: shape for n, shape in source.shapes.items() if n not in used}
    _check_fit(
        f"{source.path} ({source.format}) does not fit {type(model).__name__}",
        missing={
            name: shape
            for name, shape in missing.items()
            if not name.startswith(tuple(allow_missing))
        },
        unused=unused if only is None else {},
        differing={
            name: (source.shapes[name], target.shape)
            for target, name in names.items()
            if name is not None and source.shapes[name] != target.shape
        },
    )
    loaded = {target: name for target, name in names.items() if name is not None}
    _assign(loaded, source)
    for kind, left in (("left as they were", missing), ("not used", unused)):
        if left:
            logging.getLogger(__name__).warning(
                "%s: %s: %s", source.path, kind, _listed(left)
            )
    ours = tuple(target.ours for target in loaded)
    return Report(source.format, ours, missing, unused, source.ignored)


def save(model: keras.Model, path: str | Path, format: str) -> Path:
    """Writes a model's weights and its configuration; all of it or nothing.

    Args:
        model: one of the models of `albert_tf.models`.
        path: for "tf1" the checkpoint's prefix, or a folder (one that exists, or a
            name that ends in "/"), which gets `model.ckpt-best` and
            `albert_config.json`. For "hf" a folder, which gets `model.safetensors`
            and `config.json`. For "keras" a file that ends in `.keras`.
        format: "tf1" (for the released code), "hf" (for `transformers`), "keras".

    Returns:
        the prefix, folder or file written, as `load` takes it.

    Raises:
        InputError: an unknown format, a model that the format has no place for, or a
            path that cannot be written. Models whose layers share only attention or
            only feed-forward are written layer by layer, with `num_hidden_groups`
            at the number of layers: the other formats can not tie them.
    """
    writers = {"tf1": _save_tf1, "hf": _save_hf, "keras": _save_keras}
    if format not in writers:
        raise InputError(f"format={format!r}: expected one of {', '.join(writers)}")
    try:
        return writers[format](model, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None


def open_source(path: str | Path) -> Source:
    """Recognises and opens weights; see `load` for what they can be.

    Raises:
        InputError: nothing there, nothing known, or a damaged file.
    """
    path = Path(path)
    if path.is_dir():
        return _open_folder(path)
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


def model_for(source: Source, config: AlbertConfig) -> keras.Model:
    """Creates the model whose head is in a file: the weights are not loaded.

    A single output unit is taken for regression; multiple choice looks the same.
    """
    rows = {
        name: HEADS[name][0]
        for name in (
            "AlbertPretrainer",
            "AlbertSpanLabeler",
            "AlbertConditionalSpanLabeler",
            "AlbertClassifier",
        )
    }
    for name, row in rows.items():
        kernel = _name(row, row.ours, source.format, "kernel")
        if kernel not in source.shapes:
            continue
        if name == "AlbertPretrainer":
            sentence = HEADS[name][-1]
            has_sentence = (
                _name(sentence, sentence.ours, source.format, "kernel") in source.shapes
            )
            return models.AlbertPretrainer(config, sentence_head=has_sentence)
        if name == "AlbertClassifier":
            return models.AlbertClassifier(config, min(source.shapes[kernel]))
        return getattr(models, name)(config)
    return models.AlbertEncoder(config)


# --- the table, expanded over a model ---


@dataclasses.dataclass(frozen=True, eq=False)
class _Target:
    """One tensor of a format and the variable that it belongs to.

    Attributes:
        ours: our name, an attribute path.
        name: the tensor's name in the format, None if the format has no such module.
        variable: the model's variable, or a constant where the format has a tensor
            that the model does without.
        shape: the tensor's shape in the format.
        transposed: whether the format stores the matrix the other way round.
    """

    ours: str
    name: str | None
    variable: Any
    shape: tuple[int, ...]
    transposed: bool

    def to_ours(self, tensor: np.ndarray) -> np.ndarray:
        tensor = np.asarray(tensor).astype(np.float32)
        return tensor.T if self.transposed else tensor.reshape(self.variable.shape)

    def to_theirs(self) -> np.ndarray:
        tensor = np.asarray(keras.ops.convert_to_numpy(self.variable))
        tensor = tensor.T if self.transposed else tensor.reshape(self.shape)
        return np.ascontiguousarray(tensor)


def _targets(model, format: str) -> list[_Target]:
    """Lists every tensor that a format has, or should have, for a model."""
    config = model.config
    count = max(config.num_attentions, config.num_feed_forwards)
    targets = []
    for row in (*ENCODER, *HEADS[type(model).__name__]):
        blocks = range(count * config.inner_group_num if "{b}" in row.ours else 1)
        for b in blocks:
            ours = row.ours.format(b=b)
            group, inner = divmod(b, config.inner_group_num)
            for leaf, variable in _parts(model, ours, row.kind, format):
                name = _name(row, ours, format, leaf, g=group, i=inner, b=b)
                layout = _layout(format, row.kind, leaf, variable.shape, config)
                targets.append(
                    _Target(ours + LEAVES["keras"][leaf], name, variable, *layout)
                )
    return targets


def _wanted(model, format: str, only: str | Sequence[str] | None) -> list[_Target]:
    """Lists the targets of some parts of a model; None means all."""
    targets = _targets(model, format)
    if only is None:
        return targets
    only = (only,) if isinstance(only, str) else tuple(only)
    parts = {target.ours.split(".")[0] for target in targets}
    for part in only:
        if part not in parts:
            raise InputError(
                f"only={part!r}: expected one of {', '.join(sorted(parts))}, the parts "
                f"of {type(model).__name__}"
            )
    return [target for target in targets if target.ours.split(".")[0] in only]


def _parts(model, ours: str, kind: str, format: str) -> Iterator[tuple[str, Any]]:
    """Yields what a module holds, as (leaf, variable); nothing if it is left out."""
    module = model
    steps = ours.split(".")
    for step in steps[1:] if isinstance(model, models.AlbertEncoder) else steps:
        module = module[int(step)] if step.isdigit() else getattr(module, step)
    if module is None:
        if ours == "encoder.projection" and format not in ("tf1", "keras"):
            # With E = H the release has no projection; the others have one, which
            # has to change nothing.
            size = model.config.hidden_size
            yield "kernel", np.eye(size, dtype=np.float32)
            yield "bias", np.zeros(size, np.float32)
    elif kind in ("table", "vector"):
        yield kind, module
    elif kind == "norm":
        yield "gamma", module.gamma
        yield "beta", module.beta
    else:
        yield "kernel", module.kernel
        if module.bias is not None:
            yield "bias", module.bias


def _name(row: Row, ours: str, format: str, leaf: str, g=0, i=0, b=0) -> str | None:
    """Returns a tensor's name in a format, None if the format has no such module."""
    if format == "keras":
        return ours + LEAVES["keras"][leaf]
    module = getattr(row, format)
    if module is None:
        return None
    short = {"kernel": "weights"}.get(leaf, leaf)
    filled = module.format(g=g, i=i, n=f"_{b}" if b else "", leaf=short)
    return filled if "{leaf}" in module else filled + LEAVES[format][leaf]


def _layout(format: str, kind: str, leaf: str, shape, config: AlbertConfig):
    """Returns a tensor's shape in a format, and whether it is transposed there."""
    shape = tuple(shape)
    if leaf == "kernel" and (format == "hf" or (format, kind) == ("tf1", "output")):
        return shape[::-1], True
    if format in ("kerashub", "model_garden"):
        heads = (config.num_attention_heads, config.head_size)
        if kind == "split":
            return (*shape[:-1], *heads), False
        if (kind, leaf) == ("merge", "kernel"):
            return (*heads, *shape[1:]), False
    return shape, False


def _find(name: str | None, shapes, init_from_group0: bool) -> str | None:
    """Returns the name under which a file has a tensor, None if it has not."""
    if name in shapes:
        return name
    if name is not None and init_from_group0:
        shared = re.sub(r"(group_|albert_layer_groups\.)\d+", r"\g<1>0", name, count=1)
        return shared if shared in shapes else None
    return None


def _assign(loaded: Mapping[_Target, str], source: Source) -> None:
    """Sets the variables, once it is sure that all of them can be set."""
    values: dict[int, tuple[Any, np.ndarray]] = {}
    for target, name in loaded.items():
        value = target.to_ours(source.read(name))
        variable, known = values.setdefault(
            id(target.variable), (target.variable, value)
        )
        if isinstance(variable, np.ndarray):
            known = variable
        if not np.array_equal(known, value):
            expected = (
                "expected the identity, because embedding_size equals hidden_size"
                if isinstance(variable, np.ndarray)
                else "expected the same values as in the layers it is shared with"
            )
            raise InputError(f"{source.path}: {name}: {expected}")
    for variable, value in values.values():
        if not isinstance(variable, np.ndarray):
            variable.assign(value)


def _check_fit(subject: str, *, missing, unused, differing) -> None:
    lines = [f"  not in the file: {_listed(missing)}"] if missing else []
    lines += [f"  no place in the model: {_listed(unused)}"] if unused else []
    lines += [
        f"  {name}: shape {list(theirs)} in the file, {list(ours)} by the configuration"
        for name, (theirs, ours) in differing.items()
    ]
    if lines:
        raise InputError("\n".join([f"{subject}:", *lines]))


def _listed(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())


# --- reading ---


def _source(format: str, path, shapes, read, config, rename=lambda name: name):
    """Sorts a file's tensors into weights and others."""
    ignored = tuple(name for name in shapes if IGNORED[format].search(name))
    ours = {rename(name): name for name in shapes if name not in ignored}
    return Source(
        format=format,
        path=str(path),
        shapes={name: tuple(shapes[theirs]) for name, theirs in ours.items()},
        ignored=ignored,
        read=lambda name: read(ours[name]),
        config=config,
    )


def _check_exists(path: Path) -> None:
    if not path.exists():
        raise InputError(f"{path}: no such file, folder or checkpoint prefix")


def _open_folder(folder: Path) -> Source:
    if (folder / "saved_model.pb").exists():
        return _open_tf_checkpoint(
            str(folder / "variables" / "variables"), folder / "assets"
        )
    if list(folder.glob("*.safetensors")):
        return _open_safetensors(folder)
    if (folder / "model.weights.h5").exists():
        return _open_kerashub(folder / "model.weights.h5")
    if (folder / "pytorch_model.bin").exists():
        raise InputError(
            f"{folder}: pytorch_model.bin is a pickle, which is never read because it "
            f"can run code; save the model as safetensors"
        )
    return _open_tf_checkpoint(_checkpoint_in(folder), folder)


def _checkpoint_in(folder: Path) -> str:
    """Returns the prefix of a folder's checkpoint: the named, best or only one."""
    if (folder / "checkpoint").exists():
        text = (folder / "checkpoint").read_text(encoding="utf-8")
        named = re.search(r'^model_checkpoint_path: "(.*)"', text, re.MULTILINE)
        if named:
            # The folder may have moved since: only the last part of the path counts.
            return str(folder / Path(named[1]).name)
    found = sorted(path.stem for path in folder.glob("*.index"))
    if "model.ckpt-best" in found:
        return str(folder / "model.ckpt-best")
    if len(found) != 1:
        raise InputError(
            f"{folder}: expected one set of weights (TF checkpoint, SavedModel, "
            f".safetensors, model.weights.h5); found {', '.join(found) or 'none'}"
        )
    return str(folder / found[0])


def _open_tf_checkpoint(prefix: str, folder: Path) -> Source:
    import tensorflow as tf

    def read(name):
        try:
            return reader.get_tensor(name)
        except (tf.errors.OpError, ValueError) as error:
            raise InputError(
                f"{prefix}: {name} cannot be read, the file is damaged or cut short: "
                f"{_first_line(error)}"
            ) from None

    def config():
        return AlbertConfig.from_json_file(folder / "albert_config.json")

    try:
        reader = tf.train.load_checkpoint(prefix)
        shapes = reader.get_variable_to_shape_map()
    except (tf.errors.OpError, ValueError) as error:
        raise InputError(
            f"{prefix}: not a readable checkpoint: {_first_line(error)}"
        ) from None
    graph_key = "_CHECKPOINTABLE_OBJECT_GRAPH"
    if graph_key not in shapes:
        # TF-Hub modules of TF1 put their name in front of every variable.
        return _source(
            "tf1",
            prefix,
            shapes,
            read,
            config,
            lambda name: name.removeprefix("module/"),
        )
    # A TF2 checkpoint has its tensors under attribute paths; the graph that it carries
    # says what each variable is called.
    keys = _variable_keys(read(graph_key))
    return _source(
        "model_garden",
        prefix,
        {name: shapes[key] for name, key in keys.items() if key in shapes},
        lambda name: read(keys[name]),
        config,
        lambda name: name.removeprefix("bert/"),
    )


def _variable_keys(graph: bytes) -> dict[str, str]:
    """Returns checkpoint key by variable name, of a TF2 checkpoint's object graph."""
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    nodes = trackable_object_graph_pb2.TrackableObjectGraph.FromString(graph).nodes
    return {
        item.full_name: item.checkpoint_key
        for node in nodes
        for item in node.attributes
    }


def _open_safetensors(path: Path) -> Source:
    import safetensors

    folder = path if path.is_dir() else path.parent
    whole = path / "model.safetensors"
    files = [path]
    if path.is_dir():
        files = [whole] if whole.exists() else sorted(path.glob("*.safetensors"))
    shapes, home = {}, {}
    for file in files:
        try:
            opened = safetensors.safe_open(file, framework="numpy")
            for name in opened.keys():  # noqa: SIM118 (not a mapping)
                shapes[name] = tuple(opened.get_slice(name).get_shape())
                home[name] = opened
        except (safetensors.SafetensorError, OSError) as error:
            raise InputError(
                f"{file}: not a readable safetensors file: {_first_line(error)}"
            ) from None
    bare = "embeddings.word_embeddings.weight" in shapes

    def rename(name):
        # AlbertModel alone is saved without the name that its heads give it.
        return f"albert.{name}" if bare else name

    return _source(
        "hf",
        path,
        shapes,
        lambda name: home[name].get_tensor(name),
        lambda: _hf_config(folder / "config.json"),
        rename,
    )


def _hf_config(path: Path) -> AlbertConfig:
    values = read_json_object(path)
    keys = {item.name for item in dataclasses.fields(AlbertConfig)}
    known = {key: value for key, value in values.items() if key in keys}
    activation = values.get("hidden_act", "gelu_new")
    if values.get("model_type") != "albert" or activation not in _HF_ACTIVATIONS:
        raise InputError(
            f"{path}: model_type={values.get('model_type')!r} with hidden_act="
            f"{activation!r}: expected 'albert' with one of "
            f"{', '.join(_HF_ACTIVATIONS)}"
        )
    return AlbertConfig.from_dict({**known, "hidden_act": _HF_ACTIVATIONS[activation]})


def _open_kerashub(path: Path) -> Source:
    import h5py

    shapes: dict[str, tuple[int, ...]] = {}
    tensors = {}

    def collect(file: Path, prefix: str):
        try:
            opened = h5py.File(file, "r")
        except OSError as error:
            raise InputError(
                f"{file}: not a readable HDF5 file: {_first_line(error)}"
            ) from None

        def visit(name, item):
            if isinstance(item, h5py.Dataset):
                shapes[prefix + name] = item.shape
                tensors[prefix + name] = item

        opened.visititems(visit)

    collect(path, "")
    if path.with_name("task.weights.h5").exists():
        collect(path.with_name("task.weights.h5"), "task/")
    if "layers/reversible_embedding/vars/0" not in shapes:
        raise InputError(
            f"{path}: not the weights of a KerasHub ALBERT backbone; what Keras's "
            f"save_weights wrote for a model of this package, its load_weights reads"
        )
    return _source(
        "kerashub",
        path,
        shapes,
        lambda name: tensors[name][()],
        lambda: _kerashub_config(path.with_name("config.json")),
    )


def _kerashub_config(path: Path) -> AlbertConfig:
    values = read_json_object(path)
    config = values.get("config", {})
    if not str(values.get("class_name")).startswith("Albert"):
        raise InputError(
            f"{path}: class_name={values.get('class_name')!r}: expected AlbertBackbone"
        )
    return AlbertConfig(
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
    )


def _open_keras(path: Path) -> Source:
    try:
        model = keras.models.load_model(path, compile=False)
    except (ValueError, OSError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: not a readable .keras file: {_first_line(error)}"
        ) from None
    if type(model).__name__ not in HEADS:
        raise InputError(
            f"{path}: holds a {type(model).__name__}; expected one of {', '.join(HEADS)}"
        )
    targets = {target.name: target for target in _targets(model, "keras")}
    return _source(
        "keras",
        path,
        {name: target.shape for name, target in targets.items()},
        lambda name: targets[name].to_theirs(),
        lambda: model.config,
    )


_OPENERS = {
    ".safetensors": _open_safetensors,
    ".h5": _open_kerashub,
    ".keras": _open_keras,
}


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


# --- writing ---


def _collected(model, format: str) -> dict[str, np.ndarray]:
    """Returns a model's tensors by their names in a format."""
    targets = _targets(model, format)
    homeless = {t.ours: t.shape for t in targets if t.name is None}
    if homeless:
        raise InputError(
            f"format={format!r} has no place for these weights of "
            f"{type(model).__name__}: {_listed(homeless)}"
        )
    return {str(target.name): target.to_theirs() for target in targets}


def _untied(config: AlbertConfig) -> AlbertConfig:
    """Returns the configuration that the written groups have in other formats."""
    return dataclasses.replace(
        config,
        num_hidden_groups=max(config.num_attentions, config.num_feed_forwards),
        parameter_sharing="all",
    )


def _save_tf1(model, path: str | Path) -> Path:
    import tensorflow as tf

    folder = Path(path)
    if folder.is_dir() or str(path).endswith("/"):
        prefix = folder / "model.ckpt-best"
    else:
        prefix, folder = folder, folder.parent
    tensors = _collected(model, "tf1")
    with _new_folder(folder) as new:
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


def _save_hf(model, path: str | Path) -> Path:
    import safetensors.numpy

    tensors = _collected(model, "hf")
    if isinstance(model, models.AlbertEncoder):
        tensors = {name.removeprefix("albert."): x for name, x in tensors.items()}
    with _new_folder(Path(path)) as new:
        safetensors.numpy.save_file(
            tensors, new / "model.safetensors", metadata={"format": "pt"}
        )
        text = json.dumps(_to_hf_config(model), indent=2, sort_keys=True) + "\n"
        (new / "config.json").write_text(text)
    return Path(path)


def _to_hf_config(model) -> dict[str, Any]:
    config = _untied(model.config)
    architecture = {
        "AlbertEncoder": "AlbertModel",
        "AlbertPretrainer": "AlbertForPreTraining",
        "AlbertClassifier": "AlbertForSequenceClassification",
        "AlbertMultipleChoice": "AlbertForMultipleChoice",
        "AlbertSpanLabeler": "AlbertForQuestionAnswering",
    }[type(model).__name__]
    values = config.to_dict()
    values.pop("down_scale_factor")
    if isinstance(model, models.AlbertPretrainer) and model.sentence is None:
        architecture = "AlbertForMaskedLM"
    if isinstance(model, models.AlbertClassifier):
        count = model.head.num_labels
        values["id2label"] = {str(k): f"LABEL_{k}" for k in range(count)}
        values["label2id"] = {f"LABEL_{k}": k for k in range(count)}
    names = {ours: theirs for theirs, ours in _HF_ACTIVATIONS.items()}
    return {
        **values,
        "architectures": [architecture],
        "bos_token_id": 2,
        "classifier_dropout_prob": config.classifier_dropout_prob,
        "eos_token_id": 3,
        "hidden_act": "gelu_new"
        if config.hidden_act == "gelu"
        else names[config.hidden_act or "linear"],
        "layer_norm_eps": 1e-12,
        "model_type": "albert",
        "pad_token_id": 0,
    }


def _save_keras(model, path: str | Path) -> Path:
    path = Path(path)
    if path.suffix != ".keras":
        raise InputError(f"{path}: a file of format 'keras' has to end in .keras")
    with _new_folder(path.parent) as new:
        model.save(new / path.name)
    return path


@contextlib.contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """Yields an empty folder whose files move to `folder` when all are written."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".writing-") as temporary:
        yield Path(temporary)
        for file in sorted(Path(temporary).iterdir()):
            file.replace(folder / file.name)
