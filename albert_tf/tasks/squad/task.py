"""Answers that are spans of a text: SQuAD 1.1, SQuAD 2.0, `run_squad.py`."""

import collections
import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from keras import ops

from albert_tf.data import cache
from albert_tf.data.batches import ByLength
from albert_tf.errors import InputError
from albert_tf.model import heads
from albert_tf.model.models import AlbertConditionalSpanLabeler, AlbertSpanLabeler
from albert_tf.tasks import base
from albert_tf.tasks.base import Arrays, Split, Splits
from albert_tf.tasks.serving import ServingFunction
from albert_tf.tasks.settings.answer import AnswerSettings
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings
from albert_tf.tasks.settings.squad import SquadSettings
from albert_tf.tasks.squad import answers, features, graph, reading, scores
from albert_tf.tasks.squad.answers import Answers, Search
from albert_tf.tasks.squad.features import Lengths, Tokens, Windows
from albert_tf.tasks.squad.reading import Dataset
from albert_tf.weights import metadata

# Keys of `task.json`: the threshold, and `digest` of the questions it was fitted on.
THRESHOLD, FITTED_ON = "null_score_diff_threshold", "threshold_fitted_on"

_BEAMS = (
    *("start_top_index", "start_top_log_probs"),
    *("end_top_index", "end_top_log_probs"),
)
# As released, where neither a flag nor the model's folder has one.
_THRESHOLD = 0.0


