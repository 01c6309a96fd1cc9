import dataclasses
import io
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import corpus
from albert_tf.corpus import examples, manifest, masking, masking_in_graph
from albert_tf.data import records
from albert_tf.errors import InputError

DATA = Path(__file__).parents[1] / "fixtures"
V, CLS, SEP, MASK = 97, 2, 3, 4
MASKED_FEATURES = {"masked_lm_positions", "masked_lm_ids", "masked_lm_weights"}


def rules(**changes):
    config = corpus.CorpusSettings(
        input_file=("-",),
        output_file=("-",),
        vocab_file="-",
        max_predictions_per_seq=50,
    )
    defaults = examples.masking_rules(config, V, range(5), MASK)
    return dataclasses.replace(defaults, **changes)


def made(rows, T, labels=(0,)):
    """Makes a batch of rows given as (words of A, words of B), words as lists."""
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
    labels = np.resize(np.array(labels, np.int32), B)[:, None]
    return {**batch, "next_sentence_labels": labels}


def random_rows(B=211, seed=0):
    """Makes rows of different lengths, whose words have one to three pieces."""
    rng = np.random.default_rng(seed)

    def half():
        return [
            rng.integers(5, V, size).tolist()
            for size in rng.integers(1, 4, rng.integers(1, 15))
        ]

    return made([(half(), half()) for _ in range(B)], T=95)


def run(batch, seed=(5, 8), redraw_order=False, **changes):
    mask = masking_in_graph.GraphMasking(rules(**changes), redraw_order, {})
    return call(mask, batch, seed)


def call(mask, batch, seed):
    batch = {name: tf.constant(value) for name, value in batch.items()}
    return {k: v.numpy() for k, v in mask(batch, tf.constant(seed)).items()}


def predicted(out):
    """Says where the predictions are, bool [B, T]."""
    found = np.zeros(out["input_ids"].shape, bool)
    rows, slots = np.nonzero(out["masked_lm_weights"])
    found[rows, out["masked_lm_positions"][rows, slots]] = True
    return found


def unmasked(out):
    ids = out["input_ids"].copy()
    rows, slots = np.nonzero(out["masked_lm_weights"])
    ids[rows, out["masked_lm_positions"][rows, slots]] = out["masked_lm_ids"][
        rows, slots
    ]
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
    found = Counter(tuple(np.flatnonzero(row).tolist()) for row in predicted(out))
    return {columns: times / found.total() for columns, times in found.items()}


def near(expected, B):
    error = max(np.sqrt(share * (1 - share) / B) for share in expected.values())
    return pytest.approx(expected, abs=3 * error)


def test_spans_of_a_row_worked_by_hand():
    # Words of columns 1; 2, 3 | 5, 6, 7, and half of 9 tokens to predict: 4, as the
    # half is rounded to even. n is 1 with probability 2/3, else 2.
    B = 20011
    batch = made([([[7], [8, 9]], [[10, 11, 12]])] * B, T=11)
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
    batch = made([([[7]], [[8], [9]])] * B, T=8)
    out = run(batch, masked_lm_prob=1 / 3, ngram=2, cross_separators=cross)
    assert shares(out) == near(expected, B)


def test_a_word_reaches_across_a_separator_only_where_spans_do():
    batch = made([([[7]], [[8], [9]])] * 211, T=8)
    batch["token_boundary"][:, 3] = 0  # 8 continues the word of 7, as released
    out = run(batch, masked_lm_prob=1 / 3, cross_separators=True)
    assert set(shares(out)) == {(1, 3), (4,)}
    out = run(batch, masked_lm_prob=1 / 3)
    assert set(shares(out)) == {(1, 3), (1, 4), (3, 4)}


