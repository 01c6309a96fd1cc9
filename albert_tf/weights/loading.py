"""Sets a model's weights from those of an opened file, by the table of names."""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from albert_tf.errors import InputError
from albert_tf.model import models
from albert_tf.model.config import AlbertConfig
from albert_tf.weights import metadata
from albert_tf.weights.formats import open_source
from albert_tf.weights.names import (
    HEADS,
    OF_ENCODER,
    STEP,
    Row,
    Target,
    check_optimizer,
    expand,
    expand_slots,
    holds_no_layer,
    listed,
    tensor_name,
)
from albert_tf.weights.source import Source

# Kinds of numpy: truth values, complex numbers, objects, texts and times.
_NO_NUMBERS = "bcOSUMm"
_log = logging.getLogger(__name__)


class MisfitError(InputError):
    """The weights of a file are not those of a model: another head, or other sizes."""

    _has_lines = True


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
    path: str | Path | Source,
    *,
    checkpoint: str = "best",
    only: str | Sequence[str] | None = None,
    allow_missing: str | Sequence[str] = (),
    init_from_group0: bool = False,
    optimizer: keras.optimizers.Optimizer | None = None,
    head_order: Sequence[int] | None = None,
    warn: bool = True,
) -> Report:
    """Sets a model's weights from a file or folder, whose format it finds out.

    Args:
        model: one of the models of `albert_tf.model.models`.
        path: a released TF1 checkpoint (prefix, `.index` file or folder), a TF-Hub
            folder (TF1, or TF2 of Model Garden), a Hugging Face folder or
            `.safetensors` file, a KerasHub preset folder or its weights file, or a
            `.keras` file or SavedModel of this package; a name such as
            "albert_base_v2" or "hf://owner/name", see `released.resolve`; or what
            `open_source` returned.
        checkpoint: which one of a folder of TF1 checkpoints, see `open_source`.
        only: parts of the model to load, such as "encoder"; the other parts of the
            model and of the file are left alone.
        allow_missing: beginnings of our names that may be absent from the file, such
            as "encoder.pooler" for Hugging Face's question answering models.
        init_from_group0: where the file has no group g, take its group 0: starts a
            model with own parameters per layer from a shared one, which is what the
            released flag of this name was meant to do.
        optimizer: one of `albert_tf.optimizers`, whose slots and number of updates are
            set from a TF1 checkpoint that has them; it is built if it is not yet.
            `only` and `allow_missing` hold for the slots of a weight too, whose names
            are the weight's with ".adam_m" and ".adam_v". None: they are ignored.
        head_order: for each output of a classifier, the number of the file's output
            that has the same label; None: the same order.
        warn: also log what is missing or unused.

    Returns:
        what was loaded, missing, unused and ignored.

    Raises:
        InputError: nothing there, an unknown or damaged file.
        MisfitError: unless allowed above, a weight that is not in the file, a tensor
            that has no place, or a shape that differs. The message lists every one with
            its shape.
    """
    source = path if isinstance(path, Source) else open_source(path, checkpoint)
    parts = None if only is None else _as_tuple(only)
    targets, shapes = _targets(model, source.format, parts), source.shapes
    step_name = None
    if optimizer is not None:
        check_optimizer(optimizer, model)
        _check_has_slots(source)
        targets += expand_slots(optimizer, targets)
        shapes = {**shapes, **source.ignored}
        step_name = STEP
    names: dict[Target, str | None] = {}
    for target in targets:
        choices = (target.name, target.group0 if init_from_group0 else None)
        names[target] = next((name for name in choices if name in shapes), None)
    report = _report(names, source, step_name, model.config)
    _check_fit(model, report, parts, _as_tuple(allow_missing), names, source)
    step = None if step_name is None else source.read(step_name)
    _assign({t: name for t, name in names.items() if name}, source, head_order)
    if optimizer is not None:
        optimizer.iterations.assign(step)
    for what, left in (
        ("left as they were", report.missing),
        ("not used", report.unused),
    ):
        if warn and left:
            _log.warning("%s: %s: %s", source.path, what, listed(left))
    return report


def model_for(source: Source, config: AlbertConfig) -> keras.Model:
    """Creates the model whose head is in a file: the weights are not loaded.

    Only this package's own formats name the model. In others a single output unit is
    taken for regression, though multiple choice looks the same.
    """
    if source.build_model is not None:
        return source.build_model()
    heads = [name for name in HEADS if has_head(source, name)]
    if "AlbertPretrainer" in heads:
        has_sentence = _shape_of(HEADS["AlbertPretrainer"][-1], source) is not None
        return models.AlbertPretrainer(config, sentence_head=has_sentence)
    for name in ("AlbertSpanLabeler", "AlbertConditionalSpanLabeler"):
        if name in heads:
            return getattr(models, name)(config)
    if not heads:
        return models.AlbertEncoder(config)
    shape = _shape_of(HEADS[heads[0]][0], source) or ()
    labels = shape[0 if source.format in ("tf1", "hf") else 1]
    # Transformers has one name for the head of both.
    kind = metadata.find_task(Path(source.path)).get("kind")
    if kind == "token_classification" or "AlbertClassifier" not in heads:
        return models.AlbertTokenClassifier(config, labels)
    return models.AlbertClassifier(config, labels)


