"""The contract between a task and the training path, which knows no task."""

import abc
from collections.abc import Mapping
from typing import Any

import keras

from albert_tf.batches import Source

Batch = Mapping[str, Any]
Outputs = Mapping[str, Any]


class Task(abc.ABC):
    """One task: what to read, what to build, what to minimise and what to report.

    A loss is given as a sum over the examples and the weight to divide it by, apart:
    a batch may be cut into pieces, for several devices or one after the other, and the
    sums of all pieces over the weights of all pieces give what the whole batch gives.

    Attributes:
        training: the examples to train on.
        evaluation: the examples to evaluate on; None where there are none.
        tokens_per_example: tokens of an example, padding included.
        key_metric: the metric whose highest value marks the best checkpoint.
    """

    training: Source
    evaluation: Source | None
    tokens_per_example: int
    key_metric: str

    @abc.abstractmethod
    def build_model(self) -> keras.Model:
        """Creates the model, in the global dtype policy."""

    @abc.abstractmethod
    def load(self, model: keras.Model, path: str, init_from_group0: bool) -> str:
        """Starts a model from weights of any format; returns what was done, in words.

        Raises:
            InputError: the weights cannot be read or do not fit.
        """

    def initialize(self, model: keras.Model) -> str | None:
        """Starts a model without weights; returns what was done beyond the random.

        Not called where `load` is.
        """
        return None

    @abc.abstractmethod
    def weights(self, batch: Batch) -> dict[str, Any]:
        """Returns the weight of each loss, float32 [], of a piece of a batch."""

    @abc.abstractmethod
    def sums(self, outputs: Outputs, batch: Batch) -> dict[str, Any]:
        """Returns each loss of a piece of a batch, float32 [], before division."""

    def loss(self, sums: Mapping[str, Any], weights: Mapping[str, Any]) -> Any:
        """Returns the loss to minimise: the sum of the losses.

        Args:
            sums: what `sums` returned, of a piece.
            weights: what `weights` returned, added up over all pieces.
        """
        return sum(sums[name] / weights[name] for name in sums)

    @abc.abstractmethod
    def metrics(self, outputs: Outputs, batch: Batch) -> dict[str, tuple[Any, Any]]:
        """Returns the sum and the weight, float32 [] each, of every other figure."""

    def figures(self, means: Mapping[str, float]) -> dict[str, float]:
        """Returns the figures to report, from the means of losses and metrics."""
        return dict(means)

    @property
    def chance_losses(self) -> dict[str, float]:
        """Losses that a model which learns is soon below, by name."""
        return {}
