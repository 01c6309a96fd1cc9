"""The driver of fine-tuning for all families of tasks, see `FineTuningTask`."""

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
from albert_tf.train.devices import is_chief, pad_multiple
from albert_tf.train.run_file import RunFile
from albert_tf.train.settings import DistributionSettings
from albert_tf.train.step import Trainer
from albert_tf.weights import metadata
from albert_tf.weights.folder import ModelFolder

# The file with the metrics of several runs.
_RUNS = "runs.json"
# The key in `task.json` for the initial weights of a run without training.
_INIT_KEY = "init_checkpoint"


@dataclasses.dataclass(frozen=True)
class Job:
    """The settings and devices of a fine-tuning run.

    Attributes:
        family: the class of the task.
        settings: the family's settings.
        config: the run's settings.
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
    def writes(self) -> bool:
        """Whether this worker writes files and logs."""
        return is_chief(self.strategy)

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return Path(self.config.output_dir)

    def log(self, line: str) -> None:
        """Logs a line, if this worker writes."""
        if self.writes:
            print(line, file=self.stream, flush=True)

    def change(self, **changes: Any) -> Self:
        """Returns a copy of the job with changed fields of `config`."""
        config = dataclasses.replace(self.config, **changes)
        return dataclasses.replace(self, config=config)


def run(job: Job) -> dict[str, float]:
    """Trains, evaluates, predicts and exports, according to the settings of a job.

    Returns:
        The metrics of the best evaluation; with several seeds, of the best seed.
        Without an evaluation, the metrics of the last steps and of the predictions.

    Raises:
        InputError: a flag or a file is wrong, or a file does not fit the model.
        Stopped: the run was stopped by a signal, see `loop.run`.
    """
    config, strategy, folder = job.config, job.strategy, job.folder
    _check_num_runs(config)
    run_file = RunFile(folder, (job.settings, config, job.model, job.devices))
    with loop.lock_output_dir(config, strategy):
        if config.export_dir and job.writes:
            _check_export(config.export_dir, config.output_dir)
        _check_start(config)
        task, splits = prepare_task(job)
        outcome = train(job, task, run_file)
        # `best` has the best checkpoint's step and metrics, if there is an evaluation.
        trainer, best, results = outcome.trainer, outcome.best, {**outcome.metrics}
        if best:
            key = task.key_metric
            job.log(f"Best checkpoint: step {best['step']:,}, {key} {best[key]:.4f}")

        def add_results(metrics: Mapping[str, float]) -> None:
            results.update(metrics)
            if job.writes:
                step = best.get("step") or count_steps(trainer.optimizer)
                report.add_results(folder, {**metrics, "global_step": int(step)})

        answer_split = functools.partial(answer, trainer, config)
        context = RunContext(config, job.writes, job.log, answer_split, add_results)
        task.predict_and_write(context, splits)
        if config.initial_weights and not config.do_train and job.writes:
            _save_start(job, task, trainer.model)
        if config.export_dir and job.writes:
            _export(job, task, trainer.model)
    if config.do_train:
        run_file.log_end(job.log)
    return {**(best or results)}


def train(job: Job, task: FineTuningTask, run_file: RunFile | None = None) -> loop.Run:
    """Trains and evaluates once or with several seeds, then restores the best weights.

    With --checkpoint=newest, the best run's model keeps its last weights instead. If
    there are several runs, each has a folder in `output_dir`. The best checkpoint with
    its metadata is copied to `output_dir`.

    Args:
        job: the run.
        task: the task to train.
        run_file: see `loop.run`.

    Returns:
        The best run.

    Raises:
        InputError: see `loop.run`.
    """
    config, key = convert_epochs(task, job.config), task.key_metric
    best: Any = None
    best_number, all_metrics = 0, list[Mapping[str, float]]()
    for number in range(1, config.num_runs + 1):
        settings = config
        if config.num_runs > 1:
            folder = f"{config.output_dir}/run-{number}"
            seed = config.seed + number - 1
            settings = dataclasses.replace(config, seed=seed, output_dir=folder)
            job.log(f"Run {number} of {config.num_runs}: {folder}")
        outcome = loop.run(task, settings, job.strategy, job.stream, run_file)
        all_metrics.append(outcome.best or outcome.metrics)
        # Without an evaluation, the metrics lack the key metric.
        scores = [metrics.get(key, 0.0) for metrics in all_metrics]
        if best is None or scores[-1] > max(scores[:-1]):
            best, best_number = outcome, number
        del outcome  # only the best run's model stays in memory
    if config.num_runs > 1:
        mean, spread = statistics.fmean(scores), statistics.stdev(scores)
        job.log(f"{key} of {len(scores)} runs:")
        for number, score in enumerate(scores, 1):
            job.log(f"  run {number}  {score:.4f}")
        job.log(f"  mean {mean:.4f}, spread {spread:.4f}")
        if job.writes:
            metadata.copy(job.folder / f"run-{best_number}", job.folder)
            summary = {"best": best_number, "mean": mean, "spread": spread}
            content = metadata.to_json({**summary, "runs": all_metrics})
            files.write(job.folder / _RUNS, content)
    if config.checkpoint == "best":
        # No worker reads the checkpoint before the chief has written it.
        devices.all_reduce_sum(job.strategy, [0.0])
        best.checkpoints.restore_best()
    return best


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


def prepare_task(
    job: Job, shared: TaskSettings | None = None
) -> tuple[FineTuningTask, Splits]:
    """Reads and encodes the data of a job.

    Args:
        job: the run.
        shared: the settings of the first model of an ensemble, which replace those in
            the model's folder.

    Returns:
        The task, and its encoded splits by key: "train", "dev" or "test".
    """
    family, config = job.family, job.config
    saved = _saved_settings(job)
    settings, splits = family.read_examples(
        job.settings, shared or saved, config, job.log
    )
    folder = open_folder(config, job.model)
    settings = settings.with_defaults(saved, folder.config.max_position_embeddings)
    multiple = config.pad_to_multiple_of
    if multiple is None:
        multiple = pad_multiple(job.strategy, config.xla)
    task = family(settings, folder.config, folder.tokenizer, multiple)
    head = {"kind": task.task_type, **task.settings.select("must_match_head")}
    _check_head(config, head, task.settings.select("must_match_run"))
    # A split with several uses, such as "dev" and "test", is encoded once.
    splits_by_id = {id(split): split for parts in splits.values() for split in parts}
    encoded = {key: _encode(job, task, split) for key, split in splits_by_id.items()}
    splits = {key: [encoded[id(s)] for s in parts] for key, parts in splits.items()}
    task.set_splits(splits)
    return task, splits


def _encode(job: Job, task: FineTuningTask, split: Split) -> Split:
    """Encodes a split, or reads the cached features of an earlier run."""
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


def answer(trainer: Trainer, config: FineTuningSettings, split: Split) -> Any:
    """Predicts a split with a trainer's model; all workers must make this call."""
    size = config.predict_batch_size if config.do_predict else config.eval_batch_size
    source = trainer.task.dataset([split], with_labels=False)
    return trainer.task.postprocess(split, trainer.predict(source, size))


