"""Scores of positions to answers: n-best lists, null odds, thresholds and files.

A model scores the positions of one window; `spans_of_logits` (SQuAD 1.1) and
`spans_of_beams` (SQuAD 2.0) make spans of that, `candidates` merges the windows of a
question, and `gather` keeps what the files hold.

Which spans are valid, their order, the softmax over the n-best list and what stands in
the files are the release's.

**As released:** in SQuAD 1.1 the logits of padding are searched for starts and ends;
here they are left out, see `spans_of_logits`. A question is answered where its null
odds are below the threshold; here also where they are equal, as in the official
scripts.
"""

import dataclasses
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from albert_tf.tasks.squad.features import Window, Windows

# What the release writes for a question of SQuAD 1.1 of which no span is valid.
NO_SPAN_TEXT = "empty"
# The score of the release for the one empty answer where no span of 2.0 is valid.
NO_SPAN_SCORE = -1e6


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """A possible answer.

    Attributes:
        text: of the context, without white space at its ends.
        start_score: of its first token, a logit (1.1) or a log probability (2.0).
        end_score: of its last token.
        begin: its first character in the context; -1 for an answer not from there.
        end: the character after its last.
    """

    text: str
    start_score: float
    end_score: float
    begin: int = -1
    end: int = -1

    @property
    def score(self) -> float:
        """What spans are ordered by."""
        return self.start_score + self.end_score


@dataclasses.dataclass(frozen=True)
class Search:
    """What counts as an answer; see the released flags of the same names.

    Attributes:
        n_best_size: spans of a question that are kept, and of 1.1 also the starts and
            the ends of a window that are combined.
        max_answer_length: tokens of an answer at most.
    """

    n_best_size: int = 20
    max_answer_length: int = 30


def spans_of_logits(
    window: Window, start_logits: np.ndarray, end_logits: np.ndarray, search: Search
) -> list[Span]:
    """Makes spans of the best starts and ends of a window, for SQuAD 1.1.

    The best are drawn from all positions of the window, also those where no answer can
    be ([CLS], the question, [SEP]), so a window may have no span at all.

    **As released:** padding is searched, too: where its logits are among the best they
    take the places of spans, and answers depend on `max_seq_length`. Here the caller
    leaves it out, so that neither the length nor the neighbours in a batch decide; to
    search it, give its logits.

    Args:
        window: what the model read.
        start_logits: float [positions], of each position as an answer's first; all
            that are given are searched.
        end_logits: float [positions], of each position as its last.
        search: what counts as an answer.

    Returns:
        At most `n_best_size` spans with different texts, best first.
    """
    starts, ends = (
        np.argsort(-logits, kind="stable")[: search.n_best_size]
        for logits in (start_logits, end_logits)
    )
    first, last = np.repeat(starts, len(ends)), np.tile(ends, len(starts))
    return _valid(window, first, last, start_logits[first], end_logits[last], search)


def spans_of_beams(
    window: Window, outputs: Mapping[str, np.ndarray], search: Search
) -> list[Span]:
    """Makes spans of the starts and ends that a model of SQuAD 2.0 gives for a window.

    Args:
        window: what the model read.
        outputs: `start_top_index` and `start_top_log_probs` [S], `end_top_index` and
            `end_top_log_probs` [S * E] or [S, E], the ends of each start in turn.
        search: what counts as an answer.

    Returns:
        At most `n_best_size` spans with different texts, best first.
    """
    starts = outputs["start_top_index"]
    ends = outputs["end_top_index"].reshape(-1)
    each = len(ends) // len(starts)
    return _valid(
        window,
        np.repeat(starts, each),
        ends,
        np.repeat(outputs["start_top_log_probs"], each),
        outputs["end_top_log_probs"].reshape(-1),
        search,
    )


