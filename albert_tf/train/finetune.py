"""Fine-tunes: the one driver of all families of tasks.

    finetune.run(Classification, settings, run_settings, ModelSettings(), devices)

reads the data, trains (`seeds.run`), evaluates, predicts, and exports, see
`FineTuningTask`.
"""

import dataclasses
import functools
import itertools
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import keras
import tensorflow as tf

from albert_tf import weights
from albert_tf.data import cache
from albert_tf.errors import InputError
from albert_tf.model.config import AlbertConfig
from albert_tf.serve import runtimes, saved_models
from albert_tf.tasks.base import FineTuningTask, FinishedRun, Split, Splits
from albert_tf.tasks.settings.base import TaskSettings
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings, ModelSettings
from albert_tf.train import loop, report, seeds
from albert_tf.train.checkpoints import steps_made
from albert_tf.train.devices import DistributionSettings, is_chief, pad_multiple
from albert_tf.train.loop import Outcome
from albert_tf.train.run_file import RunFile
from albert_tf.weights import metadata
from albert_tf.weights.folder import ModelFolder

# The key of `task.json` that names the weights of a run without training.
_START = "init_checkpoint"


def run(
    family: type[FineTuningTask],
    settings: Any,
    config: FineTuningSettings,
    model: ModelSettings,
    devices: DistributionSettings,
    log: IO[str] = sys.stderr,
) -> Outcome:
    """Trains, evaluates, predicts and exports, as far as it is asked for.

    The one driver of all families of tasks, see `FineTuningTask`.

    Args:
        family: what to fine-tune for.
        settings: of the family.
        config: what to do, and how.
        model: with which model.
        devices: on which devices.
        log: where progress goes.

    Returns:
        The outcome of the best run.

    Raises:
        InputError: see the flags; files are broken, or do not fit the model.
        Stopped: see `loop.run`.
    """
    strategy = loop.prepare(config, devices)
    settings.check(config, strategy.num_replicas_in_sync)
    seeds.check(config, strategy)
    writes = is_chief(strategy)

    def log_line(line: str) -> None:
        if writes:
            print(line, file=log, flush=True)

    run_file = RunFile(Path(config.output_dir), (settings, config, model, devices))
    with loop.locked(config, strategy):
        _check_export(config.export_dir, config.output_dir, strategy)
        _check_start(config)
        if config.do_train:
            run_file.check(log_line)
        task, splits = _prepare(family, settings, config, model, strategy, log_line)

        def ready() -> None:
            if config.do_train and writes:
                run_file.write(task)

        outcome = seeds.run(task, config, strategy, ready, log)
        best = outcome.best
        if best:
            key = task.key_metric
            log_line(f"Best checkpoint: step {best['step']:,}, {key} {best[key]:.4f}")
        results = dict(outcome.metrics)
        add_results = functools.partial(_add_results, outcome, config, results)
        predict = outcome.trainer.predict
        finished = FinishedRun(config, best, writes, log_line, predict, add_results)
        task.finish(finished, splits)
        if config.start and not config.do_train and writes:
            _keep_model(task, config, outcome.trainer.model, log_line)
        if config.export_dir and writes:
            _export(task, config, outcome.trainer.model, log_line)
    if config.do_train:
        run_file.ended(log_line)
    return dataclasses.replace(outcome, metrics=results)


def _add_results(
    outcome: Outcome,
    config: FineTuningSettings,
    results: dict[str, float],
    metrics: Mapping[str, float],
) -> None:
    results |= metrics
    if outcome.writes:
        step = outcome.best.get("step") or steps_made(outcome.trainer.optimizer)
        numbered = {**metrics, "global_step": int(step)}
        report.add_results(Path(config.output_dir), numbered)


def _prepare(
    family: type[FineTuningTask],
    settings: Any,
    config: FineTuningSettings,
    model: ModelSettings,
    strategy: tf.distribute.Strategy,
    log_line: Callable[[str], None],
) -> tuple[FineTuningTask, Splits]:
    """Reads and encodes the data; returns the task and its splits."""
    folder = _stored_settings(family, config)
    settings, splits = family.read(settings, folder, config, log_line)
    opened = _opened(config, model)
    settings = settings.completed(folder, opened.config.max_position_embeddings)
    task = family(
        settings,
        _with_changes(opened.config, model),
        opened.tokenizer,
        _pad_multiple(config, strategy),
    )
    keys = ("kind", *family.head_keys)
    _check_head(config, task.description, keys, family.folder_keys)
    encoded: dict[int, Split] = {}
    for split in itertools.chain.from_iterable(splits.values()):
        if id(split) not in encoded:
            encoded[id(split)] = _encoded(task, split, config, log_line)
    splits = {use: [encoded[id(s)] for s in parts] for use, parts in splits.items()}
    task.use(splits)
    return task, splits


def _encoded(
    task: FineTuningTask,
    split: Split,
    config: FineTuningSettings,
    log_line: Callable[[str], None],
) -> Split:
    """Encodes a split, or takes what an earlier run has kept of it."""
    path = config.cache / task.cache_file(split)
    arrays, is_kept = cache.load_or_make(
        path, task.made_from(split), lambda: dict(task.encode(split))
    )
    if is_kept:
        log_line(f"{split.name}: using cached features of {path}")
    split = task.encoded(split, arrays)
    for line in task.summary(split):
        log_line(line)
    return split


