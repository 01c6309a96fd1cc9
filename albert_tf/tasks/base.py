"""The base classes of tasks: their interface for training and evaluation."""

import abc
import dataclasses
import functools
import itertools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from albert_tf import errors, weights
from albert_tf.data import cache
from albert_tf.data.batches import BucketedExamples, Examples
from albert_tf.data.files import write
from albert_tf.errors import InputError
from albert_tf.model.config import AlbertConfig
from albert_tf.tasks import head_labels, registry
from albert_tf.tasks.confusion import Confusion
from albert_tf.tasks.serving import ServingFunction
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings
from albert_tf.text.inputs import Inputs
from albert_tf.text.tokenization import Tokenizer
from albert_tf.weights import metadata

# The features and labels of a batch, or of a part of a batch, by name. Each array is
# [B, ...], where B is the number of rows: examples, or windows of long examples.
Batch = Mapping[str, Any]
# The model's outputs for a part of a batch, by name.
Outputs = Mapping[str, Any]
# Yields the `prediction_outputs` of one example at a time, by name. The arrays have no
# batch dimension.
Predictions = Iterator[Mapping[str, np.ndarray]]
# NumPy arrays by name.
Arrays = Mapping[str, Any]


class Task(abc.ABC):
    """A task: its data, its model, its loss and its metrics.

    A batch may be split into parts, among devices and into microbatches. For each part,
    the task returns the sum of each loss and the weight of this sum, such as the number
    of examples. A mean loss of the batch is the total of the sums of this loss, divided
    by the total of its weights. `compute_loss` makes the loss of the batch from them.

    Attributes:
        task_type: the name of the task type in `task.json` and `run.json`.
        training: the examples to train on, or None.
        evaluation: the examples to evaluate on, or None.
        tokens_per_example: maximum number of tokens of an example, with padding.
        main_metrics: metrics that progress lines show, in addition to all losses and
            accuracies. The first one is the key metric.
        vocabulary: fingerprint of the vocabulary; None if unknown.
        confusions: confusion matrices of the last evaluation, by the split's name.
    """

    task_type: str
    training: Examples | None
    evaluation: Examples | None
    tokens_per_example: int
    main_metrics: tuple[str, ...]
    vocabulary: str | None
    confusions: Mapping[str, Confusion] = types.MappingProxyType({})

    @property
    def key_metric(self) -> str:
        """The metric whose highest value marks the best checkpoint."""
        return self.main_metrics[0]

    @abc.abstractmethod
    def build_model(self) -> keras.Model:
        """Creates the model with the global dtype policy."""

    @abc.abstractmethod
    def load(
        self,
        model: keras.Model,
        path: str | Path | weights.Source,
        *,
        init_from_group0: bool = False,
        strict: bool = False,
    ) -> str:
        """Loads weights of any format into a model; returns a line to log.

        Args:
            model: the result of `build_model`.
            path: the weights, as `weights.load` takes them.
            init_from_group0: whether each group of layers that the weights lack gets
                the weights of group 0, see `weights.load`.
            strict: whether all weights must be present, because no training follows.

        Raises:
            InputError: the weights cannot be read or do not fit.
        """

    def initialize(self, model: keras.Model) -> str | None:
        """Sets the weights that depend on data; returns a line to log, or None.

        This method is called only if training starts from random weights.
        """
        return None

    def check_folder(self, folder: Path) -> None:
        """Checks that the weights of a folder fit the data.

        Args:
            folder: the folder of the run or of its initial weights; it need not exist.

        Raises:
            InputError: the weights do not fit; for example, their vocabulary differs.
        """
        return

    def save_assets(self, folder: Path) -> None:
        """Writes the files that the checkpoints of a run need, such as a vocabulary.

        Raises:
            InputError: the folder cannot be written.
        """
        return

    def run_model(self, model: keras.Model, batch: Batch, training: bool) -> Outputs:
        """Runs the model on a part of a batch."""
        return model(batch, training=training)

    @abc.abstractmethod
    def loss_weights(self, batch: Batch) -> dict[str, Any]:
        """Returns the weight of each loss for a part of a batch, float32 [].

        The weight is a divisor, such as the number of examples. It is not a
        coefficient, unlike `loss_weights` in Keras.
        """

    @abc.abstractmethod
    def loss_sums(self, outputs: Outputs, batch: Batch) -> dict[str, Any]:
        """Returns the sum of each loss over the examples of a part, float32 [].

        The result may be empty for an evaluation without labels.
        """

    def compute_loss(self, sums: Mapping[str, Any], totals: Mapping[str, Any]) -> Any:
        """Returns the contribution of a part of a batch to the loss of the batch.

        By default, the loss of the batch is the sum of its mean losses. The
        contributions of all parts add up to the loss of the batch.

        Args:
            sums: the result of `loss_sums` for one part.
            totals: the sum of `loss_weights` over all parts, by the name of the loss.
        """
        return sum(sums[name] / totals[name] for name in sums)

    def batch_metrics(
        self, outputs: Outputs, batch: Batch
    ) -> dict[str, tuple[Any, Any]]:
        """Returns the sum and the weight of each metric that is not a loss.

        Sum and weight are float32 [], for a part of a batch. The metric is the total of
        the sums, divided by the total of the weights.
        """
        return {}

    def finalize_metrics(self, means: Mapping[str, float]) -> dict[str, float]:
        """Returns the metrics to report.

        Args:
            means: the means of the losses and of the batch metrics by name, and `loss`,
                the loss of the batch. Without labels, there are no losses.
        """
        return dict(means)

    def prediction_outputs(self, outputs: Outputs, batch: Batch) -> dict[str, Any]:
        """Returns the values from which predictions are made, by name: [B, ...].

        The batch may lack labels.
        """
        return {}

    def evaluate_predictions(
        self, predictions: Predictions, metrics: Mapping[str, float]
    ) -> dict[str, float]:
        """Returns the metrics that are computed from all examples together, such as F1.

        Args:
            predictions: the `prediction_outputs` of each example, in the order of
                `evaluation`.
            metrics: the result of `finalize_metrics`.
        """
        return {}

    def on_new_best_checkpoint(self, folder: Path) -> None:
        """Is called after a new best checkpoint is saved in the run's folder."""
        return


