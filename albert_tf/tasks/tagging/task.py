"""Token classification: named entities and parts of speech, `run_tagging.py`."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from keras import ops

from albert_tf import errors
from albert_tf.data import cores
from albert_tf.errors import InputError
from albert_tf.model import heads
from albert_tf.model.models import AlbertTokenClassifier
from albert_tf.tasks import base, confusion, metrics
from albert_tf.tasks.base import Arrays, Split
from albert_tf.tasks.confusion import Confusion
from albert_tf.tasks.settings.fine_tuning import FILES, FLAGS
from albert_tf.tasks.settings.tagging import TaggingSettings
from albert_tf.tasks.tagging import graph, reading
from albert_tf.tasks.tagging.reading import Sentence
from albert_tf.text import inputs
from albert_tf.text.inputs import Inputs

# The label of tokens without a label, as in transformers.
_NO_LABEL = -100
# Weight of the loss in batches without labels. It prevents a division by 0.
_MIN_LOSS_WEIGHT = 1e-6


@dataclasses.dataclass(frozen=True)
class Features(Inputs):
    """The windows of a split: W windows and N words.

    Attributes:
        positions: int64 [N], position of each word's first token in its window.
        word_bounds: int64 [W + 1]; window i labels the words [word_bounds[i],
            word_bounds[i + 1]).
        unknown_words: int64 [], number of words without a token.
    """

    positions: np.ndarray
    word_bounds: np.ndarray
    unknown_words: np.ndarray

    def words(self, window: int) -> slice:
        """Returns the indices of the words that a window labels."""
        return slice(*self.word_bounds[window : window + 2].tolist())


class Tagging(base.FineTuningTask):
    """Labels words: named entities (CoNLL-2003) or parts of speech.

    The metrics are `eval_precision`, `eval_recall` and `eval_f1` of entities of all
    types (seqeval), and `eval_accuracy` of words.
    """

    task_types = ("token_classification",)

    def __init__(self, settings: TaggingSettings, *args: Any, **kwargs: Any):
        super().__init__(settings, *args, **kwargs)
        self._labels: tuple[str, ...] = settings.labels or ()
        self._has_entities = reading.has_entities(self._labels)
        self.main_metrics = ("eval_f1",) if self._has_entities else ("eval_accuracy",)

    @classmethod
    def read_examples(cls, settings, saved_settings, run_settings, log):
        saved_labels = saved_settings.labels if saved_settings else None
        labels = settings.labels or saved_labels
        splits: dict[str, list[Split]] = {}
        for part in run_settings.split_names:
            # `_read` uses `known_labels` only to decide whether it converts the labels
            # in the file to IOB2. For training data, the saved labels are not used,
            # because the data may have other labels.
            known_labels = settings.labels if part == "train" else labels
            splits[part] = [Split(part, _read(settings, part, known_labels, log))]
        if settings.labels is None and "train" in splits:
            labels = reading.all_labels(splits["train"][0].examples)
            if set(labels) < set(saved_labels or ()):
                labels = saved_labels  # --train_file lacks some of these labels
        if not labels:
            raise InputError("--labels: required without --train_file or saved labels")
        for part, [split] in splits.items():
            path = getattr(settings, FILES[part])
            reading.check_labels(path, split.examples, labels)
        # A run writes predictions for the dev split, too.
        splits["test"] = [*splits.get("dev", ()), *splits.get("test", ())]
        # `head_labels` is the value of --labels; it never comes from a file. The base
        # class matches the saved labels of a loaded head with `labels`. If there are
        # none, or they do not match, it uses `head_labels` instead.
        fields = {"labels": labels, "head_labels": settings.labels}
        return dataclasses.replace(settings, **fields), splits

    def encode(self, split: Split) -> Arrays:
        words = [word for sentence in split.examples for word in sentence.words]
        word_ids = self.tokenizer.encode_batch(words, cores.available())
        counts = np.array([len(ids) for ids in word_ids], np.int64)
        values = np.fromiter(itertools.chain.from_iterable(word_ids), np.int32)
        tokens = tf.RaggedTensor.from_row_lengths(values, counts)
        lengths = [len(sentence.words) for sentence in split.examples]
        sentences = tf.RaggedTensor.from_row_lengths(counts, lengths)
        size = self.tokens_per_example - 2  # without [CLS] and [SEP]
        # For each word, the index of its window and the position of its first token.
        ids, word_windows, positions = graph.divide(
            tokens, sentences, size, self.tokenizer
        )
        bounds = ids.row_splits.numpy()
        return {
            "ids": ids.values.numpy(),
            "bounds": bounds,
            # All tokens are in segment 0.
            "first_lengths": np.diff(bounds),
            # No token is removed, because long sentences have several windows.
            "truncated": np.array(0),
            "truncated_pieces": np.array(0),
            "positions": positions.numpy(),
            "word_bounds": np.searchsorted(word_windows.numpy(), range(len(bounds))),
            "unknown_words": np.sum(counts == 0),
        }

    def features(self, split: Split, arrays: Arrays) -> Features:
        return Features(**arrays)

    def summary(self, split: Split) -> list[str]:
        lines = [
            f"{split.name}: {len(split.examples):,} sentences, "
            f"{len(split.features.positions):,} words",
            *super().summary(split),
        ]
        if unknown := split.features.unknown_words:
            lines.append(f"  {unknown:,} words without a token, read as [UNK]")
        return lines

    def dataset(self, splits, *, with_labels):
        [split] = splits
        features = split.features
        targets = self._get_targets(split)

        def make_batch(rows, length):
            batch = inputs.pad(features, rows, length, self.tokenizer.pad_id)
            if with_labels:
                labels = np.full_like(batch["input_ids"], _NO_LABEL)
                for i, window in enumerate(rows):
                    words = features.words(window)
                    labels[i, features.positions[words]] = targets[words]
                batch["labels"] = labels
            return batch

        return self.bucket(features.lengths, make_batch)

    def build_model(self):
        return AlbertTokenClassifier(self.config, len(self._labels))

    def loss_weights(self, batch: base.Batch) -> dict[str, Any]:
        """Returns the number of labeled words, or a small number if it is 0."""
        has_label = ops.cast(batch["labels"] >= 0, "float32")
        count = ops.sum(ops.sum(has_label, axis=1) * base.example_weights(batch))
        return {"loss": ops.maximum(count, _MIN_LOSS_WEIGHT)}

    def loss_sums(self, outputs: base.Outputs, batch: base.Batch) -> dict[str, Any]:
        """Returns the sum of the cross-entropies of the words."""
        losses = heads.token_classification_loss(outputs["logits"], batch["labels"])
        weights = base.example_weights(batch)
        return {"loss": ops.sum(ops.sum(losses, axis=1) * weights)}

    def postprocess(self, split: Split, predictions: base.Predictions) -> np.ndarray:
        """Returns the probabilities of K labels for each word, float32 [words, K].

        --max_eval_steps can end an evaluation within a sentence. The result has only
        the words of sentences of which all words are predicted.
        """
        features = split.features
        # `np.concatenate` requires an array, even if there are no predictions.
        probabilities = [np.empty((0, len(self._labels)), np.float32)]
        probabilities += (
            prediction["outputs"][features.positions[features.words(window)]]
            for window, prediction in enumerate(predictions)
        )
        answers = np.concatenate(probabilities)
        # 0, and the number of words up to the end of each sentence.
        ends = np.cumsum([0, *(len(sentence.words) for sentence in split.examples)])
        return answers[: ends[ends <= len(answers)][-1]]

    def _get_targets(self, split: Split) -> np.ndarray:
        """Returns the class numbers of all words that have a label, int32."""
        classes = {label: i for i, label in enumerate(self._labels)}
        labels = (
            label for sentence in split.examples for label in sentence.labels or ()
        )
        return np.array([classes[label] for label in labels], np.int32)

    def _compare(
        self, split: Split, answers: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Returns the true and the predicted class numbers of the predicted words.

        The result is None if a word has no label, or if no word is predicted.
        """
        predictions = answers.argmax(axis=-1)
        targets = self._get_targets(split)[: len(predictions)]
        return (targets, predictions) if len(predictions) == len(targets) > 0 else None

    def _group(self, split: Split, classes: np.ndarray) -> list[list[str]]:
        """Converts class numbers to labels; returns a list of labels per sentence."""
        labels = np.array(self._labels, object)[classes]
        ends = np.cumsum([len(sentence.words) for sentence in split.examples])
        return [each.tolist() for each in np.split(labels, ends) if each.size]

    def compute_metrics(self, split: Split, answers: np.ndarray) -> dict[str, float]:
        """Returns the accuracy of words; and precision, recall and F1 of entities."""
        pair = self._compare(split, answers)
        if pair is None:
            return {}
        self.targets_and_predictions[split.name] = pair
        scores = {"eval_accuracy": metrics.accuracy(*pair)}
        if self._has_entities:
            labels, predictions = (self._group(split, each) for each in pair)
            scores |= metrics.entity_scores(labels, predictions)
        return scores

    def prediction_files(self, split: Split, answers: np.ndarray) -> dict[str, Any]:
        """Returns contents of files by name.

        The files are predictions, scores by type of entity or by label, and a picture
        of the confusion matrix. The scores and the picture require labels in the data.
        """
        predictions = self._group(split, answers.argmax(axis=-1))
        columns = _format_columns(split.examples, predictions)
        files: dict[str, str | bytes] = {f"{split.name}_predictions.txt": columns}
        if pair := self._compare(split, answers):
            if self._has_entities:
                report = metrics.entity_report(self._group(split, pair[0]), predictions)
            else:
                report = metrics.label_report(*pair, self._labels)
            files[f"{split.name}_label_scores.txt"] = report
            with errors.log_failure("confusion matrix"):
                matrix = Confusion.from_predictions(self._labels, *pair)
                picture = confusion.draw({split.name: matrix})
                files[f"{split.name}_confusion_matrix.png"] = picture
        return files

    def serving_fn(self, model, threshold):
        labels, length = self._labels, self.tokens_per_example
        return graph.tag_texts(
            model, self.tokenizer, labels=labels, max_seq_length=length
        )


