import functools
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from helpers import refusal

from albert_tf import corpus
from albert_tf.corpus import MaskingSettings, dynamic_masking, manifest, masking
from albert_tf.data import batches, records

MASKED_FEATURES = set(masking.FEATURES)
V, CLS, SEP, MASK = 97, 2, 3, 4


def rules(**changes):
    special_ids = changes.pop("special_ids", range(5))
    values = {"input_file": ("x",), "output_file": ("y",), "vocab_file": "v"}
    values["max_predictions_per_seq"] = 50
    config = corpus.CorpusSettings(**values | changes)
    vocabulary = {"size": V, "mask_id": MASK, "special_ids": [*special_ids]}
    return masking.Rules(config, vocabulary)


def made(rows, T, labels=(0,), times=1):
    """Makes a batch of rows given as (words of A, words of B), words as lists.

    The batch has all rows `times` times.
    """
    B = len(rows)
    batch = {
        name: np.zeros((B, T), np.int32)
        for name in ("input_ids", "input_mask", "segment_ids", "token_boundary")
    }
    for i, (a, b) in enumerate(rows):
        words = [[CLS], *a, [SEP], *b, [SEP]]
        ids = [id for word in words for id in word]
        first_sep = 1 + sum(map(len, a))
        batch["input_ids"][i, : len(ids)] = ids
        batch["input_mask"][i, : len(ids)] = 1
        batch["segment_ids"][i, first_sep + 1 : len(ids)] = 1
        begins = np.cumsum([0, *map(len, words)])[:-1]
        batch["token_boundary"][i, begins] = 1
    batch["next_sentence_labels"] = np.resize(np.array(labels, np.int32), B)[:, None]
    return {name: np.tile(values, (times, 1)) for name, values in batch.items()}


@functools.cache
def random_rows(B=211, seed=0):
    """Makes rows of different lengths, whose words have one to three tokens."""
    rng = np.random.default_rng(seed)

    def half():
        return [
            rng.integers(5, V, size).tolist()
            for size in rng.integers(1, 4, rng.integers(1, 15))
        ]

    return made([(half(), half()) for _ in range(B)], T=95)


def run(batch, seed=5, counts=None, **changes):
    out = dict(batch)
    rng, B = np.random.default_rng(seed), len(batch["input_ids"])
    seeds = rng.integers(1 << 64, size=B, dtype=np.uint64)
    counts = Counter() if counts is None else counts
    masking.mask(out, rules(**changes), seeds, counts)
    return out


def predicted(out):
    """Returns where the predictions are, bool [B, T]."""
    where = np.zeros(out["input_ids"].shape, bool)
    rows, slots = np.nonzero(out["masked_lm_weights"])
    where[rows, out["masked_lm_positions"][rows, slots]] = True
    return where


def unmasked(out):
    ids = out["input_ids"].copy()
    rows, slots = np.nonzero(out["masked_lm_weights"])
    columns = out["masked_lm_positions"][rows, slots]
    ids[rows, columns] = out["masked_lm_ids"][rows, slots]
    return ids


def words_of(batch, row, cross=False):
    """Lists the words of a row in the plainest way: lists of columns."""
    words, text_begins = [], True
    for column in range(1, batch["input_mask"][row].sum() - 1):
        if batch["input_ids"][row, column] == SEP:
            text_begins = not cross
        elif text_begins or batch["token_boundary"][row, column]:
            words.append([column])
            text_begins = False
        else:
            words[-1].append(column)
    return words


def shares(out):
    """Returns the share of each set of predicted columns."""
    sets = Counter(tuple(np.flatnonzero(row).tolist()) for row in predicted(out))
    return {columns: times / sets.total() for columns, times in sets.items()}


def near(expected, B):
    error = max(np.sqrt(share * (1 - share) / B) for share in expected.values())
    return pytest.approx(expected, abs=3 * error)


