"""Converts tables of any form to rows, and rows to the text of JSON lines."""

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from albert_tf import errors
from albert_tf.errors import InputError

if TYPE_CHECKING:
    import pandas

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
    """Returns the rows of a table, with JSON's types.

    Args:
        data: a DataFrame of pandas or polars; a dict of columns, or of one row; a
            `tf.data.Dataset`; or rows: dicts, sequences with a value for each column,
            or single values for one column.
        columns: the columns to read; others are ignored. Columns that are numbered
            from 0 are taken in their order.
        name: the name of the data, for messages.
        lists: the columns whose values are lists; these values may be missing.
        alternatives: other lists of columns; if the table lacks `columns`, the first
            list whose columns it has is read.
        labels: the values of the last column, if the data lacks it; a table with
            several columns gives a list for each row.

    Raises:
        InputError: the data is in no such form, or a row lacks a value.
    """
    if is_path(data) or not isinstance(data, Iterable):
        raise InputError(
            f"{name}: {errors.quote(data)}; expected a table: a DataFrame, a list of "
            f"rows, or a tf.data.Dataset; or the path of a file"
        )
    choices = [columns, *alternatives]
    if labels is not None:
        choices = [names[:-1] for names in choices]
    with errors.wrap_read(name, "a table"):
        table = _to_frame(data, choices[0], lists)
    if not len(table):
        raise InputError(f"{name}: no row; expected one or more")
    table = _select(table, choices, name)
    if labels is not None:
        with errors.wrap_read(name, "a label for each row"):
            table[columns[-1]] = _to_series(labels, table.index)
    rows = []
    for number, cells in enumerate(
        table.where(table.notna(), None).to_dict("records"), 1
    ):
        with errors.wrap_read(f"{name}, row {number}", "texts in UTF-8"):
            row = to_json_value(cells)
        for column, value in row.items():
            if value is None and column not in lists:
                raise InputError(
                    f"{name}, row {number}: {column!r} is missing (None or NaN)"
                )
        rows.append(row)
    return rows


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
        with errors.wrap_read(f"{name}, row {number}", "texts, numbers or lists"):
            lines.append(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
    return "".join(lines)


def _to_frame(
    data: Any, columns: Sequence[str] = (), lists: Sequence[str] = ()
) -> "pandas.DataFrame":
    """Returns a table as a DataFrame of objects, all columns of it."""
    import pandas  # takes a second

    if hasattr(data, "to_dicts"):  # polars
        data = data.to_dicts()
    elif hasattr(data, "element_spec"):  # tf.data
        data = _iter_dataset(data, columns, lists)
    if isinstance(data, Mapping):
        # A dict with a text or a single value is one row; other dicts have columns.
        values = data.values()
        is_row = any(isinstance(v, str) or not isinstance(v, Iterable) for v in values)
        data = [data] if is_row else {key: [*cells] for key, cells in data.items()}
    elif not isinstance(data, pandas.DataFrame):
        data = [*data]
        # If the only column has lists, a list is its value and not a sequence of cells.
        if len(columns) == 1 and columns[0] in lists:
            data = [x if isinstance(x, (tuple, Mapping)) else [x] for x in data]
    return pandas.DataFrame(data, dtype=object)


def _to_series(labels: Any, index: Any) -> "pandas.Series":
    """Returns labels as a column; a table with several columns as a column of lists."""
    import pandas

    if len(getattr(labels, "shape", ())) == 2:
        labels = _to_frame(labels).squeeze("columns").to_numpy().tolist()
    return pandas.Series([*labels], index, dtype=object)


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


def _select(
    table: "pandas.DataFrame", choices: Sequence[Sequence[str]], name: str
) -> "pandas.DataFrame":
    """Returns the columns of the first of `choices` that a table has."""
    names = [str(column) for column in table.columns]
    chosen = next((each for each in choices if {*each} <= {*names}), None)
    # Columns that are numbered from 0 have no names, so their order decides.
    if chosen is None and names == [str(n) for n in range(len(names))]:
        chosen = next((each for each in choices if len(each) == len(names)), None)
        names = [*(chosen or names)]
    if chosen is None:
        raise InputError(
            f"{name}: has the columns {', '.join(names)}; expected "
            f"{', '.join(choices[0])}"
        )
    return table.set_axis(names, axis=1)[[*chosen]]


def label_to_text(label: Any) -> str:
    """Returns a label as files and models store it."""
    return label if isinstance(label, str) else json.dumps(to_json_value(label))


def to_json_value(value: Any) -> Any:
    """Converts a value to JSON's types; NaN becomes None.

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
    return None if isinstance(value, float) and math.isnan(value) else value
