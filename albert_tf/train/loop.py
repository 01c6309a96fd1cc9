"""The training loop of all tasks: start or resume, train, log, save, evaluate."""

import contextlib
import sys
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import keras
import numpy as np
import tensorflow as tf

from albert_tf import weights
from albert_tf.data import files, stopping
from albert_tf.errors import InputError
from albert_tf.model import optimizers
from albert_tf.tasks.base import Task
from albert_tf.tasks.settings.training import TrainingSettings
from albert_tf.train import devices, trackers
from albert_tf.train.checkpoints import Checkpoints, count_steps
from albert_tf.train.devices import is_chief
from albert_tf.train.report import Reporter
from albert_tf.train.run_file import RunFile
from albert_tf.train.settings import DistributionSettings
from albert_tf.train.step import Trainer
from albert_tf.weights.folder import ModelFolder

_OPTIMIZERS = {"lamb": optimizers.Lamb, "adamw": optimizers.AdamW}


def prepare(
    config: TrainingSettings, distribution: DistributionSettings
) -> tf.distribute.Strategy:
    """Creates the strategy, and sets precision and determinism in Keras and TensorFlow.

    Call this function before any other use of TensorFlow, see `devices.create`.

    Raises:
        InputError: a batch size is not a multiple of the number of devices (in
            training, of devices times microbatches); or see `trackers.check` and
            `devices.create`.
    """
    trackers.check(config)
    strategy = devices.create(distribution)
    replicas = strategy.num_replicas_in_sync
    for name in ("train", "eval", "predict"):
        # Pretraining has no settings for predictions.
        size = getattr(config, f"{name}_batch_size", 0)
        parts = config.gradient_accumulation_steps if name == "train" else 1
        if getattr(config, f"do_{name}", False) and size % (replicas * parts):
            raise InputError(
                f"--{name}_batch_size={size}: must be a multiple of "
                f"{replicas * parts} ({replicas} devices x {parts} microbatches)"
            )
    prefix = "" if config.precision == "float32" else "mixed_"
    keras.config.set_dtype_policy(f"{prefix}{config.precision}")
    if config.deterministic:
        tf.config.experimental.enable_op_determinism()
    return strategy


@contextlib.contextmanager
def lock_output_dir(
    config: TrainingSettings, strategy: tf.distribute.Strategy
) -> Iterator[None]:
    """Locks `output_dir` against other runs during a `with` block.

    The chief locks the folder for all workers. The block may contain another block for
    the same folder, as in a call of `run`, which locks the folder itself. The block
    also turns the error of a lost worker into InputError.

    Raises:
        InputError: see `files.lock_folder`; or a worker was lost.
    """
    folder_lock = files.lock_folder(Path(config.output_dir))
    lock = folder_lock if is_chief(strategy) else contextlib.nullcontext()
    with devices.wrap_lost_worker(strategy), lock:
        yield


def train(
    task: Task,
    config: TrainingSettings,
    strategy: tf.distribute.Strategy,
    log: IO[str] = sys.stderr,
    run_file: RunFile | None = None,
) -> "Run":
    """Runs the training loop; resumes from the newest checkpoint in `output_dir`.

    Args:
        task: the task to train.
        config: the run's settings.
        strategy: the devices, see `prepare`.
        log: receives the lines of progress.
        run_file: writes `run.json` after all checks and before training. Without this
            argument, the run has no such file.

    Raises:
        InputError: the settings do not fit the devices or the checkpoints in
            `output_dir`, another run uses this folder, the loss or a gradient is not
            finite, a file cannot be written, or a worker was lost.
        Stopped: after SIGTERM or SIGINT. If the run has trained, it first saves a
            checkpoint of the last step.
    """
    with lock_output_dir(config, strategy):
        keras.utils.set_random_seed(config.seed)
        _check(task, config)
        with strategy.scope():
            model = task.build_model()
            optimizer = build_optimizer(config)
            optimizer.build(model.trainable_variables)
        folder = Path(config.output_dir)
        reporter = Reporter(folder, log, task, config, enabled=is_chief(strategy))
        checkpoints = Checkpoints(folder, model, optimizer, config.keep_checkpoint_max)
        examples_seen = _restore(task, config, model, checkpoints, reporter.log)
        # This check waits for all workers. So all workers have read the folder before
        # the chief writes into it.
        _check_agreement(strategy, model, optimizer, examples_seen, config)
        if is_chief(strategy) and config.do_train:
            task.save_assets(folder)
            if run_file is not None:
                run_file.write(task, reporter.log)
        # From here on, each replica draws different dropout masks.
        devices.fold_in_replica_id(strategy, model)
        reporter.log_start(model, strategy, count_steps(optimizer))
        # `flag` holds a signal that asks the run to stop, if one has come.
        with contextlib.closing(reporter), stopping.catch_signals() as flag:
            trainer = Trainer(
                task,
                config,
                strategy,
                model,
                optimizer,
                examples_seen=examples_seen,
                log=reporter.log,
                flag=flag,
            )
            result = Run(config, trainer, checkpoints, reporter)
            result.train_and_evaluate()
        return result


