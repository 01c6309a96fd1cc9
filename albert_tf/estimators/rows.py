"""Tables in any form to rows, and rows to files that the tasks read."""

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf import errors
from albert_tf.errors import InputError

Row = dict[str, Any]


def is_path(data: Any) -> bool:
    """Whether data is the name of a file or folder."""
    return isinstance(data, (str, os.PathLike))


def read(
    data: Any, columns: Sequence[str], name: str, lists: Sequence[str] = ()
) -> list[Row]:
    """Returns the rows of a table.

    Args:
        data: a DataFrame; a dict of columns, or of one row; a `tf.data.Dataset`; or a
            list of dicts, of tuples with a value for each column, or of values where
            there is one column.
        columns: the columns to read; others are left out.
        name: what messages call the data.
        lists: the columns whose values are lists.

    Raises:
        InputError: the data has no such form, or a row lacks a column.
    """
    if is_path(data) or not isinstance(data, Iterable):
        raise InputError(
            f"{name}: {errors.shown(data)}; expected a table: a DataFrame, a list of "
            f"rows, or a tf.data.Dataset"
        )
    rows = [
        _row(each, columns, f"{name}, row {number}")
        for number, each in enumerate(_rows(data, columns, name, lists), 1)
    ]
    if not rows:
        raise InputError(f"{name}: no row; expected one or more")
    return rows


def beside(rows: Sequence[Row], column: str, values: Any, name: str) -> list[Row]:
    """Returns rows with one more column.

    Raises:
        InputError: there are not as many values as rows.
    """
    values = list(values)
    if len(values) != len(rows):
        raise InputError(
            f"{name}: {len(rows):,} rows and {len(values):,} of {column}; expected as "
            f"many of each"
        )
    return [{**row, column: value} for row, value in zip(rows, values, strict=True)]


def as_json_lines(rows: Iterable[Row], name: str) -> str:
    """Returns rows as the text of a file of JSON lines.

    Args:
        rows: of `read`.
        name: what messages call the data.

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


def has_columns(data: Any) -> bool:
    """Whether rows have names for their values; of a list its first row says so."""
    if isinstance(data, Mapping) or hasattr(data, "columns"):
        return True
    if hasattr(data, "element_spec"):
        return isinstance(data.element_spec, Mapping)
    return hasattr(data, "column_names") or (
        isinstance(data, Sequence) and bool(data) and isinstance(data[0], Mapping)
    )


def _rows(
    data: Any, columns: Sequence[str], name: str, lists: Sequence[str]
) -> Iterable[Any]:
    if hasattr(data, "columns") and hasattr(data, "to_dict"):  # pandas, if it is there
        return data.to_dict("records")
    if isinstance(data, Mapping):
        return _of_columns(data, name)
    if hasattr(data, "element_spec"):
        return _of_dataset(data, columns, lists)
    return data


def _of_columns(data: Mapping[str, Any], name: str) -> list[Any]:
    """Returns the rows of a dict of columns; one of a dict of texts."""
    if any(isinstance(values, str) for values in data.values()):
        return [data]
    columns = {column: list(values) for column, values in data.items()}
    counts = {column: len(values) for column, values in columns.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{count:,} of {column}" for column, count in counts.items())
        raise InputError(f"{name}: {listed}; expected as many of each")
    return [
        dict(zip(columns, row, strict=True))
        for row in zip(*columns.values(), strict=True)
    ]


def _of_dataset(
    data: Any, columns: Sequence[str], lists: Sequence[str]
) -> Iterable[Any]:
    """Yields the rows of a `tf.data.Dataset`, batched or not."""
    specs = data.element_spec
    if not isinstance(specs, Mapping):
        specs = specs if isinstance(specs, tuple) else (specs,)
        specs = dict(zip(columns, specs, strict=False))
    batched = any(
        spec.shape.rank > (column in lists)
        for column, spec in specs.items()
        if column in columns
    )
    return (data.unbatch() if batched else data).as_numpy_iterator()


def _row(given: Any, columns: Sequence[str], place: str) -> Row:
    """Returns the columns of a row."""
    if not isinstance(given, Mapping):
        kinds = (tuple,) if len(columns) == 1 else (tuple, list, np.ndarray)
        cells = given if isinstance(given, kinds) else (given,)
        if len(cells) != len(columns):
            raise InputError(
                f"{place}: {errors.shown(given)}; expected {len(columns)} values "
                f"({', '.join(columns)})"
            )
        given = dict(zip(columns, cells, strict=True))
    absent = next((column for column in columns if column not in given), None)
    if absent is not None:
        raise InputError(
            f"{place}: no column {absent!r}; its columns are "
            f"{', '.join(map(str, given))}"
        )
    return {column: plain(given[column]) for column in columns}


def plain(value: Any) -> Any:
    """Returns a value as JSON has it: missing ones of pandas as None, for example."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(each) for each in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    return None if type(value).__name__ in ("NAType", "NaTType") else value