@pytest.mark.parametrize("cross", [False, True])
def test_words_are_masked_whole_or_not_at_all(cross):
    batch = random_rows()
    found = predicted(run(batch, cross_separators=cross))
    whole = 0
    for row in range(len(found)):
        words = words_of(batch, row, cross)
        columns = {column for word in words for column in word}
        assert set(np.flatnonzero(found[row])) <= columns
        for word in words:
            assert len(set(found[row, word])) == 1
            whole += len(word) > 1 and found[row, word[0]]
    assert whole > 100


def test_each_row_predicts_its_share_of_pieces():
    batch = random_rows()
    out = run(batch, whole_words=False)
    lengths = batch["input_mask"].sum(axis=1).tolist()
    expected = [max(1, round(0.15 * length)) for length in lengths]
    assert out["masked_lm_weights"].sum(axis=1).tolist() == expected
    out = run(batch, whole_words=False, max_predictions=4)
    assert out["masked_lm_weights"].shape == (211, 4)
    assert (
        out["masked_lm_weights"].sum(axis=1).tolist()
        == np.minimum(4, expected).tolist()
    )


def test_with_whole_words_what_is_left_does_not_fit():
    batch = random_rows()
    found = predicted(run(batch))
    for row in range(len(found)):
        length = int(batch["input_mask"][row].sum())
        room = max(1, round(0.15 * length)) - found[row].sum()
        free = [word for word in words_of(batch, row) if not found[row, word[0]]]
        assert 0 <= room < min(map(len, free), default=9)


@pytest.mark.parametrize("permute", [False, True])
def test_labels_are_the_originals_and_the_rest_is_untouched(permute):
    batch = random_rows()
    out = run(batch, permute=permute)
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
    batch = random_rows(B=4001)
    out = run(batch)
    found = predicted(out)
    seen, labels = out["input_ids"][found], batch["input_ids"][found]
    # One in V - 5 random pieces is the label.
    chance = 0.1 / (V - 5)
    kinds = {"mask": (seen == MASK).mean(), "kept": (seen == labels).mean()}
    assert kinds == near({"mask": 0.8, "kept": 0.1 + chance}, seen.size)
    random = seen[(seen != MASK) & (seen != labels)]
    times = np.bincount(random, minlength=V)
    assert not times[:5].any()
    assert abs(times[5:] - times.sum() / 92).max() < 4 * np.sqrt(times.sum() / 92)


def test_permutation_moves_tokens_within_their_row():
    batch = random_rows()
    plain = {"permute": True, "max_predictions": 6, "replacements": np.array([MASK])}
    out = run(batch, **plain)
    moved = 0
    for ids, seen in zip(batch["input_ids"], out["input_ids"], strict=True):
        # Taking [MASK]s away, and what they hide, the tokens are the same.
        hidden = Counter(ids.tolist()) - Counter(seen.tolist())
        assert hidden.total() == (seen == MASK).sum()
        moved += ((seen != ids) & (seen != MASK)).sum()
    assert moved > 211
    most = out["masked_lm_weights"].sum(axis=1).max()
    assert most == 12


@pytest.mark.parametrize("permute", [False, True])
def test_masks_that_the_records_have_are_taken_off_first(permute):
    batch = random_rows()
    ids = batch["input_ids"]
    static = masking.mask(
        ids,
        batch["token_boundary"] > 0,
        ids > MASK,
        rules(max_predictions=13, permute=permute),
        np.random.default_rng(0),
        Counter(),
    )
    assert (static.ids != ids).sum() > 211
    # An unused slot stands for nothing, whatever it holds.
    unused = static.weights == 0
    out = run(
        {
            **batch,
            "input_ids": static.ids,
            "masked_lm_positions": static.positions + unused,
            "masked_lm_ids": static.labels,
            "masked_lm_weights": static.weights,
        },
        max_predictions=9,
    )
    assert out["masked_lm_ids"].shape == (211, 9)
    np.testing.assert_array_equal(unmasked(out), ids)
    assert {k: v.tolist() for k, v in out.items()} == {
        k: v.tolist() for k, v in run(batch, max_predictions=9).items()
    }


