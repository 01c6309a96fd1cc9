"""What any pretrained model answers: gaps, scores, the order of sentences, embeddings.

Beside the functions for graphs there is a class for each kind, with what
`base.FineTuningTask` has for answers of fine-tuned models.
"""

import abc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import keras
import tensorflow as tf

from albert_tf.errors import InputError
from albert_tf.model import models
from albert_tf.model.config import AlbertConfig
from albert_tf.tasks import row_answers
from albert_tf.tasks.answer import Answer, TextInputs, check_kind, text_specs
from albert_tf.tasks.row_answers import beginnings, rounded
from albert_tf.tasks.settings.answer import AnswerSettings
from albert_tf.text import in_graph
from albert_tf.text.inputs import MASK
from albert_tf.text.tokenization import WORD_MARK, Tokenizer

# Tokens of copies of texts, one copy for each token, that are scored at once.
_TOKENS_AT_ONCE = 8192


class Pretrained(abc.ABC):
    """A kind of answer that needs no fine-tuning.

    Args:
        config: the model's.
        tokenizer: its vocabulary.

    Attributes:
        kinds: its name.
        options: see `options_of`; of no account where `row_answers` has the kind.
        parts: of the model, to load.
    """

    kinds: ClassVar[tuple[str, ...]]
    options: ClassVar[tuple[str, ...]] = ()
    parts: ClassVar[tuple[str, ...]]

    def __init__(self, config: AlbertConfig, tokenizer: Tokenizer):
        self.config = config
        self.tokenizer = tokenizer

    @classmethod
    def from_stored(
        cls,
        task: Mapping[str, Any],
        config: AlbertConfig,
        tokenizer: Tokenizer,
        place: str | Path = "task.json",
    ) -> Self:
        """Makes the task of any model, whatever its `task.json` says."""
        return cls(config, tokenizer)

    @classmethod
    def options_of(cls, kind: str) -> tuple[str, ...]:
        """Returns the fields of `AnswerSettings` that it has beside those of all."""
        return row_answers.OPTIONS.get(kind, cls.options)

    @abc.abstractmethod
    def build_model(self) -> keras.Model:
        """Creates the model, in the global dtype policy."""

    @abc.abstractmethod
    def answer(self, model: keras.Model, options: AnswerSettings) -> Answer:
        """Returns how a model of `build_model` answers.

        Raises:
            InputError: the options or the vocabulary do not fit the model.
        """

    def _max_seq_length(self, options: AnswerSettings) -> int:
        return row_answers.longest_input(self.config, options)


class FillMask(Pretrained):
    """Tokens for the gaps of a text."""

    kinds = ("fill_mask",)
    parts = ("encoder", "masked_lm")

    def build_model(self):
        return models.AlbertPretrainer(self.config, sentence_head=False)

    def answer(self, model, options):
        length = self._max_seq_length(options)
        more = {"top_k": options.top_k or row_answers.TOP_K, "targets": options.targets}
        return fill_mask(model, self.tokenizer, max_seq_length=length, **more)


class Score(Pretrained):
    """How likely texts are; other runtimes have no loop over the tokens of a text."""

    kinds = ("score",)
    parts = ("encoder", "masked_lm")

    def build_model(self):
        return models.AlbertPretrainer(self.config, sentence_head=False)

    def answer(self, model, options):
        length = self._max_seq_length(options)
        return score(model, self.tokenizer, max_seq_length=length)


class SentenceOrder(Pretrained):
    """Whether two texts stand in order."""

    kinds = ("sentence_order",)
    parts = ("encoder", "sentence")

    def build_model(self):
        return models.AlbertPretrainer(self.config)

    def answer(self, model, options):
        length = self._max_seq_length(options)
        return sentence_order(model, self.tokenizer, max_seq_length=length)


class Embedding(Pretrained):
    """Vectors of texts; other runtimes have no output for every layer."""

    kinds = ("embedding",)
    parts = ("encoder",)

    def build_model(self):
        return models.AlbertEncoder(self.config)

    def answer(self, model, options):
        return embeddings(
            model,
            self.tokenizer,
            max_seq_length=self._max_seq_length(options),
            layer=-1 if options.layer is None else options.layer,
            pooling=options.pooling or "mean",
        )


