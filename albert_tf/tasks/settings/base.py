"""What the settings of all families of tasks share: what `task.json` stores of them."""

import dataclasses
import re
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from albert_tf import errors, flags
from albert_tf.errors import InputError

if typing.TYPE_CHECKING:
    from albert_tf.tasks.settings.fine_tuning import FineTuningSettings

# Values of `stored`: a model can be used without the key, or not.
OPTIONAL, REQUIRED = "optional", "required"


def config_field(stored: str = OPTIONAL, **metadata: Any) -> Any:
    """Describes a field that `task.json` stores and that is no flag."""
    return dataclasses.field(default=None, metadata={"stored": stored, **metadata})


def size_field(
    help: str,
    fallback: int,
    stored: str = REQUIRED,
    end: str = "",
    at_least: int = 1,
    **metadata: Any,
) -> Any:
    """Describes a flag for a size that is by default the model's value, or another.

    Args:
        help: what it is the size of.
        fallback: the default of a model without one.
        stored: see `TaskSettings`.
        end: of the sentence about the default.
        at_least: lowest value.
        **metadata: see `TaskSettings`.
    """
    return flags.field(
        f"{help} Default: the model's value, or {fallback}{end}.",
        None,
        at_least=at_least,
        stored=stored,
        fallback=fallback,
        **metadata,
    )


def unused_flag(default: Any = None) -> Any:
    """Describes a released flag that is accepted and changes nothing."""
    return flags.field("Unused; kept for compatibility.", default)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskSettings(flags.Settings):
    """Settings of all tasks.

    `task.json` stores each field that has `stored` in its metadata, under its `key` or
    its name. `fallback` is the value if neither a flag nor the model's folder gives
    one. With `is_segment`, it is at most a quarter of the model's longest input. None
    means not given.
    """

    max_seq_length: int | None
    encoding: str = flags.field(
        "Encoding of the data, such as cp1252. A byte order mark has priority.",
        "utf-8",
    )
    # Of the model's outputs, in their order; None: it has no labels.
    labels: tuple[str, ...] | None = None
    # What --labels says, where a head that is loaded may have another order.
    head_labels: tuple[str, ...] | None = None

    def check(self, config: "FineTuningSettings", devices: int = 1) -> None:
        """Refuses what does not go with a run, before anything is read.

        Args:
            config: of the run.
            devices: on how many devices.

        Raises:
            InputError: a file is missing for it, for example.
        """
        return

    def stored(self) -> dict[str, Any]:
        """Returns what `task.json` stores."""
        return {_key(item): getattr(self, item.name) for item in _stored(type(self))}

    @classmethod
    def from_stored(cls, task: Mapping[str, Any], location: str | Path) -> Self:
        """Builds the settings of a model from its `task.json`.

        Args:
            task: the contents. Without a vocabulary's casing no run has written them:
                keys that are missing have their defaults.
            location: the file, for messages.

        Raises:
            InputError: a key is missing, or its value is of another type or out of
                range.
        """
        is_written = "do_lower_case" in task
        hints = typing.get_type_hints(cls)
        values: dict[str, Any] = {}
        for item in _stored(cls):
            key = _key(item)
            if key not in task:
                if item.metadata["stored"] == REQUIRED and is_written:
                    raise InputError(
                        f"{location}: requires the key {key!r} for {task.get('kind')}"
                    )
                continue
            value = task[key]
            if not matches_type(value, hints[item.name]):
                raise InputError(
                    f"{location}: {key}={errors.quote(value)}: must be "
                    f"{type_name(hints[item.name])}"
                )
            values[item.name] = tuple(value) if isinstance(value, list) else value
        try:
            return cls(**values)
        except InputError as error:
            raise InputError(f"{location}: {str(error).removeprefix('--')}") from None

    def with_defaults(self, saved_settings: Self | None, longest: int) -> Self:
        """Fills in what no flag gives: from the checkpoint, else by default.

        Args:
            saved_settings: of the model's `task.json`, or None.
            longest: the most tokens of an input that the model reads. A default of
                `max_seq_length` is cut to it.

        Raises:
            InputError: --max_seq_length is above it.
        """
        values: dict[str, Any] = {}
        for item in _stored(type(self)):
            if getattr(self, item.name) is None:
                value = getattr(saved_settings, item.name, None)
                if value is None:
                    value = item.metadata.get("fallback")
                    if value is not None and item.metadata.get("is_segment"):
                        value = min(value, longest // 4)
                values[item.name] = value
        if "max_seq_length" in values:
            values["max_seq_length"] = min(values["max_seq_length"], longest)
        settings = dataclasses.replace(self, **values)
        if (settings.max_seq_length or 0) > longest:
            raise InputError(
                f"--max_seq_length={settings.max_seq_length}: the model's "
                f"max_position_embeddings is {longest}"
            )
        return settings


def _stored(settings: type[TaskSettings]) -> Iterator[dataclasses.Field]:
    return (item for item in dataclasses.fields(settings) if "stored" in item.metadata)


def _key(item: dataclasses.Field) -> str:
    return item.metadata.get("key", item.name)


def matches_type(value: Any, hint: Any) -> bool:
    """Whether a value of JSON is of a type."""
    kind, items = typing.get_origin(hint), typing.get_args(hint)
    if kind in (types.UnionType, typing.Union):
        return any(matches_type(value, each) for each in items)
    if kind is typing.Literal:
        return any(type(value) is type(each) and value == each for each in items)
    if kind is tuple:
        is_list = isinstance(value, list | tuple) and bool(value)
        is_list = is_list and (items[-1] is ... or len(value) == len(items))
        return is_list and all(matches_type(each, items[0]) for each in value)
    if hint is float:
        return type(value) in (int, float) and abs(value) < 1e300  # nor NaN
    return type(value) is hint


def type_name(hint: Any) -> str:
    """Returns a type as it is written, such as `int | None`, for messages."""
    return re.sub(r"\w+\.", "", str(hint)) if typing.get_args(hint) else hint.__name__
