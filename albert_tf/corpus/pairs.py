"""Divides documents into pairs of texts, A and B: one pair for each record.

A document is a list of segments. Here a segment is not A or B as in BERT: it has the
token ids of a line, or of a part of a long line. A and B consist of such segments, or
of the two parts of a single one. The released code is Google's TensorFlow 1
implementation of ALBERT.

A pair has no tokens, but five numbers: the begin and end of A and of B, and a label. So
a shard can shuffle thousands of pairs, and copies tokens only for the batch that it
writes next.
"""

import array
import dataclasses
import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from albert_tf.corpus.config import CorpusSettings
from albert_tf.text.tokenization import WordStarts

# The columns of an array of pairs: begin and end of A, begin and end of B, and the
# label.
A_BEGIN, A_END, B_BEGIN, B_END, LABEL = range(5)
_OTHER_DOCUMENT_TRIES = 10  # attempts to draw a document that does not contain A

Pair = tuple[int, int, int, int, int]


class Group:
    """A group of documents in memory: token ids, divided into numbered segments.

    Attributes:
        bounds: S + 1 positions in `tokens` for S segments; segment s has the tokens
            from bounds[s] to bounds[s + 1] - 1.
        documents: for each document, the range of its segments' numbers.
    """

    def __init__(self) -> None:
        self.bounds = [0]
        self.documents: list[range] = []
        self._tokens = array.array("i")

    def add(self, segments: Sequence[Sequence[int]]) -> None:
        """Appends a document.

        Args:
            segments: the token ids of each segment; at least one id in each.
        """
        begin = len(self.bounds) - 1
        self.documents.append(range(begin, begin + len(segments)))
        for segment in segments:
            self._tokens.extend(segment)
            self.bounds.append(len(self._tokens))

    @property
    def tokens(self) -> np.ndarray:
        """int32 [N], the ids of all documents one after the other."""
        return np.frombuffer(self._tokens, np.int32)


def draw(
    group: Group,
    config: CorpusSettings,
    find_starts: WordStarts,
    rng: np.random.Generator,
    counts: Counter,
) -> np.ndarray:
    """Draws the pairs of all documents of a group, one document after the other.

    For the objective "sop" (paper 3.1, "sentence-order"), a pair takes segments until
    it reaches its target length. Then a random boundary between two of these segments
    divides the pair into A and B. With probability 1/2, A and B are swapped (label 1).
    For "nsp", B comes from another document in about half of the pairs (label 1). For
    "none", A and B are never swapped. Finally, `truncate` removes the tokens that do
    not fit into a record.

    **As released:** the released code draws a target length for each document; here
    each pair has its own. If a pair has only one segment, the released code takes B
    from another document and gives label 1. So 53 to 60 % of the labels are 1, and the
    model can learn to compare topics instead of order. Here a single segment is divided
    at a word start. `released_behaviour` follows the released code.

    Args:
        group: the documents.
        config: the run's settings.
        find_starts: marks the first tokens of words, see `WordStarts.__call__`.
        rng: decides all random draws.
        counts: counts the `truncated_tokens`, `dropped_tokens` and `dropped_segments`.

    Returns:
        int64 [I, 5]: for each of I pairs, the begin and end of A in `group.tokens`, the
        begin and end of B, and the label.
    """
    seed = int(rng.integers(1 << 62))
    drawer = _PairDrawer(group, config, find_starts, random.Random(seed), counts)
    rows = [row for document in group.documents for row in drawer.draw_from(document)]
    pairs = np.array(rows, np.int64).reshape(-1, 5)
    truncate(pairs, config.max_num_tokens, rng, counts)
    return pairs


