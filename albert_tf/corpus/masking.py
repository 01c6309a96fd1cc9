"""Masks n-grams of whole words, a batch at a time, without a loop over tokens.

The paper (section 3.1) draws spans of 1 to `ngram` words until they contain 15 % of the
tokens. The probability of a span of n words is proportional to 1/n. Then 80 % of the
tokens in the spans become [MASK], 10 % do not change, and 10 % become a random token.
The settings can change these numbers.

All draws of a row depend only on its seed, so a row gets the same masks in any batch.
The generator (`shards`) draws the seeds; `dynamic_masking` computes them from the row's
position in the run.

Letters of shapes: B rows, T tokens per row, W words in the row with the most words, K
words in the batch, P slots for predictions per row.

The released code is Google's TensorFlow 1 implementation of ALBERT.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from albert_tf.corpus.config import CorpusSettings

# The uses of random numbers, for `draw`: spans to mask, spans to permute (with
# `do_permutation`), the replacement of tokens, the shuffle of permuted tokens, and the
# order of A and B (in `dynamic_masking`).
_SPANS, _SPANS_TO_PERMUTE, _REPLACEMENT, _SHUFFLE, ORDER = range(5)
# The words of a row are tried in the order of their keys, one word in each turn. The
# key also decides the length of the span that begins with the word. A key has three
# parts, from the highest bit to the lowest: a random rank (31 bits), a random number
# for the length (`_BITS` bits), and the word's number in the row (`_BITS` bits).
_BITS = 16
_LOW_BITS = (1 << _BITS) - 1
# The features that masking adds, and their types.
FEATURES = {
    "masked_lm_positions": np.int32,
    "masked_lm_ids": np.int32,
    "masked_lm_weights": np.float32,
}
# In each turn, each row tries the span that begins at one of its words. The lengths of
# the spans are computed for `_TURNS` turns together, not for all turns, since most rows
# need only some turns.
_TURNS = 32


class Rules:
    """The rules of masking: the settings, and values that follow from them.

    **As released:** in the released code, a random token can be any token of the
    vocabulary. Here it is never a special token, unless `released_behaviour` is set.

    Args:
        config: `masked_lm_prob` and the other settings of masking. With
            `released_behaviour`, random tokens can be special tokens, and words and
            spans can begin in A and end in B.
        vocabulary: the result of `manifest.describe_vocabulary`.

    Attributes:
        config: the settings.
        mask_id: id of [MASK].
        replacements: int [M], the ids from which random tokens are drawn.
        thresholds: float [ngram - 1], the probabilities that a drawn span has more than
            1, more than 2, ... words.
    """

    def __init__(self, config: CorpusSettings, vocabulary: Mapping[str, Any]):
        self.config = config
        self.mask_id = vocabulary["mask_id"]
        self.replacements = np.arange(vocabulary["size"])
        if not config.released_behaviour:
            self.replacements = np.delete(self.replacements, vocabulary["special_ids"])
        # weights[n - 1] is proportional to the probability of n words.
        weights = 1 / np.arange(1, config.ngram + 1)
        if not config.favor_shorter_ngram:
            weights = weights[::-1]
        # The sums of the weights of 2 or more, 3 or more, ... words.
        self.thresholds = np.cumsum(weights[::-1])[::-1][1:] / weights.sum()


def draw(seeds: np.ndarray, use: int, index: np.ndarray | int) -> np.ndarray:
    """Draws numbers that depend only on a seed, a use and an index.

    The numbers are those of the generator splitmix64. Each use has its own 2^32 numbers
    in the sequence of a seed. Each number is computed without the numbers before it.

    Args:
        seeds: uint64 [N].
        use: the purpose of the numbers: a constant of this module, such as `ORDER`.
        index: int [N], the index among the numbers of the seed and the use, from 0.

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


