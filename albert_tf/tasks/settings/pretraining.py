"""The settings of pretraining, beside those of training."""

import dataclasses
from typing import Literal

from albert_tf import flags
from albert_tf.errors import InputError
from albert_tf.tasks.settings.training import TrainingSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingSettings(flags.Settings):
    """What to pretrain, on what.

    Raises:
        InputError: a value is out of range, or is read by nothing.
    """

    albert_config_file: str = flags.field(
        "The model: an albert_config.json, or a published name (albert_base_v2 ...)."
    )
    input_file: tuple[str, ...] = flags.field(
        "Records to train on: TFRecord files or patterns, comma-separated."
    )
    eval_input_file: tuple[str, ...] = flags.field(
        "Records to evaluate on, likewise; with --do_eval alone those of --input_file, "
        "as released.",
        (),
        resume="free",
    )
    max_seq_length: int | None = flags.field(
        "Tokens of a record; by default as in the records.", None, at_least=1
    )
    max_predictions_per_seq: int | None = flags.field(
        "Most predictions of a record; by default as in the records, or with "
        "--dynamic_masking by --masked_lm_prob.",
        None,
        at_least=1,
    )
    objective: Literal["sop", "nsp", "none"] | None = flags.field(
        "The sentence loss: order, next sentence, or none beside the masked LM; by "
        "default what the records were made for.",
        None,
    )
    sentence_loss_weight: float = flags.field(
        "What the sentence loss counts for beside that of masked LM: with more, short "
        "runs learn the order sooner. As released, 1.",
        1.0,
        above=0,
    )
    causal_lm: bool = flags.field(
        "Predict every token from those before it alone, in place of masked ones: a "
        "first stage of short runs, with --objective=none. Not as released.",
        False,
        instead_of=(
            *("dynamic_masking", "masked_lm_prob", "max_predictions_per_seq"),
            *("mask_replace_prob", "random_replace_prob", "ngram"),
        ),
        resume="refused",
    )
    dynamic_masking: bool = flags.field(
        "Mask anew in every epoch, and redraw the sentence order.",
        False,
        instead_of=("causal_lm",),
    )
    masked_lm_prob: float = flags.field(
        "With --dynamic_masking: share of tokens to predict.",
        0.15,
        above=0,
        below=1,
        needs=("dynamic_masking",),
    )
    mask_replace_prob: float = flags.field(
        "With --dynamic_masking: share of the predicted tokens that become [MASK].",
        0.8,
        at_least=0,
        at_most=1,
        needs=("dynamic_masking",),
    )
    random_replace_prob: float = flags.field(
        "With --dynamic_masking: share of the predicted tokens that become a random "
        "token; those that neither share takes stay as they are.",
        0.1,
        at_least=0,
        at_most=1,
        needs=("dynamic_masking",),
    )
    ngram: int = flags.field(
        "With --dynamic_masking: most words in a masked span.",
        3,
        at_least=1,
        needs=("dynamic_masking",),
    )
    group_by_length: bool = flags.field(
        "Make batches of records of like length and cut their padding: faster where "
        "many are short.",
        False,
    )
    output_bias_from_data: bool = flags.field(
        "Start the masked LM's output bias at the log frequencies of the tokens: short "
        "runs learn sooner. Not as released.",
        False,
        resume="free",
    )
    word_vectors_from_data: bool = flags.field(
        "Start the word table from which tokens stand beside which in the records, for "
        "short runs. Not as released.",
        False,
        resume="free",
    )
    attend_nearby: bool = flags.field(
        "Start with attention that looks at near positions and like tokens, for short "
        "runs. Not as released.",
        False,
        resume="free",
    )
    parameter_sharing: Literal["all", "attention", "ffn", "none"] | None = flags.field(
        "What layers share (paper, table 4); by default as the model's file says.",
        None,
        resume="refused",
    )
    recompute: Literal["none", "block"] | None = flags.field(
        "block keeps only each block's input for the backward pass; by default as the "
        "model's file says.",
        None,
        resume="free",
    )
    masked_lm_budget: float = flags.field(
        "Read by nothing in the released code: refused unless 0.", 0.0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.masked_lm_budget:
            raise InputError(
                f"--masked_lm_budget={self.masked_lm_budget}: the released code reads "
                f"it nowhere; use --dynamic_masking and --masked_lm_prob"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingRunSettings(TrainingSettings):
    """How to pretrain.

    Raises:
        InputError: see `TrainingSettings`.
    """

    train_minutes: float | None = flags.field(
        "Minutes of training from the first step on, evaluations and saves included, "
        "at the end of which the rate is 0, whatever the machine's speed.",
        None,
        above=0,
        instead_of=("num_train_steps",),
    )
