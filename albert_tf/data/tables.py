r"""Reads tables of text with named columns: TSV, CSV and JSON.

    table = read("train.tsv", [Column("sentence"), Column("label")], make=tuple)

The suffix decides the format:

- `.tsv`, `.txt`: a row a line, cells between tabs, as GLUE has them: no quoting, so a
  quotation mark is text.
- `.csv`: commas, and double quotes around cells that hold commas, quotes or line ends.
- `.jsonl`, `.json`: one object a line, whose keys are the columns; or what else
  `json_values.rows` reads.

A `Dialect` says otherwise; and so does Excel's first line `sep=;`, or a header that has
all columns only between other delimiters.

Lines end with `\n` or `\r\n`, or all of them with `\r`; elsewhere a lone `\r` is a
character of the text. A line without a character is skipped and counted, except in a
TSV table of one column: an empty text has no other spelling there (in CSV it is `""`).

A broken row is an error that names file and line, or, if asked, is skipped and noted;
nothing is dropped in silence.
"""

import codecs
import csv
import io
import itertools
import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from albert_tf import errors
from albert_tf.data import files, json_values
from albert_tf.errors import InputError

# What decoding with "surrogateescape" makes of wrong bytes.
_WRONG = re.compile("[\udc80-\udcff]")
# Stands for a lone carriage return, which the csv module takes for the end of a row.
_RETURN = "\ud800"
_SEP = re.compile(b'"?sep=(.)"?\r?\n', re.IGNORECASE)
_JSON = (".jsonl", ".json")
_SUFFIXES = (".tsv", ".txt", ".csv", *_JSON)
# A cell in quotes that holds quotes, as pandas, R and Excel write it.
_QUOTED = re.compile(rb'[\t\n]"[^\t\n]*""[^\t\n]*"[\t\r\n]')
_LOOKED_AT = 1 << 16
# With a byte of these a UTF-16 file begins, and one of gzip.
_MARK = {*b"\xff\xfe\0\x1f"}
_DELIMITERS = (",", ";", "\t", "|")
_AROUND = 15
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

    def within(self, names: Collection[str]) -> str | None:
        """Returns the name that the column has in a table; None where it is not.

        If no name is the same, one that differs only in case or in white space around
        it is taken.
        """
        own = [name for name in (self.name, self.alternative) if name]
        for name in own:
            if name in names:
                return name
        forms = [name.strip().casefold() for name in own]
        alike = [name for name in names if name.strip().casefold() in forms]
        return alike[0] if len(alike) == 1 else None


class Dialect(NamedTuple):
    """How a table is written.

    Attributes:
        delimiter: the character between cells of a TSV or CSV table; None: that of the
            suffix or of the header.
        quoted: whether double quotes may stand around cells of a TSV table, too.
        encoding: of a file without a byte order mark.
    """

    delimiter: str | None = None
    quoted: bool = False
    encoding: str = "utf-8"


USUAL = Dialect()


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
    dialect: Dialect = USUAL,
    log: Callable[[str], None] = lambda line: None,
) -> Table[Made]:
    """Reads a table.

    Args:
        path: a file of text, see `files.to_utf8`.
        columns: the columns to read.
        make: makes something of a row's values, given in the order of `columns`, or
            raises `RowError`. A value is text; in JSON lines, numbers and booleans are
            their JSON text, and a list is a tuple.
        header: names of all columns of a TSV or CSV file that has no header.
        skip_bad_rows: skip broken rows instead of raising.
        dialect: how the table is written.
        log: gets a line for what the header has decided.

    Raises:
        InputError: the file cannot be read, is of no known format, lacks a column or
            has it twice, has no (unbroken) row, leaves a quote open, or is JSON lines
            and has a header given; or a row has not as many cells as there are
            columns, is not of the encoding, is not JSON, lacks a value, or is refused
            by `make`.
    """
    rows: list[Made] = []
    skipped: list[str] = []
    blank = 0
    for line, values in _values(Path(path), columns, header, dialect, log):
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


def lines(
    data: Iterable[bytes], path: str | Path, encoding: str = "utf-8"
) -> Iterator[tuple[int, str]]:
    r"""Yields the number of each line, from 1 on, and its text.

    Args:
        data: lines that end with `\n`, such as those of a binary file. They are read
            one by one if they are UTF-8; else all at once, see `files.to_utf8`.
        path: the file, for messages.
        encoding: of a file without a byte order mark.

    Raises:
        InputError: a line is not of the encoding.
    """
    data = iter(data)
    first = next(data, b"")
    if encoding != "utf-8" or b"\r" in first.rstrip(b"\r\n") or _MARK & {*first[:2]}:
        whole = files.to_utf8(first + b"".join(data), path, encoding)
        first, data = b"", io.BytesIO(whole)
    for number, line in enumerate(itertools.chain(filter(None, [first]), data), 1):
        line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        try:
            yield number, line.removesuffix(b"\n").removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path}:{number}: not UTF-8 at byte {error.start} of the line"
                f"{files.OTHER_ENCODING}"
            ) from None


def _check_filled(columns: Sequence[Column], values: list[Value]) -> None:
    for column, value in zip(columns, values, strict=True):
        empty = isinstance(value, str) and not value.strip()
        if empty and not column.may_be_empty:
            raise RowError(f"nothing in column {column.name!r}")


def _refuse_wrong_bytes(text: str) -> None:
    if not text.isascii() and (wrong := _WRONG.search(text)):
        some = text[max(0, wrong.start() - _AROUND) : wrong.end() + _AROUND]
        raise RowError(f"bytes of another encoding in {some!r}{files.OTHER_ENCODING}")