def mask(
    batch: dict[str, np.ndarray], rules: Rules, seeds: np.ndarray, counts: Counter
) -> None:
    """Masks a batch of features in place; `shards.make_spec` describes the features.

    The words of a row are tried in random order as first words of spans. The number of
    words n is drawn for each span. If a span has more tokens than the row still needs,
    it loses words at its end, but keeps its first word. A span is skipped if its first
    word alone has too many tokens, or if the span overlaps an accepted span. Therefore
    accepted spans are shorter than drawn spans, as in the released code. The shares of
    spans with 1, 2 and 3 words are 0.55/0.27/0.18 when drawn, and 0.61/0.26/0.14 when
    accepted.

    Args:
        batch: `input_ids`, `input_mask`, `segment_ids` and `token_boundary`. This
            function replaces `input_ids`. It adds `masked_lm_positions` in rising
            order, `masked_lm_ids` (the original ids) and `masked_lm_weights`. These
            three are [B, P], and zero in unused slots.
        rules: the rules of masking.
        seeds: uint64 [B], the seed of each row.
        counts: counts the drawn and the accepted spans by their number of words, and
            the predictions of each kind.
    """
    config = rules.config
    rows = np.arange(len(seeds))
    maskable = batch["input_mask"] > 0
    for special_column in (0, *sep_positions(batch)):  # [CLS] and both [SEP]
        maskable[rows, special_column] = False
    # The number of tokens to predict in each row, [B]. `masked_lm_prob` is a fraction
    # of all tokens, including [CLS] and [SEP].
    quota = np.rint(batch["input_mask"].sum(axis=1) * config.masked_lm_prob)
    quota = np.clip(quota.astype(np.int64), 1, config.max_predictions)
    spans = _Spans(batch["token_boundary"] > 0, maskable, rules, seeds, counts)
    # `take` returns flat positions (row * T + column).
    positions = spans.take(quota, _SPANS)
    old_ids = batch["input_ids"].ravel()
    ids = old_ids.copy()
    row, column = np.divmod(positions, maskable.shape[1])
    ids[positions] = _replace(old_ids[positions], seeds[row], column, rules, counts)
    if config.do_permutation:
        # Other spans are taken, and their tokens are shuffled within each row.
        permuted_positions = spans.take(quota, _SPANS_TO_PERMUTE)
        row, column = np.divmod(permuted_positions, maskable.shape[1])
        order = np.lexsort((draw(seeds[row], _SHUFFLE, column), row))
        ids[permuted_positions] = old_ids[permuted_positions[order]]
        counts["predictions_permuted"] += permuted_positions.size
        positions = np.sort(np.concatenate([positions, permuted_positions]))
    batch["input_ids"] = ids.reshape(maskable.shape)
    _write_slots(batch, positions, old_ids, config.prediction_slots)