def open_folder(config: FineTuningSettings, model: ModelSettings) -> ModelFolder:
    """Opens the folder of the weights, and changes its configuration by `model`."""
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


def _save_start(job: Job, task: FineTuningTask, model: keras.Model) -> None:
    """Saves the initial weights with `task.json`, so that predict.py can read them.

    The weights are saved only if another program has made them, and if the run predicts
    or exports without training.
    """
    config, folder = job.config, job.folder
    start = ModelFolder(config.initial_weights, output_dir=folder).folders[-1]
    is_from_run = metadata.is_from_run(metadata.find_task(start))
    is_used = config.do_predict or config.export_dir
    if is_used and not is_from_run and not any(folder.glob("*.index")):
        weights.save(model, folder, "tf1")
        description = {**task.description, _INIT_KEY: config.initial_weights}
        metadata.write(folder, task.tokenizer, description)
        job.log(f"Written: {folder}, the model for predict.py")


def _check_num_runs(config: FineTuningSettings) -> None:
    """Checks that `output_dir` has several runs only if --num_runs says so."""
    folder = Path(config.output_dir)
    holds_several = (folder / _RUNS).exists()
    content = "several runs; pass --num_runs"
    is_refused = holds_several and config.do_train
    if config.num_runs > 1:
        content = "a single run; pass --num_runs=1"
        is_refused = not holds_several and any(folder.glob("model.ckpt-*.index"))
    if is_refused:
        raise InputError(f"--output_dir={folder}: has {content} or use another folder")


