"""Trains once or with several seeds, and keeps the best run."""

import dataclasses
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import tensorflow as tf

from albert_tf.errors import InputError
from albert_tf.tasks import base
from albert_tf.tasks.base import FineTuningTask
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings
from albert_tf.train import devices, loop
from albert_tf.train.devices import is_chief
from albert_tf.train.loop import Outcome
from albert_tf.train.run_file import RunFile
from albert_tf.weights import metadata

# The file with the metrics of several runs.
_RUNS = "runs.json"


def check(config: FineTuningSettings, strategy: tf.distribute.Strategy) -> None:
    """Checks settings of `run` before data is read.

    Raises:
        InputError: the devices do not divide a batch, or `output_dir` has a single run
            and --num_runs is above 1, or the reverse.
    """
    replicas, size = strategy.num_replicas_in_sync, config.predict_batch_size
    if config.do_predict and size % replicas:
        raise InputError(
            f"--predict_batch_size={size}: must be a multiple of {replicas}, the "
            f"number of devices"
        )
    folder = Path(config.output_dir)
    holds_several = (folder / _RUNS).exists()
    holds_one = not holds_several and any(folder.glob("model.ckpt-*.index"))
    if config.num_runs > 1 and holds_one:
        raise InputError(
            f"--output_dir={config.output_dir}: has a single run; use another "
            f"folder for --num_runs={config.num_runs}"
        )
    if config.do_train and config.num_runs == 1 and holds_several:
        raise InputError(
            f"--output_dir={config.output_dir}: has several runs; pass "
            f"--num_runs or use another folder"
        )


def run(
    task: FineTuningTask,
    config: FineTuningSettings,
    strategy: tf.distribute.Strategy,
    log: IO[str] = sys.stderr,
    run_file: RunFile | None = None,
) -> Outcome:
    """Trains and evaluates once or with several seeds, then restores the best weights.

    With --checkpoint=newest, the best run's model keeps its last weights instead. If
    there are several runs, each has a folder in `output_dir`. The best checkpoint with
    its metadata is copied to `output_dir`.

    Args:
        task: the task to train.
        config: the run's settings.
        strategy: the devices, see `loop.prepare`.
        log: receives the lines of progress.
        run_file: see `loop.run`.

    Returns:
        The outcome of the best run.

    Raises:
        InputError: see `loop.run`.
    """
    config = convert_epochs(task, config)
    key, best_score, all_metrics = task.key_metric, 0.0, list[Mapping[str, float]]()
    for number in range(1, config.num_runs + 1):
        settings = config
        if config.num_runs > 1:
            folder = f"{config.output_dir}/run-{number}"
            seed = config.seed + number - 1
            settings = dataclasses.replace(config, seed=seed, output_dir=folder)
            print(f"Run {number} of {config.num_runs}: {folder}", file=log)
        outcome = loop.run(task, settings, strategy, log, run_file)
        all_metrics.append(outcome.best or outcome.metrics)
        score = all_metrics[-1].get(key, 0.0)
        if number == 1 or score > best_score:
            best, best_score = outcome, score
        del outcome  # only the best run's model stays in memory
    # Without an evaluation, the metrics lack the key metric.
    if config.num_runs > 1 and key in all_metrics[-1]:
        summary = _summarize(key, all_metrics, log)
        if is_chief(strategy):
            root = Path(config.output_dir)
            metadata.copy(root / f"run-{summary['best']}", root)
            base.write(root / _RUNS, f"{json.dumps(summary, indent=2)}\n")
    if config.checkpoint == "best":
        devices.barrier(strategy)
        best.checkpoints.restore_best()
    return best


def _summarize(
    key: str, all_metrics: Sequence[Mapping[str, float]], log: IO[str]
) -> dict[str, Any]:
    """Logs the key metric of all runs, and returns the content of `runs.json`.

    `best` is the number of the best run, from 1; `spread` is the standard deviation.
    """
    values = [metrics[key] for metrics in all_metrics]
    mean, spread = statistics.fmean(values), statistics.stdev(values)
    print(f"{key} of {len(values)} runs:", file=log)
    for number, value in enumerate(values, 1):
        print(f"  run {number}  {value:.4f}", file=log)
    print(f"  mean {mean:.4f}, spread {spread:.4f}", file=log)
    best = values.index(max(values)) + 1
    return {"best": best, "mean": mean, "spread": spread, "runs": all_metrics}


def convert_epochs(
    task: FineTuningTask, config: FineTuningSettings
) -> FineTuningSettings:
    """Returns the settings with epochs and warmup proportion converted to steps.

    Flags that are not given get the defaults of the released code.
    """
    steps, warmup = config.num_train_steps, config.num_warmup_steps
    epochs, proportion = config.num_train_epochs, config.warmup_proportion
    if steps is None:
        steps, epochs = config.released_steps, epochs or config.released_epochs
    if warmup is None and proportion is None:
        warmup = config.released_warmup
        proportion = config.released_warmup_proportion
    eval_steps, eval_epochs = config.eval_every_steps, config.eval_every_epochs
    if task.training is not None:
        steps_per_epoch = len(task.training) / config.train_batch_size
        if epochs is not None:
            steps = max(1, int(steps_per_epoch * epochs))
        if eval_epochs is not None:
            eval_steps = max(1, int(steps_per_epoch * eval_epochs))
    if proportion is not None:
        warmup = int(steps * proportion)
    return dataclasses.replace(
        config,
        num_train_steps=steps,
        num_warmup_steps=warmup,
        eval_every_steps=eval_steps,
        num_train_epochs=None,
        warmup_proportion=None,
        eval_every_epochs=None,
    )
