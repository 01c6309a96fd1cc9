"""The settings of pretraining, beside those of training."""

import dataclasses
from typing import Literal

from albert_tf import flags
from albert_tf.corpus.config import MaskingSettings
from albert_tf.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingSettings(MaskingSettings):
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
    dynamic_masking: bool = flags.field(
        "Mask anew in every epoch, by the flags of masking, and redraw the sentence "
        "order.",
        False,
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
    )
    parameter_sharing: Literal["all", "attention", "ffn", "none"] | None = flags.field(
        "What layers share (paper, table 4); by default as the model's file says.",
        None,
    )
    recompute: Literal["none", "block"] | None = flags.field(
        "block keeps only each block's input for the backward pass; by default as the "
        "model's file says.",
        None,
    )
    masked_lm_budget: float = flags.field("Has no effect, as released.", 0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        # The records decide without --dynamic_masking.
        for item in flags.fields(MaskingSettings):
            value = getattr(self, item.name)
            is_of_records = item.name == "max_predictions_per_seq"
            if value != item.default and not (self.dynamic_masking or is_of_records):
                raise InputError(
                    f"--{item.name}={value}: expected --dynamic_masking with it"
                )
