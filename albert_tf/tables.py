"""Reads tables of text with named columns: TSV, CSV and JSON lines.

    table = read("train.tsv", [Column("sentence"), Column("label")], make=tuple)

The suffix says the format:

- `.tsv`, `.txt`: a row a line, cells between tabs, as GLUE has them: no quoting, so a
  quotation mark is text.
- `.csv`: commas, and double quotes around cells that hold commas, quotes or line ends.
- `.jsonl`, `.json`: one object a line; its keys are the columns.

A broken row is an error that names file and line, or, if asked, is passed over and
noted; nothing is dropped in silence.
"""

import codecs
import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from albert_tf.errors import InputError

# What decoding with "surrogateescape" makes of bytes that are not UTF-8.
_NOT_UTF8 = re.compile("[\udc80-\udcff]")

Value = str | tuple[str, ...] | None
Made = TypeVar("Made")


class RowError(Exception):
    """A row that cannot be used; the message says why, without file and line."""


class Column(NamedTuple):
    """A column to read.

    Attributes:
        name: its name.
        alternative: another name that some files give it.
        required: whether every table must have it; None stands for its values else.
        may_be_empty: whether an empty cell is a value; it makes the row broken else.
    """

    name: str
    alternative: str | None = None
    required: bool = True
    may_be_empty: bool = False

    def within(self, names: Sequence[str]) -> str | None:
        """Returns the name that the column has in a table; None where it is not."""
        return next((n for n in (self.name, self.alternative) if n in names), None)


class Table(NamedTuple, Generic[Made]):
    """What a file holds.

    Attributes:
        rows: what was made of each row, in order.
        skipped: what is wrong with each broken row, with its file and line.
    """

    rows: list[Made]
    skipped: list[str]


def read(
    path: str | Path,
    columns: Sequence[Column],
    make: Callable[[list[Value]], Made],
    *,
    header: Sequence[str] | None = None,
    skip_bad_rows: bool = False,
) -> Table[Made]:
    """Reads a table.

    Args:
        path: a file in UTF-8, with or without a byte order mark.
        columns: the columns to read.
        make: makes something of a row's values, given in the order of `columns`, or
            raises `RowError`. A value is text; in JSON lines, numbers and booleans are
            their JSON text, and a list is a tuple.
        header: names of all columns of a TSV or CSV file that has no header.
        skip_bad_rows: pass over broken rows instead of raising.

    Raises:
        InputError: the file cannot be read, is of no known format, lacks a column or
            has it twice, has no (unbroken) row, leaves a quote open, or is JSON lines
            and has a declared header; or a row has not as many cells as there are
            columns, is not UTF-8, is not JSON, lacks a value, or is refused by `make`.
    """
    rows: list[Made] = []
    skipped: list[str] = []
    found = _values(Path(path), columns, header)
    for line, values in found:
        try:
            if isinstance(values, RowError):
                raise values
            _check_filled(columns, values)
            rows.append(make(values))
        except RowError as problem:
            message = f"{path}:{line}: {problem}"
            if not skip_bad_rows:
                raise InputError(message) from None
            skipped.append(message)
    if not rows:
        detail = f"; the first of {len(skipped)}: {skipped[0]}" if skipped else ""
        raise InputError(f"{path}: no row to read{detail}")
    return Table(rows, skipped)


def _check_filled(columns: Sequence[Column], values: list[Value]) -> None:
    for column, value in zip(columns, values, strict=True):
        empty = isinstance(value, str) and not value.strip()
        if empty and not column.may_be_empty:
            raise RowError(f"nothing in column {column.name!r}")


# A line's number, and its values or what is wrong with it.
_Numbered = Iterator[tuple[int, Any]]