FAMILIES: dict[str, type[Pretrained]] = {
    kind: family
    for family in (FillMask, Score, SentenceOrder, Embedding)
    for kind in family.kinds
}


def fill_mask(
    model: models.AlbertPretrainer,
    tokenizer: Tokenizer,
    *,
    max_seq_length: int,
    top_k: int = row_answers.TOP_K,
    targets: Sequence[str] | None = None,
) -> Answer:
    """Returns what fills the gaps of texts.

    Input: `text`, string [B], with [MASK] for each missing token; for how it is cut see
    `inputs.encode_masked`. Outputs, for the M gaps of the text that has most: `pieces`,
    string [B, M, k], the likeliest first, as the vocabulary spells them; their
    `probabilities`, float32 [B, M, k]; and `beyond_length`, int32 [B], how many gaps
    stand beyond `max_seq_length` and are not answered. Where a text has fewer gaps,
    pieces are "" and probabilities 0.

    Args:
        model: with a masked LM head.
        tokenizer: the vocabulary.
        max_seq_length: most tokens of an input.
        top_k: k, at most as many as there are to choose from.
        targets: the only words to choose from; by default the whole vocabulary.

    Raises:
        InputError: the model, the length, a target or the vocabulary do not fit.
    """
    check_kind(model, models.AlbertPretrainer)
    graph = TextInputs(model, tokenizer, max_seq_length)
    names, mask = _names(tokenizer, model.config.vocab_size), tokenizer.mask_id
    space = tokenizer.piece_to_id(WORD_MARK)
    space = -1 if space == tokenizer.unk_id else space
    scored = tf.range(model.config.vocab_size)
    if targets is not None:
        scored = tf.constant(row_answers.target_ids(tokenizer, targets))
    top_k = min(top_k, len(scored))

    def respond(text):
        tokens = graph.from_ids(_masked_ids(text, graph, mask, space))
        shape = tf.shape(tokens["input_ids"])
        places = tf.broadcast_to(tf.range(shape[1]), shape)
        gaps = tf.ragged.boolean_mask(places, tokens["input_ids"] == mask)
        # Of no texts, Keras cannot take no gaps.
        least = tf.cast(shape[0] == 0, tf.int64)
        most = tf.maximum(gaps.bounding_shape(axis=1), least)
        positions = gaps.to_tensor(shape=tf.stack([-1, most]))
        outputs = model({**tokens, "masked_lm_positions": positions})
        shares = tf.gather(tf.nn.softmax(outputs["mlm_logits"]), scored, axis=-1)
        best, places = tf.math.top_k(shares, top_k)
        beyond = _count_masks(text) - tf.cast(gaps.row_lengths(), tf.int32)
        is_gap = tf.sequence_mask(gaps.row_lengths(), tf.shape(positions)[1])
        is_gap = is_gap[..., None]
        return {
            "pieces": tf.where(is_gap, tf.gather(names, tf.gather(scored, places)), ""),
            "probabilities": tf.where(is_gap, best, 0.0),
            "beyond_length": tf.maximum(beyond, 0),
        }

    return Answer(
        model,
        graph,
        respond,
        text_specs(pairs=False),
        row_answers.describe_gaps,
    )


def _names(tokenizer: Tokenizer, count: int) -> tf.Tensor:
    """Returns tokens by id; a model may have more ids than its vocabulary."""
    names = [tokenizer.id_to_piece(id) for id in range(tokenizer.vocab_size)]
    return tf.constant(names + [""] * (count - len(names)))


def _count_masks(texts: tf.Tensor) -> tf.Tensor:
    """Counts the gaps of texts, string [B]: int32 [B]."""
    return tf.cast(tf.strings.split(texts, MASK).row_lengths() - 1, tf.int32)


