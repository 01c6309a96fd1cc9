"""The settings of `run_classifier.py`.

The first line of a settings class's docstring is a heading in `--help`.
"""

import dataclasses
import math
from typing import Literal

from albert_tf import flags
from albert_tf.data.tables import Dialect
from albert_tf.errors import InputError
from albert_tf.tasks.settings.base import TaskSettings, saved_field
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings

CUSTOM = "custom"
# Flags that require --task_name=custom.
_FILE_FLAGS = ("train_file", "dev_file", "test_file", "delimiter", "quoted")
_COLUMN_FLAGS = ("text_columns", "label_column", "index_column", "columns")
_CUSTOM_FLAGS = (*_FILE_FLAGS, *_COLUMN_FLAGS, "kind", "label_separator")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationSettings(TaskSettings):
    r"""Data; with --task_name=custom your own table of texts.

    Args:
        task_name: Name of a GLUE task or another registered data set, or custom for
            your own table (--train_file and others).
        data_dir: Root folder of the benchmark, or the task's own folder.
        max_seq_length: Maximum number of tokens per input; longer texts are truncated.
            Default: the model's value, otherwise 512, but at most the longest input of
            the model.
        skip_bad_rows: Skip invalid rows of the training and evaluation tables and log
            them. Rows of the test table are never skipped.
        train_file: Table to train on: .tsv (without quoting), .csv, .jsonl or .json.
        dev_file: Table to evaluate on.
        test_file: Table to predict, without labels.
        text_columns: Column of the text, or the two columns of a pair of texts.
        label_column: Column of the label.
        index_column: Column that identifies the rows in the predictions. Default: the
            row number.
        columns: Names of all columns, for a table without a header.
        delimiter: Delimiter of .csv and .tsv tables, such as ; or \t. Default: inferred
            from the suffix and the header.
        quoted: Parse double quotes around the cells of .tsv tables, as in .csv tables.
        kind: Task type: one label per row (classification), several labels per row
            (multi_label) or a number (regression). Default: the model's type, or
            classification.
        labels: All labels, in the order of the outputs. Default: the sorted labels of
            --train_file, or without --train_file the model's labels. GLUE tasks have
            fixed labels. For them, --labels gives the order of the outputs of a loaded
            head that does not name its labels.
        label_separator: Separator between the labels of a row, with --kind=multi_label.
        class_weights: Weights of the labels in the training loss: balanced (equal total
            weight), or label=number pairs; other labels have weight 1.

    Raises:
        InputError: there are not one or two text columns, a name is used twice, the
            delimiter or the separator is invalid, or a regression has labels.
    """

    task_name: str | None = flags.field(
        None, stored="optional", key="task", must_match_run=True
    )
    data_dir: str | None = flags.field(None)
    max_seq_length: int | None = flags.field(
        None, at_least=1, stored="optional", fallback=512, affects_encoding=True
    )
    skip_bad_rows: bool = flags.field(False)
    train_file: str | None = flags.field(None)
    dev_file: str | None = flags.field(None)
    test_file: str | None = flags.field(None)
    text_columns: tuple[str, ...] = flags.field(("text",), stored="optional")
    label_column: str = flags.field("label", stored="optional")
    index_column: str | None = flags.field(None)
    columns: tuple[str, ...] = flags.field(())
    delimiter: str | None = flags.field(None)
    quoted: bool = flags.field(False)
    kind: Literal["classification", "multi_label", "regression"] | None = flags.field(
        None, stored="required"
    )
    # A saved head is used only if it has these labels. Its task may have another name:
    # AX uses the head of MNLI.
    labels: tuple[str, ...] | None = flags.field(
        None, stored="optional", must_match_head=True
    )
    label_separator: str | None = flags.field(
        ",", stored="optional", must_match_head=True
    )
    class_weights: tuple[str, ...] = flags.field(())
    # Whether each label is a JSON text, such as "1" for the number 1. Estimators store
    # labels in this form if the labels are numbers or booleans, not texts.
    labels_are_json: bool | None = saved_field()
    # Lowest and highest label of a regression; predictions are clipped to them.
    bounds: tuple[float, float] | None = saved_field()
    # Number of texts per example.
    texts: Literal[1, 2] | None = saved_field("required", must_match_head=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.text_columns) not in (1, 2):
            raise InputError(
                f"--text_columns={','.join(self.text_columns)}: must be one or two "
                f"columns"
            )
        names = [*self.text_columns, self.label_column, self.index_column]
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise InputError(
                f"--text_columns, --label_column, --index_column: {repeated!r} is "
                f"given twice"
            )
        if self.delimiter is not None and len(self.dialect.delimiter or "") != 1:
            raise InputError(
                f"--delimiter={self.delimiter!r}: must be one character, or \\t"
            )
        labels = self.labels or ()
        if self.kind == "regression" and labels:
            raise InputError(f"--labels={','.join(labels)}: regression has no labels")
        if self.label_separator == "":
            raise InputError("--label_separator: must not be empty")

    @property
    def dialect(self) -> Dialect:
        """The format of the tables."""
        delimiter = "\t" if self.delimiter == "\\t" else self.delimiter
        return Dialect(delimiter, self.quoted, self.encoding)

    @classmethod
    def from_stored(cls, task, location):
        kind = task.get("kind")
        is_regression = kind == "regression"
        key = "bounds" if is_regression else "labels"
        # `labels` are always required. `bounds` are required only in the file of a run.
        # The key `do_lower_case` shows that a run wrote the file.
        is_required = not is_regression or "do_lower_case" in task
        if is_required and key not in task:
            raise InputError(f"{location}: requires the key {key!r} for {kind}")
        if not is_regression and task["labels"] is None:
            raise InputError(f"{location}: labels=null: must be a list of texts")
        return super().from_stored(task, location)

    def check(self, run_settings: FineTuningSettings) -> None:
        # None means the task of the model, which may be a custom one.
        if self.task_name in (None, CUSTOM):
            return
        for item in dataclasses.fields(self):
            is_custom = item.name in _CUSTOM_FLAGS
            if is_custom and getattr(self, item.name) != item.default:
                raise InputError(
                    f"--{item.name}: requires --task_name={CUSTOM}; got "
                    f"{self.task_name}"
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierRunSettings(FineTuningSettings):
    """Export.

    Args:
        threshold_to_export: Decision threshold to export with --export_dir. The model
            predicts the second of two labels if its probability is at least the
            threshold. With --kind=multi_label, the model predicts each label with such
            a probability. Default: none, which predicts the most likely label; with
            --kind=multi_label 0.5.

    Raises:
        InputError: see `FineTuningSettings`; or the threshold is out of range or
            without an export.
    """

    threshold_to_export: float | None = flags.field(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        threshold = self.threshold
        if threshold is not None and not (self.export_dir and 0 <= threshold <= 1):
            raise InputError(
                f"--threshold_to_export={self.threshold}: must be in [0, 1], and "
                f"requires --export_dir"
            )

    @property
    def threshold(self) -> float | None:
        """The threshold to export; None if --threshold_to_export is not given, or NaN.

        **As released:** NaN, the default of the released flag, means no threshold.
        """
        value = self.threshold_to_export
        return None if value is None or math.isnan(value) else value
