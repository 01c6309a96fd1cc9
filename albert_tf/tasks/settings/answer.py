"""The settings of an answer to raw text."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from albert_tf import flags
from albert_tf.errors import InputError

# All other options are for some kinds of task only.
_FOR_EVERY_KIND = ("task", "max_seq_length", "batch_size", "runtime")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerSettings(flags.Settings):
    """How to answer.

    None stands for what the kind of task takes by default.

    Raises:
        InputError: a value is out of range.
    """

    task: str | None = flags.field(
        "fill_mask, score, sentence_order or embedding, for any model; by default what "
        "the folder of --model was fine-tuned for. If the folder does not say, also "
        "classification, multi_label, regression, token_classification, "
        "question_answering or multiple_choice.",
        None,
    )
    labels: tuple[str, ...] | None = flags.field(
        "classification, multi_label, token_classification: the labels of the model's "
        "outputs, in their order; by default those of its folder.",
        None,
    )
    max_seq_length: int | None = flags.field(
        "Most tokens of an input; by default as in training, or as the model can take.",
        None,
    )
    batch_size: int = flags.field("Texts that are answered at once.", 32, at_least=1)
    runtime: Literal["auto", "tensorflow", "onnx", "litert"] = flags.field(
        "What computes the model: TensorFlow, or ONNX Runtime or LiteRT on the CPU and "
        "in float32. By default predict.py takes ONNX Runtime if it is installed, "
        "there is no GPU, and the texts are more than one batch; else TensorFlow.",
        "auto",
    )
    top_k: int | None = flags.field(
        "How many to list: fill_mask, tokens for each gap, by default 5; question "
        "answering, answers; classification, labels, by default all.",
        None,
        at_least=1,
    )
    targets: tuple[str, ...] | None = flags.field(
        "fill_mask: the only words to list, each a token of the vocabulary.", None
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

    def check_for(
        self,
        kind: str,
        own: Sequence[str],
        options: Callable[[], Iterable[tuple[str, Sequence[str]]]],
    ) -> None:
        """Refuses an option that a kind of task does not have.

        Args:
            kind: of the task.
            own: names of the options that it has.
            options: returns those of every kind, for the message.

        Raises:
            InputError: an option of another kind is given.
        """
        for field in dataclasses.fields(self):
            name, value = field.name, getattr(self, field.name)
            if value is not None and name not in (*_FOR_EVERY_KIND, *own):
                kinds = ", ".join(k for k, names in options() if name in names)
                raise InputError(
                    f"--{name}={value}: only for {kinds}; the task is {kind}"
                )
