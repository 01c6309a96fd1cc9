"""Questions answered from raw text, wholly inside a graph.

So any program that loads a SavedModel can ask, not only Python. What `features` and
`answers` do for one question after the other is done here for a whole batch at once.
Letters: B questions, W windows of all questions, T tokens of a window, M spans.
"""

from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from albert_tf.errors import InputError
from albert_tf.model import models
from albert_tf.tasks.pipelines import check_inputs
from albert_tf.tasks.serving import TEXTS, ServingFunction, map_in_chunks
from albert_tf.tasks.squad.answers import NO_SPAN_SCORE, Search
from albert_tf.tasks.squad.features import PER_TOKEN, Lengths
from albert_tf.tasks.squad.pipeline import check_threshold
from albert_tf.text import in_graph
from albert_tf.text.in_graph import GraphTokenizer, without_end_spaces
from albert_tf.text.tokenization import Tokenizer
from albert_tf.weights import metadata

_FAR = np.iinfo(np.int32).max


def question_answering(
    model: models.AlbertSpanLabeler | models.AlbertConditionalSpanLabeler,
    tokenizer: Tokenizer,
    *,
    lengths: Lengths | None = None,
    search: Search | None = None,
    version: str | None = None,
    threshold: float | None = None,
) -> ServingFunction:
    """Returns what answers questions from a passage of any length.

    Inputs: `question` and `context`, string [B]. Outputs: `answer`, string [B];
    `begin` and `end`, int32 [B], its characters in the context, -1 where it is not from
    there; `score`, float32 [B], what spans are ordered by; `probability`, float32 [B],
    of the span among those of the n-best list, which `n_best_answers` and
    `n_best_probabilities` [B, n] hold, "" and 0 behind their ends. A model of SQuAD 2.0
    also gives `null_odds`, float32 [B], the logit of "no answer" (of a linear head the
    null score less the best span's); above `threshold` the answer is "", and begin and
    end are -1, while the other outputs stay.

    Where there is no span at all, as in an empty context, the answer is "", and its
    probability 0. **As released:** the files of `run_squad.py` have "empty" with
    probability 1 there, in SQuAD 1.1.

    Padding takes no part: the spans are those that `answers` finds in the scores of the
    window's own positions.

    Args:
        model: of SQuAD 1.1 or 2.0.
        tokenizer: the vocabulary.
        lengths: of windows; None takes the released ones.
        search: what counts as an answer; None takes the released settings.
        version: "1.1", or "2.0" where a question may have no answer; None: as
            released, 2.0 with the conditional head alone.
        threshold: for 2.0; None answers every question.

    Raises:
        InputError: the model, the lengths, the threshold or the vocabulary do not fit.
    """
    kinds = (models.AlbertSpanLabeler, models.AlbertConditionalSpanLabeler)
    if not isinstance(model, kinds):
        raise InputError(f"{type(model).__name__}: expected a model of spans")
    if version is None:
        version = "2.0" if _is_conditional(model) else "1.1"
    check_threshold(version, threshold)
    lengths, search = lengths or Lengths(), search or Search()
    check_inputs(model.config, tokenizer, lengths.max_seq_length)
    graph = _Questions(model, tokenizer, lengths, search, version == "2.0", threshold)
    specs = {"question": TEXTS, "context": TEXTS}
    return ServingFunction(model, graph, graph.answer, specs)


