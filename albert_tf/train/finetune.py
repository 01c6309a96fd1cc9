"""What the scripts of all fine-tuning tasks share: flags, model, several seeds."""

import dataclasses
import functools
import json
import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import tensorflow as tf

from albert_tf.data.files import atomic
from albert_tf.errors import InputError
from albert_tf.model.config import AlbertConfig
from albert_tf.serve import runtimes, saved_models
from albert_tf.tasks.base import FineTuningTask
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings, ModelSettings
from albert_tf.text.tokenization import Tokenizer
from albert_tf.train import loop
from albert_tf.train.devices import is_chief
from albert_tf.train.loop import Outcome
from albert_tf.weights import metadata
from albert_tf.weights.folder import ModelFolder

# What is known of several runs.
_RUNS = "runs.json"


def pad_multiple(config: FineTuningSettings, strategy: tf.distribute.Strategy) -> int:
    """Returns what `batches.ByLength` pads to a multiple of."""
    if config.pad_to_multiple_of is not None:
        return config.pad_to_multiple_of
    if isinstance(strategy, tf.distribute.TPUStrategy):
        return 0
    # What is compiled is compiled for each length anew: there should be few.
    if tf.config.list_logical_devices("GPU"):
        return 64
    return 8 if config.xla else 1


def model_config(settings: ModelSettings, config: FineTuningSettings) -> AlbertConfig:
    """Returns the configuration: the file's, changed by the flags.

    Raises:
        InputError: there is none, or it is bad.
    """
    changes: dict[str, Any] = {
        "hidden_dropout_prob": settings.albert_dropout_prob,
        "attention_probs_dropout_prob": settings.albert_dropout_prob,
        "classifier_dropout_prob": settings.classifier_dropout_prob,
        "recompute": settings.recompute,
    }
    return dataclasses.replace(
        _opened(settings, config).config,
        **{key: v for key, v in changes.items() if v is not None},
    )


def _opened(settings: ModelSettings, config: FineTuningSettings) -> ModelFolder:
    return ModelFolder(
        config.start,
        output_dir=config.output_dir,
        checkpoint=config.checkpoint,
        files=settings,
    )


def folders_of_head(config: FineTuningSettings) -> list[Path]:
    """Lists the folders whose head is going to be used, if they have one."""
    opened = ModelFolder(config.start, output_dir=config.output_dir)
    return opened.folders[: 1 if config.do_train else None]


def known_task(config: FineTuningSettings) -> dict[str, Any]:
    """Returns what `task.json` says of the model whose head is going to be used.

    Returns:
        Its contents and, as "folder", where it is; empty if there is none.
    """
    for folder in folders_of_head(config):
        found = metadata.read_task(folder)
        if found is not None:
            metadata.check_complete(folder, found)
            return {**found, "folder": str(folder)}
    return {}


def check_head(
    config: FineTuningSettings,
    description: Mapping[str, Any],
    keys: Sequence[str],
    own_keys: Sequence[str] = (),
) -> None:
    """Refuses a folder whose model answers another question.

    Args:
        config: whose `output_dir` it is, or also the folder of the weights where these
            are not trained.
        description: what `task.json` would note.
        keys: what has to be alike for a head to be used.
        own_keys: what has to be alike in `output_dir` beside them.

    Raises:
        InputError: something differs.
    """
    own = [Path(config.output_dir), *Path(config.output_dir).glob("run-*")]
    for folder in dict.fromkeys((*own, *folders_of_head(config))):
        noted = metadata.read_task(folder)
        for key in (*own_keys, *keys) if folder in own else keys:
            wanted = json.loads(json.dumps(description[key]))
            if noted is not None and noted.get(key) != wanted:
                hint = "they must agree"
                if folder in own:
                    hint = "expected another --output_dir"
                raise InputError(
                    f"{folder}: a model with {key} {noted.get(key)!r}, but this task "
                    f"has {wanted!r}; {hint}"
                )


def prepare(
    config: FineTuningSettings, settings: ModelSettings
) -> tuple[AlbertConfig, Tokenizer]:
    """Returns the model's configuration and its tokenizer, which fit each other.

    Raises:
        InputError: one of them is missing or bad, or they do not fit.
    """
    return model_config(settings, config), _opened(settings, config).tokenizer


def check_export(
    export_dir: str | None, output_dir: str, strategy: tf.distribute.Strategy
) -> None:
    """Refuses a folder at the start that a model could not be exported to at the end.

    Args:
        export_dir: where a SavedModel is going to be written, if any is.
        output_dir: of the run, which fills it, `run-1` and so on, and `summaries`.
        strategy: whose first worker exports.

    Raises:
        InputError: it cannot be written, or holds something else, or is going to.
    """
    if not export_dir or not is_chief(strategy):
        return
    run, export = Path(output_dir).resolve(), Path(export_dir).resolve()
    inside = export.relative_to(run).parts if export.is_relative_to(run) else ()
    if export in (run, *run.parents) or (
        inside and re.fullmatch(r"run-\d+|summaries", inside[0])
    ):
        raise InputError(
            f"--export_dir={export_dir}: the run writes its own files there "
            f"(--output_dir={output_dir}); expected a folder of its own"
        )
    try:
        saved_models.check_writable(export_dir)
    except InputError as mistake:
        raise InputError(f"--export_dir={mistake}") from None


