"""The heads on top of the encoder, and their losses.

The scores that a head returns are float32. Every loss takes float32 scores and returns
float32. Letters of shapes: see `layers`.
"""

import keras
from keras import ops

from albert_tf.model import layers
from albert_tf.model.config import AlbertConfig
from albert_tf.model.layers import ConfiguredLayer

# Standard deviation of the initial weights of the classifier, RACE and SQuAD 1.1 heads.
# The released code uses it instead of `initializer_range`.
HEAD_INITIALIZER_RANGE = 0.02

# The logit of a position that cannot hold an answer, from the released code.
IMPOSSIBLE_LOGIT = -1e30

# Added to the sum of `masked_lm_weights`, by which the masked LM loss is divided. So
# the loss is finite even if no position is masked. The value is from the released code.
MASKED_LM_EPSILON = 1e-5


def gather_positions(states, positions):
    """Gathers the hidden states at some positions.

    Args:
        states: float [B, T, H].
        positions: int [B, P], each in [0, T).

    Returns:
        float [B, P, H].
    """
    return ops.take_along_axis(states, ops.expand_dims(positions, -1), axis=1)


class MaskedLMHead(ConfiguredLayer):
    """Predicts the token at masked positions (paper 3.1).

    The output matrix is the encoder's table of word embeddings, which has width E. So
    the head first projects H to E.
    """

    def __init__(self, config: AlbertConfig, **kwargs):
        super().__init__(config, **kwargs)
        self.transform = self.dense(config.embedding_size, "transform")
        self.activation = layers.ACTIVATIONS[config.hidden_act]
        self.norm = layers.LayerNormalization("norm")

    def build(self, input_shape=None):
        self.transform.build((None, None, self.config.hidden_size))
        self.norm.build((None, None, self.config.embedding_size))
        self.output_bias = self.add_weight(
            shape=(self.config.vocab_size,),
            initializer="zeros",
            autocast=False,
            name="output_bias",
        )

    def call(self, states, word_table):
        """Scores every token of the vocabulary.

        Args:
            states: float [B, P, H], the hidden states to predict from.
            word_table: float32 [V, E], the encoder's word embeddings.

        Returns:
            float32 [B, P, V].
        """
        projected = self.activation(self.transform(states))
        projected = ops.cast(self.norm(projected), self.compute_dtype)  # [B, P, E]
        decoder = ops.transpose(ops.cast(word_table, self.compute_dtype))
        logits = ops.matmul(projected, decoder)
        return ops.cast(logits, "float32") + ops.cast(self.output_bias, "float32")


class _OutputHead(ConfiguredLayer):
    """Base class of a head with one dense layer, `output_dense`."""

    def build(self, input_shape=None):
        self.output_dense.build((None, self.config.hidden_size))


class SentenceHead(_OutputHead):
    """Predicts sentence order (SOP) or next sentence (NSP).

    The two objectives differ only in their data. For sentence order, class 0 is "in
    order" and class 1 "swapped"; for next sentence, class 0 is "next" and 1 "random".
    """

    def __init__(self, config: AlbertConfig, **kwargs):
        super().__init__(config, **kwargs)
        self.output_dense = self.dense(2, "output")

    def call(self, pooled):
        """Returns the logits, float32 [B, 2], of the pooled output, float [B, H]."""
        return ops.cast(self.output_dense(pooled), "float32")


class ClassifierHead(_OutputHead):
    """Predicts labels from the pooled output, or from each token's state.

    The head is dropout and a dense layer.

    Args:
        config: the model's configuration.
        num_labels: K, the number of classes; 1 for regression and for scoring choices.
    """

    # The arguments that the model's `get_config` saves.
    options = ("num_labels",)

    def __init__(self, config: AlbertConfig, num_labels: int, **kwargs):
        super().__init__(config, **kwargs)
        self.num_labels = num_labels
        self.dropout = keras.layers.Dropout(
            config.classifier_dropout_prob, dtype=self.dtype_policy
        )
        self.output_dense = self.dense(
            num_labels, "output", stddev=HEAD_INITIALIZER_RANGE
        )

    def call(self, states, training=False):
        """Returns logits, float32 [..., K], of states, float [..., H]."""
        dropped = self.dropout(states, training=training)
        return ops.cast(self.output_dense(dropped), "float32")


def classification_loss(logits, labels):
    """Cross-entropy over classes, or over the choices of a question, float32 [...].

    Args:
        logits: float32 [..., K].
        labels: int [...], each in [0, K).
    """
    return ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)


def token_classification_loss(logits, labels):
    """Cross-entropy of each token, float32 [B, T]; 0 for a token without a label.

    Args:
        logits: float32 [B, T, K].
        labels: int [B, T], each in [0, K), or negative for a token without a label.
    """
    has_label = ops.cast(ops.greater_equal(labels, 0), "float32")
    return classification_loss(logits, ops.maximum(labels, 0)) * has_label


