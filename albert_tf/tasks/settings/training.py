"""The settings of one run of training and evaluation, whatever the task."""

import dataclasses
from typing import ClassVar, Literal

from albert_tf import flags
from albert_tf.errors import InputError
from albert_tf.weights.settings import CheckpointSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings(CheckpointSettings):
    """How to train and evaluate.

    Raises:
        InputError: a value is out of range, or two contradict each other.
    """

    output_dir: str = flags.field(
        "Folder of the run: checkpoints, metrics, curves. Where it holds checkpoints, "
        "the run resumes from the newest.",
    )
    init_checkpoint: str | None = flags.field(
        "Weights to start from, of any format that convert_checkpoint.py reads, or a "
        "name to download, such as albert_base_v2 or hf://owner/name. Not used by a "
        "run that resumes.",
        None,
    )
    init_from_group0: bool = flags.field(
        "Give all groups of layers the first group's weights of --init_checkpoint.",
        False,
        needs=("init_checkpoint",),
    )
    do_train: bool = flags.field("Train.", True)
    do_eval: bool = flags.field("Evaluate, while training or alone.", False)
    train_batch_size: int = flags.field(
        "Examples of a step, on all devices.", 4096, at_least=1
    )
    eval_batch_size: int = flags.field(
        "Examples of a step in evaluation, on all devices.",
        64,
        at_least=1,
    )
    optimizer: Literal["lamb", "adamw"] = flags.field(
        "lamb or adamw, as released.", "lamb"
    )
    learning_rate: float = flags.field("Peak learning rate.", 0.00176, above=0)
    poly_power: float = flags.field(
        "Power of the decay to 0; 1 is linear.", 1.0, at_least=0
    )
    weight_decay: float = flags.field("Decoupled weight decay.", 0.01, at_least=0)
    num_train_steps: int = flags.field("Updates.", 125000, at_least=1)
    num_warmup_steps: int = flags.field("Updates with a rising rate.", 3125, at_least=0)
    start_warmup_step: int = flags.field(
        "Update at which the rate starts rising.", 0, at_least=0
    )
    gradient_accumulation_steps: int = flags.field(
        "Microbatches that each device divides its part of a batch into, one after the "
        "other: less memory, the same update.",
        1,
        at_least=1,
    )
    precision: Literal["float32", "bfloat16", "float16"] = flags.field(
        "Precision of matrix products; weights stay in float32.", "float32"
    )
    xla: bool | None = flags.field(
        "Compile the forward and backward pass; by default all of it on a GPU, GELU "
        "alone on a CPU in bfloat16 or float16.",
        None,
    )
    early_stopping: int = flags.field(
        "Stop after so many evaluations without a better key metric; 0: never.",
        0,
        at_least=0,
    )
    eval_every_steps: int | None = flags.field(
        "Updates between evaluations; by default --save_checkpoints_steps.",
        None,
        at_least=1,
    )
    max_eval_steps: int = flags.field(
        "Most batches of an evaluation; 0: all.",
        100,
        at_least=0,
    )
    save_checkpoints_steps: int = flags.field(
        "Updates between checkpoints.",
        5000,
        at_least=1,
    )
    save_checkpoints_minutes: float = flags.field(
        "Minutes after which a line of progress comes with a checkpoint; 0: never.",
        10.0,
        at_least=0,
    )
    keep_checkpoint_max: int = flags.field(
        "Checkpoints to keep, beside the best; 0 keeps all.",
        5,
        at_least=0,
    )
    log_steps: int = flags.field("Updates between lines of progress.", 100, at_least=1)
    iterations_per_loop: int = flags.field(
        "On a TPU: most updates between two returns to the host.",
        1000,
        at_least=1,
    )
    seed: int = flags.field(
        "Decides the order of examples and every draw.",
        12345,
        at_least=0,
        at_most=2**31 - 1,
    )
    deterministic: bool = flags.field(
        "Use only operations that give the same bits each time; slower on GPUs.",
        False,
    )

    wandb: str | None = flags.field(
        "Project of Weights & Biases that gets settings and metrics, too; with "
        "WANDB_MODE=offline in the environment it needs no network.",
        None,
        needs=("do_train",),
    )
    mlflow: str | None = flags.field(
        "Experiment of MLflow that gets settings and metrics, too; MLFLOW_TRACKING_URI "
        "in the environment names its server or folder.",
        None,
        needs=("do_train",),
    )

    # Whether a block of eval_results.txt ends with the best metric so far, as released.
    notes_best = False
    # The flags that give a run something to do.
    work: ClassVar[tuple[str, ...]] = ("do_train", "do_eval")

    def __post_init__(self) -> None:
        super().__post_init__()
        if "://" in self.output_dir:
            raise InputError(
                f"--output_dir={self.output_dir}: expected a folder of this machine's "
                f"file systems; mount a bucket to write there"
            )
        if not any(getattr(self, name) for name in self.work):
            raise InputError(
                f"--{' or --'.join(self.work)} must be given: got none of them"
            )

    @property
    def steps_between_evaluations(self) -> int:
        """Updates between evaluations."""
        return self.eval_every_steps or self.save_checkpoints_steps
