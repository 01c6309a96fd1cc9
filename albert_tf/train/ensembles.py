"""Ensembles: the mean of the answers of several fine-tuned models.

    run_classifier.py --ensemble=runs/a,runs/b,'runs/mrpc/run-*' --do_eval --do_predict

Only one member is in memory at a time. The paper's best results on GLUE (6 to 17
checkpoints per task), SQuAD and RACE are ensembles (paper 4.9).
"""

import dataclasses
import functools
import gc
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, NamedTuple

from albert_tf import weights
from albert_tf.data import files
from albert_tf.errors import InputError
from albert_tf.tasks.base import FineTuningTask, RunContext, Split, Splits
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings, ModelSettings
from albert_tf.train import finetune, loop, report
from albert_tf.train.finetune import Job
from albert_tf.train.settings import DistributionSettings
from albert_tf.train.step import Trainer
from albert_tf.weights import metadata


class _Member(NamedTuple):
    """A member of an ensemble with its answers, or the mean of all members.

    Attributes:
        folder: the folder of the member; "ensemble" for the mean.
        answers: {name of a split: the answers to its examples}.
        metrics: the metrics of these answers, by name; empty without labels.
    """

    folder: str
    answers: Mapping[str, Any]
    metrics: Mapping[str, float]


# A function that takes the answers by split and returns their metrics: `_evaluate` with
# its first two arguments bound.
_EvaluateFunction = Callable[[Mapping[str, Any]], dict[str, float]]


def fine_tune(
    family: type[FineTuningTask],
    settings: Any,
    config: FineTuningSettings,
    model: ModelSettings,
    devices: DistributionSettings,
    log: IO[str] = sys.stderr,
) -> dict[str, float]:
    """Fine-tunes, evaluates and predicts with one model or with an ensemble.

    If `config.ensemble` is None, this function only calls `finetune.fine_tune`.
    Otherwise, the mean of the members' answers is evaluated and written; --do_train
    trains the members first.

    The answers are probabilities in classification, multiple choice and tagging, and
    numbers in regression. Answers of SQuAD are merged by text and position; their
    probabilities and the null odds (of "no answer") are means over all members. The
    output files are the same as for one model, plus `ensemble.json` with the members
    and their metrics.

    Args:
        family: the class of the task.
        settings: the settings of the task.
        config: the settings of the run. `ensemble` has the folders of the members, or
            is None for one model. For an ensemble with --do_train it is (), because the
            members are the runs of this call.
        model: the settings of the model.
        devices: the settings of the devices.
        log: receives progress.

    Returns:
        The metrics of the ensemble, or the result of `finetune.fine_tune`.

    Raises:
        InputError: the members have different tasks, or see `finetune.fine_tune`.
    """
    settings.check(config)
    member_config = dataclasses.replace(config, ensemble=None, ensemble_search=None)
    strategy = loop.prepare(config, devices)
    job = Job(family, settings, member_config, model, devices, strategy, log)
    if config.ensemble is None:
        return finetune.fine_tune(job)
    members = config.ensemble
    if config.do_train:
        # Here, `config.ensemble` is empty. The members are the runs of this call.
        finetune.fine_tune(job.replace(do_predict=False))
        run_numbers = range(1, config.num_runs + 1)
        members = tuple(f"{config.output_dir}/run-{number}" for number in run_numbers)
    folders = metadata.find_members(members, "--ensemble")
    # One folder is only possible without --do_train. It is evaluated as a single model,
    # without `ensemble.json`.
    if len(folders) == 1:
        return finetune.fine_tune(job.replace(init_checkpoint=folders[0]))
    # Only training needs several runs and trackers, and no training follows.
    job = job.replace(do_train=False, num_runs=1, wandb=None, mlflow=None)
    return _combine(job, folders, config.ensemble_search)


