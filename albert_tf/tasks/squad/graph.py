"""Answers questions in a TensorFlow graph, from raw text, for SavedModels.

`features` and `answers` process one question at a time; this module does the same for a
batch. Letters: B questions, W windows of all questions, T tokens of a window, N tokens
of all contexts, M spans.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.model import models
from albert_tf.tasks import serving
from albert_tf.tasks.settings.squad import SquadSettings
from albert_tf.tasks.squad.answers import NO_SPAN_SCORE
from albert_tf.tasks.squad.features import SCORE_PER_TOKEN
from albert_tf.tasks.squad.pipeline import check_threshold
from albert_tf.text import in_graph
from albert_tf.text.tokenization import Tokenizer

# A number that is greater than the index of any window.
_NO_WINDOW = np.iinfo(np.int32).max
# Character offsets of an answer in its context.
_OFFSETS = ("begin", "end")
# The results of `_score_pairs` and `_score_candidates`. For each candidate of each
# window: the positions of its first and last token, and its score. For each window, in
# `null`: the score of "no answer".
_SCORE_SPECS = {
    "first": tf.TensorSpec([None, None], tf.int32),
    "last": tf.TensorSpec([None, None], tf.int32),
    "score": tf.TensorSpec([None, None], tf.float64),
    "null": tf.TensorSpec([None], tf.float32),
}


def question_answering(
    model: models.AlbertSpanLabeler | models.AlbertConditionalSpanLabeler,
    tokenizer: Tokenizer,
    settings: SquadSettings | None = None,
    threshold: float | None = None,
) -> serving.ServingFunction:
    """Returns a function that answers questions from contexts, for a SavedModel.

    Inputs: `question` and `context`, string [B]. Outputs: `answer`, string [B]; `begin`
    and `end`, int32 [B], its characters [begin, end) in the context, -1 without an
    answer; `score`, float32 [B], the score of the span; `probability`, float32 [B], its
    probability in the n-best list; `n_best_answers` and `n_best_probabilities`, string
    and float32 [B, n_best_size], where short lists are filled with "" and 0.

    SQuAD 2.0 adds `null_odds`, float32 [B]: the logit of "no answer", or for a linear
    head this logit minus the score of the best span. If the null odds are above
    `threshold`, `answer` is "" and `begin` and `end` are -1; the other outputs do not
    change.

    If no span is valid, as for an empty context, the answer is "" with probability 0.
    **As released:** in SQuAD 1.1, the files of `run_squad.py` then have the answer
    "empty" with probability 1.

    Args:
        model: a model for SQuAD 1.1 or 2.0.
        tokenizer: the tokenizer with the model's vocabulary.
        settings: the version, the lengths of windows and limits of answers. Default:
            the released values, with version 2.0 only for the conditional head.
        threshold: the threshold for SQuAD 2.0; None answers all questions.

    Raises:
        InputError: the model is not for question answering, or the lengths, the
            threshold or the vocabulary do not fit it.
    """
    serving.check_class(
        model, models.AlbertSpanLabeler, models.AlbertConditionalSpanLabeler
    )
    is_linear = isinstance(model, models.AlbertSpanLabeler)
    options: Any = settings or SquadSettings()
    if options.version is None:
        options = dataclasses.replace(options, version="1.1" if is_linear else "2.0")
    longest = model.config.max_position_embeddings
    options = options.with_defaults(saved_settings=None, longest=longest)
    check_threshold(options.version, threshold)
    inputs = serving.TextInputs(
        model, tokenizer, options.max_seq_length, truncate=False, with_offsets=True
    )
    # The conditional head needs at least as many positions as candidates.
    min_length = 1 if is_linear else max(model.head.start_n_top, model.head.end_n_top)
    has_odds, size = options.version == "2.0", options.n_best_size

    def score(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        outputs = model(batch)
        if is_linear:
            return _score_pairs(outputs, batch["input_mask"], size)
        return _score_candidates(outputs, model.head.end_n_top)

    def answer(question: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
        # Each invalid byte becomes the character U+FFFD, so offsets count characters.
        context = tf.strings.unicode_transcode(context, "UTF-8", "UTF-8")
        query = inputs.tokenize(question)
        ids, begins, ends = inputs.tokenize.encode_with_offsets(context)
        query_lengths = tf.minimum(query.row_lengths(), options.max_query_length)
        windows = _Windows(ids, query_lengths, options)
        batch = windows.encode(query, ids, tokenizer, min_length)
        scores = serving.map_in_chunks(score, batch, _SCORE_SPECS)
        spans = windows.select_spans(scores, options.max_answer_length)
        spans = _add_texts(spans, context, begins.values, ends.values)
        best = _select_best(spans, tf.size(question), size)
        outputs = _make_outputs(best, size, has_odds)
        if has_odds:
            # The lowest "no answer" logit of all windows of each question.
            odds = tf.math.unsorted_segment_min(
                scores["null"], windows.row, tf.size(question)
            )
            outputs["null_odds"] = odds - outputs["score"] if is_linear else odds
        if threshold is not None:
            is_null = outputs["null_odds"] > threshold
            outputs["answer"] = tf.where(is_null, "", outputs["answer"])
            for name in _OFFSETS:
                outputs[name] = tf.where(is_null, -1, outputs[name])
        return outputs

    specs = {"question": serving.TEXTS, "context": serving.TEXTS}
    return serving.ServingFunction(model, inputs, answer, specs)


class _Windows:
    """The windows of all questions, divided as in `features.Windows`.

    Attributes:
        row: int32 [W], index of each window's question.
        length: int64 [W], number of tokens of the context in each window.
        query_length: int64 [W], number of tokens of each window's question.
        start: int64 [W], index of each window's first token of the context in the
            concatenated tokens of all contexts.
    """

    def __init__(self, ids: tf.RaggedTensor, query_lengths: tf.Tensor, settings):
        """Divides contexts into windows.

        Args:
            ids: int32 [B, None], the tokens of each context.
            query_lengths: int64 [B], number of tokens of each question.
            settings: settings with the lengths of windows.
        """
        total = ids.row_lengths()
        # Maximum number of context tokens in a window; 3 for [CLS] and two [SEP].
        size = settings.max_seq_length - query_lengths - 3
        step = tf.minimum(size, settings.doc_stride)
        # The number of windows of each question. It is rounded up, because the floor
        # division of a negative number rounds away from 0.
        count = 1 - tf.minimum(size - total, 0) // step
        row = tf.repeat(tf.range(tf.size(count)), count)
        self.row = row
        # The index of each window among the windows of its question.
        index = tf.ragged.range(count).values
        first = index * tf.gather(step, row)
        self.length = tf.minimum(tf.gather(size, row), tf.gather(total, row) - first)
        self.query_length = tf.gather(query_lengths, row)
        self.start = tf.gather(ids.row_starts(), row) + first
        self._max_context = self._has_max_context(tf.size(ids.values))

    def _has_max_context(self, count: tf.Tensor) -> tf.Tensor:
        """Returns `Window.max_context` of all windows, concatenated, bool.

        Args:
            count: number of tokens of all contexts, int32 [].
        """
        # For each token of each window: `inner` has its index in the window, `window`
        # the index of the window, `token` its index in the tokens of all contexts, and
        # `score` the score that `features._find_best_windows` describes.
        inner = tf.ragged.range(self.length)
        window = tf.cast(inner.value_rowids(), tf.int32)
        length = tf.gather(self.length, window)
        side = tf.minimum(inner.values, length - 1 - inner.values)
        score = tf.cast(side, tf.float64)
        score += SCORE_PER_TOKEN * tf.cast(length, tf.float64)
        token = tf.gather(self.start, window) + inner.values
        best = tf.math.unsorted_segment_max(score, token, count)
        # If several windows have the best score, the first one is the best window.
        windows = tf.where(score == tf.gather(best, token), window, _NO_WINDOW)
        best_window = tf.math.unsorted_segment_min(windows, token, count)
        return tf.gather(best_window, token) == window

    def encode(self, query, ids, tokenizer, min_length: int) -> dict[str, tf.Tensor]:
        """Returns the model's inputs, int32 [W, T].

        `p_mask` is 0 where an answer may be, at [CLS] and in the context, otherwise 1.

        Args:
            query: int32 [B, None], the tokens of each question.
            ids: int32 [B, None], the tokens of each context.
            tokenizer: the tokenizer with the model's vocabulary.
            min_length: minimum T.
        """
        query_start = tf.gather(query.row_starts(), self.row)
        rows = serving.assemble_segments(
            tokenizer,
            (query.values, query_start, self.query_length),
            (ids.values, self.start, self.length),
        )
        # The context begins after [CLS], the question and [SEP].
        begin = self.query_length + 2
        length = tf.maximum(tf.reduce_max(rows.row_lengths()), min_length)
        inputs = in_graph.pad(rows, begin, tokenizer.pad_id, tf.cast(length, tf.int32))
        position, begin = tf.range(length), begin[:, None]
        end = begin + self.length[:, None]
        is_possible = (position == 0) | (position >= begin) & (position < end)
        return {**inputs, "p_mask": tf.cast(~is_possible, tf.int32)}

    def select_spans(self, scores: Mapping[str, tf.Tensor], max_answer_length: int):
        """Returns the valid spans of all windows, as `answers.make_spans` does.

        Args:
            scores: `first` and `last`, int32 [W, candidates], positions; `score`,
                float64 [W, candidates].
            max_answer_length: maximum number of tokens of an answer.

        Returns:
            `row`, int32 [M], the index of each span's question; `first` and `last`,
            int32 [M], indices into the tokens of all contexts; and `score`, float64
            [M]; in the order of the windows.
        """
        start = tf.cast(self.query_length + 2, tf.int32)[:, None]
        length = tf.cast(self.length, tf.int32)[:, None]
        first, last = scores["first"] - start, scores["last"] - start
        is_valid = (first >= 0) & (last < length)
        is_valid &= (first <= last) & (last - first < max_answer_length)
        indices = tf.where(is_valid)
        window = indices[:, 0]
        first, last = tf.gather_nd(first, indices), tf.gather_nd(last, indices)
        # `_max_context` has a value for each context token, one window after the other.
        # `before` is the index of the first value of each span's window.
        before = tf.gather(tf.cumsum(self.length, exclusive=True), window)
        has_max = tf.gather(self._max_context, before + tf.cast(first, tf.int64))
        offset = tf.cast(tf.gather(self.start, window), tf.int32)
        spans = {
            "row": tf.gather(self.row, window),
            "first": offset + first,
            "last": offset + last,
            "score": tf.gather_nd(scores["score"], indices),
        }
        return {name: tf.boolean_mask(x, has_max) for name, x in spans.items()}


def _score_pairs(outputs, mask: tf.Tensor, n_best_size: int) -> dict[str, tf.Tensor]:
    """Combines each of the best starts with each of the best ends.

    The result has the tensors of `_SCORE_SPECS`. `null` is the score of "no answer":
    the sum of both logits of [CLS].

    Args:
        outputs: the outputs of the linear head.
        mask: the input mask, int32 [W, T].
        n_best_size: number of starts and of ends.
    """
    count = tf.minimum(tf.shape(mask)[1], n_best_size)
    tops = [
        tf.math.top_k(tf.where(mask > 0, outputs[name], -np.inf), count)
        for name in ("start_logits", "end_logits")
    ]
    # The best logits of starts and of ends, and their positions.
    (starts, first), (ends, last) = tops
    score = tf.cast(starts, tf.float64)[:, :, None] + tf.cast(ends, tf.float64)[:, None]
    shape = [-1, count * count]
    return {
        "first": tf.repeat(first, count, axis=1),
        "last": tf.tile(last, [1, count]),
        "score": tf.reshape(score, shape),
        "null": outputs["start_logits"][:, 0] + outputs["end_logits"][:, 0],
    }


def _score_candidates(outputs, end_n_top: int) -> dict[str, tf.Tensor]:
    """Returns the tensors of `_SCORE_SPECS` for the candidates of the conditional head.

    Args:
        outputs: the outputs of the head.
        end_n_top: number of ends for each start.
    """
    start = tf.repeat(outputs["start_top_log_probs"], end_n_top, axis=1)
    end = outputs["end_top_log_probs"]
    return {
        "first": tf.repeat(outputs["start_top_index"], end_n_top, axis=1),
        "last": outputs["end_top_index"],
        "score": tf.cast(start, tf.float64) + tf.cast(end, tf.float64),
        "null": outputs["cls_logits"],
    }


def _add_texts(spans, context: tf.Tensor, begins: tf.Tensor, ends: tf.Tensor):
    """Adds `text`, `begin` and `end` to the spans of `_Windows.select_spans`.

    Args:
        spans: int32 [M] `row`, `first` and `last`.
        context: string [B], the contexts.
        begins: int32 [N], the first character of each token of all contexts.
        ends: int32 [N], the character after the last one of each token.
    """
    begin, end = tf.gather(begins, spans["first"]), tf.gather(ends, spans["last"])
    texts = tf.strings.substr(
        tf.gather(context, spans["row"]), begin, end - begin, unit="UTF8_CHAR"
    )
    texts = in_graph.rstrip(texts)
    end = begin + tf.strings.length(texts, "UTF8_CHAR")
    return {**spans, "text": texts, "begin": begin, "end": end}


def _select_best(spans, total: tf.Tensor, size: int) -> dict[str, tf.RaggedTensor]:
    """Returns the best spans of each question, only one for each text.

    Args:
        spans: tensors [M] by name, in the order of the windows.
        total: number of questions, B.
        size: maximum number of spans per question.

    Returns:
        `text`, `score`, `begin` and `end`, ragged [B, None], best first.
    """
    # `order` has the indices of all spans, sorted by question, and then by score.
    by_score = tf.argsort(spans["score"], direction="DESCENDING", stable=True)
    order = tf.gather(
        by_score, tf.argsort(tf.gather(spans["row"], by_score), stable=True)
    )
    row, text = tf.gather(spans["row"], order), tf.gather(spans["text"], order)
    # A key is a question and a text. Of the spans with the same key, only the first one
    # stays in `order`. `index` has the index of each span's key.
    keys, index = tf.unique(tf.strings.join([tf.strings.as_string(row), text], " "))
    first = tf.math.unsorted_segment_min(tf.range(tf.size(index)), index, tf.size(keys))
    row, order = tf.gather(row, first), tf.gather(order, first)
    # The number of remaining spans of each question, also of questions without spans.
    counts = tf.math.bincount(row, minlength=total, maxlength=total, dtype=tf.int64)
    starts = tf.cumsum(counts, exclusive=True)
    # For each question, the indices in `order` of its first `size` spans.
    best = tf.ragged.range(starts, starts + tf.minimum(counts, size))
    order = tf.gather(order, best.values)
    return {
        name: best.with_values(tf.gather(spans[name], order))
        for name in ("text", "score", "begin", "end")
    }


def _make_outputs(best, size: int, has_odds: bool) -> dict[str, tf.Tensor]:
    """Returns the outputs of `question_answering`, except for `null_odds`.

    Args:
        best: the result of `_select_best`.
        size: number of spans per question; shorter lists are filled.
        has_odds: whether the version is SQuAD 2.0.
    """
    scores = best["score"].to_tensor(-np.inf, shape=[None, size])
    has_no_span = best["score"].row_lengths() == 0
    # If a question has no span, all its scores are -inf, and their softmax is NaN.
    zeros, is_empty = tf.zeros_like(scores), has_no_span[:, None]
    probabilities = tf.nn.softmax(tf.where(is_empty, zeros, scores))
    probabilities = tf.cast(tf.where(is_empty, zeros, probabilities), tf.float32)
    texts = best["text"].to_tensor("", shape=[None, size])
    # The score of a question without spans: the sum of `NO_SPAN_SCORE` for the start
    # and for the end in SQuAD 2.0, and 0 in SQuAD 1.1.
    empty_score = tf.constant(2 * NO_SPAN_SCORE if has_odds else 0, tf.float64)
    begin, end = (best[name].to_tensor(-1, shape=[None, size]) for name in _OFFSETS)
    return {
        "answer": texts[:, 0],
        "begin": begin[:, 0],
        "end": end[:, 0],
        "score": tf.cast(tf.where(has_no_span, empty_score, scores[:, 0]), tf.float32),
        "probability": probabilities[:, 0],
        "n_best_answers": texts,
        "n_best_probabilities": probabilities,
    }