def _values(
    path: Path, columns: Sequence[Column], header: Sequence[str] | None
) -> _Numbered:
    readers: dict[str, Callable[[bytes], _Numbered]] = {
        ".tsv": _tab_separated,
        ".txt": _tab_separated,
        ".csv": _comma_separated,
        ".jsonl": _json_lines,
        ".json": _json_lines,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(
            f"{path}: unknown kind of table; expected a name that ends in "
            f"{', '.join(readers)}"
        )
    if reader is _json_lines and header:
        raise InputError(
            f"{path}: names its own columns, but these were declared: "
            f"{', '.join(header)}"
        )
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        # Lines that are empty hold no row only at the end: elsewhere one is missing.
        rows = reader(data.removeprefix(codecs.BOM_UTF8).rstrip(b"\r\n"))
        if reader is _json_lines:
            yield from _from_objects(rows, columns)
        else:
            yield from _from_cells(rows, path, columns, header)
    except csv.Error as error:
        raise InputError(f"{path}: {error}") from error


def _tab_separated(data: bytes) -> _Numbered:
    for number, line in _lines(data):
        yield number, line if isinstance(line, RowError) else line.split("\t")


def _lines(data: bytes) -> _Numbered:
    # Not splitlines, which cuts at characters that texts hold, such as U+2028.
    for number, line in enumerate(data.split(b"\n") if data else [], start=1):
        try:
            yield number, line.removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            yield number, RowError(f"not UTF-8 at byte {error.start} of the line")


def _comma_separated(data: bytes) -> _Numbered:
    csv.field_size_limit(sys.maxsize)
    text = data.decode(errors="surrogateescape")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    while True:
        begin = reader.line_num + 1
        try:
            cells: Any = next(reader)
            if any(map(_NOT_UTF8.search, cells)):
                cells = RowError("not UTF-8")
        except StopIteration:
            return
        except csv.Error as error:
            if "end of data" in str(error):
                # Where the row ends cannot be known, so it cannot be passed over.
                raise csv.Error(
                    f"the quote opened in line {begin} never ends"
                ) from None
            cells = RowError(f"broken quoting: {error}")
        yield begin, cells


def _from_cells(
    rows: _Numbered,
    path: Path,
    columns: Sequence[Column],
    header: Sequence[str] | None,
) -> _Numbered:
    if header is None:
        first = next(rows, None)
        if first is None:
            return
        if isinstance(first[1], RowError):
            raise InputError(f"{path}:1: {first[1]}")
        header = first[1]
    places = [_place(path, column, header) for column in columns]
    width = len(header)
    for line, cells in rows:
        if isinstance(cells, RowError):
            yield line, cells
        elif len(cells) != width:
            yield (
                line,
                RowError(f"{len(cells)} cells; expected {width} ({', '.join(header)})"),
            )
        else:
            yield line, [None if place is None else cells[place] for place in places]


def _place(path: Path, column: Column, header: Sequence[str]) -> int | None:
    name = column.within(header)
    if name is None:
        if not column.required:
            return None
        raise InputError(
            f"{path}: no column {column.name!r}; its columns are {', '.join(header)}"
        )
    if header.count(name) > 1:
        raise InputError(f"{path}: has the column {name!r} {header.count(name)} times")
    return header.index(name)


def _json_lines(data: bytes) -> _Numbered:
    for number, line in _lines(data):
        if isinstance(line, RowError):
            yield number, line
            continue
        try:
            yield number, json.loads(line)
        except (ValueError, RecursionError) as error:
            yield number, RowError(f"not JSON: {error}")


def _from_objects(rows: _Numbered, columns: Sequence[Column]) -> _Numbered:
    for line, row in rows:
        if isinstance(row, dict):
            try:
                row = [_value_of(row, column) for column in columns]
            except RowError as problem:
                row = problem
        elif not isinstance(row, RowError):
            row = RowError(f"not a JSON object but {_shortened(row)}")
        yield line, row


def _value_of(row: dict[str, Any], column: Column) -> Value:
    name = column.within(list(row))
    if name is None:
        if not column.required:
            return None
        raise RowError(f"no key {column.name!r}; its keys are {', '.join(row)}")
    value = row[name]
    if isinstance(value, list):
        return tuple(_text_of(name, item) for item in value)
    return _text_of(name, value)


def _text_of(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, (dict, list)):
        raise RowError(f"{_shortened(value)} under {name!r}; expected text or a number")
    return json.dumps(value)


def _shortened(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