def _valid(
    window: Window,
    first: np.ndarray,
    last: np.ndarray,
    start_scores: np.ndarray,
    end_scores: np.ndarray,
    search: Search,
) -> list[Span]:
    """Keeps the candidates that can be answers; all arrays are [candidates]."""
    count = len(window.max_context)
    first, last = first - window.context_start, last - window.context_start
    valid = (first >= 0) & (last < count)
    valid &= (first <= last) & (last - first < search.max_answer_length)
    valid &= window.max_context[np.where(valid, first, 0)] if count else False
    places = np.flatnonzero(valid)
    total = start_scores[places].astype(float) + end_scores[places]
    places = places[np.argsort(-total, kind="stable")]
    return _best(
        (
            Span(text, float(start_scores[i]), float(end_scores[i]), begin, end)
            for i in places
            for begin, end, text in [window.answer(int(first[i]), int(last[i]))]
        ),
        search.n_best_size,
    )


def _best(spans: Iterable[Span], size: int) -> list[Span]:
    """Returns the first of some sorted spans that have different texts."""
    best: dict[str, Span] = {}
    for span in spans:
        best.setdefault(span.text, span)
        if len(best) == size:
            break
    return list(best.values())


@dataclasses.dataclass(frozen=True, slots=True)
class Candidates:
    """The possible answers of one question.

    Attributes:
        spans: best first, with different texts; none where no span was valid.
        null_odds: logit of "no answer"; None in SQuAD 1.1.
    """

    spans: tuple[Span, ...]
    null_odds: float | None

    def listed(self) -> tuple[Span, ...]:
        """Returns the n-best list as written: never empty."""
        if self.spans:
            return self.spans
        if self.null_odds is None:
            return (Span(NO_SPAN_TEXT, 0.0, 0.0),)
        return (Span("", NO_SPAN_SCORE, NO_SPAN_SCORE),)


LOGITS = ("start_logits", "end_logits")


def candidates(
    windows: Windows,
    predictions: Iterable[Mapping[str, np.ndarray]],
    search: Search,
    head: str,
    version: str,
) -> Iterator[tuple[str, Candidates]]:
    """Finds the possible answers of one question after the other.

    Of a question whose windows were not all seen nothing comes.

    Args:
        windows: what was read.
        predictions: of each, in the same order.
        search: what counts as an answer.
        head: "conditional" or "linear".
        version: "1.1", or "2.0" where a question may have no answer.
    """
    predictions = iter(predictions)
    for number, question in enumerate(windows.questions):
        places = range(*windows.bounds[number : number + 2].tolist())
        scored = list(itertools.islice(predictions, len(places)))
        if len(scored) < len(places):
            return
        if not scored:  # the question is left out
            continue
        each = [
            _spans(windows[place], one, search, head)
            for place, one in zip(places, scored, strict=True)
        ]
        if version == "1.1":
            each = [(spans, None) for spans, _ in each]
        found = merge(each, search)
        if head != "conditional" and found.null_odds is not None:
            # The null score becomes odds against the best span.
            odds = found.null_odds - found.listed()[0].score
            found = dataclasses.replace(found, null_odds=odds)
        yield question.id, found


def merge(
    windows: Sequence[tuple[list[Span], float | None]], search: Search
) -> Candidates:
    """Merges the windows of one question; their order decides ties.

    Args:
        windows: the spans of each, and its logit of "no answer" in SQuAD 2.0, of which
            the least counts.
        search: what counts as an answer.
    """
    spans = itertools.chain.from_iterable(spans for spans, _ in windows)
    best = _best(sorted(spans, key=lambda span: -span.score), search.n_best_size)
    odds = [float(null) for _, null in windows if null is not None]
    return Candidates(tuple(best), min(odds, default=None))


def _spans(
    window: Window, scored: Mapping[str, np.ndarray], search: Search, head: str
) -> tuple[list[Span], float | None]:
    """Returns the spans of a window, and its null odds or null score.

    **As released:** the linear head's logits of padding are searched, too. Here they
    are left out, so that the neighbours in a batch decide nothing.
    """
    if head == "conditional":
        return spans_of_beams(window, scored, search), float(scored["cls_logits"])
    start, end = (scored[name][: len(window.ids)] for name in LOGITS)
    null = float(start[0]) + float(end[0])
    return spans_of_logits(window, start, end, search), null


