"""The records have the statistics of those that the release made from the same text.

A number agrees when the recorded seed lies within three standard errors of the mean of
our seeds. More than a hundred are compared, and one of 370 lies beyond by chance: one
number of a variant may, within 3.5. A distribution agrees when its greatest cumulative
distance from our mean lies within three. The errors are those of one seed, estimated
from the spread of ours.
"""

import contextlib
import functools
import io
import json
from collections import Counter

import numpy as np
import pytest
from helpers import DATA, slow_except

from albert_tf.corpus import CorpusSettings, documents, files, pairs, shards
from albert_tf.data import records

RELEASED = json.loads((DATA / "released_pretraining_data.json").read_text())
VARIANTS = {
    "default": {"dupe_factor": 40},
    "random_next_sentence": {"dupe_factor": 5, "random_next_sentence": True},
    "no_whole_word": {"dupe_factor": 5, "do_whole_word_mask": False},
    "favor_longer": {"dupe_factor": 5, "favor_shorter_ngram": False},
    # More than a row has tokens, which changes nothing.
    "max_predictions_200": {"dupe_factor": 10, "max_predictions_per_seq": 200},
    "ngram1": {"dupe_factor": 5, "ngram": 1},
    "permutation": {"dupe_factor": 5, "do_permutation": True},
    "short_seq_half": {"dupe_factor": 5, "short_seq_prob": 0.5},
    # The vocabulary has no capital letters: many pieces are unknown.
    "cased": {"dupe_factor": 5, "do_lower_case": False},
}
# The unit tests of masking have ngram=1 and many predictions, too.
FAST = VARIANTS.keys() - {"max_predictions_200", "ngram1"}
SEEDS = range(20)


def settings(**changes):
    return CorpusSettings(
        input_file=(str(DATA / "docs200.txt"),),
        output_file=("unused",),
        spm_model_file=str(DATA / "spm_small.model"),
        max_seq_length=128,
        released_behaviour=True,
        **changes,
    )


@functools.cache
def load_tokenizer(do_lower_case):
    return shards.load_tokenizer(settings(do_lower_case=do_lower_case))


@functools.cache
def text(do_lower_case):
    config = settings(do_lower_case=do_lower_case)
    tokenizer = load_tokenizer(do_lower_case)
    [(part, _)] = documents.divide_files(documents.find_files(config.input_file))
    lines = documents.read(part, "strict", Counter())
    packed = pairs.Group()
    for segments in documents.tokenize(lines, config, tokenizer, Counter()):
        packed.add(segments)
    return packed


def generate(config):
    """Makes all batches of one seed, before they are serialised, and the counters."""
    batches, results = [], []

    def encode(_, batch):
        batches.append(batch)
        return [b""] * len(batch["input_ids"])

    texts = [text(config.do_lower_case)]
    tokenizer = load_tokenizer(config.do_lower_case)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "encode", encode)
        patch.setattr(shards, "load_tokenizer", lambda _: tokenizer)
        patch.setattr(shards.Shard, "read_groups", lambda _: texts)
        output = contextlib.nullcontext(io.BytesIO())
        patch.setattr(files, "create", lambda path: output)
        patch.setattr(files, "write_json", lambda path, result: results.append(result))
        shards.make_shard("x.json", config, shards.ShardPlan("train", 0, []))
    joined = {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}
    return joined, results[0]["counts"]


def measure(batch):
    lengths = batch["input_mask"].sum(axis=1)
    b = batch["segment_ids"].sum(axis=1) - 1
    a = lengths - 3 - b
    used = batch["masked_lm_weights"] > 0
    seen = np.take_along_axis(batch["input_ids"], batch["masked_lm_positions"], 1)[used]
    masked = np.zeros((len(lengths), 128 + 2), int)
    masked[np.nonzero(used)[0], batch["masked_lm_positions"][used] + 1] = 1
    edges = np.flatnonzero(np.diff(masked, axis=1)).reshape(-1, 2)
    runs = np.bincount(edges[:, 1] - edges[:, 0], minlength=5)
    return {
        "instances": len(lengths),
        "mean_length": lengths.mean(),
        "std_length": lengths.std(),
        "fraction_label1": batch["next_sentence_labels"].mean(),
        "fraction_masked_of_tokens": used.sum() / lengths.sum(),
        "mean_predictions": used.sum(axis=1).mean(),
        "fraction_mask_token": (seen == 4).mean(),
        "fraction_kept": (seen == batch["masked_lm_ids"][used]).mean(),
        "mean_len_a": a.mean(),
        "mean_len_b": b.mean(),
        "std_len_a": a.std(),
        "std_len_b": b.std(),
        **{f"runs_of_masked_pieces {n}": runs[n] / runs.sum() for n in range(1, 5)},
    }, {
        f"hist_{name}_by10": np.cumsum(np.bincount(values // 10, minlength=13)) / len(a)
        for name, values in (("length", lengths), ("len_a", a), ("len_b", b))
    }


def recorded(variant, name):
    numbers = RELEASED["statistics"][variant]
    if name.startswith("hist"):
        times = np.array([numbers[name].get(str(10 * i), 0) for i in range(13)])
        return np.cumsum(times) / times.sum()
    if " " in name:
        name, bin = name.split()
        return numbers[name][bin] / sum(numbers[name].values())
    return numbers[name]


@pytest.mark.parametrize("variant", slow_except(FAST, VARIANTS))
def test_statistics_agree_with_the_release(variant):
    counts = Counter()
    ours = []
    for seed in SEEDS:
        config = settings(random_seed=seed, **VARIANTS[variant])
        batch, seed_counts = generate(config)
        ours.append(measure(batch))
        counts += seed_counts
    if variant in RELEASED["spans"]:
        check_spans(counts, RELEASED["spans"][variant])
    if variant not in RELEASED["statistics"]:
        return
    beyond = {}
    for name in ours[0][0]:
        values = np.array([numbers[name] for numbers, _ in ours])
        error = values.std(ddof=1) * np.sqrt(1 + 1 / len(SEEDS))
        distance = abs(values.mean() - recorded(variant, name))
        if distance >= 3 * error:
            beyond[name] = distance / error
    assert len(beyond) <= 1 and max(beyond.values(), default=0) < 3.5, beyond
    for name in ours[0][1]:
        values = np.array([distributions[name] for _, distributions in ours])
        distances = abs(values - values.mean(axis=0)).max(axis=1)
        distance = abs(values.mean(axis=0) - recorded(variant, name)).max()
        assert distance < distances.mean() + 3 * distances.std(ddof=1), name


def check_spans(counts, released):
    keys = {"spans_drawn": "drawn_n", "spans": "accepted_words_per_span"}
    for name, key in keys.items():
        recorded = np.array([released[key][n] for n in "123"])
        drawn = np.array([counts[f"{name}/{n}"] for n in (1, 2, 3)])
        share, expected = drawn / drawn.sum(), recorded / recorded.sum()
        error = np.sqrt(share * (1 - share) * (1 / drawn.sum() + 1 / recorded.sum()))
        assert (abs(share - expected) < 3 * error).all()


def test_token_boundaries_are_those_of_the_release():
    starts = load_tokenizer(True).word_starts(settings().word_start_rule)
    for row in RELEASED["rows"]:
        ids = np.array(row["tokens"])
        boundary = starts(ids) | np.isin(ids, [2, 3])
        assert boundary.astype(int).tolist() == row["token_boundary"]