def _shape_of(row: Row, source: Source) -> tuple[int, ...] | None:
    name = tensor_name(row, row.ours, source.format, "kernel")
    return None if name is None else source.shapes.get(name)


def has_head(source: Source, model: str) -> bool:
    """Whether a file has the head of a model, which is named by its class."""
    return bool(HEADS[model]) and _shape_of(HEADS[model][0], source) is not None


def span_task(source: Source) -> dict[str, Any]:
    """Returns what `task.json` has to say of a head of SQuAD; empty without one."""
    if has_head(source, "AlbertSpanLabeler"):
        return {"kind": "question_answering", "head": "linear"}
    if has_head(source, "AlbertConditionalSpanLabeler"):
        answerable = {"version": "2.0", "null_score_diff_threshold": 0.0}
        return {"kind": "question_answering", "head": "conditional", **answerable}
    return {}


def _as_tuple(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _targets(model, format: str, only: Sequence[str] | None) -> list[Target]:
    """Lists the targets of some parts of a model; None means all."""
    targets = expand(model, format)
    if only is None:
        return targets
    parts = {target.ours.split(".")[0] for target in targets}
    if unknown := sorted({*only} - parts):
        raise InputError(
            f"only={unknown[0]!r}: expected one of {', '.join(sorted(parts))}, the "
            f"parts of {type(model).__name__}"
        )
    return [target for target in targets if target.ours.split(".")[0] in only]


def _assign(
    names: Mapping[Target, str], source: Source, head_order: Sequence[int] | None
) -> None:
    """Sets the variables, once it is sure that all of them can be set."""
    values: dict[int, tuple[Any, np.ndarray]] = {}
    for target, name in names.items():
        tensor = source.read(name)
        if tensor.dtype.kind in _NO_NUMBERS:
            raise InputError(
                f"{source.path}: {name} holds {tensor.dtype}; expected real numbers"
            )
        value = target.to_ours(tensor)
        if head_order is not None and target.ours.startswith("head."):
            value = value[..., head_order]  # kernel [H, K], bias [K]
        if np.isnan(value).any():
            raise InputError(
                f"{source.path}: {name} holds NaN; expected numbers, as before the "
                f"training diverged"
            )
        variable = target.variable
        is_constant = isinstance(variable, np.ndarray)
        _, first = values.setdefault(id(variable), (variable, value))
        if not np.array_equal(variable if is_constant else first, value):
            expected = (
                "expected the identity, because embedding_size equals hidden_size"
                if is_constant
                else "expected the same values as in the layers it is shared with"
            )
            raise InputError(f"{source.path}: {name}: {expected}")
    for variable, value in values.values():
        if not isinstance(variable, np.ndarray):
            variable.assign(value)


def _report(
    names: Mapping[Target, str | None],
    source: Source,
    step: str | None,
    config: AlbertConfig,
) -> Report:
    used = {*names.values(), step}
    return Report(
        format=source.format,
        loaded=tuple(t.ours for t, name in names.items() if name is not None),
        missing={t.ours: t.shape for t, name in names.items() if name is None},
        unused={
            name: shape
            for name, shape in source.shapes.items()
            if name not in used and not holds_no_layer(name, config)
        },
        ignored=tuple(name for name in source.ignored if name not in used),
    )


def _check_fit(model, report: Report, parts, allowed, names, source: Source) -> None:
    """Refuses weights that are missing, left over or of another shape.

    Args:
        model: for the message.
        report: what will be loaded.
        parts: of the model, see `only`.
        allowed: beginnings of names that may be missing.
        names: of the targets in the file.
        source: the file.
    """
    of_encoder = OF_ENCODER[source.format].match
    left = {
        "not in the file": {
            name: shape
            for name, shape in report.missing.items()
            if not name.startswith(allowed)
        },
        "no place in the model": {
            name: shape
            for name, shape in report.unused.items()
            if parts is None or ("encoder" in parts and of_encoder(name))
        },
    }
    lines = [f"  {what}: {listed(some)}" for what, some in left.items() if some]
    shapes = {**source.shapes, **source.ignored}
    lines += [
        f"  {name}: shape {list(shapes[name])} in the file, {list(target.shape)} by "
        f"the configuration"
        for target, name in names.items()
        if name is not None and shapes[name] != target.shape
    ]
    if lines:
        subject = f"{source.path} ({source.format}) does not fit {type(model).__name__}"
        raise MisfitError("\n".join([f"{subject}:", *lines]))


def _check_has_slots(source: Source) -> None:
    """Refuses a file that holds no state of an optimizer at all."""
    has_slots = any(name.endswith(("/adam_m", "/adam_v")) for name in source.ignored)
    if source.format != "tf1" or not has_slots or STEP not in source.ignored:
        raise InputError(
            f"{source.path} ({source.format}) holds no optimizer slots; expected a TF1 "
            f"checkpoint with <weight>/adam_m, <weight>/adam_v and {STEP}"
        )
