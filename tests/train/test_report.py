import io
import json
import re
import types

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.util import event_pb2

from albert_tf.tasks.confusion import Confusion
from albert_tf.tasks.settings.training import TrainingSettings
from albert_tf.train.report import Reporter

METRICS = {"loss": 1.0, "learning_rate": 0.1, "gradient_norm": 2.0}
METRICS |= {"sequences_per_second": 6.0, "tokens_per_second": 0.5, "waiting_share": 0.5}


MATRIX = Confusion(("no", "yes"), np.array([[3, 1], [0, 2]]))
TASK = types.SimpleNamespace(
    main_metrics=(), confusions={"dev": MATRIX}, key_metric="accuracy"
)


def train(folder, *steps, stream=None):
    sizes = {"num_train_steps": 99, "num_warmup_steps": 0, "train_batch_size": 3}
    config = TrainingSettings(output_dir=str(folder), **sizes)
    reporter = Reporter(folder, stream or io.StringIO(), TASK, config)
    for step in steps:
        reporter.log_train(step, METRICS)
        if step == 31:
            reporter.log("a line")
    reporter.close()


def test_a_terminal_has_one_line_of_progress_others_have_all(tmp_path):
    plain, terminal = io.StringIO(), io.StringIO()
    terminal.isatty = lambda: True
    for stream in (plain, terminal):
        train(tmp_path, 1, 20, 31, 40, stream=stream)
    lines = plain.getvalue().splitlines()
    assert [line.partition("/")[0] for line in lines] == [
        *("step 1", "step 20", "step 31", "a line", "step 40")
    ]
    text = terminal.getvalue()
    assert re.findall(r"(\d+)/99 \[", text)[-1] == "40"
    assert "loss 1.0000" in text
    # The text that is on the screen at the end.
    above, below = last_lines(text)
    assert (above, below.partition("|")[0].strip()) == ("a line", "40%")


def last_lines(text):
    """Returns the lines that a terminal shows at the end."""
    lines = [line.rstrip("\r").split("\r")[-1].rstrip() for line in text.split("\n")]
    return [line for line in lines if line]


def test_a_line_of_training_has_the_number_of_its_steps(tmp_path):
    train(tmp_path, 1, 20, 40)
    train(tmp_path, 31, 40)  # a resumed run
    entries = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    counts = [(entry["step"], entry.get("steps")) for entry in entries]
    # The line without a number is for the resume.
    assert counts == [(1, 1), (20, 19), (40, 20), (30, None), (31, 1), (40, 9)]


def summaries(folder):
    [file] = folder.glob("events.*")
    records = tf.data.TFRecordDataset(str(file)).as_numpy_iterator()
    events = [event_pb2.Event.FromString(record) for record in records]
    return [(event, value) for event in events for value in event.summary.value]


def test_tensorboard_gets_every_number(tmp_path):
    train(tmp_path, 1, 20)
    written = {
        (event.step, value.tag): float(tf.make_ndarray(value.tensor))
        for event, value in summaries(tmp_path / "summaries")
    }
    expected = {**METRICS, "steps_per_second": 2.0}
    assert written == {
        (step, name): pytest.approx(value)
        for step in (1, 20)
        for name, value in expected.items()
    }


def test_tensorboard_gets_a_confusion_matrix(tmp_path, draws):
    config = TrainingSettings(output_dir=str(tmp_path))
    reporter = Reporter(tmp_path, io.StringIO(), TASK, config)
    reporter.log_eval(7, {"accuracy": 0.5}, False, 0.5)
    written = {
        value.tag: value.tensor for _, value in summaries(tmp_path / "summaries/eval")
    }
    assert tf.make_ndarray(written["accuracy"]) == 0.5
    _, _, picture = tf.make_ndarray(written["confusion_matrix"])
    assert picture.startswith(b"\x89PNG")
