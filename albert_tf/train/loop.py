"""The training loop, whatever the task: start or resume, train, log, save, evaluate."""

import contextlib
import dataclasses
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
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
from albert_tf.train.checkpoints import Checkpoints, steps_made
from albert_tf.train.devices import is_chief
from albert_tf.train.report import Reporter
from albert_tf.train.step import Trainer
from albert_tf.weights.folder import ModelFolder

_OPTIMIZERS = {"lamb": optimizers.Lamb, "adamw": optimizers.AdamW}
_POLICIES = {
    "float32": "float32",
    "bfloat16": "mixed_bfloat16",
    "float16": "mixed_float16",
}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a run ends with.

    Attributes:
        metrics: of the last evaluation; of the last steps if there was none.
        best: the step and the metrics of the best checkpoint; empty if there is none.
        trainer: with the last weights.
        checkpoints: of the run's folder.
        strategy: the devices.
    """

    metrics: Mapping[str, float]
    best: Mapping[str, float]
    trainer: Trainer
    checkpoints: Checkpoints
    strategy: tf.distribute.Strategy

    @property
    def writes(self) -> bool:
        """Whether this worker writes files."""
        return is_chief(self.strategy)

    def use_best(self) -> None:
        """Restores the best checkpoint's weights, if there is one."""
        devices.barrier(self.strategy)
        self.checkpoints.restore_best()


def prepare(
    config: TrainingSettings, distribution: devices.DistributionSettings
) -> tf.distribute.Strategy:
    """Creates the strategy, sets precision and determinism: once, before all else.

    Raises:
        InputError: see `trackers.check` and `devices.create`.
    """
    trackers.check(config)
    strategy = devices.create(distribution)
    keras.config.set_dtype_policy(_POLICIES[config.precision])
    if config.deterministic:
        tf.config.experimental.enable_op_determinism()
    return strategy