def _read(
    settings: TaggingSettings,
    part: str,
    labels: Sequence[str] | None,
    log: Callable[[str], None],
) -> list[Sentence]:
    """Reads the sentences of a part of the data: "train", "dev" or "test".

    The labels in the file are not converted to IOB2 if `labels`, the labels of the
    model, are known and do not mark entities.
    """
    path = getattr(settings, FILES[part])
    if path is None:
        raise InputError(f"--{FLAGS[part]}: requires --{FILES[part]}")
    has_no_entities = labels and not reading.has_entities(labels)
    sentences = reading.read_file(
        path,
        settings.label_column,
        "words" if has_no_entities else settings.tag_scheme,
        token_column=settings.token_column,
        encoding=settings.encoding,
        log=log,
    )
    unlabeled = next((s for s in sentences if s.labels is None), None)
    if unlabeled and part != "test":
        raise InputError(
            f"{path}:{unlabeled.lines[0]}: no labels to train or evaluate on; expected "
            f"a second column, or in JSON lines the key "
            f"{settings.label_column or 'tags'!r} (--label_column)"
        )
    return sentences


def _format_columns(sentences: Sequence[Sentence], predictions: list[list[str]]) -> str:
    """Returns a line for each word: the word, its label if known, its prediction.

    The separator is a space, or a tab if the word has a space. A blank line follows
    each sentence.
    """
    lines = []
    for sentence, labels in zip(sentences, predictions, strict=True):
        columns = (sentence.words, sentence.labels, labels)
        for cells in zip(*(c for c in columns if c is not None), strict=True):
            lines.append(("\t" if " " in cells[0] else " ").join(cells))
        lines.append("")
    return "\n".join(lines) + "\n"
