"""Texts and pairs of texts to labels or numbers: the model side of a `TextTask`."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from keras import ops

from albert_tf.data import cache
from albert_tf.data.batches import ByLength
from albert_tf.data.tables import Table
from albert_tf.model import heads
from albert_tf.model.config import AlbertConfig
from albert_tf.model.models import AlbertClassifier
from albert_tf.tasks import base
from albert_tf.tasks.text_task import Example, TextTask
from albert_tf.text import inputs
from albert_tf.text.inputs import Inputs
from albert_tf.text.tokenization import Tokenizer

_COLLAPSED = "largest_predicted_share"


@dataclasses.dataclass(frozen=True)
class Split:
    """The examples of one table.

    Attributes:
        name: see `TextTask.files`.
        examples: n examples.
        inputs: theirs.
    """

    name: str
    examples: Sequence[Example]
    inputs: Inputs


def convert(
    declared: TextTask,
    name: str,
    table: Table[Example],
    tokenizer: Tokenizer,
    max_seq_length: int,
    folder: Path,
    num_threads: int = 1,
    unsaved: list[Callable[[], None]] | None = None,
) -> Split:
    """Turns a table into inputs, or takes them from a file of an earlier run.

    Args:
        declared: the task.
        name: of the split.
        table: its examples.
        tokenizer: cuts texts into pieces.
        max_seq_length: most tokens of an input.
        folder: gets `<task>_<split>.npz`.
        num_threads: at most so many threads tokenize.
        unsaved: see `cache.load_or_make`.

    Raises:
        InputError: see `inputs.encode` and `cache.load_or_make`.
    """
    examples = table.rows
    made_from = {
        "task": declared.name,
        # Not the file's: which of its rows are there depends on several flags.
        "texts": cache.digest(
            text for e in examples for text in (e.text_a, e.text_b or "")
        ),
        "vocabulary": tokenizer.fingerprint,
        "max_seq_length": max_seq_length,
    }

    def make() -> cache.Arrays:
        pairs = bool(examples) and examples[0].text_b is not None
        found = inputs.encode(
            tokenizer,
            [example.text_a for example in examples],
            [example.text_b or "" for example in examples] if pairs else None,
            max_seq_length,
            num_threads=num_threads,
        )
        return {name: np.asarray(v) for name, v in dataclasses.asdict(found).items()}

    arrays, _ = cache.load_or_make(
        folder / f"{declared.name}_{name}.npz", made_from, make, unsaved
    )
    fields: dict[str, Any] = {n: v if v.ndim else int(v) for n, v in arrays.items()}
    return Split(name, examples, Inputs(**fields))


def describe(declared: TextTask, max_seq_length: int) -> dict[str, Any]:
    """Returns the kind of a task, its labels, and how inputs are made."""
    kind = "multi_label" if declared.label_separator else "classification"
    return {
        "kind": kind if declared.labels else "regression",
        "task": declared.name,
        "labels": declared.labels,
        "label_separator": declared.label_separator,
        "bounds": declared.bounds,
        "texts": len(declared.text),
        "max_seq_length": max_seq_length,
    }


class Classification(base.FineTuningTask):
    """Classes, several labels per example, or numbers (paper, GLUE).

    The figures are those of the declaration, of the first evaluated split; those of
    others have the split's name in front. `eval_loss` as released.

    Args:
        declared: the task.
        config: the model's.
        tokenizer: that made the inputs.
        max_seq_length: most tokens of an input.
        training: the examples to train on, if any.
        evaluation: the splits to evaluate on.
        multiple: see `ByLength`.

    Attributes:
        evaluated: the splits to evaluate on.
    """

    def __init__(
        self,
        declared: TextTask,
        config: AlbertConfig,
        tokenizer: Tokenizer,
        *,
        max_seq_length: int,
        training: Split | None = None,
        evaluation: Sequence[Split] = (),
        multiple: int = 8,
    ):
        self.declared = declared
        self.config = config
        self.tokenizer = tokenizer
        self.tokens_per_example = max_seq_length
        self.key_metric = declared.key_metric
        self.shown = tuple(declared.metrics)
        self._multiple = multiple
        self.evaluated = evaluation
        self.training = self.source([training], labelled=True) if training else None
        self.evaluation = self.source(evaluation, labelled=True) if evaluation else None

    @property
    def description(self) -> dict[str, Any]:
        """See `describe`."""
        return describe(self.declared, self.tokens_per_example)

    def source(self, splits: Sequence[Split], *, labelled: bool) -> ByLength:
        """Returns the batches of some splits, one after the other.

        Args:
            splits: the examples.
            labelled: whether batches have `labels`.
        """
        joined = inputs.concatenate([split.inputs for split in splits])
        targets = None
        if labelled:
            targets = np.concatenate(
                [self.declared.targets(split.examples) for split in splits]
            )

        def make(rows, length):
            batch = inputs.pad(joined, rows, length, self.tokenizer.pad_id)
            return batch if targets is None else {**batch, "labels": targets[rows]}

        return ByLength(joined.lengths, make, self.tokens_per_example, self._multiple)

    def build_model(self):
        """Creates the encoder with a classifier."""
        return AlbertClassifier(self.config, self.declared.outputs)

    def weights(self, batch: base.Batch) -> dict[str, Any]:
        """Returns the number of examples."""
        return {"loss": ops.sum(base.example_weights(batch))}

    def sums(self, outputs: base.Outputs, batch: base.Batch) -> dict[str, Any]:
        """Returns the summed loss of the declared kind."""
        logits, labels = outputs["logits"], batch["labels"]
        if self.declared.labels is None:
            _, each = heads.regression_loss(logits, labels)
        elif self.declared.label_separator is None:
            _, each = heads.classification_loss(logits, labels)
        else:
            _, each = heads.multi_label_loss(logits, labels)
        return {"loss": ops.sum(each * base.example_weights(batch))}

    def metrics(
        self, outputs: base.Outputs, batch: base.Batch
    ) -> dict[str, tuple[Any, Any]]:
        """Returns none: `score` has them."""
        return {}

    def predictions(self, outputs: base.Outputs, batch: base.Batch) -> dict[str, Any]:
        """Keeps probabilities, [B, K]; of a regression the number, [B, 1]."""
        logits = outputs["logits"]
        if self.declared.labels is None:
            return {"outputs": logits}
        if self.declared.label_separator is None:
            return {"outputs": ops.softmax(logits)}
        return {"outputs": ops.sigmoid(logits)}

    def score(
        self, predictions: base.Predictions, figures: Mapping[str, float]
    ) -> dict[str, float]:
        """Computes the declared metrics of every split."""
        outputs = stacked(predictions)
        scores = {"eval_loss": figures["loss"]}
        first = 0
        for number, split in enumerate(self.evaluated):
            examples = split.examples[: max(len(outputs) - first, 0)]
            decided = self.declared.predict(outputs[first : first + len(examples)])
            first += len(examples)
            if not examples:
                break
            found = self.declared.score(self.declared.targets(examples), decided)
            found[_COLLAPSED] = _largest_share(decided)
            prefix = f"{split.name}/" if number else ""
            scores |= {f"{prefix}{name}": value for name, value in found.items()}
        return scores

    def complaint(self, figures: Mapping[str, float]) -> str | None:
        """Names a model that gives every example the same answer."""
        if figures.get(_COLLAPSED, 0.0) < 1.0:
            return None
        return (
            f"every example gets the same answer, at a loss of "
            f"{figures['eval_loss']:.3f}: the model has not learned yet, or has "
            f"collapsed (another --seed, a lower --learning_rate or a longer "
            f"--warmup_step may help)"
        )


def stacked(predictions: base.Predictions) -> np.ndarray:
    """Returns what `Classification.predictions` kept as one array, float32 [n, K]."""
    return np.array([found["outputs"] for found in predictions])


def _largest_share(predictions: np.ndarray) -> float:
    """Returns how large a share of examples has the most frequent answer."""
    if predictions.dtype.kind == "f":
        predictions = np.round(predictions, 3)
    _, counts = np.unique(predictions, axis=0, return_counts=True)
    return float(counts.max() / len(predictions))
