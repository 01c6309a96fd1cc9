"""The base class of all task settings, and their storage in `task.json`."""

import dataclasses
import os
import re
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from albert_tf import errors, flags
from albert_tf.errors import InputError
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings

# Values of the metadata `stored`: whether a field may be absent from the `task.json` of
# a run, or must be there.
Stored = Literal["optional", "required"]
# A field with `has_margin` is the maximum length of one of two texts. `max_seq_length`
# needs this number of tokens more: [CLS], two [SEP], and a token of the other text.
_MARGIN = 4


def saved_field(stored: Stored = "optional", **metadata: Any) -> Any:
    """Declares a field of `task.json` that is not a flag; its default is None.

    Args:
        stored: "required" if the `task.json` of a run must have the field.
        **metadata: see `TaskSettings`.
    """
    return dataclasses.field(default=None, metadata={"stored": stored, **metadata})


def size_field(fallback: int, stored: Stored = "required", **metadata: Any) -> Any:
    """Declares a flag for a size; its default is the value stored with the model.

    Args:
        fallback: the default if no value is stored with the model.
        stored: "required" if the `task.json` of a run must have the field.
        **metadata: see `TaskSettings` and `flags.field`; `at_least` is 1 by default.
    """
    metadata = {"at_least": 1, "stored": stored, "fallback": fallback, **metadata}
    return flags.field(None, **metadata)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskSettings(flags.Settings):
    """Settings of all tasks.

    This is the base class of the settings of each fine-tuning task. The value None
    means that a flag is not given. The metadata of a field are:

    - `stored`: `task.json` stores the field; "required" if the file of a run must have
      it, otherwise "optional";
    - `key`: the name of the field in `task.json`, by default its name in the class;
    - `must_match_head`: a saved head is used only if it was trained with this value;
    - `must_match_run`: an `output_dir` with an earlier run is used only if that run had
      this value;
    - `affects_encoding`: the result of `FineTuningTask.encode` depends on the value, so
      cached features are used only with an equal value;
    - `fallback`: the value if neither a flag nor the model's folder has one;
    - `is_segment`: the value is a length within an input, such as that of a question,
      so its fallback is at most a quarter of the model's longest input;
    - `has_margin`: `max_seq_length` must be greater than the value by at least 4.

    Args:
        encoding: Encoding of the data, such as cp1252. A byte order mark has priority.

    Raises:
        InputError: a label is given twice, or `max_seq_length` is too small.
    """

    max_seq_length: int | None
    encoding: str = flags.field("utf-8")
    # The name of the data set.
    task_name: str | None = None
    # Labels in the order of the model's outputs; None if there are none.
    labels: tuple[str, ...] | None = None
    # Other names of `labels`, in the same order, which a loaded head may use.
    label_names: tuple[str, ...] = ()
    # The value of --labels, read as the labels of a loaded head in the order of its
    # outputs. It is used if no labels are stored with the head, or if the stored labels
    # do not match `labels`.
    head_labels: tuple[str, ...] | None = None
    # Whether the data set fixes `labels`, as in GLUE. Then --labels only describes the
    # labels of a loaded head, with priority over the stored labels.
    labels_are_fixed: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        labels, limit = self.labels or (), self.max_seq_length
        if len(set(labels)) < len(labels):
            raise InputError(f"--labels={','.join(labels)}: a label is given twice")
        for name, value in self.select("has_margin").items():
            if value and limit and limit < value + _MARGIN:
                raise InputError(
                    f"--max_seq_length={limit}: must be at least {value + _MARGIN}, "
                    f"which is --{name}={value} plus {_MARGIN} other tokens"
                )

    def check(self, run_settings: FineTuningSettings) -> None:
        """Checks that these settings fit the run's settings, before data is read.

        The base class accepts all settings; subclasses override this method.

        Args:
            run_settings: the run's settings.

        Raises:
            InputError: the settings do not fit, such as --do_train without a file.
        """
        return

    def select(self, mark: str) -> dict[str, Any]:
        """Returns the values of the fields whose metadata have the key `mark`.

        The keys of the result are the names of the fields in `task.json`.
        """
        items = (f for f in dataclasses.fields(self) if mark in f.metadata)
        return {_get_key(item): getattr(self, item.name) for item in items}

    def cache_file(self, split: str) -> str:
        """Returns the name or path of the cached features of a split."""
        # Only `SquadSettings` has flags for the files.
        path = getattr(self, f"{split}_feature_file", None)
        return os.path.abspath(path) if path else f"{self.task_name}_{split}.npz"

    @classmethod
    def from_stored(cls, task: Mapping[str, Any], location: str | Path) -> Self:
        """Builds the settings of a model from its `task.json`.

        Args:
            task: the contents of the file. A missing key gets its default. But if a
                run wrote the file, a missing key that is required is an error. The key
                `do_lower_case` shows that a run wrote the file.
            location: the file, for messages.

        Raises:
            InputError: a key is missing, or its value is of another type or out of
                range.
        """
        is_from_run = "do_lower_case" in task
        field_types = typing.get_type_hints(cls)
        values: dict[str, Any] = {}
        for item in _list_stored(cls):
            key = _get_key(item)
            if key not in task:
                if item.metadata["stored"] == "required" and is_from_run:
                    raise InputError(
                        f"{location}: requires the key {key!r} for {task.get('kind')}"
                    )
                continue
            value = task[key]
            if not matches_type(value, field_types[item.name]):
                raise InputError(
                    f"{location}: {key}={errors.quote(value)}: must be "
                    f"{type_name(field_types[item.name])}"
                )
            values[item.name] = tuple(value) if isinstance(value, list) else value
        try:
            return cls(**values)
        except InputError as error:
            # The message begins with a flag such as --labels. Without --, it names the
            # key in the file.
            raise InputError(f"{location}: {str(error).removeprefix('--')}") from None

    def with_defaults(self, saved_settings: Self | None, longest: int) -> Self:
        """Returns settings in which the model's values or defaults replace None.

        Args:
            saved_settings: the settings in the model's `task.json`, or None.
            longest: maximum number of tokens of a model input. A higher default of
                `max_seq_length` is reduced to this number.

        Raises:
            InputError: --max_seq_length is greater than `longest`.
        """
        values: dict[str, Any] = {}
        for item in _list_stored(type(self)):
            if getattr(self, item.name) is None:
                value = getattr(saved_settings, item.name, None)
                if value is None:
                    value = item.metadata.get("fallback")
                    if value is not None and item.metadata.get("is_segment"):
                        value = min(value, longest // 4)
                values[item.name] = value
        # Only a default is reduced; a flag above the limit is an error.
        if "max_seq_length" in values:
            values["max_seq_length"] = min(values["max_seq_length"], longest)
        settings = dataclasses.replace(self, **values)
        if (settings.max_seq_length or 0) > longest:
            raise InputError(
                f"--max_seq_length={settings.max_seq_length}: must be at most "
                f"{longest}, the model's max_position_embeddings"
            )
        return settings


def _list_stored(settings: type[TaskSettings]) -> Iterator[dataclasses.Field]:
    """Yields the fields of a settings class that `task.json` stores."""
    return (item for item in dataclasses.fields(settings) if "stored" in item.metadata)


def _get_key(item: dataclasses.Field) -> str:
    """Returns the name of a field in `task.json`."""
    return item.metadata.get("key", item.name)


def matches_type(value: Any, hint: Any) -> bool:
    """Returns whether a JSON value has the type of a hint.

    The hint of a tuple means a JSON list that is not empty.
    """
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return any(matches_type(value, each) for each in args)
    if origin is typing.Literal:
        return any(type(value) is type(each) and value == each for each in args)
    if origin is tuple:
        fits = isinstance(value, list | tuple) and bool(value)
        fits = fits and (args[-1] is ... or len(value) == len(args))
        return fits and all(matches_type(item, args[0]) for item in value)
    if hint is float:
        return type(value) in (int, float) and abs(value) < 1e300  # no infinity or NaN
    return type(value) is hint


def type_name(hint: Any) -> str:
    """Returns the name of a type for messages, such as `int | None`.

    The names of modules are left out, as in `Literal` instead of `typing.Literal`.
    """
    return re.sub(r"\w+\.", "", str(hint)) if typing.get_args(hint) else hint.__name__
