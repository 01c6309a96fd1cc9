r"""Reads tables of text with named columns: TSV, CSV and JSON lines.

    table = read("train.tsv", [Column("sentence"), Column("label")], make=tuple)

The suffix decides the format:

- `.tsv`, `.txt`: a row a line, cells between tabs, as GLUE has them: no quoting, so a
  quotation mark is text.
- `.csv`: commas, and double quotes around cells that hold commas, quotes or line ends.
- `.jsonl`, `.json`: one object a line; its keys are the columns.

Lines end with `\n` or `\r\n`; a lone `\r` is a character of the text. A line without a
character is skipped and counted, except in a TSV table of one column: an empty text has
no other spelling there (in CSV it is `""`).

A broken row is an error that names file and line, or, if asked, is skipped and noted;
nothing is dropped in silence.
"""

import codecs
import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from albert_tf import errors
from albert_tf.data import json_values
from albert_tf.errors import InputError

# What decoding with "surrogateescape" makes of bytes that are not UTF-8.
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
# Stands for a lone carriage return, which the csv module takes for the end of a row.
_RETURN = "\ud800"
_JSON = (".jsonl", ".json")
_SUFFIXES = (".tsv", ".txt", ".csv", *_JSON)
_NOTED = 5
_MOST_NAMED = 200

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
        blank: how many blank lines were skipped.
    """

    rows: list[Made]
    skipped: list[str]
    blank: int = 0

    def notes(self, path: str | Path) -> list[str]:
        """Returns lines for the log: what was skipped, and the first reasons."""
        notes = []
        if self.blank:
            lines = "line" if self.blank == 1 else "lines"
            notes.append(f"{path}: {self.blank:,} blank {lines} skipped")
        if self.skipped:
            count, rows = len(self.skipped), len(self.rows) + len(self.skipped)
            notes.append(f"{path}: {count:,} of {rows:,} rows are broken and skipped:")
            notes += [f"  {reason}" for reason in self.skipped[:_NOTED]]
            if count > _NOTED:
                notes.append(f"  and {count - _NOTED:,} more")
        return notes


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
        skip_bad_rows: skip broken rows instead of raising.

    Raises:
        InputError: the file cannot be read, is of no known format, lacks a column or
            has it twice, has no (unbroken) row, leaves a quote open, or is JSON lines
            and has a header given; or a row has not as many cells as there are
            columns, is not UTF-8, is not JSON, lacks a value, or is refused by `make`.
    """
    rows: list[Made] = []
    skipped: list[str] = []
    blank = 0
    for line, values in _values(Path(path), columns, header):
        if values is None:
            blank += 1
            continue
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
    return Table(rows, skipped, blank)


