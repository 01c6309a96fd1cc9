"""Runs fine-tuning: data, training, evaluation, predictions and export.

This module runs all families of tasks. A family is a subclass of `FineTuningTask`, for
one or more task types. `task.json` has the task type of a model under the key "kind".
"""

import dataclasses
import functools
import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Self

import keras
import tensorflow as tf

from albert_tf import weights
from albert_tf.data import cache, files
from albert_tf.errors import InputError
from albert_tf.serve import runtimes, saved_models
from albert_tf.tasks.base import FineTuningTask, RunContext, Split, Splits
from albert_tf.tasks.settings.base import TaskSettings
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings, ModelSettings
from albert_tf.train import devices, loop, report
from albert_tf.train.checkpoints import count_steps
from albert_tf.train.devices import choose_pad_multiple, is_chief
from albert_tf.train.run_file import RunFile
from albert_tf.train.settings import DistributionSettings
from albert_tf.train.step import Trainer
from albert_tf.weights import metadata
from albert_tf.weights.folder import ModelFolder

# The file with the metrics of several runs (--num_runs), in `output_dir`.
_RUNS = "runs.json"
# The key in `task.json` for the name or path of the initial weights. Only a run without
# training writes this key, see `_save_initial_weights`.
_INIT_KEY = "init_checkpoint"


@dataclasses.dataclass(frozen=True)
class Job:
    """The settings and devices of a fine-tuning run.

    Attributes:
        family: the class of the task, a subclass of `FineTuningTask`.
        settings: the settings of the task.
        config: the settings of the run.
        model: the settings of the model: its files, dropout and recomputation.
        devices: the settings of the devices.
        strategy: the strategy for the devices, see `loop.prepare`.
        stream: receives the lines of the log.
    """

    family: type[FineTuningTask]
    settings: Any
    config: FineTuningSettings
    model: ModelSettings
    devices: DistributionSettings
    strategy: tf.distribute.Strategy
    stream: IO[str]

    @property
    def is_chief(self) -> bool:
        """Whether this worker is the chief, which writes the files and the log."""
        return is_chief(self.strategy)

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return Path(self.config.output_dir)

    def log(self, line: str) -> None:
        """Logs a line, if this worker writes."""
        if self.is_chief:
            print(line, file=self.stream, flush=True)

    def replace(self, **fields: Any) -> Self:
        """Returns a copy of the job with changed fields of `config`."""
        config = dataclasses.replace(self.config, **fields)
        return dataclasses.replace(self, config=config)


def fine_tune(job: Job) -> dict[str, float]:
    """Trains, evaluates, predicts and exports, according to the settings of a job.

    Returns:
        Step and metrics of the best checkpoint; with several runs, of the best run. If
        there is no best checkpoint, the metrics of the last evaluation or, without one,
        of the last training steps, together with the metrics of the predictions.

    Raises:
        InputError: a flag or a file is wrong, or a file does not fit the model.
        Stopped: a signal stopped the run, see `loop.train`.
    """
    config, strategy, folder = job.config, job.strategy, job.folder
    _check_num_runs(config)
    run_file = RunFile(folder, (job.settings, config, job.model, job.devices))
    with loop.lock_output_dir(config, strategy):
        if config.export_dir and job.is_chief:
            _check_export(config.export_dir, config.output_dir)
        _check_initial_weights(config)
        task, splits = prepare_task(job)
        outcome = train(job, task, run_file)
        # `best` has the step and metrics of the best checkpoint. It is empty if the run
        # has never evaluated during training.
        trainer, best, results = outcome.trainer, outcome.best, {**outcome.metrics}
        if best:
            key = task.key_metric
            job.log(f"Best checkpoint: step {best['step']:,}, {key} {best[key]:.4f}")

        def add_results(metrics: Mapping[str, float]) -> None:
            # `RunContext` calls this function with the metrics of the predictions.
            results.update(metrics)
            if job.is_chief:
                step = best.get("step") or count_steps(trainer.optimizer)
                report.add_results(folder, {**metrics, "global_step": int(step)})

        predict_split = functools.partial(predict, trainer, config)
        context = RunContext(config, job.is_chief, job.log, predict_split, add_results)
        task.predict_and_write(context, splits)
        if config.initial_weights and not config.do_train and job.is_chief:
            _save_initial_weights(job, task, trainer.model)
        if config.export_dir and job.is_chief:
            _export(job, task, trainer.model)
    if config.do_train:
        run_file.log_end(job.log, " --input_file=rows.tsv")
    return {**(best or results)}


