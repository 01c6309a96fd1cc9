"""The settings of pretraining.

The first line of a settings class's docstring is a heading in `--help`.
"""

import dataclasses
from typing import Literal

from albert_tf import flags
from albert_tf.corpus.config import MaskingSettings
from albert_tf.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingSettings(MaskingSettings):
    """Model, data and objective.

    Args:
        albert_config_file: Model: an albert_config.json, or a published name such as
            albert_base_v2.
        input_file: TFRecord files or patterns to train on, comma-separated.
        eval_input_file: TFRecord files or patterns to evaluate on, comma-separated.
            Default: --input_file, if --do_eval is given.
        max_seq_length: Number of tokens per record. Default: read from the records.
        max_predictions_per_seq: Maximum number of predictions per record. Default: read
            from the records; with --dynamic_masking, computed from --masked_lm_prob.
        objective: Sentence-level objective: sop (sentence order), nsp (next sentence)
            or none. Default: the objective of the records.
        dynamic_masking: Draw new masks in every epoch and, with the objective sop, a
            new sentence order.
        output_bias_from_data: Initialize the masked LM's output bias with the log
            frequencies of the tokens, so that short runs learn sooner. New in this
            package.
        parameter_sharing: Parameters that the layers share (table 4 of the paper).
            Default: the value in the model's config.
        recompute: What to compute again in the backward pass, to save memory. block:
            everything except the inputs of the blocks. none: nothing. Default: the
            value in the model's config.
        masked_lm_budget: Unused; kept for compatibility.

    Raises:
        InputError: a value is out of range, or has no effect.
    """

    albert_config_file: str = flags.field()
    input_file: tuple[str, ...] = flags.field()
    eval_input_file: tuple[str, ...] = flags.field(())
    max_seq_length: int | None = flags.field(None, at_least=1)
    max_predictions_per_seq: int | None = flags.field(None, at_least=1)
    objective: Literal["sop", "nsp", "none"] | None = flags.field(None)
    dynamic_masking: bool = flags.field(False)
    output_bias_from_data: bool = flags.field(False)
    parameter_sharing: Literal["all", "attention", "ffn", "none"] | None = flags.field(
        None
    )
    recompute: Literal["none", "block"] | None = flags.field(None)
    masked_lm_budget: float = flags.field(0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        # Without --dynamic_masking, the records have the masks. Then the only masking
        # setting with an effect is `max_predictions_per_seq`.
        for item in flags.fields(MaskingSettings):
            value = getattr(self, item.name)
            has_effect = item.name == "max_predictions_per_seq"
            if value != item.default and not (self.dynamic_masking or has_effect):
                raise InputError(f"--{item.name}={value}: requires --dynamic_masking")
