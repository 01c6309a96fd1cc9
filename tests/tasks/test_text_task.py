import dataclasses

import numpy as np
import pytest

from albert_tf.errors import InputError
from albert_tf.tasks import glue, metrics
from albert_tf.tasks.classification import glue_file, released_files
from albert_tf.tasks.text_task import Example, TextTask

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


# Pandas writes its own without a name.
@pytest.mark.parametrize("text", ["text\na\nb\n", "\ttext\n7\ta\n8\tb\n"])
def test_rows_without_an_index_have_their_number(tmp_path, text):
    (tmp_path / "test.tsv").write_text(text)
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


def test_a_regression_without_bounds_stays_as_it_is():
    outputs = np.array([[-0.25], [2.1], [5.5]], "float32")
    scores = dataclasses.replace(glue.STSB, bounds=None)
    assert scores.decode_labels(scores.decode(outputs)) == ["-0.25", "2.1", "5.5"]


def test_empty_cells_are_texts_but_no_labels(tmp_path):
    pair = "index\tsentence1\tsentence2\tlabel\n0\t\tbody\t{0}\n1\ttitle\t\t{0}\n"
    (tmp_path / "dev.tsv").write_text(pair.format("entailment"))
    rows = glue.RTE.read("dev", tmp_path).rows
    assert [row[1:3] for row in rows] == [("", "body"), ("title", "")]
    (tmp_path / "train.tsv").write_text("sentence\tlabel\n\t1\na\t0\n")
    assert [row.text_a for row in glue.SST2.read("train", tmp_path).rows] == ["", "a"]
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\na\t\n")
    with pytest.raises(InputError, match=r"dev\.tsv:2: nothing in column 'label'$"):
        glue.SST2.read("dev", tmp_path)
    # Each row of a test table is kept.
    (tmp_path / "test.tsv").write_text("text\na\n\n\n")
    found = [row[:2] for row in TOPICS.read("test", tmp_path).rows]
    assert found == [("0", "a"), ("1", ""), ("2", "")]


def test_a_pair_of_two_empty_texts_is_broken_except_in_a_test_table(tmp_path):
    rows = "index\tsentence1\tsentence2{0}\n0\ta\tb{1}\n1\t\t {1}\n\n"
    path = tmp_path / "train.tsv"
    path.write_text(rows.format("\tlabel", "\tentailment"))
    (tmp_path / "test.tsv").write_text(rows.format("", ""))
    with pytest.raises(InputError, match=f"^{path}:3: both texts are empty$"):
        glue.RTE.read("train", tmp_path)
    table = glue.RTE.read("train", tmp_path, skip_bad_rows=True)
    assert (len(table.rows), len(table.skipped), table.blank) == (1, 1, 1)
    test = glue.RTE.read("test", tmp_path, skip_bad_rows=True)
    assert test.rows == [("0", "a", "b", None), ("1", "", " ", None)]


EXAMPLES = [Example(guid, "a", None, None) for guid in ("0", "1", "x7")]
PROBABILITIES = np.array([[0.1, 0.9], [0.75, 0.25], [0.5, 0.5]], "float32")
NUMBERS = np.array([[-0.2], [3.14159], [5.75]], "float32")


def test_the_released_files_hold_probabilities_and_labels():
    assert released_files(glue.RTE, EXAMPLES, PROBABILITIES) == {
        "test_results.tsv": "0.1\t0.9\n0.75\t0.25\n0.5\t0.5\n",
        "submit_results.tsv": (
            "index\tprediction\n0\tnot_entailment\n1\tentailment\nx7\tentailment\n"
        ),
    }


def test_a_regression_is_within_its_bounds_where_it_is_submitted():
    # What ends a cell or a line is a space in an index.
    examples = [Example(guid, "a", None, None) for guid in ("a\tb", "c\nd", "e\r")]
    assert released_files(glue.STSB, examples, NUMBERS) == {
        "test_results.tsv": "-0.2\n3.14159\n5.75\n",
        "submit_results.tsv": "index\tprediction\na b\t0.0\nc d\t3.14159\ne \t5.0\n",
    }


def test_the_sites_files_have_its_words_and_decimals():
    text = glue_file(glue.STSB, EXAMPLES, NUMBERS)
    assert text == "index\tprediction\n0\t0.000\n1\t3.142\nx7\t5.000\n"
    text = glue_file(glue.COLA, EXAMPLES, PROBABILITIES)
    assert text == "index\tprediction\n0\t1\n1\t0\nx7\t0\n"
    text = glue_file(glue.AX, EXAMPLES[:1], np.array([[0.2, 0.1, 0.7]]))
    assert text == "index\tprediction\n0\tneutral\n"


def test_the_site_takes_eleven_files():
    tasks = [task for task in vars(glue).values() if isinstance(task, TextTask)]
    names = {name for task in tasks for name in task.submission.values()}
    assert sorted(names) == [
        *("AX.tsv", "CoLA.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "MRPC.tsv", "QNLI.tsv"),
        *("QQP.tsv", "RTE.tsv", "SST-2.tsv", "STS-B.tsv", "WNLI.tsv"),
    ]
    assert glue.MISMATCHED_MNLI.submission == {"test": "MNLI-mm.tsv"}
