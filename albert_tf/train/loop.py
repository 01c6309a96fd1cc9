"""One run of training and evaluation, whatever the task: orbit over `tf.distribute`."""

import contextlib
import dataclasses
import logging
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

import keras
import numpy as np
import orbit
import tensorflow as tf

from albert_tf import weights
from albert_tf.data import files, quiet, stopping
from albert_tf.errors import InputError
from albert_tf.model import optimizers
from albert_tf.tasks.base import Task
from albert_tf.tasks.settings.training import TrainingSettings
from albert_tf.train.checkpoints import Checkpoints, steps_made
from albert_tf.train.devices import DistributionSettings, create, is_chief
from albert_tf.train.report import Reporter, check_memory
from albert_tf.train.step import Trainer

# orbit prints every loop; `Reporter` says the same, and more, in one line.
orbit.controller._log = logging.getLogger(__name__).debug
# It warns of updates that float16 skips, too.
orbit.controller.logging = logging.getLogger("orbit")
orbit.controller.logging.setLevel(logging.ERROR)

# What notes, with the best checkpoint's figures, which examples they are of.
_JUDGED_ON = "evaluation_fingerprint"
_POLICIES = {
    "float32": "float32",
    "bfloat16": "mixed_bfloat16",
    "float16": "mixed_float16",
}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a run ends with.

    Attributes:
        figures: of the last evaluation; of the last steps if there was none.
        best: the step and the figures of the best checkpoint; empty if there is none.
        trainer: with the last weights.
        checkpoints: of the run's folder.
        strategy: the devices.
    """

    figures: Mapping[str, float]
    best: Mapping[str, float]
    trainer: Trainer
    checkpoints: Checkpoints
    strategy: tf.distribute.Strategy

    def use_best(self) -> None:
        """Puts the best checkpoint's weights in place, if there is one."""
        _wait_for_all(self.strategy)
        self.checkpoints.restore_best()


def prepare(
    config: TrainingSettings, devices: DistributionSettings
) -> tf.distribute.Strategy:
    """Finds the devices, sets precision and determinism: once, before all else.

    Raises:
        InputError: see `devices.create`.
    """
    quiet.tensorflow()
    strategy = create(devices)
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

        _together(strategy, config, lock)
        yield


def run(
    task: Task,
    config: TrainingSettings,
    strategy: tf.distribute.Strategy,
    log: IO[str] = sys.stderr,
    ready: Callable[[], None] = lambda: None,
) -> Outcome:
    """Trains and evaluates, going on from the newest checkpoint of the folder.

    Args:
        task: what to do.
        config: how.
        strategy: on which devices, see `prepare`.
        log: where progress goes.
        ready: called once all is known to fit, before anything is written.

    Raises:
        InputError: the settings do not fit the devices or the folder's checkpoints,
            another run is at work in the folder, or the loss or a gradient became
            infinite or not a number.
        Stopped: SIGTERM or SIGINT asked for it; where something was trained, a
            checkpoint of the last step is saved.
    """
    with locked(config, strategy):
        return _run_locked(task, config, strategy, log, ready)


def _run_locked(task, config, strategy, log, ready) -> Outcome:
    keras.utils.set_random_seed(config.seed)
    _check_batches(task, config, strategy)
    _check_sources(task, config)
    task.check_folder(Path(config.output_dir))
    if config.init_checkpoint:
        start = Path(config.init_checkpoint)
        task.check_folder(start if start.is_dir() else start.parent)
    with strategy.scope():
        model = task.build_model()
        optimizer = _optimizer(config)
        optimizer.build(model.trainable_variables)
    check_memory(model, task, config, strategy)
    folder = Path(config.output_dir)
    reporter = Reporter(folder, log, task, config, enabled=is_chief(strategy))
    checkpoints = Checkpoints(
        folder,
        model,
        optimizer,
        config.keep_checkpoint_max,
        reporter.say,
        task.training.fingerprint if config.do_train and task.training else None,
    )
    examples_seen = _start(task, config, strategy, model, checkpoints, reporter)
    _check_agreement(strategy, model, optimizer, examples_seen, config)

    def prepare_folder():
        if is_chief(strategy):
            checkpoints.remove_unfinished()
            if config.do_train:
                task.describe(folder)
        ready()

    _together(strategy, config, prepare_folder)
    _spread_seeds(strategy, model)
    reporter.started(model, strategy, steps_made(optimizer))
    with stopping.watched(reporter.say) as watch:
        trainer = Trainer(
            task, config, strategy, model, optimizer, examples_seen, reporter.say, watch
        )
        work = _Run(config, strategy, trainer, checkpoints, reporter)
        figures = work.run()
    return Outcome(figures, work.best, trainer, checkpoints, strategy)


