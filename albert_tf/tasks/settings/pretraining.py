"""The settings of pretraining, beside those of training."""

import dataclasses
from typing import Literal

from albert_tf import flags
from albert_tf.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingSettings:
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
    )
    max_seq_length: int | None = flags.field(
        "Tokens of a record; by default as in the records.", None
    )
    max_predictions_per_seq: int | None = flags.field(
        "Most predictions of a record; by default as in the records, or with "
        "--dynamic_masking by --masked_lm_prob.",
        None,
    )
    objective: Literal["sop", "nsp", "none"] | None = flags.field(
        "The sentence loss: order, next sentence, or none beside the masked LM; by "
        "default what the records were made for.",
        None,
    )
    dynamic_masking: bool = flags.field(
        "Mask anew in every epoch, and redraw the sentence order.", False
    )
    masked_lm_prob: float = flags.field(
        "With --dynamic_masking: share of tokens to predict.", 0.15
    )
    ngram: int = flags.field("With --dynamic_masking: most words in a masked span.", 3)
    output_bias_from_data: bool = flags.field(
        "Start the masked LM's output bias at the log frequencies of the pieces: short "
        "runs learn sooner. Not as released.",
        False,
    )
    parameter_sharing: Literal["all", "attention", "ffn", "none"] | None = flags.field(
        "What layers share (paper, table 4); by default as the model's file says.", None
    )
    recompute: Literal["none", "block"] | None = flags.field(
        "block keeps only each block's input for the backward pass; by default as the "
        "model's file says.",
        None,
    )
    masked_lm_budget: float = flags.field(
        "Read by nothing in the released code: refused unless 0.", 0.0
    )

    def __post_init__(self) -> None:
        if self.masked_lm_budget:
            raise InputError(
                f"--masked_lm_budget={self.masked_lm_budget}: the released code reads "
                f"it nowhere; use --dynamic_masking and --masked_lm_prob"
            )
        if not 0 < self.masked_lm_prob < 1:
            raise InputError(
                f"--masked_lm_prob={self.masked_lm_prob}: expected a number in (0, 1)"
            )
        for name in ("masked_lm_prob", "ngram"):
            default = type(self).__dataclass_fields__[name].default
            if getattr(self, name) != default and not self.dynamic_masking:
                raise InputError(
                    f"--{name}={getattr(self, name)}: expected --dynamic_masking with "
                    f"it; the records are masked already"
                )
        for name in ("max_seq_length", "max_predictions_per_seq", "ngram"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"--{name}={value}: expected at least 1")
