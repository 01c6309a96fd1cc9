"""`run.json` holds what a run was given, and names what differs on resuming."""

import dataclasses
import importlib
import json
import re
import types
from pathlib import Path

import pytest

from albert_tf import InputError
from albert_tf.tasks.settings.training import TrainingSettings
from albert_tf.train import run_file
from albert_tf.train.run_file import RunFile

ROOT = Path(__file__).parents[2]
SETTINGS = TrainingSettings(output_dir="run", seed=3, learning_rate=0.5)
TASK = types.SimpleNamespace(
    kind="pretraining",
    vocabulary="abc",
    training=types.SimpleNamespace(fingerprint=7),
)


@pytest.fixture
def run(tmp_path):
    """Begins a run, then resumes it with other settings; returns what is logged."""
    RunFile(tmp_path, (SETTINGS,)).write(TASK)
    (tmp_path / "model.ckpt-4.index").touch()

    def resume(**changed):
        lines = []
        RunFile(tmp_path, (dataclasses.replace(SETTINGS, **changed),)).check(
            lines.append
        )
        return lines

    return resume


def test_it_holds_every_flag_and_what_the_run_depends_on(run, tmp_path):
    content = json.loads((tmp_path / "run.json").read_text())
    assert content["task"] == "pretraining"
    assert (content["data"], content["vocabulary"]) == (7, "abc")
    assert content["flags"]["learning_rate"] == 0.5
    assert content["flags"]["init_checkpoint"] is None  # not given
    assert {"albert_tf", "tensorflow", "keras"} <= content["versions"].keys()
    assert TrainingSettings(**content["flags"]) == SETTINGS


def test_its_flags_make_the_run_again(tmp_path, settings_of):
    flags = (
        *("--task_name=custom", "--train_file=a b,c.csv", "--labels=x,y z"),
        *("--text_columns=q,r", "--learning_rate=1e-5", "--num_train_epochs=2"),
        *("--do_train", "--output_dir=runs/a", "--noskip_bad_rows", "--do_lower_case"),
    )
    given = settings_of("run_classifier.py", *flags)
    RunFile(tmp_path, tuple(given)).write(TASK)
    config = f"--config={tmp_path}/run.json"
    assert settings_of("run_classifier.py", config) == given
    [_, moved, *_] = settings_of("run_classifier.py", config, "--output_dir=b")
    assert moved == dataclasses.replace(given[1], output_dir="b")


@pytest.mark.parametrize(
    ("changed", "lines"),
    [
        ({}, []),
        ({"log_steps": 7, "output_dir": "moved", "xla": True}, []),
        (
            {"learning_rate": 0.25, "seed": 4},
            [
                "Warning: --learning_rate=0.25: the run had 0.5",
                "Warning: --seed=4: the run had 3",
            ],
        ),
    ],
)
def test_differences_are_logged(run, changed, lines):
    assert run(**changed) == lines


def test_flags_that_an_earlier_version_did_not_have_do_not_differ(run, tmp_path):
    content = json.loads((tmp_path / "run.json").read_text())
    for name in ("optimizer", "seed"):
        del content["flags"][name]
    (tmp_path / "run.json").write_text(json.dumps(content))
    assert run(optimizer="adamw", seed=4) == []


def test_what_would_spoil_the_run_is_refused(run, tmp_path):
    with pytest.raises(InputError) as refused:
        run(optimizer="adamw", seed=4)
    assert str(refused.value) == (
        f"--optimizer=adamw: the run had lamb ({tmp_path}/run.json); expected the "
        f"same, or another --output_dir"
    )


def test_a_run_without_checkpoints_begins_anew(run, tmp_path):
    (tmp_path / "model.ckpt-4.index").unlink()
    assert run(optimizer="adamw") == []


def test_a_damaged_file_is_refused(run, tmp_path):
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(InputError, match=r"run\.json"):
        run()
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(InputError, match=r"run\.json: expected the key 'flags'"):
        run()


def test_the_guide_lists_what_every_flag_means():
    text = (ROOT / "docs/pretraining.md").read_text(encoding="utf-8")
    rows = {"refused": "refused", "a warning": "warned", "free": "free"}
    listed = {}
    for row, meaning in rows.items():
        [cells] = re.findall(rf"^\| {row} \| (.*) \|$", text, re.MULTILINE)
        listed |= dict.fromkeys(re.findall(r"`(\w+)`", cells), meaning)
    expected = {}
    for name in ("pretrain", "classify", "squad", "race", "tag"):
        command = importlib.import_module(f"albert_tf.commands.{name}")
        expected |= run_file.changes(command.SETTINGS)
    assert listed == expected