class QuestionAnswering(base.FineTuningTask):
    """Answers that are spans of a context (paper: SQuAD 1.1 and 2.0).

    Metrics are those of the official scripts, in percent, and the threshold that
    answers were decided with (`null_score_diff_threshold`, 2.0). There is no loss of an
    evaluation: its questions have several answers.

    Attributes:
        threshold: null odds above it mean no answer; None: there always is one.
        fitted_on: `digest` of the questions that it was fitted on, if it was.

    Raises:
        InputError: windows are too short for so many candidates.
    """

    kinds = ("question_answering",)
    settings_class = SquadSettings
    head_keys = ("version", "head")
    runtimes = ("litert",)

    def __init__(self, settings: Any, *args: Any, **kwargs: Any):
        super().__init__(settings, *args, **kwargs)
        self.lengths = Lengths(
            settings.max_seq_length, settings.doc_stride, settings.max_query_length
        )
        self.search = Search(settings.n_best_size, settings.max_answer_length)
        self.threshold = settings.threshold
        self.fitted_on = settings.threshold_fitted_on
        # The best threshold of the last evaluation.
        self._best: float | None = None
        # No run replaces a threshold that is given by a better one.
        self._is_given = settings.null_score_diff_threshold is not None
        self.best_checkpoint_keys = () if self._is_given else (THRESHOLD, FITTED_ON)
        first = settings.version == "1.1"
        # The best F1 of any threshold, as a threshold can be had later.
        self.key_metric = "f1" if first else "best_f1"
        self.progress_metrics = (
            ("exact_match", "f1") if first else ("exact", "f1", "best_f1")
        )
        self._least_length = 1
        if settings.head == "conditional":
            self._least_length = self._most_candidates()

    @property
    def description(self) -> dict[str, Any]:
        thresholds = {THRESHOLD: self.threshold, FITTED_ON: self.fitted_on}
        return {**super().description, **thresholds}

    @classmethod
    def read_examples(cls, settings, saved_settings, config, log):
        files = _read(settings, saved_settings, config)
        _check_answers(settings, config, files)
        for dataset in files.values():
            log(f"{dataset.path}: SQuAD {dataset.version}")
        splits = {use: [Split(use, dataset)] for use, dataset in files.items()}
        predict = splits.pop("predict", [])
        if predict and (config.do_eval or config.do_predict):
            if config.do_train and predict[0].examples.unanswered is None:
                splits["dev"] = predict
            if config.do_predict or not config.do_train:
                splits["test"] = predict
        return _decided(settings, saved_settings, config, files), splits

    @classmethod
    def merge_settings(cls, members):
        """Returns those of the first, with the mean of the thresholds."""
        thresholds = [member.threshold or 0.0 for member in members]
        if members[0].threshold is None:
            return members[0]
        mean = sum(thresholds) / len(thresholds)
        return dataclasses.replace(members[0], threshold=mean)

    def cache_key(self, split: Split) -> dict[str, Any]:
        return {
            "task": "squad",
            "file": cache.fingerprint(split.examples.path),
            "version": split.examples.version,
            "vocabulary": self.tokenizer.fingerprint,
            "training": split.name == "train",
            "skip_bad_rows": self.settings.skip_bad_rows,
        }

    def encode(self, split: Split) -> Arrays:
        encoded = features.encode(
            split.examples,
            self.tokenizer,
            training=split.name == "train",
            skip_bad_rows=self.settings.skip_bad_rows,
        )
        return vars(encoded)

    def cache_file(self, split: Split) -> str:
        given = {
            "train": self.settings.train_feature_file,
            "predict": self.settings.predict_feature_file,
        }
        path = given.get(split.name)
        return str(Path(path).absolute()) if path else f"squad_{split.name}.npz"

    def features(self, split: Split, arrays: Arrays) -> Windows:
        return Windows(split.examples, Tokens(**arrays), self.tokenizer, self.lengths)

    def summary(self, split: Split) -> list[str]:
        windows = split.features
        lines = [
            *windows.notes,
            f"{split.examples.path}: {len(windows.questions):,} questions, "
            f"{len(windows):,} windows of {windows.lengths.mean():.1f} tokens on "
            f"average, {windows.lengths.max()} at most",
        ]
        if count := windows.split_answers:
            lines.append(
                f"Warning: {split.examples.path}: {count:,} answers are whole in no "
                f"window and are taught as no answer; expected a --doc_stride below "
                f"{self.lengths.doc_stride}, or a larger --max_seq_length"
            )
        return lines

    def dataset(self, splits: Sequence[Split], *, with_labels: bool) -> ByLength:
        [split] = splits
        windows: Windows = split.features
        targets = with_labels and split.name == "train"

        def make(rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
            return windows.batch(rows, max(length, self._least_length), targets)

        return ByLength(windows.lengths, make, self.tokens_per_example, self.multiple)

    def build_model(self):
        settings = self.settings
        if settings.head == "linear":
            return AlbertSpanLabeler(self.config)
        return AlbertConditionalSpanLabeler(
            self.config, settings.start_n_top, settings.end_n_top
        )

    def loss_weights(self, batch: base.Batch) -> dict[str, Any]:
        names = ["start_loss", "end_loss"]
        if self.settings.head == "conditional":
            names.append("answerable_loss")
        if "start_positions" not in batch:
            return {}
        return dict.fromkeys(names, ops.sum(base.example_weights(batch)))

    def loss_sums(self, outputs: base.Outputs, batch: base.Batch) -> dict[str, Any]:
        """Returns the summed cross-entropies of first tokens, last ones, and no answer.

        Every window of a batch to train on counts.
        """
        if "start_positions" not in batch:
            return {}
        targets = batch["start_positions"], batch["end_positions"]
        if self.settings.head == "linear":
            logits = outputs["start_logits"], outputs["end_logits"]
            start, end = heads.span_loss(*logits, *targets)
            means = {"start_loss": start, "end_loss": end}
        else:
            start, end, answerable = heads.conditional_span_loss(
                outputs, *targets, batch["is_impossible"]
            )
            means = {
                "start_loss": start,
                "end_loss": end,
                "answerable_loss": answerable,
            }
        count = ops.sum(base.example_weights(batch))
        return {name: mean * count for name, mean in means.items()}

    def combine_losses(self, losses: Mapping[str, Any]) -> Any:
        """Returns half of each loss: the mean of start and end, as released."""
        return 0.5 * super().combine_losses(losses)

    def prediction_outputs(
        self, outputs: base.Outputs, batch: base.Batch
    ) -> dict[str, Any]:
        """Keeps the logits of every position, or the beams and the null odds."""
        if self.settings.head == "linear":
            return {name: outputs[name] for name in answers.LOGITS}
        return {name: outputs[name] for name in (*_BEAMS, "cls_logits")}

    def postprocess(
        self, split: Split, predictions: base.Predictions, keeps_n_best: bool = False
    ) -> Answers:
        """Answers the questions.

        Args:
            split: the questions.
            predictions: of their windows.
            keeps_n_best: see `answers.gather`.
        """
        settings = self.settings
        candidates = answers.candidates(
            split.features, predictions, self.search, settings.head, settings.version
        )
        answered = answers.gather(candidates, keeps_n_best, settings.n_best_size)
        collections.deque(predictions, maxlen=0)  # logs the last line
        return answered

    def answer(self, split: Split, predictions: base.Predictions) -> Answers:
        """Answers the questions, with their n-best lists."""
        return self.postprocess(split, predictions, keeps_n_best=True)

    def compute_metrics(self, split: Split, answers: Answers) -> dict[str, float]:
        """Scores answers as the official script of the version does.

        **As released:** with --fit_threshold the threshold is the best one for the
        questions that are scored. Otherwise these had no part in it.
        """
        if split.examples.unanswered is not None:
            return {}
        dataset = judged(split.examples, answers)
        if dataset.version == "1.1":
            return scores.evaluate(dataset, answers.texts)
        threshold = self._threshold_for(split.examples, answers)
        metrics = scores.evaluate(dataset, answers.texts, answers.null_odds, threshold)
        self._best = scores.center_threshold(metrics, answers.null_odds)
        if threshold is not None:
            metrics["null_score_diff_threshold"] = threshold
        return metrics

    def write(self, split: Split, answers: Answers) -> dict[str, str]:
        return answers.files(self._threshold_for(split.examples, answers))

    def on_new_best_checkpoint(
        self, folder: Path, metrics: Mapping[str, float]
    ) -> None:
        """Stores the threshold of a new best checkpoint, so that no kill loses it."""
        if self.best_checkpoint_keys and self._best is not None:
            self._store(folder, self._best, self.evaluated[0].examples)

    def predict_and_write(self, run: base.RunContext, splits: Splits) -> None:
        """Predicts, scores and stores the threshold, with the best weights."""
        fitted, dataset = self.threshold if self._is_given else None, None
        for split in splits.get("test", ()):
            answered = run.answer(self, split)
            self._report(run, split, answered)
            if self.settings.fit_threshold:
                dataset = split.examples
                fitted = self._search_threshold(dataset, answered)
        if fitted is not None:
            self.threshold = fitted
            if run.writes:
                self._store(run.folder, fitted, dataset)
        elif stored := metadata.read_task(run.folder):
            self.threshold = stored.get(THRESHOLD, self.threshold)
        if self.threshold is not None:
            run.log(f"The threshold for other questions is {self.threshold:.4f}")

    def _report(self, run: base.RunContext, split: Split, answered: Answers) -> None:
        """Writes answers, and how good they are where that is known."""
        dataset: Dataset = split.examples
        if run.settings.do_predict and run.writes:
            base.write_files(run, self.write(split, answered))
        if metrics := self.compute_metrics(split, answered):
            run.log(f"{dataset.path}: {base.format_metrics(metrics)}")
            run.add_results(metrics)
        else:
            run.log(
                f"{dataset.path}: not scored, question {dataset.unanswered!r} has no "
                f"answer to compare with"
            )

    def _search_threshold(self, dataset: Dataset, answered: Answers) -> float:
        known = judged(dataset, answered)
        return scores.search_threshold(known, answered.texts, answered.null_odds)

    def _threshold_for(self, dataset: Dataset, answered: Answers) -> float | None:
        """Returns the threshold to decide with; never one fitted on these questions."""
        if self.threshold is None:
            return None
        if self.settings.fit_threshold:
            return self._search_threshold(dataset, answered)
        return _THRESHOLD if self.fitted_on == digest(dataset) else self.threshold

    def _store(self, folder: Path, threshold: float, dataset: Dataset | None) -> None:
        """Stores a threshold in the `task.json` of a folder that has one.

        Args:
            folder: of the run.
            threshold: the new one.
            dataset: the questions that it was fitted on; None if it was given.
        """
        task = metadata.read_task(folder)
        if task is not None:
            fitted_on = dataset and digest(dataset)
            changed = {**task, THRESHOLD: threshold, FITTED_ON: fitted_on}
            metadata.write_task(folder, self.tokenizer, changed)

    def _most_candidates(self) -> int:
        """Returns how many positions a window needs for the head to choose from."""
        for name in ("start_n_top", "end_n_top"):
            count = getattr(self.settings, name)
            if count > self.lengths.max_seq_length:
                raise InputError(
                    f"--{name}={count}: expected at most --max_seq_length="
                    f"{self.lengths.max_seq_length}"
                )
        return max(self.settings.start_n_top, self.settings.end_n_top)

    def serving_fn(self, model, options: AnswerSettings) -> ServingFunction:
        threshold = self.threshold if options.threshold is None else options.threshold
        length = options.max_seq_length or self.lengths.max_seq_length
        return graph.question_answering(
            model,
            self.tokenizer,
            lengths=dataclasses.replace(self.lengths, max_seq_length=length),
            search=self.search,
            version=self.settings.version,
            threshold=threshold,
        )


def _read(
    settings: SquadSettings,
    saved_settings: SquadSettings | None,
    config: FineTuningSettings,
) -> dict[str, Dataset]:
    """Reads the files that are asked for, all as one version; by their use."""
    wanted = {
        "train": settings.train_file if config.do_train else None,
        "predict": settings.predict_file,
    }
    version = None
    if settings.version_2_with_negative is not None:
        version = "2.0" if settings.version_2_with_negative else "1.1"
    elif not config.do_train and saved_settings:
        version = saved_settings.version
    files: dict[str, Dataset] = {}
    for use, path in wanted.items():
        if path:
            files[use] = reading.read(path, version, settings.encoding)
            version = files[use].version
    return files


def _check_answers(
    settings: SquadSettings, config: FineTuningSettings, files: Mapping[str, Dataset]
) -> None:
    """Refuses files without the answers that are needed of them."""
    dataset = files.get("predict")
    for flag, is_given in (
        ("do_eval", config.do_eval),
        ("fit_threshold", settings.fit_threshold),
    ):
        if is_given and dataset and dataset.unanswered is not None:
            raise InputError(
                f"{dataset.path}: question {dataset.unanswered!r} has no answer; "
                f"expected one for --{flag}"
            )


def _decided(
    settings: SquadSettings,
    saved_settings: SquadSettings | None,
    config: FineTuningSettings,
    files: Mapping[str, Dataset],
) -> SquadSettings:
    """Fills in the version, the head and the threshold to begin with."""
    flag = settings.version_2_with_negative
    default = "2.0" if flag else "1.1"
    if flag is None and saved_settings:
        default = saved_settings.version or default
    version: Any = next((dataset.version for dataset in files.values()), default)
    usual: Any = "linear" if version == "1.1" else "conditional"
    settings = dataclasses.replace(
        settings,
        version=version,
        head=settings.head or (saved_settings and saved_settings.head) or usual,
        threshold=settings.null_score_diff_threshold,
    )
    if version == "1.1":
        for name in ("null_score_diff_threshold", "fit_threshold"):
            value = getattr(settings, name)
            if value is not None and value is not False:
                raise InputError(
                    f"--{name}={value}: in SQuAD 1.1 every question has an answer; "
                    f"expected no threshold"
                )
        return settings
    if settings.threshold is not None:
        return settings
    if config.do_train or saved_settings is None or saved_settings.threshold is None:
        return dataclasses.replace(settings, threshold=_THRESHOLD)
    return dataclasses.replace(
        settings,
        threshold=saved_settings.threshold,
        threshold_fitted_on=saved_settings.threshold_fitted_on,
    )


def digest(dataset: Dataset) -> str:
    """Returns a hash of the ids of questions, hexadecimal SHA-256."""
    ids = "\n".join(sorted(question.id for question in dataset.questions))
    return hashlib.sha256(ids.encode(errors="surrogatepass")).hexdigest()


def judged(dataset: Dataset, answered: Answers) -> Dataset:
    """Leaves out the questions that an evaluation did not get to.

    Raises:
        InputError: no question was answered.
    """
    if not answered.texts:
        raise InputError(
            f"{dataset.path}: no question was read in full; expected a higher "
            f"--max_eval_steps"
        )
    paragraphs = (
        paragraph._replace(
            questions=tuple(q for q in paragraph.questions if q.id in answered.texts),
        )
        for paragraph in dataset.paragraphs
    )
    return dataclasses.replace(dataset, paragraphs=tuple(paragraphs))
