"""`Trainer`: training steps, evaluation and prediction on any devices."""

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.data import batches
from albert_tf.data.batches import ROW
from albert_tf.data.stopping import StopFlag
from albert_tf.errors import InputError
from albert_tf.model import layers, optimizers
from albert_tf.train.checkpoints import count_steps
from albert_tf.train.devices import is_multi_worker, wrap_lost_worker

# Seconds between two lines of progress in an evaluation.
_LOG_SECONDS = 10.0
# With several workers, each step also adds up a number that shows whether a worker got
# a signal to stop. The workers read the sum of a step this many steps later. Without
# the delay, each step would wait until the device has computed the previous one.
_STEPS_TO_AGREE = 4
# A loss scale of 1 leaves the loss unchanged. If gradients overflow at this scale or
# below, a lower scale will not help.
_MIN_LOSS_SCALE = 1.0


@dataclasses.dataclass
class _Window:
    """Totals of the training steps since the last line of progress.

    Attributes:
        steps: the number of steps.
        seconds: the duration of the steps.
        waiting: seconds of waiting for batches.
        sums: sum of the results of `Trainer._pack`, float64; 0.0 before the first step.
    """

    steps: int = 0
    seconds: float = 0.0
    waiting: float = 0.0
    sums: Any = 0.0