class Run:
    """One run of the loop: trains, and logs, saves and evaluates at intervals.

    Attributes:
        trainer: the trainer, which holds the last weights.
        checkpoints: the checkpoints of the run's folder.
        best: step and metrics of the best checkpoint; empty if there is none. Each
            worker has these numbers, but only the chief writes them to a file.
    """

    def __init__(self, config, trainer, checkpoints, reporter):
        self.trainer = trainer
        self.checkpoints = checkpoints
        self.best: Mapping[str, float] = checkpoints.best
        self._config = config
        self._task = trainer.task
        self._evaluates = trainer.task.evaluation is not None
        self._reporter = reporter
        self._last_save_time = time.monotonic()
        self._train_metrics: Mapping[str, float] = {}
        self._eval_metrics: Mapping[str, float] = {}

    @property
    def metrics(self) -> Mapping[str, float]:
        """Metrics of the last evaluation; without one, of the last training steps."""
        return self._eval_metrics or self._train_metrics

    @property
    def _step(self) -> int:
        """The number of updates until now."""
        return count_steps(self.trainer.optimizer)

    def train_and_evaluate(self) -> None:
        """Trains and evaluates.

        Raises:
            Stopped: after a signal; a checkpoint is saved first.
        """
        try:
            if self._config.do_train:
                self._train()
            if self._evaluates and not self._eval_metrics:
                self._evaluate()
        except stopping.Stopped as stop:
            saved = self._config.do_train and self._step > 0
            if saved:
                self._save()
            self._reporter.log(
                f"Stopped by {stop.signal.name} at step {self._step:,}"
                f"{': saved' if saved else ''}; run the same command again to resume"
            )
            raise

    def _train(self) -> None:
        """Trains until the last step or an early stop; logs, saves and evaluates."""
        config = self._config
        if self._lacks_evaluation():
            self._evaluate()
        is_done = self._should_stop_early()
        while self._step < config.num_train_steps and not is_done:
            step = self._step
            metrics = self.trainer.train(self._count_steps_to_event())
            if self._step == step:
                continue  # loss scaling skipped the updates, because of overflows
            if not self._train_metrics or self._is_due(config.log_steps):
                self._reporter.log_train(self._step, metrics)
                self.trainer.start_window()
            self._train_metrics = metrics
            if self._is_due(config.save_checkpoints_steps) or self._is_save_late():
                self._save()
            if self._evaluates and self._is_due(config.steps_between_evaluations):
                self._evaluate()
                is_done = self._should_stop_early()
        if self._train_metrics:
            self._reporter.log_end(self.best)

    def _count_steps_to_event(self) -> int:
        """Returns the number of steps until the next log line, save or evaluation."""
        config, step = self._config, self._step
        if not self._train_metrics:
            return 1  # to log the first step
        intervals = [config.log_steps, config.save_checkpoints_steps]
        if self._evaluates:
            intervals.append(config.steps_between_evaluations)
        steps = (interval - step % interval for interval in intervals)
        return min(*steps, config.num_train_steps - step, config.iterations_per_loop)

    def _is_due(self, interval: int) -> bool:
        """Whether an event is due: at each multiple of its interval and at the end."""
        step = self._step
        return step % interval == 0 or step >= self._config.num_train_steps

    def _is_save_late(self) -> bool:
        """Whether the last checkpoint is at least --save_checkpoints_minutes old.

        With 0 minutes, checkpoints are saved only at intervals of steps.
        """
        seconds = 60 * self._config.save_checkpoints_minutes
        return 0 < seconds <= time.monotonic() - self._last_save_time

    def _lacks_evaluation(self) -> bool:
        """Whether the run was killed between saving this step and evaluating it."""
        step = self._step
        is_due = step > 0 and step % self._config.steps_between_evaluations == 0
        return self._evaluates and is_due and not self._reporter.has_evaluation(step)

    def _evaluate(self) -> None:
        """Evaluates; during training, also saves the weights if they are the best."""
        metrics = self._eval_metrics = self.trainer.evaluate()
        key = self._task.key_metric
        score, best_score = metrics[key], self.best.get(key, -np.inf)
        is_best = self._config.do_train and score > best_score
        if is_best:
            self.best = {"step": self._step, **metrics}
            self._save()
            if self._reporter.enabled:  # only on the chief
                self.checkpoints.mark_best(self._step, self.best)
                self._task.on_new_best_checkpoint(self._reporter.folder)
        self._reporter.log_eval(self._step, metrics, is_best, max(best_score, score))

    def _save(self) -> None:
        """Writes a checkpoint of the current step, unless there already is one."""
        self._last_save_time = time.monotonic()
        is_saved = self.checkpoints.newest() == self.checkpoints.prefix(self._step)
        if self._reporter.enabled and not is_saved:
            self.checkpoints.save(self.trainer.examples_seen)

    def _should_stop_early(self) -> bool:
        """Whether --early_stopping evaluations in a row brought no new best score.

        If so, this method logs it.
        """
        config, best, step = self._config, self.best, self._step
        patience = config.early_stopping * config.steps_between_evaluations
        if not patience or not best or step - best["step"] < patience:
            return False
        self._reporter.log(
            f"Stopped at step {step:,}: no better {self._task.key_metric} than at "
            f"step {best['step']:,} in {config.early_stopping} evaluations"
        )
        return True


