"""Ensembles: the mean of several fine-tuned models evaluates and predicts.

    run_classifier.py --ensemble=runs/a,runs/b,'runs/mrpc/run-*' --do_eval --do_predict

The members are opened one after the other, so memory is that of the largest. The paper
sets its records on GLUE (6 to 17 checkpoints a task), SQuAD and RACE so (paper 4.9).
"""

import dataclasses
import functools
import gc
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import tensorflow as tf

from albert_tf import weights
from albert_tf.errors import InputError
from albert_tf.tasks import base
from albert_tf.tasks.base import FineTuningTask, RunContext, Split, Splits
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings, ModelSettings
from albert_tf.train import finetune, loop, report
from albert_tf.train.devices import DistributionSettings, is_chief
from albert_tf.train.step import Trainer
from albert_tf.weights import metadata


@dataclasses.dataclass(frozen=True)
class _EnsembleRun(RunContext):
    """Finishes with answers that are there already.

    Attributes:
        answers: by the name of the split.
    """

    answers: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def answer(self, task: FineTuningTask, split: Split) -> Any:
        """Returns the answers of the ensemble."""
        return self.answers[split.name]


@dataclasses.dataclass(frozen=True)
class _Member:
    """What one model answered.

    Attributes:
        folder: of the model.
        task: of the model.
        splits: what was answered, without features.
        answers: by the name of the split.
        metrics: of the splits with labels, by name.
    """

    folder: str
    task: FineTuningTask
    splits: Splits
    answers: Mapping[str, Any]
    metrics: Mapping[str, float]


def run(
    family: type[FineTuningTask],
    settings: Any,
    config: FineTuningSettings,
    model: ModelSettings,
    devices: DistributionSettings,
    log: IO[str] = sys.stderr,
) -> dict[str, float]:
    """Evaluates and predicts with an ensemble; with --num_runs trains it first.

    Without `config.ensemble` this is `finetune.run`.

    Classes, choices and tags have the mean of the members' probabilities, regressions
    the mean of their numbers. Answers of SQuAD are merged by their text and place, with
    the mean of their probabilities over all members, and of the null odds. All files
    are those of one model; `ensemble.json` has the members and their metrics.

    Args:
        family: see `finetune.run`.
        settings: of the family.
        config: what to do; `ensemble` names the members.
        model: with which files.
        devices: on which devices.
        log: where progress goes.

    Returns:
        The metrics of the ensemble, or of the run.

    Raises:
        InputError: the members do not fit together, or see `finetune.run`.
    """
    one = dataclasses.replace(config, ensemble=None, ensemble_search=None)
    strategy = loop.prepare(config, devices)
    drive = functools.partial(
        finetune.run,
        family,
        settings,
        model=model,
        devices=devices,
        log=log,
        strategy=strategy,
    )
    if config.ensemble is None:
        return dict(drive(config=one).metrics)
    members = config.ensemble
    if config.do_train:
        drive(config=dataclasses.replace(one, do_predict=False))
        numbers = range(1, config.num_runs + 1)
        members = tuple(f"{config.output_dir}/run-{number}" for number in numbers)
    folders = metadata.find_members(members, "--ensemble")
    if len(folders) == 1:
        one = dataclasses.replace(one, init_checkpoint=folders[0])
        return dict(drive(config=one).metrics)
    # Several runs and trackers belong to training.
    config = dataclasses.replace(
        config,
        do_train=False,
        num_runs=1,
        ensemble=tuple(folders),
        wandb=None,
        mlflow=None,
    )
    return _combine(folders, family, settings, config, model, strategy, log)


def _combine(
    folders: Sequence[str],
    family: type[FineTuningTask],
    settings: Any,
    config: FineTuningSettings,
    model: ModelSettings,
    strategy: tf.distribute.Strategy,
    log: IO[str],
) -> dict[str, float]:
    """Evaluates and predicts with two or more members; see `run`."""
    settings.check(config, strategy.num_replicas_in_sync)
    writes, output_dir = is_chief(strategy), Path(config.output_dir)

    def log_line(line: str) -> None:
        if writes:
            print(line, file=log, flush=True)

    with loop.locked(config, strategy):
        stored = [family.stored_settings(folder) for folder in folders]
        shared = family.merge_settings(stored)
        members = (
            _answer(folder, shared, family, settings, config, model, strategy, log_line)
            for folder in folders
        )
        if config.ensemble_search:
            ensemble, table = _search(list(members), config.ensemble_search, log_line)
        else:
            ensemble, table = _mean(members)
        # Once more: the task keeps the last confusion matrix.
        metrics = _metrics(ensemble.task, ensemble.splits, ensemble.answers)
        context = _EnsembleRun(
            config,
            best={},
            writes=writes,
            log=log_line,
            predict=lambda source, size: iter(()),  # the answers are there
            add_results=metrics.update,
            answers=ensemble.answers,
        )
        ensemble.task.predict_and_write(context, ensemble.splits)
        table["ensemble"] = metrics
        if writes:
            if metrics:
                report.add_results(output_dir, metrics)
            text = json.dumps(table, indent=2)
            base.write(output_dir / "ensemble.json", f"{text}\n")
        for line in _lines(table, ensemble.task.key_metric):
            log_line(line)
    return metrics


