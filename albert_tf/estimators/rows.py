"""Converts tables of any form to rows: dicts of JSON values by column."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas

from albert_tf import errors
from albert_tf.errors import InputError

Row = dict[str, Any]


def is_path(data: Any) -> bool:
    """Whether data is a `str` or `Path`; there may be no such file."""
    return isinstance(data, (str, os.PathLike))


def is_file(data: Any) -> bool:
    """Whether data is the path of a file, and not a text.

    A `Path` is always a file. A `str` is a file if it has a suffix, such as .csv, and
    the file exists.
    """
    if isinstance(data, str):
        return bool(os.path.splitext(data)[1]) and os.path.isfile(data)
    return isinstance(data, os.PathLike)


def read(
    data: Any,
    choices: Sequence[Sequence[str]],
    name: str,
    lists: Sequence[str] = (),
    labels: Any = None,
) -> list[Row]:
    """Returns the rows of a table as dicts of JSON values, in the order of columns.

    Args:
        data: a DataFrame of pandas or polars; a dict of columns, or of one row; a
            `tf.data.Dataset` of rows, not of batches; or rows: dicts, sequences with a
            value for each column, or single values for one column.
        choices: lists of columns. The function reads the columns of the first list that
            is completely in the table, and ignores the table's other columns. If the
            table's columns have no names but numbers from 0 on, the first list of the
            same length names them.
        name: the name of the data, for messages.
        lists: the columns whose values are lists; these values may be missing.
        labels: the labels, if the data lacks them. They become the values of the last
            column in each list of `choices`.

    Raises:
        InputError: the data has another form, or a row lacks a value.
    """
    if is_path(data) or not isinstance(data, Iterable):
        raise InputError(
            f"{name}: {errors.quote(data)}; expected a table: a DataFrame, a list of "
            f"rows, or a tf.data.Dataset; or the path of a file"
        )
    label = choices[0][-1]  # the column of the labels, used only with `labels`
    if labels is not None:
        choices = [columns[:-1] for columns in choices]
    has_list_rows = len(choices[0]) == 1 and choices[0][0] in lists
    with errors.wrap_read(name, "a table"):
        table = _to_frame(data, has_list_rows)
    if not len(table):
        raise InputError(f"{name}: no row; expected one or more")
    table = _select(table, choices, name)
    if labels is not None:
        with errors.wrap_read(name, "a label for each row"):
            is_table = len(getattr(labels, "shape", ())) == 2
            column = _to_frame(labels if is_table else {label: labels})
            table[label] = column.set_axis(table.index)
    # Missing values (NaN) become None.
    table, rows = table.where(table.notna(), None), []
    for number, cells in enumerate(table.to_dict("records"), 1):
        location = f"{name}, row {number}"
        with errors.wrap_read(location, "texts, numbers or lists"):
            row = to_json_value(cells)
        for column, value in row.items():
            if value is None and column not in lists:
                raise InputError(f"{location}: {column!r} is missing (None or NaN)")
        rows.append(row)
    return rows


def _to_frame(data: Any, has_list_rows: bool = False) -> pandas.DataFrame:
    """Returns a table as a DataFrame of objects.

    Args:
        data: see `read`.
        has_list_rows: whether the table has only one column, with lists as values. Then
            a list is the value of a row, not the values of several columns.
    """
    if hasattr(data, "to_dicts"):  # polars
        data = data.to_dicts()
    elif hasattr(data, "as_numpy_iterator"):  # tf.data
        rank = getattr(getattr(data.element_spec, "shape", None), "rank", 0)
        if rank == 1 and not has_list_rows:
            raise TypeError("batches, not rows; call unbatch()")
        data = data.as_numpy_iterator()
    if isinstance(data, Mapping):
        # A dict with a text among its values is one row; other dicts have columns.
        is_row = any(isinstance(value, str) for value in data.values())
        data = [data] if is_row else {key: [*cells] for key, cells in data.items()}
    elif not isinstance(data, pandas.DataFrame):
        data = [*data]
        if has_list_rows:
            # A list becomes the only cell of its row, instead of several cells. A tuple
            # or dict already is a row.
            data = [x if isinstance(x, (tuple, Mapping)) else [x] for x in data]
    return pandas.DataFrame(data, dtype=object)


def _select(
    table: pandas.DataFrame, choices: Sequence[Sequence[str]], name: str
) -> pandas.DataFrame:
    """Returns only the columns of a table that `choices` names, see `read`."""
    names = [str(column) for column in table.columns]
    is_numbered = names == [str(n) for n in range(len(names))]
    for columns in choices:
        if {*columns} <= {*names}:
            return table.set_axis(names, axis=1)[[*columns]]
        if is_numbered and len(columns) == len(names):
            return table.set_axis([*columns], axis=1)
    raise InputError(
        f"{name}: has the columns {', '.join(names)}; expected {', '.join(choices[0])}"
    )


def label_to_text(label: Any) -> str:
    """Returns a label as the text in files and models; JSON if it is not a text."""
    return label if isinstance(label, str) else json.dumps(to_json_value(label))


def to_json_value(value: Any) -> Any:
    """Converts a value to JSON's types; arrays and sets become lists.

    Raises:
        TypeError: JSON has no type for a value.
        UnicodeDecodeError: bytes are not UTF-8.
        ValueError: a number is infinite or NaN.
    """
    return json.loads(json.dumps(value, default=_to_builtin, allow_nan=False))


def _to_builtin(value: Any) -> Any:
    """Converts a value for which `json.dumps` has no type."""
    if isinstance(value, bytes):
        return value.decode()
    if hasattr(value, "tolist"):  # an array or number of NumPy
        return value.tolist()
    return os.fspath(value) if is_path(value) else list(value)
