"""The inputs and outputs of exported models: names and shapes."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import keras

from albert_tf.errors import InputError
from albert_tf.model import models

_Shape: TypeAlias = tuple[str | int, ...]
_PER_TOKEN: _Shape = ("batch", "tokens")


@dataclasses.dataclass(frozen=True)
class Signature:
    """Inputs and outputs of an exported model.

    Attributes:
        inputs: shapes of the int32 inputs by name. A string in a shape names a size
            that differs between batches.
        outputs: shapes by name; int32 if the name ends in `_index`, else float32.
    """

    inputs: Mapping[str, _Shape]
    outputs: Mapping[str, _Shape]


def build_signature(model: keras.Model, outputs: Sequence[str] = ()) -> Signature:
    """Returns the signature of one of `albert_tf.model.models`.

    An export can have these outputs: the outputs of the head; `sequence_output`, but
    not for a classifier or multiple choice; and `pooled_output`, but not for multiple
    choice.

    Args:
        model: an encoder, or an encoder with a head.
        outputs: names of the outputs. By default, the outputs of the head, or
            `sequence_output` and `pooled_output` of an encoder.

    Raises:
        InputError: the model has another class, or lacks an output.
    """
    head_outputs = _find_head_outputs(model)
    available, width = {**head_outputs}, model.config.hidden_size
    has_choices = isinstance(model, models.AlbertMultipleChoice)
    if not (has_choices or isinstance(model, models.AlbertClassifier)):
        available["sequence_output"] = (*_PER_TOKEN, width)
    if not has_choices:
        available["pooled_output"] = ("batch", width)
    names = tuple(outputs) or tuple(head_outputs) or tuple(available)
    for name in names:
        if name not in available:
            raise InputError(
                f"outputs={name!r}: {type(model).__name__} has {', '.join(available)}"
            )
    per_token = ("batch", "choices", "tokens") if has_choices else _PER_TOKEN
    inputs = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), per_token)
    if isinstance(model, models.AlbertConditionalSpanLabeler):
        inputs["p_mask"] = per_token
    if "mlm_logits" in names:
        inputs["masked_lm_positions"] = ("batch", "positions")
    return Signature(inputs, {name: available[name] for name in names})


def _find_head_outputs(model) -> dict[str, _Shape]:
    """Returns the shapes of the head's outputs by name; empty for an encoder."""
    match model:
        case models.AlbertEncoder():
            return {}
        case models.AlbertPretrainer():
            outputs: dict[str, _Shape] = {}
            outputs["mlm_logits"] = ("batch", "positions", model.config.vocab_size)
            if model.sentence is not None:
                outputs["sop_logits"] = ("batch", 2)
            return outputs
        case models.AlbertClassifier():
            return {"logits": ("batch", model.head.num_labels)}
        case models.AlbertTokenClassifier():
            return {"logits": (*_PER_TOKEN, model.head.num_labels)}
        case models.AlbertMultipleChoice():
            return {"logits": ("batch", "choices")}
        case models.AlbertSpanLabeler():
            return dict.fromkeys(("start_logits", "end_logits"), _PER_TOKEN)
        case models.AlbertConditionalSpanLabeler():
            starts = ("batch", model.head.start_n_top)
            spans = ("batch", model.head.start_n_top * model.head.end_n_top)
            return {
                "start_log_probs": _PER_TOKEN,
                **dict.fromkeys(("start_top_log_probs", "start_top_index"), starts),
                **dict.fromkeys(("end_top_log_probs", "end_top_index"), spans),
                "cls_logits": ("batch",),
            }
    raise InputError(f"{type(model).__name__}: not one of albert_tf.model.models")


def convert_to_float32(model: keras.Model) -> keras.Model:
    """Returns a model that computes in float32 and without recomputation.

    It is the same model, or a copy with the same weights.
    """
    if model.dtype_policy.name == "float32" and model.config.recompute == "none":
        return model
    options = model.get_config() | {"dtype": "float32"}
    options["config"] = {**options["config"], "recompute": "none"}
    copy = type(model).from_config(options)
    copy.set_weights(model.get_weights())
    return copy
