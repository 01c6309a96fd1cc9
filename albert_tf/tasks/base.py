"""The contract between a task and the training path, which knows no task."""

import abc
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from albert_tf import weights
from albert_tf.data.batches import Source
from albert_tf.text.tokenization import Tokenizer

Batch = Mapping[str, Any]
Outputs = Mapping[str, Any]
Predictions = Iterator[Mapping[str, np.ndarray]]


class Task(abc.ABC):
    """One task: what to read, what to build, what to minimise and what to report.

    A loss is given as a sum over the examples and the weight to divide it by, apart:
    a batch may be cut into pieces, for several devices or one after the other, and the
    sums of all pieces over the weights of all pieces give what the whole batch gives.

    Attributes:
        training: the examples to train on; None where there are none.
        evaluation: the examples to evaluate on; None where there are none.
        tokens_per_example: most tokens of an example, padding included.
        key_metric: the metric whose highest value marks the best checkpoint.
        outputs_per_token: numbers that the heads hold for a token while training.
        shown: figures to show in a line of progress, beside losses and accuracies.
    """

    training: Source | None
    evaluation: Source | None
    tokens_per_example: int
    key_metric: str
    outputs_per_token: float = 0.0
    shown: tuple[str, ...] = ()

    @abc.abstractmethod
    def build_model(self) -> keras.Model:
        """Creates the model, in the global dtype policy."""

    @abc.abstractmethod
    def load(
        self,
        model: keras.Model,
        path: str | Path | weights.Source,
        *,
        init_from_group0: bool = False,
        complete: bool = False,
    ) -> str:
        """Starts a model from weights of any format; returns what was done, in words.

        Args:
            model: of `build_model`.
            path: the weights, as `weights.load` takes them.
            init_from_group0: see `weights.load`.
            complete: the model is not going to be trained, so nothing may be missing.

        Raises:
            InputError: the weights cannot be read or do not fit.
        """

    def initialize(self, model: keras.Model) -> str | None:
        """Starts a model without weights; returns what was done beyond the random.

        Not called where `load` is.
        """
        return None

    def check_folder(self, folder: Path) -> None:
        """Refuses a folder of weights that are not for this task's data.

        Args:
            folder: of the run, or of what it starts from; it need not exist.

        Raises:
            InputError: it was trained with another vocabulary, for example.
        """
        return

    def describe(self, folder: Path) -> None:
        """Writes beside the checkpoints of a run what they are used with.

        Raises:
            InputError: the folder cannot be written.
        """
        return

    def outputs(self, model: keras.Model, batch: Batch, training: bool) -> Outputs:
        """Runs the model on a piece of a batch, to train or to evaluate."""
        return model(batch, training=training)

    @abc.abstractmethod
    def weights(self, batch: Batch) -> dict[str, Any]:
        """Returns the weight of each loss, float32 [], of a piece of a batch."""

    @abc.abstractmethod
    def sums(self, outputs: Outputs, batch: Batch) -> dict[str, Any]:
        """Returns each loss of a piece of a batch, float32 [], before division.

        Of a piece that is evaluated there may be none, where its targets are not known.
        """

    def loss(self, sums: Mapping[str, Any], weights: Mapping[str, Any]) -> Any:
        """Returns the loss to minimise.

        Args:
            sums: what `sums` returned, of a piece.
            weights: what `weights` returned, added up over all pieces.
        """
        return self.total({name: sums[name] / weights[name] for name in sums})

    def total(self, losses: Mapping[str, Any]) -> Any:
        """Returns the loss of a whole batch from the means of its losses: their sum."""
        return sum(losses.values())

    @abc.abstractmethod
    def metrics(self, outputs: Outputs, batch: Batch) -> dict[str, tuple[Any, Any]]:
        """Returns the sum and the weight, float32 [] each, of every other figure."""

    def figures(self, means: Mapping[str, float]) -> dict[str, float]:
        """Returns the figures to report, from the means of losses and metrics."""
        return dict(means)

    def predictions(self, outputs: Outputs, batch: Batch) -> dict[str, Any]:
        """Returns what is kept of each example that is not trained on, [B, ...].

        The batch has no labels where these are not known. By default nothing is kept.
        """
        return {}

    def score(
        self, predictions: Predictions, figures: Mapping[str, float]
    ) -> dict[str, float]:
        """Returns further figures of an evaluation, those that need every example.

        Args:
            predictions: {name: [...]}, one example of `evaluation` after the other.
            figures: what `figures` returned; complete when `predictions` has ended.
        """
        return {}

    def best_marked(self, folder: Path, figures: Mapping[str, float]) -> None:
        """Writes what goes with a new best checkpoint, which has just been marked.

        Args:
            folder: of the run.
            figures: of the evaluation that marks it.
        """
        return

    def complaint(self, figures: Mapping[str, float]) -> str | None:
        """Says why an evaluation shows a failed run; None where it does not."""
        return None

    def hints(self, learning_rate: float, train_batch_size: int) -> list[str]:
        """Returns what to tell about the settings before the start."""
        return []

    @property
    def sequence_length(self) -> int:
        """Tokens that attend to each other, at most."""
        return self.tokens_per_example

    @property
    def tokens_at_once(self) -> int:
        """Tokens of an example that training holds the activations of, at most."""
        return self.tokens_per_example

    @property
    def chance_losses(self) -> dict[str, float]:
        """Losses that a model which learns is soon below, by name."""
        return {}


class FineTuningTask(Task):
    """A task whose model is a pretrained encoder with a new head.

    Attributes:
        tokenizer: that makes its inputs.
        kept: keys of `task.json` that go with the best checkpoint: a run that resumes
            leaves them as they are.
    """

    tokenizer: Tokenizer
    kept: tuple[str, ...] = ()

    @property
    @abc.abstractmethod
    def description(self) -> dict[str, Any]:
        """What `task.json` says of the model, see `metadata`."""

    def load(self, model, path, *, init_from_group0=False, complete=False):
        """Loads the encoder, and the head if the file has one that fits.

        The pooler may be missing where the head does not read it.
        """
        unread = () if model.head_reads_pooler else ("encoder.pooler",)
        if complete:
            report = weights.load(
                model, path, only=("encoder", "head"), allow_missing=unread
            )
            return f"{len(report.loaded)} weights ({report.format})"
        report = weights.load(
            model,
            path,
            only="encoder",
            allow_missing=unread,
            init_from_group0=init_from_group0,
            warn=False,
        )
        done = f"{len(report.loaded)} weights of the encoder ({report.format})"
        try:
            head = weights.load(
                model, path, only="head", allow_missing="head", warn=False
            )
        except weights.MisfitError:  # the head of another task
            return f"{done}; the file's head does not fit: a new one"
        if head.loaded:
            return f"{done} and the head"
        left = f" ({len(report.unused)} weights of other heads not used)"
        return f"{done}; a new head{left if report.unused else ''}"


def example_weights(batch: Batch) -> Any:
    """Returns 1 for true examples and 0 for those that fill up a batch, float32 [B]."""
    if "example_weight" in batch:
        return batch["example_weight"]
    return ops.ones(ops.shape(batch["input_ids"])[:1], "float32")
