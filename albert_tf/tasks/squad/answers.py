"""Makes answers from scores of positions: n-best lists, null odds and files.

A model scores the positions of one window. `make_spans` makes spans from the scores,
and `merge` merges the spans of all windows of a question. `collect_answers` collects
the spans of all questions in `Answers`, which makes the contents of the files. High
null odds mean that a question probably has no answer.

**As released:** the valid spans, their order, the softmax over the n-best list and the
contents of the files, with two differences. First, the released code also searches the
logits of padding, so its answers depend on `max_seq_length`. Here padding is left out.
Second, the released code answers a question only if the null odds are below the
threshold. Here the null odds may also be equal to the threshold, as in the official
scripts.
"""

import dataclasses
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from albert_tf.tasks.squad.features import Window

# As released: the answer of SQuAD 1.1 if no span is valid.
NO_SPAN_TEXT = "empty"
# As released: the start score, and also the end score, of the empty answer of SQuAD 2.0
# if no span is valid.
NO_SPAN_SCORE = -1e6
# Outputs of the linear head from which answers are made.
LOGITS = ("start_logits", "end_logits")


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """A possible answer.

    Attributes:
        text: part of the context, without white space at its ends.
        start_score: score of the first token: a logit from the linear head, a log
            probability from the conditional head.
        end_score: score of the last token, also a logit or a log probability.
        begin: index of the first character in the context; -1 if the answer is not from
            the context.
        end: index of the character after the last one, or -1.
    """

    text: str
    start_score: float
    end_score: float
    begin: int = -1
    end: int = -1

    @property
    def score(self) -> float:
        """The sum of the start score and the end score, by which spans are sorted."""
        return self.start_score + self.end_score