def multi_label_loss(logits, labels):
    """Sum of the cross-entropies of K independent labels, float32 [B].

    Args:
        logits: float32 [B, K].
        labels: int [B, K] of 0 and 1.
    """
    labels = ops.cast(labels, "float32")
    # log(1 + exp(x)) - y x, without overflow.
    return ops.sum(ops.softplus(logits) - labels * logits, axis=-1)


def regression_loss(logits, targets):
    """Squared error, float32 [B].

    Args:
        logits: float32 [B, 1].
        targets: float32 [B].
    """
    return ops.square(ops.subtract(logits[:, 0], targets))


class SpanHead(_OutputHead):
    """Predicts the first and the last token of an answer (SQuAD 1.1)."""

    def __init__(self, config: AlbertConfig, **kwargs):
        super().__init__(config, **kwargs)
        self.output_dense = self.dense(2, "output", stddev=HEAD_INITIALIZER_RANGE)

    def call(self, states):
        """Scores every position.

        Args:
            states: float [B, T, H].

        Returns:
            dict of float32 [B, T]: `start_logits` and `end_logits`.
        """
        logits = ops.cast(self.output_dense(states), "float32")
        return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}


def span_loss(start_logits, end_logits, start_positions, end_positions):
    """Returns two mean cross-entropies: of the first and of the last token.

    Args:
        start_logits: float32 [B, T], logits or log-probabilities.
        end_logits: float32 [B, T], logits or log-probabilities.
        start_positions: int [B], the position of the answer's first token.
        end_positions: int [B], the position of the answer's last token.

    Returns:
        Two float32 []; the released loss is their mean.
    """
    start = ops.mean(classification_loss(start_logits, start_positions))
    end = ops.mean(classification_loss(end_logits, end_positions))
    return start, end


class ConditionalSpanHead(ConfiguredLayer):
    """Predicts whether an answer exists, its start, and its end for each start.

    This is XLNet's head (Yang et al. 2019), which the released code uses for SQuAD 2.0.
    If the true start is given, as in training, the head scores the ends for this start.
    Otherwise, it scores the ends for the starts with the highest probabilities.

    Args:
        config: the model's configuration.
        start_n_top: S, the number of candidate starts in prediction.
        end_n_top: the number of candidate ends for each candidate start.
    """

    # The arguments that the model's `get_config` saves.
    options = ("start_n_top", "end_n_top")

    def __init__(
        self, config: AlbertConfig, start_n_top: int = 5, end_n_top: int = 5, **kwargs
    ):
        super().__init__(config, **kwargs)
        self.start_n_top = start_n_top
        self.end_n_top = end_n_top
        size = config.hidden_size
        self.start = self.dense(1, "start")
        self.end_hidden = self.dense(size, "end_hidden")
        self.end_norm = layers.LayerNormalization("end_norm")
        self.end = self.dense(1, "end")
        self.answer_hidden = self.dense(size, "answer_hidden", activation="tanh")
        self.dropout = keras.layers.Dropout(
            config.classifier_dropout_prob, dtype=self.dtype_policy
        )
        self.answer = self.dense(1, "answer", use_bias=False)

    def build(self, input_shape=None):
        size = self.config.hidden_size
        for part in (self.start, self.end_norm, self.end, self.answer):
            part.build((None, None, size))
        for part in (self.end_hidden, self.answer_hidden):
            part.build((None, None, 2 * size))

    def call(self, states, p_mask, start_positions=None, training=False):
        """Scores spans.

        Args:
            states: float [B, T, H].
            p_mask: [B, T], 1 at a position that no answer can hold (the question,
                [SEP], padding), else 0. The name is from the released code.
            start_positions: int [B], the known starts, or None to search for them.
            training: whether dropout applies.

        Returns:
            dict of tensors, float32 except for the indices.

            Always: `start_log_probs` [B, T], and `cls_logits` [B], the log-odds that
            there is no answer.

            Only if the starts are known: `end_log_probs` [B, T], for the known start.

            Only if the starts are not known: `start_top_log_probs` and
            `start_top_index` (int) [B, S], the best starts; `end_top_log_probs` and
            `end_top_index` (int) [B, S * end_n_top], the best ends of the first start,
            then of the second, and so on.
        """
        p_mask = ops.cast(p_mask, "float32")
        start_logits = _mask(self.start(states)[..., 0], p_mask)
        start_log_probs = ops.log_softmax(start_logits)
        outputs = {
            "start_log_probs": start_log_probs,
            "cls_logits": self._cls_logits(states, start_logits, training),
        }
        if start_positions is not None:
            starts = gather_positions(states, ops.expand_dims(start_positions, -1))
            end_log_probs = self._end_log_probs(states, starts, p_mask)
            return {**outputs, "end_log_probs": end_log_probs[:, 0]}
        start_top, start_index = ops.top_k(start_log_probs, self.start_n_top)
        starts = gather_positions(states, start_index)
        end_log_probs = self._end_log_probs(states, starts, p_mask)
        end_top, end_index = ops.top_k(end_log_probs, self.end_n_top)
        shape = (-1, self.start_n_top * self.end_n_top)
        return {
            **outputs,
            "start_top_log_probs": start_top,
            "start_top_index": start_index,
            "end_top_log_probs": ops.reshape(end_top, shape),
            "end_top_index": ops.reshape(end_index, shape),
        }

    def _end_log_probs(self, states, starts, p_mask):
        """Returns the log-probability of each end for each start, float32 [B, S, T].

        Args:
            states: float [B, T, H].
            starts: float [B, S, H], the states of the starts.
            p_mask: float32 [B, T], see `call`.
        """
        # The input of `end_hidden` is a pair: a state followed by the state of a start.
        # The product of T * S such pairs with the kernel would be large. Here each half
        # of the kernel has its own product, with only T or S rows.
        state_kernel, start_kernel = ops.split(
            ops.cast(self.end_hidden.kernel, self.compute_dtype), 2
        )
        bias = ops.cast(self.end_hidden.bias, self.compute_dtype)
        from_states = ops.expand_dims(ops.matmul(states, state_kernel), 1)
        from_starts = ops.expand_dims(ops.matmul(starts, start_kernel) + bias, 2)
        hidden = self.end_norm(ops.tanh(from_states + from_starts))  # [B, S, T, H]
        logits = self.end(ops.cast(hidden, self.compute_dtype))[..., 0]
        return ops.log_softmax(_mask(logits, ops.expand_dims(p_mask, 1)))

    def _cls_logits(self, states, start_logits, training):
        """Returns the log-odds that there is no answer, float32 [B].

        The layers read two states: the mean of all states, weighted by the
        probabilities of the starts, and the state of the first token.
        """
        probabilities = ops.cast(ops.softmax(start_logits), self.compute_dtype)
        mean = ops.matmul(ops.expand_dims(probabilities, 1), states)[:, 0]  # [B, H]
        pair = ops.concatenate([mean, states[:, 0]], axis=-1)
        hidden = self.dropout(self.answer_hidden(pair), training=training)
        return ops.cast(self.answer(hidden)[:, 0], "float32")


