"""Weights & Biases and MLflow: a run's settings and metrics, beside its own files.

Metrics are named by kind: `train/loss`, `eval/eval_accuracy`, and those of the best
checkpoint `best/eval_accuracy`. `trackers.json` in the run's folder holds the ids of
its runs there, which a run that resumes continues.
"""

import abc
import contextlib
import importlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from albert_tf import errors
from albert_tf.data.files import atomic
from albert_tf.errors import InputError
from albert_tf.tasks.settings.training import TrainingSettings

NAME = "trackers.json"
# What MLflow takes at once, and the characters of a setting.
_PARAMETERS, _LONGEST = 100, 500


class Tracker(abc.ABC):
    """One service; raises what its library raises.

    Args:
        library: the module.
        project: the name under which runs are kept.
    """

    def __init__(self, library: Any, project: str):
        self._library = library
        self._project = project

    @abc.abstractmethod
    def start(self, folder: Path, settings: Mapping[str, Any], id: str | None) -> str:
        """Starts a run, or continues one; returns its id.

        Args:
            folder: of the run; its name is that of the run.
            settings: all of the run.
            id: of the run to continue, None for a new one.
        """

    @abc.abstractmethod
    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Logs metrics, by their names with the kind in front."""

    @abc.abstractmethod
    def end(self, best: Mapping[str, float], is_complete: bool) -> None:
        """Ends the run.

        Args:
            best: metrics of the best checkpoint.
            is_complete: whether it came to its end, and does not stop half way.
        """


class WandB(Tracker):
    """Weights & Biases; WANDB_MODE=offline keeps all of it in the run's folder."""

    def start(self, folder, settings, id):
        self._run = self._library.init(
            project=self._project,
            id=id,
            resume="allow" if id else None,
            name=folder.name,
            dir=os.environ.get("WANDB_DIR") or str(folder),
            config=dict(settings),
            # Of a run that resumes, some settings may be others.
            allow_val_change=True,
        )
        # Its own steps never go back, as those of a run that was killed do.
        for kind in ("train", "eval"):
            self._run.define_metric(f"{kind}/*", step_metric="step")
        return self._run.id

    def log(self, step, metrics):
        self._run.log({"step": step, **metrics})

    def end(self, best, is_complete):
        self._run.summary.update(dict(best))
        self._run.finish(exit_code=0 if is_complete else 1)


class MLflow(Tracker):
    """MLflow, where MLFLOW_TRACKING_URI says; an experiment that is new is made."""

    def start(self, folder, settings, id):
        self._client = client = self._library.MlflowClient()
        self._step = 0
        if id:
            self._id = client.get_run(id).info.run_id
            client.update_run(id, status="RUNNING")
            return id
        known = client.get_experiment_by_name(self._project)
        experiment = (
            known.experiment_id if known else client.create_experiment(self._project)
        )
        self._id = client.create_run(experiment, run_name=folder.name).info.run_id
        parameters = [
            self._library.entities.Param(name, str(value)[:_LONGEST])
            for name, value in settings.items()
        ]
        for first in range(0, len(parameters), _PARAMETERS):
            some = parameters[first : first + _PARAMETERS]
            client.log_batch(self._id, params=some)
        return self._id

    def log(self, step, metrics):
        self._step = step
        now = int(1000 * time.time())
        finite = {k: v for k, v in metrics.items() if math.isfinite(v)}
        entries = [
            self._library.entities.Metric(name, value, now, step)
            for name, value in finite.items()
        ]
        self._client.log_batch(self._id, metrics=entries)

    def end(self, best, is_complete):
        if best:
            self.log(int(best.get("best/step", self._step)), best)
        status = "FINISHED" if is_complete else "KILLED"
        self._client.set_terminated(self._id, status)


KINDS: Mapping[str, type[Tracker]] = {"wandb": WandB, "mlflow": MLflow}


def check(config: TrainingSettings) -> None:
    """Refuses a service whose library is missing.

    Raises:
        InputError: it is.
    """
    for name in KINDS:
        if project := getattr(config, name):
            try:
                importlib.import_module(name)
            except ImportError:
                raise InputError(
                    f"--{name}={project}: {name} is not installed; expected `pip "
                    f"install 'albert_tf[{name}]'`"
                ) from None


class Trackers:
    """Every service that a run logs to; one that fails is warned of and left.

    Args:
        config: of the run.
        folder: of the run.
        log: logs a line.
    """

    def __init__(
        self, config: TrainingSettings, folder: Path, log: Callable[[str], None]
    ):
        self._folder = folder
        self._log = log
        self._used = {
            name: kind(importlib.import_module(name), getattr(config, name))
            for name, kind in KINDS.items()
            if getattr(config, name)
        }
        self._projects = {name: getattr(config, name) for name in self._used}

    def start(self, settings: Mapping[str, Any]) -> None:
        """Starts a run of each service, or continues the one it had.

        Args:
            settings: of the run, as JSON has them.
        """
        path = self._folder / NAME
        try:
            stored = json.loads(path.read_text())
        except (OSError, ValueError):
            stored = {}

        def begin(name: str, tracker: Tracker) -> None:
            project = self._projects[name]
            noted = stored.get(name) or {}
            id = noted.get("id") if noted.get("project") == project else None
            try:
                id = tracker.start(self._folder, settings, id)
            except Exception:
                with contextlib.suppress(Exception):  # it may not have begun
                    tracker.end({}, False)
                raise
            stored[name] = {"project": project, "id": id}

        self._each(begin)
        if self._used:
            with atomic(str(path)) as file:
                file.write(json.dumps(stored, indent=2).encode() + b"\n")

    def log(self, kind: str, step: int, metrics: Mapping[str, float]) -> None:
        """Logs metrics of a kind."""
        values = _named(kind, metrics)
        self._each(lambda name, tracker: tracker.log(step, values))

    def end(self, best: Mapping[str, float], is_complete: bool) -> None:
        """Ends the run of each service, see `Tracker.end`; a second call does nothing.

        Args:
            best: step and metrics of the best checkpoint; empty if there is none.
            is_complete: see `Tracker.end`.
        """
        values = _named("best", best)
        self._each(lambda name, tracker: tracker.end(values, is_complete))
        self._used.clear()

    def _each(self, do: Callable[[str, Tracker], None]) -> None:
        for name, tracker in list(self._used.items()):
            try:
                do(name, tracker)
            # Whatever a service or its library raises: training goes on.
            except Exception as error:
                del self._used[name]
                self._log(
                    f"Warning: --{name}={self._projects[name]}: "
                    f"{errors.reason(error)}; the run goes on without it"
                )


def _named(kind: str, metrics: Mapping[str, Any]) -> dict[str, float]:
    numbers = {k: v for k, v in metrics.items() if isinstance(v, int | float)}
    return {f"{kind}/{name}": value for name, value in numbers.items()}
