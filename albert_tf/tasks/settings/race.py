"""The settings of `run_race.py`."""

import dataclasses
from typing import ClassVar

from albert_tf import flags
from albert_tf.tasks.settings.base import (
    NEEDED,
    OPTIONAL,
    TaskSettings,
    stored_field,
)
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class RaceSettings(TaskSettings):
    """Which questions, and how they are read.

    Raises:
        InputError: the levels exclude each other, or lack --data_dir.
    """

    data_dir: str | None = flags.field(
        "The folder RACE of the data set, with train, dev and test in it, or the one "
        "above it.",
        None,
    )
    task_name: str = flags.field(
        "Name of the data set, for files.", "race", stored=OPTIONAL, key="task"
    )
    train_file: str | None = flags.field(
        "JSON with your own questions to train on, instead of --data_dir's (not a "
        "cache of TFRecords, as in the released script).",
        None,
    )
    eval_file: str | None = flags.field(
        "Questions to evaluate on, as for --train_file.",
        None,
    )
    predict_file: str | None = flags.field(
        "Questions to predict, as for --train_file; answers may be absent.",
        None,
    )
    high_only: bool = flags.field(
        "Only the questions for high school.",
        False,
        needs=("data_dir",),
        instead_of=("middle_only",),
    )
    middle_only: bool = flags.field(
        "Only the questions for middle school.", False, needs=("data_dir",)
    )
    max_seq_length: int | None = flags.field(
        "Most tokens of an article with one choice; longer articles are cut at their "
        "end. By default what the model was fine-tuned with, or else 512, or what the "
        "model can take.",
        None,
        at_least=1,
        stored=OPTIONAL,
        otherwise=512,
    )
    max_qa_length: int | None = flags.field(
        "Most tokens of a question with one choice; of longer ones the last are kept. "
        "By default what the model was fine-tuned with, or else 128.",
        None,
        at_least=1,
        stored=NEEDED,
        otherwise=128,
        is_part=True,
    )
    # The most of a question that was read.
    choices: int | None = stored_field()


@dataclasses.dataclass(frozen=True, kw_only=True)
class RaceRunSettings(FineTuningSettings):
    """How to fine-tune on RACE; defaults as released."""

    released_steps: ClassVar[int] = 12000
    released_warmup: ClassVar[int] = 1000

    do_train: bool = flags.field("Train.", True)
    do_eval: bool = flags.field("Evaluate, while training or alone.", True)
    learning_rate: float = flags.field("Peak learning rate.", 1e-5)
    num_train_steps: int = flags.field("Updates; by default 12000.", None)
    num_warmup_steps: int = flags.field(
        "Updates with a rising rate; by default 1000.", None
    )
    save_checkpoints_steps: int = flags.field("Updates between checkpoints.", 100)
    keep_checkpoint_max: int = flags.field(
        "Checkpoints to keep, beside the best; 0 keeps all.",
        5,
        alias="num_keep_checkpoint",
    )
