"""Runs of Weights & Biases and of MLflow, with mocks."""

import sys
import types
from unittest import mock

import pytest

from albert_tf.tasks.settings.training import TrainingSettings
from albert_tf.train import trackers
from albert_tf.train.trackers import Trackers

SETTINGS = {"learning_rate": 0.5, "input_file": ["a", "b"], "xla": None}
BEST = {"step": 20, "accuracy": 0.75}


@pytest.fixture
def libraries(monkeypatch):
    """Replaces both libraries with mocks, and returns these."""
    mocks = types.SimpleNamespace(wandb=mock.MagicMock(), mlflow=mock.MagicMock())
    for name, library in vars(mocks).items():
        library.__spec__ = mock.Mock()  # as if it were installed
        monkeypatch.setitem(sys.modules, name, library)
    return mocks


def track(folder, log=print, end=True, **projects):
    config = TrainingSettings(output_dir=str(folder), do_train=True, **projects)
    trackers.check(config)
    folder.mkdir(exist_ok=True)
    tracker = Trackers(config, folder, SETTINGS, log)
    tracker.log("train", 10, {"loss": 2.0, "gradient_norm": float("nan")})
    if end:
        tracker.end(BEST)
    tracker.end({}, is_complete=False)  # does nothing after `end`


def test_wandb_gets_settings_and_the_best(libraries, tmp_path):
    track(tmp_path / "run", wandb="stars")
    [init] = libraries.wandb.init.call_args_list
    assert (init.kwargs["project"], init.kwargs["name"]) == ("stars", "run")
    assert init.kwargs["config"] == SETTINGS and init.kwargs["sync_tensorboard"]
    run = libraries.wandb.init.return_value
    run.summary.update.assert_called_with({"best/step": 20, "best/accuracy": 0.75})
    run.finish.assert_called_once_with(exit_code=0)


def test_mlflow_gets_settings_metrics_and_the_best(libraries, tmp_path):
    track(tmp_path / "run", mlflow="stars")
    track(tmp_path / "other", mlflow="stars", end=False)
    calls = libraries.mlflow
    calls.set_experiment.assert_called_with("stars")
    assert [c.kwargs["run_name"] for c in calls.start_run.call_args_list] == [
        *("run", "other")
    ]
    calls.log_params.assert_called_with(SETTINGS)
    assert calls.log_metrics.call_args_list[:2] == [
        mock.call({"train/loss": 2.0}, step=10),
        mock.call({"best/step": 20, "best/accuracy": 0.75}, step=20),
    ]
    assert calls.end_run.call_args_list == [mock.call("FINISHED"), mock.call("KILLED")]


def test_a_service_that_fails_is_warned_of_and_the_others_go_on(libraries, tmp_path):
    libraries.wandb.init.side_effect = OSError("no network")
    lines = []
    track(tmp_path, lines.append, wandb="stars", mlflow="stars")
    assert lines == ["Warning: no run of Weights & Biases: no network"]
    libraries.mlflow.end_run.assert_called_once_with("FINISHED")


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_library_is_named(name, monkeypatch, refuses):
    monkeypatch.setitem(sys.modules, name, None)
    with refuses(
        f"--{name}=stars needs the package {name}: pip install 'albert_tf[{name}]'"
    ):
        trackers.check(TrainingSettings(output_dir="x", **{name: "stars"}))
