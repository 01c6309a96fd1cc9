"""Names and layouts of all tensors in all formats.

One table, `ENCODER` and `HEADS`, has the names of modules in all formats. A module is a
Keras layer, or a weight with its own row in the table, such as an embedding table.
`expand` turns the table into a list of the tensors of one model in one format; loading
and saving are loops over this list. A `Source` has the tensors of an opened file, by
their names in the table.

A block is one attention layer and one feed-forward layer. As in `AlbertConfig`, a layer
of the encoder has `inner_group_num` blocks. Layers of a group can share their attention
weights, their feed-forward weights, both or none (`parameter_sharing`). Layers that
share both count as one distinct layer. Names in the formats "tf1" and "hf" contain the
number of a group. In these names, each distinct layer has a group of its own, even if
the config has fewer groups.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np

from albert_tf.errors import InputError
from albert_tf.model import models
from albert_tf.model.config import AlbertConfig

# The name of the tensor with the number of updates in a TF1 checkpoint.
STEP = "global_step"


@dataclasses.dataclass(frozen=True)
class Row:
    """One module and its name in every format.

    A name is None if the format does not have the module. The format "keras" uses
    `path` as name. In names, `{b}` is the index of a block in the encoder. `{g}` is the
    group of this block, and `{i}` its index in the group. `{n}` is "" for block 0, "_1"
    for block 1, and so on.

    Attributes:
        path: attribute path from the model, such as "encoder.pooler".
        kind: the kind of module, from which its variables follow: "table" (one matrix),
            "vector" (one vector), "norm" (gamma, beta), "dense" (kernel, bias). Three
            kinds of dense layers have another layout in some format: "split" (outputs
            are attention heads), "merge" (inputs are attention heads), "output"
            (outputs are logits).
        tf1: name in the released code.
        hf: name in Hugging Face's PyTorch models.
        kerashub: path in a KerasHub weights file. Paths that begin with "task/" are in
            the file of the head.
        model_garden: name in Model Garden's TF2 checkpoints and TF-Hub SavedModels.
    """

    path: str
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

_CLASSIFIER_HEAD = (
    Row("head.output_dense", "output", "output", "classifier",
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
        Row("sentence.output_dense", "output", "cls/seq_relationship/output",
            "sop_classifier.classifier"),
    ),
    "AlbertClassifier": _CLASSIFIER_HEAD,
    "AlbertMultipleChoice": _CLASSIFIER_HEAD,
    # The released code has no such model. Only this package uses the "tf1" name.
    "AlbertTokenClassifier": (
        Row("head.output_dense", "output", "cls/tokens/output", "classifier"),
    ),
    "AlbertSpanLabeler": (
        Row("head.output_dense", "output", "cls/squad/output", "qa_outputs"),
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

# A leaf is the name of a module's variable, such as "kernel". For each format, this
# table has the suffix that a leaf adds to the name of its module. Leaves without an
# entry add none.
LEAVES = {
    "tf1": {"kernel": "/kernel", "bias": "/bias", "gamma": "/gamma", "beta": "/beta"},
    "hf": {"table": ".weight", "kernel": ".weight", "bias": ".bias",
           "gamma": ".weight", "beta": ".bias"},
    "kerashub": {"table": "/vars/0", "kernel": "/vars/0", "bias": "/vars/1",
                 "gamma": "/vars/0", "beta": "/vars/1"},
    "model_garden": {"table": "/embeddings", "kernel": "/kernel", "bias": "/bias",
                     "gamma": "/gamma", "beta": "/beta"},
    "keras": {"kernel": ".kernel", "bias": ".bias", "gamma": ".gamma", "beta": ".beta"},
}
# fmt: on

# Patterns for names of tensors that are not weights of a model, by format.
IGNORED = {
    # Slots of both released optimizers, the number of updates, and the tensors of the
    # argument `extra` of `save`.
    "tf1": re.compile(r"/(adam|lamb)_[mv]$|^global_step$|^albert_tf/"),
    # A constant of older versions of transformers, and the decoder. The decoder's
    # weights are copies of the word embeddings and of "predictions.bias".
    "hf": re.compile(r"position_ids$|^predictions\.decoder\."),
    # The state of an optimizer, and the states of dropout.
    "kerashub": re.compile(r"^(task/)?optimizer/|seed_generator"),
    # Counters and the state of an optimizer. TensorFlow calls a variable "Variable" if
    # the code gives it no name; no weight has this name.
    "model_garden": re.compile(r"^save_counter$|^Variable$|optimizer|iter$"),
    "keras": re.compile(r"(?!)"),  # matches no name
}


@dataclasses.dataclass(eq=False)
class Target:
    """One tensor in the files of a format, and the model's variable for it.

    Attributes:
        path: attribute path of the variable.
        name: name of the tensor in the format, None if the format does not have it.
        group0: name of the corresponding tensor in group 0, for the argument
            `init_from_group0` of `load`. Equal to `name` outside of blocks.
        variable: the model's variable. If the model has no variable for the tensor: the
            values that the tensor must have, as a NumPy array.
        shape: shape of the tensor in the format.
        transposed: whether the format stores the transposed matrix.
    """

    path: str
    name: str | None
    group0: str | None
    variable: Any
    shape: tuple[int, ...]
    transposed: bool

    def from_format(self, tensor: np.ndarray) -> np.ndarray:
        """Returns a tensor of the format in the layout and type of the variable.

        Raises:
            TypeError: the tensor holds no real numbers.
        """
        tensor = np.asarray(tensor).astype(self.variable.dtype, casting="same_kind")
        return tensor.T if self.transposed else tensor.reshape(self.variable.shape)

    def to_format(self, value) -> Any:
        """Returns a value of the variable in the layout of the format.

        The result is a tensor of Keras's backend. TensorFlow copies the value only if
        it is transposed.
        """
        value = keras.ops.transpose(value) if self.transposed else value
        return keras.ops.reshape(value, self.shape)


def expand(model, format: str) -> list[Target]:
    """Lists the tensors that a model has in a format.

    If a format stores a shared variable once for each layer, the list has an item for
    each of these tensors.

    Raises:
        InputError: the model is not of this package.
    """
    class_name = type(model).__name__
    if class_name not in HEADS:
        known = ", ".join(HEADS)
        raise InputError(f"{class_name}: expected a model of this package: {known}")
    config = model.config
    groups = _find_layer_groups(config)
    targets = []
    for row in (*ENCODER, *HEADS[class_name]):
        count = len(groups) * config.inner_group_num if "{b}" in row.path else 1
        for b in range(count):
            # Block b of the encoder is block i of a layer. Group 0 has the first blocks
            # of the encoder, so b and i are equal there.
            layer, i = divmod(b, config.inner_group_num)
            path = row.path.format(b=b)
            for leaf, variable in _find_variables(model, path, row.kind, format):
                full_path = path + LEAVES["keras"].get(leaf, "")
                name = name_tensor(row, format, leaf, g=groups[layer], i=i, b=b)
                group0 = name_tensor(row, format, leaf, g=0, i=i, b=i)
                layout = _find_layout(format, row.kind, leaf, variable.shape, config)
                targets.append(Target(full_path, name, group0, variable, *layout))
    return targets


def is_in_empty_group(name: str, config: AlbertConfig) -> bool:
    """Whether a tensor belongs to a group that no layer of the model uses.

    If there are more groups than layers, transformers also writes the groups that have
    no layer.
    """
    empty_groups = {*range(config.num_hidden_groups)} - {*_find_layer_groups(config)}
    match = re.search(r"(?:group_|groups\.)(\d+)", name)
    return match is not None and int(match[1]) in empty_groups


def _find_layer_groups(config: AlbertConfig) -> list[int]:
    """Returns the group of each distinct layer.

    If there are more groups than distinct layers, some groups have no layer.
    """
    count = len({*config.block_map})  # the map has the distinct layer of each layer
    num_groups = max(config.num_hidden_groups, count)
    return [layer * num_groups // count for layer in range(count)]


def _find_variables(model, path: str, kind: str, format: str):
    """Yields the leaf and the variable for each variable of a module.

    Yields nothing if the model lacks the module. The exception is a projection that
    only the format has: its values are fixed, and are yielded as NumPy arrays.

    Args:
        model: the model.
        path: the attribute path of the module.
        kind: the kind of the module, see `Row`.
        format: a key of `LEAVES`.
    """
    module = model
    if isinstance(model, models.AlbertEncoder):  # has no attribute `encoder`
        path = path.removeprefix("encoder.")
    for part in path.split("."):
        module = module[int(part)] if part.isdigit() else getattr(module, part, None)
    if module is None:
        if path.endswith("projection") and format not in ("tf1", "keras"):
            # If the embedding size is the hidden size, the released code has no
            # projection. Other formats have one, which must be the identity.
            size = model.config.hidden_size
            yield "kernel", np.eye(size, dtype=np.float32)
            yield "bias", np.zeros(size, np.float32)
    elif kind in ("table", "vector"):
        yield kind, module
    else:
        for leaf in ("gamma", "beta") if kind == "norm" else ("kernel", "bias"):
            if getattr(module, leaf) is not None:
                yield leaf, getattr(module, leaf)


def name_tensor(
    row: Row, format: str, leaf: str, g: int = 0, i: int = 0, b: int = 0
) -> str | None:
    """Returns a tensor's name in a format; None if the format has no such module.

    Args:
        row: the module's row of the table.
        format: a key of `LEAVES`.
        leaf: the variable of the module, such as "table" or "kernel".
        g: for modules in blocks, the group of the block.
        i: for modules in blocks, the index of the block in its group.
        b: for modules in blocks, the index of the block in the encoder.
    """
    module = row.path if format == "keras" else getattr(row, format)
    if module is None:
        return None
    suffix = LEAVES[format].get(leaf, "")
    # The released variables of an output layer end in "_weights" and "_bias", not in a
    # part of their own such as "/kernel".
    if (format, row.kind) == ("tf1", "output"):
        suffix = "_weights" if leaf == "kernel" else "_bias"
    return module.format(g=g, i=i, b=b, n=f"_{b}" if b else "") + suffix


def _find_layout(format: str, kind: str, leaf: str, shape, config: AlbertConfig):
    """Returns a tensor's shape in a format, and whether the format transposes it.

    Args:
        format: a key of `LEAVES`.
        kind: the kind of the module, see `Row`.
        leaf: the name of the module's variable.
        shape: the shape of the model's variable.
        config: the model's configuration.
    """
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


@dataclasses.dataclass
class Source:
    """An opened file or folder of weights.

    Args:
        tensors: the shape of every tensor by name. The name of a weight is its name in
            the table (`ENCODER`, `HEADS`).

    Attributes:
        format: "tf1", "hf", "kerashub", "model_garden", or "keras" (of this package: a
            `.keras` file or a SavedModel).
        path: the path of the file or folder, or the prefix of a checkpoint, as a text.
        read: a function of a tensor's name that returns the tensor, even if it is not a
            weight.
        config: a function that returns the configuration of the model, and raises
            InputError if there is none.
        build_model: a function that returns a new model of the class that was saved;
            None if the format does not store the class.
        shapes: the shape of every weight by name.
        ignored: the shape of every other tensor by name, such as slots of an optimizer.
    """

    format: str
    path: Any
    tensors: dataclasses.InitVar[Mapping[str, Any]]
    read: Callable[[str], np.ndarray]
    config: Callable[[], AlbertConfig]
    build_model: Callable[[], keras.Model] | None = None

    def __post_init__(self, tensors):
        self.path = str(self.path)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.ignored: dict[str, tuple[int, ...]] = {}
        for name in sorted(tensors):
            shapes = self.ignored if IGNORED[self.format].search(name) else self.shapes
            # h5py gives the shape None to an HDF5 data set without values.
            shapes[name] = tuple(tensors[name] or ())


def format_shapes(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Formats names and shapes for a message."""
    return ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())


def expand_optimizer(optimizer, model, targets: Iterable[Target]) -> list[Target]:
    """Lists the tensors of an optimizer in a TF1 checkpoint.

    They are the number of updates, and the slots of the weights in `targets`.

    Args:
        optimizer: the optimizer, which is built if necessary.
        model: the model whose weights it updates.
        targets: the model's tensors in the checkpoint.

    Raises:
        InputError: the optimizer belongs to another package.
    """
    if not hasattr(optimizer, "slots"):
        raise InputError(
            f"optimizer={type(optimizer).__name__}: expected one of "
            f"albert_tf.optimizers, whose slots a TF1 checkpoint can hold"
        )
    optimizer.build(model.trainable_variables)
    state = [Target(STEP, STEP, STEP, optimizer.iterations, shape=(), transposed=False)]
    for target in targets:
        for slot, variable in optimizer.slots(target.variable).items():
            path, name = f"{target.path}.{slot}", f"{target.name}/{slot}"
            item = dataclasses.replace(target, path=path, name=name, variable=variable)
            state.append(item)
    return state