def run(
    task: FineTuningTask,
    config: FineTuningSettings,
    strategy: tf.distribute.Strategy,
    *,
    examples: int | None = None,
    unsaved: Sequence[Callable[[], None]] = (),
    log: IO[str] = sys.stderr,
) -> Outcome:
    """Trains and evaluates, once or with several seeds; leaves `checkpoint` in place.

    Of several runs, `output_dir` gets the best one's weights and what goes with them.
    Nothing is written before the weights are known to fit.

    Args:
        task: what to do.
        config: how.
        strategy: on which devices, see `loop.prepare`.
        examples: in an epoch; by default those of `task.training`.
        unsaved: what writes converted examples, see `cache.load_or_make`.
        log: where progress goes.

    Returns:
        The outcome of the best run.

    Raises:
        InputError: see `loop.run`; or `output_dir` holds several runs, and one is
            asked for.
    """
    _check(config, strategy)
    config = _with_steps(task, config, examples)
    if config.start:
        config = dataclasses.replace(
            config,
            init_checkpoint=config.start,
            albert_hub_module_handle=None,
        )
    key = task.key_metric
    best: Outcome | None = None
    figures: list[Mapping[str, float]] = []
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
        figures.append(outcome.best or outcome.figures)
        # The models of other runs are not kept: they would fill a device.
        if best is None or figures[-1].get(key, 0.0) > max(
            found.get(key, 0.0) for found in figures[:-1]
        ):
            best = outcome
        del outcome
    assert best is not None
    if config.num_runs > 1 and key in figures[-1]:
        summary = summarize(task, figures)
        print(summary.pop("text"), file=log)
        if is_chief(strategy):
            whole = Path(config.output_dir)
            metadata.copy(whole / f"run-{summary['best']}", whole)
            _write(whole / _RUNS, {**summary, "runs": figures})
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
        noted = metadata.read_task(folder) or {}
        kept = {key: noted[key] for key in task.kept if key in noted}
        metadata.write_task(folder, task.tokenizer, {**task.description, **kept})


def _check(config: FineTuningSettings, strategy: tf.distribute.Strategy) -> None:
    devices = strategy.num_replicas_in_sync
    if config.do_predict and config.predict_batch_size % devices:
        raise InputError(
            f"--predict_batch_size={config.predict_batch_size}: expected a multiple of "
            f"{devices}, the number of devices"
        )
    if config.runtime is not None:
        if devices > 1:
            raise InputError(
                f"--runtime={config.runtime}: expected one device, got {devices}"
            )
        # Now, and not after the training, it is said that a package is missing.
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


def summarize(
    task: FineTuningTask, figures: Sequence[Mapping[str, float]]
) -> dict[str, Any]:
    """Compares runs by the key metric; runs that failed are named and counted apart.

    Args:
        task: what was trained.
        figures: of the best evaluation of each run.

    Returns:
        `best` (number of the run, from 1), `mean` and `spread` (standard deviation) of
        all runs, `mean_of_sound` and `spread_of_sound` of those that did not fail,
        `failed` (their numbers), and all of it as `text`.
    """
    key = task.key_metric
    values = [found[key] for found in figures]
    failed = [n for n, found in enumerate(figures, 1) if task.complaint(found)]
    sound = [value for n, value in enumerate(values, 1) if n not in failed]
    lines = [f"{key} of {len(values)} runs:"]
    for number, value in enumerate(values, 1):
        reason = task.complaint(figures[number - 1])
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


def _with_steps(
    task: FineTuningTask, config: FineTuningSettings, examples: int | None
) -> FineTuningSettings:
    """Turns epochs and shares into steps; without any there are the released ones."""
    steps, warmup = config.num_train_steps, config.num_warmup_steps
    steps = config.released_steps if steps is None else steps
    warmup = config.released_warmup if warmup is None else warmup
    if config.num_train_epochs is not None and task.training is not None:
        count = len(task.training) if examples is None else examples
        steps = max(1, int(count / config.train_batch_size * config.num_train_epochs))
    if config.warmup_proportion is not None:
        warmup = int(steps * config.warmup_proportion)
    return dataclasses.replace(
        config,
        num_train_steps=steps,
        num_warmup_steps=warmup,
        num_train_epochs=None,
        warmup_proportion=None,
    )


def _write(path: Path, contents: Mapping[str, Any]) -> None:
    with atomic(str(path)) as file:
        file.write(json.dumps(contents, indent=2).encode() + b"\n")
