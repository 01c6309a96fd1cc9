"""What every kind has in common: text in, and answers or a folder out."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path

import keras
import tensorflow as tf

from albert_tf.errors import InputError
from albert_tf.serve import runtimes, saved_models
from albert_tf.text import in_graph, inputs
from albert_tf.text.in_graph import GraphTokenizer
from albert_tf.text.tokenization import Tokenizer
from albert_tf.weights import metadata

TEXTS = tf.TensorSpec([None], tf.string)


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
        saved_models.check_vocabulary(model, tokenizer)
        check_length(model, max_seq_length)
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
        return self.of_pieces(
            self._tokenize(first), None if second is None else self._tokenize(second)
        )

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of texts, int32 [B, None]."""
        return self._tokenize(texts)

    def of_pieces(
        self, first: tf.RaggedTensor, second: tf.RaggedTensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Returns the same for ids, int32 [B, None]."""
        ids, first_lengths = in_graph.join(
            first, second, self._max_seq_length, self._cls, self._sep
        )
        return in_graph.pad(ids, first_lengths, self._pad)


def check_length(model: keras.Model, max_seq_length: int) -> None:
    """Refuses a length above the model's positions."""
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


@dataclasses.dataclass(frozen=True)
class Service:
    """A model that answers raw text: called here, or saved for other programs.

    Attributes:
        model: whose weights it uses.
        graph: whatever else it uses; its `vocabulary` names the vocabulary.
        answer: takes the tensors of `specs` by name, and returns others by name.
        specs: its inputs by name.
    """

    model: keras.Model
    graph: tf.Module
    answer: Callable[..., Mapping[str, tf.Tensor]]
    specs: Mapping[str, tf.TensorSpec]

    @functools.cached_property
    def compiled(self) -> Callable[..., dict[str, tf.Tensor]]:
        """The same in one graph; takes the tensors of `specs` by name."""
        named = {n: tf.TensorSpec(s.shape, s.dtype, n) for n, s in self.specs.items()}

        @tf.function(autograph=False)
        def serve(**texts):
            return dict(self.answer(**texts))

        return serve.get_concrete_function(**named)

    def save(self, folder: str | Path) -> None:
        """Writes a SavedModel, whose one signature it is.

        Args:
            folder: is made; an older SavedModel there is replaced.

        Raises:
            InputError: the folder cannot be written, or another runtime computes the
                model.
        """
        if isinstance(self.model, runtimes.Computed):
            raise InputError(
                f"{folder}: not written, another runtime computes the model; expected "
                f"one without --runtime"
            )
        root = tf.train.Checkpoint()
        root.graph = self.graph
        saved_models.save(
            root,
            folder,
            model=self.model,
            signatures={"serving_default": self.compiled},
            assets={metadata.VOCABULARY: self.graph.vocabulary},
        )