def _masked_ids(
    texts: tf.Tensor, graph: TextInputs, mask: int, space: int
) -> tf.RaggedTensor:
    """Does what `inputs.encode_masked` does, for string [B]: int32 [B, None]."""
    parts = tf.strings.split(texts, MASK)
    flat, row = parts.values, parts.value_rowids()
    later = tf.pad(row[1:] == row[:-1], [[1, 0]])[: tf.size(row)]
    ids = graph.tokenize(flat)
    starts, lengths = ids.row_starts(), ids.row_lengths()
    padded = tf.concat([ids.values, [-1]], axis=0)
    first = tf.where(lengths > 0, tf.gather(padded, starts), -1)
    extra = later & (first == space) & ~in_graph.begins_with_space(flat)
    left_out = tf.cast(extra & (lengths > 0), tf.int64)
    joined = in_graph.assemble(
        [
            in_graph.single(mask, tf.cast(later, tf.int64)),
            (ids.values, starts + left_out, lengths - left_out),
        ]
    )
    splits = tf.gather(joined.row_splits, parts.row_splits)
    return tf.RaggedTensor.from_row_splits(joined.values, splits, validate=False)


def score(
    model: models.AlbertPretrainer, tokenizer: Tokenizer, *, max_seq_length: int
) -> Answer:
    """Returns what scores texts: the pseudo-log-likelihood (Salazar et al. 2020).

    Each token in turn is masked, and its natural log probability taken. Input: `text`,
    string [B]. Outputs: `score`, float32 [B], the sum over the tokens, [CLS] and [SEP]
    aside; `per_token`, float32 [B], their mean; `tokens`, int32 [B], how many; and
    `beyond_length`, int32 [B], how many stand beyond `max_seq_length` and do not count.
    A text without a token has 0 everywhere.

    Args:
        model: with a masked LM head.
        tokenizer: the vocabulary.
        max_seq_length: most tokens of an input.

    Raises:
        InputError: the model, the length or the vocabulary do not fit.
    """
    check_kind(model, models.AlbertPretrainer)
    graph = TextInputs(model, tokenizer, max_seq_length)

    def respond(text):
        ids = graph.tokenize(text)
        tokens = graph.from_ids(ids)
        lengths = tf.reduce_sum(tokens["input_mask"], axis=1) - 2
        # [R, 2]: of each token that is masked, its text and its place.
        places = tf.range(tf.shape(tokens["input_ids"])[1])[None]
        masked = tf.where((places >= 1) & (places <= lengths[:, None]))
        logs = _log_probabilities(model, tokens, masked, tokenizer.mask_id)
        total = tf.math.unsorted_segment_sum(logs, masked[:, 0], tf.size(lengths))
        counts = tf.cast(lengths, tf.float32)
        return {
            "score": total,
            "per_token": tf.math.divide_no_nan(total, counts),
            "tokens": lengths,
            "beyond_length": tf.cast(ids.row_lengths(), tf.int32) - lengths,
        }

    def describe(outputs):
        scores = {key: rounded(outputs[key]) for key in ("score", "per_token")}
        counts = {key: int(outputs[key]) for key in ("tokens", "beyond_length")}
        return {**scores, **{k: n for k, n in counts.items() if n or k == "tokens"}}

    return Answer(model, graph, respond, text_specs(pairs=False), describe)


