r"""Reads tables of text with named columns: TSV, CSV and JSON.

    table = read("train.tsv", [Column("sentence"), Column("label")], make_row=tuple)

The suffix decides the format:

- `.tsv`, `.txt`: one row per line, and tabs between cells. As in GLUE, there is no
  quoting, so a quotation mark is text.
- `.csv`: commas, and double quotes around cells that contain commas, quotes or line
  ends.
- `.jsonl`, `.json`: one object per line, whose keys are the columns; or another form
  that `json_values.parse_rows` reads.

The `Dialect` can name the delimiter of a TSV or CSV table. If it does not, the header
decides: of four usual delimiters, the only one with which the header has all columns.
If there are several or none, the suffix decides. Where cells can be quoted, a first
line `sep=;` (which Excel reads) replaces the delimiter of the `Dialect` or of the
suffix.

Lines end with `\n` or `\r\n`. If a file has no `\n`, its lines may end with `\r`;
otherwise a lone `\r` is a character of the text. An empty line after the header is
skipped and counted. In a TSV table of one column, it is instead a row with an empty
text. (In a CSV table of one column, the line `""` is such a row.)

A broken row is an error that names file and line. With `skip_bad_rows`, a broken row is
skipped and reported.
"""

import codecs
import csv
import functools
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

# The characters that stand for invalid bytes after decoding with "surrogateescape".
_INVALID_BYTE = re.compile("[\udc80-\udcff]")
# This character replaces a lone carriage return while the csv module reads the text.
# The module would take a carriage return for the end of a row. Decoded text never
# contains this character: invalid bytes become U+DC80 to U+DCFF.
_RETURN = "\ud800"
# A first line that tells Excel the delimiter, such as `sep=;`.
_SEP = re.compile('"?sep=(.)"?\r?\n', re.IGNORECASE)
_JSON = (".jsonl", ".json")
_SUFFIXES = (".tsv", ".txt", ".csv", *_JSON)
# A quoted cell with a doubled quote in it, as pandas, R and Excel write it. Only the
# first _SAMPLE_CHARS characters are searched.
_QUOTED = re.compile(r'[\t\n]"[^\t\n]*""[^\t\n]*"[\t\r\n]')
_SAMPLE_CHARS = 1 << 16
# The first two bytes of a UTF-16 or gzip file contain one of these bytes.
_FIRST_BYTES = {*b"\xff\xfe\0\x1f"}
_DELIMITERS = (",", ";", "\t", "|")
_CONTEXT_CHARS = 15  # around an invalid byte, in messages
_MAX_REASONS = 5  # reasons for skipped rows in the log
_MAX_NAMES_CHARS = 200  # in a list of columns in messages

# A cell: a text; a tuple for a list in JSON; None if the table lacks the column.
Value = str | tuple[str, ...] | None
Row = TypeVar("Row")


class RowError(Exception):
    """The error for a row that cannot be used; its message has no file and line."""


class Column(NamedTuple):
    """A column to read.

    Attributes:
        name: its name.
        alternative: another name, which some files use.
        required: whether all tables must have the column. If not, its values are None
            in a table without the column.
        may_be_empty: whether an empty cell is valid. If not, a row with an empty cell
            is broken.
    """

    name: str
    alternative: str | None = None
    required: bool = True
    may_be_empty: bool = False

    def find(self, names: Collection[str]) -> str | None:
        """Returns the name of the column in a table; None if the table lacks it.

        If no name matches exactly, upper case and outer white space are ignored, and
        exactly one name must match.
        """
        expected = [name for name in (self.name, self.alternative) if name]
        for name in expected:
            if name in names:
                return name
        forms = [name.strip().casefold() for name in expected]
        matches = [name for name in names if name.strip().casefold() in forms]
        return matches[0] if len(matches) == 1 else None


class Dialect(NamedTuple):
    """The format of a table.

    Attributes:
        delimiter: the character between cells of a TSV or CSV table. If it is None, the
            header or the suffix decides.
        quoted: whether cells of a TSV table may be in double quotes, too.
        encoding: encoding of a file without a byte order mark.
    """

    delimiter: str | None = None
    quoted: bool = False
    encoding: str = "utf-8"


DEFAULT_DIALECT = Dialect()


