"""Classification and regression of texts: `run_classifier.py`."""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from albert_tf import errors
from albert_tf.data import cores, files
from albert_tf.errors import InputError
from albert_tf.model import heads
from albert_tf.model.models import AlbertClassifier
from albert_tf.tasks import base, catalogue, confusion, custom, head_labels
from albert_tf.tasks.base import Arrays, Split
from albert_tf.tasks.metrics import label_report
from albert_tf.tasks.settings.classification import CUSTOM, ClassificationSettings
from albert_tf.tasks.settings.fine_tuning import FLAGS
from albert_tf.tasks.text_graphs import classifier, regressor
from albert_tf.tasks.text_pipeline import check_threshold
from albert_tf.tasks.text_task import Example, TextTask
from albert_tf.text import inputs

_TABS_AND_LINE_ENDS = re.compile("[\t\r\n]")
# The loss of each task type, and the activation that makes predictions from logits.
_LOSSES_AND_ACTIVATIONS: Mapping[str, tuple[Callable, Callable]] = {
    "classification": (heads.classification_loss, ops.softmax),
    "multi_label": (heads.multi_label_loss, ops.sigmoid),
    "regression": (heads.regression_loss, lambda logits: logits),
}


class Classification(base.FineTuningTask):
    """Predicts a class, several labels or a number for a text or a pair of texts.

    The metrics are `eval_loss`, as in the released code, and the metrics of the
    `TextTask`, which describes the data set.
    """

    task_types = ("classification", "multi_label", "regression")

    def __init__(self, settings: Any, *args: Any, **kwargs: Any):
        super().__init__(settings, *args, **kwargs)
        self.task_type = settings.kind or self.task_type
        self.text_task = custom.from_settings(settings)
        # The key metric must be the first one. `metrics` repeats it, without effect.
        self.main_metrics = (self.text_task.key_metric, *self.text_task.metrics)

    @classmethod
    def read_examples(cls, settings, saved_settings, run_settings, log):
        task = _find_task(settings, saved_settings)
        read = functools.partial(_read, settings, log)
        # The training split, if it determines the labels. Then it is read first.
        early: dict[str, Split] = {}
        # () means that the labels come from the training table.
        if task.labels == ():
            early["train"] = read(task, "train")
            labels = custom.find_labels(task, early["train"].examples, log)
            task = dataclasses.replace(task, labels=labels)
        threshold, flag = run_settings.threshold, "--threshold_to_export="
        check_threshold(task.labels or (), task.kind == "multi_label", threshold, flag)
        splits: dict[str, list[Split]] = {}
        for part in run_settings.split_names:
            # A part can have several tables, such as "dev" and "dev_mismatched".
            names = [name for name in task.files if name.startswith(part)]
            if not names:
                raise InputError(
                    f"--{FLAGS[part]}: task {task.name} has no {part} table; it has "
                    f"{', '.join(task.files)}"
                )
            splits[part] = [early.get(name) or read(task, name) for name in names]
        # `settings_fields` replaces `labels` by the labels of the task. `head_labels`
        # keeps the value of --labels, which can give the order of the labels in a
        # loaded head.
        fields = {**custom.settings_fields(task), "head_labels": settings.labels}
        return dataclasses.replace(settings, **fields), splits

    def encode(self, split: Split) -> Arrays:
        examples = split.examples
        has_pairs = bool(examples) and examples[0].text_b is not None
        features = inputs.encode(
            self.tokenizer,
            [example.text_a for example in examples],
            [example.text_b or "" for example in examples] if has_pairs else None,
            self.tokens_per_example,
            num_threads=cores.available(),
        )
        return vars(features)

    def summary(self, split: Split) -> list[str]:
        features, lines = split.features, super().summary(split)
        if features.truncated:
            lines.append(
                f"  {features.truncated:,} truncated to --max_seq_length="
                f"{self.tokens_per_example}, by {features.truncated_pieces:,} tokens "
                f"in total"
            )
        return lines

    def dataset(self, splits, *, with_labels):
        features = inputs.concatenate([split.features for split in splits])
        columns: dict[str, np.ndarray] = {}
        if with_labels:
            examples = [example for split in splits for example in split.examples]
            task, weights = self.text_task, self.settings.class_weights
            targets = task.targets(examples)
            columns["labels"] = targets
            # An evaluation counts all examples equally.
            if weights and splits[0].name == "train":
                columns["example_weight"] = _class_weights(weights, task, targets)

        def make_batch(rows, length):
            batch = inputs.pad(features, rows, length, self.tokenizer.pad_id)
            return batch | {name: value[rows] for name, value in columns.items()}

        return self.bucket(features.lengths, make_batch)

    def build_model(self):
        return AlbertClassifier(self.config, self.text_task.num_outputs)

    def loss_sums(self, outputs: base.Outputs, batch: base.Batch) -> dict[str, Any]:
        loss, _ = _LOSSES_AND_ACTIVATIONS[self.text_task.kind]
        losses = loss(outputs["logits"], batch["labels"])
        return {"loss": ops.sum(losses * base.example_weights(batch))}

    def prediction_outputs(self, outputs, batch):
        """Returns `outputs`: probabilities [B, K], or regression numbers [B, 1]."""
        _, activation = _LOSSES_AND_ACTIVATIONS[self.text_task.kind]
        return {"outputs": activation(outputs["logits"])}

    def compute_metrics(self, split: Split, answers: np.ndarray) -> dict[str, float]:
        """Returns the metrics of the task; empty for a test table: it has no labels."""
        if split.name.startswith("test"):
            return {}
        predictions = self.text_task.decode(answers)
        targets = self.text_task.targets(split.examples[: len(answers)])
        self.targets_and_predictions[split.name] = targets, predictions
        return self.text_task.compute_metrics(targets, predictions)

    def on_new_best_checkpoint(self, folder):
        """Writes each label's scores and the confusion matrix, if there are labels."""
        if self.text_task.labels is None:
            return
        tables = (
            f"{name}\n{label_report(targets, predictions, self.text_task.labels)}"
            for name, (targets, predictions) in self.targets_and_predictions.items()
        )
        files.write(folder / "label_scores.txt", "\n".join(tables))
        if self.confusions:
            with errors.log_failure("confusion matrix"):
                picture = confusion.draw(self.confusions)
                files.write(folder / "confusion_matrix.png", picture)

    def prediction_files(self, split: Split, answers: np.ndarray) -> dict[str, str]:
        """Returns the files of the released code, and the submission file for GLUE."""
        task, examples = self.text_task, split.examples
        # The files of "test_mismatched" end in "_mismatched.tsv".
        suffix = split.name.removeprefix("test")
        contents = {
            name.replace(".tsv", f"{suffix}.tsv"): text
            for name, text in released_files(task, examples, answers).items()
        }
        if split.name in task.submission:
            contents[task.submission[split.name]] = glue_file(task, examples, answers)
        return contents

    def serving_fn(self, model, threshold):
        task = self.text_task
        options: dict[str, Any] = {"max_seq_length": self.tokens_per_example}
        options["pairs"] = self.settings.texts == 2
        if task.labels is None:
            return regressor(model, self.tokenizer, bounds=task.bounds, **options)
        return classifier(
            model,
            self.tokenizer,
            labels=task.labels,
            multi_label=task.kind == "multi_label",
            threshold=threshold,
            **options,
        )


