"""Converts tables of any form to rows, and rows to the text of JSON lines."""

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from albert_tf import errors
from albert_tf.errors import InputError

Row = dict[str, Any]


def is_path(data: Any) -> bool:
    """Whether data is the name of a file or folder."""
    return isinstance(data, (str, os.PathLike))


def is_file(data: Any) -> bool:
    """Whether data is a file and not a text.

    A `Path` is a file. A `str` is a file if it has a suffix and the file exists.
    """
    if isinstance(data, str):
        return bool(os.path.splitext(data)[1]) and os.path.isfile(data)
    return isinstance(data, os.PathLike)


def read(
    data: Any,
    columns: Sequence[str],
    name: str,
    lists: Sequence[str] = (),
    alternatives: Sequence[Sequence[str]] = (),
    labels: Any = None,
) -> list[Row]:
    """Returns the rows of a table.

    Args:
        data: a DataFrame of pandas or polars; a dict of columns, or of one row; a
            `tf.data.Dataset`; or rows: dicts, sequences with a value for each column,
            or single values for one column.
        columns: the columns to read; others are ignored. Columns that are numbered
            from 0 are taken in their order.
        name: the name of the data, for messages.
        lists: the columns whose values are lists; these values may be missing.
        alternatives: other lists of columns; if the first row lacks `columns`, the
            first list whose columns it has is read.
        labels: the values of the last column, if the data lacks it.

    Raises:
        InputError: the data is in no such form, or a row lacks a value.
    """
    if is_path(data) or not isinstance(data, Iterable):
        raise InputError(
            f"{name}: {errors.quote(data)}; expected a table: a DataFrame, a list of "
            f"rows, or a tf.data.Dataset; or the path of a file"
        )
    if labels is not None:
        *columns, label = columns
        lists = [column for column in lists if column != label]
        alternatives = [names[:-1] for names in alternatives]
    choices: Sequence[Sequence[str]] = (columns, *alternatives)
    rows = []
    for number, item in enumerate(_iter_rows(data, columns, name, lists), 1):
        row = _convert_row(item, choices, f"{name}, row {number}", lists)
        choices = [tuple(row)]  # the first row decides for all rows
        rows.append(row)
    if not rows:
        raise InputError(f"{name}: no row; expected one or more")
    return rows if labels is None else add_column(rows, label, labels, name)


def add_column(rows: Sequence[Row], column: str, values: Any, name: str) -> list[Row]:
    """Returns rows with one more column.

    Args:
        rows: the result of `read`.
        column: the name of the new column.
        values: a list, an array or a table. A table with several columns gives a list
            for each row.
        name: the name of the data, for messages.

    Raises:
        InputError: there are not as many values as rows.
    """
    if len(getattr(values, "shape", ())) == 2:
        table = [_to_cells(row) for row in _iter_rows(values, (), name, ())]
        values = [row[0] if len(row) == 1 else row for row in table]
    values = [to_json_value(value) for value in values]
    if len(values) != len(rows):
        raise InputError(
            f"{name}: {len(rows):,} rows and {len(values):,} of {column}; expected as "
            f"many of each"
        )
    return [{**row, column: value} for row, value in zip(rows, values, strict=True)]


