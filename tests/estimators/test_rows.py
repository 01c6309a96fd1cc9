"""Tables in any form have the same rows, and what is no table is refused."""

import pathlib

import numpy as np
import pandas
import pytest
import tensorflow as tf
from helpers import refusal

from albert_tf.estimators import rows

COLUMNS = ("text", "label")
ROWS = [{"text": "a b", "label": 3}, {"text": "ü", "label": 4}]
TEXTS, LABELS = ["a b", "ü"], [3, 4]
FRAME = pandas.DataFrame(ROWS)


class Polars:
    """A frame as polars has it: it iterates over columns, and has no `to_dict`."""

    columns, shape = list(COLUMNS), (len(ROWS), len(COLUMNS))

    def __iter__(self):
        return iter([TEXTS, LABELS])

    def to_dicts(self):
        return [dict(row) for row in ROWS]


@pytest.mark.parametrize(
    "data",
    [
        [{**row, "more": 1} for row in ROWS],
        {"label": np.array(LABELS), "text": TEXTS},
        list(zip(TEXTS, LABELS, strict=True)),
        (row for row in ROWS),
        tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)),
        tf.data.Dataset.from_tensor_slices({"text": TEXTS, "label": LABELS}),
        FRAME,
        FRAME.set_axis([0, 1], axis=1).set_axis([5, 7]),
        Polars(),
    ],
    ids=[
        *("dicts", "columns", "tuples", "generator", "tf.data", "dicts of tf.data"),
        *("pandas", "numbers of pandas", "polars"),
    ],
)
def test_every_form_has_the_same_rows(data):
    table = rows.read(data, [COLUMNS], "train")
    assert table == ROWS
    assert type(table[0]["label"]) is int


def test_one_column_takes_plain_values():
    two = [{"text": "a"}, {"text": "b"}]
    for data in (["a", "b"], [("a",), ("b",)], np.array([["a"], ["b"]], object)):
        assert rows.read(data, [("text",)], "x") == two
    assert rows.read(pandas.Series(["a", "b"], [7, 3]), [("text",)], "x") == two
    lists = [["a", "b"], ["c"]]
    expected = [{"tokens": each} for each in lists]
    for data in (lists, [*map(np.array, lists)], [(each,) for each in lists]):
        assert rows.read(data, [("tokens",)], "x", ("tokens", "tags")) == expected
    assert rows.read({"text": "a", "more": 1}, [("text",)], "x") == [{"text": "a"}]
    numbered = FRAME.set_axis([7, 1], axis=1)
    assert rows.read(numbered, [("1",)], "x") == [{"1": 3}, {"1": 4}]


def test_other_columns_are_read_where_the_table_has_these():
    choices = [("review",), ("text",), ("a", "b")]
    for data, expected in (
        ([{"b": 1, "a": 2}], {"a": 2, "b": 1}),
        ([("x", "y")], {"a": "x", "b": "y"}),
        ([{"a": 2, "b": 1, "text": 3}], {"text": 3}),
    ):
        assert rows.read(data, choices, "x") == [expected]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "train: no row; expected one or more"),
        (7, "train: 7; expected a table: a DataFrame, a list of rows, or a tf.data"),
        ([{"text": "a"}], "train: has the columns text; expected text, label"),
        (
            {"text": ["a"], "label": [1, 2]},
            "train: All arrays must be of the same length; expected a table",
        ),
        ([("a", 1), ("b",)], "train, row 2: 'label' is missing (None or NaN)"),
        ([("a", 1, 2)], "train: has the columns 0, 1, 2; expected text, label"),
        (
            {"text": ["a", "b"], "label": [1.0, float("nan")]},
            "train, row 2: 'label' is missing (None or NaN)",
        ),
        ([("a", 1), (b"\xff", 2)], "train, row 2: 'utf-8' codec can't decode byte"),
        ([("a", object())], "train, row 1: 'object' object is not iterable; expected"),
        (
            tf.data.Dataset.from_tensor_slices(TEXTS).batch(2),
            "train: batches, not rows",
        ),
    ],
)
# Later versions of pandas refuse rows of different lengths themselves.
@pytest.mark.filterwarnings("ignore:Constructing a DataFrame from a list of seq")
def test_what_is_no_table_is_refused(data, message):
    assert refusal(rows.read, data, [COLUMNS], "train").startswith(message)


def test_labels_come_in_many_forms_too():
    for labels in (
        *(LABELS, np.array(LABELS), np.array(LABELS)[:, None]),
        *(FRAME["label"].set_axis([7, 1]), FRAME[["label"]]),
    ):
        assert rows.read(TEXTS, [COLUMNS], "x", labels=labels) == ROWS
    several = [{"text": text, "label": [1, 0]} for text in TEXTS]
    for labels in ([[1, 0]] * 2, [(1, 0)] * 2, [np.array([1, 0])] * 2):
        assert rows.read(TEXTS, [COLUMNS], "x", ["label"], labels) == several
    for wrong, message in (
        ([3], "x: Length mismatch: Expected axis has 1 elements, new values have 2"),
        (np.array(labels), "x: Cannot set a DataFrame with multiple columns to the"),
        (Polars(), "x: Cannot set a DataFrame with multiple columns to the"),
    ):
        refused = refusal(rows.read, TEXTS, [COLUMNS], "x", ["label"], wrong)
        assert refused.startswith(message)
        assert refused.endswith("; expected a label for each row")


def test_values_become_those_of_json():
    values = {"a": np.float32(0.5), "b": {1: (np.array([True]), {"x"}, b"\xc3\xbc")}}
    expected = {"a": 0.5, "b": {"1": [[True], ["x"], "ü"]}}
    assert rows.to_json_value(values) == expected
    assert rows.to_json_value(pathlib.Path("a/b")) == "a/b"
    assert [*map(rows.label_to_text, ["x", np.int64(3), False])] == ["x", "3", "false"]


def test_values_of_tf_data_may_be_lists():
    lists = {"tokens": [["a", "b"], ["c", "d"]], "tags": [["O", "O"], ["O", "X"]]}
    columns = ("tokens", "tags")
    data = tf.data.Dataset.from_tensor_slices(lists)
    expected = rows.read(lists, [columns], "x", columns)
    assert expected[1] == {"tokens": ["c", "d"], "tags": ["O", "X"]}
    assert rows.read(data, [columns], "x", columns) == expected