# A line's number, and its values or what is wrong with it; None of a blank line.
_Numbered = Iterator[tuple[Any, Any]]


def _values(
    path: Path,
    columns: Sequence[Column],
    header: Sequence[str] | None,
    dialect: Dialect,
    log: Callable[[str], None],
) -> _Numbered:
    suffix = files.suffix(path)
    if suffix not in _SUFFIXES:
        raise InputError(
            f"{path}: unknown kind of table; expected a name that ends in "
            f"{', '.join(_SUFFIXES)}"
        )
    if suffix in _JSON and header:
        raise InputError(
            f"{path}: names its own columns, but these names are given: "
            f"{_named(header)}"
        )
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    data = files.to_utf8(data, path, dialect.encoding, "surrogateescape")
    try:
        if suffix in _JSON:
            text = data.decode(errors="surrogateescape")
            yield from _from_json(text, path, columns)
        else:
            usual = "," if suffix == ".csv" else "\t"
            yield from _from_text(data, path, columns, header, dialect, usual, log)
    except csv.Error as error:
        raise InputError(f"{path}: {error}") from error


def _from_text(
    data: bytes,
    path: Path,
    columns: Sequence[Column],
    header: Sequence[str] | None,
    dialect: Dialect,
    usual: str,
    log: Callable[[str], None],
) -> _Numbered:
    """Yields the rows of a TSV or CSV table."""
    quoted = dialect.quoted or usual == ","
    delimiter, begin = dialect.delimiter or usual, 0
    if quoted and (line := _SEP.match(data)):  # Excel's
        delimiter, begin, data = line[1].decode(), 1, data[line.end() :]
    given = (line.rstrip(b"\r\n") for line in io.BytesIO(data))
    first = next(filter(None, given), b"").decode(errors="surrogateescape")
    if header is None and "\r" in first:
        raise csv.Error("lines end with \\r alone; expected \\n or \\r\\n")
    if header is None and dialect.delimiter is None:
        delimiter = _delimiter(first, columns, delimiter)
        if delimiter != usual:
            log(f"{path}: cells between {delimiter!r}, as its first line has them")
            quoted = quoted or usual == "\t"
    if not quoted and b'"' in data and _QUOTED.search(data, 0, _LOOKED_AT):
        log(
            f"{path}: quotes around cells are read as characters; --quoted takes them "
            f"away"
        )
    rows = _unquoted(data, delimiter)
    if quoted:
        rows = _quoted(data, delimiter, f"{delimiter} " in first)
    if begin:
        rows = ((number + begin, cells) for number, cells in rows)
    yield from _from_cells(rows, path, columns, header, not quoted)


def _delimiter(first: str, columns: Sequence[Column], usual: str) -> str:
    """Returns the delimiter that alone finds all columns in a header, or the usual."""
    found = []
    for delimiter in dict.fromkeys((usual, *_DELIMITERS)):
        names = next(csv.reader([first], delimiter=delimiter), [])
        if all(column.within(names) for column in columns if column.required):
            found.append(delimiter)
    return found[0] if len(found) == 1 else usual


def _unquoted(data: bytes, delimiter: str) -> _Numbered:
    # Not splitlines, which cuts at characters that texts hold, such as U+2028.
    for number, line in enumerate(io.BytesIO(data), 1):
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        try:
            yield number, line.decode().split(delimiter) if line else None
        except UnicodeDecodeError:
            try:
                _refuse_wrong_bytes(line.decode(errors="surrogateescape"))
            except RowError as problem:
                yield number, problem


def _quoted(data: bytes, delimiter: str, skip_space: bool) -> _Numbered:
    csv.field_size_limit(sys.maxsize)
    text = data.decode(errors="surrogateescape")
    text, returns = re.subn("\r(?!\n|\\Z)", _RETURN, text)
    reader = csv.reader(
        io.StringIO(text, newline="\n"),
        delimiter=delimiter,
        skipinitialspace=skip_space,
        strict=True,
    )
    while True:
        begin = reader.line_num + 1
        try:
            cells: Any = next(reader) or None
            if cells and returns:
                cells = [cell.replace(_RETURN, "\r") for cell in cells]
            for cell in cells or ():
                _refuse_wrong_bytes(cell)
        except RowError as problem:
            cells = problem
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
    unquoted: bool,
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


def _from_json(text: str, path: Path, columns: Sequence[Column]) -> _Numbered:
    for number, row in json_values.rows(text, path):
        try:
            if isinstance(row, json_values.JsonError):
                raise RowError(row.problem)
            yield number, None if row is json_values.BLANK else _cells(row, columns)
        except RowError as problem:
            yield number, problem


def _cells(row: Any, columns: Sequence[Column]) -> list[Value]:
    if not isinstance(row, dict):
        raise RowError(f"not a JSON object but {errors.quote(row)}")
    return [_value_of(row, column) for column in columns]


def _value_of(row: dict[str, Any], column: Column) -> Value:
    name = column.within(row)
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
        _refuse_wrong_bytes(value)
        return value
    if value is None or value != value or isinstance(value, (dict, list)):
        raise RowError(
            f"{errors.quote(value)} under {name!r}; expected text or a number"
        )
    return json.dumps(value)


def _named(names: Iterable[str]) -> str:
    """Returns the names of columns for messages."""
    text = ", ".join(map(repr, names))
    return text if len(text) <= _MOST_NAMED else f"{text[:_MOST_NAMED]}..."