def _find_task(
    settings: ClassificationSettings, saved_settings: ClassificationSettings | None
) -> TextTask:
    """Returns the task that the flags name or describe.

    Args:
        settings: the flags.
        saved_settings: the settings in the model's `task.json`, or None.
    """
    if settings.task_name == CUSTOM:
        merged = custom.merge_saved_settings(settings, saved_settings)
        return custom.from_settings(merged)
    task = catalogue.get_task(settings.task_name or "")
    if settings.data_dir is None:
        raise InputError(
            f"--data_dir: must be the folder with {', '.join(task.files.values())}"
        )
    # The catalogue has the task's labels, so --labels can only describe a loaded head.
    given, labels = settings.labels, task.labels or ()
    if given is not None and head_labels.match(labels, given, task.label_names) is None:
        raise InputError(
            f"--labels={','.join(given)}: must be the labels of {task.name}, "
            f"{', '.join(labels) or 'which has none'}, in the order of the head"
        )
    return task


def _class_weights(
    items: Sequence[str], task: TextTask, targets: np.ndarray
) -> np.ndarray:
    """Returns the weight of each example's class, float32 [n].

    Args:
        items: the value of --class_weights: either the single item "balanced", or items
            of the form "label=number".
        task: the task of the examples.
        targets: the class numbers of the examples, int [n].

    Raises:
        InputError: the items or the task type do not fit.
    """
    labels, flag = task.labels or (), f"--class_weights={','.join(items)}"
    if task.kind != "classification":
        raise InputError(f"{flag}: requires classification; the task is {task.kind}")
    if tuple(items) == ("balanced",):
        counts = np.bincount(targets)
        # The formula of scikit-learn: n / (number of classes * examples of the class).
        balanced = len(targets) / np.count_nonzero(counts) / counts[targets]
        return balanced.astype(np.float32)
    # A label may contain any characters, also "=" and line ends.
    matches = [re.fullmatch(r"(?s)(.*)=(\d+\.?\d*|\.\d+)", item) for item in items]
    weights = {match[1]: float(match[2]) for match in matches if match}
    are_known = None not in matches and weights.keys() <= set(labels)
    if not are_known or min(weights.values()) <= 0:
        raise InputError(
            f"{flag}: must be balanced, or items label=number with a number above 0 "
            f"and one of the labels {', '.join(map(repr, labels))}"
        )
    class_weights = np.array([weights.get(label, 1.0) for label in labels], np.float32)
    return class_weights[targets]


