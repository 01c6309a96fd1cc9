"""The settings of `run_squad.py`.

The first line of a settings class's docstring is a heading in `--help`.
"""

import dataclasses
from typing import ClassVar, Literal

from albert_tf import flags
from albert_tf.errors import InputError
from albert_tf.tasks.settings.base import TaskSettings, saved_field, size_field
from albert_tf.tasks.settings.fine_tuning import FLAGS, FineTuningSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadSettings(TaskSettings):
    """Data, windows and answers.

    Args:
        train_file: SQuAD JSON file to train on.
        predict_file: SQuAD JSON file to predict. It is also scored (during training
            too) if each question has answers or is marked as impossible.
        version_2_with_negative: Questions may have no answer (SQuAD 2.0). Default:
            inferred from --train_file; without training, the model's value; if there is
            none, inferred from --predict_file.
        head: Head: linear (as in BERT) or conditional (as in XLNet). Default: the
            model's head (linear for Hugging Face models), otherwise linear for SQuAD
            1.1 and conditional for SQuAD 2.0.
        max_seq_length: Maximum number of tokens per window. Default: the model's value,
            or 384.
        doc_stride: Number of tokens between the starts of two windows. Default: the
            model's value, or 128.
        max_query_length: Maximum number of tokens per question. Default: the model's
            value, or 64.
        n_best_size: Number of answers to keep per question. Default: the model's value,
            or 20.
        max_answer_length: Maximum number of tokens per answer. Default: the model's
            value, or 30.
        start_n_top: Number of start candidates of the conditional head. Default: the
            model's value, or 5.
        end_n_top: Number of end candidates per start. Default: the model's value, or 5.
        null_score_diff_threshold: Null odds above which the answer is empty (SQuAD
            2.0). Default: 0 with --do_train; without it, the value stored with the
            model, or 0.
        fit_threshold: Find the threshold on --predict_file itself, as in the released
            code.
        train_feature_file: File of the cached training features (.npz). Default: a file
            in --cached_dir.
        predict_feature_file: File of the cached features of --predict_file (.npz).
            Default: a file in --cached_dir.
        predict_feature_left_file: Unused; kept for compatibility.
        skip_bad_rows: Skip training questions whose answer is missing or not in the
            context, and log them.
        use_einsum: Unused; kept for compatibility.

    Raises:
        InputError: --null_score_diff_threshold and --fit_threshold are both given, or
            the two feature files are the same.
    """

    task_name: str | None = "squad"
    train_file: str | None = flags.field(None)
    predict_file: str | None = flags.field(None)
    version_2_with_negative: bool | None = flags.field(None)
    # In the next two fields, "required" is for the `task.json` of a run, and `fallback`
    # for models of other programs, such as Hugging Face. A run never needs `fallback`:
    # `_resolve_settings` in `tasks/squad/task.py` sets both fields first.
    #
    # "2.0" if a question of the files may have no answer, otherwise "1.1".
    version: Literal["1.1", "2.0"] | None = saved_field(
        "required", fallback="1.1", must_match_head=True
    )
    head: Literal["linear", "conditional"] | None = flags.field(
        None, stored="required", fallback="linear", must_match_head=True
    )
    max_seq_length: int | None = size_field(384, stored="optional")
    # With `is_segment`, the default is at most a quarter of the model's longest input.
    # With `has_margin`, `max_seq_length` must be at least 4 tokens longer: [CLS], two
    # [SEP] and one token of the context.
    doc_stride: int | None = size_field(128, is_segment=True)
    max_query_length: int | None = size_field(64, is_segment=True, has_margin=True)
    n_best_size: int | None = size_field(20)
    max_answer_length: int | None = size_field(30)
    start_n_top: int | None = size_field(5)
    end_n_top: int | None = size_field(5)
    null_score_diff_threshold: float | None = flags.field(
        None, excludes=("fit_threshold",)
    )
    # The field above is the flag. This is the value used: the flag, its default, or a
    # fitted threshold. `task.json` stores it under the name of the flag.
    threshold: float | None = saved_field("required", key="null_score_diff_threshold")
    # Hash of the ids of the questions on which the threshold is fitted; "" if it is not
    # fitted.
    threshold_fitted_on: str | None = saved_field()
    fit_threshold: bool = flags.field(False)
    train_feature_file: str | None = flags.field(None)
    predict_feature_file: str | None = flags.field(None)
    predict_feature_left_file: str | None = flags.field(None)
    skip_bad_rows: bool = flags.field(False, affects_encoding=True)
    use_einsum: bool | None = flags.field(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        file = self.train_feature_file
        if file is not None and file == self.predict_feature_file:
            raise InputError(
                f"--train_feature_file and --predict_feature_file={file}: must be two "
                f"files"
            )

    @property
    def min_length(self) -> int:
        """Minimum number of tokens per input.

        The conditional head selects the best `start_n_top` starts, and `end_n_top` ends
        for each start. So an input needs at least the larger number of tokens.
        """
        sizes = (self.start_n_top or 1, self.end_n_top or 1)
        return max(sizes) if self.head == "conditional" else 1

    def check(self, run_settings: FineTuningSettings) -> None:
        for part in run_settings.split_names:
            file_flag = "train_file" if part == "train" else "predict_file"
            if not getattr(self, file_flag):
                raise InputError(f"--{FLAGS[part]}: requires --{file_flag}")
        if self.fit_threshold and not (run_settings.do_eval or run_settings.do_predict):
            raise InputError("--fit_threshold: requires --do_eval or --do_predict")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadRunSettings(FineTuningSettings):
    """How to fine-tune on SQuAD; defaults as released.

    **As released:** in the released code, an epoch has only as many windows as there
    are questions, although a long context has several windows. Here an epoch has all
    windows. For the released number of steps, pass it as `--train_step`.

    Args:
        export_dir: Folder for exports of the best checkpoint: a SavedModel that takes
            raw text, and albert_model.tflite, which takes ids.
    """

    released_epochs: ClassVar[float | None] = 3.0
    released_warmup_proportion: ClassVar[float | None] = 0.1
    extra_export_formats: ClassVar[tuple[str, ...]] = ("litert",)

    export_dir: str | None = flags.field(None)