def _restore(task, config, model, checkpoints, log) -> int:
    """Restores or initializes the model; returns the number of examples seen.

    The sources, in the order of priority: the best checkpoint of the run, if the run
    does not train and --checkpoint=best; the newest checkpoint of the run; the initial
    weights; random weights, if the run trains.
    """
    examples = 0
    initial_weights = config.initial_weights
    uses_best = config.checkpoint == "best" and not config.do_train
    if uses_best and checkpoints.restore_best():
        log(f"Using the best checkpoint of {config.output_dir}")
    elif newest := checkpoints.newest():
        examples = checkpoints.restore(newest, config.train_batch_size)
        log(f"Resuming from {newest}: weights, optimizer, {examples:,} examples seen")
    elif initial_weights:
        source = weights.open_source(initial_weights, config.checkpoint)
        strict = not config.do_train  # training can add missing weights
        group0 = config.init_from_group0
        loaded = task.load(model, source, init_from_group0=group0, strict=strict)
        log(f"Starting from {source.path}: {loaded}; fresh optimizer state")
        return 0
    elif config.do_train:
        note = task.initialize(model)
        log("Starting from random weights" + (f"; {note}" if note else ""))
    else:
        raise InputError(
            f"--output_dir={config.output_dir}: no checkpoint to evaluate, and no "
            f"--init_checkpoint"
        )
    if initial_weights:
        log(f"--init_checkpoint={initial_weights} is not used")
    return examples


def build_optimizer(config: TrainingSettings) -> keras.optimizers.Optimizer:
    """Creates the optimizer with its schedule, and with loss scaling for float16."""
    schedule = optimizers.WarmupPolynomialDecay(
        config.learning_rate,
        config.num_train_steps,
        config.num_warmup_steps,
        power=config.poly_power,
        start_warmup_step=config.start_warmup_step,
    )
    optimizer = _OPTIMIZERS[config.optimizer](
        schedule, weight_decay=config.weight_decay, global_clipnorm=1.0
    )
    if config.precision == "float16":
        return keras.optimizers.LossScaleOptimizer(optimizer)
    return optimizer


def _check(task, config: TrainingSettings) -> None:
    """Checks that the settings fit the task, and that the weights fit the data."""
    for name in ("eval_every_steps", "early_stopping"):
        value = getattr(config, name)
        if config.do_train and value and task.evaluation is None:
            raise InputError(
                f"--{name}={value}: no data to evaluate on; pass --do_eval"
            )
    model_folder = ModelFolder(config.initial_weights, output_dir=config.output_dir)
    for folder in model_folder.folders:
        task.check_folder(folder)


def _check_agreement(strategy, model, optimizer, examples_seen, config) -> None:
    """Checks that all workers start from the same step, example and weights.

    The sum of a number over all replicas must be this worker's number times the number
    of replicas.
    """
    replicas = strategy.num_replicas_in_sync
    if replicas == 1:
        return
    weight = keras.ops.convert_to_numpy(model.trainable_variables[0])
    numbers = (count_steps(optimizer), examples_seen, zlib.crc32(weight.tobytes()))
    # The sums are float32, which is exact below 2^24. So up to 4096 replicas can add
    # numbers below 4096.
    values = [float(number % 4096) for number in numbers]
    if devices.all_reduce_sum(strategy, values) != [replicas * x for x in values]:
        raise InputError(
            f"--output_dir={config.output_dir}: the workers see different "
            f"checkpoints; use a folder that all workers share"
        )