def _answer(
    folder: str,
    shared: Any,
    family: type[FineTuningTask],
    settings: Any,
    config: FineTuningSettings,
    model: ModelSettings,
    strategy: tf.distribute.Strategy,
    log_line: Callable[[str], None],
) -> _Member:
    """Opens one member and answers every split; frees its model."""
    log_line(f"Member {folder}")
    own = dataclasses.replace(
        config,
        init_checkpoint=folder,
        albert_hub_module_handle=None,
        output_dir=folder,
        cached_dir=str(config.cache_dir),
    )
    task, splits = finetune.prepare_task(
        family, settings, own, model, strategy, log_line, shared
    )
    with strategy.scope():
        network = task.build_model()
    task.load(network, weights.open_source(folder, config.checkpoint), complete=True)
    trainer = Trainer(task, own, strategy, network, None, log=log_line)
    run = RunContext(own, {}, False, log_line, trainer.predict, lambda metrics: None)
    parts = {split.name: split for use in splits.values() for split in use}
    answers = {name: run.answer(task, split) for name, split in parts.items()}
    bare = {
        use: [dataclasses.replace(split, features=None) for split in each]
        for use, each in splits.items()
    }
    metrics = _metrics(task, bare, answers)
    task.training = task.evaluation = None
    del trainer, network, run
    gc.collect()
    return _Member(folder, task, bare, answers, metrics)


def _metrics(
    task: FineTuningTask, splits: Splits, answers: Mapping[str, Any]
) -> dict[str, float]:
    """Measures the answers to the splits with labels."""
    measured = splits.get("dev") or splits.get("test") or ()
    return task.measure_splits((split, answers[split.name]) for split in measured)


def _mean(members: Iterator[_Member]) -> tuple[_Member, dict[str, Any]]:
    """Returns the mean of all members, of which one is in memory at a time."""
    total: _Member | None = None
    table: list[dict[str, Any]] = []
    for member in members:
        table.append(_row(member))
        total = member if total is None else _sum(total, member)
    assert total is not None
    return _divide(total, len(table)), {"members": table}


def _row(member: _Member) -> dict[str, Any]:
    return {"folder": member.folder, **member.metrics}


def _sum(total: _Member, member: _Member) -> _Member:
    answers = {name: total.answers[name] + own for name, own in member.answers.items()}
    return dataclasses.replace(total, answers=answers)


def _divide(total: _Member, count: int) -> _Member:
    answers = {name: own / count for name, own in total.answers.items()}
    metrics = _metrics(total.task, total.splits, answers)
    return dataclasses.replace(total, answers=answers, metrics=metrics)


def _search(
    members: Sequence[_Member], most: int, log_line: Callable[[str], None]
) -> tuple[_Member, dict[str, Any]]:
    """Adds the member that helps most, again and again; returns the best of all steps.

    Args:
        members: to choose from.
        most: number of members of the ensemble at most.
        log_line: gets a line for each step.
    """
    key = members[0].task.key_metric
    if key not in members[0].metrics:
        raise InputError("--ensemble_search: there are no labels; pass --do_eval")
    left, chosen, steps = list(members), list[_Member](), []
    best: _Member | None = None
    while left and len(chosen) < most:
        tried = []
        for member in left:
            group = [*chosen, member]
            mean = _divide(functools.reduce(_sum, group), len(group))
            tried.append((mean.metrics[key], member, mean))
        score, member, mean = max(tried, key=lambda each: each[0])
        left.remove(member)
        chosen.append(member)
        steps.append({"added": member.folder, key: score})
        log_line(f"Search: {len(chosen)} with {member.folder}: {key} {score:.4f}")
        if best is None or score > best.metrics[key]:
            best, size = mean, len(chosen)
    assert best is not None
    table = {
        "members": [_row(member) for member in members],
        "search": steps,
        "chosen": [member.folder for member in chosen[:size]],
    }
    return best, table


def _lines(table: Mapping[str, Any], key: str) -> Iterator[str]:
    """Yields the key metric of each member and of the ensemble."""
    for row in (*table["members"], {"folder": "ensemble", **table["ensemble"]}):
        if key in row:
            yield f"{row['folder']:<40} {key} {row[key]:.4f}"