@contextlib.contextmanager
def locked(
    config: TrainingSettings, strategy: tf.distribute.Strategy
) -> Iterator[None]:
    """Keeps other runs out of `output_dir`, which the chief locks for all workers.

    Raises:
        InputError: see `files.locked`; or a worker was lost.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(devices.worker_errors(strategy))
        if is_chief(strategy):
            stack.enter_context(files.locked(Path(config.output_dir)))
        yield


def run(
    task: Task,
    config: TrainingSettings,
    strategy: tf.distribute.Strategy,
    log: IO[str] = sys.stderr,
    ready: Callable[[], None] = lambda: None,
) -> Outcome:
    """Trains and evaluates, resuming from the newest checkpoint of the folder.

    Args:
        task: what to do.
        config: how.
        strategy: on which devices, see `prepare`.
        log: where progress goes.
        ready: called once all is checked, before anything is written.

    Raises:
        InputError: the settings do not fit the devices or the folder's checkpoints,
            another run is at work in the folder, the loss or a gradient became infinite
            or not a number, a file cannot be written, or a worker was lost.
        Stopped: SIGTERM or SIGINT asked for it; if something was trained, a checkpoint
            of the last step is saved.
    """
    with locked(config, strategy):
        return _run_locked(task, config, strategy, log, ready)


def _run_locked(task, config, strategy, log, ready) -> Outcome:
    keras.utils.set_random_seed(config.seed)
    _check(task, config, strategy)
    with strategy.scope():
        model = task.build_model()
        optimizer = build_optimizer(config)
        optimizer.build(model.trainable_variables)
    folder = Path(config.output_dir)
    reporter = Reporter(folder, log, task, config, enabled=is_chief(strategy))
    checkpoints = Checkpoints(folder, model, optimizer, config.keep_checkpoint_max)
    examples_seen = _start(task, config, model, checkpoints, reporter.log)
    # Also keeps the chief from writing before all workers have read.
    _check_agreement(strategy, model, optimizer, examples_seen, config)
    if is_chief(strategy) and config.do_train:
        task.describe(folder)
    ready()
    devices.fold_in_replica_id(strategy, model)
    reporter.started(model, strategy, steps_made(optimizer))
    with contextlib.closing(reporter), stopping.watched() as flag:
        trainer = Trainer(
            task, config, strategy, model, optimizer, examples_seen, reporter.log, flag
        )
        loop = _Loop(config, strategy, trainer, checkpoints, reporter)
        metrics = loop.run()
    return Outcome(metrics, loop.best, trainer, checkpoints, strategy)


class _Loop:
    """Trains from one line, checkpoint or evaluation to the next."""

    def __init__(self, config, strategy, trainer, checkpoints, reporter):
        self._config = config
        self._trainer = trainer
        self._task = trainer.task
        self._checkpoints = checkpoints
        self._reporter = reporter
        self._is_chief = is_chief(strategy)
        self._saved = self._step
        self._saved_at = time.monotonic()
        # Every worker has it, though only the chief writes it.
        self.best: Mapping[str, float] = checkpoints.best

    @property
    def _step(self) -> int:
        return steps_made(self._trainer.optimizer)

    def run(self) -> Mapping[str, float]:
        """Trains and evaluates as far as asked; returns the last metrics.

        Raises:
            Stopped: a signal asked for it; the state is saved.
        """
        try:
            return self._train_and_evaluate()
        except stopping.Stopped as stop:
            saved = self._config.do_train and self._step > 0
            if saved:
                self._save()
            self._reporter.log(
                f"Stopped by {stop.signal.name} at step {self._step:,}"
                f"{': saved' if saved else ''}; run the same command again to resume"
            )
            raise

    def _train_and_evaluate(self) -> Mapping[str, float]:
        config, evaluates = self._config, self._task.evaluation is not None
        trained: Mapping[str, float] = {}
        evaluated: Mapping[str, float] = {}
        if config.do_train:
            if evaluates and self._lacks_evaluation():
                evaluated = self._evaluate()
            ended = self._step >= config.num_train_steps or self._is_stale()
            while not ended:
                first, step = not trained, self._step  # logged after one step
                metrics = self._trainer.train(1 if first else self._steps_to_event())
                if self._step == step:
                    continue  # float16 has skipped the updates
                trained = metrics
                if first or self._is_due(config.log_steps):
                    self._reporter.trained(self._step, trained)
                    self._trainer.start_window()
                if self._is_due(config.save_checkpoints_steps) or self._is_late():
                    self._save()
                ended = self._step >= config.num_train_steps
                if evaluates and self._is_due(config.steps_between_evaluations):
                    evaluated = self._evaluate()
                    ended = ended or self._is_stale()
            if trained:
                self._reporter.finished(self.best)
        if evaluates and not evaluated:
            evaluated = self._evaluate()
        return evaluated or trained

    def _steps_to_event(self) -> int:
        """Returns the number of steps until something is due."""
        config, step = self._config, self._step
        intervals = [config.log_steps, config.save_checkpoints_steps]
        if self._task.evaluation is not None:
            intervals.append(config.steps_between_evaluations)
        left = (interval - step % interval for interval in intervals)
        return min(*left, config.num_train_steps - step, config.iterations_per_loop)

    def _is_due(self, interval: int) -> bool:
        """Whether an event is due after this step: at intervals, and at the end."""
        step = self._step
        return step % interval == 0 or step >= self._config.num_train_steps

    def _is_late(self) -> bool:
        """Whether the last checkpoint is --save_checkpoints_minutes old."""
        seconds = 60 * self._config.save_checkpoints_minutes
        return 0 < seconds <= time.monotonic() - self._saved_at

    def _lacks_evaluation(self) -> bool:
        """Whether the run was stopped just before an evaluation."""
        step = self._step
        due = step > 0 and step % self._config.steps_between_evaluations == 0
        return due and not self._reporter.has_evaluation(step)

    def _evaluate(self) -> Mapping[str, float]:
        metrics, key = self._trainer.evaluate(), self._task.key_metric
        best = self.best.get(key, -np.inf)
        better = self._config.do_train and metrics[key] > best
        if better:
            self.best = {"step": self._step, **metrics}
            self._save()
            if self._is_chief:
                self._checkpoints.mark_best(self._step, self.best)
                self._task.best_marked(self._reporter.folder, metrics)
        best = max(best, metrics[key])
        self._reporter.evaluated(self._step, metrics, better, best)
        return metrics

    def _save(self) -> None:
        """Writes a checkpoint, unless this step's is written."""
        self._saved_at = time.monotonic()
        if self._is_chief and self._saved != self._step:
            self._checkpoints.save(self._trainer.examples_seen)
            self._saved = self._step

    def _is_stale(self) -> bool:
        """Whether the best evaluation is long enough ago to stop early."""
        config, best, step = self._config, self.best, self._step
        patience = config.early_stopping * config.steps_between_evaluations
        if not patience or not best or step - best["step"] < patience:
            return False
        if step < config.num_train_steps:
            self._reporter.log(
                f"Stopped at step {step:,}: no better {self._task.key_metric} than at "
                f"step {best['step']:,} in {config.early_stopping} evaluations"
            )
        return True


