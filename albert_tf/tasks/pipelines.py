"""Base classes of pipelines: the way from raw text to a prediction in Python.

A pipeline makes model inputs from a row (`preprocess`), and the answer, a prediction in
JSON, from the outputs of the model (`postprocess`). A row has the texts of one example.
A pipeline does not hold the model, unlike in Hugging Face: `serve.predict` sorts the
inputs of many rows by length and runs them in TensorFlow, ONNX Runtime or LiteRT. This
module imports no runtime. `registry` has the pipeline of each task type.
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from albert_tf.errors import InputError
from albert_tf.model.config import AlbertConfig
from albert_tf.tasks.settings.base import TaskSettings
from albert_tf.tasks.settings.pipeline import PipelineSettings
from albert_tf.text import inputs as text_inputs
from albert_tf.text.tokenization import Tokenizer

# The values of `Pipeline.fields`: one text is required, a list of texts is required, or
# one text may be missing.
ONE_TEXT, TEXT_LIST, OPTIONAL_TEXT = False, True, None
# Default maximum number of tokens of an input, for a pretrained model.
_MAX_SEQ_LENGTH = 512
# The padding value of inputs other than `input_ids`, if it is not 0.
_PADDING = {"p_mask": 1}

# The texts of one example by field, see `Pipeline.fields`.
Row = Mapping[str, Any]
Arrays = Mapping[str, np.ndarray]
# A function that runs a model on a batch of int32 arrays by name; returns its outputs
# by name.
ModelFunction = Callable[[Arrays], Mapping[str, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Example:
    """An encoded row.

    Attributes:
        row: the row before encoding.
        inputs: one or more inputs of the model. Each has int32 arrays by name, without
            batch dimension and padding.
        context: a further value for `postprocess`, such as a number of removed tokens.
    """

    row: Row
    inputs: Sequence[Arrays]
    context: Any = None


class Pipeline(abc.ABC):
    """Encodes rows, and makes answers from model outputs, for one task type.

    Args:
        settings: the settings from `task.json`, completed with defaults; None for a
            pretrained model.
        config: the model's config.
        tokenizer: the model's tokenizer.
        options: prediction options.

    Raises:
        InputError: an option, the vocabulary or a length does not fit the model.

    Attributes:
        settings_class: the class of `settings`; None for a pretrained model.
        option_names: names of the prediction options (fields of `PipelineSettings`)
            that this task type has in addition to the options of all types.
        output_names: names of the model's outputs to compute; empty for all outputs of
            the head.
        fields: the keys of a row, in the order of the columns of an input file. The
            value of a key is `ONE_TEXT`, `TEXT_LIST` or `OPTIONAL_TEXT`.
        min_length: minimum number of tokens of an input, with padding.
    """

    settings_class: ClassVar[type[TaskSettings] | None] = None
    option_names: ClassVar[tuple[str, ...]] = ()
    output_names: tuple[str, ...] = ()
    fields: Mapping[str, bool | None]
    min_length: int = 1

    def __init__(
        self,
        settings: Any,
        config: AlbertConfig,
        tokenizer: Tokenizer,
        options: PipelineSettings,
    ):
        self.config = config
        self.tokenizer = tokenizer
        # The option has priority, then the settings, then the default.
        limit = min(_MAX_SEQ_LENGTH, config.max_position_embeddings)
        if settings is not None:
            limit = settings.max_seq_length
        if options.max_seq_length is not None:
            limit = options.max_seq_length
        check_inputs(config, tokenizer, limit)
        self.max_seq_length = limit
        self.settings = settings and dataclasses.replace(settings, max_seq_length=limit)

    @abc.abstractmethod
    def preprocess(self, row: Row) -> Example:
        """Encodes a row.

        Raises:
            InputError: there is nothing to predict, as in a text without [MASK].
        """

    def select(self, inputs: Arrays, outputs: Arrays) -> Any:
        """Selects the values for `postprocess` from the outputs of one input.

        Args:
            inputs: one of the example's inputs.
            outputs: the model's outputs for this input by name, without batch
                dimension. They also have values for the input's padding.
        """
        return outputs

    @abc.abstractmethod
    def postprocess(self, example: Example, outputs: Sequence[Any]) -> dict[str, Any]:
        """Makes the answer to a row, a dict of JSON values.

        Args:
            example: the result of `preprocess`.
            outputs: the result of `select` for each of the example's inputs.
        """

    def forward(self, inputs: Sequence[Arrays], call: ModelFunction) -> list[Any]:
        """Calls the model on a batch of inputs; returns the results of `select`."""
        outputs = call(pad(inputs, self.tokenizer.pad_id, self.min_length))
        return [
            self.select(arrays, {name: value[row] for name, value in outputs.items()})
            for row, arrays in enumerate(inputs)
        ]

    def join(self, text: str, second_text: str = "") -> dict[str, np.ndarray]:
        """Returns the model's inputs for a text or a pair of texts, int32 [T] each.

        T is the number of tokens, at most `max_seq_length`.
        """
        limit = self.max_seq_length
        pair = text_inputs.encode(self.tokenizer, [text], [second_text], limit)
        # The only row gets no padding, so `pad_id` has no effect.
        batch = text_inputs.pad(pair, rows=[0], length=len(pair.ids), pad_id=0)
        return {name: value[0] for name, value in batch.items()}


class FineTunedPipeline(Pipeline):
    """Base of pipelines that make scores first, and then the answer from the scores.

    The answer can also be made from the mean of the scores of several models.
    """

    @abc.abstractmethod
    def score(self, example: Example, outputs: Sequence[Any]) -> Any:
        """Returns the scores that determine the answer; scores support `+` and `/`.

        Args:
            example: the result of `preprocess`.
            outputs: the result of `select` for each of the example's inputs.
        """

    @abc.abstractmethod
    def decide(self, row: Row, scores: Any) -> dict[str, Any]:
        """Makes the answer, a dict of JSON values, from the scores.

        Args:
            row: the row before encoding.
            scores: the result of `score`, or the mean of the results of several models.
        """

    def postprocess(self, example: Example, outputs: Sequence[Any]) -> dict[str, Any]:
        """Makes the answer from the scores of one model."""
        return self.decide(example.row, self.score(example, outputs))


def single_segment(ids: Sequence[int]) -> dict[str, np.ndarray]:
    """Returns the model's inputs for ids, all in segment 0 and without padding."""
    array = np.array(ids, np.int32)
    ones, zeros = np.ones_like(array), np.zeros_like(array)
    return {"input_ids": array, "input_mask": ones, "segment_ids": zeros}


