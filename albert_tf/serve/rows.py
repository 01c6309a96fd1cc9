"""Rows of text: from lines of a file or of standard input, and what a row must hold."""

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from albert_tf import errors
from albert_tf.data import json_values, tables
from albert_tf.data.tables import RowError, Table
from albert_tf.errors import InputError
from albert_tf.serve.settings.predict import PredictSettings

# Of texts that are read to their end: a passage of a million takes 400 MB.
_MOST_CHARACTERS = 1_000_000

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

# The fields of a row, and whether each holds a list of texts.
Fields = Mapping[str, bool]
Line = tuple[int, str | RowError]


def read(
    config: PredictSettings,
    arguments: Iterable[str],
    fields: Fields,
    files: contextlib.ExitStack,
    log: IO[str],
) -> Iterator[tuple[str, Any]]:
    """Yields rows, unchecked, and their places, which messages name.

    Where a row is one text, every line is a row, an empty one too. Elsewhere blank
    lines are skipped and counted.

    Args:
        config: names the input and its format.
        arguments: lines to read instead; if there are none, `config`'s input.
        fields: of a row.
        files: closes the input.
        log: where blank lines are counted.

    Raises:
        InputError: the input cannot be read, or a line cannot be parsed.
    """
    name, is_json = config.input_file or "the input", has_json(config)
    lines: Iterator[Line] = iter(enumerate(arguments, 1))
    blank = 0
    for number, text in lines if arguments else _lines(config.input_file, files):
        place = f"{name}:{number}"
        if isinstance(text, RowError):
            raise InputError(f"{place}: {text}")
        if is_json:
            text = text.strip()
        if not text and (is_json or len(fields) > 1):
            blank += 1
        elif is_json:
            yield place, json_values.parse(text, name, number)
        else:
            yield place, _split(text, fields, place)
    for note in Table([], [], blank).notes(name):
        print(note, file=log)


def has_json(config: PredictSettings) -> bool:
    """Returns whether the input is JSON lines.

    Raises:
        InputError: it is CSV.
    """
    if config.input_format != "auto" or config.input_file is None:
        return config.input_format == "json"
    suffix = Path(config.input_file).suffix.lower()
    if suffix == ".csv":  # as text, its header and quotes would be answered
        raise InputError(
            f"--input_file={config.input_file}: CSV is not read; expected texts with "
            f"tabs between the columns, or JSON lines (.jsonl); with "
            f"--input_format=text every line is a text"
        )
    return suffix in (".json", ".jsonl")


def _lines(path: str | None, files: contextlib.ExitStack) -> Iterator[Line]:
    """Yields the lines of a file or of standard input, with their numbers."""
    lines = tables.lines(_opened(path, files))
    while True:
        with errors.reading(path or "the input"):
            line = next(lines, None)
        if line is None:
            return
        yield line


def _opened(path: str | None, files: contextlib.ExitStack) -> IO[bytes]:
    if path is None:
        # Not its text, in which a lone carriage return would end a line.
        return sys.stdin.buffer
    try:
        return files.enter_context(open(path, "rb"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def _split(text: str, fields: Fields, place: str) -> dict[str, Any]:
    """Splits a line at tabs; the last field takes all further columns if a list."""
    columns: list[Any] = text.split("\t")
    last = len(fields) - 1
    if [*fields.values()][last]:
        columns = [*columns[:last], columns[last:]]
    if len(columns) != len(fields):
        raise InputError(
            f"{place}: {len(columns)} columns; expected {len(fields)} "
            f"({', '.join(fields)}), with tabs between them"
        )
    return dict(zip(fields, columns, strict=True))


def check(place: str, row: Any, fields: Fields) -> dict[str, Any]:
    """Returns the fields of a row, in the order of `fields`.

    Args:
        place: for messages.
        row: texts by name, and perhaps more; or the text where there is one field.
        fields: of a row.

    Raises:
        InputError: it is no such thing.
    """
    if isinstance(row, str) and len(fields) == 1:
        row = dict.fromkeys(fields, row)
    if not isinstance(row, Mapping):
        raise InputError(
            f"{place}: {errors.shown(row)}; expected an object with {', '.join(fields)}"
        )
    checked: dict[str, Any] = {}
    for name, expects_list in fields.items():
        value = row.get(name)
        texts = value if expects_list and isinstance(value, list) else [value]
        if (
            not texts
            or not all(isinstance(text, str) for text in texts)
            or (expects_list and not isinstance(value, list))
        ):
            kind = "a list of texts" if expects_list else "a text"
            given = errors.shown(value) if name in row else "missing"
            raise InputError(
                f"{place}: {name} is {given}; expected {kind} "
                f"(a row has {', '.join(fields)})"
            )
        # Half of a surrogate pair is no text, and TensorFlow refuses it.
        texts = [_LONE_SURROGATE.sub("\ufffd", str(text)) for text in texts]
        checked[name] = texts if expects_list else texts[0]
    return checked


def check_lengths(place: str, row: Mapping[str, Any]) -> None:
    """Refuses texts that need too much memory."""
    for name, value in row.items():
        longest = max(map(len, value if isinstance(value, list) else [value]))
        if longest > _MOST_CHARACTERS:
            raise InputError(
                f"{place}: {name} has {longest:,} characters; expected at most "
                f"{_MOST_CHARACTERS:,}"
            )
