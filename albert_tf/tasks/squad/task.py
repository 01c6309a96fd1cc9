"""Question answering: SQuAD 1.1, SQuAD 2.0, `run_squad.py`."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from keras import ops

from albert_tf.data import cache
from albert_tf.errors import InputError
from albert_tf.model import heads
from albert_tf.model.models import AlbertConditionalSpanLabeler, AlbertSpanLabeler
from albert_tf.tasks import base
from albert_tf.tasks.base import Arrays, Split, Splits
from albert_tf.tasks.settings.squad import SquadSettings
from albert_tf.tasks.squad import answers, features, graph, reading, scores
from albert_tf.tasks.squad.answers import Answers
from albert_tf.tasks.squad.features import Windows
from albert_tf.tasks.squad.reading import Dataset, Paragraph
from albert_tf.weights import metadata

# Keys of `task.json`: the threshold for null odds, and the `hash_ids` of the questions
# on which the threshold is fitted. Null odds are a score of "no answer": if they are
# above the threshold, the answer is "".
THRESHOLD_KEY, FITTED_ON_KEY = "null_score_diff_threshold", "threshold_fitted_on"

# Outputs of the conditional head from which answers are made: candidates for the start
# and the end of an answer, and the logit of "no answer".
_START_OUTPUTS = ("start_top_index", "start_top_log_probs")
_END_OUTPUTS = ("end_top_index", "end_top_log_probs")
_CONDITIONAL_OUTPUTS = (*_START_OUTPUTS, *_END_OUTPUTS, "cls_logits")
# **As released:** the threshold for null odds if neither a flag nor the model's folder
# has one.
_DEFAULT_NULL_THRESHOLD = 0.0


class QuestionAnswering(base.FineTuningTask):
    """Answers questions with spans of a context (paper: SQuAD 1.1 and 2.0).

    The metrics are the scores of the official scripts in percent, and in SQuAD 2.0 the
    threshold for null odds (`null_score_diff_threshold`). An evaluation computes no
    loss, because a question of an evaluation has several correct answers.

    Raises:
        InputError: the head is conditional, and `max_seq_length` is below `start_n_top`
            or `end_n_top`.
    """

    task_types = ("question_answering",)

    def __init__(self, settings: Any, *args: Any, **kwargs: Any):
        super().__init__(settings, *args, **kwargs)
        # The best threshold of the last evaluation.
        self._best_threshold: float | None = None
        # A threshold from a flag is not replaced by the best one of an evaluation.
        self._threshold_from_flag = settings.null_score_diff_threshold is not None
        if settings.version == "1.1":
            self.main_metrics = ("f1", "exact_match")
        else:
            # The best checkpoint has the highest `best_f1`, the F1 with the best
            # threshold, because the threshold is chosen after training.
            self.main_metrics = ("best_f1", "f1", "exact")
        self._is_linear = settings.head == "linear"
        if settings.min_length > settings.max_seq_length:
            raise InputError(
                f"--max_seq_length={settings.max_seq_length}: must be at least "
                f"{settings.min_length}, the value of --start_n_top or --end_n_top"
            )

    def save_assets(self, folder: Path) -> None:
        """Writes the vocabulary and `task.json`.

        If the folder's `task.json` already has the threshold of a best checkpoint, this
        threshold stays in the file, unless a flag sets another one.
        """
        saved = {} if self._threshold_from_flag else metadata.read_task(folder)
        threshold = {k: saved[k] for k in (THRESHOLD_KEY, FITTED_ON_KEY) if k in saved}
        metadata.write(folder, self.tokenizer, {**self.description, **threshold})

    @classmethod
    def read_examples(cls, settings, saved_settings, run_settings, log):
        do_train, do_eval = run_settings.do_train, run_settings.do_eval
        do_predict = run_settings.do_predict
        version = None
        if settings.version_2_with_negative is not None:
            version = "2.0" if settings.version_2_with_negative else "1.1"
        elif saved_settings and not do_train:
            version = saved_settings.version
        splits: dict[str, list[Split]] = {}

        def read(path: str) -> Dataset:
            # While `version` is None, the version is inferred from the file.
            dataset = reading.read(path, version, settings.encoding)
            log(f"{dataset.path}: SQuAD {dataset.version}")
            return dataset

        if do_train:
            train = read(settings.train_file)
            version = train.version
            splits["train"] = [Split("train", train)]
        if settings.predict_file:
            predict = read(settings.predict_file)
            version = predict.version
            unlabeled = predict.first_unlabeled_id
            if unlabeled is not None and (do_eval or settings.fit_threshold):
                raise InputError(
                    f"{predict.path}: question {unlabeled!r} has no answer; --do_eval "
                    f"and --fit_threshold need answers"
                )
            predict_splits = [Split("predict", predict)]
            # Training evaluates the file to select the best checkpoint, unless the file
            # lacks answers.
            if do_train and (do_eval or do_predict) and unlabeled is None:
                splits["dev"] = predict_splits
            # With --do_train, --do_eval only means evaluations during training.
            if do_predict or (do_eval and not do_train):
                splits["test"] = predict_splits
        settings = _resolve_settings(settings, saved_settings, do_train, version)
        return settings, splits

    def encode(self, split: Split) -> Arrays:
        return features.encode(
            split.examples,
            self.tokenizer,
            training=split.name == "train",
            skip_bad_rows=self.settings.skip_bad_rows,
        )

    def features(self, split: Split, arrays: Arrays) -> Windows:
        return Windows(split.examples, arrays, self.tokenizer, self.settings)

    def summary(self, split: Split) -> list[str]:
        windows = split.features
        lines = [
            *windows.notes,
            f"{split.examples.path}: {len(windows.questions):,} questions",
            *super().summary(split),
        ]
        if count := windows.split_answer_count:
            lines.append(
                f"Warning: {split.examples.path}: {count:,} answers fit into no "
                f"window and train as no answer; use a --doc_stride below "
                f"{self.settings.doc_stride}, or a larger --max_seq_length"
            )
        return lines

    def dataset(self, splits, *, with_labels):
        [split] = splits
        windows: Windows = split.features
        has_targets = with_labels and split.name == "train"

        def make_batch(rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
            return windows.make_batch(
                rows, max(length, self.settings.min_length), has_targets
            )

        return self.bucket(windows.lengths, make_batch)

    def build_model(self):
        settings = self.settings
        if settings.head == "linear":
            return AlbertSpanLabeler(self.config)
        return AlbertConditionalSpanLabeler(
            self.config, settings.start_n_top, settings.end_n_top
        )

    def loss_weights(self, batch: base.Batch) -> dict[str, Any]:
        if "start_positions" not in batch:
            return {}  # an evaluation has no targets and computes no loss
        names = ["start_loss", "end_loss", "answerable_loss"]
        count = ops.sum(base.example_weights(batch))
        # A linear head has no loss of answerability.
        return dict.fromkeys(names[:2] if self._is_linear else names, count)

    def loss_sums(self, outputs: base.Outputs, batch: base.Batch) -> dict[str, Any]:
        """Returns the sums of the losses of starts and ends.

        The conditional head also has a loss of answerability. Every window of a
        training batch has weight 1, so each sum is a mean times the number of windows.
        """
        weights = self.loss_weights(batch)
        if not weights:
            return {}
        targets = batch["start_positions"], batch["end_positions"]
        if self._is_linear:
            logits = outputs["start_logits"], outputs["end_logits"]
            means = heads.span_loss(*logits, *targets)
        else:
            is_impossible = batch["is_impossible"]
            means = heads.conditional_span_loss(outputs, *targets, is_impossible)
        pairs = zip(weights.items(), means, strict=True)
        return {name: mean * count for (name, count), mean in pairs}

    def compute_loss(self, sums: Mapping[str, Any], totals: Mapping[str, Any]) -> Any:
        """Returns half of the result of the base class, **as released**.

        So the loss of a linear head is the mean of the start loss and the end loss. The
        loss of a conditional head is half the sum of its three losses.
        """
        return 0.5 * super().compute_loss(sums, totals)

    def prediction_outputs(self, outputs, batch):
        """Returns the outputs of the head from which `postprocess` makes answers.

        They are the logits of all positions for a linear head, otherwise the candidates
        and the logit of "no answer".
        """
        names = answers.LOGITS if self._is_linear else _CONDITIONAL_OUTPUTS
        return {name: outputs[name] for name in names}

    def postprocess(self, split: Split, predictions: base.Predictions) -> Answers:
        """Returns the answers to the questions, with null odds and n-best lists."""
        return answers.collect_answers(split.features, predictions, self.settings)

    def compute_metrics(self, split: Split, answers: Answers) -> dict[str, float]:
        """Scores answers as the official script of the SQuAD version does.

        The result is empty if a question is unlabeled. **As released:** the released
        code fits the threshold on the scored questions. Here only --fit_threshold does
        this. Without the flag, a stored threshold that was fitted on these questions is
        not used, either.
        """
        if split.examples.first_unlabeled_id is not None:
            return {}
        # An evaluation can end before the last question, because of --max_eval_steps.
        dataset = select_answered(split.examples, answers)
        if dataset.version == "1.1":
            return scores.evaluate(dataset, answers.texts)
        threshold = self._choose_threshold(split.examples, answers)
        metrics = scores.evaluate(dataset, answers.texts, answers.null_odds, threshold)
        # The best threshold, moved away from null odds, see `center_threshold`.
        self._best_threshold = scores.center_threshold(metrics, answers.null_odds)
        if threshold is not None:
            metrics[THRESHOLD_KEY] = threshold
        return metrics

    def prediction_files(self, split: Split, answers: Answers) -> dict[str, str]:
        """Returns the contents of the released files by name.

        If the null odds of a question are above the threshold, its answer is "".
        """
        return answers.files(self._choose_threshold(split.examples, answers))

    def on_new_best_checkpoint(self, folder):
        """Stores the checkpoint's best threshold in `task.json`.

        `predict_and_write` reads the threshold there, also after the run is resumed.
        """
        if not self._threshold_from_flag and self._best_threshold is not None:
            dataset = self.evaluation_splits[0].examples
            self._store(folder, self._best_threshold, hash_ids(dataset))

    def predict_and_write(self, context: base.RunContext, splits: Splits) -> None:
        """Predicts and scores with the best weights, and stores the threshold.

        `task.json` stores the threshold for questions that the model answers later,
        after this run. --fit_threshold replaces it with the best one for the scored
        questions, and --null_score_diff_threshold with its value. Without these flags,
        it stays.
        """
        settings = self.settings
        # Whether `threshold` replaces the one in `task.json`.
        is_new = self._threshold_from_flag
        threshold, fitted_on = settings.threshold, ""
        for split in splits.get("test", ()):
            answers = context.predict(split)
            path = split.examples.path
            if context.settings.do_predict and context.is_chief:
                base.write_files(context, self.prediction_files(split, answers))
            if metrics := self.compute_metrics(split, answers):
                context.log(f"{path}: {base.format_metrics(metrics)}")
                context.add_results(metrics)
            else:
                unlabeled = split.examples.first_unlabeled_id
                context.log(f"{path}: not scored; question {unlabeled!r} has no answer")
            if settings.fit_threshold:
                is_new = True
                threshold = self._search_threshold(split.examples, answers)
                fitted_on = hash_ids(split.examples)
        if not is_new:
            # The threshold that an evaluation stored in `task.json` has priority over
            # the one at the start of the run, in `description`.
            saved = {**self.description, **metadata.read_task(context.folder)}
            threshold, fitted_on = saved[THRESHOLD_KEY], saved[FITTED_ON_KEY]
        elif context.is_chief:
            self._store(context.folder, threshold, fitted_on)
        self.settings = dataclasses.replace(
            settings, threshold=threshold, threshold_fitted_on=fitted_on
        )
        if threshold is not None:
            context.log(f"The stored threshold is {threshold:.4f}")

    def _search_threshold(self, dataset: Dataset, answers: Answers) -> float:
        """Returns the threshold with the highest F1 on the answered questions."""
        dataset = select_answered(dataset, answers)
        return scores.search_threshold(dataset, answers.texts, answers.null_odds)

    def _choose_threshold(self, dataset: Dataset, answers: Answers) -> float | None:
        """Returns the threshold with which a dataset is scored.

        It is None in SQuAD 1.1. It is fitted on the questions of this dataset only with
        --fit_threshold.
        """
        settings = self.settings
        if settings.threshold is None:
            return None
        if settings.fit_threshold:
            return self._search_threshold(dataset, answers)
        if settings.threshold_fitted_on == hash_ids(dataset):
            # The stored threshold was fitted on these questions. With it, their scores
            # would be too high.
            return _DEFAULT_NULL_THRESHOLD
        return settings.threshold

    def _store(self, folder: Path, threshold: float, fitted_on: str) -> None:
        """Stores a threshold in the `task.json` of a folder, if there is such a file.

        Args:
            folder: the folder of a model.
            threshold: the new threshold.
            fitted_on: `hash_ids` of the questions on which the threshold is fitted; ""
                for the value of a flag.
        """
        if task := metadata.read_task(folder):
            task = {**task, THRESHOLD_KEY: threshold, FITTED_ON_KEY: fitted_on}
            metadata.write(folder, self.tokenizer, task)

    def serving_fn(self, model, threshold):
        settings = self.settings
        threshold = settings.threshold if threshold is None else threshold
        return graph.question_answering(model, self.tokenizer, settings, threshold)


def _resolve_settings(
    settings: SquadSettings, saved: SquadSettings | None, do_train: bool, version: Any
) -> SquadSettings:
    """Sets the version, the head and the threshold at the start of a run.

    If neither a flag nor the model's folder has the head, it is linear for SQuAD 1.1
    and conditional for SQuAD 2.0.

    Args:
        settings: the settings of the task, from flags.
        saved: the settings in the model's folder, or None.
        do_train: whether the run trains. If it does, the saved threshold is not used.
        version: the SQuAD version of the files; None if no file was read.
    """
    saved = saved or SquadSettings()
    version = version or saved.version or "1.1"
    threshold, fitted_on = settings.null_score_diff_threshold, ""
    if version == "1.1":
        for name in ("null_score_diff_threshold", "fit_threshold"):
            value = getattr(settings, name)
            # `is not False`, because the threshold 0.0 equals False, but is also an
            # error here.
            if value is not None and value is not False:
                raise InputError(
                    f"--{name}={value}: only for SQuAD 2.0; in SQuAD 1.1 every "
                    f"question has an answer"
                )
    elif threshold is None:
        threshold = _DEFAULT_NULL_THRESHOLD
        if not do_train and saved.threshold is not None:
            threshold, fitted_on = saved.threshold, saved.threshold_fitted_on or ""
    default_head = "linear" if version == "1.1" else "conditional"
    head = settings.head or saved.head or default_head
    fields = {"version": version, "head": head, "threshold": threshold}
    return dataclasses.replace(settings, **fields, threshold_fitted_on=fitted_on)


def hash_ids(dataset: Dataset) -> str:
    """Returns the SHA-256 of the ids of all questions, in hexadecimal digits."""
    return cache.digest(sorted(question.id for question in dataset.questions))


def select_answered(dataset: Dataset, answers: Answers) -> Dataset:
    """Returns a dataset of only the questions that the model answered.

    Raises:
        InputError: no question was answered.
    """
    if not answers.texts:
        raise InputError(
            f"{dataset.path}: no question was answered from all its windows; use a "
            f"higher --max_eval_steps"
        )
    questions = tuple(q for q in dataset.questions if q.id in answers.texts)
    # Scores do not depend on the contexts, so one paragraph is enough.
    return dataclasses.replace(dataset, paragraphs=(Paragraph("", questions),))
