"""The settings of `run_classifier.py`."""

import dataclasses
import math
from typing import Any, ClassVar, Literal

from albert_tf import flags
from albert_tf.data.tables import Dialect
from albert_tf.errors import InputError
from albert_tf.tasks.settings.base import (
    NEEDED,
    OPTIONAL,
    TaskSettings,
    stored_field,
)
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings

CUSTOM = "custom"
# The flags of a table of one's own, which no other task takes.
_OF_CUSTOM = (
    *("train_file", "dev_file", "test_file", "text_columns", "label_column"),
    *("index_column", "columns", "kind", "label_separator"),
    *("delimiter", "quoted"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationSettings(TaskSettings):
    """Which data; with --task_name=custom your own table of texts.

    Raises:
        InputError: the columns are not one text or two, a name is used twice, or the
            labels do not go with the kind of task.
    """

    task_name: str | None = flags.field(
        "A task of GLUE, another data set of tasks/, or custom (--train_file and "
        "others).",
        None,
        stored=OPTIONAL,
        key="task",
    )
    data_dir: str | None = flags.field(
        "The root of the benchmark's tables, or the task's own folder.", None
    )
    max_seq_length: int | None = flags.field(
        "Most tokens of an input; longer texts are shortened. By default what the "
        "model was fine-tuned with, or else 512, or what the model can take.",
        None,
        at_least=1,
        stored=OPTIONAL,
        otherwise=512,
    )
    skip_bad_rows: bool = flags.field(
        "Skip broken rows of the training and evaluation tables, and log them; rows of "
        "the test table are never skipped.",
        False,
    )
    train_file: str | None = flags.field(
        "Table to train on: .tsv (no quoting), .csv, .jsonl or .json.", None
    )
    dev_file: str | None = flags.field("Table to evaluate on.", None)
    test_file: str | None = flags.field("Table to predict, without labels.", None)
    text_columns: tuple[str, ...] = flags.field(
        "The column of the text, or those of both texts of a pair.",
        ("text",),
        stored=OPTIONAL,
    )
    label_column: str = flags.field(
        "The column of the label.", "label", stored=OPTIONAL
    )
    index_column: str | None = flags.field(
        "The column that names the rows in predictions; by default their number.",
        None,
    )
    columns: tuple[str, ...] = flags.field(
        "Names of all columns, for tables without a header.", ()
    )
    delimiter: str | None = flags.field(
        "The character between cells of .csv and .tsv tables, or \\t; by default as "
        "their suffix says, or else the only one that finds all columns in the header.",
        None,
    )
    quoted: bool = flags.field(
        "Whether .tsv tables have double quotes around cells, as .csv tables may.",
        False,
    )
    kind: Literal["classification", "multi_label", "regression"] | None = flags.field(
        "One label per row, any number of labels per row, or a number; by default that "
        "of the model's folder, or else classification.",
        None,
        stored=NEEDED,
    )
    labels: tuple[str, ...] | None = flags.field(
        "All labels, in the order of the outputs; by default those of --train_file, "
        "sorted, or else those of the model's folder. A head that is loaded is matched "
        "by its own names, if they are known; of a task of GLUE, --labels names its "
        "labels in the order of the head instead.",
        None,
        stored=OPTIONAL,
    )
    label_separator: str | None = flags.field(
        "With --kind=multi_label: what stands between a row's labels.",
        ",",
        stored=OPTIONAL,
    )
    class_weights: tuple[str, ...] = flags.field(
        "How much examples of a label count in training: balanced (all labels alike), "
        "or label=number for some labels, the others 1.",
        (),
    )
    # Whether the labels are those of a program that has numbers or truth values.
    labels_are_json: bool | None = stored_field()
    # Least and greatest number of a regression.
    bounds: tuple[float, float] | None = stored_field()
    # Texts of an example.
    texts: Literal[1, 2] | None = stored_field(NEEDED)
    # The `TextTask` that the flags name, once they are read.
    text_task: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.text_columns) not in (1, 2):
            raise InputError(
                f"--text_columns={','.join(self.text_columns)}: expected one or two"
            )
        used = [*self.text_columns, self.label_column, self.index_column]
        twice = next((name for name in used if used.count(name) > 1), None)
        if twice is not None:
            raise InputError(
                f"--text_columns, --label_column, --index_column: {twice!r} is named "
                f"twice"
            )
        if self.delimiter is not None and len(self.dialect.delimiter or "") != 1:
            raise InputError(
                f"--delimiter={self.delimiter!r}: expected one character, or \\t"
            )
        labels = self.labels or ()
        if self.kind == "regression" and labels:
            raise InputError(f"--labels={','.join(labels)}: --kind=regression has none")
        if self.label_separator == "":
            raise InputError("--label_separator: expected at least one character")
        if len(set(labels)) < len(labels):
            raise InputError(f"--labels={','.join(labels)}: a label stands twice")

    @property
    def dialect(self) -> Dialect:
        """How the tables are written."""
        delimiter = "\t" if self.delimiter == "\\t" else self.delimiter
        return Dialect(delimiter, self.quoted, self.encoding)

    @classmethod
    def from_stored(cls, task, place):
        kind = task.get("kind")
        key = "bounds" if kind == "regression" else "labels"
        if key not in task and (key == "labels" or "do_lower_case" in task):
            raise InputError(f"{place}: expected the key {key!r}, for {kind}")
        if key == "labels" and task[key] is None:
            raise InputError(f"{place}: labels=null: expected texts")
        return super().from_stored(task, place)

    def check(self, run: FineTuningSettings, devices: int = 1) -> None:
        defaults = {item.name: item.default for item in dataclasses.fields(self)}
        for name in _OF_CUSTOM:
            named = self.task_name not in (None, CUSTOM)
            if named and getattr(self, name) != defaults[name]:
                raise InputError(
                    f"--{name}: expected --task_name={CUSTOM} with it, not "
                    f"{self.task_name}"
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierRunSettings(FineTuningSettings):
    """How to fine-tune on texts, and what to submit.

    Raises:
        InputError: see `FineTuningSettings`; or a threshold has nothing to go into.
    """

    work: ClassVar[tuple[str, ...]] = (*FineTuningSettings.work, "glue_submission")

    glue_submission: str | None = flags.field(
        "Zip to write for the benchmark's site, of all predictions in "
        "--submission_dirs.",
        None,
    )
    submission_dirs: tuple[str, ...] = flags.field(
        "Folders with predictions, or of folders with them; by default --output_dir.",
        (),
    )

    threshold_to_export: float | None = flags.field(
        "With --export_dir: probability from which on a label is chosen, the second "
        "one where an example has one of two; by default the likeliest.",
        None,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold is None:
            return
        if not self.export_dir or not 0 <= self.threshold <= 1:
            raise InputError(
                f"--threshold_to_export={self.threshold}: expected a probability, with "
                f"--export_dir"
            )

    @property
    def threshold(self) -> float | None:
        """What is exported; not a number stands for none, as released."""
        given = self.threshold_to_export
        return None if given is None or math.isnan(given) else given

    @property
    def needs_model(self) -> bool:
        """Whether there is more to do than to gather predictions."""
        return any(getattr(self, name) for name in FineTuningSettings.work)
