"""The settings of `predict.py`."""

import dataclasses
from typing import Literal

from albert_tf import flags
from albert_tf.errors import InputError
from albert_tf.weights.settings import CheckpointSettings, ModelFileSettings

# The options that not every kind of task has.
_KINDS_OF_OPTION = {
    "top_k": ("fill_mask",),
    "threshold": ("classification", "multi_label", "question_answering"),
    "layer": ("embedding",),
    "pooling": ("embedding",),
    # Other runtimes have no output for every layer.
    "runtime": (
        *("classification", "multi_label", "regression", "multiple_choice"),
        *("question_answering", "fill_mask", "sentence_order"),
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerSettings(flags.Settings):
    """How to answer.

    None stands for what the kind of task takes by default.

    Raises:
        InputError: a value is out of range.
    """

    task: str | None = flags.field(
        "fill_mask, sentence_order or embedding, for any model; by default what the "
        "folder of --model was fine-tuned for.",
        None,
    )
    max_seq_length: int | None = flags.field(
        "Most tokens of an input; by default as in training, or as the model can take.",
        None,
    )
    batch_size: int = flags.field("Texts that are answered at once.", 32, at_least=1)
    runtime: Literal["onnx", "litert"] | None = flags.field(
        "Compute the model in ONNX Runtime or LiteRT, on the CPU and in float32, where "
        "ONNX Runtime is most often faster; by default in TensorFlow. Not for "
        "embedding.",
        None,
    )
    top_k: int | None = flags.field(
        "fill_mask: pieces to list for each gap, by default 5.", None, at_least=1
    )
    threshold: float | None = flags.field(
        "classification: probability from which on the second of two labels, or each "
        "of several, is chosen; question_answering: null odds above which there is no "
        "answer.",
        None,
    )
    layer: int | None = flags.field(
        "embedding: layer from 1 on, by default -1, the last; pooled is of the last.",
        None,
    )
    pooling: Literal["mean", "first", "pooled"] | None = flags.field(
        "embedding: mean of the tokens (the default), the first token, or the pooler's "
        "output.",
        None,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pooling == "pooled" and self.layer is not None:
            raise InputError(
                f"--layer={self.layer}: expected --pooling=mean or first with it; the "
                f"pooler's output is of the last layer"
            )

    def check_for(self, kind: str) -> None:
        """Refuses what a kind of task does not know.

        Raises:
            InputError: an option of another kind is given.
        """
        for name, kinds in _KINDS_OF_OPTION.items():
            value = getattr(self, name)
            if value is not None and kind not in kinds:
                raise InputError(
                    f"--{name}={value}: only for {', '.join(kinds)}; the task is {kind}"
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictSettings(CheckpointSettings, ModelFileSettings):
    """Which model, and where texts come from."""

    model: str = flags.field(
        "Folder of a fine-tuning run, or weights of any format that "
        "convert_checkpoint.py reads."
    )
    input_file: str | None = flags.field(
        "Texts, one row a line; columns between tabs, or JSON lines (.jsonl, .json). "
        "By default the arguments, or else standard input.",
        None,
    )
    input_format: Literal["auto", "text", "json"] = flags.field(
        "Format of the input; auto goes by the file's name.", "auto"
    )
    output_file: str | None = flags.field(
        "Answers, as JSON lines; by default standard output.", None
    )
