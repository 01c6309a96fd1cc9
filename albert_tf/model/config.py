"""The model's configuration: the keys of a released `albert_config.json`."""

import dataclasses
import json
import logging
import math
import re
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from albert_tf import errors
from albert_tf.data import json_values
from albert_tf.errors import InputError

# Many models pad their vocabulary size to a multiple of this number, for accelerators.
_PADDING = 128
# Keys of released files that the released code does not read.
_UNREAD_KEYS = {"gap_size", "layers_to_keep", "net_structure_type", "num_memory_blocks"}
# Keys of the files of BERT and of albert_zh, a Chinese ALBERT by other authors. They
# have no effect, and a log line names them. Only the value of `ln_type` is checked,
# because any value but "postln" means another place of the layer normalisation.
_BERT_KEYS = re.compile("directionality|ln_type|pooler_.*")
# Fields of `AlbertConfig` that the released configuration does not have.
_ADDED_KEYS = ("parameter_sharing", "classifier_dropout_prob", "recompute")
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class AlbertConfig:
    """Sizes and dropout rates of an ALBERT model.

    Fields up to `initializer_range` are the keys of the released `albert_config.json`
    with the released constructor's defaults, which are the values of xxlarge. The
    letters V, E, H and L are the paper's. The released configuration does not have the
    last three fields. With their defaults, the model is the released one.

    Attributes:
        vocab_size: V, tokens in the vocabulary.
        embedding_size: E, width of the embeddings. E = H leaves out the projection
            from E to H.
        hidden_size: H, width of the Transformer; a multiple of `num_attention_heads`.
        num_hidden_layers: L, number of layers, each of `inner_group_num` blocks.
        num_hidden_groups: G, number of groups of consecutive layers; layers of a group
            share their parameters. 1 is ALBERT, L is BERT. **As released:** if there
            are more groups than layers, groups without a layer have no parameters.
        num_attention_heads: N, number of heads of an attention layer.
        intermediate_size: width of the feed-forward layer, 4H in the paper.
        inner_group_num: number of distinct blocks in each layer, applied in order.
        down_scale_factor: unused; every released file has it.
        hidden_act: "gelu" (the tanh form, as released), "relu", "tanh", or "linear" or
            None for no activation; also "gelu_erf" (the exact form), which Hugging Face
            calls "gelu".
        hidden_dropout_prob: rate in [0, 1) after the embeddings and after each
            attention and feed-forward output.
        attention_probs_dropout_prob: rate in [0, 1) on the attention probabilities.
        max_position_embeddings: maximum length of an input in tokens.
        type_vocab_size: number of segment types.
        initializer_range: standard deviation of the initial weights (normal, cut at
            two standard deviations).
        parameter_sharing: the paper's four strategies (table 4): "all", "attention"
            (each layer has its own feed-forward), "ffn" (each layer has its own
            attention), "none". Layers share weights only within each of the G groups.
        classifier_dropout_prob: rate in [0, 1) before the output layer of a fine-tuning
            head. **As released:** 0.1, a constant of the released code.
        recompute: "none", or "block" to store only each block's input for the
            backward pass, which computes the rest again. In float32, this changes no
            gradient. In mixed precision, gradients of shared kernels are added up in
            float32 instead of the compute dtype.

    Raises:
        InputError: a value of the wrong type or out of range, or an impossible
            combination.
    """

    vocab_size: int
    embedding_size: int = 128
    hidden_size: int = 4096
    num_hidden_layers: int = 12
    num_hidden_groups: int = 1
    num_attention_heads: int = 64
    intermediate_size: int = 16384
    inner_group_num: int = 1
    down_scale_factor: float = 1
    hidden_act: Literal["gelu", "gelu_erf", "relu", "tanh", "linear", None] = "gelu"
    hidden_dropout_prob: float = 0
    attention_probs_dropout_prob: float = 0
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    parameter_sharing: Literal["all", "attention", "ffn", "none"] = "all"
    classifier_dropout_prob: float = 0.1
    recompute: Literal["none", "block"] = "none"

    def __post_init__(self):
        for key, hint in typing.get_type_hints(type(self)).items():
            _check_value(key, getattr(self, key), hint)
        if self.hidden_size % self.num_attention_heads:
            raise InputError(
                f"hidden_size={self.hidden_size} is not a multiple of "
                f"num_attention_heads={self.num_attention_heads}"
            )
        if self.parameter_sharing == "none" and self.num_hidden_groups not in (
            1,
            self.num_hidden_layers,
        ):
            raise InputError(
                f"parameter_sharing='none' gives every layer its own parameters, but "
                f"num_hidden_groups={self.num_hidden_groups} asks for groups; expected "
                f"1 or num_hidden_layers={self.num_hidden_layers}"
            )

    @property
    def head_size(self) -> int:
        """The size of an attention head, D = H / N."""
        return self.hidden_size // self.num_attention_heads

    @property
    def attention_map(self) -> tuple[int, ...]:
        """For each of the L layers, the index of its attention weights."""
        return self._group_map(self.parameter_sharing in ("all", "attention"))

    @property
    def ffn_map(self) -> tuple[int, ...]:
        """For each of the L layers, the index of its feed-forward weights."""
        return self._group_map(self.parameter_sharing in ("all", "ffn"))

    @property
    def block_map(self) -> tuple[int, ...]:
        """For each of the L layers, the index of its distinct layer.

        Layers that share their attention and feed-forward weights are one distinct
        layer, and have the same blocks.
        """
        pairs = list(zip(self.attention_map, self.ffn_map, strict=True))
        distinct = list(dict.fromkeys(pairs))
        return tuple(map(distinct.index, pairs))

    def _group_map(self, is_shared: bool) -> tuple[int, ...]:
        """Returns the group of each layer if `is_shared`, else the index of the layer.

        **As released:** the released code gives the same groups for all published
        sizes. But it divides floats. In rare cases, such as layer 15 of L = G = 22, its
        rounding gives the group before the right one.
        """
        layers = self.num_hidden_layers
        groups = min(self.num_hidden_groups, layers) if is_shared else layers
        return tuple(layer * groups // layers for layer in range(layers))

    def check_vocabulary(self, path: str, size: int) -> None:
        """Checks that a vocabulary is not too large, and warns if it is too small.

        Args:
            path: the path of the vocabulary, for the message.
            size: the number of its tokens. V may be larger without a warning, up to
                `size` rounded up to a multiple of 128.

        Raises:
            InputError: the vocabulary has more tokens than the model's V.
        """
        message = (
            f"{path}: {size} tokens, but the model's vocab_size is {self.vocab_size}; "
            f"expected the vocabulary of this model, or for a new model an "
            f"albert_config.json with vocab_size={size}"
        )
        if size > self.vocab_size:
            raise InputError(message)
        if self.vocab_size > math.ceil(size / _PADDING) * _PADDING:
            _log.warning(message)

    @classmethod
    def named(cls, name: str) -> "AlbertConfig":
        """Returns a configuration by a name such as "albert_base_v2" or "albert_tiny".

        The names are the keys of `PUBLISHED` and `UNRELEASED`.

        Raises:
            InputError: an unknown name; the message lists all names.
        """
        configs = PUBLISHED | UNRELEASED
        if name not in configs:
            raise InputError(
                f"{name}: not a configuration; expected a file, or one of "
                f"{', '.join(configs)}"
            )
        return configs[name]

    @classmethod
    def find(cls, name: str) -> "AlbertConfig":
        """Reads the file `name`; if there is no such file, returns `named(name)`.

        Raises:
            InputError: see `from_json_file` and `named`.
        """
        return cls.from_json_file(name) if Path(name).exists() else cls.named(name)

    @classmethod
    def from_dict(
        cls, values: Mapping[str, Any], path: str | Path | None = None
    ) -> "AlbertConfig":
        """Builds a configuration from the keys of an `albert_config.json`.

        Args:
            values: the contents of the file.
            path: the path of the file, for messages; None if there is no file.

        Raises:
            InputError: a key is unknown, `vocab_size` is missing, or a value is
                impossible.
        """
        try:
            return cls(**_select_fields(values))
        except InputError as mistake:
            raise InputError(f"{path}: {mistake}" if path else str(mistake)) from None

    @classmethod
    def from_json_file(cls, path: str | Path) -> "AlbertConfig":
        """Reads an `albert_config.json`.

        Raises:
            InputError: the file is missing or has no JSON object; or see `from_dict`.
        """
        return cls.from_dict(json_values.read_object(path), path)

    def to_dict(self) -> dict[str, Any]:
        """Returns the released fields, and added fields with non-default values."""
        return {
            item.name: getattr(self, item.name)
            for item in dataclasses.fields(self)
            if item.name not in _ADDED_KEYS or getattr(self, item.name) != item.default
        }

    def to_json_string(self) -> str:
        """Returns `to_dict` as JSON with sorted keys and a final newline."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"


def _select_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values whose keys are fields; an unknown key raises InputError."""
    fields = {item.name for item in dataclasses.fields(AlbertConfig)}
    bert_keys = [key for key in values if _BERT_KEYS.fullmatch(key)]
    if bert_keys:
        _log.warning("configuration keys without effect: %s", ", ".join(bert_keys))
    ln_type = values.get("ln_type", "postln")
    if ln_type != "postln":
        raise InputError(f"ln_type={errors.quote(ln_type)}: expected 'postln'")
    for key in values:
        if key not in {*fields, *_UNREAD_KEYS, *bert_keys}:
            raise InputError(
                f"unknown configuration key {key!r} with value {values[key]!r}; "
                f"known: {', '.join(sorted(fields))}"
            )
    if "vocab_size" not in values:
        raise InputError("the configuration has no 'vocab_size'")
    return {key: values[key] for key in values if key in fields}


def _check_value(key: str, value: Any, hint: Any) -> None:
    """Checks the value of a field with the type `hint`: int, float or `Literal`."""
    choices = typing.get_args(hint)  # empty for int and float
    if choices:
        if value not in choices:
            expected = ", ".join(map(str, choices))
            raise InputError(f"{key}={value!r}: expected one of {expected}")
    elif hint is int:
        if type(value) is not int or value < 1:
            raise InputError(f"{key}={value!r}: expected an integer of at least 1")
    elif type(value) not in (int, float):
        raise InputError(f"{key}={value!r}: expected a number")
    elif key.endswith("_prob") and not 0 <= value < 1:
        raise InputError(f"{key}={value!r}: expected a rate of at least 0 and below 1")
    elif not key.endswith("_prob") and not 0 < value < math.inf:
        raise InputError(f"{key}={value!r}: expected a number above 0")


# {size: (H, L, N)}. In all of them, E is 128 and `intermediate_size` is 4H.
_SIZES = {
    "tiny": (312, 4, 12),
    "small": (384, 6, 12),
    "base": (768, 12, 12),
    "large": (1024, 24, 16),
    "xlarge": (2048, 24, 16),
    "xxlarge": (4096, 12, 64),
}


def _build(size: str, version: str) -> AlbertConfig:
    """Returns the configuration of a key of `_SIZES` in version "v1", "v2" or "zh"."""
    hidden, layers, heads = _SIZES[size]
    # Dropout was used only for version 1, and not for its xxlarge. The Chinese models
    # have ReLU and BERT's Chinese vocabulary, and their xxlarge has 16 heads.
    dropout = 0.1 if version == "v1" and size != "xxlarge" else 0.0
    is_chinese = version == "zh"
    return AlbertConfig(
        vocab_size=21128 if is_chinese else 30000,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=16 if is_chinese and size == "xxlarge" else heads,
        intermediate_size=4 * hidden,
        hidden_act="relu" if is_chinese else "gelu",
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )


# Configurations of the released weights, by the names of the weights.
PUBLISHED = {
    f"albert_{size}_{version}": _build(size, version)
    for version in ("v1", "v2", "zh")
    for size in ("base", "large", "xlarge", "xxlarge")
}
# Google released no weights of the sizes `tiny` and `small`, which are from albert_zh.
# All values other than H, L, N and `intermediate_size` are those of version 2.
UNRELEASED = {f"albert_{size}": _build(size, "v2") for size in ("tiny", "small")}