def test_the_order_is_redrawn_from_either_order():
    a, b = [[7, 8], [9]], [[10], [11, 12], [13, 14, 15]]
    B, T = 1009, 14
    batch = made([(a, b), (b, a)] * B, T=T, labels=[0, 1])
    out = run(batch, redraw_order=True)
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


def test_specials_stay_where_the_order_is_redrawn():
    batch = random_rows()
    out = run(batch, redraw_order=True)
    ids = unmasked(out)
    swapped = out["next_sentence_labels"][:, 0] == 1
    assert 50 < swapped.sum() < 160
    for row in range(len(ids)):
        first, last = np.flatnonzero(ids[row] == SEP)
        was, _ = np.flatnonzero(batch["input_ids"][row] == SEP)
        assert last == batch["input_mask"][row].sum() - 1
        assert first == (last - was if swapped[row] else was)
        assert out["segment_ids"][row].tolist() == [
            int(first < column <= last) for column in range(95)
        ]
        assert not predicted(out)[row, [0, first, last]].any()
        assert not ids[row, last + 1 :].any()


def test_one_seed_gives_one_batch_and_another_gives_another():
    batch = random_rows()
    first, again = (run(batch, seed=(1, 2), redraw_order=True) for _ in range(2))
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
    for seed in ((1, 3), (2, 2)):
        other = run(batch, seed=seed, redraw_order=True)
        assert (other["masked_lm_positions"] != first["masked_lm_positions"]).any()
        assert (other["next_sentence_labels"] != first["next_sentence_labels"]).any()


def test_a_dataset_masks_as_eager_code_does():
    batch = random_rows()
    mask = masking_in_graph.GraphMasking(rules(permute=True), True, {})
    rows = tf.data.Dataset.from_tensor_slices(batch).batch(120).enumerate()
    rows = rows.map(lambda i, chunk: mask(chunk, tf.stack([i, 7])))
    chunks = list(rows.as_numpy_iterator())
    assert [len(chunk["input_ids"]) for chunk in chunks] == [120, 91]
    second = {name: values[120:] for name, values in batch.items()}
    eager = run(second, seed=(1, 7), redraw_order=True, permute=True)
    for name, values in eager.items():
        np.testing.assert_array_equal(chunks[1][name], values)
        assert chunks[1][name].dtype == values.dtype
    shapes = {name: spec.shape.as_list() for name, spec in rows.element_spec.items()}
    assert shapes.pop("next_sentence_labels") == [None, 1]
    assert {tuple(shapes.pop(name)) for name in MASKED_FEATURES} == {(None, 100)}
    assert set(map(tuple, shapes.values())) == {(None, 95)}


def statistics(batch, out):
    """Measures masks: shares of tokens, of kinds, of runs by words and by pieces."""
    found = predicted(out)
    seen, labels = out["input_ids"][found], batch["input_ids"][found]
    numbers = {
        "predicted": found.sum() / batch["input_mask"].sum(),
        "mask": (seen == MASK).mean(),
        "kept": (seen == labels).mean(),
        "b": found[batch["segment_ids"] > 0].sum() / found.sum(),
    }
    edges = np.flatnonzero(np.diff(np.pad(found, [(0, 0), (1, 1)]).ravel()))
    begin, end = edges.reshape(-1, 2).T
    before = np.cumsum(np.pad(batch["token_boundary"], [(0, 0), (1, 1)]).ravel())
    runs = {"pieces": end - begin, "words": before[end] - before[begin]}
    for name, sizes in runs.items():
        times = np.bincount(sizes, minlength=5)
        numbers |= {f"{name} {n}": times[n] / times.sum() for n in range(1, 5)}
    return numbers


