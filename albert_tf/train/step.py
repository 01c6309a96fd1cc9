"""Training steps, evaluation and prediction on whatever devices."""

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
from albert_tf.data.stopping import StopFlag
from albert_tf.errors import InputError
from albert_tf.model import layers, optimizers
from albert_tf.train.checkpoints import steps_made
from albert_tf.train.devices import is_multi_worker, worker_errors

_ROW = "row"
# Seconds between two lines of progress in an evaluation; and how long one has to take
# for its speed to be logged at all.
_BETWEEN_LINES, _WORTH_A_LINE = 10.0, 1.0
# Several workers read so many steps later whether to stop: reading it at once would
# have each step wait for the one before it to end on the device.
_STEPS_TO_AGREE = 4
# Where the loss scale of float16 is no higher and gradients overflow, they always will.
_LOWEST_LOSS_SCALE = 1.0


class Trainer:
    """Trains, evaluates and predicts.

    Args:
        task: what to do.
        config: how.
        strategy: on which devices.
        model: made under the strategy.
        optimizer: built for the model, under the strategy.
        examples_seen: where to resume in the data.
        log: gets lines of progress of a long evaluation or prediction.
        flag: asks to stop between two steps.

    Attributes:
        task: as given.
        model: as given.
        optimizer: as given.
        examples_seen: the examples trained on so far.
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
        # Whether this worker is to stop: passed on with the sums of each step.
        self._stops: tf.Variable | None = None
        if is_multi_worker(strategy):
            self._stops = tf.Variable(0.0, trainable=False)
        self._iterator: Any = None
        self._graphs: dict[str, tuple[Any, Callable]] = {}
        # Of "train" and of "eval": an evaluation may have other metrics, or no loss.
        self._losses: dict[str, list[str]] = {}
        self._names: dict[str, list[str]] = {}
        # What the loss reaches, in the gradients' order; set when a step is traced.
        self._reached: list[keras.Variable] = []
        self._window = _Window()
        self._scales_loss = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        self._gradients = self._compile_gradients()

    def train(self, num_steps: int) -> dict[str, float]:
        """Makes some updates.

        Args:
            num_steps: how many.

        Returns:
            The means of losses and metrics since `start_window` was called, the rate of
            the last step, and the speed.

        Raises:
            InputError: a loss or a gradient is infinite or not a number, an example
                cannot be used, or memory does not suffice.
            Stopped: a signal asked for it, maybe before all of the updates.
        """
        if self._iterator is None:
            self._iterator = iter(self._training())
        begin = time.perf_counter()
        with self._translated_errors(self.task.training):
            if isinstance(self._strategy, tf.distribute.TPUStrategy):
                count, waited = num_steps, 0.0
                results = [self._loop(self._iterator, tf.constant(count))]
            else:
                results, waited = self._steps(num_steps)
                count = len(results)
            sums = np.stack([result["sums"].numpy() for result in results])
        self._check_finite(sums[:, 0], results)
        self.examples_seen += count * self._config.train_batch_size
        self._window.add(count, sums, time.perf_counter() - begin, waited)
        if any(map(self._is_to_stop, sums)):
            self._flag.stop()
        return self._train_metrics(results[-1])

    def start_window(self) -> None:
        """Begins a new window of steps to take means over."""
        self._window = _Window()

    def evaluate(self) -> dict[str, float]:
        """Evaluates the task's examples, at most `max_eval_steps` batches.

        Returns:
            The means of losses and metrics, and the task's scores.

        Raises:
            InputError: an example cannot be used, or memory does not suffice.
            Stopped: a signal asked for it, maybe before all of the batches.
        """
        totals: list[np.ndarray] = []
        metrics: dict[str, float] = {}
        source, size = self.task.evaluation, self._config.eval_batch_size
        dataset = self._evaluation(source, size, self._config.max_eval_steps or None)
        count = min(len(source), size * (self._config.max_eval_steps or len(source)))

        def predictions():
            step = self._graph("evaluate", self._evaluate_step, dataset)
            for batch in self._logged(dataset, "evaluated", size, count):
                self._share_signal()
                sums, kept = step(batch)
                totals.append(sums.numpy())
                if self._is_to_stop(totals[-1]):
                    self._flag.stop()
                if kept:
                    yield _with_rows(kept)
            means = self._means(np.sum(totals, axis=0, dtype=float), "eval")
            losses = {name: means[name] for name in self._losses["eval"]}
            if losses:
                means = {"loss": float(self.task.total(losses)), **means}
            metrics.update(self.task.reported_metrics(means))

        rest = predictions()
        with self._translated_errors(source):
            scores = self.task.score(batches.in_order(rest), metrics)
            for _ in rest:  # what the task did not ask for
                pass
        return {**metrics, **scores}

    def predict(
        self, source: batches.Source, batch_size: int
    ) -> Iterator[Mapping[str, np.ndarray]]:
        """Predicts examples that may have no labels.

        Args:
            source: the examples.
            batch_size: examples of a batch, on all devices.

        Yields:
            What `task.predictions` keeps, of one example after the other.

        Raises:
            InputError: an example cannot be used, or memory does not suffice.
        """
        dataset = self._evaluation(source, batch_size)
        logged = self._logged(dataset, "predicted", batch_size, len(source))
        step = self._graph("predict", self._predict_step, dataset)
        with self._translated_errors(source):
            yield from batches.in_order(_with_rows(step(batch)) for batch in logged)

    # Reading

    def _training(self) -> tf.data.Dataset | tf.distribute.DistributedDataset:
        return self._read(
            lambda context: self.task.training.training(
                batches.Share.of(context, self._config.train_batch_size),
                seed=self._config.seed,
                start=self.examples_seen,
            )
        )

    def _evaluation(
        self, source: batches.Source, size: int, most: int | None = None
    ) -> tf.data.Dataset | tf.distribute.DistributedDataset:
        return self._read(
            lambda context: source.evaluation(
                batches.Share.of(context, size), max_batches=most
            )
        )

    def _read(self, read) -> tf.data.Dataset | tf.distribute.DistributedDataset:
        """Reads on every worker.

        One device reads for itself: the iterators of tf.distribute have threads that
        tune them, see `batches`, whatever the options of their dataset.
        """
        on_tpu = isinstance(self._strategy, tf.distribute.TPUStrategy)
        if self._strategy.num_replicas_in_sync == 1 and not on_tpu:
            return read(tf.distribute.InputContext())
        return self._strategy.distribute_datasets_from_function(read)

    @contextlib.contextmanager
    def _translated_errors(self, source: batches.Source) -> Iterator[None]:
        def where():
            return f"after step {steps_made(self.optimizer):,}"

        with batches.translated_errors(source, where), worker_errors(self._strategy):
            yield

    def _logged(self, dataset, verb: str, batch_size: int, count: int):
        """Yields batches; logs now and then how many are done, and how fast."""
        begin = last = time.perf_counter()
        for number, batch in enumerate(dataset, 1):
            yield batch
            now, examples = time.perf_counter(), min(number * batch_size, count)
            ended = examples == count
            waited = now - (begin if ended else last)
            if waited > (_WORTH_A_LINE if ended else _BETWEEN_LINES):
                last = now
                self._log(
                    f"{verb} {examples:,} of {count:,} examples, "
                    f"{examples / (now - begin):,.1f} a second"
                )

    # Stopping

    def _share_signal(self) -> None:
        """Passes on to other workers, with the next sums, that this one is to stop."""
        if self._stops is not None and self._flag.number is not None:
            self._stops.assign(1.0)

    def _is_to_stop(self, sums: Any) -> bool:
        """Whether to stop: of several workers, the sums of a step decide for all."""
        if self._stops is None:
            return self._flag.number is not None
        return bool(sums[-1] > 0)

    # Steps of all replicas

    def _compile_gradients(self) -> Callable:
        """Returns `_microbatch_gradients`, compiled as --xla says.

        On a CPU oneDNN's matrix products are faster than XLA's, so GELU alone is
        compiled, where that gains more than it costs for each new number of tokens. The
        optimizer's part cannot be compiled under several replicas.
        """
        xla = self._config.xla
        if xla is None and tf.config.list_logical_devices("GPU"):
            xla = True
        if xla:
            return tf.function(
                self._microbatch_gradients, jit_compile=True, autograph=False
            )
        on_tpu = isinstance(self._strategy, tf.distribute.TPUStrategy)
        if xla is False or on_tpu or self._config.precision == "float32":
            return self._microbatch_gradients
        return layers.fusing(_fused)(self._microbatch_gradients)

    def _steps(self, count: int) -> tuple[list[dict[str, tf.Tensor]], float]:
        """Makes updates, each called from here; returns the seconds of waiting, too.

        They are fewer where a signal asks to stop; on several workers as many on each.
        """
        results, waited = [], 0.0
        step = self._graph("train", self._train_step, self._iterator)
        for _ in range(count):
            begin = time.perf_counter()
            batch = next(self._iterator)
            waited += time.perf_counter() - begin
            self._share_signal()
            results.append(step(batch))
            if self._stops is None:
                settled = results[-1:]
            else:
                settled = results[:-_STEPS_TO_AGREE][-1:]
            if any(self._is_to_stop(result["sums"]) for result in settled):
                break
        return results, waited

    @tf.function
    def _loop(self, iterator, num_steps):
        """Makes updates without coming back in between; adds up their sums."""
        step = tf.autograph.experimental.do_not_convert(self._train_step)
        result = step(next(iterator))
        for _ in tf.range(num_steps - 1):
            last = step(next(iterator))
            result = {**last, "sums": result["sums"] + last["sums"]}
        return result

    def _graph(self, name: str, step: Callable, dataset) -> Callable:
        """Returns a step of which one graph serves every length of batches.

        A graph of twelve layers takes seconds to make, so it is kept for the next call.
        """
        spec = dataset.element_spec
        if name not in self._graphs or self._graphs[name][0] != spec:
            # No step branches on a tensor: there is nothing for AutoGraph to convert,
            # and its search for it takes as long as making the graph.
            graph = tf.function(step, input_signature=[spec], autograph=False)
            begin = time.perf_counter()
            graph.get_concrete_function()
            seconds = time.perf_counter() - begin
            if seconds > _WORTH_A_LINE:
                self._log(f"Traced the graph to {name} in {seconds:.1f} s")
            self._graphs[name] = spec, graph
        return self._graphs[name][1]

    def _train_step(self, batch):
        results = self._strategy.run(self._replica_train_step, args=(batch,))
        return tf.nest.map_structure(self._first, results)

    def _evaluate_step(self, batch):
        sums, kept = self._strategy.run(self._replica_evaluate_step, args=(batch,))
        return self._first(sums), self._gathered(kept)

    def _predict_step(self, batch):
        return self._gathered(
            self._strategy.run(self._replica_predict_step, args=(batch,))
        )

    def _gathered(self, kept):
        """Joins what the replicas kept, in their order, for every worker to have."""
        return {
            name: self._strategy.gather(value, axis=0) for name, value in kept.items()
        }

    def _first(self, value):
        return self._strategy.experimental_local_results(value)[0]

    # Steps of one replica

    def _replica_train_step(self, batch):
        """Makes an update from one replica's part of a batch.

        The weights of the losses are added up over all replicas first, so that each
        replica's gradient is its part of the whole batch's.
        """
        weights = _all_reduce_sum(self.task.weights(batch))
        rate = tf.cast(self.optimizer.learning_rate, tf.float32)
        sums, gradients = self._accumulated(batch, weights)
        # Before the loss scale: what is infinite on one device has to be seen on all.
        gradients = _all_reduce_sum(gradients)
        scale = self._loss_scale()  # before the update, which may change it
        # What the update makes of weights alone would be in memory from the beginning.
        # Several devices do not wait: they add up their first gradients while others
        # are computed, and with this order two workers once hung in a test.
        alone = tf.distribute.get_replica_context().num_replicas_in_sync == 1
        with tf.control_dependencies(gradients if alone else []):
            self.optimizer.apply(gradients, self._reached)
        return {
            "sums": self._added_up(sums),
            "gradient_norms": optimizers.norms(gradients) / scale,
            "learning_rate": rate,
            "loss_scale": scale,
        }

    def _accumulated(self, batch, weights):
        """Returns the sums and gradients of a batch, one microbatch after the other."""
        count = self._config.gradient_accumulation_steps
        if count == 1:
            return self._gradients(batch, weights)
        parts = {
            name: tf.stack(tf.split(value, count)) for name, value in batch.items()
        }

        def microbatch(i):
            return {name: value[i] for name, value in parts.items()}

        def add(i, sums, gradients):
            more_sums, more = self._gradients(microbatch(i), weights)
            added = [a + b for a, b in zip(gradients, more, strict=True)]
            return i + 1, sums + more_sums, added

        sums, gradients = self._gradients(microbatch(0), weights)
        with tf.control_dependencies(gradients):
            # Otherwise the loop begins while the first microbatch is in memory.
            start = tf.constant(1)
        _, sums, gradients = tf.while_loop(
            lambda i, *_: i < count,
            add,
            (start, sums, gradients),
            parallel_iterations=1,
        )
        return sums, gradients

    def _microbatch_gradients(self, batch, weights):
        """Returns the sums, float32 [2 + 2 n], and the gradients of a microbatch.

        The gradients are those of the variables that the loss reaches, which are kept
        as `_reached`. The others stay as they are, as released: the decay alone would
        make a pooler that nothing reads vanish, under LAMB within some hundred steps.
        """
        with tf.GradientTape() as tape:
            outputs = self.task.outputs(self.model, batch, training=True)
            losses = self.task.sums(outputs, batch)
            loss = self.task.loss(losses, weights)
            scaled = self.optimizer.scale_loss(loss) if self._scales_loss else loss
        variables = self.model.trainable_variables
        all_of_them = tape.gradient(scaled, [variable.value for variable in variables])
        pairs = zip(all_of_them, variables, strict=True)
        reached = [(g, variable) for g, variable in pairs if g is not None]
        gradients, self._reached = map(list, zip(*reached, strict=True))
        return self._packed("train", loss, losses, outputs, batch), gradients

    def _replica_evaluate_step(self, batch):
        outputs = self.task.outputs(self.model, batch, training=False)
        losses = self.task.sums(outputs, batch)
        sums = self._packed("eval", tf.constant(0.0), losses, outputs, batch)
        return self._added_up(sums), self._kept(outputs, batch)

    def _replica_predict_step(self, batch):
        return self._kept(self.model(batch, training=False), batch)

    def _kept(self, outputs, batch):
        kept = self.task.predictions(outputs, batch)
        return {**kept, _ROW: batch["row"]} if kept else {}

    def _added_up(self, sums):
        """Adds up over the replicas what `_packed` made, and who is to stop."""
        if self._stops is not None:
            sums = tf.concat([sums, [self._stops]], 0)
        return _all_reduce_sum(sums)

    def _loss_scale(self):
        if self._scales_loss:
            return tf.convert_to_tensor(self.optimizer.dynamic_scale)
        return tf.ones(())

    # Metrics

    def _packed(self, kind, loss, losses, outputs, batch):
        """Packs loss, tokens, and sum and weight of every metric into one tensor."""
        weights = self.task.weights(batch)
        pairs = {name: (losses[name], weights[name]) for name in losses}
        pairs |= self.task.metrics(outputs, batch)
        self._losses[kind], self._names[kind] = list(losses), list(pairs)
        tokens = tf.cast(tf.size(batch["input_ids"]), tf.float32)
        values = (value for pair in pairs.values() for value in pair)
        return tf.stack([loss, tokens, *values])

    def _means(self, sums: np.ndarray, kind: str) -> dict[str, float]:
        """Undoes `_packed`: each metric's sum over its weight."""
        return {
            name: float(sums[2 + 2 * i] / max(sums[3 + 2 * i], 1e-12))
            for i, name in enumerate(self._names[kind])
        }

    def _train_metrics(self, last: Mapping[str, tf.Tensor]) -> dict[str, float]:
        """Returns the means of the window, and what the last step had."""
        window = self._window
        means = {"loss": float(window.sums[0]) / window.steps}
        means |= self._means(window.sums, "train")
        examples = window.steps * self._config.train_batch_size
        return {
            **self.task.reported_metrics(means),
            "learning_rate": float(last["learning_rate"]),
            "gradient_norm": float(tf.norm(last["gradient_norms"])),
            "sequences_per_second": examples / window.seconds,
            "tokens_per_second": float(window.sums[1]) / window.seconds,
            "waiting_share": window.waited / window.seconds,
        }

    def _check_finite(self, losses: np.ndarray, results) -> None:
        """Refuses steps that have spoiled the weights, before anyone saves these."""
        norms = np.array([tf.norm(result["gradient_norms"]) for result in results])
        applied = np.full(norms.shape, True)
        bad = ~np.isfinite(losses) | ~np.isfinite(norms)
        if self._scales_loss:
            # Such a gradient is not applied, and the next step has half the scale.
            applied = np.isfinite(norms)
            scales = np.array([result["loss_scale"] for result in results])
            bad = ~np.isfinite(losses) | (~applied & (scales <= _LOWEST_LOSS_SCALE))
        if not bad.any():
            return
        first = int(bad.argmax())
        step = steps_made(self.optimizer) - int(applied[first:].sum()) + 1
        result, scaled = results[first], ""
        if self._scales_loss:
            scaled = f" and a loss scale of {float(result['loss_scale']):g}"
        raise InputError(
            f"step {step}: the loss is {losses[first]}, the norm of the gradient "
            f"{norms[first]}, at a learning rate of "
            f"{float(result['learning_rate']):.3g}{scaled}. No checkpoint was written "
            f"since. Try a lower --learning_rate, more --num_warmup_steps, or "
            f"--precision=float32"
        )


def _all_reduce_sum(values):
    """Adds values up over the replicas.

    TensorFlow registers a gradient for each all-reduce, and keeps it with the whole
    graph for the life of the process, so a single replica calls none.
    """
    replicas = tf.distribute.get_replica_context()
    if replicas.num_replicas_in_sync == 1:
        return values
    return replicas.all_reduce(tf.distribute.ReduceOp.SUM, values)


@functools.cache
def _fused(function: Callable) -> Callable:
    """Compiles a function to one loop, in float32 whatever the precision."""

    def compute(*tensors):
        results = function(*[tf.cast(tensor, tf.float32) for tensor in tensors])
        return [tf.cast(result, tensors[0].dtype) for result in results]

    return tf.function(compute, jit_compile=True, autograph=False)


def _with_rows(kept: Mapping[str, tf.Tensor]):
    """Returns the numbers of examples, and what was kept of them, as arrays."""
    values = {name: np.asarray(value) for name, value in kept.items()}
    return values.pop(_ROW), values


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
