from collections import Counter

import numpy as np
import pytest

from albert_tf.corpus import masking

V, CLS, SEP, MASK = 97, 2, 3, 4
STARTS = np.arange(V) % 3 != 0  # ids divisible by three continue a word


def rules(**changes):
    values = {
        "masked_lm_prob": 0.15,
        "max_predictions": 50,
        "ngram": 3,
        "favor_shorter_ngram": True,
        "whole_words": True,
        "cross_separators": False,
        "permute": False,
        "mask_id": MASK,
        "replacements": np.arange(5, V),
    }
    return masking.Rules(**values | changes)


def batch(B=211, T=61, seed=0):
    """Random rows [CLS] A [SEP] B [SEP] of different lengths."""
    rng = np.random.default_rng(seed)
    ids = np.zeros((B, T), np.int32)
    maskable = np.zeros((B, T), bool)
    for row in range(B):
        a, b = rng.integers(1, 28, 2)
        ids[row, : a + b + 3] = rng.integers(5, V, a + b + 3)
        ids[row, [0, a + 1, a + b + 2]] = CLS, SEP, SEP
        maskable[row, 1 : a + b + 2] = True
        maskable[row, a + 1] = False
    return ids, maskable


def run(rule, ids, maskable, seed=0, starts=STARTS):
    counts = Counter()
    rng = np.random.default_rng(seed)
    masked = masking.mask(ids, starts[ids], maskable, rule, rng, counts)
    return masked, counts


def words_of(ids, maskable, cross=False):
    """Lists the words of each row in the plainest way: lists of columns."""
    found = []
    for row, allowed in zip(ids, maskable, strict=True):
        words = []
        for column in np.flatnonzero(allowed):
            fresh = not words or (not cross and words[-1][-1] != column - 1)
            if fresh or STARTS[row[column]]:
                words.append([column])
            else:
                words[-1].append(column)
        found.append(words)
    return found


def chosen(masked, row):
    return set(masked.positions[row, masked.weights[row] > 0].tolist())


def test_span_lengths_are_drawn_with_probability_one_over_n():
    # 1, 1/2, 1/3 sum to 11/6: more than one word 5/11, more than two 2/11.
    np.testing.assert_allclose(rules().thresholds, [5 / 11, 2 / 11])
    longer = rules(favor_shorter_ngram=False).thresholds
    np.testing.assert_allclose(longer, [9 / 11, 6 / 11])
    assert rules(ngram=1).thresholds.size == 0


def test_drawn_spans_follow_these_probabilities():
    _, counts = run(rules(), *batch(B=5003))
    drawn = np.array([counts[f"spans_drawn/{n}"] for n in (1, 2, 3)])
    error = np.sqrt(0.25 / drawn.sum())
    np.testing.assert_allclose(
        drawn / drawn.sum(), [6 / 11, 3 / 11, 2 / 11], atol=3 * error
    )


@pytest.mark.parametrize("cross", [False, True])
def test_words_are_masked_whole_or_not_at_all(cross):
    ids, maskable = batch()
    masked, _ = run(rules(cross_separators=cross), ids, maskable)
    partly = 0
    for row, words in enumerate(words_of(ids, maskable, cross)):
        taken = chosen(masked, row)
        assert taken <= {column for word in words for column in word}
        for word in words:
            assert taken.isdisjoint(word) or taken.issuperset(word)
            partly += len(word) > 1 and taken.issuperset(word)
    assert partly > 100


def test_without_whole_words_pieces_are_masked_alone():
    ids, maskable = batch()
    masked, _ = run(rules(whole_words=False), ids, maskable)
    words = words_of(ids, maskable)
    broken = sum(
        0 < len(chosen(masked, row) & set(word)) < len(word)
        for row in range(len(ids))
        for word in words[row]
    )
    assert broken > 100


def test_each_row_predicts_its_share_when_all_words_are_single_pieces():
    ids, maskable = batch()
    masked, _ = run(rules(), ids, maskable, starts=np.ones(V, bool))
    lengths = maskable.sum(axis=1) + 3
    expected = [max(1, round(0.15 * length)) for length in lengths.tolist()]
    assert masked.weights.sum(axis=1).tolist() == expected
    masked, _ = run(rules(max_predictions=4), ids, maskable)
    assert masked.weights.shape == (211, 4)
    assert masked.weights.sum(axis=1).max() == 4