class Trainer:
    """Trains a model, evaluates it and predicts with it, in compiled steps.

    Args:
        task: the task to train.
        config: the run's settings.
        strategy: the devices.
        model: created in `strategy.scope()`.
        optimizer: built for the model, in `strategy.scope()`; None if nothing is
            trained.
        examples_seen: number of examples that the run has already seen. Training skips
            them.
        log: logs a line of progress of a long evaluation or prediction.
        flag: holds the signal that asked this process to stop, if any. Without this
            argument, no signal stops the trainer.

    Attributes:
        task: the argument.
        model: the argument.
        optimizer: the argument.
        examples_seen: number of examples that the run has seen until now.
    """

    def __init__(
        self,
        task,
        config,
        strategy,
        model,
        optimizer,
        examples_seen: int = 0,
        log: Callable[[str], None] = lambda text: None,
        flag: StopFlag | None = None,
    ):
        self.task = task
        self.model = model
        self.optimizer = optimizer
        self.examples_seen = examples_seen
        self._config = config
        self._strategy = strategy
        self._log = log
        self._flag = flag or StopFlag()
        # 1 if this worker got a signal; each step adds it up over the replicas of all
        # workers. None in a run with a single worker.
        self._signal: tf.Variable | None = None
        if is_multi_worker(strategy):
            self._signal = tf.Variable(0.0, trainable=False)
        self._on_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
        # Yields the training batches; the first call of `train` creates it.
        self._iterator: Any = None
        # {"train", "evaluate" or "predict": (spec of the batches, graph of the step)}.
        self._graphs: dict[str, tuple[Any, Callable]] = {}
        # Tracing a step sets the next three attributes.
        # {"train" or "eval": names of the losses and metrics in the result of `_pack`}.
        self._metric_names: dict[str, list[str]] = {}
        # The names of the losses in an evaluation, without other metrics.
        self._eval_loss_names: list[str] = []
        # The variables that have a gradient, in the order of the gradients.
        self._variables: list[keras.Variable] = []
        self._window = _Window()
        self._scales_loss = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        self._compute_gradients = self._compile_gradients()

    def train(self, num_steps: int) -> dict[str, float]:
        """Updates the weights with the next batches.

        Args:
            num_steps: the number of updates.

        Returns:
            The means of losses and metrics since `start_window`, the learning rate and
            gradient norm of the last step, and the speed since `start_window`.

        Raises:
            InputError: a loss or a gradient is not finite, an example is invalid, or
                there is too little memory.
            Stopped: after a signal. Fewer than `num_steps` updates may be complete.
        """
        config, window, source = self._config, self._window, self.task.training
        if self._iterator is None:
            read = functools.partial(
                source.training, seed=config.seed, start=self.examples_seen
            )
            self._iterator = iter(self._read(read, config.train_batch_size))
        begin = time.perf_counter()
        with self._translate_errors(source):
            if self._on_tpu:
                # `results` has a single element, for all updates together.
                count = num_steps
                results = [self._loop_on_device(self._iterator, tf.constant(count))]
            else:
                results = self._loop_on_host(num_steps)
                count = len(results)
            sums = np.stack([result["sums"].numpy() for result in results])
        # The first number of `_pack` is the loss.
        self._check_finite(losses=sums[:, 0], results=results)
        self.examples_seen += count * config.train_batch_size
        window.steps += count
        window.seconds += time.perf_counter() - begin
        window.sums += sums.sum(axis=0, dtype=np.float64)
        if any(map(self._must_stop, sums)):
            self._flag.stop()  # raises Stopped
        return self._compute_train_metrics(results[-1])

    def start_window(self) -> None:
        """Resets the means and the speed that `train` returns."""
        self._window = _Window()

    def evaluate(self) -> dict[str, float]:
        """Evaluates at most `max_eval_steps` batches; all batches if it is 0.

        Returns:
            The means of losses and metrics over the examples of these batches, and the
            metrics that the task computes from the predictions for these examples.

        Raises:
            InputError: an example is invalid, or there is too little memory.
            Stopped: after a signal.
        """
        source, size = self.task.evaluation, self._config.eval_batch_size
        limit = self._config.max_eval_steps or None
        read = functools.partial(source.evaluation, max_batches=limit)
        dataset = self._read(read, size)
        count = min(len(source), size * (limit or len(source)))
        step = self._get_graph("evaluate", self._evaluate_step, dataset)
        all_sums: list[np.ndarray] = []
        all_predictions: list[Mapping[str, np.ndarray]] = []
        with self._translate_errors(source):
            for batch in self._log_progress(dataset, "evaluated", size, count):
                self._share_signal()
                sums, predictions = step(batch)
                all_sums.append(sums.numpy())
                if self._must_stop(all_sums[-1]):
                    self._flag.stop()  # raises Stopped
                if predictions:
                    arrays = tf.nest.map_structure(np.asarray, predictions)
                    all_predictions.append(arrays)
        means = self._unpack(np.sum(all_sums, axis=0, dtype=float), "eval")
        losses = {name: means[name] for name in self._eval_loss_names}
        if losses:
            means = {"loss": float(sum(losses.values())), **means}
        metrics = self.task.finalize_metrics(means)
        examples = batches.unshuffle(all_predictions)
        return {**metrics, **self.task.evaluate_predictions(examples, metrics)}

    def predict(
        self, source: batches.Examples, batch_size: int
    ) -> Iterator[Mapping[str, np.ndarray]]:
        """Yields the predictions for examples, which need no labels.

        Args:
            source: the examples.
            batch_size: number of examples in a batch, over all devices.

        Yields:
            The `task.prediction_outputs` of each example, in the order of `source`.

        Raises:
            InputError: an example is invalid, or there is too little memory.
        """
        dataset = self._read(source.evaluation, batch_size)
        inputs = self._log_progress(dataset, "predicted", batch_size, len(source))
        step = self._get_graph("predict", self._predict_step, dataset)
        with self._translate_errors(source):
            yield from batches.unshuffle(map(step, inputs))

    # Reading

    def _read(
        self, read: Callable[[batches.InputShard], tf.data.Dataset], batch_size: int
    ) -> tf.data.Dataset | tf.distribute.DistributedDataset:
        """Makes the dataset of this worker.

        A single device gets a plain dataset. The iterators of tf.distribute tune their
        threads even if the options of the dataset forbid it. This tuning can delay the
        deletion of an iterator by up to a minute.

        Args:
            read: makes the dataset of one input pipeline.
            batch_size: number of examples in a batch, over all devices.
        """

        def read_shard(context):
            return read(batches.InputShard(batch_size, context))

        if self._strategy.num_replicas_in_sync == 1 and not self._on_tpu:
            return read_shard(tf.distribute.InputContext())
        return self._strategy.distribute_datasets_from_function(read_shard)

    @contextlib.contextmanager
    def _translate_errors(self, source: batches.Examples) -> Iterator[None]:
        """Turns TensorFlow's errors in a step into InputError.

        Args:
            source: the source of the batches. After an error, it is searched for an
                invalid example.
        """

        def locate():
            steps = count_steps(self.optimizer) if self.optimizer else 0
            return f"after step {steps:,}"

        with batches.translate_errors(source, locate), wrap_lost_worker(self._strategy):
            yield

    def _log_progress(self, dataset, verb: str, batch_size: int, count: int):
        """Yields batches; regularly logs the number of examples and the speed.

        Args:
            dataset: the batches.
            verb: the past participle that begins a line, such as "evaluated".
            batch_size: number of examples in a batch.
            count: number of examples in all batches, without padding.
        """
        begin = last = time.perf_counter()
        for batches_done, batch in enumerate(dataset, 1):
            yield batch
            now, examples = time.perf_counter(), min(batches_done * batch_size, count)
            if now - last > _LOG_SECONDS:
                last = now
                self._log(
                    f"{verb} {examples:,} of {count:,} examples, "
                    f"{examples / (now - begin):,.1f} examples/s"
                )

    # Stopping

    def _share_signal(self) -> None:
        """Tells the other workers that a signal came, in the sums of the next step."""
        if self._signal is not None and self._flag.signum is not None:
            self._signal.assign(1.0)

    def _must_stop(self, sums: Any) -> bool:
        """Whether to stop after a step with the result `sums`.

        With several workers, the last element of `sums` is positive if any worker got a
        signal.
        """
        if self._signal is None:
            return self._flag.signum is not None
        return bool(sums[-1] > 0)

    # Steps of all replicas

    def _compile_gradients(self) -> Callable:
        """Returns `_differentiate`, compiled as --xla says.

        By default, XLA compiles it on GPUs. On a CPU, oneDNN's matrix products are
        faster than XLA's, so XLA compiles only GELU, and only in low precision. XLA
        does not compile the optimizer, because it cannot do so under several replicas.
        """
        xla = self._config.xla
        if xla is None and tf.config.list_logical_devices("GPU"):
            xla = True
        if xla:
            return tf.function(self._differentiate, jit_compile=True, autograph=False)
        if xla is False or self._on_tpu or self._config.precision == "float32":
            return self._differentiate
        # `fuse_gelu` returns a context manager. It decorates `_differentiate` here, so
        # its context is active in each call.
        return layers.fuse_gelu(_fuse)(self._differentiate)

    def _loop_on_host(self, count: int) -> list[dict[str, tf.Tensor]]:
        """Makes `count` updates in a loop of Python; returns their results.

        After a signal, it makes fewer updates, but the same number on all workers.
        """
        results: list[dict[str, tf.Tensor]] = []
        step = self._get_graph("train", self._train_step, self._iterator)
        for _ in range(count):
            begin = time.perf_counter()
            batch = next(self._iterator)
            self._window.waiting += time.perf_counter() - begin
            self._share_signal()
            results.append(step(batch))
            # With several workers, the newest sums are not read, because the device may
            # not have computed them yet.
            ready = results if self._signal is None else results[:-_STEPS_TO_AGREE]
            if ready and self._must_stop(ready[-1]["sums"]):
                break
        return results

    @tf.function
    def _loop_on_device(self, iterator, num_steps):
        """Makes updates in a loop of the graph, without a return to Python (TPU).

        Returns:
            The result of the last update, with the "sums" of all updates added up.
        """
        step = tf.autograph.experimental.do_not_convert(self._train_step)
        result = step(next(iterator))
        for _ in tf.range(num_steps - 1):
            last = step(next(iterator))
            result = {**last, "sums": result["sums"] + last["sums"]}
        return result

    def _get_graph(self, name: str, step: Callable, dataset) -> Callable:
        """Returns a step as one graph for batches of all lengths.

        Tracing twelve layers takes seconds, so later calls reuse the graph.

        Args:
            name: the name of the step.
            step: the step, a function of a batch.
            dataset: the batches, or their iterator; only `element_spec` is used.
        """
        spec = dataset.element_spec
        if name not in self._graphs or self._graphs[name][0] != spec:
            # AutoGraph would double the time to trace. No step needs it, because no
            # step branches on a tensor.
            graph = tf.function(step, input_signature=[spec], autograph=False)
            self._graphs[name] = spec, graph
        return self._graphs[name][1]

    def _train_step(self, batch):
        """Makes an update on all replicas; see `_replica_train_step` for the result."""
        result = self._strategy.run(self._replica_train_step, args=(batch,))
        return self._take_first_replica(result)

    def _evaluate_step(self, batch):
        """Returns the sums of `_pack` and the predictions, over all replicas."""
        sums, outputs = self._strategy.run(self._replica_evaluate_step, args=(batch,))
        return self._take_first_replica(sums), self._gather(outputs)

    def _predict_step(self, batch):
        """Returns the predictions of all replicas."""
        outputs = self._strategy.run(self._replica_predict_step, args=(batch,))
        return self._gather(outputs)

    def _gather(self, outputs):
        """Concatenates the outputs of the replicas in order, on all workers."""
        return {
            name: self._strategy.gather(value, axis=0)
            for name, value in outputs.items()
        }

    def _take_first_replica(self, value):
        """Returns the first replica's copy of a value that is equal on all replicas."""
        return self._strategy.experimental_local_results(value)[0]

    # Steps of one replica

    def _replica_train_step(self, batch):
        """Makes an update from one replica's part of a batch.

        Each loss is divided by its total weight over all replicas. So the gradients of
        the replicas add up to the gradient of the batch.

        Returns:
            A dict with the sums of `_pack` over all replicas; the gradient norm of each
            variable; and the number, the learning rate and the loss scale of the step.
        """
        loss_weights = _all_reduce_sum(self.task.loss_weights(batch))
        step = tf.convert_to_tensor(self.optimizer.iterations) + 1
        rate = tf.cast(self.optimizer.learning_rate, tf.float32)
        sums, gradients = self._accumulate(batch, loss_weights)
        # The gradients are summed before the optimizer looks for overflows. So after an
        # overflow on one device, all devices skip the step.
        gradients = _all_reduce_sum(gradients)
        scale = tf.ones(())
        if self._scales_loss:  # read before the update, which may change it
            scale = tf.convert_to_tensor(self.optimizer.dynamic_scale)
        # On one device the update waits for all gradients, to save memory. On several
        # devices this order once deadlocked the all-reduce.
        is_single = tf.distribute.get_replica_context().num_replicas_in_sync == 1
        with tf.control_dependencies(gradients if is_single else []):
            self.optimizer.apply(gradients, self._variables)
        return {
            "sums": self._reduce(sums),
            "gradient_norms": optimizers.norms(gradients) / scale,
            "step": step,
            "learning_rate": rate,
            "loss_scale": scale,
        }

    def _accumulate(self, batch, loss_weights):
        """Returns the sums of `_pack` and the gradients of a replica's part of a batch.

        Both are computed for one microbatch after the other, and added up.
        """
        count = self._config.gradient_accumulation_steps
        if count == 1:
            return self._compute_gradients(batch, loss_weights)
        # {name: all microbatches, stacked on a new first axis}.
        parts = {
            name: tf.stack(tf.split(value, count)) for name, value in batch.items()
        }

        # `i` is the number of a microbatch.
        def take(i):
            return {name: value[i] for name, value in parts.items()}

        def add(i, sums, gradients):
            next_sums, next_gradients = self._compute_gradients(take(i), loss_weights)
            pairs = zip(gradients, next_gradients, strict=True)
            return i + 1, sums + next_sums, [a + b for a, b in pairs]

        sums, gradients = self._compute_gradients(take(0), loss_weights)
        with tf.control_dependencies(gradients):
            # Without this dependency, the loop would start while the activations of the
            # first microbatch are still in memory.
            start = tf.constant(1)
        _, sums, gradients = tf.while_loop(
            lambda i, *_: i < count,
            add,
            (start, sums, gradients),
            parallel_iterations=1,
        )
        return sums, gradients

    def _differentiate(self, batch, loss_weights):
        """Returns the result of `_pack` and the gradients for one microbatch.

        The gradients are in the order of `_variables`. Tracing this method sets
        `_variables`.

        **As released:** variables without a gradient are not updated; otherwise
        weight decay would shrink an unused pooler to zero.
        """
        with tf.GradientTape() as tape:
            outputs = self.task.run_model(self.model, batch, training=True)
            losses = self.task.loss_sums(outputs, batch)
            loss = self.task.compute_loss(losses, loss_weights)
            scaled = self.optimizer.scale_loss(loss) if self._scales_loss else loss
        variables = self.model.trainable_variables
        all_gradients = tape.gradient(
            scaled, [variable.value for variable in variables]
        )
        pairs = zip(all_gradients, variables, strict=True)
        kept_pairs = [pair for pair in pairs if pair[0] is not None]
        gradients = [gradient for gradient, _ in kept_pairs]
        self._variables = [variable for _, variable in kept_pairs]
        return self._pack("train", loss, losses, outputs, batch), gradients

    def _replica_evaluate_step(self, batch):
        """Returns the sums over all replicas, and this replica's predictions."""
        outputs = self.task.run_model(self.model, batch, training=False)
        losses = self.task.loss_sums(outputs, batch)
        self._eval_loss_names = list(losses)
        # 0 in place of the loss: `evaluate` computes it from the means of all batches.
        sums = self._pack("eval", tf.constant(0.0), losses, outputs, batch)
        return self._reduce(sums), self._make_predictions(outputs, batch)

    def _replica_predict_step(self, batch):
        """Returns this replica's predictions."""
        return self._make_predictions(self.model(batch, training=False), batch)

    def _make_predictions(self, outputs, batch):
        """Returns the task's prediction outputs and the number of each example.

        If the task has no prediction outputs, the result is {}.
        """
        predictions = self.task.prediction_outputs(outputs, batch)
        return {**predictions, ROW: batch[ROW]} if predictions else {}

    def _reduce(self, sums):
        """Adds up a result of `_pack`, and the workers' signals, over all replicas."""
        if self._signal is not None:
            sums = tf.concat([sums, [self._signal]], axis=0)
        return _all_reduce_sum(sums)

    # Metrics

    def _pack(self, kind, loss, losses, outputs, batch):
        """Packs the numbers of a microbatch into one tensor, which replicas can add up.

        In an evaluation, a replica's part of a batch is not divided into microbatches.

        Args:
            kind: "train" or "eval".
            loss: the microbatch's share of the loss of the batch, float32 []; 0 in an
                evaluation.
            losses: the result of `task.loss_sums`.
            outputs: the model's outputs.
            batch: the microbatch.

        Returns:
            float32 [2 + 2 n]: the loss, the number of tokens with padding, and a sum
            and a weight for each of n losses and metrics.
        """
        loss_weights = self.task.loss_weights(batch)
        pairs = {name: (losses[name], loss_weights[name]) for name in losses}
        pairs |= self.task.batch_metrics(outputs, batch)
        self._metric_names[kind] = list(pairs)
        tokens = tf.cast(tf.size(batch["input_ids"]), tf.float32)
        values = (value for pair in pairs.values() for value in pair)
        return tf.stack([loss, tokens, *values])

    def _unpack(self, sums: np.ndarray, kind: str) -> dict[str, float]:
        """Returns the means of losses and metrics: the sums divided by the weights.

        Args:
            sums: results of `_pack`, added up. From index 2 on, they are pairs of a sum
                and its weight.
            kind: "train" or "eval", as in `_pack`.
        """
        return {
            name: float(sums[2 + 2 * index] / max(sums[3 + 2 * index], 1e-12))
            for index, name in enumerate(self._metric_names[kind])
        }

    def _compute_train_metrics(self, last: Mapping[str, tf.Tensor]) -> dict[str, float]:
        """Returns the means of the window, and the numbers of the last step."""
        window = self._window
        loss, tokens = window.sums[:2].tolist()
        means = {"loss": loss / window.steps, **self._unpack(window.sums, "train")}
        examples = window.steps * self._config.train_batch_size
        return {
            **self.task.finalize_metrics(means),
            "learning_rate": float(last["learning_rate"]),
            "gradient_norm": float(tf.norm(last["gradient_norms"])),
            "sequences_per_second": examples / window.seconds,
            "tokens_per_second": tokens / window.seconds,
            "waiting_share": window.waiting / window.seconds,
        }

    def _check_finite(self, losses: np.ndarray, results) -> None:
        """Checks that all losses and gradients of some steps are finite.

        `train` calls this method, so a run ends before it saves a bad step.

        Args:
            losses: the loss of each step. On a TPU, the only element is the sum over
                all steps.
            results: the result of `_train_step` for each step. On a TPU, the only
                element is the result of `_loop_on_device`.
        """
        norms = np.array([tf.norm(result["gradient_norms"]) for result in results])
        scales = np.array([result["loss_scale"] for result in results])
        # With loss scaling, the optimizer skips a step whose gradients overflow, and
        # halves the scale. Without loss scaling, the scale is 1, and each overflow is
        # an error.
        is_overflow = ~np.isfinite(norms) & (scales <= _MIN_LOSS_SCALE)
        is_bad = ~np.isfinite(losses) | is_overflow
        if not is_bad.any():
            return
        index = int(is_bad.argmax())  # of the first bad step
        step, rate = int(results[index]["step"]), float(results[index]["learning_rate"])
        scale = f" and a loss scale of {scales[index]:g}" if self._scales_loss else ""
        raise InputError(
            f"step {step}: the loss is {losses[index]}, the norm of the gradient "
            f"{norms[index]}, at a learning rate of {rate:.3g}{scale}. No checkpoint "
            f"was written since. Try a lower --learning_rate, more --num_warmup_steps, "
            f"or --precision=float32"
        )


def _all_reduce_sum(values):
    """Sums values over the replicas.

    TensorFlow registers a gradient function for each all-reduce. This function keeps
    the graph in memory until the process ends. So a single replica returns the values
    without an all-reduce.
    """
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return values
    return context.all_reduce(tf.distribute.ReduceOp.SUM, values)


@functools.cache
def _fuse(function: Callable) -> Callable:
    """Compiles an elementwise function of tensors to one XLA loop in float32.

    The results have the dtype of the first tensor.
    """

    def compute(*tensors):
        results = function(*[tf.cast(tensor, tf.float32) for tensor in tensors])
        return [tf.cast(result, tensors[0].dtype) for result in results]

    return tf.function(compute, jit_compile=True, autograph=False)