def test_span_lengths_are_drawn_with_probability_one_over_n():
    # 1, 1/2, 1/3 sum to 11/6: more than one word 5/11, more than two 2/11.
    np.testing.assert_allclose(rules().thresholds, [5 / 11, 2 / 11])
    longer = rules(favor_shorter_ngram=False).thresholds
    np.testing.assert_allclose(longer, [9 / 11, 6 / 11])
    assert rules(ngram=1).thresholds.size == 0
    counts = Counter()
    run(random_rows(B=4001), counts=counts)
    drawn = {n: counts[f"spans_drawn/{n}"] for n in (1, 2, 3)}
    total = sum(drawn.values())
    expected = {1: 6 / 11, 2: 3 / 11, 3: 2 / 11}
    assert {n: times / total for n, times in drawn.items()} == near(expected, total)


def test_spans_of_a_row_worked_by_hand():
    # Words of columns 1; 2, 3 | 5, 6, 7, and half of 9 tokens to predict: 4, as the
    # half is rounded to even. n is 1 with probability 2/3, else 2.
    B = 20011
    batch = made([([[7], [8, 9]], [[10, 11, 12]])], T=11, times=B)
    out = run(batch, masked_lm_prob=0.5, ngram=2)
    # First word 2, 3: word 1 follows. First word 1: n = 2 takes both; n = 1 leaves
    # room for either of the others. First word 5, 6, 7: word 1 is all that fits.
    expected = 1 / 3 + 1 / 3 * (1 / 3 + 2 / 3 * 1 / 2)
    assert shares(out) == near({(1, 2, 3): expected, (1, 5, 6, 7): 1 - expected}, B)


@pytest.mark.parametrize(
    ("cross", "expected"),
    [
        (False, {(1, 3): 5 / 18, (1, 4): 6 / 18, (3, 4): 7 / 18}),
        (True, {(1, 3): 6 / 18, (1, 4): 5 / 18, (3, 4): 7 / 18}),
    ],
)
def test_spans_stop_at_a_separator_unless_they_may_cross(cross, expected):
    # Words 1 | 3; 4 and two tokens to predict. 1 first (1/3): 3 or 4 follows; if it may
    # cross, n = 2 (1/3) takes 1 and 3. 3 first: n = 2 takes 3 and 4, else 1 or 4
    # follows. 4 first: 1 or 3 follows.
    B = 20011
    batch = made([([[7]], [[8], [9]])], T=8, times=B)
    out = run(batch, masked_lm_prob=1 / 3, ngram=2, released_behaviour=cross)
    assert shares(out) == near(expected, B)


def test_a_word_reaches_across_a_separator_only_where_spans_do():
    batch = made([([[7]], [[8], [9]])], T=8, times=211)
    batch["token_boundary"][:, 3] = 0  # 8 continues the word of 7, as released
    out = run(batch, masked_lm_prob=1 / 3, released_behaviour=True)
    assert set(shares(out)) == {(1, 3), (4,)}
    out = run(batch, masked_lm_prob=1 / 3)
    assert set(shares(out)) == {(1, 3), (1, 4), (3, 4)}


def test_every_word_is_as_likely_as_any_other_of_its_row():
    B = 20011
    batch = made([([[7]] * 11, [[8]] * 11)], T=25, times=B)
    where = predicted(run(batch, ngram=1)).sum(axis=0)
    times = np.delete(where, [0, 12, 24])
    assert where.sum() == times.sum() == 4 * B
    assert abs(times - times.mean()).max() < 4 * np.sqrt(times.mean())


@pytest.mark.parametrize("cross", [False, True])
def test_words_are_masked_whole_or_not_at_all(cross):
    batch = random_rows()
    where = predicted(run(batch, released_behaviour=cross))
    whole = 0
    for row in range(len(where)):
        words = words_of(batch, row, cross)
        length = int(batch["input_mask"][row].sum())
        assert set(np.flatnonzero(where[row])) <= {c for word in words for c in word}
        for word in words:
            assert len(set(where[row, word])) == 1
            whole += len(word) > 1 and where[row, word[0]]
        # What is left does not fit.
        room = max(1, round(0.15 * length)) - where[row].sum()
        free = [word for word in words if not where[row, word[0]]]
        assert 0 <= room < min(map(len, free), default=9)
    assert whole > 100