def _read(
    settings: ClassificationSettings,
    log: Callable[[str], None],
    task: TextTask,
    split: str,
) -> Split:
    """Reads the table of a split, and logs its skipped rows."""
    data_dir = settings.data_dir or ""
    table = task.read(
        split,
        data_dir,
        skip_bad_rows=settings.skip_bad_rows,
        dialect=settings.dialect,
        log=log,
    )
    for note in table.notes(task.path(split, data_dir)):
        log(note)
    return Split(split, table.rows)


def released_files(
    task: TextTask, examples: Sequence[Example], outputs: np.ndarray
) -> dict[str, str]:
    """Returns the files that the released code writes for a test table.

    `test_results.tsv` has a line with the outputs of each example. `submit_results.tsv`
    has a header, and a line with the guid and the prediction of each example. **As
    released**, except that numbers in `submit_results.tsv` are clipped to their bounds.

    Args:
        task: the task.
        examples: n examples.
        outputs: probabilities, float [n, K]; numbers of a regression, float [n, 1].

    Returns:
        The content of each file by its name.
    """
    # The rows stay float32, because Python floats would print more digits.
    lines = ("\t".join(map(str, row)) + "\n" for row in np.asarray(outputs))
    texts = task.decode_labels(task.decode(outputs))
    return {
        "test_results.tsv": "".join(lines),
        "submit_results.tsv": _format_table(examples, texts),
    }


def glue_file(task: TextTask, examples: Sequence[Example], outputs: np.ndarray) -> str:
    """Returns the content of a submission file for the GLUE website.

    The numbers of a regression have three decimals.

    Args:
        task: a task of GLUE.
        examples: n examples.
        outputs: probabilities, float [n, K]; numbers of a regression, float [n, 1].
    """
    predictions = task.decode(outputs)
    if task.labels is None:
        texts = [f"{number:.3f}" for number in predictions.tolist()]
    else:
        texts = task.decode_labels(predictions)
    return _format_table(examples, texts)


def _format_table(examples: Sequence[Example], texts: Sequence[str]) -> str:
    """Returns a table with a header, and the guid and the prediction of each example.

    Args:
        examples: the examples.
        texts: the prediction for each example: a label or a number.
    """
    lines = ["index\tprediction\n"]
    for example, text in zip(examples, texts, strict=True):
        # A cell of a CSV table can contain tabs and line ends, which become spaces.
        cells = (_TABS_AND_LINE_ENDS.sub(" ", cell) for cell in (example.guid, text))
        lines.append("\t".join(cells) + "\n")
    return "".join(lines)