@dataclasses.dataclass(frozen=True)
class Split:
    """A part of the data for training, evaluation or prediction.

    Attributes:
        name: "train", "dev", "test" or another name, for files and messages.
        examples: examples from `FineTuningTask.read_examples`.
        features: the result of `FineTuningTask.features`; None before encoding.
    """

    name: str
    examples: Any
    features: Any = None


# The splits to train on ("train"), to evaluate ("dev") and to predict ("test").
Splits = Mapping[str, Sequence[Split]]


@dataclasses.dataclass(frozen=True)
class RunContext:
    """The values and functions of a run that `FineTuningTask.predict_and_write` uses.

    Attributes:
        settings: the run's settings.
        is_chief: whether this worker is the chief, which writes the files.
        log: logs a line.
        predict: returns the answers to a split, see `FineTuningTask.postprocess`. All
            workers must call it, because each predicts a part of the examples.
        add_results: adds a block of metrics to `eval_results.txt`.
    """

    settings: FineTuningSettings
    is_chief: bool
    log: Callable[[str], None]
    predict: Callable[[Split], Any]
    add_results: Callable[[Mapping[str, float]], None]

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return Path(self.settings.output_dir)


class FineTuningTask(Task):
    """A family of task types: a pretrained encoder with one type of head.

    For example, classification and regression of texts are one family, with one
    subclass. `train.finetune.fine_tune` trains all families. The answers to a split are
    the predictions for its examples, in the form that `postprocess` returns.

    A family defines these members:

    task_types          the names of its task types in `task.json`
    main_metrics        the metrics in progress lines; the first one is the key metric
    read_examples       reads files; returns settings, and examples by split
    encode              tokenizes examples; returns arrays, which are cached
    dataset             makes batches from features
    build_model         creates the model
    loss_sums           returns the sums of the losses over the examples of a part
    prediction_files    returns the contents of the files with predictions
    serving_fn          makes the function of a SavedModel for raw text

    These members have defaults, which a family may override: `features`, `summary`,
    `loss_weights`, `compute_loss`, `prediction_outputs`, `postprocess`,
    `compute_metrics` and `on_new_best_checkpoint`.

    Attributes:
        targets_and_predictions: the true labels and the predictions of the last
            evaluation, by the split's name. Both are arrays for n examples (in tagging:
            n words) and K labels. They have class numbers, int [n]; or with several
            labels per example, 0 or 1 for each label, int [n, K]; or the numbers of a
            regression, float [n].

    Args:
        settings: the family's settings, an object of the `settings_class` of its
            pipeline. `TaskSettings.with_defaults` has set the values that the user
            left out.
        config: the model's config.
        tokenizer: the tokenizer with the model's vocabulary.
        pad_multiple: batches are padded to a multiple of this number of tokens, at most
            to `max_seq_length`. With 0, all batches are padded to `max_seq_length`.
    """

    task_types: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        settings: Any,
        config: AlbertConfig,
        tokenizer: Tokenizer,
        pad_multiple: int = 8,
    ):
        self.settings = settings
        self.config = config
        self.tokenizer = tokenizer
        self.task_type = self.task_types[0]
        self.vocabulary = tokenizer.fingerprint
        self.pad_multiple = pad_multiple
        self.tokens_per_example = settings.max_seq_length
        self.evaluation_splits: Sequence[Split] = ()
        self.targets_and_predictions: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self.training = self.evaluation = None

    @property
    def description(self) -> dict[str, Any]:
        """The content of `task.json`, except for the keys about the vocabulary."""
        return {"kind": self.task_type, **self.settings.select("stored")}

    def save_assets(self, folder: Path) -> None:
        """Writes `task.json` and the vocabulary."""
        metadata.write(folder, self.tokenizer, self.description)

    @classmethod
    @abc.abstractmethod
    def read_examples(
        cls,
        settings: Any,
        saved_settings: Any,
        run_settings: FineTuningSettings,
        log: Callable[[str], None],
    ) -> tuple[Any, Splits]:
        """Reads the data of a run.

        Args:
            settings: the family's settings.
            saved_settings: the settings in the model's folder, or None.
            run_settings: the run's settings.
            log: logs a line.

        Returns:
            A pair. First, the settings with values from the data or from the model's
            folder, such as the labels. Second, the splits without features, by the keys
            "train", "dev" and "test". A `Split` object under two keys is encoded only
            once.

        Raises:
            InputError: a file is missing or broken, or does not fit the settings.
        """

    @abc.abstractmethod
    def encode(self, split: Split) -> Arrays:
        """Tokenizes the examples of a split; returns arrays to cache."""

    def features(self, split: Split, arrays: Arrays) -> Any:
        """Makes features from the arrays of `encode`; by default `Inputs`.

        Features have an attribute `lengths`: the number of tokens of each model input.
        Their `len` is the number of model inputs.
        """
        return Inputs(**arrays)

    def summary(self, split: Split) -> list[str]:
        """Returns lines to log about a split with features, such as its size.

        Families add lines, for example about truncation.
        """
        lengths = split.features.lengths
        return [
            f"{split.name}: {len(lengths):,} sequences, {lengths.mean():.1f} tokens on "
            f"average, {lengths.max()} at most"
        ]

    @abc.abstractmethod
    def dataset(self, splits: Sequence[Split], *, with_labels: bool) -> Examples:
        """Makes a source of batches with the examples of one split after the other.

        Args:
            splits: splits with features.
            with_labels: whether batches have labels.

        Raises:
            InputError: a label is missing.
        """

    def cache_key(self, split: Split) -> dict[str, Any]:
        """Returns all values that determine the result of `encode`, as JSON values."""
        return {
            "split": split.name,
            # Not a digest of the data file, because flags also change the examples.
            "examples": cache.digest(map(repr, split.examples)),
            "vocabulary": self.tokenizer.fingerprint,
            **self.settings.select("affects_encoding"),
        }

    def encode_split(self, split: Split, arrays: Arrays | None = None) -> Split:
        """Returns a split with features.

        Args:
            split: a split without features.
            arrays: the result of `encode`; by default, this method calls `encode`.
        """
        arrays = self.encode(split) if arrays is None else arrays
        return dataclasses.replace(split, features=self.features(split, arrays))

    def bucket(self, lengths: np.ndarray, make_batch: Callable) -> BucketedExamples:
        """Makes a source of batches. The examples of a batch have similar lengths.

        Args:
            lengths: number of tokens of each example, int [n].
            make_batch: makes a batch from the indices of its examples, int [B], and the
                number of tokens to which the examples are padded.
        """
        longest = self.settings.max_seq_length
        return BucketedExamples(lengths, make_batch, longest, self.pad_multiple)

    def set_splits(self, splits: Splits) -> None:
        """Sets `training` and `evaluation` to sources with the splits' batches."""
        if splits.get("train"):
            self.training = self.dataset(splits["train"], with_labels=True)
        if splits.get("dev"):
            self.evaluation_splits = splits["dev"]
            self.evaluation = self.dataset(splits["dev"], with_labels=True)

    def loss_weights(self, batch: Batch) -> dict[str, Any]:
        """Returns the sum of the examples' weights, float32 [], for the only loss."""
        return {"loss": ops.sum(example_weights(batch))}

    def prediction_outputs(self, outputs: Outputs, batch: Batch) -> dict[str, Any]:
        """Returns `outputs`: the probabilities of the labels or choices, [B, K]."""
        return {"outputs": ops.softmax(outputs["logits"])}

    def postprocess(self, split: Split, predictions: Predictions) -> Any:
        """Makes the answers to a split from the `prediction_outputs` of each example.

        The answers must support `+` and `/`, so that the answers of several models can
        be averaged. By default, they are one array: the `outputs` of n examples,
        [n, K].
        """
        return np.array([row["outputs"] for row in predictions])

    def compute_metrics(self, split: Split, answers: Any) -> dict[str, float]:
        """Returns the metrics of answers; empty without labels.

        Tasks that predict classes or numbers also set the split's entry of
        `targets_and_predictions`.

        Args:
            split: the examples.
            answers: the answers to all examples, or only to the first examples if
                --max_eval_steps ended the evaluation.
        """
        return {}

    def evaluate_predictions(
        self, predictions: Predictions, metrics: Mapping[str, float]
    ) -> dict[str, float]:
        """Returns the metrics of all evaluated splits, and the loss."""
        scores = self.evaluate_splits(self._group_by_split(predictions))
        if "loss" in metrics:
            scores["eval_loss"] = metrics["loss"]
        return scores

    def _group_by_split(self, predictions: Predictions) -> Iterator[tuple[Split, Any]]:
        """Yields each evaluated split with the answers that `postprocess` makes."""
        for split in self.evaluation_splits:
            rows = itertools.islice(predictions, len(split.features))
            first_row = next(rows, None)
            if first_row is None:
                break  # --max_eval_steps has ended the evaluation
            yield split, self.postprocess(split, itertools.chain([first_row], rows))

    def evaluate_splits(self, pairs: Iterable[tuple[Split, Any]]) -> dict[str, float]:
        """Returns the metrics of several splits; also sets `confusions`.

        From the second split on, the name of a metric begins with the name of the
        split, as in "dev_mismatched/eval_accuracy".

        Args:
            pairs: each split, and the answers to it.
        """
        scores: dict[str, float] = {}
        self.targets_and_predictions, self.confusions = {}, {}
        for split_index, (split, answers) in enumerate(pairs):
            prefix = f"{split.name}/" if split_index > 0 else ""
            for name, value in self.compute_metrics(split, answers).items():
                scores[f"{prefix}{name}"] = value
        labels = self.settings.labels or ()
        # A matrix needs the names of labels, and targets of shape [n]: one class per
        # example. A regression has no names. With several labels per example, the
        # targets have the shape [n, K].
        with errors.log_failure("confusion matrix of the evaluation"):
            self.confusions = {
                name: Confusion.from_predictions(labels, targets, predictions)
                for name, (targets, predictions) in self.targets_and_predictions.items()
                if labels and targets.ndim == 1
            }
        return scores

    @abc.abstractmethod
    def prediction_files(self, split: Split, answers: Any) -> Mapping[str, str | bytes]:
        """Returns the contents of a split's prediction files, by the file's name."""

    def predict_and_write(self, context: RunContext, splits: Splits) -> None:
        """Predicts the test splits with the best weights, and writes the answers."""
        # `on_new_best_checkpoint` writes files about the last evaluation. Training has
        # already called it, so it is called here only in a run without training.
        has_trained = context.settings.do_train
        if self.targets_and_predictions and context.is_chief and not has_trained:
            self.on_new_best_checkpoint(context.folder)
        for split in splits.get("test", ()):
            answers = context.predict(split)
            if metrics := self.compute_metrics(split, answers):
                context.log(f"{split.name}: {format_metrics(metrics)}")
            if context.is_chief:
                write_files(context, self.prediction_files(split, answers))

    @abc.abstractmethod
    def serving_fn(
        self, model: keras.Model, threshold: float | None
    ) -> ServingFunction:
        """Makes a function that answers raw text in a TensorFlow graph.

        Args:
            model: the result of `build_model`.
            threshold: the decision threshold; None for the task's default.

        Raises:
            InputError: the threshold does not fit.
        """

    def load(self, model, path, *, init_from_group0=False, strict=False):
        """Loads the encoder, and the head if the file has a head that fits.

        The pooler may be missing, as in Hugging Face's masked language models. It is
        required only if `strict` is true and the head reads it.
        """
        source = path if isinstance(path, weights.Source) else weights.open_source(path)
        load = functools.partial(weights.load, model, source, warn=False)
        order, note = self._match_head(source)
        # An empty order means that the head does not fit. With None, the head's outputs
        # stay in their order.
        is_misfit = order == []
        pooler = "encoder.pooler"
        if strict:
            if is_misfit:
                raise InputError(f"{source.path}: {note}")
            # A pooler that the head does not read may be missing.
            unread = () if model.head_reads_pooler else pooler
            parts = ("encoder", "head")
            report = load(only=parts, allow_missing=unread, head_order=order, warn=True)
            return f"{len(report.loaded)} weights ({report.format}){note}"
        report = load(
            only="encoder", allow_missing=pooler, init_from_group0=init_from_group0
        )
        line = f"{len(report.loaded)} weights of the encoder ({report.format})"
        if report.missing and model.head_reads_pooler:
            line += "; a new pooler"
        if is_misfit:
            return f"{line}; a new head, as {note}"
        try:
            head = load(only="head", allow_missing="head", head_order=order)
        except weights.MisfitError:  # the head of another task
            return f"{line}; the file's head does not fit: a new one"
        if head.loaded:
            return f"{line} and the head{note}"
        unused = f" ({len(report.unused)} weights of other heads not used)"
        return f"{line}; a new head{unused if report.unused else ''}"

    def _match_head(self, source: weights.Source) -> tuple[list[int] | None, str]:
        """Matches the labels of a file's head with the task's labels.

        Returns:
            A pair. First, a list: for each label of the task, the index of the head's
            output for this label. The list is empty if the head has other labels or is
            for another task. If the task has no labels, or those of the head are
            unknown, None replaces the list. The outputs then keep their order. Second,
            a note for the log: the labels of the head, or the reason why the head does
            not fit.
        """
        saved_task = metadata.find_task(Path(source.path))
        # The name of the head's task type.
        kind = saved_task.get("kind", self.task_type)
        if kind in registry.FINE_TUNED and kind not in self.task_types:
            return [], f"its head is for {kind}, not for {self.task_type}"
        labels = self.settings.labels  # the labels of the task
        saved_labels = saved_task.get("labels") or ()
        flag_labels = self.settings.head_labels or ()  # the value of --labels
        if not labels or not (saved_labels or flag_labels):
            note = f" (labels assumed: {', '.join(labels)})" if labels else ""
            return None, note
        candidates = [saved_labels, flag_labels]
        # If the data set fixes the task's labels, as in GLUE, --labels cannot set them.
        # The flag then only names the outputs of the head. So it has priority over the
        # saved labels.
        if self.settings.labels_are_fixed:
            candidates.reverse()
        for labels_of_head in filter(None, candidates):
            order = head_labels.match(labels, labels_of_head, self.settings.label_names)
            if order is not None:
                return order, f" (its labels: {', '.join(labels_of_head)})"
        return [], (
            f"the labels of the head are {', '.join(saved_labels)}, but the labels of "
            f"the task are {', '.join(labels)}; expected --labels with the task's "
            f"labels in the order of the head"
        )


def format_metrics(metrics: Mapping[str, float]) -> str:
    """Returns metrics as a line to log."""
    return "  ".join(f"{name} {value:.4f}" for name, value in metrics.items())


def write_files(context: RunContext, files: Mapping[str, str | bytes]) -> None:
    """Writes files to the folder of a run, and logs their names.

    Raises:
        InputError: a file cannot be written.
    """
    for name, content in files.items():
        write(context.folder / name, content)
        context.log(f"Written: {context.folder / name}")


def example_weights(batch: Batch) -> Any:
    """Returns the weight of each example in the loss, float32 [B].

    The weight is 0 for a row that only fills up a batch. Otherwise it is the weight of
    the example's class, by default 1.
    """
    if "example_weight" in batch:
        return batch["example_weight"]
    return ops.ones(ops.shape(batch["input_ids"])[:1], "float32")