def make_spans(
    window: Window, outputs: Mapping[str, np.ndarray], settings: Any
) -> tuple[list[Span], float]:
    """Makes the spans of one window from the scores of its positions.

    For the linear head, the best starts and ends are chosen from all positions,
    including [CLS], [SEP] and the question. So a window may have no valid span.

    Args:
        window: the input of the model, with T tokens.
        outputs: for the linear head, `start_logits` and `end_logits`, float [T], or
            longer with padding. For the conditional head with S starts and E ends for
            each start: `start_top_index` and `start_top_log_probs` [S], `end_top_index`
            and `end_top_log_probs` [S * E], ordered by start, and `cls_logits` [].
        settings: settings with `head`, `n_best_size` and `max_answer_length`.

    Returns:
        At most `n_best_size` spans with different texts, best first; and the logit of
        "no answer": `cls_logits`, or for the linear head the sum of both logits of
        [CLS].
    """
    # `firsts` and `lasts` are pairs of a start and an end, as positions in the window.
    if settings.head == "linear":
        # The logits after the window's last token are those of padding.
        start_logits, end_logits = (outputs[name][: len(window.ids)] for name in LOGITS)
        # The best positions, separately for starts and for ends.
        starts, ends = (
            np.argsort(-logits, kind="stable")[: settings.n_best_size]
            for logits in (start_logits, end_logits)
        )
        # Each start is paired with each end.
        firsts, lasts = np.repeat(starts, len(ends)), np.tile(ends, len(starts))
        start_scores, end_scores = start_logits[firsts], end_logits[lasts]
        null_logit = float(start_logits[0]) + float(end_logits[0])
    else:
        lasts, end_scores = outputs["end_top_index"], outputs["end_top_log_probs"]
        names = ("start_top_index", "start_top_log_probs")
        # Each start is repeated for its E ends.
        firsts, start_scores = (
            np.repeat(outputs[name], len(lasts) // len(outputs[name])) for name in names
        )
        null_logit = float(outputs["cls_logits"])
    count = len(window.max_context)
    # `first` and `last` are indices of context tokens. They are negative before the
    # context, and `count` or higher after it.
    first, last = firsts - window.context_start, lasts - window.context_start
    is_valid = (first >= 0) & (last < count)
    is_valid &= (first <= last) & (last - first < settings.max_answer_length)
    # An answer begins only at a token that has more context in this window than in the
    # others. For an invalid pair, `first` may be out of range, so index 0 is read
    # instead.
    is_valid &= window.max_context[np.where(is_valid, first, 0)] if count else False
    # Indices of the valid pairs, the one with the highest score first.
    pairs = np.flatnonzero(is_valid)
    total = start_scores[pairs].astype(float) + end_scores[pairs]
    pairs = pairs[np.argsort(-total, kind="stable")]

    def make_span(pair: Any) -> Span:
        begin, end, text = window.extract_answer(int(first[pair]), int(last[pair]))
        start_score, end_score = float(start_scores[pair]), float(end_scores[pair])
        return Span(text, start_score, end_score, begin, end)

    return _drop_repeated_texts(map(make_span, pairs), settings.n_best_size), null_logit


def _drop_repeated_texts(spans: Iterable[Span], size: int) -> list[Span]:
    """Returns the first span of each text, in order, and at most `size` spans."""
    best: dict[str, Span] = {}
    for span in spans:
        best.setdefault(span.text, span)
        if len(best) == size:
            break
    return list(best.values())


def merge(
    window_spans: Sequence[tuple[list[Span], float]], settings: Any
) -> tuple[list[Span], float | None]:
    """Merges the spans of all windows of one question.

    Spans with equal scores stay in the order of the windows.

    Args:
        window_spans: the result of `make_spans` for each window of the question.
        settings: settings with `version`, `head` and `n_best_size`.

    Returns:
        The spans of the n-best list, which is never empty; and the null odds, which
        are None in SQuAD 1.1. The null odds are the lowest logit of "no answer" of all
        windows. For the linear head, the score of the best span is subtracted from it.
    """
    all_spans = itertools.chain.from_iterable(spans for spans, _ in window_spans)
    spans = sorted(all_spans, key=lambda span: -span.score)
    best = _drop_repeated_texts(spans, settings.n_best_size)
    if settings.version == "1.1":
        return best or [Span(NO_SPAN_TEXT, start_score=0.0, end_score=0.0)], None
    best = best or [Span("", start_score=NO_SPAN_SCORE, end_score=NO_SPAN_SCORE)]
    odds = min(float(logit) for _, logit in window_spans)
    if settings.head == "linear":
        odds -= best[0].score
    return best, odds


@dataclasses.dataclass(frozen=True)
class Answers:
    """The answers to questions, by question id, in the order of the file.

    Attributes:
        texts: the text of the best span of each question, also if the null odds are
            above a threshold.
        null_odds: the null odds of each question, see `merge`; empty in SQuAD 1.1.
        n_best: for each question, its entries of `nbest_predictions.json`, by (text,
            begin, end) of the span.
        n_best_size: maximum number of entries of a question.
    """

    texts: dict[str, str]
    null_odds: dict[str, float]
    n_best: dict[str, dict[tuple, dict]] = dataclasses.field(default_factory=dict)
    n_best_size: int = 20

    def __add__(self, other: Self) -> Self:
        """Adds the answers of another model to the same questions, for an ensemble.

        The null odds are added, and so are the probabilities of spans with the same
        text and characters. The scores of a span are from the first model that has the
        span.
        """
        n_best = {}
        for id, entries in self.n_best.items():
            n_best[id] = dict(entries)
            for key, entry in other.n_best[id].items():
                # A span that only the other model has counts as probability 0 here.
                earlier_entry = entries.get(key, {**entry, "probability": 0.0})
                total = earlier_entry["probability"] + entry["probability"]
                n_best[id][key] = {**earlier_entry, "probability": total}
        sums = {id: odds + other.null_odds[id] for id, odds in self.null_odds.items()}
        return dataclasses.replace(self, null_odds=sums, n_best=n_best)

    def __truediv__(self, count: int) -> Self:
        """Divides sums over models by the number of models, for an ensemble.

        The spans of each question are sorted by their mean probability, and the first
        `n_best_size` spans are kept.
        """
        n_best = {}
        for id, entries in self.n_best.items():
            means = [
                (key, {**entry, "probability": entry["probability"] / count})
                for key, entry in entries.items()
            ]
            means.sort(key=lambda pair: -pair[1]["probability"])
            n_best[id] = dict(means[: self.n_best_size])
        return dataclasses.replace(
            self,
            # The first key of the entries is the best span, and begins with its text.
            texts={id: next(iter(entries))[0] for id, entries in n_best.items()},
            null_odds={id: odds / count for id, odds in self.null_odds.items()},
            n_best=n_best,
        )

    def apply_null_threshold(self, threshold: float | None = None) -> dict[str, str]:
        """Returns an answer by question id; "" if the null odds are above a threshold.

        Args:
            threshold: the threshold; with None, no answer is replaced by "".
        """
        if threshold is None:
            return {**self.texts}
        return {
            id: "" if self.null_odds.get(id, -math.inf) > threshold else text
            for id, text in self.texts.items()
        }

    def files(self, threshold: float | None = None) -> dict[str, str]:
        """Returns the contents of the released files by name.

        SQuAD 1.1 has no null odds, and therefore no `null_odds.json`.

        Args:
            threshold: null odds above it give the answer "" in `predictions.json`; with
                None, no answer is replaced by "".
        """
        n_best = {id: list(entries.values()) for id, entries in self.n_best.items()}
        files = {
            "nbest_predictions.json": n_best,
            "predictions.json": self.apply_null_threshold(threshold),
            "null_odds.json": self.null_odds,
        }
        return {
            name: json.dumps(contents, indent=4) + "\n"
            for name, contents in files.items()
            if contents
        }


def collect_answers(
    windows: Iterable[Window],
    predictions: Iterable[Mapping[str, np.ndarray]],
    settings: Any,
) -> Answers:
    """Makes the answers to questions from the outputs of a model.

    Because of --max_eval_steps, an evaluation can end before the last window of a
    question. Then this question and all later ones have no answers.

    Args:
        windows: the inputs of the model; the windows of a question are adjacent.
        predictions: the outputs for each window, in the same order.
        settings: settings with `version`, `head`, `n_best_size` and
            `max_answer_length`.
    """
    answers = Answers(texts={}, null_odds={}, n_best_size=settings.n_best_size)
    predictions = iter(predictions)
    for id, group in itertools.groupby(windows, lambda window: window.question.id):
        question_windows = list(group)
        outputs = list(itertools.islice(predictions, len(question_windows)))
        if len(outputs) < len(question_windows):
            break
        pairs = zip(question_windows, outputs, strict=True)
        spans, odds = merge([make_spans(*pair, settings) for pair in pairs], settings)
        answers.texts[id] = spans[0].text
        if odds is not None:
            answers.null_odds[id] = odds
        answers.n_best[id] = make_n_best(spans)
    return answers


def make_n_best(spans: Sequence[Span]) -> dict[tuple, dict]:
    """Returns the entries of `Answers.n_best` for the spans of one question.

    The probabilities are the softmax of the scores of all spans.
    """
    highest = max(span.score for span in spans)
    weights = [math.exp(span.score - highest) for span in spans]
    total = sum(weights)
    return {
        (span.text, span.begin, span.end): {
            "text": span.text,
            "probability": weight / total,
            "start_log_prob": span.start_score,
            "end_log_prob": span.end_score,
        }
        for span, weight in zip(spans, weights, strict=True)
    }