def _check_export(export_dir: str, output_dir: str) -> None:
    """Checks before training that the model can be exported to the folder.

    Raises:
        InputError: the folder cannot be written, or has or will have other files.
    """
    if Path(output_dir).resolve().is_relative_to(Path(export_dir).resolve()):
        raise InputError(
            f"--export_dir={export_dir}: the run writes its own files there "
            f"(--output_dir={output_dir}); use another folder"
        )
    try:
        saved_models.check_writable(export_dir)
    except InputError as mistake:
        raise InputError(f"--export_dir={mistake}") from None


def _check_start(config: FineTuningSettings) -> None:
    """Checks that `_save_start` has not saved another model in the run's folder."""
    saved = metadata.read_task(Path(config.output_dir)).get(_INIT_KEY)
    if config.initial_weights and saved not in (None, config.initial_weights):
        raise InputError(
            f"--output_dir={config.output_dir}: has the model {saved!r}, not "
            f"{config.initial_weights!r}; use another folder"
        )


def _export(job: Job, task: FineTuningTask, model: keras.Model) -> None:
    """Writes a SavedModel that takes raw text, and models of other runtimes."""
    folder = Path(job.config.export_dir or "")
    saved_models.export(task.serving_fn(model, job.config.threshold), folder)
    job.log(f"Written: {folder}, a SavedModel that takes raw text")
    for runtime in job.config.extra_export_formats:
        path = folder / f"albert_model{runtimes.SUFFIXES[runtime]}"
        runtimes.save(model, path, runtime)
        job.log(f"Written: {path}, which takes ids")


def _check_head(
    config: FineTuningSettings, head: Mapping[str, Any], run: Mapping[str, Any]
) -> None:
    """Checks that the models in the folders have the task's head.

    Args:
        config: the run's settings.
        head: values that `task.json` must have in all folders whose head the run uses.
        run: further values that it must have in `output_dir`.

    Raises:
        InputError: a value differs.
    """
    output_dir = Path(config.output_dir)
    runs = (output_dir, *output_dir.glob("run-*"))
    expected = {folder: {**run, **head} for folder in runs}
    if not config.do_train:
        # The head comes from one of these folders. The labels of folders outside the
        # run are matched by name when the head is loaded.
        start = {key: value for key, value in head.items() if key != "labels"}
        sources = ModelFolder(config.initial_weights, output_dir=output_dir).folders
        for folder in sources:
            expected.setdefault(folder, start)
    for folder, values in expected.items():
        stored = metadata.read_task(folder)
        for key, value in json.loads(json.dumps(values)).items():
            if stored and stored.get(key) != value:
                hint = "use another --output_dir" if folder in runs else "must agree"
                raise InputError(
                    f"{folder}: a model with {key} {stored.get(key)!r}, but this task "
                    f"has {value!r}; {hint}"
                )


def _saved_settings(job: Job) -> TaskSettings | None:
    """Returns the saved settings of the head that the run uses, or None.

    For a Hugging Face model, the settings have only the labels or the type of head.
    """
    family, config = job.family, job.config
    model_folder = ModelFolder(config.initial_weights, output_dir=config.output_dir)
    for folder in model_folder.folders:
        stored = metadata.find_task(folder)
        # The first folder is the run's own. If training starts from the folder of
        # another run, the head is new.
        is_other = folder in model_folder.folders[1:] and metadata.is_from_run(stored)
        if stored and stored.get("kind") not in family.task_types:
            _check_head(config, head={"kind": family.task_types[0]}, run={})
        elif stored and not (config.do_train and is_other):
            return type(job.settings).from_stored(stored, folder / metadata.TASK)
    return None