def conditional_span_loss(outputs, start_positions, end_positions, is_impossible):
    """Returns the parts of the released SQuAD 2.0 loss.

    Args:
        outputs: outputs of `ConditionalSpanHead` with known starts.
        start_positions: int [B], the position of the answer's first token, or of [CLS]
            if there is no answer. `p_mask` must be 0 there.
        end_positions: int [B], the position of the answer's last token, or of [CLS] if
            there is no answer. `p_mask` must be 0 there.
        is_impossible: [B], 1 if the question has no answer.

    Returns:
        Three float32 []: the losses of the start, of the end, and of whether there is
        an answer. The released loss is half of their sum.
    """
    starts, ends = outputs["start_log_probs"], outputs["end_log_probs"]
    start_loss, end_loss = span_loss(starts, ends, start_positions, end_positions)
    cls_loss = ops.binary_crossentropy(
        ops.cast(is_impossible, "float32"), outputs["cls_logits"], from_logits=True
    )
    return start_loss, end_loss, ops.mean(cls_loss)


def _mask(logits, p_mask):
    """Returns the logits in float32, with `IMPOSSIBLE_LOGIT` where `p_mask` is 1."""
    logits = ops.cast(logits, "float32")
    return logits * (1.0 - p_mask) + IMPOSSIBLE_LOGIT * p_mask


@layers.custom_gradient(on_torch=classification_loss)
def masked_lm_loss(logits, ids):
    """Cross-entropy of masked positions, float32 [B, P].

    The values are the same as those of `classification_loss`. On a CPU with thousands
    of classes, this function takes 0.4 of the time of `classification_loss`, because
    TensorFlow's cross-entropy takes as long as five softmaxes.

    Args:
        logits: float32 [B, P, V].
        ids: int [B, P], the true tokens, each in [0, V).
    """
    probabilities = ops.softmax(logits)
    highest = ops.max(logits, -1)
    index = ops.expand_dims(ids, -1)
    label_logits = ops.squeeze(ops.take_along_axis(logits, index, -1), -1)
    # The loss is log(sum(exp(logits))) - label_logits. The highest probability is
    # 1 / sum(exp(logits - highest)), which is at least 1 / V, so its log is finite.
    losses = highest - label_logits - ops.log(ops.max(probabilities, -1))

    def gradient(upstream):
        difference = probabilities - ops.one_hot(ids, logits.shape[-1])
        return ops.expand_dims(upstream, -1) * difference, None

    return losses, gradient