def to_json_lines(rows: Iterable[Row], name: str) -> str:
    """Returns rows as the text of a file of JSON lines.

    Args:
        rows: the result of `read`.
        name: the name of the data, for messages.

    Raises:
        InputError: a value is no text, number or list.
    """
    lines = []
    for number, row in enumerate(rows, 1):
        try:
            lines.append(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
        except (TypeError, ValueError) as error:
            raise InputError(f"{name}, row {number}: {error}") from None
    return "".join(lines)


def _iter_rows(
    data: Any, columns: Sequence[str], name: str, lists: Sequence[str]
) -> Iterable[Any]:
    """Returns the rows of a table as they are; rows with column names are dicts."""
    if hasattr(data, "to_dicts"):  # polars
        return data.to_dicts()
    if hasattr(data, "columns") and hasattr(data, "to_dict"):  # pandas
        return data.to_dict("records")
    if hasattr(data, "element_spec"):  # tf.data
        return _iter_dataset(data, columns, lists)
    if not isinstance(data, Mapping):
        return data
    # A dict with a text or a single value is one row; other dicts have columns.
    is_cell = (isinstance(v, str) or not isinstance(v, Iterable) for v in data.values())
    if any(is_cell):
        return [data]
    import pandas  # takes a second, and few tables are dicts of columns

    try:
        table = pandas.DataFrame({key: [*cells] for key, cells in data.items()})
    except ValueError as error:
        raise InputError(f"{name}: {error}") from None
    return table.to_dict("records")


def _iter_dataset(
    data: Any, columns: Sequence[str], lists: Sequence[str]
) -> Iterable[Any]:
    """Yields the rows of a `tf.data.Dataset`, batched or not."""
    specs = data.element_spec
    if isinstance(specs, Mapping):
        specs = {name: specs[name] for name in columns if name in specs}
    # Without a batch axis, a value has rank 0, or rank 1 if it is a list.
    ranks = (spec.shape.rank for spec in keras.tree.flatten(specs))
    is_batched = max(ranks, default=0) > bool(lists)
    return (data.unbatch() if is_batched else data).as_numpy_iterator()


def _to_cells(row: Any) -> Any:
    """Returns the cells of a row; a single value is one cell."""
    if isinstance(row, Mapping):
        return list(row.values())
    return row if isinstance(row, (tuple, list, np.ndarray)) else (row,)


def _convert_row(
    item: Any, choices: Sequence[Sequence[str]], location: str, lists: Sequence[str]
) -> Row:
    """Returns the row of an item of `_iter_rows`.

    Args:
        item: a dict, a sequence of cells or a single value.
        choices: lists of columns; the first one that fits the item is used.
        location: the location of the item, for messages.
        lists: the columns whose values are lists; these values may be missing.

    Raises:
        InputError: the item has no such columns, or a value is missing.
    """
    columns = choices[0]
    # If the only column has lists, a list is its value and not a sequence of cells.
    is_value = len(columns) == 1 and columns[0] in lists
    is_value = is_value and not isinstance(item, (tuple, Mapping))
    cells = (item,) if is_value else _to_cells(item)
    cell_of = item if isinstance(item, Mapping) else dict(enumerate(cells))
    row = {str(name): cell for name, cell in cell_of.items()}
    chosen = next((names for names in choices if row.keys() >= {*names}), None)
    # Columns that are numbered from 0 have no names, so their order decides.
    if chosen is None and [*row] == [str(n) for n in range(len(row))]:
        chosen = next((names for names in choices if len(names) == len(row)), None)
        if chosen is None:
            raise InputError(
                f"{location}: {errors.quote(item)}; expected {len(columns)} values "
                f"({', '.join(columns)})"
            )
        row = dict(zip(chosen, row.values(), strict=True))
    converted = {}
    for column in chosen or columns:
        if column not in row:
            raise InputError(
                f"{location}: no column {column!r}; its columns are {', '.join(row)}"
            )
        try:
            converted[column] = to_json_value(row[column])
        except UnicodeDecodeError:
            raise InputError(f"{location}: {column!r} is not UTF-8") from None
        if converted[column] is None and column not in lists:
            raise InputError(f"{location}: {column!r} is missing (None or NaN)")
    return converted


def label_to_text(label: Any) -> str:
    """Returns a label as files and models store it."""
    return label if isinstance(label, str) else json.dumps(to_json_value(label))


def to_json_value(value: Any) -> Any:
    """Converts a value to JSON's types; missing values of pandas become None.

    Raises:
        UnicodeDecodeError: bytes are not UTF-8.
    """
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return to_json_value(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): to_json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_json_value(item) for item in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    return None if type(value).__name__ in ("NAType", "NaTType") else value
