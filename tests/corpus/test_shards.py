from collections import Counter

import pytest
from helpers import SMALL_MODEL, refusal

from albert_tf.corpus import documents, manifest, shards
from albert_tf.corpus.config import CorpusSettings

VALUES = {"input_file": ("x",), "output_file": ("y",), "vocab_file": "v"}


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """Plans the shards of a text of so many ranges of 100 bytes."""
    monkeypatch.setattr(documents, "RANGE_BYTES", 90)
    monkeypatch.setattr(shards, "SHARD_BYTES", 800)
    monkeypatch.setattr(shards, "POOL_BYTES", 2000)

    def call(ranges, **changes):
        path = tmp_path / "text"
        path.write_text(("x" * 98 + "\n\n") * ranges)
        config = CorpusSettings(**VALUES | {"dupe_factor": 1} | changes)
        return shards.make_plans({str(path): 100 * ranges}, config)

    return call


@pytest.mark.parametrize("changes", [{}, {"dupe_factor": 40}, {"objective": "nsp"}])
def test_shards_of_a_subset_read_every_range_once(plan, changes):
    for subset in ("train", "eval"):
        mine = [u for u in plan(50, eval_fraction=0.1, **changes) if u.subset == subset]
        assert [shard.number for shard in mine] == list(range(len(mine)))
        ranges = sorted(each for shard in mine for each in shard.ranges)
        assert [number for number, _ in ranges] == list(range(50))
        assert [part.begin for _, part in ranges] == list(range(0, 5000, 100))


def test_a_shard_stays_small_however_much_there_is(plan):
    assert {len(shard.ranges) for shard in plan(800)} == {7, 8}
    assert {len(shard.ranges) for shard in plan(50, dupe_factor=40)} == {1}


def test_ranges_of_a_shard_lie_all_over_the_input(plan):
    for shard in plan(800, objective="nsp"):
        numbers = [number for number, _ in shard.ranges]
        assert len(numbers) >= 19  # 2,000 bytes, from which other documents come
        assert max(numbers) - min(numbers) > 400
    assert plan(800) != plan(800, random_seed=4)


def test_second_segments_from_other_documents_need_two_ranges(plan, monkeypatch):
    monkeypatch.setattr(shards, "POOL_BYTES", 1)
    monkeypatch.setattr(shards, "SHARD_BYTES", 1)
    assert {len(shard.ranges) for shard in plan(7, objective="nsp")} == {2, 3}
    assert {len(shard.ranges) for shard in plan(1, objective="nsp")} == {1}


def test_a_group_is_bounded_and_no_document_is_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "GROUP_TOKENS", 20)
    config = CorpusSettings(**VALUES | {"spm_model_file": SMALL_MODEL})
    path = tmp_path / "text"

    def groups(*sizes):
        path.write_text("\n\n".join("the the the the\n" * n for n in sizes))
        parts = documents.divide_files({str(path): path.stat().st_size})
        plan = shards.ShardPlan("train", 0, [(0, part) for part, _ in parts])
        made = shards.Shard(config, plan).read_groups()
        return [list(map(len, group.documents)) for group in made]

    assert groups(2, 2, 3, 4, 5, 1) == [[2, 2, 3], [4, 5, 1]]
    assert groups(2, 2, 3, 4, 5, 1, 1) == [[2, 2, 3], [4, 5], [1, 1]]
    assert groups(7) == [[7]]


@pytest.mark.parametrize(
    "changes", [{"objective": "nsp"}, {"released_behaviour": True}]
)
def test_one_held_out_document_is_too_few_where_b_comes_from_another(changes):
    config = CorpusSettings(**VALUES, eval_fraction=0.1, **changes)

    def check(held_out, config=config):
        train = Counter(train_documents=8, instances=9)
        counts = {"train": train, "eval": Counter(eval_documents=held_out, instances=1)}
        return manifest.check_input(counts, config)

    assert refusal(check, 1) == (
        "--eval_fraction=0.1: holds out one document of 9, and the second segment must "
        "come from another"
    )
    for enough in (0, 2):
        check(enough)
    check(1, CorpusSettings(**VALUES, eval_fraction=0.1))


def test_more_than_one_percent_of_unknown_tokens_is_a_warning():
    config = CorpusSettings(**VALUES)
    text = "35.7% of the tokens are unknown: the vocabulary does not fit this text"
    for unknown, warnings in ((357, [text]), (10, [])):
        read = Counter(train_documents=8, instances=9, train_tokens=1000)
        read["train_unknown_tokens"] = unknown
        assert manifest.check_input({"train": read}, config) == warnings
