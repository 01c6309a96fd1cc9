"""The settings that all fine-tuning tasks share, and those of their models."""

import dataclasses
from pathlib import Path
from typing import ClassVar, Literal

from albert_tf import flags
from albert_tf.errors import InputError
from albert_tf.tasks.settings.training import TrainingSettings
from albert_tf.weights.settings import ModelFileSettings

# Parts of the data: the flag that needs each, and the flag of its file in the families
# that have a file each.
FLAGS = {"train": "do_train", "dev": "do_eval", "test": "do_predict"}
FILES = {"train": "train_file", "dev": "eval_file", "test": "predict_file"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningSettings(TrainingSettings):
    """How to fine-tune.

    Raises:
        InputError: a value is out of range, or two contradict each other.
    """

    notes_best = True
    work: ClassVar[tuple[str, ...]] = (
        *TrainingSettings.work,
        "do_predict",
        "export_dir",
    )
    # Updates in all and with a rising rate, where nothing is given; epochs and the
    # share count before them.
    released_steps: ClassVar[int] = 1000
    released_warmup: ClassVar[int] = 0
    released_epochs: ClassVar[float | None] = None
    released_warmup_proportion: ClassVar[float | None] = None

    albert_hub_module_handle: str | None = flags.field(
        "Folder of a TF-Hub module (TF1 or TF2) to start from, instead of "
        "--init_checkpoint.",
        None,
        instead_of=("init_checkpoint",),
    )
    do_train: bool = flags.field("Train.", False)
    do_predict: bool = flags.field("Predict, with the best checkpoint.", False)
    train_batch_size: int = flags.field("Examples of a step, on all devices.", 32)
    eval_batch_size: int = flags.field(
        "Examples of a step in evaluation, on all devices.", 8
    )
    predict_batch_size: int = flags.field(
        "Examples of a step in prediction, on all devices.",
        8,
        at_least=1,
    )
    optimizer: Literal["lamb", "adamw"] = flags.field(
        "Optimizer, as released; adamw also for models that lamb has pretrained.",
        "adamw",
    )
    learning_rate: float = flags.field("Peak learning rate.", 5e-5)
    # None: as released, see above.
    num_train_steps: int = flags.field(
        "Updates; by default 1000.",
        None,
        alias="train_step",
        instead_of=("num_train_epochs",),
    )
    num_warmup_steps: int = flags.field(
        "Updates with a rising rate; by default 0.",
        None,
        alias="warmup_step",
        instead_of=("warmup_proportion",),
    )
    num_train_epochs: float | None = flags.field(
        "Times that each example is trained on, instead of a number of updates.",
        None,
        instead_of=("num_train_steps",),
        above=0,
    )
    warmup_proportion: float | None = flags.field(
        "Share of the updates with a rising rate, instead of their number.",
        None,
        instead_of=("num_warmup_steps",),
        at_least=0,
        below=1,
    )
    eval_every_epochs: float | None = flags.field(
        "Times that each example is trained on between evaluations, instead of a "
        "number of updates.",
        None,
        instead_of=("eval_every_steps",),
        needs=("do_eval",),
        above=0,
    )
    save_checkpoints_steps: int = flags.field("Updates between checkpoints.", 1000)
    max_eval_steps: int = flags.field("Most batches of an evaluation; 0: all.", 0)
    log_steps: int = flags.field("Updates between lines of progress.", 50)
    num_runs: int = flags.field(
        "Runs that differ in their seeds, --seed and those after it, each in a folder "
        "of its own; the best one predicts.",
        1,
        at_least=1,
    )
    pad_to_multiple_of: int | None = flags.field(
        "Batches are padded to a multiple of so many tokens; 0 pads all of them to "
        "--max_seq_length. By default 1 on a CPU (8 with --xla), 64 on a GPU, 0 on a "
        "TPU.",
        None,
        at_least=0,
    )
    cached_dir: str | None = flags.field(
        "Where converted examples are kept; by default --output_dir.",
        None,
    )

    export_dir: str | None = flags.field(
        "Folder for a SavedModel of the best checkpoint that takes raw text.",
        None,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_runs > 1 and not (self.do_train and self.do_eval):
            raise InputError(
                f"--num_runs={self.num_runs}: expected --do_train and --do_eval with "
                f"it, to compare the runs"
            )

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the data that the run needs: train, dev and test."""
        return tuple(part for part, flag in FLAGS.items() if getattr(self, flag))

    @property
    def start(self) -> str | None:
        """The weights to start from."""
        return self.albert_hub_module_handle or self.init_checkpoint

    @property
    def cache(self) -> Path:
        """Where converted examples are kept."""
        return Path(self.cached_dir or self.output_dir)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSettings(ModelFileSettings):
    """Which model, and which vocabulary."""

    albert_dropout_prob: float | None = flags.field(
        "Dropout of hidden states and of attention; by default as the model's file "
        "says.",
        None,
    )
    classifier_dropout_prob: float | None = flags.field(
        "Dropout of the new head; by default that of the model's file, or else 0.1.",
        None,
        alias="dropout_prob",
    )
    recompute: Literal["none", "block"] | None = flags.field(
        "block keeps only each block's input for the backward pass; by default as the "
        "model's file says.",
        None,
    )
