"""Loads weights of any format into a model, by the names in `weights.names`."""

import dataclasses
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
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

    An attribute path is the way from a model to a weight: "encoder.pooler.kernel".

    Attributes:
        format: the format of the file, as in `Source`.
        loaded: attribute paths of the weights that were set.
        missing: attribute paths and shapes of the weights that were not set.
        unused: names and shapes of the file's weights that the model lacks.
        ignored: names of the file's other tensors, such as slots of an optimizer.
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
        checkpoint: the checkpoint to load from a folder of TF1 checkpoints: "best" (or
            the newest if there is none) or "newest".
        only: parts of the model to load, such as "encoder"; other parts of the model
            and of the file are ignored.
        allow_missing: beginnings of attribute paths that may be missing in the file,
            such as "encoder.pooler" for Hugging Face's question answering models.
        init_from_group0: set each group of layers that the file lacks to the file's
            group 0. So a model whose layers do not share parameters can start from a
            model with shared parameters. The released flag of this name has the same
            purpose.
        optimizer: one of `albert_tf.optimizers`, whose slots and number of updates are
            loaded from a TF1 checkpoint. `load` builds an optimizer that is not built.
            `only` and `allow_missing` also apply to slots, whose paths are the paths of
            their weights with ".adam_m" and ".adam_v". Without an optimizer, slots in
            the file are ignored.
        head_order: for each output of the model's classifier, the index of the output
            with the same label in the file's classifier. None if the order is the same.
        warn: also log missing and unused weights.

    Returns:
        The weights that were loaded, missing, unused and ignored.

    Raises:
        InputError: the path does not exist, has an unknown format, or is damaged.
        MisfitError: the file lacks a weight, the model lacks a tensor of the file, or a
            shape differs. `only`, `allow_missing` and `init_from_group0` allow some
            missing weights. `only` also allows some tensors that the model lacks. The
            message lists each misfit with its shape.
    """
    source = path if isinstance(path, Source) else open_source(path, checkpoint)
    targets, shapes = names.expand(model, source.format), source.shapes
    if only is not None:
        targets = _select(targets, _as_tuple(only), type(model).__name__)
    for target in targets:
        if init_from_group0 and target.name not in shapes:
            target.name = target.group0
    if optimizer is not None:
        _check_has_slots(source)
        targets += names.expand_optimizer(optimizer, model, targets)
        # A source counts slots as ignored tensors, but now they are loaded.
        shapes = {**shapes, **source.ignored}
    loaded = [target for target in targets if target.name in shapes]
    used = {target.name for target in loaded}
    report = Report(
        format=source.format,
        loaded=tuple(target.path for target in loaded),
        missing={t.path: t.shape for t in targets if t.name not in shapes},
        unused={
            name: shape
            for name, shape in source.shapes.items()
            # transformers writes groups that no layer uses, and a model never needs
            # their tensors. So these tensors are not reported as unused.
            if name not in used and not names.is_in_empty_group(name, model.config)
        },
        ignored=tuple(name for name in source.ignored if name not in used),
    )
    _check_fit(model, source, loaded, report, only, _as_tuple(allow_missing))
    _assign(loaded, source, head_order)
    for state, tensors in (("not set", report.missing), ("not used", report.unused)):
        if warn and tensors:
            _log.warning("%s: %s: %s", source.path, state, names.format_shapes(tensors))
    return report


def model_for(source: Source, config: AlbertConfig) -> keras.Model:
    """Builds a model of the class that fits a file, without loading its weights.

    Only the formats of this package name the class. In other formats, the head in the
    file decides. A classifier with one output gives an `AlbertClassifier` for
    regression, although an `AlbertMultipleChoice` has the same head.
    """
    if source.build_model is not None:
        return source.build_model()
    name = _find_head(source)
    if name == "AlbertPretrainer":
        # The last row of the table is the output of the sentence head.
        has_sentence = _count_outputs(HEADS[name][-1], source) > 0
        return models.AlbertPretrainer(config, sentence_head=has_sentence)
    if name not in ("AlbertClassifier", "AlbertTokenClassifier"):
        return getattr(models, name)(config)
    # These heads have one row in the table, their output layer.
    num_labels = _count_outputs(HEADS[name][0], source)
    # In transformers, the head for texts and the head for tokens have the same names of
    # weights. The metadata distinguish them.
    if metadata.find_task(Path(source.path)).get("kind") == "token_classification":
        name = "AlbertTokenClassifier"
    return getattr(models, name)(config, num_labels)


def _count_outputs(row: Row, source: Source) -> int:
    """Returns the number of a layer's outputs in a file; 0 if the file lacks the layer.

    The layer has as many outputs as its bias has values.
    """
    name = names.name_tensor(row, source.format, "bias")
    return (source.shapes.get(str(name)) or (0,))[0]


def _find_head(source: Source, class_names: Iterable[str] = HEADS) -> str:
    """Returns the name of the first class of models whose head is in a file.

    The first row of each head in `HEADS` shows whether the file has the head. If the
    file has none of these heads, the class is "AlbertEncoder".
    """
    for name in class_names:
        if HEADS[name] and _count_outputs(HEADS[name][0], source):
            return name
    return "AlbertEncoder"


def find_span_task(source: Source) -> Mapping[str, Any]:
    """Returns the contents of a `task.json` for a file with a head of SQuAD.

    For a file without such a head, the result is empty.
    """
    head = _find_head(source, ["AlbertSpanLabeler", "AlbertConditionalSpanLabeler"])
    if head == "AlbertConditionalSpanLabeler":
        null_keys = {"version": "2.0", "null_score_diff_threshold": 0.0}
        return {**metadata.SPAN_TASK, "head": "conditional", **null_keys}
    return metadata.SPAN_TASK if head == "AlbertSpanLabeler" else {}


def _as_tuple(paths: str | Sequence[str]) -> tuple[str, ...]:
    """Returns the items of a sequence; a single text is one item."""
    return (paths,) if isinstance(paths, str) else tuple(paths)


def _select(targets: Sequence[Target], only: Sequence[str], model: str) -> list[Target]:
    """Selects the targets of some parts of a model.

    Args:
        targets: all targets of the model.
        only: names of parts, which are the first names in attribute paths.
        model: the name of the model's class, for messages.
    """
    parts = {target.path.split(".")[0] for target in targets}
    if unknown := sorted({*only} - parts):
        raise InputError(
            f"only={unknown[0]!r}: expected one of {', '.join(sorted(parts))}, the "
            f"parts of {model}"
        )
    return [target for target in targets if target.path.split(".")[0] in only]


def _assign(
    targets: Sequence[Target], source: Source, head_order: Sequence[int] | None
) -> None:
    """Checks all tensors, then reads them again and sets the variables.

    A refused tensor changes no variable, because all checks come first. Tensors are
    read twice, so that at most two of them are in memory at a time. If a file becomes
    unreadable between the two reads, some variables may already be set.

    If layers share a variable, several tensors belong to the variable. These tensors
    must be equal.
    """

    def read(target: Target) -> np.ndarray:
        tensor = source.read(str(target.name))
        with wrap_read(f"{source.path}: {target.name}", "real numbers"):
            value = target.from_format(tensor)
        if head_order is not None and target.path.startswith("head."):
            # The last axis has the outputs, in the kernel and in the bias.
            return value[..., head_order]
        return value

    # The first target of each variable, by the variable's `id`.
    first: dict[int, Target] = {}
    for target in targets:
        value, variable = read(target), target.variable
        if np.isnan(value).any():
            raise InputError(
                f"{source.path}: {target.name} holds NaN; expected numbers, such as "
                f"weights from before the training diverged"
            )
        if isinstance(variable, np.ndarray):  # the model has only a constant instead
            required = variable
            expected = "the identity, because embedding_size equals hidden_size"
        elif (owner := first.setdefault(id(variable), target)) is not target:
            required = read(owner)
            expected = "the same values as in the layers it is shared with"
        else:
            continue
        if not np.array_equal(required, value):
            raise InputError(f"{source.path}: {target.name}: expected {expected}")
    for target in first.values():
        target.variable.assign(read(target))


def _check_fit(model, source: Source, loaded, report, only, allowed) -> None:
    """Raises MisfitError if a weight is missing, unused or of another shape.

    Args:
        model: the model.
        source: the file.
        loaded: the targets whose tensors the file has.
        report: lists the missing and the unused weights.
        only: the parts of the model that are loaded, None for all parts. If it is not
            None, the file may have unused tensors, except those of a loaded encoder.
        allowed: a tuple of beginnings of attribute paths that may be missing.
    """
    missing = {k: x for k, x in report.missing.items() if not k.startswith(allowed)}
    # The first parts of the names of the loaded encoder's tensors, such as "bert". The
    # names of heads begin with other parts.
    parts = {_first_part(t.name) for t in loaded if t.path.startswith("encoder.")}
    unused = {
        name: shape
        for name, shape in report.unused.items()
        if only is None or _first_part(name) in parts
    }
    misfits = {"not in the file": missing, "not in the model": unused}
    lines = [f"  {k}: {names.format_shapes(x)}" for k, x in misfits.items() if x]
    shapes = {**source.shapes, **source.ignored}
    lines += [
        f"  {target.name}: shape {list(shapes[target.name])} in the file, "
        f"{list(target.shape)} by the configuration"
        for target in loaded
        if shapes[target.name] != target.shape
    ]
    if lines:
        subject = f"{source.path} ({source.format}) does not fit {type(model).__name__}"
        raise MisfitError("\n".join([f"{subject}:", *lines]))


def _first_part(name: str) -> str:
    """Returns the first part of a tensor's name: "bert" of "bert/pooler/dense"."""
    return re.split("[./]", name)[0]


def _check_has_slots(source: Source) -> None:
    """Raises InputError if a file has no slots of an optimizer."""
    if not any(name.endswith("/adam_m") for name in source.ignored):
        raise InputError(
            f"{source.path} ({source.format}) holds no optimizer slots; expected a TF1 "
            f"checkpoint with <weight>/adam_m, <weight>/adam_v and {names.STEP}"
        )
