"""How a model answers raw text: once for Python, SavedModels and other runtimes."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.errors import InputError
from albert_tf.text import in_graph, inputs
from albert_tf.text.in_graph import GraphTokenizer
from albert_tf.text.tokenization import Tokenizer
from albert_tf.weights import metadata

TEXTS = tf.TensorSpec([None], tf.string)
# The memory that an answer needs grows with the windows that a model reads at once.
_WINDOWS_AT_ONCE = 32

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Answer:
    """A model with its way from texts to answers.

    A row holds texts by the names of `specs`: a string, or a list of strings where the
    spec has two dimensions.

    Attributes:
        model: whose weights answer.
        graph: what else they need, such as lookup tables; its `vocabulary` names the
            vocabulary.
        respond: takes the tensors of `specs` by name, and returns tensors by name; for
            a TensorFlow graph.
        specs: the inputs by name, strings [B] or [B, C], in the order of columns.
        describe: makes plain text, numbers, lists and dicts of the outputs of one row.
        complete: adds to an answer what its row is needed for.
        problem: returns why a row cannot be answered; None where it can.
        shorten: takes from a row what the model cannot read, so that very long texts
            are not tokenized.
        outputs: what `respond` needs of the model, for other runtimes; empty: all of
            its head.
    """

    model: keras.Model
    graph: tf.Module
    respond: Callable[..., Mapping[str, tf.Tensor]]
    specs: Mapping[str, tf.TensorSpec]
    describe: Callable[[Mapping[str, Any]], dict[str, Any]]
    complete: Callable[[Row, dict[str, Any]], dict[str, Any]] = lambda row, answer: (
        answer
    )
    problem: Callable[[Row], str | None] = lambda row: None
    shorten: Callable[[Row], Row] = lambda row: row
    outputs: tuple[str, ...] = ()


class TextInputs(tf.Module):
    """Turns texts, or pairs of them, into a model's inputs.

    Args:
        model: which reads them.
        tokenizer: the vocabulary.
        max_seq_length: most tokens of an input.
        beginnings: whether of each text the beginning alone is used.

    Raises:
        InputError: a vocabulary or length that the model cannot take.
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        max_seq_length: int,
        beginnings: bool = True,
    ):
        super().__init__()
        check_inputs(model, tokenizer, max_seq_length)
        inputs.encode(tokenizer, [], None, max_seq_length)  # refuses a short length
        self.vocabulary = metadata.identity_json(tokenizer)
        most = max_seq_length if beginnings else None
        self._tokenize = GraphTokenizer(tokenizer, most)
        self._max_seq_length = max_seq_length
        self._cls, self._sep = tokenizer.cls_id, tokenizer.sep_id
        self._pad = tokenizer.pad_id

    def __call__(
        self, first: tf.Tensor, second: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Returns `input_ids`, `input_mask`, `segment_ids` of strings [B]."""
        return self.from_ids(
            self._tokenize(first), None if second is None else self._tokenize(second)
        )

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of texts, int32 [B, None]."""
        return self._tokenize(texts)

    def from_ids(
        self, first: tf.RaggedTensor, second: tf.RaggedTensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Returns the same for ids, int32 [B, None]."""
        ids, first_lengths = in_graph.join(
            first, second, self._max_seq_length, self._cls, self._sep
        )
        return in_graph.pad(ids, first_lengths, self._pad)


def check_inputs(model: keras.Model, tokenizer: Tokenizer, max_seq_length: int) -> None:
    """Refuses ids or positions that a model does not have; warns of unused ids.

    Raises:
        InputError: see `AlbertConfig.check_vocabulary`; or a length above the model's
            positions.
    """
    path, size = tokenizer.path, tokenizer.vocab_size
    model.config.check_vocabulary(path, size, is_noted=False)
    longest = model.config.max_position_embeddings
    if max_seq_length > longest:
        raise InputError(
            f"--max_seq_length={max_seq_length}: expected at most {longest}, the "
            f"model's max_position_embeddings"
        )


def check_kind(model: keras.Model, kind: type[keras.Model]) -> None:
    """Refuses a model of another kind."""
    if not isinstance(model, kind):
        raise InputError(f"{type(model).__name__}: expected an {kind.__name__}")


def in_turn(
    score: Callable[..., Mapping[str, tf.Tensor]],
    inputs: Mapping[str, tf.Tensor],
    specs: Mapping[str, tf.TensorSpec],
) -> dict[str, tf.Tensor]:
    """Runs a model on any number of windows, in parts of like size.

    Args:
        score: what to do with each part.
        inputs: [W, T] each.
        specs: of what `score` returns.

    Returns:
        What `score` returns for all windows together.
    """
    count = tf.shape(inputs["input_ids"])[0]
    parts = tf.maximum((count + _WINDOWS_AT_ONCE - 1) // _WINDOWS_AT_ONCE, 1)
    size = (count + parts - 1) // parts
    split = {
        name: tf.reshape(
            tf.pad(x, [[0, parts * size - count], [0, 0]]),
            [parts, size, tf.shape(x)[1]],
        )
        for name, x in inputs.items()
    }
    scored = tf.map_fn(
        score, split, fn_output_signature=dict(specs), parallel_iterations=1
    )
    return {
        name: tf.reshape(x, tf.concat([[parts * size], tf.shape(x)[2:]], 0))[:count]
        for name, x in scored.items()
    }


def text_specs(pairs: bool) -> dict[str, tf.TensorSpec]:
    """Returns the specs of a text, or of a pair of texts."""
    return {"text_a": TEXTS, "text_b": TEXTS} if pairs else {"text": TEXTS}


def beginnings(
    tokenizer: Tokenizer, max_seq_length: int, *names: str
) -> Callable[[Row], Row]:
    """Returns an `Answer.shorten` that keeps the beginnings of the named texts."""

    def shorten(row: Row) -> Row:
        cut = {n: inputs.cut(tokenizer, row[n], max_seq_length) for n in names}
        return {**row, **cut}

    return shorten


def rounded(value: np.ndarray) -> Any:
    """Returns numbers with the digits that a float32 has, and no more."""
    return np.asarray(value).astype(str).astype(float).tolist()