def test_each_row_predicts_its_share_of_tokens():
    batch = random_rows()
    out = run(batch, do_whole_word_mask=False)
    lengths = batch["input_mask"].sum(axis=1).tolist()
    expected = [max(1, round(0.15 * length)) for length in lengths]
    assert out["masked_lm_weights"].sum(axis=1).tolist() == expected
    out = run(batch, do_whole_word_mask=False, max_predictions_per_seq=4)
    assert out["masked_lm_weights"].shape == (211, 4)
    most = np.minimum(4, expected).tolist()
    assert out["masked_lm_weights"].sum(axis=1).tolist() == most
    one = made([([[7]], [])], T=5)
    assert run(one)["masked_lm_positions"].tolist() == [[1] + [0] * 49]


@pytest.mark.parametrize("permute", [False, True])
def test_labels_are_the_originals_and_the_rest_is_untouched(permute):
    batch = random_rows()
    out = run(batch, do_permutation=permute)
    np.testing.assert_array_equal(unmasked(out), batch["input_ids"])
    for name in batch.keys() - {"input_ids"}:
        np.testing.assert_array_equal(out[name], batch[name])
    used = out["masked_lm_weights"] > 0
    positions, labels = out["masked_lm_positions"], out["masked_lm_ids"]
    assert used.shape == (211, 100 if permute else 50)
    assert (np.diff(used.astype(int), axis=1) <= 0).all()  # unused slots come last
    assert (np.diff(positions, axis=1)[used[:, 1:]] > 0).all()
    assert not positions[~used].any() and not labels[~used].any()


def test_eighty_percent_become_mask_ten_stay_ten_are_random():
    batch, counts = random_rows(B=4001), Counter()
    out = run(batch, seed=6, counts=counts)
    where = predicted(out)
    seen, labels = out["input_ids"][where], batch["input_ids"][where]
    # One in V - 5 random tokens is the label.
    chance = 0.1 / (V - 5)
    kinds = {"mask": (seen == MASK).mean(), "kept": (seen == labels).mean()}
    assert kinds == near({"mask": 0.8, "kept": 0.1 + chance}, seen.size)
    counted = [counts[f"predictions_{kind}"] for kind in ("masked", "kept", "random")]
    assert sum(counted) == seen.size and counted[0] == (seen == MASK).sum()
    random = seen[(seen != MASK) & (seen != labels)]
    times = np.bincount(random, minlength=V)
    assert not times[:5].any()
    assert abs(times[5:] - times.sum() / 92).max() < 4 * np.sqrt(times.sum() / 92)


@pytest.mark.parametrize(("mask", "random"), [(1.0, 0.0), (0.5, 0.2), (0.0, 1.0)])
def test_shares_of_what_becomes_of_predictions_are_settings(mask, random):
    batch, counts = random_rows(B=4001), Counter()
    run(batch, counts=counts, mask_replace_prob=mask, random_replace_prob=random)
    kinds = {k: counts[f"predictions_{k}"] for k in ("masked", "random", "kept")}
    total = sum(kinds.values())
    expected = {"masked": mask, "random": random, "kept": 1 - mask - random}
    assert {k: n / total for k, n in kinds.items()} == near(expected, total)


def test_permutation_moves_as_many_more_tokens_within_their_row():
    batch, counts = random_rows(), Counter()
    plain = {"do_permutation": True, "special_ids": {*range(V)} - {MASK}}
    out = run(batch, counts=counts, max_predictions_per_seq=6, **plain)
    total = int(out["masked_lm_weights"].sum())
    assert 0.45 * total < counts["predictions_permuted"] < 0.5 * total + 1
    moved = 0
    for ids, seen in zip(batch["input_ids"], out["input_ids"], strict=True):
        # Taking [MASK]s away, and what they hide, the tokens are the same.
        hidden = Counter(ids.tolist()) - Counter(seen.tolist())
        assert hidden.total() == (seen == MASK).sum()
        moved += ((seen != ids) & (seen != MASK)).sum()
    assert moved > 211
    assert out["masked_lm_weights"].sum(axis=1).max() == 12


