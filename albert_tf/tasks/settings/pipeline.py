"""The settings of predictions on raw text.

The first line of a settings class's docstring is a heading in `--help`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal

from albert_tf import flags
from albert_tf.errors import InputError

# Options that every task type takes.
_COMMON = ("task", "max_seq_length", "batch_size", "runtime")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PipelineSettings(flags.Settings):
    """Task and prediction.

    The value None means the default of the task type.

    Args:
        task: Task type. fill_mask, score, sentence_order and embedding work for any
            model. classification, multi_label, regression, token_classification,
            question_answering and multiple_choice are types of fine-tuned models.
            Default: the type that the model's folder names. If the folder names none,
            this flag is required.
        labels: Labels of the outputs in their order, for classification, multi_label
            and token_classification. Default: the model's labels.
        max_seq_length: Maximum number of tokens per input. Default: the value stored
            with the model, otherwise 512 (question_answering: 384), but at most the
            longest input of the model.
        batch_size: Number of texts per batch.
        runtime: Runtime of the model: TensorFlow, ONNX Runtime or LiteRT; the last two
            run on the CPU in float32. auto: ONNX Runtime if it is installed, there is
            no GPU, and the texts fill more than one batch; otherwise TensorFlow.
        top_k: Maximum number of results. fill_mask: tokens per masked position (default
            5). question_answering: answers (default: only the best one).
            classification: labels (default: all).
        targets: fill_mask: list only these words; each must be one token.
        threshold: Decision threshold. classification with two labels: minimum
            probability at which the second label is predicted. multi_label: minimum
            probability at which a label is predicted (default 0.5). question_answering:
            null odds above which the answer is empty.
        layer: embedding: layer to use, counted from 1, or -1 for the last (default).
            Not with --pooling=pooled.
        pooling: embedding: mean of the token states (mean, the default), state of the
            first token (first) or output of the pooler (pooled).

    Raises:
        InputError: a value is out of range.
    """

    task: str | None = flags.field(None)
    labels: tuple[str, ...] | None = flags.field(None)
    max_seq_length: int | None = flags.field(None)
    batch_size: int = flags.field(32, at_least=1)
    runtime: Literal["auto", "tensorflow", "onnx", "litert"] = flags.field("auto")
    top_k: int | None = flags.field(None, at_least=1)
    targets: tuple[str, ...] | None = flags.field(None)
    threshold: float | None = flags.field(None)
    layer: int | None = flags.field(None)
    pooling: Literal["mean", "first", "pooled"] | None = flags.field(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pooling == "pooled" and self.layer is not None:
            raise InputError(
                f"--layer={self.layer}: requires --pooling=mean or first; the "
                f"pooler's output is of the last layer"
            )

    def check_for(self, kind: str, options: Sequence[str]) -> None:
        """Checks that no option of another task type has a value.

        Args:
            kind: the task type.
            options: names of the options of this task type, without the common ones.

        Raises:
            InputError: an option of another task type has a value.
        """
        for name, value in flags.values(self).items():
            if value is not None and name not in (*_COMMON, *options):
                # The message leaves out `task`, the first name in `_COMMON`, because
                # the user has set the task type with it.
                names = ", --".join((*_COMMON[1:], *options))
                raise InputError(f"--{name}={value}: {kind} only takes --{names}")