def _opened(config: FineTuningSettings, model: ModelSettings) -> ModelFolder:
    return ModelFolder(
        config.start,
        output_dir=config.output_dir,
        checkpoint=config.checkpoint,
        files=model,
    )


def _with_changes(config: AlbertConfig, settings: ModelSettings) -> AlbertConfig:
    """Returns the model's configuration, changed by the flags."""
    changes: dict[str, Any] = {
        "hidden_dropout_prob": settings.albert_dropout_prob,
        "attention_probs_dropout_prob": settings.albert_dropout_prob,
        "classifier_dropout_prob": settings.classifier_dropout_prob,
        "recompute": settings.recompute,
    }
    return dataclasses.replace(
        config, **{key: v for key, v in changes.items() if v is not None}
    )


def _keep_model(
    task: FineTuningTask,
    config: FineTuningSettings,
    model: keras.Model,
    log_line: Callable[[str], None],
) -> None:
    """Leaves another program's model beside what it has predicted."""
    folder = Path(config.output_dir)
    start = ModelFolder(config.start, output_dir=folder).folders[-1]
    is_ours = metadata.is_written(metadata.find_task(start))
    is_left = config.do_predict or config.export_dir
    if is_left and not is_ours and not any(folder.glob("*.index")):
        weights.save(model, folder, "tf1")
        noted = {**task.description, _START: config.start}
        metadata.write_task(folder, task.tokenizer, noted)
        log_line(f"Written: {folder}, the model, from which predict.py answers")


def _check_start(config: FineTuningSettings) -> None:
    """Refuses a folder that has the model of another start."""
    noted = (metadata.read_task(Path(config.output_dir)) or {}).get(_START)
    if config.start and noted not in (None, config.start):
        raise InputError(
            f"--output_dir={config.output_dir}: holds the model of {noted}, and not "
            f"that of {config.start}; expected another folder"
        )


def _export(
    task: FineTuningTask,
    config: FineTuningSettings,
    model: keras.Model,
    log_line: Callable[[str], None],
) -> None:
    """Writes a SavedModel that takes raw text, and models of other runtimes."""
    folder = Path(config.export_dir or "")
    saved_models.export(task.serving_fn(model, task.export_options(config)), folder)
    log_line(f"Written: {folder}, a SavedModel that takes raw text")
    for runtime in task.runtimes:
        path = folder / f"albert_model{runtimes.SUFFIXES[runtime]}"
        runtimes.save(model, path, runtime)
        log_line(f"Written: {path}, which takes ids")


def _pad_multiple(config: FineTuningSettings, strategy: tf.distribute.Strategy) -> int:
    """Returns what `batches.ByLength` pads to a multiple of."""
    if config.pad_to_multiple_of is not None:
        return config.pad_to_multiple_of
    return pad_multiple(strategy, config.xla)


def _check_head(
    config: FineTuningSettings,
    description: Mapping[str, Any],
    keys: Sequence[str],
    own_keys: Sequence[str] = (),
) -> None:
    """Refuses a folder whose model answers another question.

    Args:
        config: whose `output_dir` it is, or also the folder of the weights where these
            are not trained.
        description: what `task.json` would store.
        keys: what has to be alike for a head to be used.
        own_keys: what has to be alike in `output_dir` beside them.

    Raises:
        InputError: something differs.
    """
    own = [Path(config.output_dir), *Path(config.output_dir).glob("run-*")]
    # Labels of other folders are matched by name when the head is loaded.
    others = [key for key in keys if key != "labels"]
    for folder in dict.fromkeys((*own, *_folders_of_head(config))):
        stored = metadata.read_task(folder)
        for key in (*own_keys, *keys) if folder in own else others:
            expected = json.loads(json.dumps(description[key]))
            if stored is not None and stored.get(key) != expected:
                hint = "they must agree"
                if folder in own:
                    hint = "expected another --output_dir"
                raise InputError(
                    f"{folder}: a model with {key} {stored.get(key)!r}, but this task "
                    f"has {expected!r}; {hint}"
                )


def _folders_of_head(config: FineTuningSettings) -> list[Path]:
    """Lists the folders whose head is going to be used, if they have one."""
    folders = ModelFolder(config.start, output_dir=config.output_dir).folders
    return folders[: 1 if config.do_train else None]


def _stored_settings(
    family: type[FineTuningTask], config: FineTuningSettings
) -> TaskSettings | None:
    """Returns what is stored of the model whose head is going to be used.

    A model of Hugging Face that is trained on gives the labels or the kind of head.
    """
    own, *start = ModelFolder(config.start, output_dir=config.output_dir).folders
    for folder in (own, *start):
        stored = metadata.find_task(folder)
        is_start = config.do_train and folder in start and metadata.is_written(stored)
        if stored and stored.get("kind") not in family.kinds:
            _check_head(config, {"kind": family.kinds[0]}, ("kind",))
        elif stored and not is_start:
            return family.settings_class.from_stored(stored, folder / metadata.TASK)
    return None


def _check_export(
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