class _Run:
    """Drives the controller from one line, checkpoint or evaluation to the next."""

    def __init__(self, config, strategy, trainer, checkpoints, reporter):
        self._config = config
        self._trainer = trainer
        self._checkpoints = checkpoints
        self._reporter = reporter
        self._writes = is_chief(strategy)
        self._on_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
        self._saved = self._step
        self._judged_on = self._evaluated_examples()
        # Every worker has it, though one alone writes it down.
        self.best: Mapping[str, float] = self._comparable(checkpoints.best)
        self._controller = orbit.Controller(
            global_step=trainer.optimizer.iterations.value,
            trainer=trainer,
            evaluator=trainer,
            strategy=strategy,
            steps_per_loop=self._steps_to_next_event,
            train_actions=[self._trained],
            summary_dir=str(reporter.folder / "summaries") if self._writes else None,
            eval_summary_dir=str(reporter.folder / "summaries/eval")
            if self._writes
            else None,
        )

    def run(self) -> dict[str, float]:
        """Trains, if asked, and evaluates, if asked.

        Raises:
            Stopped: a signal asked for it; the state is saved.
        """
        try:
            figures = self._train_and_evaluate()
            self._trainer.stop_if_asked()
        except stopping.Stopped as stop:
            saved = self._config.do_train and self._step > 0
            if saved:
                self._save()
            self._reporter.say(
                f"Stopped by {stop.signal.name} at step {self._step:,}"
                f"{': saved' if saved else ''}; run the same command again to resume"
            )
            raise
        return figures

    def _train_and_evaluate(self) -> dict[str, float]:
        config, figures = self._config, {}
        evaluates = self._trainer.task.evaluation is not None
        if config.do_train:
            if evaluates and self._reporter.lacks_evaluation(
                self._step, config.steps_between_evaluations
            ):
                figures = self._evaluate()  # the run was stopped just before it
            while self._step < config.num_train_steps and not self._stale():
                self._controller.train(self._next_stop(evaluates))
                if evaluates:
                    figures = self._evaluate()
            self._reporter.finish()
        if evaluates and not figures:
            figures = self._evaluate()
        return figures or self._reporter.last

    def _evaluated_examples(self) -> int | None:
        """Returns a number that tells what is evaluated; None where that is unknown."""
        source, config = self._trainer.task.evaluation, self._config
        fingerprint = None if source is None else source.fingerprint
        if source is None or fingerprint is None:
            return None
        most = config.max_eval_steps * config.eval_batch_size or len(source)
        return zlib.crc32(str(min(most, len(source))).encode(), fingerprint)

    def _comparable(self, best: Mapping[str, float]) -> Mapping[str, float]:
        """Returns what is known of the best checkpoint, if it was judged as now."""
        if self._judged_on is None or best.get(_JUDGED_ON) in (None, self._judged_on):
            return best
        if self._config.do_train:
            self._reporter.say(
                f"The best checkpoint so far, of step {best['step']:,}, was judged on "
                f"other examples; the best is sought anew"
            )
        return {}

    def _stale(self) -> bool:
        """Whether the best evaluation is long enough ago to stop."""
        config, best = self._config, self.best
        wanted = config.early_stopping * config.steps_between_evaluations
        if not wanted or not best or self._step - best["step"] < wanted:
            return False
        self._reporter.say(
            f"Stopped at step {self._step:,}: no better "
            f"{self._trainer.task.key_metric} than at step {best['step']:,} in "
            f"{config.early_stopping} evaluations"
        )
        return True

    @property
    def _step(self) -> int:
        return steps_made(self._trainer.optimizer)

    def _next_stop(self, evaluates: bool) -> int:
        end = self._config.num_train_steps
        if not evaluates:
            return end
        between = self._config.steps_between_evaluations
        return min(end, (self._step // between + 1) * between)

    def _steps_to_next_event(self, step: int) -> int:
        config = self._config
        if not self._reporter.last:
            return 1  # a first line at once
        steps = min(
            between - step % between
            for between in (config.log_steps, config.save_checkpoints_steps)
        )
        return min(steps, config.iterations_per_loop) if self._on_tpu else steps

    def _trained(self, figures: Mapping[str, float]) -> None:
        """Reports and saves after some steps, where it is time to."""
        step, config = self._step, self._config
        last = step == config.num_train_steps
        if step % config.log_steps == 0 or last or not self._reporter.last:
            self._reporter.trained(step, figures)
            self._trainer.forget()
        if step % config.save_checkpoints_steps == 0 or last:
            self._save()

    def _save(self) -> Path:
        """Writes a checkpoint, unless this step's is written; returns its path."""
        if self._writes and self._saved != self._step:
            self._checkpoints.save(self._trainer.examples_seen)
            self._saved = self._step
        return self._checkpoints.prefix(self._step)

    def _evaluate(self) -> dict[str, float]:
        figures = self._controller.evaluate()
        key = self._trainer.task.key_metric
        best = self.best.get(key, -np.inf)
        better = self._config.do_train and figures[key] > best
        if better:
            self.best = {"step": self._step, **figures}
            if self._judged_on is not None:
                self.best = {**self.best, _JUDGED_ON: self._judged_on}
            if self._writes:
                self._checkpoints.mark_best(self._save(), self.best)
                self._trainer.task.best_marked(self._reporter.folder, figures)
        # Last: a run that is killed before it evaluates again.
        self._reporter.evaluated(self._step, figures, better, max(best, figures[key]))
        return figures


def _start(task, config, strategy, model, checkpoints, reporter) -> int:
    """Restores or starts the model; returns the examples seen. Says which it did."""
    uses_best = config.checkpoint == "best" and not config.do_train
    if uses_best and checkpoints.restore_best(with_step=True):
        reporter.say(f"Using the best checkpoint of {config.output_dir}")
        if config.init_checkpoint:
            reporter.say(f"--init_checkpoint={config.init_checkpoint} is not used")
        return 0
    newest = checkpoints.newest()
    if newest is not None:
        examples_seen = checkpoints.restore(newest, config.train_batch_size)
        reporter.say(
            f"Going on from {newest}: weights, optimizer, {examples_seen:,} examples "
            f"seen"
        )
        if config.init_checkpoint:
            reporter.say(f"--init_checkpoint={config.init_checkpoint} is not used")
        return examples_seen
    if config.init_checkpoint:
        source = weights.open_source(config.init_checkpoint, config.checkpoint)
        done = task.load(
            model,
            source,
            init_from_group0=config.init_from_group0,
            complete=not config.do_train,
        )
        reporter.say(f"Starting from {source.path}: {done}; optimizer and step at 0")
    elif not config.do_train:
        raise InputError(
            f"--output_dir={config.output_dir}: no checkpoint to evaluate, and no "
            f"--init_checkpoint"
        )
    else:
        done = task.initialize(model)
        reporter.say("Starting from random weights" + (f"; {done}" if done else ""))
    return 0


def _check_agreement(strategy, model, optimizer, examples_seen, config) -> None:
    """Refuses workers that begin with different weights or at different places."""
    if strategy.num_replicas_in_sync == 1:
        return
    weight = keras.ops.convert_to_numpy(model.trainable_variables[0])
    # Small enough for sums over thousands of replicas to be exact.
    own = np.array([steps_made(optimizer), examples_seen, zlib.crc32(weight.tobytes())])
    own = (own % 4096).astype("float32")

    if (_summed(strategy, own) != own * strategy.num_replicas_in_sync).any():
        raise InputError(
            f"--output_dir={config.output_dir}: the workers found different "
            f"checkpoints there; expected a folder that all of them share"
        )


def _wait_for_all(strategy) -> None:
    """Lets no worker go on before all are here."""
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        _summed(strategy, np.zeros(1, np.float32))


def _together(strategy, config, work: Callable[[], None]) -> None:
    """Does something on every worker; where one of them refuses, all of them end.

    The others would wait for that one in their next step.

    Raises:
        InputError: that of `work`, or another worker had one.
    """
    refusal = None
    try:
        work()
    except InputError as mistake:
        refusal = mistake
    refused = refusal is not None
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        refused = bool(_summed(strategy, np.full(1, refused, np.float32)) > 0)
    if refused:
        raise refusal or InputError(
            f"--output_dir={config.output_dir}: refused by another worker, whose log "
            f"has the reason"
        )


def _summed(strategy, own: np.ndarray) -> np.ndarray:
    """Adds up float32 numbers over the replicas of all workers."""

    def summed():
        replicas = tf.distribute.get_replica_context()
        return replicas.all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(own))

    found = strategy.run(tf.function(summed))
    return strategy.experimental_local_results(found)[0].numpy()


def _spread_seeds(strategy, model) -> None:
    """Lets every replica drop other values; the first keeps the seeds it has.

    The states of the seed generators are equal on all replicas, and each replica counts
    its own on.
    """
    if strategy.num_replicas_in_sync == 1:
        return

    def number():
        replicas = tf.distribute.get_replica_context()
        return replicas.replica_id_in_sync_group

    numbers = strategy.experimental_local_results(strategy.run(number))
    for variable in model.non_trainable_variables:
        parts = strategy.experimental_local_results(variable.value)
        for replica, part in zip(numbers, parts, strict=True):
            offset = tf.constant([int(replica), 0], part.dtype)
            part.assign(part + offset)


def _optimizer(config: TrainingSettings) -> keras.optimizers.Optimizer:
    schedule = optimizers.WarmupPolynomialDecay(
        config.learning_rate,
        config.num_train_steps,
        config.num_warmup_steps,
        power=config.poly_power,
        start_warmup_step=config.start_warmup_step,
    )
    kind = {"lamb": optimizers.Lamb, "adamw": optimizers.AdamW}[config.optimizer]
    optimizer = kind(schedule, weight_decay=config.weight_decay, global_clipnorm=1.0)
    if config.precision == "float16":
        optimizer.gradients_are_summed = True
        return keras.optimizers.LossScaleOptimizer(optimizer)
    return optimizer


def _check_sources(task, config: TrainingSettings) -> None:
    if config.do_train and task.training is None:
        raise InputError("--do_train: the task has no examples to train on")
    for name in ("eval_every_steps", "early_stopping"):
        value = getattr(config, name)
        if config.do_train and value and task.evaluation is None:
            raise InputError(
                f"--{name}={value}: nothing to evaluate on; expected --do_eval or "
                f"files for it"
            )


def _check_batches(task, config: TrainingSettings, strategy) -> None:
    replicas = strategy.num_replicas_in_sync
    pieces = replicas * config.gradient_accumulation_steps
    if config.do_train and config.train_batch_size % pieces:
        raise InputError(
            f"--train_batch_size={config.train_batch_size}: expected a multiple of "
            f"{pieces} ({replicas} devices x {config.gradient_accumulation_steps} "
            f"pieces)"
        )
    if task.evaluation is not None and config.eval_batch_size % replicas:
        raise InputError(
            f"--eval_batch_size={config.eval_batch_size}: expected a multiple of "
            f"{replicas}, the number of devices"
        )
