"""Divides documents into pairs of segments, one pair for each record.

A pair consists of five numbers, not of tokens: a shard shuffles thousands of pairs, and
copies tokens only for the batch that it writes next.
"""

import array
import bisect
import dataclasses
import random
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from albert_tf.corpus.config import CorpusSettings
from albert_tf.text.tokenization import WordStarts

# Columns of the array of pairs.
A_BEGIN, A_END, B_BEGIN, B_END, LABEL = range(5)
_OTHER_DOCUMENT_TRIES = 10

Pair = tuple[int, int, int, int, int]


class Text:
    """The token ids of documents, divided into segments.

    Attributes:
        bounds: S + 1 numbers for S segments; segment s consists of the tokens from
            bounds[s] to bounds[s + 1] - 1.
        documents: for each document, the numbers of its segments.
    """

    def __init__(self) -> None:
        self.bounds = [0]
        self.documents: list[range] = []
        self._tokens = array.array("i")

    def add(self, segments: Sequence[Sequence[int]]) -> None:
        """Appends a document: the token ids of each segment; no segment is empty."""
        begin = len(self.bounds) - 1
        self.documents.append(range(begin, begin + len(segments)))
        for segment in segments:
            self._tokens.extend(segment)
            self.bounds.append(len(self._tokens))

    @property
    def tokens(self) -> np.ndarray:
        """int32 [N], the ids of all documents one after the other."""
        return np.frombuffer(self._tokens, np.int32)


def pair(
    text: Text,
    config: CorpusSettings,
    starts: WordStarts,
    rng: np.random.Generator,
    counts: Counter,
) -> np.ndarray:
    """Draws the pairs of all documents, in order (paper 3.1, "sentence-order").

    A pair takes segments until it reaches its target length, and is divided between
    two of them. With probability 1/2, its parts A and B are swapped (label 1).

    **As released:** the released code draws a target length for each document; here
    each pair has its own. If only one segment is left, the released code takes B from
    another document and gives label 1. So 53 to 60 % of the labels are 1, and the model
    learns topics instead of order. Here such a segment is divided at a word start.
    `released_behaviour` follows the released code.

    Args:
        text: the documents.
        config: the run's settings.
        starts: the first tokens of words.
        rng: makes all random draws.
        counts: counts the `truncated_tokens`, `dropped_tokens` and `dropped_segments`.

    Returns:
        int64 [I, 5]: for each of I pairs, the begin and end of A in `text.tokens`, the
        begin and end of B, and the label.
    """
    seed = int(rng.integers(1 << 62))
    drawer = _PairDrawer(text, config, starts, random.Random(seed), counts)
    rows = [row for document in text.documents for row in drawer.draw_pairs(document)]
    pairs = np.array(rows, np.int64).reshape(-1, 5)
    truncate(pairs, config.max_num_tokens, rng, counts)
    return pairs


def truncate(
    pairs: np.ndarray, limit: int, rng: np.random.Generator, counts: Counter
) -> None:
    """Shortens pairs to `limit` tokens, in place.

    As in the released code, tokens are removed one by one from the longer segment, or
    from B if both are equally long: with probability 1/2 from the front, otherwise from
    the back.
    """
    a_size = pairs[:, A_END] - pairs[:, A_BEGIN]
    b_size = pairs[:, B_END] - pairs[:, B_BEGIN]
    excess = np.maximum(a_size + b_size - limit, 0)
    from_longer = np.minimum(excess, abs(a_size - b_size))  # until both are equal
    from_b = (excess - from_longer + 1) // 2 + np.where(b_size > a_size, from_longer, 0)
    removed = np.stack([excess - from_b, from_b])
    front = rng.binomial(removed, 0.5)
    pairs[:, [A_BEGIN, B_BEGIN]] += front.T
    pairs[:, [A_END, B_END]] -= (removed - front).T
    counts["truncated_tokens"] += int(excess.sum())


@dataclasses.dataclass(frozen=True)
class _PairDrawer:
    """Draws the pairs of documents; see `pair`."""

    text: Text
    config: CorpusSettings
    starts: WordStarts
    rng: random.Random
    counts: Counter

    def draw_pairs(self, document: range) -> Iterator[Pair]:
        """Draws the pairs of one document, before truncation."""
        bounds, rng = self.text.bounds, self.rng
        objective = self.config.sentence_objective
        samples_others = self.config.samples_other_documents
        target = self._draw_target()
        # `start`, `middle` and `stop` are numbers of segments: A ends before `middle`,
        # and B ends before `stop`. A single segment is cut at a word start instead.
        start = document.start
        while start < document.stop:
            a_begin = bounds[start]
            stop = bisect.bisect_left(
                bounds, a_begin + target, start + 1, document.stop
            )
            is_single = stop == start + 1
            middle = stop if is_single else start + rng.randint(1, stop - start - 1)
            if samples_others and (
                is_single or (objective == "nsp" and rng.random() < 0.5)
            ):
                a_end = bounds[middle]
                b_begin, b_end = self._draw_other(document, target - a_end + a_begin)
                yield a_begin, a_end, b_begin, b_end, 1
                # B is from another document, so the next pair begins where A ends.
                start = middle
            else:
                cut = self._cut(start) if is_single else bounds[middle]
                if cut is not None:
                    if objective == "sop" and rng.random() < 0.5:
                        yield cut, bounds[stop], a_begin, cut, 1
                    else:
                        yield a_begin, cut, cut, bounds[stop], 0
                start = stop
            if not self.config.released_behaviour:
                target = self._draw_target()

    def _draw_target(self) -> int:
        """Draws the target length of a pair, in tokens."""
        longest = self.config.max_num_tokens
        if self.rng.random() < self.config.short_seq_prob:
            return self.rng.randint(2, longest)
        return longest

    def _draw_other(self, document: range, target: int) -> tuple[int, int]:
        """Draws the begin and end of B; it begins at any segment of another document.

        Args:
            document: the document of A.
            target: the length that B should reach, in tokens.
        """
        documents, bounds = self.text.documents, self.text.bounds
        for _ in range(_OTHER_DOCUMENT_TRIES):
            other = self.rng.choice(documents)
            if other != document:
                break
        else:
            # The released code then takes B from `document`. Here the first other
            # document is taken.
            others = (d for d in documents if d != document)
            other = next(others, other)
        segment = self.rng.choice(other)
        begin = bounds[segment]
        stop = bisect.bisect_left(bounds, begin + target, segment + 1, other.stop)
        return begin, bounds[stop]

    def _cut(self, segment: int) -> int | None:
        """Draws the token at which to divide a segment; None for a single word."""
        begin, end = self.text.bounds[segment : segment + 2]
        word_begins = np.flatnonzero(self.starts(self.text.tokens[begin:end])[1:])
        if not word_begins.size:
            self.counts["dropped_tokens"] += end - begin
            self.counts["dropped_segments"] += 1
            return None
        return begin + 1 + int(self.rng.choice(word_begins))