class Table(NamedTuple, Generic[Row]):
    """The rows of a file.

    Attributes:
        rows: the result of `make_row` for each row, in order.
        skipped: an error for each broken row, with its file and line.
        blank: number of blank lines, which are skipped.
    """

    rows: list[Row]
    skipped: list[str]
    blank: int = 0

    def notes(self, path: str | Path) -> list[str]:
        """Returns lines for the log: how many lines were skipped, and some reasons."""
        notes = []
        if self.blank:
            lines = "line" if self.blank == 1 else "lines"
            notes.append(f"{path}: {self.blank:,} blank {lines} skipped")
        if self.skipped:
            count, rows = len(self.skipped), len(self.rows) + len(self.skipped)
            notes.append(f"{path}: {count:,} of {rows:,} rows are broken and skipped:")
            notes += [f"  {error}" for error in self.skipped[:_MAX_REASONS]]
            if count > _MAX_REASONS:
                notes.append(f"  and {count - _MAX_REASONS:,} more")
        return notes


def read(
    path: str | Path,
    columns: Sequence[Column],
    make_row: Callable[[list[Value]], Row],
    *,
    header: Sequence[str] | None = None,
    skip_bad_rows: bool = False,
    dialect: Dialect = DEFAULT_DIALECT,
    log: Callable[[str], None] = lambda line: None,
) -> Table[Row]:
    """Reads a table.

    Args:
        path: a file of text, see `files.to_utf8`.
        columns: the columns to read.
        make_row: converts the values of a row, in the order of `columns`, or raises
            `RowError`. A value is text, or None if the table lacks an optional column.
            In JSON, a number or boolean becomes its JSON text, and a list becomes a
            tuple of such texts.
        header: names of all columns of a TSV or CSV file that has no header.
        skip_bad_rows: skip broken rows instead of raising.
        dialect: the format of the table.
        log: receives a line if the header decides the delimiter, or if cells seem to be
            quoted, but quotes are read as text.

    Raises:
        InputError: the file cannot be read, has an unknown format, has no usable row or
            an open quote at its end, or is JSON although `header` is given; or a column
            is missing or exists twice. Without `skip_bad_rows`, also: a row has another
            number of cells than the header, has another encoding, is not JSON, lacks a
            value, or `make_row` rejects it.
    """
    numbered_rows, to_values = _open(Path(path), columns, header, dialect, log)
    rows: list[Row] = []
    skipped: list[str] = []
    blank = 0
    for line, row in numbered_rows:
        if row is json_values.BLANK:
            blank += 1
            continue
        try:
            values = to_values(row)
            _check_not_empty(columns, values)
            rows.append(make_row(values))
        except RowError as problem:
            message = f"{path}:{line}: {problem}"
            if not skip_bad_rows:
                raise InputError(message) from None
            skipped.append(message)
    if not rows:
        detail = f"; the first of {len(skipped)}: {skipped[0]}" if skipped else ""
        raise InputError(f"{path}: no row to read{detail}")
    return Table(rows, skipped, blank)


def decode_lines(
    data: Iterable[bytes], path: str | Path, encoding: str = "utf-8"
) -> Iterator[tuple[int, str]]:
    r"""Decodes lines while they arrive, for example from the standard input.

    UTF-8 is decoded line by line. Other encodings, gzip, and a text whose lines end
    with `\r` are read completely before the first line is yielded.

    Args:
        data: lines that end with `\n`, such as a binary file.
        path: the file, for messages.
        encoding: encoding of a file without a byte order mark.

    Yields:
        The number of each line, from 1 on, and its text.

    Raises:
        InputError: a line is not in the encoding.
    """
    data = iter(data)
    first_line = next(data, b"")
    if (
        encoding != "utf-8"
        or b"\r" in first_line.rstrip(b"\r\n")
        or _FIRST_BYTES & {*first_line[:2]}
    ):
        converted = files.to_utf8(first_line + b"".join(data), path, encoding)
        first_line, data = b"", io.BytesIO(converted)
    # `filter` drops an empty `first_line`: there is none, or `data` has all lines.
    for number, line in enumerate(itertools.chain(filter(None, [first_line]), data), 1):
        line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        try:
            yield number, line.removesuffix(b"\n").removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path}:{number}: not UTF-8 at byte {error.start} of the line"
                f"{files.OTHER_ENCODING}"
            ) from None


def _check_not_empty(columns: Sequence[Column], values: list[Value]) -> None:
    """Raises RowError if the value of a column is blank, but must not be."""
    for column, value in zip(columns, values, strict=True):
        is_empty = isinstance(value, str) and not value.strip()
        if is_empty and not column.may_be_empty:
            raise RowError(f"nothing in column {column.name!r}")


