"""The settings of all fine-tuning tasks and of their models."""

import dataclasses
from pathlib import Path
from typing import ClassVar, Literal

from albert_tf import flags
from albert_tf.errors import InputError
from albert_tf.tasks.settings.training import TrainingSettings
from albert_tf.weights.settings import ModelFileSettings

# {split: flag of the action that needs the split}, and {split: flag of its file}. The
# flags of files are those of RACE and tagging; other tasks have other flags.
FLAGS = {"train": "do_train", "dev": "do_eval", "test": "do_predict"}
FILES = {"train": "train_file", "dev": "eval_file", "test": "predict_file"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningSettings(TrainingSettings):
    """Fine-tuning.

    Args:
        albert_hub_module_handle: Folder of a TF-Hub module (TF1 or TF2) to start from,
            instead of --init_checkpoint.
        do_predict: Predict with the best checkpoint.
        predict_batch_size: Number of examples per prediction batch, over all devices.
        num_train_steps: Number of training steps. Default: 1000 (RACE: 12000; SQuAD: 3
            epochs).
        num_warmup_steps: Number of learning-rate warmup steps. Default: 0 (RACE: 1000;
            SQuAD: 10% of the steps).
        num_train_epochs: Number of training epochs, instead of a number of steps. An
            epoch of SQuAD has all windows; in the released code, it has as many windows
            as there are questions.
        warmup_proportion: Fraction of training steps used for learning-rate warmup,
            instead of a number of steps.
        eval_every_epochs: Number of epochs between evaluations, instead of a number of
            steps.
        num_runs: Number of runs with different seeds, starting at --seed, each in its
            own folder. The best run predicts.
        ensemble: Folders of fine-tuned models, or patterns such as 'runs/mrpc/run-*'.
            The run evaluates and predicts with the mean of their outputs. Without a
            value, the members are all runs of --num_runs.
        ensemble_search: Search for the best ensemble of at most this many members, by
            repeatedly adding the member with which the key metric is highest.
        pad_to_multiple_of: Pad batches to a multiple of this many tokens, or to
            --max_seq_length if the value is 0. Default: 1 on a CPU (8 with --xla), 64
            on a GPU, 0 on a TPU.
        cached_dir: Folder of the cached features. Default: --output_dir.
        export_dir: Folder for an export of the best checkpoint: a SavedModel that takes
            raw text.

    Raises:
        InputError: a value is out of range, or two contradict each other.
    """

    log_best_metric = True
    actions: ClassVar[tuple[str, ...]] = (
        *TrainingSettings.actions,
        "do_predict",
        "export_dir",
    )
    # Default numbers of training steps and of warmup steps. If `released_epochs` or
    # `released_warmup_proportion` is not None, it has priority.
    released_steps: ClassVar[int] = 1000
    released_warmup: ClassVar[int] = 0
    released_epochs: ClassVar[float | None] = None
    released_warmup_proportion: ClassVar[float | None] = None
    # Formats to export to in addition to the SavedModel.
    extra_export_formats: ClassVar[tuple[str, ...]] = ()

    albert_hub_module_handle: str | None = flags.field(
        None, excludes=("init_checkpoint",)
    )
    do_train: bool = False
    do_predict: bool = flags.field(False)
    train_batch_size: int = 32
    eval_batch_size: int = 8
    predict_batch_size: int = flags.field(8, at_least=1)
    optimizer: Literal["lamb", "adamw"] = "adamw"
    learning_rate: float = 5e-5
    # None means the default from `released_steps`, `released_epochs` and so on.
    num_train_steps: int = flags.field(
        None, alias="train_step", excludes=("num_train_epochs",)
    )
    num_warmup_steps: int = flags.field(
        None, alias="warmup_step", excludes=("warmup_proportion",)
    )
    num_train_epochs: float | None = flags.field(
        None, excludes=("num_train_steps",), above=0
    )
    warmup_proportion: float | None = flags.field(
        None, excludes=("num_warmup_steps",), at_least=0, below=1
    )
    eval_every_epochs: float | None = flags.field(
        None, excludes=("eval_every_steps",), requires=("do_eval",), above=0
    )
    save_checkpoints_steps: int = 1000
    max_eval_steps: int = 0
    log_steps: int = 50
    num_runs: int = flags.field(1, at_least=1)
    ensemble: tuple[str, ...] | None = flags.field(
        None, may_be_empty=True, excludes=("export_dir",)
    )
    ensemble_search: int | None = flags.field(None, at_least=1)
    pad_to_multiple_of: int | None = flags.field(None, at_least=0)
    cached_dir: str | None = flags.field(None)

    export_dir: str | None = flags.field(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        # `ensemble` is None for no ensemble, and () for the runs of --num_runs. Folders
        # are possible only without training.
        is_possible = not self.do_train if self.ensemble else self.num_runs > 1
        if self.ensemble is not None and not is_possible:
            raise InputError(
                "--ensemble: pass folders without --do_train, or no value with "
                "--do_train and --num_runs"
            )
        if self.ensemble_search and (self.ensemble is None or not self.do_eval):
            raise InputError("--ensemble_search: requires --ensemble and --do_eval")
        if self.num_runs > 1 and not (self.do_train and self.do_eval):
            raise InputError(
                f"--num_runs={self.num_runs}: requires --do_train and --do_eval, to "
                f"compare the runs"
            )

    @property
    def threshold(self) -> float | None:
        """The decision threshold to export; None for the default of the task."""
        return None

    @property
    def split_names(self) -> tuple[str, ...]:
        """The names of the splits that the run needs: "train", "dev" or "test"."""
        return tuple(name for name, flag in FLAGS.items() if getattr(self, flag))

    @property
    def initial_weights(self) -> str | None:
        """The weights or the TF-Hub module to start from."""
        return self.albert_hub_module_handle or self.init_checkpoint

    @property
    def cache_dir(self) -> Path:
        """The folder of the cached features."""
        return Path(self.cached_dir or self.output_dir)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSettings(ModelFileSettings):
    """Dropout and memory of the model.

    Args:
        albert_dropout_prob: Dropout of the encoder's hidden states and attention.
            Default: the value in the model's config.
        classifier_dropout_prob: Dropout of the new head. Default: the value in the
            model's config, or 0.1.
        recompute: What to compute again in the backward pass, to save memory. block:
            everything except the inputs of the blocks. none: nothing. Default: the
            value in the model's config.
    """

    albert_dropout_prob: float | None = flags.field(None)
    classifier_dropout_prob: float | None = flags.field(None, alias="dropout_prob")
    recompute: Literal["none", "block"] | None = flags.field(None)
