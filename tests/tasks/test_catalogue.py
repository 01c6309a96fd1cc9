import re
import sys

import pytest

from albert_tf import tasks
from albert_tf.errors import InputError
from albert_tf.tasks import catalogue, glue

# The documentation's example of a task of one's own.
BOOLQ = """\
from albert_tf import metrics
from albert_tf.tasks.text_task import TextTask

BOOLQ = TextTask(
    name="boolq",
    source="Clark et al. 2019: BoolQ",
    files={"train": "BoolQ/train.jsonl", "dev": "BoolQ/val.jsonl"},
    text=("question", "passage"),
    label="label",
    labels=("false", "true"),
    metrics={"eval_accuracy": metrics.accuracy},
    key_metric="eval_accuracy",
)
"""


@pytest.fixture
def add_module(tmp_path, monkeypatch):
    """Adds a module to the folder of tasks."""
    monkeypatch.setattr(tasks, "__path__", [*tasks.__path__, str(tmp_path)])
    added = []

    def add(name, code):
        (tmp_path / f"{name}.py").write_text(code)
        added.append(f"albert_tf.tasks.{name}")

    yield add
    for name in added:
        sys.modules.pop(name, None)
        vars(tasks).pop(name.rpartition(".")[2], None)


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("SST-2", glue.SST2),
        ("sst2", glue.SST2),
        ("Sts_B", glue.STSB),
        ("CoLA", glue.COLA),
        ("MNLI-mm", glue.MISMATCHED_MNLI),
        ("mismnli", glue.MISMATCHED_MNLI),
        ("mnli_m", glue.MNLI),
        ("AX", glue.AX),
    ],
)
def test_case_and_dashes_of_a_name_do_not_count(name, task):
    assert catalogue.find(name) is task


def test_an_unknown_name_is_an_error_that_lists_the_known_ones():
    message = (
        "--task_name=glue: unknown; expected one of ax, cola, mismnli, mnli, mrpc, "
        "qnli, qqp, rte, sst-2, sts-b, wnli or custom"
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        catalogue.find("glue")


def test_a_file_of_under_fifteen_lines_adds_a_task(add_module, tmp_path):
    assert len(BOOLQ.splitlines()) < 15
    add_module("boolq", BOOLQ)
    task = catalogue.find("BoolQ")
    folder = tmp_path / "BoolQ"
    folder.mkdir()
    (folder / "val.jsonl").write_text(
        '{"question": "is it", "title": "x", "passage": "It is.", "label": true}\n'
    )
    [example] = task.read("dev", tmp_path).rows
    assert example == ("0", "is it", "It is.", "true")
    assert task.targets([example]).tolist() == [1]


@pytest.mark.parametrize("name", ["boolq", "Bool-Q"])
def test_two_tasks_of_one_name_are_an_error(add_module, name):
    add_module("boolq", BOOLQ)
    add_module("other", BOOLQ.replace('"boolq"', f'"{name}"'))
    with pytest.raises(
        InputError, match=f"two tasks go by the name '{name}', in boolq.py and other.py"
    ):
        catalogue.find("cola")


def test_a_task_imported_by_another_module_is_one_task(add_module):
    add_module("another", "from albert_tf.tasks.glue import RTE")
    assert catalogue.find("rte") is glue.RTE
