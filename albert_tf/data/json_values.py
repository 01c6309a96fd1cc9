"""Parses the JSON of users' files and checks the types of its values."""

import json
import re
from collections.abc import Iterator
from typing import Any

from albert_tf import errors
from albert_tf.data.files import read_text
from albert_tf.errors import InputError

_TYPE_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "a number",
    bool: "a truth value",
}
# The default of `get` for a key that must exist.
_REQUIRED = object()
# `parse_rows` yields `BLANK` for a blank line.
BLANK = object()
# Finds escaped halves of surrogate pairs in JSON. A match without group 1 is a half.
# Group 1 matches the escapes to skip: a complete pair, and escapes without "u". For
# example, "\\ud800" is an escaped backslash and the text "ud800". All alternatives
# begin with a backslash, which makes the search fast.
_ESCAPE = re.compile(
    r"\\(?:(u[dD][89abAB]..\\u[dD][c-fC-F]..|[^u])|u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


class JsonError(InputError):
    """The error for a text that is not JSON, or that Python's parser refuses.

    Args:
        path: the file.
        line: the line in the file, from 1 on.
        problem: the error, without the location.

    Attributes:
        problem: the error, without the location.
    """

    def __init__(self, path: Any, line: int, problem: str):
        super().__init__(f"{path}:{line}: {problem}")
        self.problem = problem


def parse(text: str, path: Any, line: int = 1) -> Any:
    """Parses a text that is one JSON value; `parse_rows` parses files of many values.

    Half a surrogate pair, which is not valid text, becomes U+FFFD.

    Args:
        text: the JSON.
        path: its file, for messages.
        line: the line of the file in which the text begins, from 1 on.

    Raises:
        JsonError: the text is not JSON, is nested too deeply, or has a number of too
            many digits.
    """
    try:
        return json.loads(_replace_half_pairs(text))
    except json.JSONDecodeError as error:
        line += error.lineno - 1
        problem = f"not JSON: {error.msg} (column {error.colno})"
    # Python refuses deep nesting and long numbers.
    except (RecursionError, ValueError) as error:
        problem = f"not JSON that can be read: {errors.summarize(error)}"
    raise JsonError(path, line, problem)


def read_object(path: Any) -> dict[str, Any]:
    """Reads a JSON file whose outermost value is an object.

    The file may be compressed with gzip. `files.to_utf8` explains its encoding.

    Raises:
        InputError: the file cannot be read, or does not contain a JSON object.
    """
    values = parse(read_text(path), path)
    if not isinstance(values, dict):
        raise InputError(f"{path}: expected a JSON object, got {errors.quote(values)}")
    return values


def parse_rows(
    text: str, path: Any, header: dict[str, Any] | None = None
) -> Iterator[tuple[int | str, Any]]:
    """Yields the rows of a file of JSON, each with its number.

    The file can have one of these forms:

    - JSON lines: each line is a row;
    - one list of rows, or an object with this list under the key "data";
    - one object of columns, as pandas' `to_json()` writes it;
    - one other object, which is the only row.

    Args:
        text: the contents of the file.
        path: the file, for messages.
        header: a dictionary that receives the keys and values of the object, if the
            whole file is one object. It may be needed for the keys beside "data".

    Yields:
        Pairs. The first element is the number of the line, or "row" and the number of
        the item, from 1 on. The second element is the value, `BLANK` for a blank line,
        or the `JsonError` of a broken line.

    Raises:
        JsonError: the file is not JSON lines, and not valid JSON.
    """
    first_line, _, other_lines = text.strip().partition("\n")
    # If the first line is a complete value, the file is JSON lines. A first line that
    # begins with [ may look complete, although the list continues.
    is_complete = not first_line.startswith("{") or first_line.rstrip().endswith("}")
    is_jsonl = other_lines and is_complete and not first_line.startswith("[")
    if first_line and not is_jsonl:
        value = parse(text, path)
        if isinstance(value, dict) and header is not None:
            header |= value
        items = _find_rows(value)  # None if `value` is a single row
        if items is None:
            blank = text[: len(text) - len(text.lstrip())]
            yield blank.count("\n") + 1, value
        else:
            yield from ((f"row {n}", item) for n, item in enumerate(items, 1))
        return
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        try:
            yield number, parse(line, path, number) if line.strip() else BLANK
        except JsonError as error:
            yield number, error


def locate_rows(text: str, path: Any, header: dict[str, Any] | None = None) -> Any:
    """Yields the location and the value of each row that is not blank.

    See `parse_rows` for the rows and the arguments. A location is "file:line", or
    "file:row N" for item N of a list.

    Raises:
        JsonError: a row is broken.
    """
    for number, value in parse_rows(text, path, header):
        if isinstance(value, JsonError):
            raise value
        if value is not BLANK:
            yield f"{path}:{number}", value


def _find_rows(value: Any) -> list[Any] | None:
    """Returns the rows in a value that is a whole file; None if it is a single row."""
    if isinstance(value, dict):
        columns = list(value.values())
        # pandas writes columns as {name of a column: {index of a row: cell}}.
        if columns and all(
            isinstance(column, dict) and column.keys() == columns[0].keys()
            for column in columns
        ):
            cells = zip(*(column.values() for column in columns), strict=True)
            return [dict(zip(value, row, strict=True)) for row in cells]
        value = value.get("data")
    return value if isinstance(value, list) else None


def _replace_half_pairs(text: str) -> str:
    """Replaces each escaped half of a surrogate pair in JSON by U+FFFD."""
    if "\\u" not in text:
        return text
    return _ESCAPE.sub(lambda escape: escape[0] if escape[1] else r"\ufffd", text)


def get(
    value: Any, key: str, kind: type, location: str, default: Any = _REQUIRED
) -> Any:
    """Returns the value of a key of an object.

    Args:
        value: the object.
        key: a key of the object.
        kind: dict, list, str, int or bool: the expected type.
        location: the object's location, for messages.
        default: the value if the key is missing, of type `kind`. Without a default, a
            missing key is an error.

    Raises:
        InputError: `value` is no object, the key is missing, or its value has another
            type.
    """
    if not isinstance(value, dict):
        raise InputError(f"{location}: {name_type(value)} where an object is expected")
    item = value.get(key, default)
    if item is _REQUIRED:
        raise InputError(f"{location}: the key {key!r} is missing")
    if type(item) is not kind:
        raise InputError(
            f"{location}: {key!r} is {name_type(item)}; expected {_TYPE_NAMES[kind]}"
        )
    return item


def name_type(value: Any) -> str:
    """Names the type of a value, for messages.

    Returns `repr(value)` if `_TYPE_NAMES` has no name for the type, as for null.
    """
    return _TYPE_NAMES.get(type(value), repr(value))
