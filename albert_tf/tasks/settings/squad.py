"""The settings of `run_squad.py`."""

import dataclasses
from typing import ClassVar, Literal

from albert_tf import flags
from albert_tf.errors import InputError
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings

# As released, where no flag is given.
_EPOCHS, _WARMUP_PROPORTION = 3.0, 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadSettings(FineTuningSettings):
    """What to do, on which questions.

    Raises:
        InputError: see `FineTuningSettings`; or files or thresholds contradict.
    """

    work: ClassVar[tuple[str, ...]] = (*FineTuningSettings.work, "export_dir")

    # None: see `as_released`.
    num_train_steps: int = flags.field(
        "Updates, instead of --num_train_epochs.",
        None,
    )
    num_warmup_steps: int = flags.field(
        "Updates with a rising rate, instead of --warmup_proportion.",
        None,
    )
    num_train_epochs: float | None = flags.field(
        "Times that each question is trained on, in the released count: a question of "
        "several windows counts once; by default 3.",
        None,
    )
    warmup_proportion: float | None = flags.field(
        "Share of the updates with a rising rate; by default 0.1.",
        None,
    )
    train_file: str | None = flags.field("Questions to train on, SQuAD's JSON.", None)
    predict_file: str | None = flags.field(
        "Questions to answer; those with answers are scored, while training too.", None
    )
    version_2_with_negative: bool | None = flags.field(
        "Questions may have no answer (SQuAD 2.0); by default as the training file, "
        "the model's folder or --predict_file says.",
        None,
    )
    head: Literal["linear", "conditional"] | None = flags.field(
        "linear: that of BERT; conditional: that of XLNet. By default as released: "
        "linear for SQuAD 1.1, conditional for 2.0.",
        None,
    )
    max_seq_length: int | None = flags.field(
        "Pieces of a window at most; by default as the model's folder says, or 384.",
        None,
    )
    doc_stride: int | None = flags.field(
        "Pieces between two windows; by default as the model's folder says, or 128.",
        None,
    )
    max_query_length: int | None = flags.field(
        "Pieces of a question; by default as the model's folder says, or 64.", None
    )
    n_best_size: int | None = flags.field(
        "Answers of a question to keep; by default as the model's folder says, or 20.",
        None,
    )
    max_answer_length: int | None = flags.field(
        "Pieces of an answer at most; by default as the model's folder says, or 30.",
        None,
    )
    start_n_top: int | None = flags.field(
        "Starts that the conditional head tries; by default likewise, or 5.", None
    )
    end_n_top: int | None = flags.field(
        "Ends that it tries for each start; by default likewise, or 5.", None
    )
    null_score_diff_threshold: float | None = flags.field(
        "Null odds above it mean no answer (2.0). By default what the other flags "
        "say, or what is stored with the model, unless that was found on "
        "--predict_file; else 0.",
        None,
        instead_of=("threshold_file", "fit_threshold"),
    )
    threshold_file: str | None = flags.field(
        "Questions with answers, other than those to be judged, on which to find the "
        "threshold with the best F1; it is stored with the model.",
        None,
        instead_of=("fit_threshold",),
    )
    fit_threshold: bool = flags.field(
        "Find the threshold on --predict_file itself, as released.",
        False,
        needs=("do_eval", "do_predict"),
    )
    train_feature_file: str | None = flags.field(
        "Where converted questions are kept (.npz); by default in --cached_dir.", None
    )
    predict_feature_file: str | None = flags.field(
        "Converted questions of --predict_file, as for --train_feature_file.", None
    )
    predict_feature_left_file: str | None = flags.field(
        "A released flag without effect: --predict_feature_file holds everything.", None
    )
    num_workers: int = flags.field(
        "Processes that convert questions; 0: one for each core.", 0, at_least=0
    )
    use_einsum: bool | None = flags.field(
        "A released flag without effect: the numbers are the same.", None
    )
    export_dir: str | None = flags.field(
        "Folder for a SavedModel of the best checkpoint that takes raw text, and for "
        "albert_model.tflite, which takes ids.",
        None,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for flag, file in (
            ("do_train", "train_file"),
            ("do_eval", "predict_file"),
            ("do_predict", "predict_file"),
        ):
            if getattr(self, flag) and not getattr(self, file):
                raise InputError(f"--{flag}: expected --{file} with it")
        kept = self.train_feature_file
        if kept is not None and kept == self.predict_feature_file:
            raise InputError(
                f"--train_feature_file and --predict_feature_file={kept}: expected two "
                f"files"
            )

    def as_released(self) -> "SquadSettings":
        """Fills in the released number of epochs where none is given."""
        epochs, warmup = self.num_train_epochs, self.warmup_proportion
        if self.num_train_steps is None and epochs is None:
            epochs = _EPOCHS
        if self.num_warmup_steps is None and warmup is None:
            warmup = _WARMUP_PROPORTION
        return dataclasses.replace(
            self,
            num_train_epochs=epochs,
            warmup_proportion=warmup,
        )
