"""Logs the settings and metrics of a run to Weights & Biases and MLflow."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from albert_tf import errors
from albert_tf.tasks.settings.training import TrainingSettings


def check(config: TrainingSettings) -> None:
    """Checks that the libraries of the requested services are installed.

    Raises:
        InputError: a library is missing.
    """
    for name in ("wandb", "mlflow"):
        if project := getattr(config, name):
            errors.check_installed(f"--{name}={project}", name, extra=name)


class Trackers:
    """Logs to the services that the settings name; turns failures into warnings.

    Weights & Biases reads the metrics from TensorBoard's summaries. In MLflow, names of
    metrics begin with their kind: `train/loss`, `eval/eval_accuracy`,
    `best/eval_accuracy`.

    Args:
        config: the run's settings object, which names the services.
        folder: the run's folder; its name becomes the run's name.
        settings: {flag: value} for all flags of the run, to log.
        log: receives each warning.
    """

    def __init__(
        self,
        config: TrainingSettings,
        folder: Path,
        settings: Mapping[str, Any],
        log: Callable[[str], None],
    ):
        self._log = log
        # The run of Weights & Biases, and the module of MLflow. None means that the
        # settings do not name the service, or that it has failed.
        self._wandb: Any = None
        self._mlflow: Any = None
        if config.wandb:
            with errors.log_failure("run of Weights & Biases", log):
                import wandb

                self._wandb = wandb.init(
                    project=config.wandb,
                    name=folder.name,
                    dir=str(folder),
                    config=dict(settings),
                    sync_tensorboard=True,
                )
        if config.mlflow:
            with errors.log_failure("run of MLflow", log):
                import mlflow

                mlflow.set_experiment(config.mlflow)
                mlflow.start_run(run_name=folder.name)
                self._mlflow = mlflow
                mlflow.log_params(settings)

    def log(self, kind: str, step: int, metrics: Mapping[str, float]) -> None:
        """Logs finite metrics to MLflow; `kind` becomes the prefix of their names."""
        finite = {f"{kind}/{k}": v for k, v in metrics.items() if math.isfinite(v)}
        if self._mlflow and finite:
            with errors.log_failure("metrics in MLflow", self._log):
                self._mlflow.log_metrics(finite, step=step)

    def end(self, best: Mapping[str, float], is_complete: bool = True) -> None:
        """Ends the runs in the services; a second call does nothing.

        Args:
            best: step and metrics of the best checkpoint; empty if there is none.
            is_complete: True if training reached its last step or ended by early
                stopping; False if it was interrupted or failed.
        """
        if best:
            self.log("best", int(best["step"]), best)
        if self._wandb:
            with errors.log_failure("end of the run of Weights & Biases", self._log):
                self._wandb.summary.update({f"best/{k}": v for k, v in best.items()})
                self._wandb.finish(exit_code=0 if is_complete else 1)
        if self._mlflow:
            with errors.log_failure("end of the run of MLflow", self._log):
                self._mlflow.end_run("FINISHED" if is_complete else "KILLED")
        self._wandb = self._mlflow = None
