"""ALBERT's encoder, and the encoder with each of its heads."""

import contextlib

import keras
from keras import ops

from albert_tf.errors import InputError
from albert_tf.model import heads, layers
from albert_tf.model.config import AlbertConfig

# Keys of the inputs that the encoder reads.
_ENCODER_KEYS = ("input_ids", "input_mask", "segment_ids")
# Keys of the inputs that heads, losses and metrics read. `row` is the index of an
# example in its source.
_OTHER_KEYS = (
    "masked_lm_positions",
    "masked_lm_ids",
    "masked_lm_weights",
    "next_sentence_labels",
    "token_boundary",
    "labels",
    "p_mask",
    "start_positions",
    "end_positions",
    "is_impossible",
    "example_weight",
    "row",
)


def _select_encoder_inputs(inputs) -> dict:
    """Returns the inputs that the encoder reads.

    Raises:
        InputError: `input_ids` is missing, or a key is unknown.
    """
    unknown = [key for key in inputs if key not in _ENCODER_KEYS + _OTHER_KEYS]
    if unknown or "input_ids" not in inputs:
        names = ", ".join(map(repr, unknown))
        mistake = f"have {names}" if unknown else "lack input_ids"
        raise InputError(f"the inputs {mistake}; expected {', '.join(_ENCODER_KEYS)}")
    return {key: inputs[key] for key in _ENCODER_KEYS if key in inputs}


