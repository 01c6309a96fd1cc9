"""Masks n-grams of whole words, a batch at a time, without a loop over tokens.

Paper 3.1: spans of n words, n up to `ngram` with probability 1/n, until 15 % of the
tokens are to be predicted. 80 % of these become [MASK], 10 % stay, 10 % become a random
token. The settings can change these shares.

All draws of a row depend only on its own seed, so a row is masked alike in any batch.
The generator draws the seeds; `dynamic_masking` makes them from the row's position in
the run.

Letters: B rows, T tokens of a row, W words of the row with the most words, K words of
the batch, P slots for predictions.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from albert_tf.corpus.config import CorpusSettings

# Each use of random numbers has its own 2^32 numbers of a seed's sequence. Spans are
# taken twice with `do_permutation`.
_SPANS, _SPANS_TO_PERMUTE, _REPLACED, _SHUFFLE, HALVES = range(5)
# A word's key consists of its random rank, the random length of its span, and its
# number in the row, from the highest to the lowest bit. The last two have this many.
_BITS = 16
_NUMBER = (1 << _BITS) - 1
FEATURES = {
    "masked_lm_positions": np.int32,
    "masked_lm_ids": np.int32,
    "masked_lm_weights": np.float32,
}
# Turns that are prepared at once; most rows are full long before their last word.
_TURNS = 32


@dataclasses.dataclass(frozen=True, eq=False)
class Rules:
    """The rules of masking.

    Attributes:
        config: `masked_lm_prob` and the other settings of masking. With
            `released_behaviour`, words and spans may continue after a [SEP].
        mask_id: id of [MASK].
        replacements: int [R], the ids of random tokens.
    """

    config: CorpusSettings
    mask_id: int
    replacements: np.ndarray

    @classmethod
    def build(
        cls,
        config: CorpusSettings,
        vocab_size: int,
        special_ids: Iterable[int],
        mask_id: int,
    ) -> "Rules":
        """Returns the rules for a vocabulary.

        **As released:** any token may replace a token. Here special tokens may not.
        """
        replacements = np.arange(vocab_size)
        if not config.released_behaviour:
            replacements = np.delete(replacements, sorted(special_ids))
        return cls(config, mask_id, replacements)

    @property
    def thresholds(self) -> np.ndarray:
        """Probability that a span is drawn with more than 1, 2, ... words."""
        weights = 1 / np.arange(1, self.config.ngram + 1)
        if not self.config.favor_shorter_ngram:
            weights = weights[::-1]
        return np.cumsum(weights[::-1])[::-1][1:] / weights.sum()


def draw(seeds: np.ndarray, use: int, index: np.ndarray | int) -> np.ndarray:
    """Draws numbers that depend only on a seed, a use and an index.

    They are numbers of the sequence splitmix64, each of which is computed by itself.

    Args:
        seeds: uint64 [N].
        use: one of the constants of this module, such as `HALVES`.
        index: int [N], at least 0: the index in the sequence of a seed and a use.

    Returns:
        uint64 [N], uniformly distributed.
    """
    z = np.asarray(index).astype(np.uint64)
    z += np.uint64((use << 32) + 1)
    z = z * np.uint64(0x9E3779B97F4A7C15) + seeds
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


class Words:
    """The words of a batch.

    Attributes:
        tokens: int [M], the flat position (row * T + column) of every token that may be
            masked, in rising order.
        first: int [K], the index in `tokens` of each word's first token, rising.
        sizes: int [K], tokens of each word.
        row: int [K], the row of each word.
        rank: int [K], its number within the row.
        limit: int [K], the number of the word at which a span from it must end at the
            latest.
        per_row: int [B], words of each row.
        row_first: int [B], the number of each row's first word.
        tokens_per_row: int [B], tokens of each row that may be masked.
    """

    def __init__(
        self, starts: np.ndarray, maskable: np.ndarray, config: CorpusSettings
    ):
        self.tokens = np.flatnonzero(maskable)
        self.tokens_per_row = np.count_nonzero(maskable, axis=1)
        first_token = np.cumsum(self.tokens_per_row) - self.tokens_per_row
        # A token that does not follow another maskable one begins a new run of text.
        text_begins = np.zeros(self.tokens.size + 1, bool)
        if not config.released_behaviour:
            np.not_equal(self.tokens[1:], self.tokens[:-1] + 1, out=text_begins[1:-1])
        text_begins[first_token] = True
        text_begins = text_begins[:-1]
        if config.do_whole_word_mask:
            begins = starts[maskable] | text_begins
        else:
            begins = np.ones(self.tokens.size, bool)
        self.first = np.flatnonzero(begins)
        self.sizes = np.diff(self.first, append=self.tokens.size)
        self.row_first = np.searchsorted(self.first, first_token)
        self.per_row = np.diff(self.row_first, append=self.first.size)
        self.row = np.repeat(np.arange(len(starts)), self.per_row)
        row_first = np.repeat(self.row_first, self.per_row)
        self.rank = np.arange(self.first.size) - row_first
        texts = np.flatnonzero(text_begins[self.first])
        ends = np.append(texts[1:], self.first.size)
        self.limit = np.repeat(ends, ends - texts) - row_first


def mask(
    batch: dict[str, np.ndarray], rules: Rules, seeds: np.ndarray, counts: Counter
) -> None:
    """Masks a batch of features, see `shards.spec`.

    The words of a row are tried in random order, and n is drawn for each. A span that
    exceeds the row's number of predictions is shortened. It is skipped if it still does
    not fit, or overlaps another span. Therefore accepted spans are shorter than drawn
    spans, as released: 0.61/0.26/0.14 have 1, 2, 3 words, instead of 0.55/0.27/0.18.

    Args:
        batch: `input_ids`, which change, `input_mask`, `segment_ids` and
            `token_boundary`; gets `masked_lm_positions` in rising order,
            `masked_lm_ids` (the original ids) and `masked_lm_weights` [B, P], zeros in
            unused slots.
        rules: the rules.
        seeds: uint64 [B], the seed of each row.
        counts: counts the drawn and the accepted spans by their words, and the
            predictions of each kind.
    """
    config = rules.config
    rows = np.arange(len(seeds))
    maskable = batch["input_mask"] > 0
    for column in (0, *sep_positions(batch)):
        maskable[rows, column] = False
    words = Words(batch["token_boundary"] > 0, maskable, config)
    # The share refers to all tokens, including [CLS] and [SEP].
    quota = np.rint(batch["input_mask"].sum(axis=1) * config.masked_lm_prob)
    quota = np.clip(quota.astype(np.int64), 1, config.max_predictions)
    spans = _Spans(words, rules, seeds, counts)
    predicted = words.tokens[np.repeat(spans.take(quota, _SPANS), words.sizes)]
    original = batch["input_ids"].ravel()
    output = original.copy()
    row, column = np.divmod(predicted, maskable.shape[1])
    output[predicted] = _replace(original[predicted], seeds[row], column, rules, counts)
    if config.do_permutation:
        is_permuted = spans.take(quota, _SPANS_TO_PERMUTE)
        permuted = words.tokens[np.repeat(is_permuted, words.sizes)]
        row, column = np.divmod(permuted, maskable.shape[1])
        order = np.lexsort((draw(seeds[row], _SHUFFLE, column), row))
        output[permuted] = original[permuted[order]]
        counts["predictions_permuted"] += permuted.size
        predicted = np.sort(np.concatenate([predicted, permuted]))
    batch["input_ids"] = output.reshape(maskable.shape)
    _write_slots(batch, predicted, original, config.prediction_slots)


def sep_positions(batch: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the columns of both [SEP] of each row of features: two of int [B]."""
    last = batch["input_mask"].sum(axis=1) - 1
    return last - batch["segment_ids"].sum(axis=1), last


