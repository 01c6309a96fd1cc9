"""Tables in any form to rows, and rows to files that the tasks read."""

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from albert_tf import errors
from albert_tf.data.files import atomic
from albert_tf.errors import InputError

Row = dict[str, Any]


def is_path(data: Any) -> bool:
    """Whether data is the name of a file or folder."""
    return isinstance(data, (str, os.PathLike))


def read(data: Any, columns: Sequence[str], name: str) -> list[Row]:
    """Returns the rows of a table.

    Args:
        data: a DataFrame; a dict of columns; a `tf.data.Dataset`; or a list of dicts,
            of tuples with a value for each column, or of values where there is one
            column.
        columns: the columns to read; others are left out.
        name: what messages call the data.

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
        for number, each in enumerate(_rows(data), 1)
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


def write(path: Path, rows: Iterable[Row]) -> str:
    """Writes rows as JSON lines; returns the path.

    Raises:
        InputError: the file cannot be written, or a value is no text, number or list.
    """
    lines = []
    for number, row in enumerate(rows, 1):
        try:
            lines.append(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
        except (TypeError, ValueError) as error:
            raise InputError(f"{path}:{number}: {error}") from None
    return write_text(path, "".join(lines))


def write_text(path: Path, text: str) -> str:
    """Writes a file, and its folder; returns the path.

    Raises:
        InputError: it cannot be written.
    """
    with errors.writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(str(path)) as file:
        file.write(text.encode("utf-8", "surrogatepass"))
    return str(path)


def _rows(data: Any) -> Iterable[Any]:
    if hasattr(data, "columns") and hasattr(data, "to_dict"):  # pandas, if it is there
        return data.to_dict("records")
    if isinstance(data, Mapping):
        columns = {name: list(values) for name, values in data.items()}
        cells = zip(*columns.values(), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in cells]
    if hasattr(data, "element_spec"):
        return _of_dataset(data)
    return data


def _of_dataset(data: Any) -> Iterable[Any]:
    """Yields the rows of a `tf.data.Dataset`, batched or not."""
    import tensorflow as tf

    shapes = [spec.shape for spec in tf.nest.flatten(data.element_spec)]
    batched = all(shape.rank and shape.rank > 0 for shape in shapes)
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
