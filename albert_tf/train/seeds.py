"""Trains once, or several times with seeds that differ; keeps the best run."""

import dataclasses
import functools
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import tensorflow as tf

from albert_tf.data.files import atomic
from albert_tf.errors import InputError
from albert_tf.serve import runtimes
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
        InputError: batches do not fit the devices, a runtime is missing, or
            `output_dir` holds several runs, and one is asked for, or the reverse.
    """
    devices = strategy.num_replicas_in_sync
    for part in ("eval", "predict"):
        size = getattr(config, f"{part}_batch_size")
        if getattr(config, f"do_{part}") and size % devices:
            raise InputError(
                f"--{part}_batch_size={size}: expected a multiple of {devices}, the "
                f"number of devices"
            )
    if config.runtime is not None:
        if devices > 1:
            raise InputError(
                f"--runtime={config.runtime}: expected one device, got {devices}"
            )
        # Refuses a package that is missing now, and not after the training.
        runtimes.module_of(config.runtime)
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
    unsaved: Sequence[Callable[[], None]] = (),
    log: IO[str] = sys.stderr,
) -> Outcome:
    """Trains and evaluates, once or with several seeds; leaves `checkpoint` in place.

    Of several runs, `output_dir` gets the best one's weights and what goes with them.
    Nothing is written before the weights are checked.

    Args:
        task: what to do.
        config: how.
        strategy: on which devices, see `loop.prepare`.
        unsaved: what writes converted examples, see `cache.load_or_make`.
        log: where progress goes.

    Returns:
        The outcome of the best run.

    Raises:
        InputError: see `loop.run`.
    """
    config = _with_steps(task, config)
    if config.start:
        config = dataclasses.replace(
            config,
            init_checkpoint=config.start,
            albert_hub_module_handle=None,
        )
    key = task.key_metric
    best: Outcome | None = None
    metrics: list[Mapping[str, float]] = []
    for number in range(config.num_runs):
        one = config
        if config.num_runs > 1:
            folder = f"{config.output_dir}/run-{number + 1}"
            one = dataclasses.replace(
                config, seed=config.seed + number, output_dir=folder
            )
            print(f"Run {number + 1} of {config.num_runs}: {folder}", file=log)
        waiting = () if number else unsaved
        ready = functools.partial(_write_inputs, task, one, strategy, waiting)
        outcome = loop.run(task, one, strategy, log, ready)
        metrics.append(outcome.best or outcome.metrics)
        # The models of other runs are not kept: they would fill a device.
        if best is None or metrics[-1].get(key, 0.0) > max(
            earlier.get(key, 0.0) for earlier in metrics[:-1]
        ):
            best = outcome
        del outcome
    assert best is not None
    if config.num_runs > 1 and key in metrics[-1]:
        summary = summarize(task, metrics)
        print(summary.pop("text"), file=log)
        if is_chief(strategy):
            whole = Path(config.output_dir)
            metadata.copy(whole / f"run-{summary['best']}", whole)
            _write(whole / _RUNS, {**summary, "runs": metrics})
    if config.checkpoint == "best":
        best.use_best()
    if config.runtime is not None:
        best.trainer.predict_in(config.runtime)
    return best


def _write_inputs(task, config, strategy, unsaved) -> None:
    """Writes what the run was given: converted examples and, to train, `task.json`."""
    for save in unsaved:
        save()
    if config.do_train and is_chief(strategy):
        folder = Path(config.output_dir)
        stored = metadata.read_task(folder) or {}
        kept = {key: stored[key] for key in task.kept if key in stored}
        metadata.write_task(folder, task.tokenizer, {**task.description, **kept})


def summarize(
    task: FineTuningTask, metrics: Sequence[Mapping[str, float]]
) -> dict[str, Any]:
    """Compares runs by the key metric; runs that failed are named and counted apart.

    Args:
        task: what was trained.
        metrics: of the best evaluation of each run.

    Returns:
        `best` (number of the run, from 1), `mean` and `spread` (standard deviation) of
        all runs, `mean_of_sound` and `spread_of_sound` of those that did not fail,
        `failed` (their numbers), and all of it as `text`.
    """
    key = task.key_metric
    values = [each[key] for each in metrics]
    failed = [n for n, each in enumerate(metrics, 1) if task.complaint(each)]
    sound = [value for n, value in enumerate(values, 1) if n not in failed]
    lines = [f"{key} of {len(values)} runs:"]
    for number, value in enumerate(values, 1):
        reason = task.complaint(metrics[number - 1])
        lines.append(f"  run {number}  {value:.4f}" + (f"  {reason}" if reason else ""))
    lines.append(f"  mean {_mean(values):.4f}, spread {_spread(values):.4f}")
    if failed and sound:
        lines.append(
            f"  without failed runs: mean {_mean(sound):.4f}, spread "
            f"{_spread(sound):.4f}"
        )
    return {
        "text": "\n".join(lines),
        "best": values.index(max(values)) + 1,
        "mean": _mean(values),
        "spread": _spread(values),
        "mean_of_sound": _mean(sound) if sound else None,
        "spread_of_sound": _spread(sound) if sound else None,
        "failed": failed,
    }


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values)


def _spread(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


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


def _write(path: Path, contents: Mapping[str, Any]) -> None:
    with atomic(str(path)) as file:
        file.write(json.dumps(contents, indent=2).encode() + b"\n")
