"""Loads weights of any format into a model, by the names in `weights.names`."""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from albert_tf.errors import InputError, wrap_read
from albert_tf.model import models
from albert_tf.model.config import AlbertConfig
from albert_tf.weights import metadata, names
from albert_tf.weights.formats import open_source
from albert_tf.weights.names import HEADS, Row, Source, Target

_log = logging.getLogger(__name__)


class MisfitError(InputError):
    """The weights of a file do not fit a model: the head or the sizes differ."""

    _is_multiline = True


@dataclasses.dataclass(frozen=True)
class Report:
    """The result of `load`.

    Attributes:
        format: the recognised format.
        loaded: attribute paths of the weights that were set.
        missing: attribute paths and shapes of the weights that were not set.
        unused: names and shapes of the file's tensors that the model lacks.
        ignored: names of the file's tensors that are not weights of a model.
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
    """Loads a model's weights from a file or folder, and recognises its format.

    Args:
        model: one of the models of `albert_tf.model.models`.
        path: a released TF1 checkpoint (prefix, `.index` file or folder), a TF-Hub
            folder (TF1, or TF2 of Model Garden), a Hugging Face folder or
            `.safetensors` file, a KerasHub preset folder or its weights file, or a
            `.keras` file or SavedModel of this package; a name such as
            "albert_base_v2" or "hf://owner/name", see `released.resolve`; or a
            `Source`.
        checkpoint: the checkpoint to load from a folder of TF1 checkpoints, see
            `open_source`.
        only: parts of the model to load, such as "encoder"; other parts of the model
            and of the file are ignored.
        allow_missing: beginnings of attribute paths that may be missing in the file,
            such as "encoder.pooler" for Hugging Face's question answering models.
        init_from_group0: load group 0 for each group that the file lacks. So a model
            without shared parameters starts from a model with shared ones, which is
            the intention of the released flag of this name.
        optimizer: one of `albert_tf.optimizers`, whose slots and number of updates are
            loaded from a TF1 checkpoint. `load` builds an optimizer that is not built.
            `only` and `allow_missing` also apply to slots, whose paths are the paths of
            their weights with ".adam_m" and ".adam_v". None: slots are ignored.
        head_order: for each output of a classifier, the number of the file's output
            with the same label; None: the same order.
        warn: also log missing and unused weights.

    Returns:
        The weights that were loaded, missing, unused and ignored.

    Raises:
        InputError: the path does not exist, has an unknown format, or is damaged.
        MisfitError: unless an argument allows it, the file lacks a weight, the model
            lacks a tensor, or a shape differs. The message lists each with its shape.
    """
    source = path if isinstance(path, Source) else open_source(path, checkpoint)
    parts = None if only is None else _as_tuple(only)
    targets, shapes = names.expand(model, source.format, optimizer), source.shapes
    if parts is not None:
        targets = _select(targets, parts, type(model).__name__)
    if optimizer is not None:
        _check_has_slots(source)
        shapes = {**shapes, **source.ignored}
    matches: dict[Target, str | None] = {}
    for target in targets:
        choices = (target.name, target.group0 if init_from_group0 else None)
        matches[target] = next((name for name in choices if name in shapes), None)
    used = {*matches.values(), None if optimizer is None else names.STEP}
    report = Report(
        format=source.format,
        loaded=tuple(t.path for t, name in matches.items() if name is not None),
        missing={t.path: t.shape for t, name in matches.items() if name is None},
        unused={
            name: shape
            for name, shape in source.shapes.items()
            if name not in used and not names.is_in_empty_group(name, model.config)
        },
        ignored=tuple(name for name in source.ignored if name not in used),
    )
    _check_fit(model, report, parts, _as_tuple(allow_missing), matches, source)
    step = None if optimizer is None else source.read(names.STEP)
    _assign({t: name for t, name in matches.items() if name}, source, head_order)
    if optimizer is not None:
        optimizer.iterations.assign(step)
    for state, tensors in (("not set", report.missing), ("not used", report.unused)):
        if warn and tensors:
            _log.warning("%s: %s: %s", source.path, state, names.format_shapes(tensors))
    return report


def model_for(source: Source, config: AlbertConfig) -> keras.Model:
    """Builds the model whose head is in a file, without loading its weights.

    Only the formats of this package name the model. In other formats, a head with one
    output counts as regression, although multiple choice looks the same.
    """
    if source.build_model is not None:
        return source.build_model()
    name = next((name for name in HEADS if has_head(source, name)), "AlbertEncoder")
    if name == "AlbertPretrainer":
        has_sentence = _head_shape(HEADS[name][-1], source) is not None
        return models.AlbertPretrainer(config, sentence_head=has_sentence)
    if name not in ("AlbertClassifier", "AlbertTokenClassifier"):
        return getattr(models, name)(config)
    shape = _head_shape(HEADS[name][0], source) or ()  # not empty: see `has_head`
    # These two formats store the kernel as [labels, H].
    num_labels = shape[0 if source.format in ("tf1", "hf") else 1]
    # In transformers, the heads of classifiers of texts and of tokens have one name.
    if metadata.find_task(Path(source.path)).get("kind") == "token_classification":
        name = "AlbertTokenClassifier"
    return getattr(models, name)(config, num_labels)


def _head_shape(row: Row, source: Source) -> tuple[int, ...] | None:
    name = names.tensor_name(row, source.format, "kernel")
    return None if name is None else source.shapes.get(name)


def has_head(source: Source, model: str) -> bool:
    """Whether a file has the head of a model, named by its class."""
    return any(_head_shape(row, source) is not None for row in HEADS[model][:1])


def find_span_task(source: Source) -> dict[str, Any]:
    """Returns the keys of `task.json` for a head of SQuAD; empty for other heads."""
    if has_head(source, "AlbertSpanLabeler"):
        return {"kind": "question_answering", "head": "linear"}
    if has_head(source, "AlbertConditionalSpanLabeler"):
        null_keys = {"version": "2.0", "null_score_diff_threshold": 0.0}
        return {"kind": "question_answering", "head": "conditional", **null_keys}
    return {}


def _as_tuple(paths: str | Sequence[str]) -> tuple[str, ...]:
    return (paths,) if isinstance(paths, str) else tuple(paths)


def _select(targets: Sequence[Target], only: Sequence[str], model: str) -> list[Target]:
    """Selects the targets of some parts of a model, which is named by its class."""
    parts = {target.path.split(".")[0] for target in targets}
    if unknown := sorted({*only} - parts):
        raise InputError(
            f"only={unknown[0]!r}: expected one of {', '.join(sorted(parts))}, the "
            f"parts of {model}"
        )
    return [target for target in targets if target.path.split(".")[0] in only]


def _assign(
    matches: Mapping[Target, str], source: Source, head_order: Sequence[int] | None
) -> None:
    """Reads and checks all tensors, then sets the variables."""
    values: dict[int, np.ndarray] = {}
    for target, name in matches.items():
        tensor, variable = source.read(name), target.variable
        with wrap_read(f"{source.path}: {name}", "real numbers"):
            value = target.from_format(tensor)
        if head_order is not None and target.path.startswith("head."):
            value = value[..., head_order]  # kernel [H, K], bias [K]
        if np.isnan(value).any():
            raise InputError(
                f"{source.path}: {name} holds NaN; expected numbers, such as weights "
                f"from before the training diverged"
            )
        expected = "the same values as in the layers it is shared with"
        first_value = value
        if isinstance(variable, np.ndarray):  # a constant, see `Target`
            expected = "the identity, because embedding_size equals hidden_size"
            first_value = variable
        if not np.array_equal(values.setdefault(id(variable), first_value), value):
            raise InputError(f"{source.path}: {name}: expected {expected}")
    for target in matches:
        if not isinstance(target.variable, np.ndarray):
            target.variable.assign(values[id(target.variable)])


def _check_fit(model, report: Report, parts, allowed, matches, source: Source) -> None:
    """Checks that no weight is missing, unused or of another shape; see `load`."""
    is_in_encoder = names.ENCODER_NAMES[source.format].match
    missing, unused = dict(report.missing), dict(report.unused)
    for path in report.missing:
        if path.startswith(allowed):
            del missing[path]
    for name in report.unused:
        if parts is not None and not ("encoder" in parts and is_in_encoder(name)):
            del unused[name]
    misfits = {"not in the file": missing, "not in the model": unused}
    lines = [f"  {k}: {names.format_shapes(x)}" for k, x in misfits.items() if x]
    shapes = {**source.shapes, **source.ignored}
    lines += [
        f"  {name}: shape {list(shapes[name])} in the file, {list(target.shape)} by "
        f"the configuration"
        for target, name in matches.items()
        if name is not None and shapes[name] != target.shape
    ]
    if lines:
        subject = f"{source.path} ({source.format}) does not fit {type(model).__name__}"
        raise MisfitError("\n".join([f"{subject}:", *lines]))


def _check_has_slots(source: Source) -> None:
    """Checks that a file has an optimizer's state."""
    has_slots = any(name.endswith("/adam_m") for name in source.ignored)
    if not has_slots or names.STEP not in source.ignored:
        raise InputError(
            f"{source.path} ({source.format}) holds no optimizer slots; expected a TF1 "
            f"checkpoint with <weight>/adam_m, <weight>/adam_v and {names.STEP}"
        )
