"""Masks n-grams of whole words, a batch at a time, without a loop over tokens.

Paper 3.1: spans of n words, n drawn with probability 1/n up to `ngram`, until 15 % of
the tokens are to be predicted; 80 % of these become [MASK], 10 % stay, 10 % become a
random piece.

Letters: B rows, T tokens a row, W words of the row that has most, V pieces, P slots for
predictions.
"""

import dataclasses
from collections import Counter

import numpy as np

# Shares of the predictions that become [MASK] and that stay as they are.
MASKED, KEPT = 0.8, 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """How to mask.

    Attributes:
        masked_lm_prob: share of a row's tokens to predict, [CLS] and [SEP] counted.
        max_predictions: most tokens to predict in a row.
        ngram: most words in a span.
        favor_shorter_ngram: spans of n words have a weight of 1/n; else of
            1/(ngram + 1 - n).
        whole_words: spans are made of words; else of pieces.
        cross_separators: the text on both sides of a [SEP] counts as one: a piece that
            continues a word joins it across, and spans reach across (as released).
        permute: shuffle the tokens of as many more spans and predict them too.
        mask_id: id of [MASK].
        replacements: int [R], the ids that a random piece is drawn from.
    """

    masked_lm_prob: float
    max_predictions: int
    ngram: int
    favor_shorter_ngram: bool
    whole_words: bool
    cross_separators: bool
    permute: bool
    mask_id: int
    replacements: np.ndarray

    @property
    def slots(self) -> int:
        """Slots for predictions in a row, P."""
        return self.max_predictions * (2 if self.permute else 1)

    @property
    def thresholds(self) -> np.ndarray:
        """Probability that a span is drawn with more than 1, 2, ... words."""
        weights = 1 / np.arange(1, self.ngram + 1)
        if not self.favor_shorter_ngram:
            weights = weights[::-1]
        return np.cumsum(weights[::-1])[::-1][1:] / weights.sum()


@dataclasses.dataclass(frozen=True)
class Masked:
    """A masked batch; unused slots hold zeros.

    Attributes:
        ids: int32 [B, T], what the model sees.
        positions: int32 [B, P], where the predictions are, in rising order.
        labels: int32 [B, P], the original ids there.
        weights: float32 [B, P], 1 for a prediction and 0 for an unused slot.
    """

    ids: np.ndarray
    positions: np.ndarray
    labels: np.ndarray
    weights: np.ndarray


class Words:
    """The words of a batch.

    Attributes:
        tokens: int [M], the flat position (row * T + column) of every token that may be
            masked, in rising order.
        first: int [K], where in `tokens` each word begins, in rising order.
        sizes: int [K], tokens of each word.
        row: int [K], the row of each word.
        rank: int [K], its number within the row.
        limit: int [K], one past the number of the last word that a span from it may
            hold.
        per_row: int [B], words of each row.
    """

    def __init__(self, starts: np.ndarray, maskable: np.ndarray, rules: Rules):
        B, T = starts.shape
        self.tokens = np.flatnonzero(maskable)
        # A token that does not follow another maskable one begins a new run of text.
        run_begins = np.empty(self.tokens.size, bool)
        run_begins[:1] = True
        np.not_equal(self.tokens[1:], self.tokens[:-1] + 1, out=run_begins[1:])
        rows = self.tokens // T
        row_begins = np.empty(self.tokens.size, bool)
        row_begins[:1] = True
        np.not_equal(rows[1:], rows[:-1], out=row_begins[1:])
        text_begins = row_begins if rules.cross_separators else run_begins | row_begins
        if rules.whole_words:
            begins = starts[maskable] | text_begins
        else:
            begins = np.ones(self.tokens.size, bool)
        self.first = np.flatnonzero(begins)
        self.sizes = np.diff(self.first, append=self.tokens.size)
        self.row = rows[self.first]
        self.per_row = np.bincount(self.row, minlength=B)
        row_first = np.cumsum(self.per_row) - self.per_row
        number = np.arange(self.first.size)
        self.rank = number - row_first[self.row]
        texts = np.flatnonzero(text_begins[self.first])
        ends = np.append(texts[1:], self.first.size)
        self.limit = np.repeat(ends, ends - texts) - row_first[self.row]


def mask(
    ids: np.ndarray,
    starts: np.ndarray,
    maskable: np.ndarray,
    rules: Rules,
    rng: np.random.Generator,
    counts: Counter,
) -> Masked:
    """Masks every row of a batch.

    The spans of a row begin at its words, taken in random order. For each, n is drawn;
    a span that would exceed the row's predictions loses words until it fits; one that
    does not fit, or touches a word already taken, is passed over. So the spans accepted
    are shorter than those drawn: 0.61/0.26/0.14 of 1, 2, 3 words against the drawn
    0.55/0.27/0.18 (as released).

    **As released:** a random piece may be a special one there and [SEP] may be crossed;
    both are the caller's choice by `rules`.

    Args:
        ids: int32 [B, T].
        starts: bool [B, T], true where a word begins.
        maskable: bool [B, T], false at [CLS], [SEP] and padding. Every row must begin
            with [CLS] and hold two [SEP]: they count for the number of predictions.
        rules: how to mask.
        rng: source of the draws.
        counts: raised by the spans drawn and accepted, by their words, and by the
            predictions of each kind.

    Returns:
        The masked batch.
    """
    words = Words(starts, maskable, rules)
    lengths = np.count_nonzero(maskable, axis=1) + 3
    quota = np.rint(lengths * rules.masked_lm_prob).astype(np.int64)
    quota = np.clip(quota, 1, rules.max_predictions)
    spans = _Spans(words, rules, rng, counts)
    masked = words.tokens[np.repeat(spans.take(quota), words.sizes)]
    original = ids.ravel()
    output = original.copy()
    output[masked] = _replaced(original[masked], rules, rng, counts)
    predicted = masked
    if rules.permute:
        moved = words.tokens[np.repeat(spans.take(quota), words.sizes)]
        output[moved] = original[_shuffled_in_rows(moved, ids.shape[1], rng)]
        counts["predictions_permuted"] += moved.size
        predicted = np.sort(np.concatenate([masked, moved]))
    positions, labels, weights = _slots(predicted, original, ids.shape, rules.slots)
    return Masked(output.reshape(ids.shape), positions, labels, weights)