@dataclasses.dataclass(frozen=True)
class Answers:
    """What is kept of every question, by id, in the order of the file.

    Attributes:
        texts: the best text of each, whatever the odds.
        null_odds: logit of "no answer" of each; empty in SQuAD 1.1.
        n_best: see the function; empty if it was not asked for.
        places: of each entry of `n_best`, its first character and the one after its
            last.
        n_best_size: entries of `n_best` at most.
    """

    texts: dict[str, str]
    null_odds: dict[str, float]
    n_best: dict[str, list[dict]] = dataclasses.field(default_factory=dict)
    places: dict[str, list[tuple[int, int]]] = dataclasses.field(default_factory=dict)
    n_best_size: int = 20

    def __add__(self, other: Self) -> Self:
        """Adds null odds, and the probabilities of spans with the same text and place.

        The scores of a span are those of the first model that has it.
        """
        n_best, places = {}, {}
        for id in self.n_best:
            merged: dict[Any, dict] = {}
            for each in (self, other):
                for entry, place in zip(each.n_best[id], each.places[id], strict=True):
                    key = entry["text"], place
                    earlier = merged.get(key, {**entry, "probability": 0.0})
                    total = earlier["probability"] + entry["probability"]
                    merged[key] = {**earlier, "probability": total}
            n_best[id] = list(merged.values())
            places[id] = [place for _, place in merged]
        null_odds = {
            id: odds + other.null_odds[id] for id, odds in self.null_odds.items()
        }
        return dataclasses.replace(
            self, null_odds=null_odds, n_best=n_best, places=places
        )

    def __truediv__(self, count: int) -> Self:
        """Divides a sum, sorts its spans and keeps the first `n_best_size`."""
        n_best = {}
        for id, entries in self.n_best.items():
            means = [{**e, "probability": e["probability"] / count} for e in entries]
            means.sort(key=lambda entry: -entry["probability"])
            n_best[id] = means[: self.n_best_size]
        return dataclasses.replace(
            self,
            texts={id: entries[0]["text"] for id, entries in n_best.items()},
            null_odds={id: odds / count for id, odds in self.null_odds.items()},
            n_best=n_best,
        )

    def __len__(self) -> int:
        """Returns the number of questions."""
        return len(self.texts)

    def decided(self, threshold: float | None = None) -> dict[str, str]:
        """Returns the answers: "" where the null odds are above a threshold.

        Args:
            threshold: None answers every question.
        """
        if threshold is None:
            return self.texts
        odds = self.null_odds
        return {
            id: "" if id in odds and odds[id] > threshold else text
            for id, text in self.texts.items()
        }

    def files(self, threshold: float | None = None) -> dict[str, str]:
        """Returns the released files, without those that would hold nothing.

        Args:
            threshold: see `decided`.
        """
        files = {
            "nbest_predictions.json": self.n_best,
            "predictions.json": self.decided(threshold),
            "null_odds.json": self.null_odds,
        }
        return {
            name: json.dumps(contents, indent=4) + "\n"
            for name, contents in files.items()
            if contents or name == "predictions.json"
        }


def gather(
    questions: Iterable[tuple[str, Candidates]],
    keeps_n_best: bool = False,
    n_best_size: int = 20,
) -> Answers:
    """Keeps the best answer of each question.

    Args:
        questions: the candidates of one after the other, with its id.
        keeps_n_best: keep the n-best lists, too.
        n_best_size: their length at most.
    """
    answers = Answers({}, {}, n_best_size=n_best_size)
    for id, found in questions:
        answers.texts[id] = found.listed()[0].text
        if found.null_odds is not None:
            answers.null_odds[id] = found.null_odds
        if keeps_n_best:
            answers.n_best[id] = n_best(found)
            answers.places[id] = [(span.begin, span.end) for span in found.listed()]
    return answers


def n_best(candidates: Candidates) -> list[dict]:
    """Returns an entry of `nbest_predictions.json`; its probabilities add up to 1."""
    spans = candidates.listed()
    highest = max(span.score for span in spans)
    weights = [math.exp(span.score - highest) for span in spans]
    total = sum(weights)
    return [
        {
            "text": span.text,
            "probability": weight / total,
            "start_log_prob": span.start_score,
            "end_log_prob": span.end_score,
        }
        for span, weight in zip(spans, weights, strict=True)
    ]
