"""Reads rows of text from files or standard input, and checks them."""

import contextlib
import functools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any

from albert_tf import errors
from albert_tf.data import json_values, tables
from albert_tf.data.files import read_text, suffix
from albert_tf.data.tables import Column, Dialect, Table
from albert_tf.errors import InputError
from albert_tf.serve.settings import PredictSettings

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

# The fields of a row by name, in the order of columns: True for a list of texts, False
# for a text, None for an optional text.
Fields = Mapping[str, bool | None]


def read(
    settings: PredictSettings, arguments: Iterable[str], predictor: Any, log: IO[str]
) -> Iterator[tuple[str, Any]]:
    """Yields the location and the unchecked value of each row.

    If the input is plain text and a row has one required field, an empty line is a row
    with an empty text. In all other cases, empty lines are skipped and, except in CSV,
    counted. In JSON, the same applies to lines of white space.

    Args:
        settings: the input and its format.
        arguments: lines to read instead of the input; empty to read the input.
        predictor: a `Predictor` or an `Ensemble`.
        log: receives the number of blank lines.

    Raises:
        InputError: the input cannot be read, or a line cannot be parsed.
    """
    name, num_blank = settings.input_file or "the input", 0
    for number, row in _read_rows(settings, arguments, predictor, log):
        if isinstance(row, json_values.JsonError):
            raise row
        if row is json_values.BLANK:
            num_blank += 1
        else:
            yield f"{name}:{number}", row
    # A table without rows, because only its note about blank lines is needed.
    for note in Table(rows=[], skipped=[], blank=num_blank).notes(name):
        print(note, file=log)


def _read_rows(
    settings: PredictSettings, arguments: Iterable[str], predictor: Any, log: IO[str]
) -> Iterator[tuple[Any, Any]]:
    """Yields the number and the value of each row.

    The number is a line number, or for a CSV table "row" and the number of the row. The
    value is `BLANK` for a blank line, and a `JsonError` for a line with bad JSON.
    """
    fields: Fields = predictor.fields
    name, extension = settings.input_file or "the input", ""
    if settings.input_format == "auto":
        extension = suffix(settings.input_file or "")
    if extension == ".csv":
        # A column may also have its name in the training data. Only the column of an
        # optional text may be missing.
        names = dict(zip(fields, predictor.task.get("text_columns", ()), strict=False))
        columns = [
            Column(field, names.get(field), expects_list is not None, may_be_empty=True)
            for field, expects_list in fields.items()
        ]
        table = tables.read(
            name,
            columns,
            lambda values: dict(zip(fields, values, strict=True)),
            dialect=Dialect(encoding=settings.encoding),
            log=functools.partial(print, file=log),
        )
        for number, row in enumerate(table.rows, 1):
            yield f"row {number}", {k: v for k, v in row.items() if v is not None}
    elif extension == ".json":
        yield from json_values.parse_rows(read_text(name, settings.encoding), name)
    else:
        lines = iter(enumerate(arguments, 1)) if arguments else _read_lines(settings)
        has_json = extension == ".jsonl" or settings.input_format == "json"
        for number, line in lines:
            if has_json and line.strip():
                yield number, json_values.parse(line, name, number)
            elif has_json or (line == "" and _count_required(fields) != 1):
                yield number, json_values.BLANK
            else:
                yield number, _split(line, fields, f"{name}:{number}")


def _read_lines(settings: PredictSettings) -> Iterator[tuple[int, str]]:
    """Yields the lines of a file or of standard input, with their numbers."""
    path = settings.input_file
    with contextlib.ExitStack() as files, errors.wrap_read(path or "the input"):
        # The bytes are read, because in text mode a lone carriage return ends a line.
        file = sys.stdin.buffer
        if path is not None:
            file = files.enter_context(open(path, "rb"))
        yield from tables.decode_lines(file, path or "the input", settings.encoding)


def _split(text: str, fields: Fields, location: str) -> dict[str, Any]:
    """Splits a line at tabs into fields.

    If the last field is a list, it gets all columns from its own column on.
    """
    columns: list[Any] = text.split("\t")
    last = len(fields) - 1
    if list(fields.values())[last]:
        columns = [*columns[:last], columns[last:]]
    if not _count_required(fields) <= len(columns) <= len(fields):
        raise InputError(
            f"{location}: {len(columns)} columns; expected {len(fields)} "
            f"({', '.join(fields)}), separated by tabs"
        )
    return dict(zip(fields, columns, strict=False))


def _count_required(fields: Fields) -> int:
    """Returns the number of fields that are not optional."""
    return sum(expects_list is not None for expects_list in fields.values())


def check(location: str, row: Any, fields: Fields) -> dict[str, Any]:
    """Checks a row, and returns its fields in the order of `fields`.

    Args:
        location: the row's location, for messages.
        row: texts by name; or one text, if only one field is required.
        fields: the fields of a row.

    Raises:
        InputError: a field is missing or has another type.
    """
    if isinstance(row, str) and _count_required(fields) == 1:
        row = {next(iter(fields)): row}
    if not isinstance(row, Mapping):
        raise InputError(
            f"{location}: {errors.quote(row)}; expected an object with "
            f"{', '.join(fields)}"
        )
    # If the task has `text` and `text_b`, a pair may have `text_a` instead of `text`.
    if "text_b" in row and "text_a" in row and "text" in fields:
        row = {**row, "text": row["text_a"]}
    checked: dict[str, Any] = {}
    for name, expects_list in fields.items():
        if expects_list is None and name not in row:
            continue
        value = row.get(name)
        texts = value if expects_list else [value]
        has_items = isinstance(texts, list) and texts != []
        if not (has_items and all(isinstance(text, str) for text in texts)):
            expected = "a list of texts" if expects_list else "a text"
            actual = errors.quote(value) if name in row else "missing"
            raise InputError(
                f"{location}: {name} is {actual}; expected {expected} "
                f"(a row has {', '.join(fields)})"
            )
        # TensorFlow rejects half of a surrogate pair, so U+FFFD replaces it.
        texts = [_LONE_SURROGATE.sub("\ufffd", text) for text in texts]
        checked[name] = texts if expects_list else texts[0]
    return checked