def test_predictions_never_exceed_the_share_with_long_words():
    ids, maskable = batch()
    masked, _ = run(rules(), ids, maskable)
    lengths = maskable.sum(axis=1) + 3
    assert (masked.weights.sum(axis=1) <= np.maximum(1, np.rint(0.15 * lengths))).all()


def test_every_word_is_as_likely_as_any_other_inside_the_row():
    B, T = 20011, 24
    ids = np.full((B, T), 7, np.int32)
    maskable = np.ones((B, T), bool)
    maskable[:, [0, 23]] = False
    masked, _ = run(rules(ngram=1), ids, maskable)
    times = np.bincount(masked.positions[masked.weights > 0], minlength=T)[1:23]
    share = times.sum() / 22
    assert abs(times - share).max() < 4 * np.sqrt(share)


def test_spans_stop_at_a_separator_unless_they_may_cross():
    # Two words, one on each side of [SEP], and room for both: a span of two that could
    # cross would take both in one turn.
    ids = np.array([[CLS, 7, SEP, 8, SEP]] * 1009, np.int32)
    maskable = ids > MASK
    half = {"masked_lm_prob": 0.4, "ngram": 2}
    _, counts = run(rules(**half), ids, maskable)
    assert (counts["spans/1"], counts["spans/2"]) == (2018, 0)
    _, counts = run(rules(**half, cross_separators=True), ids, maskable)
    assert counts["spans/2"] > 100


def test_labels_are_the_originals_and_the_rest_is_untouched():
    ids, maskable = batch()
    masked, _ = run(rules(), ids, maskable)
    rows, slots = np.nonzero(masked.weights)
    columns = masked.positions[rows, slots]
    np.testing.assert_array_equal(masked.labels[rows, slots], ids[rows, columns])
    untouched = np.ones(ids.shape, bool)
    untouched[rows, columns] = False
    np.testing.assert_array_equal(masked.ids[untouched], ids[untouched])
    assert (np.diff(masked.positions, axis=1)[masked.weights[:, 1:] > 0] > 0).all()
    assert not masked.positions[masked.weights == 0].any()
    assert not masked.labels[masked.weights == 0].any()


def test_eighty_percent_become_mask_ten_stay_ten_are_random():
    ids, maskable = batch(B=9001)
    masked, counts = run(rules(), ids, maskable)
    total = int(masked.weights.sum())
    kinds = [counts[f"predictions_{kind}"] for kind in ("masked", "kept", "random")]
    assert sum(kinds) == total
    error = np.sqrt(0.16 / total)
    np.testing.assert_allclose(np.array(kinds) / total, [0.8, 0.1, 0.1], atol=3 * error)
    seen = np.take_along_axis(masked.ids, masked.positions, 1)[masked.weights > 0]
    assert (seen == MASK).sum() == kinds[0]
    assert seen.min() == MASK  # no special piece among the random ones
    assert set(range(5, V)) <= set(seen.tolist())


def test_permutation_moves_as_many_more_tokens_within_their_row():
    ids, maskable = batch()
    masked, counts = run(rules(permute=True, max_predictions=6), ids, maskable)
    assert masked.positions.shape == (211, 12)
    total = int(masked.weights.sum())
    moved = counts["predictions_permuted"]
    assert 0.45 * total < moved < 0.5 * total + 1
    plain = rules(permute=True, max_predictions=6, replacements=np.array([MASK]))
    masked, _ = run(plain, ids, maskable)
    for row in range(len(ids)):
        # Taking [MASK]s away, and what they hide, the tokens are the same.
        hidden = Counter(ids[row].tolist()) - Counter(masked.ids[row].tolist())
        assert sum(hidden.values()) == (masked.ids[row] == MASK).sum()
    assert (np.diff(masked.positions, axis=1)[masked.weights[:, 1:] > 0] > 0).all()


def test_one_seed_gives_one_result_and_another_gives_another():
    ids, maskable = batch()
    first, again, other = (run(rules(), ids, maskable, seed=s)[0] for s in (1, 1, 2))
    np.testing.assert_array_equal(first.ids, again.ids)
    assert (first.ids != other.ids).any()


def test_a_batch_of_one_row_with_one_word():
    ids = np.array([[CLS, 7, SEP, SEP]], np.int32)
    masked, _ = run(rules(), ids, ids > MASK)
    assert masked.positions[0].tolist() == [1] + [0] * 49
    assert masked.labels[0, 0] == 7