def _start(task, config, model, checkpoints, log) -> int:
    """Restores or starts the model and logs from what; returns the examples seen."""
    uses_best = config.checkpoint == "best" and not config.do_train
    if uses_best and checkpoints.restore_best(with_step=True):
        log(f"Using the best checkpoint of {config.output_dir}")
        examples_seen = 0
    elif (newest := checkpoints.newest()) is not None:
        examples_seen = checkpoints.restore(newest, config.train_batch_size)
        log(
            f"Resuming from {newest}: weights, optimizer, {examples_seen:,} examples "
            f"seen"
        )
    else:
        _start_anew(task, config, model, log)
        return 0
    if config.init_checkpoint:
        log(f"--init_checkpoint={config.init_checkpoint} is not used")
    return examples_seen


def _start_anew(task, config, model, log) -> None:
    if config.init_checkpoint:
        source = weights.open_source(config.init_checkpoint, config.checkpoint)
        loaded = task.load(
            model,
            source,
            init_from_group0=config.init_from_group0,
            complete=not config.do_train,
        )
        log(f"Starting from {source.path}: {loaded}; fresh optimizer state")
    elif not config.do_train:
        raise InputError(
            f"--output_dir={config.output_dir}: no checkpoint to evaluate, and no "
            f"--init_checkpoint"
        )
    else:
        details = task.initialize(model)
        log("Starting from random weights" + (f"; {details}" if details else ""))


def build_schedule(config: TrainingSettings) -> optimizers.WarmupPolynomialDecay:
    """Creates the learning rate's schedule."""
    return optimizers.WarmupPolynomialDecay(
        config.learning_rate,
        config.num_train_steps,
        config.num_warmup_steps,
        power=config.poly_power,
        start_warmup_step=config.start_warmup_step,
    )


def build_optimizer(
    config: TrainingSettings,
) -> keras.optimizers.Optimizer:
    """Creates the optimizer with its schedule; for float16 it scales."""
    optimizer = _OPTIMIZERS[config.optimizer](
        build_schedule(config), weight_decay=config.weight_decay, global_clipnorm=1.0
    )
    if config.precision == "float16":
        return keras.optimizers.LossScaleOptimizer(optimizer)
    return optimizer


def _check(task, config: TrainingSettings, strategy) -> None:
    """Refuses settings that fit neither devices, task nor the folders they name."""
    replicas = strategy.num_replicas_in_sync
    parts = replicas * config.gradient_accumulation_steps
    if config.do_train and config.train_batch_size % parts:
        raise InputError(
            f"--train_batch_size={config.train_batch_size}: expected a multiple of "
            f"{parts} ({replicas} devices x {config.gradient_accumulation_steps} "
            f"microbatches)"
        )
    if task.evaluation is not None and config.eval_batch_size % replicas:
        raise InputError(
            f"--eval_batch_size={config.eval_batch_size}: expected a multiple of "
            f"{replicas}, the number of devices"
        )
    if config.do_train and task.training is None:
        raise InputError("--do_train: the task has no examples to train on")
    for name in ("eval_every_steps", "early_stopping"):
        value = getattr(config, name)
        if config.do_train and value and task.evaluation is None:
            raise InputError(
                f"--{name}={value}: nothing to evaluate on; expected --do_eval or "
                f"files for it"
            )
    start = ModelFolder(config.init_checkpoint, output_dir=config.output_dir)
    for folder in start.folders:
        task.check_folder(folder)


def _check_agreement(strategy, model, optimizer, examples_seen, config) -> None:
    """Refuses workers that begin with different weights or at different places."""
    replicas = strategy.num_replicas_in_sync
    if replicas == 1:
        return
    weight = keras.ops.convert_to_numpy(model.trainable_variables[0])
    numbers = (steps_made(optimizer), examples_seen, zlib.crc32(weight.tobytes()))
    # Small enough for sums over thousands of replicas to be exact.
    own = [float(number % 4096) for number in numbers]
    if devices.all_reduce_sum(strategy, own) != [replicas * number for number in own]:
        raise InputError(
            f"--output_dir={config.output_dir}: the workers see different "
            f"checkpoints there; expected a folder that all of them share"
        )