@pytest.mark.parametrize("permute", [False, True])
def test_a_row_is_masked_alike_in_any_batch(permute):
    batch = random_rows()
    seeds = np.arange(211, dtype=np.uint64) ** 5
    rule = rules(do_permutation=permute)

    def masked(rows):
        out = {name: values[rows] for name, values in batch.items()}
        masking.mask(out, rule, seeds[rows], Counter())
        return out

    whole = masked(np.arange(211))
    for rows in (np.arange(3, 20), np.array([7]), np.arange(211)[::-3]):
        for name, values in masked(rows).items():
            np.testing.assert_array_equal(values, whole[name][rows])
    other = run(batch, seed=6, do_permutation=permute)
    assert (other["masked_lm_positions"] != whole["masked_lm_positions"]).any()


# Masking while training


def run_dynamic(batch, seed=5, redraw_order=False, **changes):
    mask = dynamic_masking.DynamicMasking(rules(**changes), redraw_order, {})
    return call(mask, batch, seed)


def call(mask, batch, seed=5):
    return mask.mask(batch, seed, np.arange(len(batch["input_ids"])))


@pytest.mark.parametrize("permute", [False, True])
def test_masks_that_the_records_have_are_taken_off_first(permute):
    batch = random_rows()
    ids, static = batch["input_ids"], dict(batch)
    rule = rules(max_predictions_per_seq=13, do_permutation=permute)
    masking.mask(static, rule, np.arange(211, dtype=np.uint64), Counter())
    assert (static["input_ids"] != ids).sum() > 211
    # An unused slot stands for nothing, whatever it holds.
    static["masked_lm_positions"] += static["masked_lm_weights"] == 0
    out = run_dynamic(static, max_predictions_per_seq=9)
    assert out["masked_lm_ids"].shape == (211, 9)
    np.testing.assert_array_equal(unmasked(out), ids)
    assert {k: v.tolist() for k, v in out.items()} == {
        k: v.tolist() for k, v in run_dynamic(batch, max_predictions_per_seq=9).items()
    }


def test_the_order_is_redrawn_from_either_order():
    a, b = [[7, 8], [9]], [[10], [11, 12], [13, 14, 15]]
    B, T = 1009, 14
    batch = made([(a, b), (b, a)], T=T, labels=[0, 1], times=B)
    out = dict(run_dynamic(batch, redraw_order=True))
    expected = {0: made([(a, b)], T), 1: made([(b, a)], T)}
    out["input_ids"] = unmasked(out)
    labels = out["next_sentence_labels"]
    assert labels.shape == (2 * B, 1)
    for name in ("input_ids", "input_mask", "segment_ids", "token_boundary"):
        wanted = np.where(labels, expected[1][name], expected[0][name])
        np.testing.assert_array_equal(out[name], wanted)
    # A fair coin that knows nothing of the order before.
    for old in (0, 1):
        assert {1: labels[old::2].mean()} == near({1: 0.5}, B)


