"""The settings of training and evaluation of all tasks."""

import dataclasses
from typing import ClassVar, Literal

from albert_tf import flags
from albert_tf.errors import InputError
from albert_tf.weights.settings import CheckpointSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings(CheckpointSettings):
    """Training and evaluation.

    Args:
        output_dir: Output folder for checkpoints, metrics and curves. If it has
            checkpoints, the run resumes from the newest one.
        init_checkpoint: Weights to start from, in any format that convert_checkpoint.py
            reads, or a name to download, such as albert_base_v2 or hf://owner/name.
            Ignored when a run resumes.
        init_from_group0: Initialize each group of layers that --init_checkpoint lacks
            with the weights of its first group.
        do_train: Train the model.
        do_eval: Evaluate the model, during training or without training.
        train_batch_size: Number of examples per training step, over all devices.
        eval_batch_size: Number of examples per evaluation batch, over all devices.
        optimizer: Optimizer. adamw also suits models that were pretrained with lamb.
        learning_rate: Peak learning rate.
        poly_power: Power of the polynomial decay of the learning rate to 0 (1 for
            linear decay).
        weight_decay: Decoupled weight decay.
        num_train_steps: Number of training steps.
        num_warmup_steps: Number of learning-rate warmup steps.
        start_warmup_step: Step at which the warmup starts.
        gradient_accumulation_steps: Number of microbatches per step on each device.
            More microbatches need less memory for the same update.
        precision: Precision of matrix products; the weights stay in float32.
        xla: Compile the forward and backward pass with XLA. Default: true on GPUs,
            false on CPUs. Without --xla, a CPU compiles only the GELU function, and
            only in bfloat16 or float16.
        early_stopping: Stop after this many evaluations without a better key metric (0
            for never).
        eval_every_steps: Number of steps between evaluations. Default:
            --save_checkpoints_steps.
        max_eval_steps: Maximum number of evaluation batches (0 for all).
        save_checkpoints_steps: Number of steps between checkpoints.
        save_checkpoints_minutes: Also save a checkpoint if the last one is this many
            minutes old (0 for never).
        keep_checkpoint_max: Maximum number of checkpoints to keep, in addition to the
            best one (0 for all).
        log_steps: Number of steps between progress lines.
        iterations_per_loop: Maximum number of steps per loop on a TPU.
        seed: Seed of the order of the examples and of all random draws.
        deterministic: Use only deterministic operations; slower on GPUs.
        wandb: Weights & Biases project to log settings and metrics to. Set
            WANDB_MODE=offline in the environment to work without a network.
        mlflow: MLflow experiment to log settings and metrics to. MLFLOW_TRACKING_URI in
            the environment is its server or folder.

    Raises:
        InputError: a value is out of range, or two contradict each other.
    """

    output_dir: str = flags.field()
    init_checkpoint: str | None = flags.field(None)
    init_from_group0: bool = flags.field(False, requires=("init_checkpoint",))
    do_train: bool = flags.field(True)
    do_eval: bool = flags.field(False)
    train_batch_size: int = flags.field(4096, at_least=1)
    eval_batch_size: int = flags.field(64, at_least=1)
    optimizer: Literal["lamb", "adamw"] = flags.field("lamb")
    learning_rate: float = flags.field(0.00176, above=0)
    poly_power: float = flags.field(1.0, at_least=0)
    weight_decay: float = flags.field(0.01, at_least=0)
    num_train_steps: int = flags.field(125000, at_least=1)
    num_warmup_steps: int = flags.field(3125, at_least=0)
    start_warmup_step: int = flags.field(0, at_least=0)
    gradient_accumulation_steps: int = flags.field(1, at_least=1)
    precision: Literal["float32", "bfloat16", "float16"] = flags.field("float32")
    xla: bool | None = flags.field(None)
    early_stopping: int = flags.field(0, at_least=0)
    eval_every_steps: int | None = flags.field(None, at_least=1)
    max_eval_steps: int = flags.field(100, at_least=0)
    save_checkpoints_steps: int = flags.field(5000, at_least=1)
    save_checkpoints_minutes: float = flags.field(10.0, at_least=0)
    keep_checkpoint_max: int = flags.field(5, at_least=0)
    log_steps: int = flags.field(100, at_least=1)
    iterations_per_loop: int = flags.field(1000, at_least=1)
    seed: int = flags.field(12345, at_least=0, at_most=2**31 - 1)
    deterministic: bool = flags.field(False)

    wandb: str | None = flags.field(None, requires=("do_train",))
    mlflow: str | None = flags.field(None, requires=("do_train",))

    # Whether each evaluation in eval_results.txt also has the best value of the key
    # metric so far. **As released:** true only in fine-tuning.
    log_best_metric = False
    # A run requires at least one of these flags.
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
        """The weights to start from; subclasses may have another flag for them."""
        return self.init_checkpoint

    @property
    def steps_between_evaluations(self) -> int:
        """Number of steps between evaluations."""
        return self.eval_every_steps or self.save_checkpoints_steps