def truncate(
    pairs: np.ndarray, limit: int, rng: np.random.Generator, counts: Counter
) -> None:
    """Shortens pairs to at most `limit` tokens, in place.

    The result is distributed as in the released code, which removes one token at a time
    from the longer text, or from B if A and B are equally long. Each token is removed
    with probability 1/2 from the front of the text, otherwise from its back.

    Args:
        pairs: int64 [I, 5], as from `draw`.
        limit: maximum number of tokens in A and B together.
        rng: decides from which ends tokens are removed.
        counts: counts the `truncated_tokens`.
    """
    a_size = pairs[:, A_END] - pairs[:, A_BEGIN]
    b_size = pairs[:, B_END] - pairs[:, B_BEGIN]
    excess = np.maximum(a_size + b_size - limit, 0)
    # The longer text loses tokens first, until both have the same size. Then B and A
    # lose tokens in turn, B first.
    from_longer = np.minimum(excess, abs(a_size - b_size))
    from_b = (excess - from_longer + 1) // 2 + np.where(b_size > a_size, from_longer, 0)
    removed = np.stack([excess - from_b, from_b])
    front = rng.binomial(removed, 0.5)
    pairs[:, [A_BEGIN, B_BEGIN]] += front.T
    pairs[:, [A_END, B_END]] -= (removed - front).T
    counts["truncated_tokens"] += int(excess.sum())


@dataclasses.dataclass(frozen=True)
class _PairDrawer:
    """Draws the pairs of single documents; `draw` explains the arguments."""

    group: Group
    config: CorpusSettings
    find_starts: WordStarts
    rng: random.Random
    counts: Counter

    def draw_from(self, document: range) -> Iterator[Pair]:
        """Draws the pairs of one document, perhaps with too many tokens for a record.

        Args:
            document: the numbers of the document's segments.
        """
        bounds, rng = self.group.bounds, self.rng
        objective = self.config.sentence_objective
        samples_others = self.config.samples_other_documents
        target = self._draw_target()
        # `start`, `middle` and `stop` are numbers of segments: A begins with `start`
        # and ends before `middle`; B begins with `middle` and ends before `stop`. If a
        # pair has only one segment, `middle` equals `stop`.
        start = document.start
        while start < document.stop:
            a_begin = bounds[start]
            stop = bisect_left(bounds, a_begin + target, start + 1, document.stop)
            is_single = stop == start + 1
            middle = stop if is_single else start + rng.randint(1, stop - start - 1)
            if samples_others and (
                is_single or (objective == "nsp" and rng.random() < 0.5)
            ):
                a_end = bounds[middle]
                b_begin, b_end = self._draw_other(document, target - a_end + a_begin)
                yield a_begin, a_end, b_begin, b_end, 1
                # B took no segment of this document, so the next pair begins where A
                # ends.
                start = middle
            else:
                cut = self._draw_cut(start) if is_single else bounds[middle]
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
        """Draws B: it begins with a random segment of another document.

        Args:
            document: the document of A.
            target: the length that B should reach, in tokens.

        Returns:
            The begin and end of B in the group's tokens.
        """
        documents, bounds = self.group.documents, self.group.bounds
        for _ in range(_OTHER_DOCUMENT_TRIES):
            other = self.rng.choice(documents)
            if other != document:
                break
        else:
            # All draws gave `document` itself. The released code then takes B from this
            # document. Here B comes from the first other document of the group, if the
            # group has another one.
            others = (d for d in documents if d != document)
            other = next(others, other)
        segment = self.rng.choice(other)
        begin = bounds[segment]
        stop = bisect_left(bounds, begin + target, segment + 1, other.stop)
        return begin, bounds[stop]

    def _draw_cut(self, segment: int) -> int | None:
        """Draws the word start at which a pair of only one segment is divided.

        Args:
            segment: the number of the segment.

        Returns:
            The position of the word's first token in the group's tokens. None if the
            segment is a single word; its tokens are dropped and counted.
        """
        begin, end = self.group.bounds[segment : segment + 2]
        # The first token is left out, since A must not be empty.
        offsets = np.flatnonzero(self.find_starts(self.group.tokens[begin:end])[1:])
        if not offsets.size:
            self.counts["dropped_tokens"] += end - begin
            self.counts["dropped_segments"] += 1
            return None
        return begin + 1 + int(self.rng.choice(offsets))
