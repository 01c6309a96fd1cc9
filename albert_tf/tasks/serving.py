"""Functions that predict from raw text in a TensorFlow graph, for SavedModels."""

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

# A batch of texts: string [B].
TEXTS = tf.TensorSpec([None], tf.string)
# Maximum number of model inputs that `map_in_chunks` runs at a time, to limit memory.
_MAX_CHUNK = 32


@dataclasses.dataclass(frozen=True)
class ServingFunction:
    """A model with a function that predicts from texts.

    See `serve.saved_models.export`.

    Attributes:
        model: the model.
        graph: the module with the resources of `answer`, such as lookup tables. Its
            attribute `vocabulary` identifies the vocabulary.
        answer: takes the tensors of `specs` by name, and returns tensors by name.
        specs: specs of the inputs by name: string [B] for B rows, or [B, C] for C
            choices per row. They have the order of `Pipeline.fields`, which is the
            order of the columns of an input file.
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
        tokenizer: the model's tokenizer.
        max_seq_length: maximum number of tokens of an input.
        truncate: whether to cut long texts before they are tokenized. This saves time
            for tasks that drop the rest of a long text. Tasks that divide long texts
            into windows, or that keep their last tokens, need False.
        with_offsets: whether `tokenize.encode_with_offsets` can be used.

    Attributes:
        tokenize: returns the ids of texts, ragged int32 [B, None].
        vocabulary: identifies the vocabulary, see `ServingFunction`.

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
            `input_ids`, `input_mask` and `segment_ids`, int32 [B, T] each. T is the
            number of tokens of the longest input.
        """
        tokens = self.tokenize(first)
        second_tokens = None if second is None else self.tokenize(second)
        ids, first_lengths = in_graph.join(
            tokens, second_tokens, self._max_seq_length, *self._special_ids
        )
        return in_graph.pad(ids, first_lengths, self._pad_id)


def assemble_segments(
    tokenizer: Tokenizer, *segments: in_graph.Slices
) -> tf.RaggedTensor:
    """Returns `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]` for each row, int32 [B, None].

    Args:
        tokenizer: the tokenizer, for the ids of [CLS] and [SEP].
        *segments: the tokens of one or two segments. Each is a tuple: N token ids,
            int32 [N], and the start and the length of each row in these ids, int64 [B]
            each.
    """
    _, _, lengths = segments[0]
    counts = tf.ones_like(lengths)  # each row has one [CLS], and one [SEP] per segment
    separator = in_graph.make_id_part(tokenizer.sep_id, counts)
    parts = [in_graph.make_id_part(tokenizer.cls_id, counts)]
    for segment in segments:
        parts += [segment, separator]
    return in_graph.assemble(parts)


def check_class(model: keras.Model, *classes: type[keras.Model]) -> None:
    """Checks that a model is an object of one of the classes.

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

    A window is a model input with a part of a long text. The last chunk is filled with
    zeros; the results for these zeros are dropped.

    Args:
        score: runs the model on the inputs of one chunk.
        inputs: the model inputs of W windows by name, [W, T] each.
        specs: the specs of the results of `score` by name.

    Returns:
        The results of `score` by name, concatenated: [W, ...] each.
    """
    # Both divisions round up. There is always a chunk, which may be empty, because the
    # second division must not be by 0.
    count = tf.shape(inputs["input_ids"])[0]
    num_chunks = tf.maximum((count + _MAX_CHUNK - 1) // _MAX_CHUNK, 1)
    size = (count + num_chunks - 1) // num_chunks
    chunks = {}
    for name, array in inputs.items():
        padded = tf.pad(array, [[0, num_chunks * size - count], [0, 0]])
        chunks[name] = tf.reshape(padded, [num_chunks, size, tf.shape(array)[1]])
    results = tf.map_fn(
        score, chunks, fn_output_signature=dict(specs), parallel_iterations=1
    )
    merged = {}
    for name, array in results.items():
        shape = tf.concat([[num_chunks * size], tf.shape(array)[2:]], axis=0)
        merged[name] = tf.reshape(array, shape)[:count]
    return merged


def text_specs(pairs: bool) -> dict[str, tf.TensorSpec]:
    """Returns the specs of the inputs for texts, or for pairs of texts, by name."""
    return {"text_a": TEXTS, "text_b": TEXTS} if pairs else {"text": TEXTS}