def _check_bytes(text: str) -> None:
    """Raises RowError if a text that was decoded with "surrogateescape" is no UTF-8."""
    if not text.isascii() and (match := _INVALID_BYTE.search(text)):
        begin = max(0, match.start() - _CONTEXT_CHARS)
        part = text[begin : match.end() + _CONTEXT_CHARS]
        raise RowError(f"bytes of another encoding in {part!r}{files.OTHER_ENCODING}")


# Pairs of a row's number, as in `json_values.parse_rows`, and the row. A row is a list
# of cells, a JSON value, `BLANK` for a blank line, or the error of a broken row.
_NumberedRows = Iterator[tuple[Any, Any]]


def _open(
    path: Path,
    columns: Sequence[Column],
    header: Sequence[str] | None,
    dialect: Dialect,
    log: Callable[[str], None],
) -> tuple[_NumberedRows, Callable[[Any], list[Value]]]:
    """Opens a table for `read`, which explains the arguments.

    Returns:
        The rows, and a function that returns the values of `columns` in a row, or
        raises RowError.
    """
    suffix = files.suffix(path)
    if suffix not in _SUFFIXES:
        raise InputError(
            f"{path}: unknown kind of table; expected a name that ends in "
            f"{', '.join(_SUFFIXES)}"
        )
    if suffix in _JSON and header:
        raise InputError(
            f"{path}: names its own columns, but these names are given: "
            f"{_join_names(header)}"
        )
    data = files.read_utf8(path, dialect.encoding, "surrogateescape")
    text = data.decode(errors="surrogateescape")
    if suffix in _JSON:
        to_values = functools.partial(_from_json, columns)
        return json_values.parse_rows(text, path), to_values
    return _open_cells(path, text, columns, header, dialect, log)


def _open_cells(
    path: Path,
    text: str,
    columns: Sequence[Column],
    header: Sequence[str] | None,
    dialect: Dialect,
    log: Callable[[str], None],
) -> tuple[_NumberedRows, Callable[[Any], list[Value]]]:
    """Opens the text of a TSV or CSV table; see `_open` for the result."""
    # The delimiter of the suffix.
    default = "," if files.suffix(path) == ".csv" else "\t"
    is_quoted = dialect.quoted or default == ","
    delimiter = dialect.delimiter or default
    match = _SEP.match(text) if is_quoted else None
    if match:
        # An empty line, which is ignored before the header, replaces the line `sep=;`.
        # So the numbers of the other lines do not change.
        delimiter, text = match[1], f"\n{text[match.end() :]}"
    first_line = text.lstrip("\r\n").partition("\n")[0].rstrip("\r")
    if header is None and "\r" in first_line:
        raise InputError(
            f"{path}: a lone \\r in the first line; expected \\n or \\r\\n at line ends"
        )
    if header is None and dialect.delimiter is None:
        delimiter = _find_delimiter(first_line, columns, delimiter)
        if delimiter != default:
            log(f"{path}: the delimiter is {delimiter!r}, as in the first line")
            is_quoted = True  # the table is CSV, whatever its suffix is
    if not is_quoted and _QUOTED.search(text, 0, _SAMPLE_CHARS):
        log(
            f"{path}: quotes around cells are read as characters; --quoted removes them"
        )
    rows = _split_unquoted(text, delimiter)
    if is_quoted:
        # If the first line has a space after a delimiter, the spaces before all cells
        # are dropped.
        skip_space = f"{delimiter} " in first_line
        rows = _split_quoted(text, path, delimiter, skip_space)
    # Empty lines before the header are ignored, as is the line that replaces `sep=;`.
    if match or header is None:
        rows = itertools.dropwhile(lambda row: row[1] is json_values.BLANK, rows)
    if header is None:
        line, header = next(rows, (1, None))
        if header is None:  # an empty file: no row is left, so `list` is never called
            return rows, list
        try:
            _check_cells(header)
        except RowError as problem:
            raise InputError(f"{path}:{line}: {problem}") from None
    indices = [_find_index(path, column, header) for column in columns]
    if not is_quoted and len(header) == 1:
        # In an unquoted table of one column, an empty line is an empty text.
        rows = ((n, [""] if row is json_values.BLANK else row) for n, row in rows)
    return rows, functools.partial(_from_cells, header, indices)


def _from_cells(
    header: Sequence[str], indices: Sequence[int | None], cells: Any
) -> list[Value]:
    """Returns the cells of some columns of a row.

    Args:
        header: the names of all columns.
        indices: the indices of the columns to return; None for a column that the table
            lacks, whose value is None.
        cells: the row.
    """
    _check_cells(cells)
    if len(cells) != len(header):
        raise RowError(
            f"{len(cells)} cells; expected {len(header)} ({_join_names(header)})"
        )
    return [None if i is None else cells[i] for i in indices]