def lines(data: Iterable[bytes]) -> Iterator[tuple[int, str | RowError]]:
    r"""Yields the number of each line, from 1 on, and its text or what is wrong.

    Args:
        data: lines that end with `\n`, such as those of a binary file; the first may
            begin with a byte order mark.
    """
    for number, line in enumerate(data, 1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            yield number, line.removesuffix(b"\n").removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            yield number, RowError(f"not UTF-8 at byte {error.start} of the line")


def _check_filled(columns: Sequence[Column], values: list[Value]) -> None:
    for column, value in zip(columns, values, strict=True):
        empty = isinstance(value, str) and not value.strip()
        if empty and not column.may_be_empty:
            raise RowError(f"nothing in column {column.name!r}")


# A line's number, and its values or what is wrong with it; None of a blank line.
_Numbered = Iterator[tuple[int, Any]]


def _values(
    path: Path, columns: Sequence[Column], header: Sequence[str] | None
) -> _Numbered:
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise InputError(
            f"{path}: unknown kind of table; expected a name that ends in "
            f"{', '.join(_SUFFIXES)}"
        )
    if suffix in _JSON and header:
        raise InputError(
            f"{path}: names its own columns, but these names are given: "
            f"{', '.join(header)}"
        )
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        if suffix in _JSON:
            yield from _json_lines(data, columns)
        elif suffix == ".csv":
            yield from _from_cells(_comma_separated(data), path, columns, header)
        else:
            rows = _tab_separated(data)
            yield from _from_cells(rows, path, columns, header, unquoted=True)
    except csv.Error as error:
        raise InputError(f"{path}: {error}") from error


def _tab_separated(data: bytes) -> _Numbered:
    # Not splitlines, which cuts at characters that texts hold, such as U+2028.
    for number, line in lines(io.BytesIO(data)):
        if isinstance(line, RowError):
            yield number, line
        else:
            yield number, line.split("\t") if line else None


def _comma_separated(data: bytes) -> _Numbered:
    csv.field_size_limit(sys.maxsize)
    text = data.removeprefix(codecs.BOM_UTF8).decode(errors="surrogateescape")
    if "\r" in text and "\n" not in text.rstrip("\r\n"):
        raise csv.Error("lines end with \\r alone; expected \\n or \\r\\n")
    text = re.sub("\r(?!\n|\\Z)", _RETURN, text)
    reader = csv.reader(io.StringIO(text, newline="\n"), strict=True)
    while True:
        begin = reader.line_num + 1
        try:
            cells: Any = [cell.replace(_RETURN, "\r") for cell in next(reader)] or None
            if cells and any(map(_NOT_UTF8.search, cells)):
                cells = RowError("not UTF-8")
        except StopIteration:
            return
        except csv.Error as error:
            if "end of data" in str(error):
                # Where the row ends cannot be known, so it cannot be skipped.
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
    unquoted: bool = False,
) -> _Numbered:
    if header is None:
        for line, cells in rows:
            if cells is not None:
                break
            yield line, None
        else:
            return
        if isinstance(cells, RowError):
            raise InputError(f"{path}:{line}: {cells}")
        header = cells
    places = [_place(path, column, header) for column in columns]
    width = len(header)
    for line, cells in rows:
        if cells is None and unquoted and width == 1:
            cells = [""]
        if cells is None or isinstance(cells, RowError):
            yield line, cells
        elif len(cells) != width:
            yield (
                line,
                RowError(f"{len(cells)} cells; expected {width} ({_named(header)})"),
            )
        else:
            yield line, [None if place is None else cells[place] for place in places]


def _place(path: Path, column: Column, header: Sequence[str]) -> int | None:
    name = column.within(header)
    if name is None:
        if not column.required:
            return None
        raise InputError(
            f"{path}: no column {column.name!r}; its columns are {_named(header)}"
        )
    if header.count(name) > 1:
        raise InputError(f"{path}: has the column {name!r} {header.count(name)} times")
    return header.index(name)


def _json_lines(data: bytes, columns: Sequence[Column]) -> _Numbered:
    for number, line in lines(io.BytesIO(data)):
        if isinstance(line, RowError):
            yield number, line
        else:
            yield number, _of_object(line, columns) if line.strip() else None


def _of_object(line: str, columns: Sequence[Column]) -> list[Value] | RowError:
    try:
        row = json_values.parse(line, "")
        if not isinstance(row, dict):
            raise RowError(f"not a JSON object but {errors.shown(row)}")
        return [_value_of(row, column) for column in columns]
    except json_values.JsonError as error:
        return RowError(error.problem)
    except RowError as problem:
        return problem


def _value_of(row: dict[str, Any], column: Column) -> Value:
    name = column.within(list(row))
    if name is None:
        if not column.required:
            return None
        raise RowError(f"no key {column.name!r}; its keys are {_named(row)}")
    value = row[name]
    if isinstance(value, list):
        return tuple(_text_of(name, item) for item in value)
    return _text_of(name, value)


def _text_of(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, (dict, list)):
        raise RowError(
            f"{errors.shown(value)} under {name!r}; expected text or a number"
        )
    return json.dumps(value)


def _named(names: Iterable[str]) -> str:
    """Returns the names of columns in one line, for messages."""
    text = " ".join(", ".join(names).split())
    return text if len(text) <= _MOST_NAMED else f"{text[:_MOST_NAMED]}..."
