"""What an exported model takes and gives: names, sizes, numbers."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import keras

from albert_tf.errors import InputError
from albert_tf.model import models

_Shape: TypeAlias = tuple[str | int, ...]
_ROWS: _Shape = ("batch", "tokens")


@dataclasses.dataclass(frozen=True)
class Signature:
    """Inputs and outputs of an exported model.

    Attributes:
        inputs: sizes by name; every input is int32. A string is a free size.
        outputs: likewise; what ends in `_index` is int32, all else float32.
    """

    inputs: Mapping[str, _Shape]
    outputs: Mapping[str, _Shape]


def signature(model: keras.Model, outputs: Sequence[str] = ()) -> Signature:
    """Returns the signature of one of `albert_tf.model.models`.

    Args:
        model: an encoder, or an encoder with a head.
        outputs: names of the outputs; none for the head's, or for both of an encoder.

    Raises:
        InputError: not one of these models, or a name that there is not.
    """
    head = _head_outputs(model)
    width = model.config.hidden_size
    available = {**head}
    # These two do not compute it.
    if not isinstance(model, (models.AlbertClassifier, models.AlbertMultipleChoice)):
        available["sequence_output"] = (*_ROWS, width)
    if not isinstance(model, models.AlbertMultipleChoice):
        available["pooled_output"] = ("batch", width)
    chosen = tuple(outputs) or tuple(head) or tuple(available)
    for name in chosen:
        if name not in available:
            raise InputError(
                f"outputs={name!r}: {type(model).__name__} has {', '.join(available)}"
            )
    return Signature(
        inputs=_inputs(model, chosen),
        outputs={name: available[name] for name in chosen},
    )


def _inputs(model, outputs) -> dict[str, _Shape]:
    rows = _ROWS
    if isinstance(model, models.AlbertMultipleChoice):
        rows = ("batch", "choices", "tokens")
    inputs = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), rows)
    if isinstance(model, models.AlbertConditionalSpanLabeler):
        inputs["p_mask"] = rows
    if "mlm_logits" in outputs:
        inputs["masked_lm_positions"] = ("batch", "positions")
    return inputs


def _head_outputs(model) -> dict[str, _Shape]:
    match model:
        case models.AlbertEncoder():
            return {}
        case models.AlbertPretrainer():
            outputs: dict[str, _Shape] = {
                "mlm_logits": ("batch", "positions", model.config.vocab_size)
            }
            if model.sentence is not None:
                outputs["sop_logits"] = ("batch", 2)
            return outputs
        case models.AlbertClassifier():
            return {"logits": ("batch", model.head.num_labels)}
        case models.AlbertTokenClassifier():
            return {"logits": (*_ROWS, model.head.num_labels)}
        case models.AlbertMultipleChoice():
            return {"logits": ("batch", "choices")}
        case models.AlbertSpanLabeler():
            return {"start_logits": _ROWS, "end_logits": _ROWS}
        case models.AlbertConditionalSpanLabeler():
            starts = ("batch", model.head.start_n_top)
            spans = ("batch", model.head.start_n_top * model.head.end_n_top)
            return {
                "start_log_probs": _ROWS,
                "start_top_log_probs": starts,
                "start_top_index": starts,
                "end_top_log_probs": spans,
                "end_top_index": spans,
                "cls_logits": ("batch",),
            }
    raise InputError(
        f"expected one of the models of albert_tf.model.models, got "
        f"{type(model).__name__}"
    )


def in_float32(model: keras.Model) -> keras.Model:
    """Returns the model, or a copy in float32 that recomputes nothing."""
    plain = model.dtype_policy.name == "float32" and model.config.recompute == "none"
    if plain:
        return model
    settings = model.get_config()
    copy = type(model).from_config(
        {
            **settings,
            "dtype": keras.saving.serialize_keras_object(keras.DTypePolicy("float32")),
            "config": {**settings["config"], "recompute": "none"},
        }
    )
    copy.set_weights(model.get_weights())
    return copy