def _check_cells(cells: Any) -> None:
    """Raises RowError for a broken row, or for a cell with invalid bytes.

    Args:
        cells: the cells of a row, or the RowError of a broken row.
    """
    if isinstance(cells, RowError):
        raise cells
    for cell in cells:
        _check_bytes(cell)


def _find_delimiter(header: str, columns: Sequence[Column], default: str) -> str:
    """Returns the delimiter of a header line.

    The result is the only delimiter with which the header has all required columns. If
    several delimiters or none fit, the result is the default.
    """
    matches = []
    for delimiter in dict.fromkeys((default, *_DELIMITERS)):
        names = next(csv.reader([header], delimiter=delimiter), [])
        if all(column.find(names) for column in columns if column.required):
            matches.append(delimiter)
    return matches[0] if len(matches) == 1 else default


def _split_unquoted(text: str, delimiter: str) -> _NumberedRows:
    """Yields the rows of a table without quoting: one row per line."""
    # str.splitlines would also divide at characters of texts, such as U+2028.
    for number, line in enumerate(io.StringIO(text, newline="\n"), 1):
        line = line.removesuffix("\n").removesuffix("\r")
        yield number, line.split(delimiter) if line else json_values.BLANK


def _split_quoted(
    text: str, path: Path, delimiter: str, skip_space: bool
) -> _NumberedRows:
    """Yields the rows of a table with quoted cells, which can contain line ends.

    Args:
        text: the contents of the table.
        path: the file, for messages.
        delimiter: the character between cells.
        skip_space: whether spaces before cells are dropped.
    """
    csv.field_size_limit(sys.maxsize)
    text = re.sub("\r(?!\n|\\Z)", _RETURN, text)
    reader = csv.reader(
        io.StringIO(text, newline="\n"),
        delimiter=delimiter,
        skipinitialspace=skip_space,
        strict=True,
    )
    while True:
        number = reader.line_num + 1
        try:
            cells = [cell.replace(_RETURN, "\r") for cell in next(reader)]
        except StopIteration:
            return
        except csv.Error as error:
            if "end of data" in str(error):
                # The end of the row is unknown, so the row cannot be skipped.
                raise InputError(
                    f"{path}: the quote opened in line {number} never ends"
                ) from None
            yield number, RowError(f"broken quoting: {error}")
        else:
            yield number, cells or json_values.BLANK


def _find_index(path: Path, column: Column, header: Sequence[str]) -> int | None:
    """Returns the index of a column in a header; None if the table lacks it."""
    name = column.find(header)
    if name is None:
        if not column.required:
            return None
        raise InputError(
            f"{path}: no column {column.name!r}; its columns are {_join_names(header)}"
        )
    if header.count(name) > 1:
        raise InputError(f"{path}: has the column {name!r} {header.count(name)} times")
    return header.index(name)


def _from_json(columns: Sequence[Column], row: Any) -> list[Value]:
    """Returns the values of columns in a row, which must be a JSON object."""
    if isinstance(row, json_values.JsonError):
        raise RowError(row.problem)
    if not isinstance(row, dict):
        raise RowError(f"not a JSON object but {errors.quote(row)}")
    return [_get_value(row, column) for column in columns]


def _get_value(row: dict[str, Any], column: Column) -> Value:
    """Returns the value of one column in a JSON object."""
    name = column.find(row)
    if name is None:
        if not column.required:
            return None
        raise RowError(f"no key {column.name!r}; its keys are {_join_names(row)}")
    value = row[name]
    if isinstance(value, list):
        return tuple(_to_text(name, item) for item in value)
    return _to_text(name, value)


def _to_text(name: str, value: Any) -> str:
    """Returns the value of the key `name` as text.

    Raises RowError for null, NaN, a list and an object.
    """
    if isinstance(value, str):
        _check_bytes(value)
        return value
    # Only NaN differs from itself.
    if value is None or value != value or isinstance(value, (dict, list)):
        raise RowError(
            f"{errors.quote(value)} under {name!r}; expected text or a number"
        )
    return json.dumps(value)


def _join_names(names: Iterable[str]) -> str:
    """Returns the quoted names of columns as one text, for messages."""
    text = ", ".join(map(repr, names))
    return text if len(text) <= _MAX_NAMES_CHARS else f"{text[:_MAX_NAMES_CHARS]}..."