def _combine(job: Job, folders: Sequence[str], search: int | None) -> dict[str, float]:
    """Evaluates and predicts with the mean of two or more members.

    Args:
        job: the run.
        folders: the folders of the members.
        search: the value of --ensemble_search: the maximum number of members to choose;
            None to use all.

    Returns:
        The metrics of the ensemble.
    """
    with loop.lock_output_dir(job.config, job.strategy):
        task, splits, first = _run_member(job, folders[0], None)
        # All members read the data with the first member's settings.
        others = [_run_member(job, folder, task.settings)[2] for folder in folders[1:]]
        members = [first, *others]
        evaluate = functools.partial(_evaluate, task, splits)
        rows = [{"folder": member.folder, **member.metrics} for member in members]
        # The content of `ensemble.json`.
        table: dict[str, Any] = {"members": rows}
        key = task.key_metric
        if search:
            members, table["search"] = _search(members, search, key, evaluate, job.log)
            table["chosen"] = [member.folder for member in members]
        ensemble = _mean(members, evaluate)
        metrics = {**ensemble.metrics}

        def predict(split: Split) -> Any:
            return ensemble.answers[split.name]

        # The metrics of the predictions are added to `metrics`.
        context = RunContext(job.config, job.is_chief, job.log, predict, metrics.update)
        task.predict_and_write(context, splits)
        table["ensemble"] = metrics
        if job.is_chief:
            if metrics:
                report.add_results(job.folder, metrics)
            files.write(job.folder / "ensemble.json", metadata.to_json(table))
        for row in (*rows, {"folder": "ensemble", **metrics}):
            if key in row:
                job.log(f"{row['folder']:<40} {key} {row[key]:.4f}")
    return metrics


def _run_member(
    job: Job, folder: str, first_settings: Any
) -> tuple[FineTuningTask, Splits, _Member]:
    """Opens one member, and answers all splits with it.

    Args:
        job: the run.
        folder: the folder of the member.
        first_settings: the settings of the first member, to read the data; None if this
            is the first member.

    Returns:
        The member's task and splits, and the member with its answers.
    """
    gc.collect()  # frees the model of the previous member
    job.log(f"Member {folder}")
    job = job.replace(
        init_checkpoint=folder,
        albert_hub_module_handle=None,
        # Otherwise the files in the run's own output folder would have priority over
        # the member's.
        output_dir=folder,
        cached_dir=str(job.config.cache_dir),  # the run's cache, not the member's
    )
    task, splits = finetune.prepare_task(job, first_settings)
    with job.strategy.scope():
        model = task.build_model()
    task.load(model, weights.open_source(folder, job.config.checkpoint), strict=True)
    # The optimizer is None, because nothing is trained.
    trainer = Trainer(task, job.config, job.strategy, model, None, log=job.log)
    by_name = {split.name: split for parts in splits.values() for split in parts}
    answers = {
        name: finetune.predict(trainer, job.config, split)
        for name, split in by_name.items()
    }
    return task, splits, _Member(folder, answers, _evaluate(task, splits, answers))


def _evaluate(
    task: FineTuningTask, splits: Splits, answers: Mapping[str, Any]
) -> dict[str, float]:
    """Returns the metrics of the dev splits or, if there are none, the test splits."""
    parts = splits.get("dev") or splits.get("test") or ()
    return task.evaluate_splits((split, answers[split.name]) for split in parts)


def _mean(members: Sequence[_Member], evaluate: _EvaluateFunction) -> _Member:
    """Returns the mean of the members' answers, with the metrics of this mean."""
    answers = {}
    for name in members[0].answers:
        total = functools.reduce(operator.add, (m.answers[name] for m in members))
        answers[name] = total / len(members)
    return _Member("ensemble", answers, evaluate(answers))


def _search(
    candidates: Sequence[_Member],
    max_size: int,
    key: str,
    evaluate: _EvaluateFunction,
    log: Callable[[str], None],
) -> tuple[list[_Member], list[dict[str, Any]]]:
    """Searches greedily for the best ensemble.

    Each turn adds the member with which the ensemble has the highest metric. The result
    is the ensemble after the best turn.

    Args:
        candidates: the members to choose from.
        max_size: maximum number of members of the ensemble.
        key: the metric to maximize.
        evaluate: returns the metrics of answers.
        log: logs a line for each turn.

    Returns:
        The members of the best ensemble; and for each turn a dict with the added member
        and the metric.
    """
    if key not in candidates[0].metrics:
        raise InputError("--ensemble_search: there are no labels; pass --do_eval")
    remaining, chosen, turns = list(candidates), list[_Member](), list[dict[str, Any]]()
    while remaining and len(chosen) < max_size:
        scores = [_mean([*chosen, m], evaluate).metrics[key] for m in remaining]
        score = max(scores)
        chosen.append(remaining.pop(scores.index(score)))
        folder = chosen[-1].folder
        turns.append({"added": folder, key: score})
        log(f"Search: {len(chosen)} members, added {folder}: {key} {score:.4f}")
    best = max(turns, key=lambda turn: turn[key])
    return chosen[: turns.index(best) + 1], turns
