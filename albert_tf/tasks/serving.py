"""Functions that answer raw text in a TensorFlow graph, for SavedModels."""

import dataclasses
from collections.abc import Callable, Mapping

import keras
import tensorflow as tf

from albert_tf.errors import InputError
from albert_tf.tasks.pipelines import check_inputs
from albert_tf.text import in_graph
from albert_tf.text.in_graph import GraphTokenizer
from albert_tf.text.tokenization import Tokenizer
from albert_tf.weights import metadata

TEXTS = tf.TensorSpec([None], tf.string)
# Maximum number of windows of a chunk, which limits memory.
_MAX_CHUNK = 32


@dataclasses.dataclass(frozen=True)
class ServingFunction:
    """A model with a function that answers texts, see `serve.saved_models.export`.

    Attributes:
        model: the model.
        graph: the module with the resources of `answer`, such as lookup tables. Its
            attribute `vocabulary` identifies the vocabulary.
        answer: takes the tensors of `specs` by name, and returns tensors by name.
        specs: specs of the inputs by name, string [B] or [B, C], in the order of the
            columns of a table.
    """

    model: keras.Model
    graph: tf.Module
    answer: Callable[..., Mapping[str, tf.Tensor]]
    specs: Mapping[str, tf.TensorSpec]

    def compile(self) -> Callable[..., dict[str, tf.Tensor]]:
        """Returns `answer` as a concrete function of tensors by name."""

        @tf.function(autograph=False)
        def serve(**texts):
            return dict(self.answer(**texts))

        return serve.get_concrete_function(**self.specs)


class TextInputs(tf.Module):
    """Encodes texts or pairs of texts as model inputs.

    Args:
        model: the model.
        tokenizer: the vocabulary.
        max_seq_length: maximum number of tokens of an input.
        truncate: whether to truncate texts before they are tokenized.
        with_offsets: whether `tokenize.encode_with_offsets` can be used.

    Attributes:
        tokenize: returns the ids of texts, int32 [B, None].

    Raises:
        InputError: the vocabulary or the length does not fit the model.
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        max_seq_length: int,
        truncate: bool = True,
        with_offsets: bool = False,
    ):
        super().__init__()
        check_inputs(model.config, tokenizer, max_seq_length)
        self.vocabulary = metadata.to_json(metadata.identify(tokenizer))
        max_tokens = max_seq_length if truncate else None
        self.tokenize = GraphTokenizer(tokenizer, max_tokens, with_offsets=with_offsets)
        self._max_seq_length = max_seq_length
        self._special_ids = tokenizer.cls_id, tokenizer.sep_id
        self._pad_id = tokenizer.pad_id

    def __call__(
        self, first: tf.Tensor, second: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Encodes a batch of texts or pairs.

        Args:
            first: string [B], the texts.
            second: string [B], the second text of each pair; None for single texts.

        Returns:
            `input_ids`, `input_mask` and `segment_ids`, int32 [B, T] each.
        """
        tokens = self.tokenize(first)
        second_tokens = None if second is None else self.tokenize(second)
        ids, first_lengths = in_graph.join(
            tokens, second_tokens, self._max_seq_length, *self._special_ids
        )
        return in_graph.pad(ids, first_lengths, self._pad_id)


def assemble_segments(
    tokenizer: Tokenizer, *segments: in_graph.Part
) -> tf.RaggedTensor:
    """Returns `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]` for each row, int32 [B, None].

    Args:
        tokenizer: the vocabulary.
        *segments: the tokens of one or two segments, see `in_graph.assemble`.
    """
    _, _, lengths = segments[0]
    ones = tf.ones_like(lengths)  # each row has one token
    separator = in_graph.make_id_part(tokenizer.sep_id, ones)
    parts = [in_graph.make_id_part(tokenizer.cls_id, ones)]
    for segment in segments:
        parts += [segment, separator]
    return in_graph.assemble(parts)


def check_class(model: keras.Model, *classes: type[keras.Model]) -> None:
    """Checks the class of a model.

    Raises:
        InputError: the model has another class.
    """
    if not isinstance(model, classes):
        names = " or ".join(each.__name__ for each in classes)
        raise InputError(f"{type(model).__name__}: must be an {names}")


def map_in_chunks(
    score: Callable[..., Mapping[str, tf.Tensor]],
    inputs: Mapping[str, tf.Tensor],
    specs: Mapping[str, tf.TensorSpec],
) -> dict[str, tf.Tensor]:
    """Runs a model on any number of windows, in chunks of equal size.

    The last chunk is filled with zeros; their results are dropped.

    Args:
        score: runs the model on the inputs of one chunk.
        inputs: model inputs by name, [W, T].
        specs: the specs of the results of `score`.

    Returns:
        The concatenated results of `score`.
    """
    count = tf.shape(inputs["input_ids"])[0]
    parts = tf.maximum((count + _MAX_CHUNK - 1) // _MAX_CHUNK, 1)
    size = (count + parts - 1) // parts
    chunks = {
        name: tf.reshape(
            tf.pad(x, [[0, parts * size - count], [0, 0]]),
            [parts, size, tf.shape(x)[1]],
        )
        for name, x in inputs.items()
    }
    results = tf.map_fn(
        score, chunks, fn_output_signature=dict(specs), parallel_iterations=1
    )
    return {
        name: tf.reshape(x, tf.concat([[parts * size], tf.shape(x)[2:]], 0))[:count]
        for name, x in results.items()
    }


def text_specs(pairs: bool) -> dict[str, tf.TensorSpec]:
    """Returns the specs of a text, or of a pair of texts."""
    return {"text_a": TEXTS, "text_b": TEXTS} if pairs else {"text": TEXTS}