def pad(batch: Sequence[Arrays], pad_id: int, min_length: int = 1) -> dict[str, Any]:
    """Makes a batch: pads the inputs' arrays of each name to one shape and stacks them.

    The last dimension is at least `min_length`.
    """
    padded = {}
    for name in batch[0]:
        arrays = [each[name] for each in batch]
        shape = np.max([array.shape for array in arrays], axis=0)
        shape[-1] = max(shape[-1], min_length)
        filler = pad_id if name == "input_ids" else _PADDING.get(name, 0)
        padded[name] = np.full((len(batch), *shape), filler, np.int32)
        for row, array in zip(padded[name], arrays, strict=True):
            # The array fills the beginning of each dimension of the row.
            row[tuple(map(slice, array.shape))] = array
    return padded


def check_inputs(config: AlbertConfig, tokenizer: Tokenizer, length: int) -> None:
    """Checks that a model fits a vocabulary and a maximum length of inputs.

    If the vocabulary is much smaller than the model's, the function logs a warning.

    Args:
        config: the model's config.
        tokenizer: the tokenizer with the vocabulary.
        length: maximum number of tokens of an input.

    Raises:
        InputError: the vocabulary has more tokens than the model, or the length exceeds
            the model's number of positions or is too short for a text.
    """
    config.check_vocabulary(tokenizer.path, tokenizer.vocab_size)
    longest = config.max_position_embeddings
    if length > longest:
        raise InputError(
            f"--max_seq_length={length}: must be at most {longest}, the model's "
            f"max_position_embeddings"
        )
    text_inputs.join(tokenizer, [], length)  # raises if `length` is too short


def check_labels(labels: Sequence[str], count: int) -> None:
    """Checks that there are as many labels as outputs of a model.

    Raises:
        InputError: the number of labels is not `count`, the number of outputs.
    """
    if len(labels) != count:
        raise InputError(
            f"{len(labels)} labels ({', '.join(labels)}); expected {count}, one for "
            f"each output of the model"
        )


def round_floats(value: Any) -> Any:
    """Returns Python floats that print as short as float32: 0.1, not 0.10000000149."""
    return np.asarray(value, np.float32).astype(str).astype(float).tolist()


def softmax(logits: np.ndarray) -> np.ndarray:
    """Returns the softmax of logits along the last axis."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)
