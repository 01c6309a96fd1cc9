"""One run of training and evaluation, whatever the task: orbit over `tf.distribute`."""

import dataclasses
import logging
import sys
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Literal

import keras
import numpy as np
import orbit
import tensorflow as tf

from albert_tf import batches, distribution, flags, optimizers
from albert_tf.checkpoints import Checkpoints, steps_made
from albert_tf.errors import InputError
from albert_tf.reporting import Reporter
from albert_tf.tasks.base import Task

# orbit prints every loop; `Reporter` says the same, and more, in one line.
orbit.controller._log = logging.getLogger(__name__).debug

_POLICIES = {
    "float32": "float32",
    "bfloat16": "mixed_bfloat16",
    "float16": "mixed_float16",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How to train and evaluate.

    Raises:
        InputError: a value is out of range, or two contradict each other.
    """

    output_dir: str = flags.field(
        "Folder of the run: checkpoints, figures, curves. A run that finds its own "
        "checkpoints there goes on from the newest."
    )
    init_checkpoint: str | None = flags.field(
        "Weights to start from, of any format that convert_checkpoint.py reads. Not "
        "used by a run that goes on.",
        None,
    )
    init_from_group0: bool = flags.field(
        "Give all groups of layers the first group's weights of --init_checkpoint.",
        False,
    )
    do_train: bool = flags.field("Train.", True)
    do_eval: bool = flags.field("Evaluate, while training or alone.", False)
    train_batch_size: int = flags.field("Examples of a step, on all devices.", 4096)
    eval_batch_size: int = flags.field("The same, for evaluation.", 64)
    optimizer: Literal["lamb", "adamw"] = flags.field("Optimizer, as released.", "lamb")
    learning_rate: float = flags.field("Peak learning rate.", 0.00176)
    poly_power: float = flags.field("Power of the decay to 0; 1 is linear.", 1.0)
    weight_decay: float = flags.field("Decoupled weight decay.", 0.01)
    num_train_steps: int = flags.field("Updates.", 125000)
    num_warmup_steps: int = flags.field("Updates with a rising rate.", 3125)
    start_warmup_step: int = flags.field("Update at which the rate starts rising.", 0)
    gradient_accumulation_steps: int = flags.field(
        "Pieces that each device cuts its part of a step into, one after the other: "
        "less memory, the same update.",
        1,
    )
    precision: Literal["float32", "bfloat16", "float16"] = flags.field(
        "Precision of matrix products; weights stay in float32.", "float32"
    )
    xla: bool | None = flags.field(
        "Compile the forward and backward pass; by default on a GPU, not on a CPU.",
        None,
    )
    eval_every_steps: int | None = flags.field(
        "Updates between evaluations; by default --save_checkpoints_steps.", None
    )
    max_eval_steps: int = flags.field("Most batches of an evaluation; 0: all.", 100)
    save_checkpoints_steps: int = flags.field("Updates between checkpoints.", 5000)
    keep_checkpoint_max: int = flags.field(
        "Checkpoints to keep, beside the best; 0 keeps all.", 5
    )
    log_steps: int = flags.field("Updates between lines of progress.", 100)
    iterations_per_loop: int = flags.field(
        "On a TPU: most updates between two returns to the host.", 1000
    )
    seed: int = flags.field("Decides the order of examples and every draw.", 12345)
    deterministic: bool = flags.field(
        "Use only operations that give the same bits each time; slower on GPUs.", False
    )

    def __post_init__(self) -> None:
        lowest = {
            "train_batch_size": 1,
            "eval_batch_size": 1,
            "num_train_steps": 1,
            "num_warmup_steps": 0,
            "start_warmup_step": 0,
            "gradient_accumulation_steps": 1,
            "eval_every_steps": 1,
            "max_eval_steps": 0,
            "save_checkpoints_steps": 1,
            "keep_checkpoint_max": 0,
            "log_steps": 1,
            "iterations_per_loop": 1,
            "seed": 0,
        }
        for name, least in lowest.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"--{name}={value}: expected at least {least}")
        if not 0 < self.learning_rate < float("inf"):
            raise InputError(
                f"--learning_rate={self.learning_rate}: expected a number above 0"
            )
        if not self.weight_decay >= 0 or not self.poly_power >= 0:
            raise InputError(
                f"--weight_decay={self.weight_decay}, --poly_power={self.poly_power}: "
                f"expected numbers of at least 0"
            )
        if self.seed >= 2**31:
            raise InputError(f"--seed={self.seed}: expected a number below 2^31")
        if "://" in self.output_dir:
            raise InputError(
                f"--output_dir={self.output_dir}: expected a folder of this machine's "
                f"file systems; mount a bucket to write there"
            )
        if self.init_from_group0 and not self.init_checkpoint:
            raise InputError("--init_from_group0: expected --init_checkpoint with it")
        if not (self.do_train or self.do_eval):
            raise InputError("--do_train or --do_eval must be given: got neither")

    @property
    def steps_between_evaluations(self) -> int:
        """Updates between evaluations."""
        return self.eval_every_steps or self.save_checkpoints_steps


def prepare(
    config: TrainingConfig, devices: distribution.DistributionConfig
) -> tf.distribute.Strategy:
    """Finds the devices, sets precision, seed and determinism: once, before all else.

    Raises:
        InputError: see `distribution.create`.
    """
    tf.get_logger().setLevel(logging.WARNING)  # else every collective is told
    strategy = distribution.create(devices)
    keras.utils.set_random_seed(config.seed)
    keras.config.set_dtype_policy(_POLICIES[config.precision])
    if config.deterministic:
        tf.config.experimental.enable_op_determinism()
    return strategy


def run(
    task: Task,
    config: TrainingConfig,
    strategy: tf.distribute.Strategy,
    log: IO[str] = sys.stderr,
) -> dict[str, float]:
    """Trains and evaluates, going on from the newest checkpoint of the folder.

    Args:
        task: what to do.
        config: how.
        strategy: on which devices, see `prepare`.
        log: where progress goes.

    Returns:
        The figures of the last evaluation; of the last steps if there was none.

    Raises:
        InputError: the settings do not fit the devices or the folder's checkpoints, or
            the loss or a gradient became infinite or not a number.
    """
    _check_batches(task, config, strategy)
    if config.eval_every_steps and task.evaluation is None:
        raise InputError(
            f"--eval_every_steps={config.eval_every_steps}: nothing to evaluate on; "
            f"expected --do_eval or files for it"
        )
    with strategy.scope():
        model = task.build_model()
        optimizer = _optimizer(config)
        optimizer.build(model.trainable_variables)
    folder = Path(config.output_dir)
    reporter = Reporter(
        folder, log, task, config, enabled=distribution.is_chief(strategy)
    )
    checkpoints = Checkpoints(
        folder, model, optimizer, config.keep_checkpoint_max, reporter.say
    )
    if distribution.is_chief(strategy):
        checkpoints.remove_unfinished()
    examples_seen = _start(task, config, strategy, model, checkpoints, reporter)
    _check_agreement(strategy, model, optimizer, examples_seen, config)
    _spread_seeds(strategy, model)
    trainer = Trainer(task, config, strategy, model, optimizer, examples_seen)
    reporter.started(model, strategy, steps_made(optimizer))
    return _Run(config, strategy, trainer, checkpoints, reporter).run()


class Trainer(orbit.AbstractTrainer, orbit.AbstractEvaluator):
    """Steps of training and evaluation.

    Args:
        task: what to do.
        config: how.
        strategy: on which devices.
        model: made under the strategy.
        optimizer: built for the model, under the strategy.
        examples_seen: where to go on in the data.

    Attributes:
        examples_seen: the examples trained on so far.
    """

    def __init__(self, task, config, strategy, model, optimizer, examples_seen=0):
        self.model = model
        self.optimizer = optimizer
        self.examples_seen = examples_seen
        self._task = task
        self._config = config
        self._strategy = strategy
        self._iterator: Any = None
        self._losses: list[str] = []
        self._names: list[str] = []
        self._window = _Window()
        self._scales_loss = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        compiled = config.xla
        if compiled is None:
            compiled = bool(tf.config.list_logical_devices("GPU"))
        # The optimizer's part cannot be compiled under several replicas.
        self._gradients = (
            tf.function(self._piece, jit_compile=True) if compiled else self._piece
        )

    def train(self, num_steps: tf.Tensor) -> dict[str, float]:
        """Makes some updates.

        Args:
            num_steps: how many.

        Returns:
            The means of losses and metrics since `forget` was called, the rate of the
            last step, and the speed.

        Raises:
            InputError: a loss or a gradient is infinite or not a number.
        """
        if self._iterator is None:
            self._iterator = iter(self._batches(training=True))
        count = int(num_steps)
        begin = time.perf_counter()
        if isinstance(self._strategy, tf.distribute.TPUStrategy):
            results, waited = [self._loop(self._iterator, num_steps)], 0.0
        else:
            results, waited = self._steps(count)
        sums = np.stack([result["sums"].numpy() for result in results])
        self._check_finite(sums[:, 0], results)
        self.examples_seen += count * self._config.train_batch_size
        self._window.add(count, sums, time.perf_counter() - begin, waited)
        return self._figures(results[-1])

    def forget(self) -> None:
        """Begins a new window of steps to take means over."""
        self._window = _Window()

    def evaluate(self, num_steps: tf.Tensor) -> dict[str, float]:
        """Goes through the examples for evaluation.

        Args:
            num_steps: not used: the configuration says how many batches.

        Returns:
            The means of losses and metrics.
        """
        each = [self._evaluate_step(b) for b in self._batches(training=False)]
        means = self._means(
            np.sum([sums.numpy() for sums in each], axis=0, dtype=float)
        )
        return self._task.figures({"loss": self._total(means), **means})

    def _total(self, means):
        return sum(means[name] for name in self._losses)

    def _batches(self, training: bool) -> tf.distribute.DistributedDataset:
        config = self._config

        def read(context):
            if training:
                share = batches.Share.of(context, config.train_batch_size)
                return self._task.training.training(
                    share, seed=config.seed, start=self.examples_seen
                )
            share = batches.Share.of(context, config.eval_batch_size)
            return self._task.evaluation.evaluation(
                share, max_batches=config.max_eval_steps or None
            )

        return self._strategy.distribute_datasets_from_function(read)

    def _steps(self, count: int) -> tuple[list[dict[str, tf.Tensor]], float]:
        """Makes updates, each called from here; returns the seconds of waiting, too."""
        results, waited = [], 0.0
        for _ in range(count):
            begin = time.perf_counter()
            batch = next(self._iterator)
            waited += time.perf_counter() - begin
            results.append(self._step(batch))
        return results, waited

    @tf.function
    def _step(self, batch):
        found = self._strategy.run(self._replica_step, args=(batch,))
        return tf.nest.map_structure(self._first, found)

    @tf.function
    def _loop(self, iterator, num_steps):
        """Makes updates without coming back in between; adds up their sums."""
        result = self._step(next(iterator))
        for _ in tf.range(num_steps - 1):
            last = self._step(next(iterator))
            result = {**last, "sums": result["sums"] + last["sums"]}
        return result

    @tf.function
    def _evaluate_step(self, batch):
        return self._first(self._strategy.run(self._replica_evaluation, args=(batch,)))

    def _first(self, value):
        return self._strategy.experimental_local_results(value)[0]

    def _replica_step(self, batch):
        """Makes an update on one replica's part of a batch.

        The weights of the losses are added up over all replicas first, so that each
        replica's gradient is its part of the whole batch's.
        """
        replicas = tf.distribute.get_replica_context()
        weights = self._task.weights(batch)
        weights = replicas.all_reduce(tf.distribute.ReduceOp.SUM, weights)
        norms = tf.stack([tf.norm(v.value) for v in self.model.trainable_variables])
        rate = tf.cast(self.optimizer.learning_rate, tf.float32)
        sums, gradients = self._accumulated(batch, weights)
        if self._scales_loss:
            # What is infinite on one device has to be seen on all of them.
            gradients = replicas.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        self.optimizer.apply(gradients, self.model.trainable_variables)
        return {
            "sums": replicas.all_reduce(tf.distribute.ReduceOp.SUM, sums),
            "gradient_norms": self._gradient_norms(gradients),
            "weight_norms": norms,
            "learning_rate": rate,
        }

    def _gradient_norms(self, gradients):
        if self._scales_loss:
            norms = tf.stack([tf.norm(gradient) for gradient in gradients])
            return norms / self.optimizer.dynamic_scale
        return self.optimizer.gradient_norms

    def _accumulated(self, batch, weights):
        """Returns the sums and gradients of a batch, one piece after the other."""
        count = self._config.gradient_accumulation_steps
        if count == 1:
            return self._gradients(batch, weights)
        pieces = {
            name: tf.reshape(value, [count, -1, *value.shape[1:]])
            for name, value in batch.items()
        }

        def piece(i):
            return {name: value[i] for name, value in pieces.items()}

        def add(i, sums, gradients):
            more, others = self._gradients(piece(i), weights)
            added = [a + b for a, b in zip(gradients, others, strict=True)]
            return i + 1, sums + more, added

        sums, gradients = self._gradients(piece(0), weights)
        _, sums, gradients = tf.while_loop(
            lambda i, *_: i < count, add, (1, sums, gradients), parallel_iterations=1
        )
        return sums, gradients

    def _piece(self, batch, weights):
        """Returns the sums, float32 [1 + 2 n], and gradients of a piece of a batch."""
        with tf.GradientTape() as tape:
            outputs = self.model(batch, training=True)
            losses = self._task.sums(outputs, batch)
            loss = self._task.loss(losses, weights)
            scaled = loss
            if self._scales_loss:
                scaled = self.optimizer.scale_loss(loss)
        variables = [variable.value for variable in self.model.trainable_variables]
        gradients = tape.gradient(
            scaled, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        return self._packed(loss, losses, outputs, batch), gradients

    def _replica_evaluation(self, batch):
        outputs = self.model(batch, training=False)
        losses = self._task.sums(outputs, batch)
        sums = self._packed(tf.constant(0.0), losses, outputs, batch)
        replicas = tf.distribute.get_replica_context()
        return replicas.all_reduce(tf.distribute.ReduceOp.SUM, sums)

    def _packed(self, loss, losses, outputs, batch):
        """Packs the loss, and the sum and weight of every figure, into one tensor."""
        weights = self._task.weights(batch)
        pairs = {name: (losses[name], weights[name]) for name in losses}
        pairs |= self._task.metrics(outputs, batch)
        self._losses, self._names = list(losses), list(pairs)
        return tf.stack([loss, *(value for pair in pairs.values() for value in pair)])

    def _means(self, sums: np.ndarray) -> dict[str, float]:
        """Undoes `_packed`: each figure's sum over its weight."""
        return {
            name: float(sums[1 + 2 * i] / max(sums[2 + 2 * i], 1e-12))
            for i, name in enumerate(self._names)
        }

    def _figures(self, last: Mapping[str, tf.Tensor]) -> dict[str, float]:
        window = self._window
        means = {"loss": float(window.sums[0]) / window.steps}
        means |= self._means(window.sums)
        examples = window.steps * self._config.train_batch_size
        return {
            **self._task.figures(means),
            "learning_rate": float(last["learning_rate"]),
            "gradient_norm": float(tf.norm(last["gradient_norms"])),
            "sequences_per_second": examples / window.seconds,
            "tokens_per_second": examples
            * self._task.tokens_per_example
            / window.seconds,
            "waiting_share": window.waited / window.seconds,
        }

    def _check_finite(self, losses: np.ndarray, results) -> None:
        """Refuses steps that have spoiled the weights, before anyone saves these."""
        norms = np.array([tf.norm(result["gradient_norms"]) for result in results])
        if self._scales_loss:
            norms[:] = 0  # such a gradient was not applied, and the scale is lower now
        bad = np.flatnonzero(~np.isfinite(losses) | ~np.isfinite(norms))
        if not bad.size:
            return
        first = int(bad[0])
        step = steps_made(self.optimizer) - len(losses) + first + 1
        result = results[first]
        gradients = _group_norms(self.model, result["gradient_norms"].numpy())
        before = _group_norms(self.model, result["weight_norms"].numpy())
        groups = "; ".join(
            f"{name}: weights {before[name]:.3g}, gradient {gradients[name]:.3g}"
            for name in before
        )
        raise InputError(
            f"step {step}: the loss is {losses[first]}, the norm of the gradient "
            f"{float(tf.norm(result['gradient_norms']))}, at a learning rate of "
            f"{float(result['learning_rate']):.3g} (norms of {groups}). No checkpoint "
            f"was written since. Try a lower --learning_rate, more "
            f"--num_warmup_steps, or --precision=float32"
        )


@dataclasses.dataclass
class _Window:
    """What was added up over some steps."""

    steps: int = 0
    sums: Any = 0.0
    seconds: float = 0.0
    waited: float = 0.0

    def add(self, steps: int, sums: np.ndarray, seconds: float, waited: float) -> None:
        self.steps += steps
        self.sums = self.sums + sums.sum(axis=0, dtype=np.float64)
        self.seconds += seconds
        self.waited += waited


class _Run:
    """Drives the controller from one line, checkpoint or evaluation to the next."""

    def __init__(self, config, strategy, trainer, checkpoints, reporter):
        self._config = config
        self._trainer = trainer
        self._checkpoints = checkpoints
        self._reporter = reporter
        self._writes = distribution.is_chief(strategy)
        self._on_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
        self._saved = self._step
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
        """Trains, if asked, and evaluates, if asked."""
        config, figures = self._config, {}
        evaluates = self._trainer._task.evaluation is not None
        if config.do_train:
            if evaluates and self._reporter.lacks_evaluation(
                self._step, config.steps_between_evaluations
            ):
                figures = self._evaluate()  # the run was stopped just before it
            while self._step < config.num_train_steps:
                self._controller.train(self._next_stop(evaluates))
                if evaluates:
                    figures = self._evaluate()
            self._reporter.finish()
        if evaluates and not figures:
            figures = self._evaluate()
        return figures or self._reporter.last

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
        key = self._trainer._task.key_metric
        best = self._checkpoints.best.get(key, -np.inf)
        better = self._config.do_train and figures[key] > best
        self._reporter.evaluated(self._step, figures, better)
        if better and self._writes:
            self._checkpoints.mark_best(self._save(), {"step": self._step, **figures})
        return figures


def _start(task, config, strategy, model, checkpoints, reporter) -> int:
    """Restores or starts the model; returns the examples seen. Says which it did."""
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
        done = task.load(model, config.init_checkpoint, config.init_from_group0)
        reporter.say(
            f"Starting from {config.init_checkpoint}: {done}; optimizer and step at 0"
        )
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

    def summed():
        replicas = tf.distribute.get_replica_context()
        return replicas.all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(own))

    total = strategy.experimental_local_results(strategy.run(tf.function(summed)))[
        0
    ].numpy()
    if (total != own * strategy.num_replicas_in_sync).any():
        raise InputError(
            f"--output_dir={config.output_dir}: the workers found different "
            f"checkpoints there; expected a folder that all of them share"
        )


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


def _optimizer(config: TrainingConfig) -> keras.optimizers.Optimizer:
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


def _check_batches(task, config: TrainingConfig, strategy) -> None:
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


def _group_norms(model: keras.Model, norms: np.ndarray) -> dict[str, float]:
    """Joins the norms of variables by the part of the model that they belong to."""
    squares: dict[str, float] = {}
    for variable, norm in zip(model.trainable_variables, norms, strict=True):
        group = "/".join(variable.path.split("/")[:2])
        squares[group] = squares.get(group, 0.0) + float(norm) ** 2
    return {group: square**0.5 for group, square in squares.items()}
