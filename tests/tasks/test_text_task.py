import dataclasses

import numpy as np
import pytest

from albert_tf.errors import InputError
from albert_tf.tasks import glue, metrics
from albert_tf.tasks.text_task import TextTask

TOPICS = TextTask(
    name="topics",
    files={"dev": "dev.jsonl", "test": "test.tsv"},
    text=("text",),
    label="topics",
    labels=("sea", "sun", "ice"),
    label_separator="|",
    metrics={"micro_f1": metrics.micro_f1},
    key_metric="micro_f1",
)
SCORES = dataclasses.replace(glue.STSB, bounds=None)


def test_several_labels_are_read_from_lists_and_from_cells(tmp_path):
    (tmp_path / "dev.jsonl").write_text(
        '{"text": "a", "topics": ["ice", "sea"]}\n{"text": "b", "topics": []}\n'
        '{"text": "c", "topics": "sun | ice"}\n{"text": "d", "topics": ""}\n'
    )
    examples = TOPICS.read("dev", tmp_path).rows
    assert [x.label for x in examples] == [("ice", "sea"), (), ("sun", "ice"), ()]
    assert TOPICS.targets(examples).tolist() == [
        [1, 0, 1],
        [0, 0, 0],
        [0, 1, 1],
        [0, 0, 0],
    ]


def test_rows_without_an_index_have_their_number(tmp_path):
    (tmp_path / "test.tsv").write_text("text\na\nb\n")
    assert [x.guid for x in TOPICS.read("test", tmp_path).rows] == ["0", "1"]


def test_a_column_without_a_name_is_no_index(tmp_path):
    # As pandas writes its own.
    (tmp_path / "test.tsv").write_text("\ttext\n7\ta\n8\tb\n")
    task = dataclasses.replace(TOPICS, index=None)
    assert [x.guid for x in task.read("test", tmp_path).rows] == ["0", "1"]


def test_predictions_are_the_likeliest_class_or_every_likely_label():
    probabilities = np.array([[0.2, 0.5, 0.3], [0.7, 0.1, 0.2]], "float32")
    found = glue.MNLI.decode(probabilities)
    assert found.tolist() == [1, 0]
    assert glue.MNLI.decode_labels(found) == ["entailment", "contradiction"]
    found = TOPICS.decode(np.array([[0.5, 0.4, 0.9], [0.1, 0.2, 0.3]]))
    assert found.tolist() == [[1, 0, 1], [0, 0, 0]]
    assert TOPICS.decode_labels(found) == ["sea|ice", ""]


def test_a_regression_stays_within_its_bounds_where_it_has_some():
    outputs = np.array([[-0.25], [2.1], [5.5]], "float32")
    assert glue.STSB.decode_labels(glue.STSB.decode(outputs)) == ["0.0", "2.1", "5.0"]
    assert SCORES.decode_labels(SCORES.decode(outputs)) == ["-0.25", "2.1", "5.5"]


def test_empty_cells_are_texts(tmp_path):
    pair = "index\tsentence1\tsentence2\tlabel\n0\t\tbody\t{0}\n1\ttitle\t\t{0}\n"
    (tmp_path / "dev.tsv").write_text(pair.format("entailment"))
    assert [row[1:3] for row in glue.RTE.read("dev", tmp_path).rows] == [
        ("", "body"),
        ("title", ""),
    ]
    (tmp_path / "train.tsv").write_text("sentence\tlabel\n\t1\na\t0\n")
    assert [row.text_a for row in glue.SST2.read("train", tmp_path).rows] == ["", "a"]


def test_a_pair_of_two_empty_texts_is_broken_except_in_a_test_table(tmp_path):
    both = "index\tsentence1\tsentence2{0}\n0\ta\tb{1}\n1\t\t {1}\n\n"
    for split in ("train", "test"):
        label = ("", "") if split == "test" else ("\tlabel", "\tentailment")
        (tmp_path / f"{split}.tsv").write_text(both.format(*label))
    path = tmp_path / "train.tsv"
    with pytest.raises(InputError, match=f"^{path}:3: both texts are empty$"):
        glue.RTE.read("train", tmp_path)
    table = glue.RTE.read("train", tmp_path, skip_bad_rows=True)
    assert (len(table.rows), len(table.skipped), table.blank) == (1, 1, 1)
    test = glue.RTE.read("test", tmp_path, skip_bad_rows=True)
    assert test.rows == [("0", "a", "b", None), ("1", "", " ", None)]


def test_an_empty_label_is_refused_and_an_empty_test_row_is_kept(tmp_path):
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\na\t\n")
    path = tmp_path / "dev.tsv"
    with pytest.raises(InputError, match=f"^{path}:2: nothing in column 'label'$"):
        glue.SST2.read("dev", tmp_path)
    (tmp_path / "test.tsv").write_text("text\na\n\n\n")
    assert [row[:2] for row in TOPICS.read("test", tmp_path).rows] == [
        ("0", "a"),
        ("1", ""),
        ("2", ""),
    ]
