"""The settings of `run_classifier.py`, and those of a table of one's own."""

import dataclasses
import math
from typing import ClassVar, Literal

from albert_tf import flags
from albert_tf.errors import InputError
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierSettings(FineTuningSettings):
    """What to do, on which data.

    Raises:
        InputError: see `FineTuningSettings`; or a threshold has nothing to go into.
    """

    work: ClassVar[tuple[str, ...]] = (
        *FineTuningSettings.work,
        "export_dir",
        "glue_submission",
    )

    task_name: str | None = flags.field(
        "A task of GLUE, another declared one, or custom (--train_file and others).",
        None,
    )
    data_dir: str | None = flags.field(
        "The root of the benchmark's tables, or the task's own folder.", None
    )
    max_seq_length: int | None = flags.field(
        "Most tokens of an input; longer texts are shortened. By default what the "
        "model was fine-tuned with, or else 512, or what the model can take.",
        None,
    )
    skip_bad_rows: bool = flags.field(
        "Skip broken rows of the training and evaluation tables, and log them; rows of "
        "the test table are never skipped.",
        False,
    )
    glue_submission: str | None = flags.field(
        "Zip to write for the benchmark's site, of all predictions in "
        "--submission_dirs.",
        None,
    )
    submission_dirs: tuple[str, ...] = flags.field(
        "Folders with predictions, or of folders with them; by default --output_dir.",
        (),
    )

    export_dir: str | None = flags.field(
        "Folder for a SavedModel of the best checkpoint that takes raw text.", None
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
        return any(
            getattr(self, name) for name in self.work if name != "glue_submission"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CustomSettings(flags.Settings):
    """Your own table of texts (--task_name=custom).

    Raises:
        InputError: the columns are not one text or two, a name is used twice, or the
            labels do not go with the kind of task.
    """

    train_file: str | None = flags.field(
        "Table to train on: .tsv (no quoting), .csv or .jsonl.", None
    )
    dev_file: str | None = flags.field("Table to evaluate on.", None)
    test_file: str | None = flags.field("Table to predict, without labels.", None)
    text_columns: tuple[str, ...] = flags.field(
        "The column of the text, or those of both texts of a pair.", ("text",)
    )
    label_column: str = flags.field("The column of the label.", "label")
    index_column: str | None = flags.field(
        "The column that names the rows in predictions; by default their number.", None
    )
    columns: tuple[str, ...] = flags.field(
        "Names of all columns, for tables without a header.", ()
    )
    kind: Literal["classification", "multi_label", "regression"] | None = flags.field(
        "One label per row, any number of labels per row, or a number; by default that "
        "of the model's folder, or else classification.",
        None,
    )
    labels: tuple[str, ...] = flags.field(
        "All labels, in the order of the outputs; by default those of --train_file, "
        "sorted, or else those of the model's folder.",
        (),
    )
    label_separator: str = flags.field(
        "With --kind=multi_label: what stands between a row's labels.", ","
    )

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
        if self.kind == "regression" and self.labels:
            raise InputError(
                f"--labels={','.join(self.labels)}: --kind=regression has none"
            )
        if not self.label_separator:
            raise InputError("--label_separator: expected at least one character")
        if len(set(self.labels)) < len(self.labels):
            raise InputError(f"--labels={','.join(self.labels)}: a label stands twice")
