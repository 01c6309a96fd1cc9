"""The training loop, whatever the task: start or resume, train, log, save, evaluate."""

import contextlib
import dataclasses
import logging
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

import keras
import numpy as np
import orbit
import tensorflow as tf

from albert_tf import errors, weights
from albert_tf.data import files, quiet, stopping
from albert_tf.errors import InputError
from albert_tf.model import optimizers
from albert_tf.tasks.base import Task
from albert_tf.tasks.settings.training import TrainingSettings
from albert_tf.train import devices, memory, trackers
from albert_tf.train.checkpoints import Checkpoints, steps_made
from albert_tf.train.devices import is_chief
from albert_tf.train.report import Reporter
from albert_tf.train.step import Trainer
from albert_tf.weights.folder import ModelFolder

# orbit has no setting that stops it from printing every call of the trainer, which the
# reporter logs, and from warning of updates that float16 skips.
orbit.controller._log = lambda message: None
orbit.controller.logging = logging.getLogger("orbit")
orbit.controller.logging.setLevel(logging.ERROR)

# In the best checkpoint's notes: which examples its metrics are of.
FINGERPRINT = "evaluation_fingerprint"
# Saves in a row that fail until a run ends, and the wait where no next one comes.
_ATTEMPTS, _SECONDS_BETWEEN = 3, 10.0
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
        devices.wait_for_all(self.strategy)
        self.checkpoints.restore_best()


def prepare(
    config: TrainingSettings, distribution: devices.DistributionSettings
) -> tf.distribute.Strategy:
    """Creates the strategy, sets precision and determinism: once, before all else.

    Raises:
        InputError: see `trackers.check` and `devices.create`.
    """
    trackers.check(config)
    quiet.tensorflow()
    strategy = devices.create(distribution)
    keras.config.set_dtype_policy(_POLICIES[config.precision])
    if config.deterministic:
        tf.config.experimental.enable_op_determinism()
    return strategy


@contextlib.contextmanager
def locked(
    config: TrainingSettings, strategy: tf.distribute.Strategy
) -> Iterator[None]:
    """Keeps other runs out of `output_dir`, which the first worker does for all.

    Raises:
        InputError: see `files.locked`, on every worker.
    """
    with contextlib.ExitStack() as stack:

        def lock():
            if is_chief(strategy):
                stack.enter_context(files.locked(Path(config.output_dir)))

        devices.together(strategy, config.output_dir, lock)
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
            another run is at work in the folder, or the loss or a gradient became
            infinite or not a number.
        UnsavedError: no checkpoint could be written, three times in a row.
        Stopped: SIGTERM or SIGINT asked for it; where something was trained, a
            checkpoint of the last step is saved.
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
    memory.check(model, task, config, strategy)
    folder = Path(config.output_dir)
    reporter = Reporter(folder, log, task, config, enabled=is_chief(strategy))
    checkpoints = Checkpoints(
        folder,
        model,
        optimizer,
        config.keep_checkpoint_max,
        reporter.log,
        task.training.fingerprint if config.do_train and task.training else None,
    )
    examples_seen = _start(task, config, model, checkpoints, reporter.log)
    _check_agreement(strategy, model, optimizer, examples_seen, config)

    def prepare_folder():
        if is_chief(strategy):
            checkpoints.remove_unfinished()
            if config.do_train:
                task.describe(folder)
        ready()

    devices.together(strategy, config.output_dir, prepare_folder)
    devices.spread_seeds(strategy, model)
    reporter.started(model, strategy, steps_made(optimizer))
    with contextlib.closing(reporter), stopping.watched(reporter.log) as watch:
        trainer = Trainer(
            task, config, strategy, model, optimizer, examples_seen, reporter.log, watch
        )
        loop = _Loop(config, strategy, trainer, checkpoints, reporter)
        metrics = loop.run()
    return Outcome(metrics, loop.best, trainer, checkpoints, strategy)