def train(job: Job, task: FineTuningTask, run_file: RunFile | None = None) -> loop.Run:
    """Trains and evaluates once, or --num_runs times with different seeds.

    At the end, the model of the best run has the weights of the best checkpoint; with
    --checkpoint=newest, it has its last weights. If there are several runs, each has a
    folder in `output_dir`. The best checkpoint of the best run is copied to
    `output_dir`, with the other files of the model.

    Args:
        job: the run.
        task: the task to train.
        run_file: writes `run.json`; None for no such file.

    Returns:
        The run with the best key metric.

    Raises:
        InputError: see `loop.train`.
    """
    config, key = convert_epochs(task, job.config), task.key_metric
    best_run: Any = None
    best_number, all_metrics = 0, list[Mapping[str, float]]()
    for number in range(1, config.num_runs + 1):
        settings = config
        if config.num_runs > 1:
            folder = f"{config.output_dir}/run-{number}"
            seed = config.seed + number - 1
            settings = dataclasses.replace(config, seed=seed, output_dir=folder)
            job.log(f"Run {number} of {config.num_runs}: {folder}")
        outcome = loop.train(task, settings, job.strategy, job.stream, run_file)
        all_metrics.append(outcome.best or outcome.metrics)
        # Without an evaluation, there is no key metric; but then there is only one run.
        scores = [metrics.get(key, 0.0) for metrics in all_metrics]
        if best_run is None or scores[-1] > max(scores[:-1]):
            best_run, best_number = outcome, number
        del outcome  # only the best run's model stays in memory
    if config.num_runs > 1:
        mean, spread = statistics.fmean(scores), statistics.stdev(scores)
        job.log(f"{key} of {len(scores)} runs:")
        for number, score in enumerate(scores, 1):
            job.log(f"  run {number}  {score:.4f}")
        job.log(f"  mean {mean:.4f}, spread {spread:.4f}")
        if job.is_chief:
            metadata.copy(job.folder / f"run-{best_number}", job.folder)
            summary = {"best": best_number, "mean": mean, "spread": spread}
            content = metadata.to_json({**summary, "runs": all_metrics})
            files.write(job.folder / _RUNS, content)
    if config.checkpoint == "best":
        # The result is not used. The call waits for all workers, so no worker reads the
        # checkpoint before the chief has written it.
        devices.all_reduce_sum(job.strategy, [0.0])
        best_run.checkpoints.restore_best()
    return best_run


