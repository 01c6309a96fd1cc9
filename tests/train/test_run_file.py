"""`run.json` has the flags of a run, and a resumed run logs the changed ones."""

import dataclasses
import json
import types

import pytest

from albert_tf import InputError
from albert_tf.tasks.settings.training import TrainingSettings
from albert_tf.train.run_file import RunFile, read_flags

SETTINGS = TrainingSettings(output_dir="run", seed=3, learning_rate=0.5)
TASK = types.SimpleNamespace(task_type="pretraining", vocabulary="abc")


@pytest.fixture
def resume(tmp_path):
    """Starts a run, resumes it with other settings, and returns the log."""
    RunFile(tmp_path, (SETTINGS,)).write(TASK, print)
    (tmp_path / "model.ckpt-4.index").touch()

    def resume(**changed):
        lines = []
        settings = dataclasses.replace(SETTINGS, **changed)
        RunFile(tmp_path, (settings,)).write(TASK, lines.append)
        return lines

    return resume


def test_it_holds_every_flag_and_what_the_run_depends_on(resume, tmp_path):
    content = json.loads((tmp_path / "run.json").read_text())
    assert (content["task"], content["vocabulary"]) == ("pretraining", "abc")
    assert content["flags"]["init_checkpoint"] is None  # not given
    assert {"albert_tf", "tensorflow", "keras"} <= content["versions"].keys()
    assert TrainingSettings(**content["flags"]) == SETTINGS
    assert read_flags(tmp_path) == read_flags(tmp_path / "run-2") == content["flags"]
    assert read_flags(tmp_path / "other") == {}


def test_its_flags_make_the_run_again(tmp_path, settings_of):
    flags = (
        *("--task_name=custom", "--train_file=a b,c.csv", "--labels=x,y z"),
        *("--text_columns=q,r", "--learning_rate=1e-5", "--num_train_epochs=2"),
        *("--do_train", "--output_dir=runs/a", "--noskip_bad_rows", "--do_lower_case"),
    )
    settings = settings_of("run_classifier.py", *flags)
    RunFile(tmp_path, tuple(settings)).write(TASK, print)
    config = f"--config={tmp_path}/run.json"
    assert settings_of("run_classifier.py", config) == settings
    [_, moved, *_] = settings_of("run_classifier.py", config, "--output_dir=b")
    assert moved == dataclasses.replace(settings[1], output_dir="b")


def test_one_line_has_what_differs(resume, tmp_path):
    assert resume() == []
    assert resume(learning_rate=0.25, seed=4) == [
        "Flags changed since the run began: --learning_rate=0.25 (before: 0.5), "
        "--seed=4 (before: 3)"
    ]
    (tmp_path / "model.ckpt-4.index").unlink()  # a new run
    assert resume(seed=4) == []


@pytest.mark.parametrize("text", ["[]", "{}", "{"])
def test_a_damaged_file_is_refused(resume, tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(InputError, match=r"run\.json"):
        resume()