class _Spans:
    """Takes spans of words for all rows at once; takes each word at most once.

    Tables of [B, W + 1] numbers are flat, with a row every `width` numbers.
    """

    def __init__(self, words: Words, rules: Rules, seeds: np.ndarray, counts: Counter):
        self._words = words
        self._rules = rules
        self._seeds = np.repeat(seeds, words.per_row)
        self._counts = counts
        self._width = int(words.per_row.max(initial=0)) + 1
        self._index = words.row * self._width + words.rank
        shape = words.per_row.size * self._width
        self._is_taken = np.zeros(shape, bool)
        self._limit = np.zeros(shape, np.int64)
        self._limit[self._index] = words.limit
        # Tokens of the row's earlier words; after the last word, tokens of all words.
        tokens = words.tokens_per_row
        self._before = np.repeat(tokens, self._width)
        first_token = np.cumsum(tokens) - tokens
        self._before[self._index] = words.first - np.repeat(first_token, words.per_row)

    def take(self, quota: np.ndarray, use: int) -> np.ndarray:
        """Takes spans until each row has `quota` more tokens or no span fits.

        Args:
            quota: int [B].
            use: see `draw`.

        Returns:
            bool [K], whether this call has taken the word.
        """
        was_taken = self._is_taken.copy()
        rows = np.arange(quota.size)
        room = quota.copy()
        for turn, (begin, n) in enumerate(self._turns(use)):
            rows = rows[(room[rows] > 0) & (turn < self._words.per_row[rows])]
            if not rows.size:
                break
            room[rows] -= self._try(begin[rows], n[rows], rows, room[rows])
        return (self._is_taken & ~was_taken)[self._index]

    def _turns(self, use: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Draws the order of the words of each row, and the lengths of their spans.

        Yields:
            The word's index in the tables and the number of words of its span, int [B]
            each, for each turn; undefined for a row that has no more words.
        """
        numbers = draw(self._seeds, use, self._words.rank) >> np.uint64(_BITS + 1)
        keys = np.full(self._is_taken.size, np.iinfo(np.int64).max)
        keys[self._index] = numbers.view(np.int64) << _BITS | self._words.rank
        keys = np.sort(keys.reshape(-1, self._width), axis=1)
        row_begins = np.arange(len(keys)) * self._width
        for turn in range(0, self._width - 1, _TURNS):
            turns = np.ascontiguousarray(keys[:, turn : turn + _TURNS].T)
            length = turns >> _BITS & _NUMBER
            n = np.ones_like(turns)
            for threshold in self._rules.thresholds:
                n += length < threshold * (1 << _BITS)
            yield from zip(row_begins + (turns & _NUMBER), n, strict=True)

    def _try(
        self, begin: np.ndarray, n: np.ndarray, rows: np.ndarray, room: np.ndarray
    ) -> np.ndarray:
        """Takes at most one span from one word of each row.

        Args:
            begin: int [R], index of the word in the tables.
            n: int [R], number of words of the drawn span.
            rows: int [R], the word's row.
            room: int [R], tokens that may still be taken.

        Returns:
            int [R], tokens taken.
        """
        before, is_taken, ngram = self._before, self._is_taken, self._rules.config.ngram
        end = np.minimum(begin + n, rows * self._width + self._limit[begin])
        for _ in range(ngram - 1):
            end -= (before[end] - before[begin] > room) & (end > begin + 1)
        tokens = before[end] - before[begin]
        fits = tokens <= room
        words = [np.minimum(begin + i, end - 1) for i in range(ngram)]
        for word in words:
            fits &= ~is_taken[word]
        for word in words:
            is_taken[word[fits]] = True
        self._count("spans_drawn", n)
        self._count("spans", (end - begin)[fits])
        return tokens * fits

    def _count(self, name: str, sizes: np.ndarray) -> None:
        for words, times in enumerate(np.bincount(sizes).tolist()):
            if times:
                self._counts[f"{name}/{words}"] += times


def _replace(
    labels: np.ndarray,
    seeds: np.ndarray,
    columns: np.ndarray,
    rules: Rules,
    counts: Counter,
) -> np.ndarray:
    """Draws the input that replaces each label: [MASK], itself or another; all [N]."""
    numbers = draw(seeds, _REPLACED, columns)
    kind = (numbers >> np.uint64(32)) / 2.0**32
    random = (numbers & np.uint64(0xFFFFFFFF)) * np.uint64(len(rules.replacements))
    random_ids = rules.replacements[random >> np.uint64(32)]
    is_masked = kind < rules.config.mask_replace_prob
    is_kept = ~is_masked & (kind < 1 - rules.config.random_replace_prob)
    counts["predictions_masked"] += int(is_masked.sum())
    counts["predictions_kept"] += int(is_kept.sum())
    counts["predictions_random"] += int((~is_masked & ~is_kept).sum())
    return np.where(is_masked, rules.mask_id, np.where(is_kept, labels, random_ids))


def _write_slots(
    batch: dict[str, np.ndarray], predicted: np.ndarray, original: np.ndarray, P: int
) -> None:
    """Writes predictions, given by flat positions, to the slots of their rows."""
    B, T = batch["input_ids"].shape
    row, column = np.divmod(predicted, T)
    per_row = np.bincount(row, minlength=B)
    slot = np.arange(row.size) - (np.cumsum(per_row) - per_row)[row]
    values = (column, original[predicted], 1)
    for (name, dtype), value in zip(FEATURES.items(), values, strict=True):
        batch[name] = np.zeros((B, P), dtype)
        batch[name][row, slot] = value