class _Loop:
    """Lets orbit train from one line, checkpoint or evaluation to the next."""

    def __init__(self, config, strategy, trainer, checkpoints, reporter):
        self._config = config
        self._trainer = trainer
        self._task = trainer.task
        self._checkpoints = checkpoints
        self._reporter = reporter
        self._is_chief = is_chief(strategy)
        self._strategy = strategy
        self._saved = self._step
        self._failed_saves = 0
        self._saved_at = time.monotonic()
        # The step after which --save_checkpoints_minutes are over.
        self._last_in_time = sys.maxsize
        self._seconds_per_step = 0.0
        self._fingerprint = self._evaluation_fingerprint()
        # Every worker has it, though only the chief writes it.
        self.best: Mapping[str, float] = self._comparable(checkpoints.best)
        # Means of the steps since the last line, of all updates that orbit asked for.
        self._trained: dict[str, float] = {}
        self._on_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
        # No summary_dir: the reporter writes a point for each of its lines. orbit would
        # write one at every checkpoint, too, of as many steps as came since the line.
        self._controller = orbit.Controller(
            global_step=trainer.optimizer.iterations.value,
            trainer=trainer,
            evaluator=trainer,
            strategy=strategy,
            steps_per_loop=config.iterations_per_loop if self._on_tpu else sys.maxsize,
            train_actions=[self._trained.update],
        )

    def run(self) -> Mapping[str, float]:
        """Trains and evaluates as far as asked; returns the last metrics.

        Raises:
            Stopped: a signal asked for it; the state is saved.
        """
        try:
            metrics = self._train_and_evaluate()
            self._trainer.stop_if_asked()
        except stopping.Stopped as stop:
            saved = self._config.do_train and self._step > 0
            if saved:
                self._save(is_last=True)
            self._reporter.log(
                f"Stopped by {stop.signal.name} at step {self._step:,}"
                f"{': saved' if saved else ''}; run the same command again to resume"
            )
            raise
        return metrics

    def _train_and_evaluate(self) -> Mapping[str, float]:
        config = self._config
        evaluated: Mapping[str, float] = {}
        if config.do_train:
            if self._lacks_evaluation():
                evaluated = self._evaluate()
            ended = self._step >= self._last_step or self._is_stale()
            while not ended:
                self._train()
                ended = self._step >= self._last_step
                if self._evaluates and self._is_due(config.steps_between_evaluations):
                    evaluated = self._evaluate()
                    ended = ended or self._is_stale()
            if self._trained:
                best = {k: v for k, v in self.best.items() if k != FINGERPRINT}
                self._reporter.finished(best)
        if self._evaluates and not evaluated:
            evaluated = self._evaluate()
        return evaluated or self._trained

    def _train(self) -> None:
        """Trains to the next event; logs and saves where that is due."""
        config = self._config
        first = not self._trained  # logged after one step
        step, begin = self._step, time.monotonic()
        self._controller.train(step + 1 if first else self._next_event())
        self._seconds_per_step = (time.monotonic() - begin) / (self._step - step)
        if first or self._is_due(config.log_steps):
            self._reporter.trained(self._step, self._trained, self._last_step)
            self._trainer.start_window()
        late = self._step >= self._last_in_time and self._steps_in_time() < 1
        if late or self._is_due(config.save_checkpoints_steps):
            self._save()

    @property
    def _step(self) -> int:
        return steps_made(self._trainer.optimizer)

    @property
    def _evaluates(self) -> bool:
        return self._task.evaluation is not None

    def _next_event(self) -> int:
        """Returns the step at which something is due next."""
        config, step = self._config, self._step
        intervals = [config.log_steps, config.save_checkpoints_steps]
        if self._evaluates:
            intervals.append(config.steps_between_evaluations)
        steps = [step + interval - step % interval for interval in intervals]
        self._last_in_time = step + max(self._steps_in_time(), 1)
        return min(*steps, self._last_in_time, self._last_step)

    @property
    def _last_step(self) -> int:
        return self._config.num_train_steps

    def _steps_in_time(self) -> int:
        """Returns how many steps fit in before a checkpoint is due."""
        seconds = 60 * self._config.save_checkpoints_minutes
        if not seconds:
            return sys.maxsize
        left = seconds - (time.monotonic() - self._saved_at)
        steps = left / max(self._seconds_per_step, 1e-9)
        if devices.is_multi_worker(self._strategy):
            # On each of them the same.
            steps, count = devices.add_up(self._strategy, [steps, 1.0])
            steps /= count
        return int(steps)

    def _is_due(self, interval: int) -> bool:
        """Whether an event is due after this step: at intervals, and at the end."""
        step = self._step
        return step % interval == 0 or step >= self._last_step

    def _lacks_evaluation(self) -> bool:
        """Whether the run was stopped just before an evaluation."""
        step = self._step
        due = step > 0 and step % self._config.steps_between_evaluations == 0
        return self._evaluates and due and not self._reporter.has_evaluation(step)

    def _evaluate(self) -> Mapping[str, float]:
        metrics = self._controller.evaluate()
        key = self._task.key_metric
        best = self.best.get(key, -np.inf)
        better = self._config.do_train and metrics[key] > best
        if better:
            self.best = {"step": self._step, **metrics}
            if self._fingerprint is not None:
                self.best = {**self.best, FINGERPRINT: self._fingerprint}
            self._save(marks_best=True)
            if self._is_chief:
                self._task.best_marked(self._reporter.folder, metrics)
        best = max(best, metrics[key])
        self._reporter.evaluated(self._step, metrics, better, best)
        return metrics

    def _save(self, *, marks_best: bool = False, is_last: bool = False) -> None:
        """Writes a checkpoint, unless this step's is written.

        One that fails is warned of, and the next save is the next attempt. The best and
        the last one have no next: they are tried again here.

        Raises:
            UnsavedError: too many saves in a row failed, on every worker.
        """
        config = self._config
        waits = marks_best or is_last or self._step >= self._last_step
        self._saved_at = time.monotonic()

        def save():
            if self._is_chief and self._saved != self._step:
                self._checkpoints.save(self._trainer.examples_seen)
                self._saved = self._step
            if self._is_chief and marks_best:
                prefix = self._checkpoints.prefix(self._step)
                self._checkpoints.mark_best(prefix, self.best)

        while failure := devices.refusal_of_any(
            self._strategy, config.output_dir, save
        ):
            self._failed_saves += 1
            if self._failed_saves == _ATTEMPTS:
                raise errors.UnsavedError(
                    f"{failure}; given up after {_ATTEMPTS} saves in a row, the same "
                    f"command resumes from the last checkpoint"
                ) from failure
            self._reporter.log(f"Warning: {failure}; the next save tries again")
            if not waits:
                return
            time.sleep(_SECONDS_BETWEEN)
        self._failed_saves = 0

    def _is_stale(self) -> bool:
        """Whether the best evaluation is long enough ago to stop early."""
        config, best, step = self._config, self.best, self._step
        patience = config.early_stopping * config.steps_between_evaluations
        if not patience or not best or step - best["step"] < patience:
            return False
        if step < self._last_step:
            self._reporter.log(
                f"Stopped at step {step:,}: no better {self._task.key_metric} than at "
                f"step {best['step']:,} in {config.early_stopping} evaluations"
            )
        return True

    def _evaluation_fingerprint(self) -> int | None:
        """Returns a number that identifies what is evaluated; None: unknown."""
        source, config = self._task.evaluation, self._config
        fingerprint = None if source is None else source.fingerprint
        if source is None or fingerprint is None:
            return None
        most = config.max_eval_steps * config.eval_batch_size or len(source)
        return zlib.crc32(str(min(most, len(source))).encode(), fingerprint)

    def _comparable(self, best: Mapping[str, float]) -> Mapping[str, float]:
        """Returns the best checkpoint's metrics, if they are of the same examples."""
        if self._fingerprint is None:
            return best
        if best.get(FINGERPRINT) in (None, self._fingerprint):
            return best
        if self._config.do_train:
            self._reporter.log(
                f"The best checkpoint so far, of step {best['step']:,}, was evaluated "
                f"on other examples: the next evaluation replaces it"
            )
        return {}


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
        log(f"Starting from {source.path}: {loaded}; optimizer and step at 0")
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
    optimizer.gradients_are_summed = True  # by the step, see `step.py`
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
    if devices.add_up(strategy, own) != [replicas * number for number in own]:
        raise InputError(
            f"--output_dir={config.output_dir}: the workers see different "
            f"checkpoints there; expected a folder that all of them share"
        )