@pytest.fixture(scope="module")
def generate(tmp_path_factory):
    """Makes records of 200 short documents and returns their file."""

    def call(**changes):
        values = {
            "input_file": (str(DATA / "docs200.txt"),),
            "output_file": (str(tmp_path_factory.mktemp("run") / "x.tfrecord"),),
            "spm_model_file": str(DATA / "spm_small.model"),
            "max_seq_length": 128,
            "dupe_factor": 2,
            "num_workers": 1,
            "masked_lm_prob": 0.0,
        }
        config = corpus.CorpusSettings(**values | changes)
        corpus.generate(config, io.StringIO())
        return config.output_file[0]

    return call


@pytest.fixture(scope="module")
def file(generate):
    return generate()


def read(file, mask):
    [batch] = records.dataset([file], mask.spec, batch_size=99999).as_numpy_iterator()
    return batch


@pytest.mark.parametrize(
    "changes",
    [
        {"max_predictions": 19},
        {"max_predictions": 7, "ngram": 1},
        {"favor_shorter_ngram": False},
        {"whole_words": False},
        {"cross_separators": True},
        {"permute": True},
    ],
    ids=str,
)
def test_statistics_are_those_of_the_generator(file, changes):
    mask = masking_in_graph.for_records([file])
    batch = read(file, mask)
    rule = dataclasses.replace(mask.rules, **changes)
    mask = tf.function(masking_in_graph.GraphMasking(rule, False, mask.spec))
    maskable = (batch["input_mask"] > 0) & ~np.isin(batch["input_ids"], [CLS, SEP])
    starts = batch["token_boundary"] > 0
    ours, theirs = [], []
    for seed in range(40):
        ours.append(statistics(batch, call(mask, batch, (seed, 0))))
        rng = np.random.default_rng(seed)
        masked = masking.mask(
            batch["input_ids"], starts, maskable, rule, rng, Counter()
        )
        out = {
            "input_ids": masked.ids,
            "masked_lm_positions": masked.positions,
            "masked_lm_weights": masked.weights,
        }
        theirs.append(statistics(batch, out))
    for name in ours[0]:
        a, b = (np.array([seed[name] for seed in side]) for side in (ours, theirs))
        error = np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 40)
        assert abs(a.mean() - b.mean()) <= 3 * error, (name, a.mean(), b.mean())


def test_records_are_masked_by_what_their_description_says(file, generate):
    mask = masking_in_graph.for_records([file])
    assert (mask.rules.max_predictions, mask.rules.ngram) == (19, 3)
    assert mask.rules.masked_lm_prob == 0.15
    assert mask.rules.replacements.tolist() == list(range(5, 1500))
    assert not mask.rules.cross_separators and mask.redraw_order
    assert not MASKED_FEATURES & mask.spec.keys()
    other = generate(
        do_whole_word_mask=False,
        favor_shorter_ngram=False,
        do_permutation=True,
        released_behaviour=True,
        masked_lm_prob=0.2,
        max_predictions_per_seq=11,
    )
    mask = masking_in_graph.for_records(
        [other], masked_lm_prob=0.1, max_predictions_per_seq=17, ngram=2
    )
    assert mask.rules.masked_lm_prob == 0.1
    assert (mask.rules.max_predictions, mask.rules.ngram) == (17, 2)
    assert not mask.rules.whole_words and not mask.rules.favor_shorter_ngram
    assert mask.rules.permute and mask.rules.cross_separators
    assert mask.rules.replacements.size == 1500
    # The release gives label 1 to unrelated halves too, which cannot be put in order.
    assert not mask.redraw_order
    assert mask.spec["masked_lm_ids"].length == 22


@pytest.mark.parametrize("objective", ["nsp", "none"])
def test_only_the_sentence_order_is_redrawn(generate, objective):
    file = generate(objective=objective)
    mask = masking_in_graph.for_records([file])
    batch = read(file, mask)
    out = call(mask, batch, (0, 1))
    np.testing.assert_array_equal(
        out["next_sentence_labels"], batch["next_sentence_labels"]
    )
    np.testing.assert_array_equal(out["segment_ids"], batch["segment_ids"])


