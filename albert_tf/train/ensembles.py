"""Ensembles: the mean of several fine-tuned models evaluates and predicts.

    run_classifier.py --ensemble=runs/a,runs/b,'runs/mrpc/run-*' --do_eval --do_predict

The members are opened one after the other, so only one is in memory. The paper's best
results on GLUE (6 to 17 checkpoints a task), SQuAD and RACE are ensembles (paper 4.9).
"""

import dataclasses
import functools
import gc
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

from albert_tf import weights
from albert_tf.errors import InputError
from albert_tf.tasks import base
from albert_tf.tasks.base import FineTuningTask, RunContext, Splits
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings, ModelSettings
from albert_tf.train import finetune, loop, report
from albert_tf.train.finetune import Job
from albert_tf.train.settings import DistributionSettings
from albert_tf.train.step import Trainer
from albert_tf.weights import metadata


@dataclasses.dataclass(frozen=True)
class _Member:
    """The answers of one model.

    Attributes:
        folder: the model's folder.
        task: the model's task.
        splits: the answered splits, without features.
        answers: answers by the name of the split.
        metrics: metrics of the splits with labels, by name.
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
    """Fine-tunes, evaluates and predicts with a model or an ensemble.

    With `config.ensemble` the mean of its members evaluates and predicts; with
    --num_runs they are trained first. Without, this is `finetune.run`.

    Classes, choices and tags have the mean of the members' probabilities, regressions
    the mean of their numbers. Answers of SQuAD are merged by their text and place, with
    the mean of their probabilities over all members, and of the null odds. All files
    are those of one model; `ensemble.json` has the members and their metrics.

    Args:
        family: see `Job`, as the next four.
        settings: the family's settings.
        config: the run's settings; `ensemble` names the members.
        model: the model's files.
        devices: the devices.
        log: receives progress.

    Returns:
        The metrics of the ensemble, or see `finetune.run`.

    Raises:
        InputError: the members do not fit together, or see `finetune.run`.
    """
    settings.check(config)
    one = dataclasses.replace(config, ensemble=None, ensemble_search=None)
    strategy = loop.prepare(config, devices)
    job = Job(family, settings, one, model, devices, strategy, log)
    if config.ensemble is None:
        return finetune.run(job)
    members = config.ensemble
    if config.do_train:
        finetune.run(job.change(do_predict=False))
        numbers = range(1, config.num_runs + 1)
        members = tuple(f"{config.output_dir}/run-{number}" for number in numbers)
    folders = metadata.find_members(members, "--ensemble")
    if len(folders) == 1:
        return finetune.run(job.change(init_checkpoint=folders[0]))
    # Several runs and trackers belong to training.
    job = job.change(do_train=False, num_runs=1, wandb=None, mlflow=None)
    return _combine(job, folders, config.ensemble_search)


def _combine(job: Job, folders: Sequence[str], search: int | None) -> dict[str, float]:
    """Evaluates and predicts with two or more members; see `run`."""
    with loop.lock_output_dir(job.config, job.strategy):
        shared = job.family.stored_settings(folders[0])
        members = (_answer(job, folder, shared) for folder in folders)
        if search:
            ensemble, table = _search(list(members), search, job.log)
        else:
            ensemble, table = _mean(members)
        # Once more: the task keeps the last confusion matrix.
        metrics = _metrics(ensemble.task, ensemble.splits, ensemble.answers)

        def answer(split: base.Split) -> Any:
            return ensemble.answers[split.name]

        context = RunContext(
            *(job.config, {}, job.writes, job.log), answer, metrics.update
        )
        ensemble.task.predict_and_write(context, ensemble.splits)
        table["ensemble"] = metrics
        if job.writes:
            if metrics:
                report.add_results(job.folder, metrics)
            text = json.dumps(table, indent=2)
            base.write(job.folder / "ensemble.json", f"{text}\n")
        for line in _lines(table, ensemble.task.key_metric):
            job.log(line)
    return metrics


def _answer(job: Job, folder: str, shared: Any) -> _Member:
    """Opens one member and answers every split; frees its model."""
    job.log(f"Member {folder}")
    own = job.change(
        init_checkpoint=folder,
        albert_hub_module_handle=None,
        output_dir=folder,
        cached_dir=str(job.config.cache_dir),
    )
    task, splits = finetune.prepare_task(own, shared)
    with own.strategy.scope():
        model = task.build_model()
    task.load(model, weights.open_source(folder, own.config.checkpoint), complete=True)
    trainer = Trainer(task, own.config, own.strategy, model, None, log=own.log)
    parts = {split.name: split for use in splits.values() for split in use}
    answers = {
        name: finetune.answer(trainer, own.config, split)
        for name, split in parts.items()
    }
    bare = {
        use: [dataclasses.replace(split, features=None) for split in each]
        for use, each in splits.items()
    }
    metrics = _metrics(task, bare, answers)
    task.training = task.evaluation = None
    del trainer, model
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
    total = next(members)
    table = [_row(total)]
    for member in members:
        table.append(_row(member))
        total = _sum(total, member)
    return _divide(total, len(table)), {"members": table}


def _row(member: _Member) -> dict[str, Any]:
    return {"folder": member.folder, **member.metrics}


def _sum(total: _Member, member: _Member) -> _Member:
    answers = {name: total.answers[name] + own for name, own in member.answers.items()}
    return dataclasses.replace(total, answers=answers)


def _divide(total: _Member, count: int) -> _Member:
    answers = {name: values / count for name, values in total.answers.items()}
    metrics = _metrics(total.task, total.splits, answers)
    return dataclasses.replace(total, answers=answers, metrics=metrics)


def _search(
    members: Sequence[_Member], max_size: int, log_line: Callable[[str], None]
) -> tuple[_Member, dict[str, Any]]:
    """Adds the most helpful member repeatedly; returns the best ensemble of all steps.

    Args:
        members: the candidates.
        max_size: maximum number of members of the ensemble.
        log_line: gets a line for each step.
    """
    key = members[0].task.key_metric
    if key not in members[0].metrics:
        raise InputError("--ensemble_search: there are no labels; pass --do_eval")
    candidates, chosen, steps = list(members), list[_Member](), []
    best: _Member | None = None
    while candidates and len(chosen) < max_size:
        tried = []
        for member in candidates:
            group = [*chosen, member]
            mean = _divide(functools.reduce(_sum, group), len(group))
            tried.append((mean.metrics[key], member, mean))
        score, member, mean = max(tried, key=lambda each: each[0])
        candidates.remove(member)
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