class _Spans:
    """Takes spans of words, for all rows at once, never a word twice.

    Tables of [B, W + 1] numbers are kept flat, with a row every `width` numbers.
    """

    def __init__(
        self, words: Words, rules: Rules, rng: np.random.Generator, counts: Counter
    ):
        B = words.per_row.size
        self._words = words
        self._rules = rules
        self._rng = rng
        self._counts = counts
        self._width = int(words.per_row.max(initial=0)) + 1
        self._at = words.row * self._width + words.rank
        shape = B * self._width
        self._taken = np.zeros(shape, bool)
        self._limit = np.zeros(shape, np.int64)
        self._limit[self._at] = words.limit
        # Tokens of the row's earlier words; after the last word, those of all.
        per_row = np.bincount(words.row, weights=words.sizes, minlength=B)
        self._before = np.repeat(per_row.astype(np.int64), self._width)
        row_first = np.concatenate([[0], np.cumsum(per_row)]).astype(np.int64)
        self._before[self._at] = words.first - row_first[words.row]

    def take(self, quota: np.ndarray) -> np.ndarray:
        """Takes spans until each row has `quota` more tokens or no span fits.

        Args:
            quota: int [B].

        Returns:
            bool [K], whether a word was taken by this call.
        """
        earlier = self._taken.copy()
        order = self._order()
        rows = np.arange(quota.size)
        room = quota.copy()
        for turn in range(self._width - 1):
            rows = rows[(room[rows] > 0) & (turn < self._words.per_row[rows])]
            if not rows.size:
                break
            begin = rows * self._width + order[turn, rows]
            room[rows] -= self._try(begin, rows, room[rows])
        return (self._taken & ~earlier)[self._at]

    def _order(self) -> np.ndarray:
        """Draws in which order the words of each row are tried, int [W, B]."""
        W = self._width - 1
        B = self._words.per_row.size
        bits = W.bit_length()
        ranks = np.arange(W)
        keys = self._rng.integers(1 << 62, size=(B, W)) >> bits << bits | ranks
        keys[ranks >= self._words.per_row[:, None]] = np.iinfo(np.int64).max
        keys.sort(axis=1)
        return np.ascontiguousarray(keys.T) & ((1 << bits) - 1)

    def _try(self, begin: np.ndarray, rows: np.ndarray, room: np.ndarray) -> np.ndarray:
        """Takes at most one span from one word of each row.

        Args:
            begin: int [R], place of the word in the tables.
            rows: int [R], its row.
            room: int [R], tokens that may still be taken.

        Returns:
            int [R], tokens taken.
        """
        before, taken, ngram = self._before, self._taken, self._rules.ngram
        drawn = self._rng.random(rows.size)
        n = 1 + (drawn[:, None] < self._rules.thresholds).sum(axis=1)
        end = np.minimum(begin + n, rows * self._width + self._limit[begin])
        for _ in range(ngram - 1):
            end -= (before[end] - before[begin] > room) & (end > begin + 1)
        tokens = before[end] - before[begin]
        fits = tokens <= room
        words = [np.minimum(begin + i, end - 1) for i in range(ngram)]
        for word in words:
            fits &= ~taken[word]
        for word in words:
            taken[word[fits]] = True
        self._count("spans_drawn", n)
        self._count("spans", (end - begin)[fits])
        return tokens * fits

    def _count(self, name: str, sizes: np.ndarray) -> None:
        for words, times in enumerate(np.bincount(sizes).tolist()):
            if times:
                self._counts[f"{name}/{words}"] += times


def _replaced(
    labels: np.ndarray, rules: Rules, rng: np.random.Generator, counts: Counter
) -> np.ndarray:
    """Draws what the model sees in the place of each label."""
    draw = rng.random(labels.size)
    other = rng.choice(rules.replacements, labels.size)
    masked = draw < MASKED
    kept = ~masked & (draw < MASKED + KEPT)
    counts["predictions_masked"] += int(masked.sum())
    counts["predictions_kept"] += int(kept.sum())
    counts["predictions_random"] += int((~masked & ~kept).sum())
    return np.where(masked, rules.mask_id, np.where(kept, labels, other))


def _shuffled_in_rows(
    positions: np.ndarray, T: int, rng: np.random.Generator
) -> np.ndarray:
    """Shuffles flat positions among those of the same row."""
    return positions[np.lexsort((rng.random(positions.size), positions // T))]


def _slots(
    predicted: np.ndarray, original: np.ndarray, shape: tuple[int, int], P: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sorts predictions into the slots of their rows: positions, labels, weights."""
    B, T = shape
    row, column = np.divmod(predicted, T)
    per_row = np.bincount(row, minlength=B)
    slot = np.arange(row.size) - (np.cumsum(per_row) - per_row)[row]
    positions, labels = np.zeros((2, B, P), np.int32)
    weights = np.zeros((B, P), np.float32)
    positions[row, slot] = column
    labels[row, slot] = original[predicted]
    weights[row, slot] = 1
    return positions, labels, weights