def convert_epochs(
    task: FineTuningTask, config: FineTuningSettings
) -> FineTuningSettings:
    """Returns the settings with epochs and warmup proportion converted to steps.

    If the user gives neither steps nor epochs, the result has the default of the task's
    released script: `released_epochs` if it is not None, else `released_steps`. The
    same holds for the warmup proportion and the warmup steps.
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


def prepare_task(
    job: Job, ensemble_settings: TaskSettings | None = None
) -> tuple[FineTuningTask, Splits]:
    """Creates the task of a job, and reads and encodes its data.

    Args:
        job: the run.
        ensemble_settings: for the second and further models of an ensemble, the
            settings of the first model. `read_examples` uses them instead of the
            settings in the model's folder. Values that are still missing come from the
            model's folder.

    Returns:
        The task, and the encoded splits under "train", "dev" and "test".
    """
    family, config = job.family, job.config
    saved = _read_saved_settings(job)
    settings, splits = family.read_examples(
        job.settings, ensemble_settings or saved, config, job.log
    )
    folder = open_folder(config, job.model)
    settings = settings.with_defaults(saved, folder.config.max_position_embeddings)
    multiple = config.pad_to_multiple_of
    if multiple is None:
        multiple = choose_pad_multiple(job.strategy, config.xla)
    task = family(settings, folder.config, folder.tokenizer, multiple)
    head = {"kind": task.task_type, **task.settings.select("must_match_head")}
    _check_head(config, head, task.settings.select("must_match_run"))
    # A split that is under two keys, such as "dev" and "test", is encoded only once.
    splits_by_id = {id(split): split for parts in splits.values() for split in parts}
    encoded = {key: _encode(job, task, split) for key, split in splits_by_id.items()}
    splits = {key: [encoded[id(s)] for s in parts] for key, parts in splits.items()}
    task.set_splits(splits)
    return task, splits


def _encode(job: Job, task: FineTuningTask, split: Split) -> Split:
    """Returns a split with its features, from the cache if an earlier run wrote it."""
    path = job.config.cache_dir / task.settings.cache_file(split.name)
    arrays, is_cached = cache.load_or_make(
        path, task.cache_key(split), lambda: dict(task.encode(split))
    )
    if is_cached:
        job.log(f"{split.name}: using cached features from {path}")
    split = task.encode_split(split, arrays)
    for line in task.summary(split):
        job.log(line)
    return split


def predict(trainer: Trainer, config: FineTuningSettings, split: Split) -> Any:
    """Returns a model's answers to all examples of a split.

    The answers are the result of `FineTuningTask.postprocess`. All workers must make
    this call, because each worker gathers the outputs of all.

    Args:
        trainer: the trainer, which holds the model.
        config: the settings of the run.
        split: the split with features.
    """
    size = config.predict_batch_size if config.do_predict else config.eval_batch_size
    source = trainer.task.dataset([split], with_labels=False)
    return trainer.task.postprocess(split, trainer.predict(source, size))


def open_folder(config: FineTuningSettings, model: ModelSettings) -> ModelFolder:
    """Opens the folder of the weights, and changes its config as `model` says.

    Args:
        config: the settings of the run, which name the weights.
        model: the settings of the model; each value that is not None replaces the value
            in the config.
    """
    model_folder = ModelFolder(
        config.initial_weights,
        output_dir=config.output_dir,
        checkpoint=config.checkpoint,
        files=model,
    )
    flags: dict[str, Any] = {
        "hidden_dropout_prob": model.albert_dropout_prob,
        "attention_probs_dropout_prob": model.albert_dropout_prob,
        "classifier_dropout_prob": model.classifier_dropout_prob,
        "recompute": model.recompute,
    }
    changes = {name: value for name, value in flags.items() if value is not None}
    model_folder.config = dataclasses.replace(model_folder.config, **changes)
    return model_folder


def _save_initial_weights(job: Job, task: FineTuningTask, model: keras.Model) -> None:
    """Saves the initial weights of a run without training, for predict.py.

    The weights are saved only if this run predicts or exports. Weights from another run
    of this package are not saved, because predict.py can use the folder of that run.
    """
    config, folder = job.config, job.folder
    # The last folder has the initial weights.
    source = ModelFolder(config.initial_weights, output_dir=folder).folders[-1]
    is_from_run = metadata.is_from_run(metadata.find_task(source))
    is_used = config.do_predict or config.export_dir
    if is_used and not is_from_run and not any(folder.glob("*.index")):
        weights.save(model, folder, "tf1")
        description = {**task.description, _INIT_KEY: config.initial_weights}
        metadata.write(folder, task.tokenizer, description)
        job.log(f"Written: {folder}, the model for predict.py")


def _check_num_runs(config: FineTuningSettings) -> None:
    """Checks that --num_runs fits the runs that `output_dir` already has.

    A folder with several runs must not also get a single run, and vice versa.
    """
    folder = Path(config.output_dir)
    holds_several = (folder / _RUNS).exists()
    # The end of the message, used only if the folder conflicts (`is_rejected`).
    conflict = "several runs; pass --num_runs"
    is_rejected = holds_several and config.do_train
    if config.num_runs > 1:
        conflict = "a single run; pass --num_runs=1"
        is_rejected = not holds_several and any(folder.glob("model.ckpt-*.index"))
    if is_rejected:
        raise InputError(f"--output_dir={folder}: has {conflict} or use another folder")


def _check_export(export_dir: str, output_dir: str) -> None:
    """Checks before training that `export_dir` can take the exported model.

    Raises:
        InputError: `export_dir` cannot be written, has other files, or contains
            `output_dir`.
    """
    if Path(output_dir).resolve().is_relative_to(Path(export_dir).resolve()):
        raise InputError(
            f"--export_dir={export_dir}: the run writes its own files there "
            f"(--output_dir={output_dir}); use another folder"
        )
    try:
        saved_models.check_writable(export_dir)
    except InputError as mistake:  # its message begins with the folder
        raise InputError(f"--export_dir={mistake}") from None


def _check_initial_weights(config: FineTuningSettings) -> None:
    """Checks that `output_dir` does not have a copy of other initial weights.

    A run without training saves such a copy, see `_save_initial_weights`.
    """
    saved = metadata.read_task(Path(config.output_dir)).get(_INIT_KEY)
    if config.initial_weights and saved not in (None, config.initial_weights):
        raise InputError(
            f"--output_dir={config.output_dir}: has the model {saved!r}, not "
            f"{config.initial_weights!r}; use another folder"
        )


def _export(job: Job, task: FineTuningTask, model: keras.Model) -> None:
    """Writes a SavedModel that takes raw text, and files for other runtimes."""
    folder = Path(job.config.export_dir or "")
    saved_models.export(task.serving_fn(model, job.config.threshold), folder)
    job.log(f"Written: {folder}, a SavedModel that takes raw text")
    for runtime in job.config.extra_export_formats:
        path = folder / f"albert_model{runtimes.SUFFIXES[runtime]}"
        runtimes.save(model, path, runtime)
        job.log(f"Written: {path}, which takes ids")


def _check_head(
    config: FineTuningSettings, head: Mapping[str, Any], run_keys: Mapping[str, Any]
) -> None:
    """Checks that existing models have the same head as the task.

    Checks the model in the folder of the run, or in the folders of several runs.
    Without training, also checks the model in the folder of the initial weights. A
    folder without a model passes.

    Args:
        config: the settings of the run.
        head: {key of `task.json`: the required value in all checked folders}.
        run_keys: {key of `task.json`: the required value in folders of runs}.

    Raises:
        InputError: a value differs.
    """
    output_dir = Path(config.output_dir)
    runs = (output_dir, *output_dir.glob("run-*"))
    expected = {folder: {**run_keys, **head} for folder in runs}
    if not config.do_train:
        # Without training, the head comes from the run's folder or from the initial
        # weights. In the initial weights, the labels may have another order, because
        # loading a head matches them by name. So the labels are not compared here.
        # `setdefault` keeps the strict check for the run's own folders.
        no_labels = {key: value for key, value in head.items() if key != "labels"}
        sources = ModelFolder(config.initial_weights, output_dir=output_dir).folders
        for folder in sources:
            expected.setdefault(folder, no_labels)
    for folder, values in expected.items():
        stored = metadata.read_task(folder)
        for key, value in json.loads(json.dumps(values)).items():
            if stored and stored.get(key) != value:
                hint = "use another --output_dir" if folder in runs else "must be equal"
                raise InputError(
                    f"{folder}: a model with {key} {stored.get(key)!r}, but this task "
                    f"has {value!r}; {hint}"
                )


def _read_saved_settings(job: Job) -> TaskSettings | None:
    """Returns the stored settings of the head that the run uses; None for a new head.

    For a Hugging Face model, the result has only the labels or the type of head; other
    settings keep their defaults.
    """
    family, config = job.family, job.config
    model_folder = ModelFolder(config.initial_weights, output_dir=config.output_dir)
    for folder in model_folder.folders:
        stored = metadata.find_task(folder)
        # The first folder is the run's own. If this run trains and starts from another
        # run's folder, it does not use that run's head.
        is_other = folder in model_folder.folders[1:] and metadata.is_from_run(stored)
        if stored and stored.get("kind") not in family.task_types:
            # The folder has a head of another family. `_check_head` rejects its
            # `task.json` if the folder is the run's own or the run does not train.
            # Otherwise, or without a `task.json`, the folder is skipped.
            _check_head(config, head={"kind": family.task_types[0]}, run_keys={})
        elif stored and not (config.do_train and is_other):
            return type(job.settings).from_stored(stored, folder / metadata.TASK)
    return None