def sep_positions(batch: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the columns of the first and of the second [SEP] in each row.

    Args:
        batch: `input_mask` and `segment_ids`.

    Returns:
        Two arrays, int [B].
    """
    last = batch["input_mask"].sum(axis=1) - 1
    return last - batch["segment_ids"].sum(axis=1), last


class _Spans:
    """Takes spans of words in all rows at once; takes each word at most once.

    The comment of each private array says what it has entries for: the maskable tokens,
    the B rows or the K words. Or it says that the array is a table. A table is flat,
    [B * (W + 1)], and has the entry of word n of row b at the index b * (W + 1) + n. So
    each row has at least one entry after its last word. `_offsets` uses it as the end
    of the last word.

    Args:
        starts: bool [B, T], the first tokens of words.
        maskable: bool [B, T], the tokens that may be masked.
        rules: the rules of masking.
        seeds: uint64 [B], the seed of each row.
        counts: counts the drawn and the accepted spans by their number of words.
    """

    def __init__(
        self,
        starts: np.ndarray,
        maskable: np.ndarray,
        rules: Rules,
        seeds: np.ndarray,
        counts: Counter,
    ):
        self._rules = rules
        self._counts = counts
        # The flat positions (row * T + column) of the maskable tokens, rising.
        self._tokens = np.flatnonzero(maskable)
        # The number of maskable tokens in each row, and the index in `_tokens` of the
        # first of these tokens, [B].
        tokens_per_row = np.count_nonzero(maskable, axis=1)
        row_begins = np.cumsum(tokens_per_row) - tokens_per_row
        # A text is A or B. Its first token follows a special token, which is not
        # maskable. With `released_behaviour`, A and B are one text.
        text_begins = np.zeros(self._tokens.size, bool)
        if not rules.config.released_behaviour:
            text_begins[1:] = np.diff(self._tokens) != 1
        text_begins[row_begins[tokens_per_row > 0]] = True
        word_begins = np.ones(self._tokens.size, bool)
        if rules.config.do_whole_word_mask:
            word_begins = starts[maskable] | text_begins
        # The index in `_tokens` of the first token of each word, [K].
        words = np.flatnonzero(word_begins)
        # The number of tokens of each word, [K].
        self._sizes = np.diff(words, append=self._tokens.size)
        # The index in `words` of the first word of each row, [B].
        first_words = np.searchsorted(words, row_begins)
        # The number of words of each row, [B].
        self._word_counts = np.diff(first_words, append=words.size)
        # For each word, the index in `words` of the first word in the same row, [K].
        row_words = np.repeat(first_words, self._word_counts)
        # The number of each word in its row, from 0, [K].
        self._numbers = np.arange(words.size) - row_words
        # The index in `words` of the first word of each text, and of the word after the
        # text's last word.
        texts = np.flatnonzero(text_begins[words])
        ends = np.append(texts[1:], words.size)
        # The seed of the row of each word, [K].
        self._seeds = np.repeat(seeds, self._word_counts)
        # The number of entries of a row in a table, W + 1.
        self._width = int(self._word_counts.max(initial=0)) + 1
        # The index of each word in tables, [K].
        row = np.repeat(np.arange(len(starts)), self._word_counts)
        self._indices = row * self._width + self._numbers
        # Table: whether a span has taken each word.
        self._is_taken = np.zeros(len(starts) * self._width, bool)
        # Table: for each word, the first word after its text, as a number within the
        # row. A span must end before that word.
        self._limits = np.zeros(self._is_taken.size, np.int64)
        self._limits[self._indices] = np.repeat(ends, ends - texts) - row_words
        # Table: for each word, the number of maskable tokens before it in its row. The
        # entries after a row's last word have the number of all maskable tokens in the
        # row.
        self._offsets = np.repeat(tokens_per_row, self._width)
        self._offsets[self._indices] = words - np.repeat(row_begins, self._word_counts)

    def take(self, quota: np.ndarray, use: int) -> np.ndarray:
        """Takes spans until each row has `quota` more tokens or no span fits.

        Args:
            quota: int [B], the number of tokens to take in each row.
            use: the use of the random numbers, see `draw`.

        Returns:
            int [N], the flat positions (row * T + column) of the N tokens, rising.
        """
        was_taken = self._is_taken.copy()
        rows = np.arange(quota.size)
        remaining = quota.copy()
        for turn, (begin, n) in enumerate(self._draw_turns(use)):
            # Only rows that still need tokens and have words left continue.
            rows = rows[(remaining[rows] > 0) & (turn < self._word_counts[rows])]
            if not rows.size:
                break
            remaining[rows] -= self._try(begin[rows], n[rows], rows, remaining[rows])
        is_new = (self._is_taken & ~was_taken)[self._indices]
        return self._tokens[np.repeat(is_new, self._sizes)]

    def _draw_turns(self, use: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Draws the order of the words of each row, and the lengths of their spans.

        Args:
            use: the use of the random numbers, see `draw`.

        Yields:
            For each turn, the index in tables of one word of each row, and the number
            of words of its span: two arrays, int [B]. In the turns after a row's last
            word, the entries of the row have no meaning.
        """
        # These 47 bits are the rank and the number for the length. After the shift by
        # `_BITS` below, the sign bit is still 0.
        random_bits = draw(self._seeds, use, self._numbers) >> np.uint64(_BITS + 1)
        # A table of keys. Entries without a word have the largest key, which is sorted
        # last.
        keys = np.full(self._is_taken.size, np.iinfo(np.int64).max)
        keys[self._indices] = random_bits.view(np.int64) << _BITS | self._numbers
        keys = np.sort(keys.reshape(-1, self._width), axis=1)
        row_begins = np.arange(len(keys)) * self._width
        # There are W turns.
        for first in range(0, self._width - 1, _TURNS):
            turn_keys = np.ascontiguousarray(keys[:, first : first + _TURNS].T)
            length_bits = turn_keys >> _BITS & _LOW_BITS
            n = np.ones_like(turn_keys)
            for threshold in self._rules.thresholds:
                n += length_bits < threshold * (1 << _BITS)
            yield from zip(row_begins + (turn_keys & _LOW_BITS), n, strict=True)

    def _try(
        self, begin: np.ndarray, n: np.ndarray, rows: np.ndarray, quota: np.ndarray
    ) -> np.ndarray:
        """Tries one span in each of R rows: takes it if it fits.

        Args:
            begin: int [R], the index in tables of the first word of each span.
            n: int [R], the drawn number of words of each span.
            rows: int [R], the numbers of the rows.
            quota: int [R], the number of tokens that each row may still take.

        Returns:
            int [R], the number of tokens that each row has taken; 0 for a skipped span.
        """
        offsets, ngram = self._offsets, self._rules.config.ngram
        end = np.minimum(begin + n, rows * self._width + self._limits[begin])
        # Each pass removes a word from the spans with too many tokens.
        for _ in range(ngram - 1):
            end -= (offsets[end] - offsets[begin] > quota) & (end > begin + 1)
        tokens = offsets[end] - offsets[begin]
        fits = tokens <= quota
        # The indices in tables of the first, second, ... word of each span. If a span
        # has fewer than `ngram` words, its last word is repeated.
        words = [np.minimum(begin + i, end - 1) for i in range(ngram)]
        for word in words:
            fits &= ~self._is_taken[word]
        for word in words:
            self._is_taken[word[fits]] = True
        self._count("spans_drawn", n)
        self._count("spans", (end - begin)[fits])
        return tokens * fits

    def _count(self, name: str, sizes: np.ndarray) -> None:
        """Counts spans of n words as `name/n`.

        Args:
            name: the first part of the counters' names.
            sizes: the number of words of each span.
        """
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
    """Draws the input id of each predicted token: [MASK], the label or a random token.

    Args:
        labels: int [N], the original ids of the tokens.
        seeds: uint64 [N], the seed of the row of each token.
        columns: int [N], the column of each token.
        rules: the rules of masking.
        counts: counts the predictions of each kind.

    Returns:
        int [N], the input ids.
    """
    # The high 32 bits of a number choose the kind; the low 32 bits draw a random token.
    numbers = draw(seeds, _REPLACEMENT, columns)
    fraction = (numbers >> np.uint64(32)) / 2.0**32
    scaled = (numbers & np.uint64(0xFFFFFFFF)) * np.uint64(len(rules.replacements))
    random_ids = rules.replacements[scaled >> np.uint64(32)]
    is_masked = fraction < rules.config.mask_replace_prob
    is_kept = ~is_masked & (fraction < 1 - rules.config.random_replace_prob)
    counts["predictions_masked"] += int(is_masked.sum())
    counts["predictions_kept"] += int(is_kept.sum())
    counts["predictions_random"] += int((~is_masked & ~is_kept).sum())
    return np.where(is_masked, rules.mask_id, np.where(is_kept, labels, random_ids))


def _write_slots(
    batch: dict[str, np.ndarray], positions: np.ndarray, ids: np.ndarray, P: int
) -> None:
    """Adds the three features of predictions, `FEATURES`, to a batch.

    Args:
        batch: gets the features.
        positions: the flat positions (row * T + column) of the predictions, rising.
        ids: the original ids of all rows, flat.
        P: number of slots in a row.
    """
    B, T = batch["input_ids"].shape
    row, column = np.divmod(positions, T)
    per_row = np.bincount(row, minlength=B)
    # The n-th prediction of a row gets slot n.
    slot = np.arange(row.size) - (np.cumsum(per_row) - per_row)[row]
    values = (column, ids[positions], 1)
    for (name, dtype), value in zip(FEATURES.items(), values, strict=True):
        batch[name] = np.zeros((B, P), dtype)
        batch[name][row, slot] = value