def _log_probabilities(
    model: models.AlbertPretrainer,
    tokens: Mapping[str, tf.Tensor],
    masked: tf.Tensor,
    mask: int,
) -> tf.Tensor:
    """Returns the log probability of tokens that are masked one at a time.

    Args:
        model: with a masked LM head.
        tokens: its inputs, int32 [B, T].
        masked: int64 [R, 2], the text and the place of each.
        mask: the id of [MASK].

    Returns:
        float32 [R].
    """
    length = tf.shape(tokens["input_ids"])[1]
    at_once = tf.maximum(_TOKENS_AT_ONCE // length, 1)
    count = tf.shape(masked)[0]

    def score_some(begin, logs):
        rows, places = tf.unstack(masked[begin : begin + at_once], axis=1)
        copies = {name: tf.gather(value, rows) for name, value in tokens.items()}
        ids = copies["input_ids"]
        positions = tf.cast(places, tf.int32)[:, None]
        is_masked = tf.range(length)[None] == positions
        copies["input_ids"] = tf.where(is_masked, mask, ids)
        logits = model({**copies, "masked_lm_positions": positions})["mlm_logits"]
        each = tf.nn.log_softmax(tf.cast(logits[:, 0], tf.float32))
        of_token = tf.gather(each, tf.gather(ids, places, batch_dims=1), batch_dims=1)
        return begin + at_once, tf.concat([logs, of_token], axis=0)

    _, logs = tf.while_loop(
        lambda begin, logs: begin < count,
        score_some,
        (tf.constant(0), tf.zeros([0], tf.float32)),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
    )
    return logs


def sentence_order(
    model: models.AlbertPretrainer,
    tokenizer: Tokenizer,
    *,
    max_seq_length: int,
) -> Answer:
    """Returns what judges the order of sentences.

    Inputs: `text_a` and `text_b`, string [B]. Output: `in_order`, float32 [B], the
    probability that they stand in order (of a model trained so: that they belong
    together).

    Args:
        model: with a sentence head.
        tokenizer: the vocabulary.
        max_seq_length: most tokens of an input.

    Raises:
        InputError: the model, the length or the vocabulary do not fit.
    """
    check_kind(model, models.AlbertPretrainer)
    if model.sentence is None:
        raise InputError("a model without a sentence head; expected one with it")
    graph = TextInputs(model, tokenizer, max_seq_length)

    def respond(text_a, text_b):
        # A graph leaves out the masked LM, which nobody reads.
        logits = model(graph(text_a, text_b))["sop_logits"]
        return {"in_order": tf.nn.softmax(logits)[:, 0]}

    specs = text_specs(pairs=True)
    return Answer(
        model,
        graph,
        respond,
        specs,
        row_answers.describe_order,
    )


def embeddings(
    model: keras.Model,
    tokenizer: Tokenizer,
    *,
    max_seq_length: int,
    layer: int = -1,
    pooling: Literal["mean", "first", "pooled"] = "mean",
) -> Answer:
    """Returns what embeds texts, by every layer.

    Input: `text`, string [B]. Outputs: `pooled`, float32 [B, H]; `mean` and `first`,
    float32 [B, L, H], of the outputs of each layer the mean over the tokens of the
    text, [CLS] and [SEP] included, and the one of [CLS]: `mean[:, -1]` is of the last.

    Args:
        model: an `AlbertEncoder`, or a model with one, whose head is left out.
        tokenizer: the vocabulary.
        max_seq_length: most tokens of an input.
        layer: whose vector answers a row: 1 to L, or -1 (the last) to -L.
        pooling: which of the outputs is that vector; "pooled" is of the last layer.

    Raises:
        InputError: the length, the layer or the vocabulary do not fit.
    """
    encoder = model if isinstance(model, models.AlbertEncoder) else model.encoder
    config = encoder.config
    count = config.num_hidden_layers * config.inner_group_num
    if not (1 <= layer <= count or -count <= layer <= -1):
        raise InputError(f"--layer={layer}: expected 1 to {count}, or -1 for the last")
    graph = TextInputs(encoder, tokenizer, max_seq_length)

    def respond(text):
        tokens = graph(text)
        outputs = encoder(tokens)
        layers = tf.stack(outputs["encoder_outputs"], axis=1)  # [B, L, T, H]
        layers = tf.cast(layers, tf.float32)
        weight = tf.cast(tokens["input_mask"], tf.float32)[:, None, :, None]
        mean = tf.reduce_sum(layers * weight, 2) / tf.reduce_sum(weight, 2)
        pooled = tf.cast(outputs["pooled_output"], tf.float32)
        return {"pooled": pooled, "mean": mean, "first": layers[:, :, 0]}

    def describe(outputs):
        vectors = outputs[pooling]
        if pooling != "pooled":
            vectors = vectors[layer - 1 if layer > 0 else layer]
        return {"embedding": rounded(vectors)}

    specs = text_specs(pairs=False)
    shorten = beginnings(tokenizer, max_seq_length, *specs)
    return Answer(encoder, graph, respond, specs, describe, shorten=shorten)
