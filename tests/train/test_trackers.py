"""Services beside a run: always with stand-ins, with the libraries where installed."""

import json
import sys
import types

import pytest

from albert_tf.errors import InputError
from albert_tf.tasks.settings.training import TrainingSettings
from albert_tf.train import trackers
from albert_tf.train.trackers import Trackers

SETTINGS = {"learning_rate": 0.5, "input_file": ["a", "b"], "xla": None}
BEST = {"step": 20, "accuracy": 0.75}


class FakeRun(types.SimpleNamespace):
    """What both libraries are called with."""

    def __getattr__(self, name):
        def call(*args, **kwargs):
            self.calls.append((name, *args, *kwargs.items()))

        return call


@pytest.fixture
def wandb(monkeypatch):
    calls = []

    def init(**given):
        calls.append(given)
        summary = types.SimpleNamespace(update=lambda best: calls.append(best))
        return FakeRun(id=given["id"] or "new", calls=calls, summary=summary)

    library = types.SimpleNamespace(init=init, calls=calls)
    monkeypatch.setitem(sys.modules, "wandb", library)
    return library


@pytest.fixture
def mlflow(monkeypatch):
    calls = []
    run = types.SimpleNamespace(info=types.SimpleNamespace(run_id="7"))

    class Client(FakeRun):
        def get_run(self, id):
            return run if id == "7" else calls.index("no such run")

        def create_run(self, experiment, run_name):
            calls.append(("create_run", experiment, run_name))
            return run

        def get_experiment_by_name(self, name):
            return None

        def create_experiment(self, name):
            return f"of {name}"

    entities = types.SimpleNamespace(
        Param=lambda *a: a, Metric=lambda name, value, now, step: (name, value, step)
    )
    library = types.SimpleNamespace(
        MlflowClient=lambda: Client(calls=calls), entities=entities, calls=calls
    )
    monkeypatch.setitem(sys.modules, "mlflow", library)
    return library


def track(folder, log=print, end=True, **projects):
    config = TrainingSettings(output_dir=str(folder), do_train=True, **projects)
    trackers.check(config)
    folder.mkdir(exist_ok=True)
    used = Trackers(config, folder, log)
    used.start(SETTINGS)
    used.log("train", 10, {"loss": 2.0})
    used.log("eval", 20, {"accuracy": 0.75})
    used.end(BEST if end else {}, is_complete=end)
    used.end({}, is_complete=False)  # nothing more
    return used


def test_wandb_gets_settings_metrics_and_the_best(wandb, tmp_path):
    track(tmp_path / "run", wandb="stars")
    given, *calls = wandb.calls
    assert (given["project"], given["name"], given["id"]) == ("stars", "run", None)
    assert given["config"] == SETTINGS
    assert calls == [
        ("define_metric", "train/*", ("step_metric", "step")),
        ("define_metric", "eval/*", ("step_metric", "step")),
        ("log", {"step": 10, "train/loss": 2.0}),
        ("log", {"step": 20, "eval/accuracy": 0.75}),
        {"best/step": 20, "best/accuracy": 0.75},
        ("finish", ("exit_code", 0)),
    ]


def test_mlflow_gets_settings_metrics_and_the_best(mlflow, tmp_path):
    track(tmp_path / "run", mlflow="stars", end=False)
    parameters = [("learning_rate", "0.5"), ("input_file", "['a', 'b']")]
    parameters += [("xla", "None")]
    assert mlflow.calls == [
        ("create_run", "of stars", "run"),
        ("log_batch", "7", ("params", parameters)),
        ("log_batch", "7", ("metrics", [("train/loss", 2.0, 10)])),
        ("log_batch", "7", ("metrics", [("eval/accuracy", 0.75, 20)])),
        ("set_terminated", "7", "KILLED"),
    ]
    mlflow.calls.clear()
    track(tmp_path / "run", mlflow="stars")
    assert mlflow.calls[0] == ("update_run", "7", ("status", "RUNNING"))
    assert mlflow.calls[-2:] == [
        (
            "log_batch",
            "7",
            ("metrics", [("best/step", 20, 20), ("best/accuracy", 0.75, 20)]),
        ),
        ("set_terminated", "7", "FINISHED"),
    ]


def test_a_run_that_resumes_continues_its_run_unless_the_project_is_another(
    wandb, tmp_path
):
    for project in ("stars", "stars", "moons"):
        track(tmp_path, wandb=project)
    starts = [call for call in wandb.calls if isinstance(call, dict) and "id" in call]
    assert [(s["id"], s["resume"]) for s in starts] == [
        (None, None),
        ("new", "allow"),
        (None, None),
    ]
    stored = json.loads((tmp_path / "trackers.json").read_text())
    assert stored == {"wandb": {"project": "moons", "id": "new"}}


def test_a_service_that_fails_is_warned_of_once_and_the_others_go_on(
    wandb, mlflow, tmp_path
):
    def fail(**given):
        raise OSError("no network")

    wandb.init = fail
    lines = []
    track(tmp_path, lines.append, wandb="stars", mlflow="stars")
    assert lines == ["Warning: --wandb=stars: no network; the run goes on without it"]
    assert mlflow.calls[-1] == ("set_terminated", "7", "FINISHED")


def test_a_service_that_fails_as_it_starts_is_ended(wandb, mlflow, tmp_path):
    def fail(*args, **kwargs):
        raise OSError("no network")

    client = mlflow.MlflowClient()
    client.log_batch = fail
    mlflow.MlflowClient = lambda: client
    lines = []
    track(tmp_path, lines.append, mlflow="stars")
    assert lines == ["Warning: --mlflow=stars: no network; the run goes on without it"]
    assert mlflow.calls[-1] == ("set_terminated", "7", "KILLED")


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_library_is_named(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError) as error:
        trackers.check(TrainingSettings(output_dir="x", **{name: "stars"}))
    assert str(error.value) == (
        f"--{name}=stars: {name} is not installed; expected `pip install "
        f"'albert_tf[{name}]'`"
    )


@pytest.mark.filterwarnings("ignore")
def test_wandb_itself_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for _ in range(2):
        track(tmp_path / "run", pytest.fail, wandb="stars")
    names = [path.name for path in (tmp_path / "run/wandb").glob("offline-run-*")]
    stored = json.loads((tmp_path / "run/trackers.json").read_text())
    assert names and all(name.endswith(stored["wandb"]["id"]) for name in names)


@pytest.mark.filterwarnings("ignore")
def test_mlflow_itself_in_a_local_file(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    for _ in range(2):
        track(tmp_path / "run", pytest.fail, mlflow="stars")
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("stars")
    [run] = client.search_runs([experiment.experiment_id])
    assert run.data.params["learning_rate"] == "0.5"
    assert run.data.metrics["best/accuracy"] == 0.75
    assert run.info.status == "FINISHED"
    losses = client.get_metric_history(run.info.run_id, "train/loss")
    assert [(loss.step, loss.value) for loss in losses] == [(10, 2.0)] * 2