class _ConfiguredModel(keras.Model):
    """Base class of the models. A model has all its variables after the constructor."""

    def __init__(self, config: AlbertConfig, **kwargs):
        super().__init__(**kwargs)
        self.config = config

    def get_config(self):
        return {
            "name": self.name,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            "config": self.config.to_dict(),
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        values = {
            "config": AlbertConfig.from_dict(config["config"]),
            "dtype": keras.saving.deserialize_keras_object(config["dtype"]),
        }
        return cls(**{**config, **values})

    def build_from_config(self, config):
        """Does nothing, because the constructor has created the variables."""


@keras.saving.register_keras_serializable("albert_tf")
class AlbertEncoder(_ConfiguredModel):
    """ALBERT without a head (paper 3.1).

    Layers share parameters by applying the same `Block`, so each variable exists once.

    Args:
        config: the sizes and dropout rates of the model.
        **kwargs: `name` and `dtype` (a policy such as "mixed_bfloat16"; the default is
            Keras's global policy).
    """

    def __init__(self, config: AlbertConfig, **kwargs):
        super().__init__(config, **kwargs)
        policy = self.dtype_policy
        self.embeddings = layers.Embeddings(config, dtype=policy, name="embeddings")
        self.projection = None
        if config.embedding_size != config.hidden_size:
            self.projection = layers.dense(
                config, config.hidden_size, "projection", dtype=policy
            )
        self.blocks = _create_blocks(config, policy)
        self.pooler = layers.dense(
            config, config.hidden_size, "pooler", activation="tanh", dtype=policy
        )
        self.seed_generator = keras.random.SeedGenerator()
        self.build()

    def build(self, input_shape=None):
        self.embeddings.build()
        if self.projection is not None:
            self.projection.build((None, None, self.config.embedding_size))
        for block in self.blocks:
            block.build()
        self.pooler.build((None, self.config.hidden_size))

    def call(self, inputs, training=False):
        """Encodes tokens.

        Args:
            inputs: dict of int [B, T]: `input_ids`; `input_mask`, 1 for a token and 0
                for padding (default: all 1); `segment_ids` (default: all 0). T is at
                most `max_position_embeddings`. The dict may be a complete batch: this
                method ignores the keys that only heads and losses read.
            training: whether dropout applies.

        Returns:
            dict of `sequence_output` [B, T, H]; `pooled_output` [B, H];
            `encoder_outputs`, a list of the outputs [B, T, H] of all blocks (L times
            `inner_group_num`); `embedding_output` [B, T, E], before the projection
            from E to H.

        Raises:
            InputError: `input_ids` is missing, a key is unknown, or T is above
                `max_position_embeddings`.
        """
        embeddings, outputs = self._encode(inputs, training)
        return {
            "sequence_output": outputs[-1],
            "pooled_output": self.pooler(outputs[-1][:, 0]),
            "encoder_outputs": outputs,
            "embedding_output": embeddings,
        }

    def pooled(self, inputs, training=False):
        """Returns only the `pooled_output` of `call`.

        The pooler reads only the first position. So the last block computes only keys
        and values at the other positions. With I = 4 H, this saves about 5 / 6 of the
        matrix products of the last block.

        Args:
            inputs: see `call`.
            training: whether dropout applies.

        Returns:
            float [B, H].

        Raises:
            InputError: see `call`.
        """
        _, outputs = self._encode(inputs, training, select=lambda x: x[:, :1])
        return self.pooler(outputs[-1][:, 0])

    def encode_positions(self, inputs, positions, training=False):
        """Returns the `pooled_output` and the states at the given positions.

        The last block computes outputs for P + 1 positions instead of T: for these
        positions, and for the first position, because the pooler reads it.

        Args:
            inputs: see `call`.
            positions: int [B, P], each in [0, T).
            training: whether dropout applies.

        Returns:
            the pooled output, float [B, H], and the last block's states at the
            positions, float [B, P, H].

        Raises:
            InputError: see `call`.
        """

        def select(hidden):
            states = heads.gather_positions(hidden, positions)
            return ops.concatenate([hidden[:, :1], states], axis=1)

        _, outputs = self._encode(inputs, training, select=select)
        return self.pooler(outputs[-1][:, 0]), outputs[-1][:, 1:]

    def _embed(self, inputs, training):
        """Returns the embeddings, the mask scores, and each block's dropout seeds."""
        inputs = _select_encoder_inputs(inputs)
        input_ids = inputs["input_ids"]
        length, max_length = input_ids.shape[1], self.config.max_position_embeddings
        if length is not None and length > max_length:
            raise InputError(
                f"input_ids has {length} tokens, but the configuration's "
                f"max_position_embeddings is {max_length}"
            )
        mask, segments = inputs.get("input_mask"), inputs.get("segment_ids")
        mask = ops.ones_like(input_ids) if mask is None else mask
        segments = ops.zeros_like(input_ids) if segments is None else segments
        scores = (1.0 - ops.cast(mask, "float32")) * layers.MASKED_SCORE
        # LiteRT lacks the operation of [:, None, None] for a T of unknown size.
        mask_scores = ops.expand_dims(scores, (1, 2))
        config = self.config
        has_dropout = config.hidden_dropout_prob or config.attention_probs_dropout_prob
        generator = self.seed_generator if training and has_dropout else None
        seeds = layers.DropoutSeeds(generator)
        embeddings = self.embeddings(input_ids, segments, seed=seeds.next())
        # Each block has three dropouts. Their seeds are drawn before the blocks run,
        # because a block that is computed again must have the same seeds.
        block_seeds = [[seeds.next() for _ in range(3)] for _ in self.blocks_in_order()]
        return embeddings, mask_scores, block_seeds

    def _encode(self, inputs, training, select=None):
        """Returns the embeddings, and a list of the outputs of all blocks.

        If `select` is not None, the last block computes only the positions that
        `select` returns from the block's input, see `Attention.call`.
        """
        embeddings, mask_scores, seeds = self._embed(inputs, training)
        hidden = embeddings if self.projection is None else self.projection(embeddings)
        outputs: list = []
        blocks = list(self.blocks_in_order())
        recomputes = self.config.recompute == "block"
        # Whether to call `order_gradients`. Without it, TensorFlow holds L gradients of
        # each shared kernel at the same time; JAX and PyTorch add them up as they go.
        # Mixed precision without recomputation does not need `order_gradients`:
        # `cast_once` makes the kernels 16-bit, so their L gradients need only half the
        # memory.
        is_ordered = training and keras.backend.backend() == "tensorflow"
        is_ordered &= recomputes or self.compute_dtype == "float32"
        used: set[layers.Dense] = set()
        with contextlib.ExitStack() as stack:
            if not recomputes:  # recomputed blocks cast their own kernels
                stack.enter_context(layers.cast_once(self._dense_layers()))
            for block, block_seeds in zip(blocks, seeds, strict=True):
                reused = [layer for layer in block.dense_layers() if layer in used]
                used.update(block.dense_layers())
                if is_ordered and reused:
                    hidden, context = layers.order_gradients(hidden, reused)
                    stack.enter_context(context)
                selector = select if len(outputs) == len(blocks) - 1 else None
                hidden = block(hidden, mask_scores, seeds=block_seeds, select=selector)
                outputs.append(hidden)
        return embeddings, outputs

    def blocks_in_order(self):
        """Yields the blocks in the order of their application.

        Each of the L layers has `inner_group_num` blocks. A shared block comes again
        for each layer that applies it.
        """
        inner = self.config.inner_group_num
        for index in self.config.block_map:
            yield from self.blocks[index * inner : (index + 1) * inner]

    def _dense_layers(self):
        """Returns the dense layers of all blocks, each once."""
        dense = [layer for block in self.blocks for layer in block.dense_layers()]
        return list(dict.fromkeys(dense))


def _create_blocks(config: AlbertConfig, policy) -> list[layers.Block]:
    """Creates the distinct blocks, in the order of their first application.

    Two layers have the same blocks if they share both their attention and their
    feed-forward weights. If they share only one of them, their blocks are distinct, but
    have the same `Attention` or `FeedForward`.
    """
    inner = config.inner_group_num
    attentions = [
        layers.Attention(config, dtype=policy, name="attention")
        for _ in range(len(set(config.attention_map)) * inner)
    ]
    feed_forwards = [
        layers.FeedForward(config, dtype=policy, name="feed_forward")
        for _ in range(len(set(config.ffn_map)) * inner)
    ]
    # For each distinct layer, the indices of its attention and feed-forward weights.
    pairs = dict.fromkeys(zip(config.attention_map, config.ffn_map, strict=True))
    return [
        layers.Block(
            config,
            attentions[attention * inner + i],
            feed_forwards[ffn * inner + i],
            dtype=policy,
            name=f"block_{layer}_{i}",
        )
        for layer, (attention, ffn) in enumerate(pairs)
        for i in range(inner)
    ]


class _ModelWithHead(_ConfiguredModel):
    """Base class of the encoder with a head.

    A subclass keeps its head in the attribute `head`, or overrides `build` and
    `get_config`.
    """

    # Whether the head reads `pooled_output`. If not, a checkpoint may lack the pooler.
    head_reads_pooler = True

    def __init__(self, config: AlbertConfig, **kwargs):
        super().__init__(config, **kwargs)
        self.encoder = AlbertEncoder(config, dtype=self.dtype_policy, name="encoder")

    def build(self, input_shape=None):
        self.head.build()

    def get_config(self):
        options = {name: getattr(self.head, name) for name in self.head.options}
        return {**super().get_config(), **options}


class _Classifier(_ModelWithHead):
    """Base class of a model that chooses among K labels.

    Args:
        config: the sizes and dropout rates of the model.
        num_labels: K, the number of labels; 1 for regression.
        **kwargs: `name` and `dtype`, as for `AlbertEncoder`.
    """

    def __init__(self, config: AlbertConfig, num_labels: int, **kwargs):
        super().__init__(config, **kwargs)
        self.head = heads.ClassifierHead(
            config, num_labels, dtype=self.dtype_policy, name="head"
        )
        self.build()


@keras.saving.register_keras_serializable("albert_tf")
class AlbertPretrainer(_ModelWithHead):
    """The encoder with the two heads of pretraining (paper 3.1).

    Args:
        config: the sizes and dropout rates of the model.
        sentence_head: whether there is a head for sentence order prediction (SOP) or
            next sentence prediction (NSP).
        **kwargs: `name` and `dtype`, as for `AlbertEncoder`.
    """

    def __init__(self, config: AlbertConfig, sentence_head: bool = True, **kwargs):
        super().__init__(config, **kwargs)
        policy = self.dtype_policy
        self.masked_lm = heads.MaskedLMHead(config, dtype=policy, name="masked_lm")
        self.sentence = None
        self.head_reads_pooler = sentence_head
        if sentence_head:
            self.sentence = heads.SentenceHead(config, dtype=policy, name="sentence")
        self.build()

    def build(self, input_shape=None):
        self.masked_lm.build()
        if self.sentence is not None:
            self.sentence.build()

    def call(self, inputs, training=False):
        """Encodes tokens and predicts the masked ones and the sentence order.

        Args:
            inputs: `AlbertEncoder`'s inputs, and `masked_lm_positions`, int [B, P].
                Without this key, every position is predicted, and P is T.
            training: whether dropout applies.

        Returns:
            dict of the encoder's outputs; `mlm_logits`, float32 [B, P, V]; and, if the
            model has a sentence head, `sop_logits`, float32 [B, 2], for SOP or NSP.
        """
        outputs = self.encoder(inputs, training=training)
        states = outputs["sequence_output"]
        if "masked_lm_positions" in inputs:
            states = heads.gather_positions(states, inputs["masked_lm_positions"])
        return {**outputs, **self._logits(states, outputs["pooled_output"])}

    def logits(self, inputs, training=False):
        """Returns only the logits of `call`, with less computation.

        The last block computes outputs only for the first position and the masked
        positions. At all other positions, it computes only keys and values. This saves
        about 5 / 6 of the block's matrix products there (with I = 4 H).

        Args:
            inputs: see `call`; `masked_lm_positions` is required.
            training: whether dropout applies.

        Returns:
            dict of `mlm_logits`, and of `sop_logits` if there is a sentence head.

        Raises:
            InputError: `masked_lm_positions` is missing; or see `AlbertEncoder.call`.
        """
        positions = inputs.get("masked_lm_positions")
        if positions is None:
            raise InputError(
                f"the inputs lack 'masked_lm_positions'; got {list(inputs)}"
            )
        pooled, states = self.encoder.encode_positions(inputs, positions, training)
        return self._logits(states, pooled)

    def _logits(self, states, pooled):
        logits = {"mlm_logits": self.masked_lm(states, self.encoder.embeddings.word)}
        if self.sentence is not None:
            logits["sop_logits"] = self.sentence(pooled)
        return logits

    def get_config(self):
        # Not `super()`, which reads the attribute `head`.
        config = _ConfiguredModel.get_config(self)
        return {**config, "sentence_head": self.sentence is not None}


@keras.saving.register_keras_serializable("albert_tf")
class AlbertClassifier(_Classifier):
    """The encoder with a classification or regression head.

    Args:
        config: the sizes and dropout rates of the model.
        num_labels: K, the number of labels; 1 for regression.
        **kwargs: `name` and `dtype`, as for `AlbertEncoder`.
    """

    def call(self, inputs, training=False):
        """Returns `logits`, float32 [B, K], and `pooled_output`, float [B, H].

        `model.encoder(inputs)` returns the states of all positions.
        """
        pooled = self.encoder.pooled(inputs, training=training)
        logits = self.head(pooled, training=training)
        return {"logits": logits, "pooled_output": pooled}


@keras.saving.register_keras_serializable("albert_tf")
class AlbertMultipleChoice(_Classifier):
    """The encoder with one score per choice (RACE).

    Args:
        config: the sizes and dropout rates of the model.
        **kwargs: `name` and `dtype`, as for `AlbertEncoder`.
    """

    def __init__(self, config: AlbertConfig, **kwargs):
        super().__init__(config, num_labels=1, **kwargs)

    def get_config(self):
        # Not `super()`: the constructor does not accept `num_labels`.
        return _ConfiguredModel.get_config(self)

    def call(self, inputs, training=False):
        """Scores choices.

        Args:
            inputs: `AlbertEncoder`'s inputs with shape [B, C, T], one row per choice.
                `input_mask` is all 0 in the row of a choice that the question lacks.
            training: whether dropout applies.

        Returns:
            dict of `logits`, float32 [B, C]. The logits of choices that the question
            lacks are so low that their probability is 0.
        """
        inputs = _select_encoder_inputs(inputs)
        batch, choices, length = ops.shape(inputs["input_ids"])
        rows = {key: ops.reshape(x, (-1, length)) for key, x in inputs.items()}
        pooled = self.encoder.pooled(rows, training=training)
        logits = self.head(pooled, training=training)
        logits = ops.reshape(logits, (batch, choices))
        if inputs.get("input_mask") is not None:
            has_tokens = ops.cast(ops.max(inputs["input_mask"], axis=-1), "float32")
            logits += (1.0 - has_tokens) * layers.MASKED_SCORE
        return {"logits": logits}


@keras.saving.register_keras_serializable("albert_tf")
class AlbertTokenClassifier(_Classifier):
    """The encoder with a label for each token (named entities, part of speech).

    Args:
        config: the sizes and dropout rates of the model.
        num_labels: K, the number of labels.
        **kwargs: `name` and `dtype`, as for `AlbertEncoder`.
    """

    head_reads_pooler = False

    def call(self, inputs, training=False):
        """Returns the encoder's outputs and `logits`, float32 [B, T, K]."""
        outputs = self.encoder(inputs, training=training)
        logits = self.head(outputs["sequence_output"], training=training)
        return {**outputs, "logits": logits}


@keras.saving.register_keras_serializable("albert_tf")
class AlbertSpanLabeler(_ModelWithHead):
    """The encoder with the answer span head of SQuAD 1.1.

    Args:
        config: the sizes and dropout rates of the model.
        **kwargs: `name` and `dtype`, as for `AlbertEncoder`.
    """

    head_reads_pooler = False

    def __init__(self, config: AlbertConfig, **kwargs):
        super().__init__(config, **kwargs)
        self.head = heads.SpanHead(config, dtype=self.dtype_policy, name="head")
        self.build()

    def call(self, inputs, training=False):
        """Returns the encoder's outputs, `start_logits` and `end_logits` [B, T]."""
        outputs = self.encoder(inputs, training=training)
        return {**outputs, **self.head(outputs["sequence_output"])}


@keras.saving.register_keras_serializable("albert_tf")
class AlbertConditionalSpanLabeler(_ModelWithHead):
    """The encoder with the span and answerability head of SQuAD 2.0.

    Args:
        config: the sizes and dropout rates of the model.
        start_n_top: S, the number of candidate starts in prediction.
        end_n_top: the number of candidate ends for each candidate start.
        **kwargs: `name` and `dtype`, as for `AlbertEncoder`.
    """

    head_reads_pooler = False

    def __init__(
        self, config: AlbertConfig, start_n_top: int = 5, end_n_top: int = 5, **kwargs
    ):
        super().__init__(config, **kwargs)
        self.head = heads.ConditionalSpanHead(
            config, start_n_top, end_n_top, dtype=self.dtype_policy, name="head"
        )
        self.build()

    def call(self, inputs, training=False):
        """Scores spans.

        Args:
            inputs: `AlbertEncoder`'s inputs, `p_mask` [B, T] (1 at a position that no
                answer can hold), and, if the starts are known, `start_positions`
                int [B].
            training: whether dropout applies.

        Returns:
            the outputs of the encoder and of `heads.ConditionalSpanHead`.
        """
        outputs = self.encoder(inputs, training=training)
        spans = self.head(
            outputs["sequence_output"],
            inputs["p_mask"],
            start_positions=inputs.get("start_positions"),
            training=training,
        )
        return {**outputs, **spans}
