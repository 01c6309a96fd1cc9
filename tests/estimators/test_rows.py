"""Tables in any form have the same rows, and what is no table is refused."""

import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import InputError
from albert_tf.estimators import rows

COLUMNS = ("text", "label")
ROWS = [{"text": "a b", "label": 3}, {"text": "ü", "label": 4}]
TEXTS, LABELS = ["a b", "ü"], [3, 4]


@pytest.mark.parametrize(
    "data",
    [
        [{**row, "more": 1} for row in ROWS],
        {"label": np.array(LABELS), "text": TEXTS},
        list(zip(TEXTS, LABELS, strict=True)),
        (row for row in ROWS),
        tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)),
        tf.data.Dataset.from_tensor_slices({"text": TEXTS, "label": LABELS}).batch(2),
    ],
    ids=["dicts", "columns", "tuples", "generator", "tf.data", "batches of tf.data"],
)
def test_every_form_has_the_same_rows(data):
    assert rows.read(data, COLUMNS, "train") == ROWS


def test_a_data_frame_has_them_too():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS)
    assert rows.read(frame, COLUMNS, "train") == ROWS
    assert rows.read(frame.set_axis([0, 1], axis=1), COLUMNS, "train") == ROWS
    assert rows.read(frame.set_axis([7, 1], axis=1), ("7", "1"), "train") == [
        {"7": row["text"], "1": row["label"]} for row in ROWS
    ]
    gaps = pandas.DataFrame({"text": ["a", "b"], "label": [1.0, float("nan")]})
    with pytest.raises(InputError, match=r"train, row 2: 'label' is missing"):
        rows.read(gaps, COLUMNS, "train")


class Polars:
    """A frame as polars has it: it iterates over columns, and has no `to_dict`."""

    columns, shape = list(COLUMNS), (len(ROWS), len(COLUMNS))

    def __iter__(self):
        return iter([TEXTS, LABELS])

    def to_dicts(self):
        return [dict(row) for row in ROWS]


def test_a_frame_of_polars_has_them_too():
    assert rows.read(Polars(), COLUMNS, "train") == ROWS


def test_one_column_takes_plain_values():
    assert rows.read(["a", "b"], ("text",), "x") == [{"text": "a"}, {"text": "b"}]
    lists = [["a", "b"], ["c"]]
    expected = [{"tokens": each} for each in lists]
    assert rows.read(lists, ("tokens",), "x", ("tokens", "tags")) == expected
    assert rows.read([("a",)], ("text",), "x") == [{"text": "a"}]
    assert rows.read({"text": "a", "more": 1}, ("text",), "x") == [{"text": "a"}]
    column = np.array([["a"], ["b"]], object)
    assert rows.read(column, ("text",), "x") == [{"text": "a"}, {"text": "b"}]


def test_other_columns_are_read_where_the_first_row_has_these():
    others = [("text",), ("a", "b")]
    for data, expected in (
        ([{"b": 1, "a": 2}], {"a": 2, "b": 1}),
        ([("x", "y")], {"a": "x", "b": "y"}),
        ([{"a": 2, "b": 1, "text": 3}], {"text": 3}),
    ):
        assert rows.read(data, ("review",), "x", alternatives=others) == [expected]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "train: no row; expected one or more"),
        (7, "train: 7; expected a table: a DataFrame, a list of rows, or a tf.data"),
        ([{"text": "a"}], "train, row 1: no column 'label'; its columns are text"),
        (
            {"text": ["a"], "label": [1, 2]},
            "train: All arrays must be of the same length",
        ),
        ([("a", 1), ("b",)], r'train, row 2: \["b"\]; expected 2 values \(text, label'),
    ],
)
def test_what_is_no_table_is_refused(data, message):
    with pytest.raises(InputError, match=message):
        rows.read(data, COLUMNS, "train")


def test_labels_stand_beside_their_rows():
    texts = [{"text": text} for text in TEXTS]
    assert rows.add_column(texts, "label", LABELS, "x") == ROWS
    with pytest.raises(InputError, match=r"x: 2 rows and 1 of label; expected as many"):
        rows.add_column(texts, "label", [3], "x")
    pandas = pytest.importorskip("pandas")
    for values in (
        np.array(LABELS),
        np.array(LABELS)[:, None],
        pandas.DataFrame({"stars": LABELS}),
        pandas.Series(LABELS),
    ):
        assert rows.add_column(texts, "label", values, "x") == ROWS
    several = [{**text, "label": [1, 0]} for text in texts]
    for values in (
        np.array([[1, 0]] * 2),
        pandas.DataFrame({"a": [1, 1], "b": [0, 0]}),
    ):
        assert rows.add_column(texts, "label", values, "x") == several
    assert rows.add_column(texts, "label", Polars(), "x") == [
        {**text, "label": [*row.values()]}
        for text, row in zip(texts, ROWS, strict=True)
    ]


def test_rows_become_json_lines():
    lines = rows.to_json_lines(ROWS, "train").splitlines()
    assert [json.loads(line) for line in lines] == ROWS
    with pytest.raises(InputError, match=r"x, row 1: .* not JSON serializable"):
        rows.to_json_lines([{"text": object()}], "x")


def test_values_that_are_lists_are_no_batches():
    lists = {"tokens": [["a", "b"], ["c", "d"]], "tags": [["O", "O"], ["O", "X"]]}
    expected = rows.read(lists, ("tokens", "tags"), "x")
    data = tf.data.Dataset.from_tensor_slices(lists)
    for each in (data, data.batch(2)):
        columns = ("tokens", "tags")
        assert rows.read(each, columns, "x", lists=columns) == expected
