"""The settings of `run_race.py`.

The first line of a settings class's docstring is a heading in `--help`.
"""

import dataclasses
from typing import ClassVar

from albert_tf import flags
from albert_tf.tasks.settings.base import TaskSettings, saved_field, size_field
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class RaceSettings(TaskSettings):
    """Data.

    Args:
        data_dir: Folder RACE of the data set (with train, dev and test), or its parent
            folder.
        task_name: Name of the data set, used in file names.
        train_file: JSON file with your own training questions, instead of --data_dir.
            The released code expects a TFRecord cache here.
        eval_file: JSON file with your own evaluation questions.
        predict_file: JSON file with your own questions to predict; the answers are
            optional.
        high_only: Use only the high-school questions.
        middle_only: Use only the middle-school questions.
        max_seq_length: Maximum number of tokens per input (article, question and one
            option); longer articles are truncated at the end. Default: the model's
            value, otherwise 512, but at most the longest input of the model.
        max_qa_length: Maximum number of tokens of a question with one option; only the
            last tokens of longer ones are used. Default: the model's value, or 128.

    Raises:
        InputError: --high_only and --middle_only are both given, or one of them without
            --data_dir.
    """

    data_dir: str | None = flags.field(None)
    task_name: str = flags.field("race", stored="optional", key="task")
    train_file: str | None = flags.field(None)
    eval_file: str | None = flags.field(None)
    predict_file: str | None = flags.field(None)
    high_only: bool = flags.field(
        False, requires=("data_dir",), excludes=("middle_only",)
    )
    middle_only: bool = flags.field(False, requires=("data_dir",))
    max_seq_length: int | None = size_field(
        512, stored="optional", affects_encoding=True
    )
    max_qa_length: int | None = size_field(
        128, is_segment=True, has_margin=True, affects_encoding=True
    )
    # Maximum number of options of a question in the data of the run.
    choices: int | None = saved_field()


@dataclasses.dataclass(frozen=True, kw_only=True)
class RaceRunSettings(FineTuningSettings):
    """How to fine-tune on RACE; defaults as released.

    Args:
        keep_checkpoint_max: Maximum number of checkpoints to keep, in addition to the
            best one (0 for all).
    """

    released_steps: ClassVar[int] = 12000
    released_warmup: ClassVar[int] = 1000

    do_train: bool = True
    do_eval: bool = True
    learning_rate: float = 1e-5
    save_checkpoints_steps: int = 100
    keep_checkpoint_max: int = flags.field(5, alias="num_keep_checkpoint")
