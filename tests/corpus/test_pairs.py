import itertools
import json
from collections import Counter

import numpy as np
import pytest
from helpers import DATA

from albert_tf.corpus import pairs
from albert_tf.corpus.config import CorpusSettings

V = 1000
STARTS = np.ones(V, bool)


def settings(**changes):
    values = {"input_file": ("x",), "output_file": ("y",), "vocab_file": "v"}
    values |= {"max_seq_length": 23, "short_seq_prob": 0.0}
    return CorpusSettings(**values | changes)


def text(*documents):
    """Builds documents of tokens 0, 1, 2, ... from the lengths of their segments."""
    packed, tokens = pairs.Group(), itertools.count()
    for document in documents:
        packed.add([list(itertools.islice(tokens, length)) for length in document])
    return packed


def draw(packed, config, seed=0, starts=STARTS):
    counts = Counter()
    rng = np.random.default_rng(seed)
    return pairs.draw(packed, config, starts.__getitem__, rng, counts), counts


def draws(packed, config, times=400, starts=STARTS):
    return np.concatenate(
        [draw(packed, config, seed, starts)[0] for seed in range(times)]
    )


def test_sentence_order_divides_a_document_and_swaps_half_the_pairs():
    # Twenty tokens fit: the first three segments (21, one cut off), then the others.
    packed = text([6, 7, 8, 3, 4])
    drawn = draws(packed, settings())
    a, b, label = drawn[:, :2], drawn[:, 2:4], drawn[:, 4]
    assert abs(label.mean() - 0.5) < 3 * 0.5 / np.sqrt(label.size)
    first = np.where(label[:, None], b, a)
    second = np.where(label[:, None], a, b)
    assert (first[:, 1] <= second[:, 0]).all()  # B follows A unless they are swapped
    assert set(second[:, 0].tolist()) >= {6, 13, 24}  # divided between segments
    assert (first[:, 0] < 21).sum() == (first[:, 0] >= 21).sum() == 400
    assert (a[:, 1] - a[:, 0] + b[:, 1] - b[:, 0]).max() == 20


def test_without_an_objective_pairs_stay_in_order():
    drawn = draws(text([6, 7, 8]), settings(objective="none"), times=50)
    assert not drawn[:, pairs.LABEL].any()
    assert (drawn[:, pairs.A_END] <= drawn[:, pairs.B_BEGIN]).all()


def test_a_single_segment_is_divided_at_a_word_and_never_paired_with_another_text():
    starts = STARTS.copy()
    starts[[1, 2, 4, 5]] = False  # tokens 0 to 5 hold the words 0-2 and 3-5
    drawn = draws(text([6], [9, 9]), settings(), times=60, starts=starts)
    single = drawn[drawn[:, :4].max(axis=1) <= 6]
    assert len(single) == 60
    halves = {tuple(row) for row in single.tolist()}
    assert halves == {(0, 3, 3, 6, 0), (3, 6, 0, 3, 1)}


def test_a_segment_of_one_word_is_dropped_and_counted():
    starts = STARTS.copy()
    starts[1:5] = False
    drawn, counts = draw(text([5]), settings(), starts=starts)
    assert drawn.shape == (0, 5)
    assert (counts["dropped_tokens"], counts["dropped_segments"]) == (5, 1)


def test_the_release_pairs_a_single_segment_with_another_document():
    config = settings(released_behaviour=True)
    drawn = draws(text([6], [30, 9]), config, times=50)
    single = drawn[drawn[:, pairs.A_END] <= 6]
    assert len(single) == 50
    assert (single[:, pairs.LABEL] == 1).all()
    assert (single[:, pairs.B_BEGIN] >= 6).all()


def test_next_sentence_takes_b_from_this_or_another_document_and_skips_no_text():
    packed = text([6, 7, 8, 3, 4], [11, 12])
    drawn = draws(packed, settings(objective="nsp"))
    selected = drawn[drawn[:, pairs.A_BEGIN] < 28]
    random = selected[selected[:, pairs.LABEL] == 1]
    true = selected[selected[:, pairs.LABEL] == 0]
    assert (random[:, pairs.B_BEGIN] >= 28).all()
    assert (true[:, pairs.A_END] <= true[:, pairs.B_BEGIN]).all()
    assert (true[:, pairs.B_END] <= 28).all()
    # After a random B, the next A begins where that B would have begun.
    assert {0, 6, 13, 21, 24} <= set(selected[:, pairs.A_BEGIN].tolist())
    released = settings(random_next_sentence=True)
    np.testing.assert_array_equal(draws(packed, released), drawn)


def test_targets_are_drawn_anew_for_each_pair_but_once_for_a_document_in_the_release():
    packed = text([1] * 200)

    def lengths(config, seed):
        drawn, _ = draw(packed, config, seed)
        return (drawn[:, 1] - drawn[:, 0] + drawn[:, 3] - drawn[:, 2])[:-1]

    short = settings(short_seq_prob=1.0)
    assert len(set(lengths(short, 0).tolist())) > 5
    released = settings(short_seq_prob=1.0, released_behaviour=True)
    assert {len(set(lengths(released, seed).tolist())) for seed in range(9)} == {1}
    all_lengths = np.concatenate([lengths(short, seed) for seed in range(99)])
    assert (all_lengths.min(), all_lengths.max()) == (2, 20)
    assert set(lengths(settings(), 0).tolist()) == {20}


def test_truncation_leaves_the_lengths_that_the_release_leaves():
    rows = json.loads((DATA / "released_pretraining_data.json").read_text())["rows"]
    for row in rows:
        drawn = np.array([[0, row["len_a"], 100, 100 + row["len_b"], 0]])
        counts = Counter()
        rng = np.random.default_rng(0)
        pairs.truncate(drawn, row["max_num_tokens"], rng, counts)
        a, b = drawn[0, 1] - drawn[0, 0], drawn[0, 3] - drawn[0, 2]
        assert (a, b) == (row["truncated_a_len"], row["truncated_b_len"])
        assert counts["truncated_tokens"] == row["len_a"] + row["len_b"] - a - b


def test_truncation_takes_from_b_first_where_both_are_equal():
    # 10 + 10 to 9: B and A lose one each in turn, B first: six and five of eleven.
    drawn = np.array([[0, 10, 100, 110, 0]])
    pairs.truncate(drawn, 9, np.random.default_rng(0), Counter())
    assert (drawn[0, 1] - drawn[0, 0], drawn[0, 3] - drawn[0, 2]) == (5, 4)


def test_truncation_takes_from_the_front_and_the_back_alike():
    drawn = np.repeat([[0, 40, 100, 110, 0]], 2003, axis=0)
    pairs.truncate(drawn, 20, np.random.default_rng(0), Counter())
    assert (drawn[:, 1] - drawn[:, 0] == 10).all()
    assert (drawn[:, 2:4] == [100, 110]).all()
    # Thirty tokens taken, each from the front with probability 1/2.
    assert abs(drawn[:, 0].mean() - 15) < 3 * np.sqrt(30 / 4 / 2003)
    assert abs(drawn[:, 0].std() - np.sqrt(30 / 4)) < 0.2


@pytest.mark.parametrize("released", [False, True])
def test_every_token_is_used_when_nothing_is_truncated(released):
    packed = text([5, 5, 5, 5, 5, 5, 5, 5], [10, 10])
    drawn, counts = draw(packed, settings(released_behaviour=released))
    used = [t for row in drawn for t in [*range(*row[:2]), *range(*row[2:4])]]
    assert sorted(used) == list(range(60))
    assert counts["truncated_tokens"] == 0
