"""Steps of training and evaluation on whatever devices, for orbit's controller."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import orbit
import tensorflow as tf

from albert_tf.data import batches
from albert_tf.data.stopping import Watch
from albert_tf.errors import InputError
from albert_tf.serve import runtimes
from albert_tf.train.checkpoints import steps_made

_ROW = "row"
# Seconds between two lines about how far an evaluation is; and how long one has to
# take for its speed to be told.
_BETWEEN_LINES, _WORTH_TELLING = 10.0, 1.0
# Several workers read what they have agreed on so many steps later: reading it at once
# would have each step wait for the one before it to end on the device.
_STEPS_TO_AGREE = 4
# Where the loss scale of float16 is no higher and gradients overflow, they always will.
_LOWEST_LOSS_SCALE = 1.0


class Trainer(orbit.AbstractTrainer, orbit.AbstractEvaluator):
    """Steps of training and evaluation.

    Args:
        task: what to do.
        config: how.
        strategy: on which devices.
        model: made under the strategy.
        optimizer: built for the model, under the strategy.
        examples_seen: where to go on in the data.
        say: gets lines about how far a long evaluation or prediction is.
        watch: asks to stop between two steps.

    Attributes:
        task: as given.
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
        say: Callable[[str], None] = lambda text: None,
        watch: Watch | None = None,
    ):
        self.model = self._predictor = model
        self.optimizer = optimizer
        self.examples_seen = examples_seen
        self.task = task
        self._say = say
        self._watch = watch or Watch()
        # Whether this worker is asked to stop; the sums of each step tell the others.
        self._asked: tf.Variable | None = None
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            self._asked = tf.Variable(0.0, trainable=False)
        self._config = config
        self._strategy = strategy
        self._iterator: Any = None
        self._graphs: dict[str, tuple[Any, Callable]] = {}
        # Of "train" and of "eval": an evaluation may have other figures, or no loss.
        self._losses: dict[str, list[str]] = {}
        self._names: dict[str, list[str]] = {}
        # What the loss reaches, in the gradients' order; known once a step is traced.
        self._learning: list[keras.Variable] = []
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
            InputError: a loss or a gradient is infinite or not a number, an example
                cannot be used, or memory does not suffice.
            Stopped: a signal asked for it, maybe before all of the updates.
        """
        if self._iterator is None:
            self._iterator = iter(self._training())
        begin = time.perf_counter()
        with self._blaming(self.task.training):
            if isinstance(self._strategy, tf.distribute.TPUStrategy):
                results, waited = [self._loop(self._iterator, num_steps)], 0.0
                count = int(num_steps)
            else:
                results, waited = self._steps(int(num_steps))
                count = len(results)
            sums = np.stack([result["sums"].numpy() for result in results])
        self._check_finite(sums[:, 0], results)
        self.examples_seen += count * self._config.train_batch_size
        self._window.add(count, sums, time.perf_counter() - begin, waited)
        if any(map(self._is_asked, sums)):
            self._watch.stop()
        return self._figures(results[-1])

    def forget(self) -> None:
        """Begins a new window of steps to take means over."""
        self._window = _Window()

    def evaluate(self, num_steps: tf.Tensor | None = None) -> dict[str, float]:
        """Goes through the examples for evaluation.

        Args:
            num_steps: not used: the configuration says how many batches.

        Returns:
            The means of losses and metrics, and the task's scores.

        Raises:
            InputError: an example cannot be used, or memory does not suffice.
            Stopped: a signal asked for it, maybe before all of the batches.
        """
        totals: list[np.ndarray] = []
        figures: dict[str, float] = {}
        source, size = self.task.evaluation, self._config.eval_batch_size
        read = self._evaluation(source)
        count = min(len(source), size * (self._config.max_eval_steps or len(source)))

        def found():
            step = self._graph("evaluate", self._evaluate_step, read)
            for batch in self._told(read, "evaluated", size, count):
                self._pass_on()
                sums, kept = step(batch)
                totals.append(sums.numpy())
                if self._is_asked(totals[-1]):
                    self._watch.stop()
                if kept:
                    yield _with_rows(kept)
            means = self._means(np.sum(totals, axis=0, dtype=float), "eval")
            figures.update(self.task.figures({**self._total(means), **means}))

        pairs = found()
        with self._blaming(source):
            scores = self.task.score(batches.in_order(pairs), figures)
            for _ in pairs:  # what the task did not ask for
                pass
        return {**figures, **scores}

    def predict_in(self, runtime: str) -> None:
        """Lets another runtime compute predictions from here on, see `computed_by`.

        Args:
            runtime: "onnx" or "litert". It takes the weights as they are now.
        """
        self._predictor = runtimes.computed_by(self.model, runtime)
        self._graphs.pop("predict", None)
        self._say(f"Predictions in {runtime}, on the CPU in float32")

    def predict(
        self, source: batches.Source, batch_size: int
    ) -> Iterator[Mapping[str, np.ndarray]]:
        """Goes through examples that may have no labels.

        Args:
            source: the examples.
            batch_size: examples of a batch, on all devices.

        Yields:
            What `task.predictions` keeps, of one example after the other.

        Raises:
            InputError: an example cannot be used, or memory does not suffice.
        """
        found = self._read(
            lambda context: source.evaluation(batches.Share.of(context, batch_size))
        )
        told = self._told(found, "predicted", batch_size, len(source))
        step = self._graph("predict", self._predict_step, found)
        with self._blaming(source):
            yield from batches.in_order(_with_rows(step(batch)) for batch in told)

    def _blaming(self, source: batches.Source) -> contextlib.AbstractContextManager:
        return batches.blaming(
            source, lambda: f"after step {steps_made(self.optimizer):,}"
        )

    def _told(self, found, done: str, batch_size: int, count: int):
        """Passes batches on; says now and then how far it is and how fast."""
        begin = last = time.perf_counter()
        for number, batch in enumerate(found, 1):
            yield batch
            now, examples = time.perf_counter(), min(number * batch_size, count)
            ended = examples == count
            waited = now - (begin if ended else last)
            if waited > (_WORTH_TELLING if ended else _BETWEEN_LINES):
                last = now
                self._say(
                    f"{done} {examples:,} of {count:,} examples, "
                    f"{examples / (now - begin):,.1f} a second"
                )

    def _total(self, means: Mapping[str, float]) -> dict[str, float]:
        """Returns the loss of an evaluation, if the task has losses there."""
        losses = {name: means[name] for name in self._losses["eval"]}
        if not losses:
            return {}
        return {"loss": float(self.task.total(losses))}

    def _training(self) -> tf.data.Dataset | tf.distribute.DistributedDataset:
        return self._read(
            lambda context: self.task.training.training(
                batches.Share.of(context, self._config.train_batch_size),
                seed=self._config.seed,
                start=self.examples_seen,
            )
        )

    def _evaluation(
        self, source: batches.Source
    ) -> tf.data.Dataset | tf.distribute.DistributedDataset:
        return self._read(
            lambda context: source.evaluation(
                batches.Share.of(context, self._config.eval_batch_size),
                max_batches=self._config.max_eval_steps or None,
            )
        )

    def _read(self, read) -> tf.data.Dataset | tf.distribute.DistributedDataset:
        """Reads on every worker.

        One device reads for itself: the iterators of tf.distribute have threads that
        tune them, see `batches`, whatever their dataset says.
        """
        on_tpu = isinstance(self._strategy, tf.distribute.TPUStrategy)
        if self._strategy.num_replicas_in_sync == 1 and not on_tpu:
            return read(tf.distribute.InputContext())
        return self._strategy.distribute_datasets_from_function(read)

    def _steps(self, count: int) -> tuple[list[dict[str, tf.Tensor]], float]:
        """Makes updates, each called from here; returns the seconds of waiting, too.

        They are fewer where a signal asks to stop; on several workers as many on each.
        """
        results, waited = [], 0.0
        step = self._graph("train", self._step, self._iterator)
        for _ in range(count):
            begin = time.perf_counter()
            batch = next(self._iterator)
            waited += time.perf_counter() - begin
            self._pass_on()
            results.append(step(batch))
            if self._asked is None:
                settled = results[-1:]
            else:
                settled = results[:-_STEPS_TO_AGREE][-1:]
            if any(self._is_asked(result["sums"]) for result in settled):
                break
        return results, waited

    def stop_if_asked(self) -> None:
        """Raises Stopped if a signal came to any worker since the last step."""
        self._pass_on()
        sums = tf.zeros([0])
        if self._asked is not None:
            summed = tf.function(lambda: self._summed(tf.zeros([0])))
            sums = self._first(self._strategy.run(summed))
        if self._is_asked(sums):
            self._watch.stop()

    def _pass_on(self) -> None:
        """Lets the next step's sums tell other workers that this one is to stop."""
        if self._asked is not None and self._watch.number is not None:
            self._asked.assign(1.0)

    def _is_asked(self, sums: Any) -> bool:
        """Whether to stop: for several workers a step's sums say so, alike on all."""
        if self._asked is None:
            return self._watch.number is not None
        return bool(sums[-1] > 0)

    def _summed(self, sums):
        """Adds up over the replicas what `_packed` made, and who was asked to stop."""
        if self._asked is not None:
            sums = tf.concat([sums, [self._asked]], 0)
        replicas = tf.distribute.get_replica_context()
        return replicas.all_reduce(tf.distribute.ReduceOp.SUM, sums)

    def _graph(self, name: str, step: Callable, dataset) -> Callable:
        """Returns a step of which one graph serves every length of batches.

        A graph of twelve layers takes seconds to make, so it is kept for the next call.
        """
        spec = dataset.element_spec
        if name not in self._graphs or self._graphs[name][0] != spec:
            self._graphs[name] = spec, tf.function(step, input_signature=[spec])
        return self._graphs[name][1]

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

    def _evaluate_step(self, batch):
        sums, kept = self._strategy.run(self._replica_evaluation, args=(batch,))
        return self._first(sums), self._gathered(kept)

    def _predict_step(self, batch):
        return self._gathered(
            self._strategy.run(self._replica_prediction, args=(batch,))
        )

    def _gathered(self, kept):
        """Joins what the replicas kept, in their order, for every worker to have."""
        return {
            name: self._strategy.gather(value, axis=0) for name, value in kept.items()
        }

    def _first(self, value):
        return self._strategy.experimental_local_results(value)[0]

    def _replica_step(self, batch):
        """Makes an update on one replica's part of a batch.

        The weights of the losses are added up over all replicas first, so that each
        replica's gradient is its part of the whole batch's.
        """
        replicas = tf.distribute.get_replica_context()
        weights = self.task.weights(batch)
        weights = replicas.all_reduce(tf.distribute.ReduceOp.SUM, weights)
        rate = tf.cast(self.optimizer.learning_rate, tf.float32)
        sums, gradients = self._accumulated(batch, weights)
        norms = tf.stack([tf.norm(variable.value) for variable in self._learning])
        if self._scales_loss:
            # What is infinite on one device has to be seen on all of them.
            gradients = replicas.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        scale = self._loss_scale()  # before the update, which may change it
        self.optimizer.apply(gradients, self._learning)
        return {
            "sums": self._summed(sums),
            "gradient_norms": self._gradient_norms(gradients, scale),
            "weight_norms": norms,
            "learning_rate": rate,
            "loss_scale": scale,
        }

    def _loss_scale(self):
        if self._scales_loss:
            return tf.convert_to_tensor(self.optimizer.dynamic_scale)
        return tf.ones(())

    def _gradient_norms(self, gradients, scale):
        if self._scales_loss:
            return tf.stack([tf.norm(gradient) for gradient in gradients]) / scale
        return self.optimizer.gradient_norms

    def _accumulated(self, batch, weights):
        """Returns the sums and gradients of a batch, one piece after the other."""
        count = self._config.gradient_accumulation_steps
        if count == 1:
            return self._gradients(batch, weights)
        pieces = {
            name: tf.stack(tf.split(value, count)) for name, value in batch.items()
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
        """Returns the sums, float32 [2 + 2 n], and gradients of a piece of a batch.

        The gradients are those of the variables that the loss reaches, which are noted
        as `_learning`. The others stay as they are, as released: the decay alone would
        make a pooler that nothing reads vanish, under LAMB within some hundred steps.
        """
        with tf.GradientTape() as tape:
            outputs = self.task.outputs(self.model, batch, training=True)
            losses = self.task.sums(outputs, batch)
            loss = self.task.loss(losses, weights)
            scaled = loss
            if self._scales_loss:
                scaled = self.optimizer.scale_loss(loss)
        variables = self.model.trainable_variables
        found = tape.gradient(scaled, [variable.value for variable in variables])
        pairs = [(g, v) for g, v in zip(found, variables, strict=True) if g is not None]
        gradients, self._learning = map(list, zip(*pairs, strict=True))
        return self._packed("train", loss, losses, outputs, batch), gradients

    def _replica_evaluation(self, batch):
        outputs = self.task.outputs(self.model, batch, training=False)
        losses = self.task.sums(outputs, batch)
        sums = self._packed("eval", tf.constant(0.0), losses, outputs, batch)
        return self._summed(sums), self._kept(outputs, batch)

    def _replica_prediction(self, batch):
        return self._kept(self._predictor(batch, training=False), batch)

    def _kept(self, outputs, batch):
        kept = self.task.predictions(outputs, batch)
        return {**kept, _ROW: batch["row"]} if kept else {}

    def _packed(self, kind, loss, losses, outputs, batch):
        """Packs loss, tokens, and sum and weight of every figure into one tensor."""
        weights = self.task.weights(batch)
        pairs = {name: (losses[name], weights[name]) for name in losses}
        pairs |= self.task.metrics(outputs, batch)
        self._losses[kind], self._names[kind] = list(losses), list(pairs)
        tokens = tf.cast(tf.size(batch["input_ids"]), tf.float32)
        values = (value for pair in pairs.values() for value in pair)
        return tf.stack([loss, tokens, *values])

    def _means(self, sums: np.ndarray, kind: str) -> dict[str, float]:
        """Undoes `_packed`: each figure's sum over its weight."""
        return {
            name: float(sums[2 + 2 * i] / max(sums[3 + 2 * i], 1e-12))
            for i, name in enumerate(self._names[kind])
        }

    def _figures(self, last: Mapping[str, tf.Tensor]) -> dict[str, float]:
        window = self._window
        means = {"loss": float(window.sums[0]) / window.steps}
        means |= self._means(window.sums, "train")
        examples = window.steps * self._config.train_batch_size
        return {
            **self.task.figures(means),
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
        result = results[first]
        gradients = _group_norms(self._learning, result["gradient_norms"].numpy())
        before = _group_norms(self._learning, result["weight_norms"].numpy())
        groups = "; ".join(
            f"{name}: weights {before[name]:.3g}, gradient {gradients[name]:.3g}"
            for name in before
        )
        scaled = ""
        if self._scales_loss:
            scaled = f" and a loss scale of {float(result['loss_scale']):g}"
        raise InputError(
            f"step {step}: the loss is {losses[first]}, the norm of the gradient "
            f"{float(tf.norm(result['gradient_norms']))}, at a learning rate of "
            f"{float(result['learning_rate']):.3g}{scaled} (norms of {groups}). No "
            f"checkpoint was written since. Try a lower --learning_rate, more "
            f"--num_warmup_steps, or --precision=float32"
        )


def _with_rows(kept: Mapping[str, tf.Tensor]):
    """Returns the numbers of examples, and what was kept of them, as arrays."""
    values = {name: value.numpy() for name, value in kept.items()}
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


def _group_norms(variables, norms: np.ndarray) -> dict[str, float]:
    """Joins the norms of variables by the part of the model that they belong to."""
    squares: dict[str, float] = {}
    for variable, norm in zip(variables, norms, strict=True):
        group = "/".join(variable.path.split("/")[:2])
        squares[group] = squares.get(group, 0.0) + float(norm) ** 2
    return {group: square**0.5 for group, square in squares.items()}
