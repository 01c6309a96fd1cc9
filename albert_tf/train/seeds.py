"""Trains once, or several times with seeds that differ; keeps the best run."""

import dataclasses
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import tensorflow as tf

from albert_tf.data.files import atomic
from albert_tf.errors import InputError
from albert_tf.tasks.base import FineTuningTask
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings
from albert_tf.train import loop
from albert_tf.train.devices import is_chief
from albert_tf.train.loop import Outcome
from albert_tf.weights import metadata

# The metrics of several runs.
_RUNS = "runs.json"


def check(config: FineTuningSettings, strategy: tf.distribute.Strategy) -> None:
    """Refuses, before anything is read, what `run` could not do.

    Raises:
        InputError: batches do not fit the devices, or `output_dir` holds several runs,
            and one is asked for, or the reverse.
    """
    devices, size = strategy.num_replicas_in_sync, config.predict_batch_size
    if config.do_predict and size % devices:
        raise InputError(
            f"--predict_batch_size={size}: expected a multiple of {devices}, the "
            f"number of devices"
        )
    folder = Path(config.output_dir)
    holds_several = (folder / _RUNS).exists()
    holds_one = not holds_several and any(folder.glob("model.ckpt-*.index"))
    if config.num_runs > 1 and holds_one:
        raise InputError(
            f"--output_dir={config.output_dir}: holds a single run; expected another "
            f"folder for --num_runs={config.num_runs}"
        )
    if config.do_train and config.num_runs == 1 and holds_several:
        raise InputError(
            f"--output_dir={config.output_dir}: holds several runs; expected "
            f"--num_runs, or another folder"
        )


def run(
    task: FineTuningTask,
    config: FineTuningSettings,
    strategy: tf.distribute.Strategy,
    ready: Callable[[], None] = lambda: None,
    log: IO[str] = sys.stderr,
) -> Outcome:
    """Trains and evaluates, once or with several seeds; leaves `checkpoint` in place.

    Of several runs, `output_dir` gets the best one's weights and what goes with them.

    Args:
        task: what to do.
        config: how.
        strategy: on which devices, see `loop.prepare`.
        ready: called once the weights are checked.
        log: where progress goes.

    Returns:
        The outcome of the best run.

    Raises:
        InputError: see `loop.run`.
    """
    config = _with_steps(task, config)
    if config.start:
        config = dataclasses.replace(
            config, init_checkpoint=config.start, albert_hub_module_handle=None
        )
    key, metrics = task.key_metric, list[Mapping[str, float]]()
    for number in range(1, config.num_runs + 1):
        one = config
        if config.num_runs > 1:
            folder = f"{config.output_dir}/run-{number}"
            seed = config.seed + number - 1
            one = dataclasses.replace(config, seed=seed, output_dir=folder)
            print(f"Run {number} of {config.num_runs}: {folder}", file=log)

        def write(one=one) -> None:
            ready()
            if one.do_train and is_chief(strategy):
                _write_task(task, Path(one.output_dir))

        outcome = loop.run(task, one, strategy, log, write)
        metrics.append(outcome.best or outcome.metrics)
        # The models of other runs are not kept: they would fill a device.
        if number == 1 or metrics[-1].get(key, 0.0) > max(
            earlier.get(key, 0.0) for earlier in metrics[:-1]
        ):
            best = outcome
        del outcome
    if config.num_runs > 1 and key in metrics[-1]:
        summary = summarize(task, metrics)
        print(summary.pop("text"), file=log)
        if is_chief(strategy):
            whole = Path(config.output_dir)
            metadata.copy(whole / f"run-{summary['best']}", whole)
            with atomic(str(whole / _RUNS)) as file:
                text = json.dumps({**summary, "runs": metrics}, indent=2)
                file.write(f"{text}\n".encode())
    if config.checkpoint == "best":
        best.use_best()
    return best


def _write_task(task: FineTuningTask, folder: Path) -> None:
    stored = metadata.read_task(folder) or {}
    kept = {key: stored[key] for key in task.kept if key in stored}
    metadata.write_task(folder, task.tokenizer, {**task.description, **kept})


def summarize(
    task: FineTuningTask, metrics: Sequence[Mapping[str, float]]
) -> dict[str, Any]:
    """Compares runs by the key metric.

    Args:
        task: what was trained.
        metrics: of the best evaluation of each run.

    Returns:
        `best` (number of the run, from 1), `mean` and `spread` (standard deviation),
        and all of it as `text`.
    """
    key = task.key_metric
    values = [each[key] for each in metrics]
    mean = statistics.fmean(values)
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    lines = [f"{key} of {len(values)} runs:"]
    lines += [f"  run {number}  {v:.4f}" for number, v in enumerate(values, 1)]
    lines.append(f"  mean {mean:.4f}, spread {spread:.4f}")
    best = values.index(max(values)) + 1
    return {"best": best, "mean": mean, "spread": spread, "text": "\n".join(lines)}


def _with_steps(task: FineTuningTask, config: FineTuningSettings) -> FineTuningSettings:
    """Turns epochs and shares into steps; without any there are the released ones."""
    steps, warmup = config.num_train_steps, config.num_warmup_steps
    epochs, proportion = config.num_train_epochs, config.warmup_proportion
    if steps is None and epochs is None:
        epochs = config.released_epochs
    if warmup is None and proportion is None:
        proportion = config.released_warmup_proportion
    steps = config.released_steps if steps is None else steps
    warmup = config.released_warmup if warmup is None else warmup
    between = config.eval_every_steps
    if task.training is not None:
        an_epoch = len(task.training) / config.train_batch_size
        if epochs is not None:
            steps = max(1, int(an_epoch * epochs))
        if config.eval_every_epochs is not None:
            between = max(1, int(an_epoch * config.eval_every_epochs))
    if proportion is not None:
        warmup = int(steps * proportion)
    return dataclasses.replace(
        config,
        num_train_steps=steps,
        num_warmup_steps=warmup,
        num_train_epochs=None,
        warmup_proportion=None,
        eval_every_steps=between,
        eval_every_epochs=None,
    )
