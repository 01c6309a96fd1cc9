"""The settings of training and evaluation of all tasks."""

import dataclasses
from typing import ClassVar, Literal

from albert_tf import flags
from albert_tf.errors import InputError
from albert_tf.weights.settings import CheckpointSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings(CheckpointSettings):
    """Training and evaluation.

    Raises:
        InputError: a value is out of range, or two contradict each other.
    """

    output_dir: str = flags.field(
        "Output folder for checkpoints, metrics and curves. If it has checkpoints, "
        "the run resumes from the newest one."
    )
    init_checkpoint: str | None = flags.field(
        "Weights to start from, in any format that convert_checkpoint.py reads, or a "
        "name to download, such as albert_base_v2 or hf://owner/name. Ignored when a "
        "run resumes.",
        None,
    )
    init_from_group0: bool = flags.field(
        "Initialize all groups of layers with the first group's weights of "
        "--init_checkpoint.",
        False,
        requires=("init_checkpoint",),
    )
    do_train: bool = flags.field("Train the model.", True)
    do_eval: bool = flags.field(
        "Evaluate the model, during training or on its own.", False
    )
    train_batch_size: int = flags.field(
        "Number of examples per training step, over all devices.", 4096, at_least=1
    )
    eval_batch_size: int = flags.field(
        "Number of examples per evaluation batch, over all devices.", 64, at_least=1
    )
    optimizer: Literal["lamb", "adamw"] = flags.field(
        "Optimizer. adamw also suits models that were pretrained with lamb.", "lamb"
    )
    learning_rate: float = flags.field("Peak learning rate.", 0.00176, above=0)
    poly_power: float = flags.field(
        "Power of the polynomial decay to 0; 1 is linear.", 1.0, at_least=0
    )
    weight_decay: float = flags.field("Decoupled weight decay.", 0.01, at_least=0)
    num_train_steps: int = flags.field("Number of training steps.", 125000, at_least=1)
    num_warmup_steps: int = flags.field(
        "Number of learning-rate warmup steps.", 3125, at_least=0
    )
    start_warmup_step: int = flags.field(
        "Step at which the warmup starts.", 0, at_least=0
    )
    gradient_accumulation_steps: int = flags.field(
        "Number of microbatches per step on each device. More microbatches need less "
        "memory for the same update.",
        1,
        at_least=1,
    )
    precision: Literal["float32", "bfloat16", "float16"] = flags.field(
        "Precision of matrix products; the weights stay in float32.", "float32"
    )
    xla: bool | None = flags.field(
        "Compile the forward and backward pass with XLA. Default: on for GPUs; on a "
        "CPU only GELU in bfloat16 or float16.",
        None,
    )
    early_stopping: int = flags.field(
        "Stop after this many evaluations without a better key metric (0 for never).",
        0,
        at_least=0,
    )
    eval_every_steps: int | None = flags.field(
        "Number of steps between evaluations. Default: --save_checkpoints_steps.",
        None,
        at_least=1,
    )
    max_eval_steps: int = flags.field(
        "Maximum number of evaluation batches (0 for all).", 100, at_least=0
    )
    save_checkpoints_steps: int = flags.field(
        "Number of steps between checkpoints.", 5000, at_least=1
    )
    save_checkpoints_minutes: float = flags.field(
        "Also save a checkpoint when the last one is this many minutes old (0 for "
        "never).",
        10.0,
        at_least=0,
    )
    keep_checkpoint_max: int = flags.field(
        "Maximum number of checkpoints to keep, in addition to the best one (0 for "
        "all).",
        5,
        at_least=0,
    )
    log_steps: int = flags.field(
        "Number of steps between progress lines.", 100, at_least=1
    )
    iterations_per_loop: int = flags.field(
        "Maximum number of steps per loop on a TPU.", 1000, at_least=1
    )
    seed: int = flags.field(
        "Seed of the order of the examples and of all random draws.",
        12345,
        at_least=0,
        at_most=2**31 - 1,
    )
    deterministic: bool = flags.field(
        "Use only deterministic operations; slower on GPUs.", False
    )

    wandb: str | None = flags.field(
        "Weights & Biases project to log settings and metrics to. Set "
        "WANDB_MODE=offline in the environment to work without a network.",
        None,
        requires=("do_train",),
    )
    mlflow: str | None = flags.field(
        "MLflow experiment to log settings and metrics to. MLFLOW_TRACKING_URI in the "
        "environment is its server or folder.",
        None,
        requires=("do_train",),
    )

    # **As released:** whether eval_results.txt has the best metric so far.
    log_best_metric = False
    # A run needs one of these flags.
    actions: ClassVar[tuple[str, ...]] = ("do_train", "do_eval")

    def __post_init__(self) -> None:
        super().__post_init__()
        if "://" in self.output_dir:
            raise InputError(
                f"--output_dir={self.output_dir}: must be a folder of this machine's "
                f"file systems; mount a bucket to write there"
            )
        if not any(getattr(self, name) for name in self.actions):
            raise InputError(f"--{' or --'.join(self.actions)} must be given")

    @property
    def initial_weights(self) -> str | None:
        """The weights to start from."""
        return self.init_checkpoint

    @property
    def steps_between_evaluations(self) -> int:
        """Number of steps between evaluations."""
        return self.eval_every_steps or self.save_checkpoints_steps