def test_static_and_unmasked_records_of_one_seed_hold_the_same_text(file, generate):
    static = generate(masked_lm_prob=0.15)
    mask = masking_in_graph.for_records([static])
    assert mask.spec.keys() > MASKED_FEATURES
    batch = read(static, mask)
    plain = read(file, masking_in_graph.for_records([file]))

    def text(batch):
        return sorted(map(tuple, batch["input_ids"].tolist()))

    assert text(batch) != text(plain)
    out = call(mask, batch, (3, 4))
    differs = out["next_sentence_labels"] != batch["next_sentence_labels"]
    assert 0.4 < differs.mean() < 0.6
    stays = ~differs[:, 0]
    restored = {"input_ids": unmasked(out)[stays]}
    assert set(text(restored)) <= set(text(plain))


def test_masked_records_without_their_masks_are_refused(generate):
    mask = masking_in_graph.for_records([generate(masked_lm_prob=0.15)])
    with pytest.raises(ValueError) as caught:
        mask(random_rows(), tf.constant([0, 0]))
    assert str(caught.value) == (
        "features ['masked_lm_ids', 'masked_lm_positions', 'masked_lm_weights'] of the "
        "records are missing"
    )


def refusal(files, **changes):
    with pytest.raises(InputError) as caught:
        masking_in_graph.for_records(files, **changes)
    return str(caught.value)


def test_records_without_a_description_are_refused(tmp_path):
    file = str(tmp_path / "x.tfrecord")
    assert refusal([file]) == (
        f"{file}: no description of it in {file}.json; --dynamic_masking needs the one "
        f"that create_pretraining_data.py writes"
    )


@pytest.mark.parametrize("newer", [False, True])
def test_descriptions_of_other_versions_are_refused(file, tmp_path, newer):
    description = manifest.of(file)
    if newer:
        description["settings"]["unheard_of"] = 1
    else:
        del description["vocabulary"]["special_ids"]
    path = tmp_path / "x.tfrecord.json"
    path.write_text(json.dumps(description))
    assert refusal([str(tmp_path / "x.tfrecord")]) == (
        f"{path}: from another version of create_pretraining_data.py; make the records "
        f"again"
    )


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("max_seq_length", 64),
        ("sentence_objective", "nsp"),
        ("do_permutation", True),
        ("max_predictions", 19),
    ],
)
def test_files_made_in_different_ways_are_refused(file, tmp_path, setting, value):
    changes = {
        "sentence_objective": {"objective": value},
        "max_predictions": {"masked_lm_prob": 0.15, "max_predictions_per_seq": value},
    }.get(setting, {setting: value})
    description = manifest.of(file)
    description["settings"] |= changes
    other = str(tmp_path / "x.tfrecord")
    manifest.write(f"{other}.json", description)
    was = {"max_seq_length": 128, "sentence_objective": "sop", "do_permutation": False}
    assert refusal([file, other]) == (
        f"{other}: made with {setting}={value}, but {file} with {was.get(setting, 0)}; "
        f"--dynamic_masking has one set of rules"
    )


def test_files_of_different_vocabularies_are_refused(file, tmp_path):
    description = manifest.of(file)
    old = description["vocabulary"]["fingerprint"]
    description["vocabulary"]["fingerprint"] = "other"
    other = str(tmp_path / "x.tfrecord")
    manifest.write(f"{other}.json", description)
    assert refusal([file, file, other]) == (
        f"{other}: made with vocabulary=other, but {file} with {old}; "
        f"--dynamic_masking has one set of rules"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"masked_lm_prob": 0.0},
            "--masked_lm_prob=0.0: expected a number in (0, 1)",
        ),
        ({"ngram": 0}, "--ngram=0: expected at least 1"),
        (
            {"max_predictions_per_seq": 126},
            "--max_predictions_per_seq=126: expected at most 125, --max_seq_length "
            "less 3",
        ),
    ],
)
def test_arguments_out_of_range_are_refused(file, changes, message):
    assert refusal([file], **changes) == message