class _Questions(tf.Module):
    def __init__(
        self, model, tokenizer: Tokenizer, lengths, search, optional, threshold
    ):
        super().__init__()
        score = _beams if _is_conditional(model) else _pairs
        # Not the model itself: an attribute would be saved as a Keras model too.
        self._score = lambda inputs: score(model, inputs, search)
        self._optional = optional
        # A linear head has no odds, but a score of no answer to compare with others.
        self._compares = not _is_conditional(model)
        self.vocabulary = metadata.identity_json(tokenizer)
        self._tokenize = GraphTokenizer(tokenizer, with_offsets=True)
        self._special = (tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id)
        self._lengths, self._search, self._threshold = lengths, search, threshold
        self._shortest = _candidates(model)

    def answer(self, question: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
        """Answers questions, string [B], from contexts, string [B]."""
        # The bytes that are no UTF-8 become the characters that tokens are counted in.
        context = tf.strings.unicode_transcode(context, "UTF-8", "UTF-8")
        query = self._tokenize(question)
        ids, begins, ends = self._tokenize.encode_with_offsets(context)
        kept = tf.minimum(query.row_lengths(), self._lengths.max_query_length)
        windows = _Windows(ids, kept, self._lengths)
        inputs = windows.inputs(query, ids, self._special, self._shortest)
        scored = map_in_chunks(self._score, inputs, _SCORED)
        valid = windows.valid(scored, self._search.max_answer_length)
        spans = _with_texts(valid, context, begins.values, ends.values)
        best = _n_best(spans, tf.size(question), self._search.n_best_size)
        outputs = _outputs(best, self._search.n_best_size, self._optional)
        if self._optional:
            odds = tf.math.unsorted_segment_min(
                scored["null"], windows.row, tf.size(question)
            )
            if self._compares:
                odds -= outputs["score"]
            outputs["null_odds"] = odds
            if self._threshold is not None:
                outputs = _without_answers(outputs, odds > self._threshold)
        return outputs


class _Windows:
    """The windows of all questions; see `features`.

    Attributes:
        row: int32 [W], the question of each.
    """

    def __init__(self, ids: tf.RaggedTensor, query_lengths: tf.Tensor, lengths):
        """Lays windows over contexts.

        Args:
            ids: int32 [B, None], the tokens of each context.
            query_lengths: int64 [B], the tokens of each question.
            lengths: of windows.
        """
        total = ids.row_lengths()
        room = lengths.max_seq_length - query_lengths - 3
        step = tf.minimum(room, lengths.doc_stride)
        count = 1 - tf.minimum(room - total, 0) // step
        row = tf.repeat(tf.range(tf.size(count)), count)
        self.row = row
        index = tf.ragged.range(count).values
        first = index * tf.gather(step, row)
        self.length = tf.minimum(tf.gather(room, row), tf.gather(total, row) - first)
        self.query_length = tf.gather(query_lengths, row)
        # In the tokens of all contexts, one after the other.
        self.start = tf.gather(ids.row_starts(), row) + first
        self._max_context = self._in_middle(tf.size(ids.values))

    def _in_middle(self, count: tf.Tensor) -> tf.Tensor:
        """Returns of every token of every window if it has most text around it there.

        Args:
            count: tokens of all contexts, int32 [].

        Returns:
            bool, those of one window after the other.
        """
        inner = tf.ragged.range(self.length)
        window = tf.cast(inner.value_rowids(), tf.int32)
        length = tf.gather(self.length, window)
        side = tf.minimum(inner.values, length - 1 - inner.values)
        score = tf.cast(side, tf.float64) + PER_TOKEN * tf.cast(length, tf.float64)
        token = tf.gather(self.start, window) + inner.values
        best = tf.math.unsorted_segment_max(score, token, count)
        first = tf.where(score == tf.gather(best, token), window, _FAR)
        owner = tf.math.unsorted_segment_min(first, token, count)
        return tf.gather(owner, token) == window

    def inputs(self, query, ids, special, shortest: int) -> dict[str, tf.Tensor]:
        """Returns the model's inputs, int32 [W, T], `p_mask` included.

        Args:
            query: int32 [B, None], the questions.
            ids: int32 [B, None], the contexts.
            special: ids of [CLS], [SEP] and padding.
            shortest: T at least.
        """
        cls, sep, pad = special
        one = tf.ones_like(self.length)
        rows = in_graph.assemble(
            [
                in_graph.single(cls, one),
                (
                    query.values,
                    tf.gather(query.row_starts(), self.row),
                    self.query_length,
                ),
                in_graph.single(sep, one),
                (ids.values, self.start, self.length),
                in_graph.single(sep, one),
            ]
        )
        begin = self.query_length + 2
        longest = tf.maximum(tf.reduce_max(rows.row_lengths()), shortest)
        inputs = in_graph.pad(rows, begin, pad, tf.cast(longest, tf.int32))
        place = tf.range(longest)
        inside = (place >= begin[:, None]) & (place < (begin + self.length)[:, None])
        possible = inside | (place == 0)
        return {**inputs, "p_mask": tf.cast(~possible, tf.int32)}

    def valid(self, scored: Mapping[str, tf.Tensor], longest: int):
        """Keeps the candidates that can be answers; see `answers`.

        Args:
            scored: `first` and `last`, int32 [W, candidates], positions; `score`,
                float64 [W, candidates].
            longest: tokens of an answer at most.

        Returns:
            dict of `row` int32 [M], `first` and `last` int32 [M], tokens of all
            contexts, and `score` float64 [M]; windows in order.
        """
        start = tf.cast(self.query_length + 2, tf.int32)[:, None]
        length = tf.cast(self.length, tf.int32)[:, None]
        first, last = scored["first"] - start, scored["last"] - start
        can = (first >= 0) & (last < length)
        can &= (first <= last) & (last - first < longest)
        places = tf.where(can)
        window = places[:, 0]
        first, last = tf.gather_nd(first, places), tf.gather_nd(last, places)
        before = tf.cumsum(self.length, exclusive=True)
        at = tf.gather(before, window) + tf.cast(first, tf.int64)
        middle = tf.gather(self._max_context, at)
        token = tf.cast(tf.gather(self.start, window), tf.int32)
        spans = {
            "row": tf.gather(self.row, window),
            "first": token + first,
            "last": token + last,
            "score": tf.gather_nd(scored["score"], places),
        }
        return {name: tf.boolean_mask(x, middle) for name, x in spans.items()}


def _is_conditional(model: keras.Model) -> bool:
    return isinstance(model, models.AlbertConditionalSpanLabeler)


def _candidates(model: keras.Model) -> int:
    """Returns how many positions a window needs for the model's search."""
    if _is_conditional(model):
        return max(model.head.start_n_top, model.head.end_n_top)
    return 1


_SCORED = {
    "first": tf.TensorSpec([None, None], tf.int32),
    "last": tf.TensorSpec([None, None], tf.int32),
    "score": tf.TensorSpec([None, None], tf.float64),
    "null": tf.TensorSpec([None], tf.float32),
}


def _pairs(model, inputs, search) -> dict[str, tf.Tensor]:
    """Combines the best starts and ends; see `answers.spans_of_logits`.

    `null` is the score of no answer: that of the first token alone.
    """
    outputs = model(inputs)
    count = tf.minimum(tf.shape(inputs["input_ids"])[1], search.n_best_size)
    tops = [
        tf.math.top_k(tf.where(inputs["input_mask"] > 0, outputs[name], -np.inf), count)
        for name in ("start_logits", "end_logits")
    ]
    (start, first), (end, last) = tops
    score = tf.cast(start, tf.float64)[:, :, None] + tf.cast(end, tf.float64)[:, None]
    shape = [-1, count * count]
    return {
        "first": tf.repeat(first, count, axis=1),
        "last": tf.tile(last, [1, count]),
        "score": tf.reshape(score, shape),
        "null": outputs["start_logits"][:, 0] + outputs["end_logits"][:, 0],
    }


def _beams(model, inputs, search) -> dict[str, tf.Tensor]:
    """Returns the spans of a conditional head; see `answers.spans_of_beams`."""
    outputs = model(inputs)
    each = model.head.end_n_top
    start = tf.repeat(outputs["start_top_log_probs"], each, axis=1)
    end = outputs["end_top_log_probs"]
    return {
        "first": tf.repeat(outputs["start_top_index"], each, axis=1),
        "last": outputs["end_top_index"],
        "score": tf.cast(start, tf.float64) + tf.cast(end, tf.float64),
        "null": outputs["cls_logits"],
    }


def _with_texts(spans, context: tf.Tensor, begins: tf.Tensor, ends: tf.Tensor):
    """Adds `text`, `begin` and `end` to the spans of `_Windows.valid`.

    Args:
        spans: int32 [M] `row`, `first` and `last`.
        context: string [B].
        begins: int32 [N], where the tokens of all contexts begin in their text.
        ends: int32 [N], where they end.
    """
    begin, end = tf.gather(begins, spans["first"]), tf.gather(ends, spans["last"])
    texts = tf.strings.substr(
        tf.gather(context, spans["row"]), begin, end - begin, unit="UTF8_CHAR"
    )
    texts = without_end_spaces(texts)
    end = begin + tf.strings.length(texts, "UTF8_CHAR")
    return {**spans, "text": texts, "begin": begin, "end": end}


def _n_best(spans, rows: tf.Tensor, size: int) -> dict[str, tf.RaggedTensor]:
    """Keeps the best spans of each question, of those with one text the best.

    Args:
        spans: dict of tensors [M], those of one question in the order of its windows.
        rows: B.
        size: how many to keep.

    Returns:
        `text`, `score`, `begin` and `end`, ragged [B, at most size], best first.
    """
    by_score = tf.argsort(spans["score"], direction="DESCENDING", stable=True)
    order = tf.gather(
        by_score, tf.argsort(tf.gather(spans["row"], by_score), stable=True)
    )
    row, text = tf.gather(spans["row"], order), tf.gather(spans["text"], order)
    keys, number = tf.unique(tf.strings.join([tf.strings.as_string(row), text], " "))
    first = tf.math.unsorted_segment_min(
        tf.range(tf.size(number)), number, tf.size(keys)
    )
    row, order = tf.gather(row, first), tf.gather(order, first)
    counts = tf.math.bincount(row, minlength=rows, maxlength=rows, dtype=tf.int64)
    starts = tf.cumsum(counts, exclusive=True)
    kept = tf.ragged.range(starts, starts + tf.minimum(counts, size))
    order = tf.gather(order, kept.values)
    return {
        name: kept.with_values(tf.gather(spans[name], order))
        for name in ("text", "score", "begin", "end")
    }


def _outputs(best, size: int, optional: bool) -> dict[str, tf.Tensor]:
    """Returns the outputs of n-best lists; see `answers.Candidates.listed`."""
    scores = best["score"].to_tensor(-np.inf, shape=[None, size])
    none = best["score"].row_lengths() == 0
    zeros, is_empty = tf.zeros_like(scores), none[:, None]
    probabilities = tf.nn.softmax(tf.where(is_empty, zeros, scores))
    probabilities = tf.cast(tf.where(is_empty, zeros, probabilities), tf.float32)
    texts = best["text"].to_tensor("", shape=[None, size])
    score = tf.constant(2 * NO_SPAN_SCORE if optional else 0, tf.float64)
    begin, end = (best[name].to_tensor(-1, shape=[None, size]) for name in _ENDS)
    return {
        "answer": texts[:, 0],
        "begin": begin[:, 0],
        "end": end[:, 0],
        "score": tf.cast(tf.where(none, score, scores[:, 0]), tf.float32),
        "probability": probabilities[:, 0],
        "n_best_answers": texts,
        "n_best_probabilities": probabilities,
    }


_ENDS = ("begin", "end")


def _without_answers(outputs, withheld: tf.Tensor) -> dict[str, tf.Tensor]:
    """Returns outputs without the answers where `withheld`, bool [B]."""
    return {
        **outputs,
        "answer": tf.where(withheld, "", outputs["answer"]),
        **{name: tf.where(withheld, -1, outputs[name]) for name in _ENDS},
    }