@pytest.mark.parametrize(
    ("start", "size", "context"),
    [(0, 24, (1, 0, 1)), (10 * 24, 18, (1, 0, 1)), (0, 24, (2, 1, 6))],
)
def test_a_run_masks_a_record_by_its_seed_and_its_place(tmp_path, start, size, context):
    batch = random_rows()
    spec = {
        name: records.Feature("int", values.shape[1]) for name, values in batch.items()
    }
    mask = dynamic_masking.DynamicMasking(rules(do_permutation=True), True, spec)
    path = str(tmp_path / "x.tfrecord")
    with records.create(path) as writer:
        writer.write(records.encode(spec, batch))
    shard = batches.InputShard(size, tf.distribute.InputContext(*context))
    per_replica = size // context[2]

    def read(prepare):
        source = batches.Records((path,), (211,), spec, prepare)
        dataset = source.training(shard, seed=3, start=start)
        # More than are masked together, and than an epoch has.
        rows = list(dataset.take(600 // per_replica).as_numpy_iterator())
        joined = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
        return joined, dataset.element_spec

    plain, _ = read(None)
    masked, element_spec = read(mask)
    place = np.arange(size * 600).reshape(-1, size)
    place = place[:, context[1] * shard.rows :][:, : shard.rows].ravel()[:600]
    expected = mask.mask(plain, 3, start + place[: len(plain["input_ids"])])
    for name, values in expected.items():
        np.testing.assert_array_equal(masked[name], values)
    shapes = {name: each.shape.as_list() for name, each in element_spec.items()}
    assert shapes["next_sentence_labels"] == [per_replica, 1]
    assert {tuple(shapes[n]) for n in MASKED_FEATURES} == {(per_replica, 100)}
    other = mask.mask(plain, 4, start + place[: len(plain["input_ids"])])
    assert (other["input_ids"] != masked["input_ids"]).any()


@pytest.fixture(scope="module")
def new_file(generate, tmp_path_factory):
    """Makes records of 200 short documents, by default without masks."""

    def call(**changes):
        changes = {"masked_lm_prob": 0.0, "dupe_factor": 1} | changes
        return str(generate(tmp_path_factory.mktemp("run"), **changes) / "x.tfrecord")

    return call


@pytest.fixture(scope="module")
def file(new_file):
    return new_file()


def read(file, mask):
    [batch] = records.dataset([file], mask.spec, batch_size=99999).as_numpy_iterator()
    return batch


def test_records_are_masked_by_what_their_description_says(file, new_file):
    mask = dynamic_masking.for_records([file])
    config = mask.rules.config
    numbers = config.masked_lm_prob, config.max_predictions, config.ngram
    assert numbers == (0.15, 19, 3)
    assert mask.rules.replacements.tolist() == list(range(5, 1500))
    assert not config.released_behaviour and mask.redraw_order
    assert not MASKED_FEATURES & mask.spec.keys()
    described = {"do_whole_word_mask": False, "favor_shorter_ngram": False}
    described |= {"do_permutation": True, "released_behaviour": True}
    other = new_file(masked_lm_prob=0.2, max_predictions_per_seq=11, **described)
    given = {"masked_lm_prob": 0.1, "max_predictions_per_seq": 17, "ngram": 2}
    mask = dynamic_masking.for_records([other], MaskingSettings(**given))
    for name, value in {**described, **given}.items():
        assert getattr(mask.rules.config, name) == value
    assert mask.rules.replacements.size == 1500
    # The release gives label 1 to unrelated halves too, which cannot be put in order.
    assert not mask.redraw_order
    assert mask.spec["masked_lm_ids"].length == 22


@pytest.mark.parametrize("objective", ["nsp", "none"])
def test_only_the_sentence_order_is_redrawn(new_file, objective):
    file = new_file(objective=objective)
    mask = dynamic_masking.for_records([file])
    batch = read(file, mask)
    out = call(mask, batch)
    for name in ("next_sentence_labels", "segment_ids"):
        np.testing.assert_array_equal(out[name], batch[name])


def refused(files, **changes):
    return refusal(dynamic_masking.for_records, files, MaskingSettings(**changes))


def test_what_cannot_be_masked_is_refused(file, tmp_path):
    other = str(tmp_path / "x.tfrecord")
    assert refused([other]) == (
        f"{other}: no description in {other}.json; --dynamic_masking needs the "
        f"description that create_pretraining_data.py writes"
    )
    description = manifest.read(file)
    description["settings"]["unheard_of"] = 1
    Path(f"{other}.json").write_text(json.dumps(description))
    assert refused([other]) == (
        f"{other}.json: CorpusSettings.__init__() got an unexpected keyword argument "
        f"'unheard_of'; expected settings of this version; make the records again"
    )
    message = "--masked_lm_prob=0.0: expected a number in (0, 1)"
    assert refused([file], masked_lm_prob=0.0) == message


@pytest.mark.parametrize(
    ("name", "value", "old", "changes"),
    [
        ("max_seq_length", 64, 128, {"max_seq_length": 64}),
        ("do_permutation", True, False, {"do_permutation": True}),
        ("max_predictions", 19, 0,
         {"masked_lm_prob": 0.15, "max_predictions_per_seq": 19}),
    ],
)  # fmt: skip
def test_files_made_differently_are_refused(file, tmp_path, name, value, old, changes):
    description = manifest.read(file)
    description["settings"] |= changes
    other = str(tmp_path / "x.tfrecord")
    Path(f"{other}.json").write_text(json.dumps(description))
    assert refused([file, file, other]) == (
        f"{other}: made with {name}={value}, but {file} with {old}; "
        f"--dynamic_masking has one set of rules"
    )
