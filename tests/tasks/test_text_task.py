import dataclasses

import numpy as np
import pytest

from albert_tf import metrics
from albert_tf.errors import InputError
from albert_tf.tasks import glue
from albert_tf.tasks.text_task import Example, TextTask

TOPICS = TextTask(
    name="topics",
    source="",
    files={"dev": "dev.jsonl", "test": "test.tsv"},
    text=("text",),
    label="topics",
    labels=("sea", "sun", "ice"),
    label_separator="|",
    metrics={"micro_f1": metrics.micro_f1},
    key_metric="micro_f1",
)
SCORES = dataclasses.replace(glue.STSB, bounds=None)


def labelled(*labels):
    return [Example("0", "a", None, label) for label in labels]


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


@pytest.mark.parametrize("split", ["train_more", "validation"])
def test_a_split_that_nothing_would_use_is_refused(split):
    with pytest.raises(InputError) as caught:
        dataclasses.replace(TOPICS, files={"train": "a.tsv", split: "b.tsv"})
    assert str(caught.value) == (
        f"task topics: files has {split!r}; expected 'train', or a name that begins "
        "with dev or test"
    )


def test_targets_are_class_numbers_or_numbers():
    assert glue.MNLI.targets(labelled("neutral", "contradiction")).tolist() == [2, 0]
    found = glue.STSB.targets(labelled(1.5, 5.0))
    assert (found.dtype, found.tolist()) == (np.float32, [1.5, 5.0])
    with pytest.raises(ValueError, match="task mnli: an example without label"):
        glue.MNLI.targets(labelled("neutral", None))


def test_outputs_are_counted():
    assert (glue.MNLI.outputs, glue.STSB.outputs, TOPICS.outputs) == (3, 1, 3)


def test_predictions_are_the_likeliest_class_or_every_likely_label():
    probabilities = np.array([[0.2, 0.5, 0.3], [0.7, 0.1, 0.2]], "float32")
    found = glue.MNLI.predict(probabilities)
    assert found.tolist() == [1, 0]
    assert glue.MNLI.words(found) == ["entailment", "contradiction"]
    found = TOPICS.predict(np.array([[0.5, 0.4, 0.9], [0.1, 0.2, 0.3]]))
    assert found.tolist() == [[1, 0, 1], [0, 0, 0]]
    assert TOPICS.words(found) == ["sea|ice", ""]


def test_a_regression_stays_within_its_bounds_where_it_has_some():
    outputs = np.array([[-0.25], [2.1], [5.5]], "float32")
    assert glue.STSB.words(glue.STSB.predict(outputs)) == ["0.0", "2.1", "5.0"]
    assert SCORES.words(SCORES.predict(outputs)) == ["-0.25", "2.1", "5.5"]


def test_every_metric_is_computed_under_its_name():
    found = glue.MRPC.score(np.array([1, 1, 0, 1]), np.array([1, 0, 1, 1]))
    assert found == pytest.approx({"eval_accuracy": 2 / 4, "f1": 4 / 6})
