from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from albert_tf.corpus import documents, manifest, shards
from albert_tf.corpus.config import CorpusSettings
from albert_tf.data import records
from albert_tf.errors import InputError

VALUES = {"input_file": ("x",), "output_file": ("y",), "vocab_file": "v"}


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """Plans the units of a text of so many ranges of 100 bytes."""
    monkeypatch.setattr(documents, "RANGE_BYTES", 90)
    monkeypatch.setattr(shards, "SHARD_BYTES", 800)
    monkeypatch.setattr(shards, "POOL_BYTES", 2000)

    def call(ranges, **changes):
        path = tmp_path / "text"
        path.write_text(("x" * 98 + "\n\n") * ranges)
        config = CorpusSettings(**VALUES | {"dupe_factor": 1} | changes)
        return shards.plan({str(path): 100 * ranges}, config)

    return call


@pytest.mark.parametrize("changes", [{}, {"dupe_factor": 40}, {"objective": "nsp"}])
def test_units_of_a_subset_read_every_range_once(plan, changes):
    for subset in ("train", "eval"):
        mine = [u for u in plan(50, eval_fraction=0.1, **changes) if u.subset == subset]
        assert [unit.number for unit in mine] == list(range(len(mine)))
        ranges = sorted(each for unit in mine for each in unit.ranges)
        assert [number for number, _ in ranges] == list(range(50))
        assert [part.begin for _, part in ranges] == list(range(0, 5000, 100))


def test_a_unit_stays_small_however_much_there_is(plan):
    assert {len(unit.ranges) for unit in plan(800)} == {7, 8}
    assert {len(unit.ranges) for unit in plan(50, dupe_factor=40)} == {1}


def test_ranges_of_a_unit_lie_all_over_the_input(plan):
    for unit in plan(800, objective="nsp"):
        numbers = [number for number, _ in unit.ranges]
        assert len(numbers) >= 19  # 2,000 bytes, from which other documents come
        assert max(numbers) - min(numbers) > 400
    assert plan(800) != plan(800, random_seed=4)


def test_second_segments_from_other_documents_need_two_ranges(plan, monkeypatch):
    monkeypatch.setattr(shards, "POOL_BYTES", 1)
    monkeypatch.setattr(shards, "SHARD_BYTES", 1)
    assert {len(unit.ranges) for unit in plan(7, objective="nsp")} == {2, 3}
    assert {len(unit.ranges) for unit in plan(1, objective="nsp")} == {1}


@pytest.fixture
def texts(data, tmp_path, monkeypatch):
    """Reads documents of so many segments of four tokens as a unit's texts."""
    monkeypatch.setattr(shards, "TEXT_TOKENS", 20)

    def call(*documents_, **changes):
        path = tmp_path / "text"
        path.write_text("\n\n".join("the the the the\n" * n for n in documents_))
        config = CorpusSettings(
            **VALUES | {"spm_model_file": str(data / "spm_small.model")} | changes
        )
        parts = documents.ranges({str(path): path.stat().st_size})
        unit = shards.ShardPlan("train", 0, [(0, part) for part, _ in parts])
        tokenizer = shards.load_tokenizer(config)
        made = shards._texts(unit, config, tokenizer, counts := Counter())
        return [
            [document.end - document.begin for document in text.documents]
            for text in made
        ], counts

    return call


def test_a_text_is_bounded_and_its_last_document_is_never_alone(texts):
    assert texts(2, 2, 3, 4, 5, 1)[0] == [[2, 2, 3], [4, 5, 1]]
    assert texts(2, 2, 3, 4, 5, 1, 1)[0] == [[2, 2, 3], [4, 5], [1, 1]]
    assert texts(7)[0] == [[7]]
    assert texts(1)[1]["train_tokens"] == 4


def test_records_are_shared_evenly_among_the_files(monkeypatch):
    monkeypatch.setattr(shards, "BLOCK_TOKENS", 160)
    config = CorpusSettings(**VALUES, max_seq_length=16)
    for count in (1, 5, 60, 101):
        for files in (1, 2, 3, 70):
            ends = np.cumsum([0, *range(1, count + 1)])
            blocks = list(shards._blocks(ends, files, config, np.random.default_rng(3)))
            assert sum(block.size for block in blocks) == ends[-1]
            assert max(block.records for block in blocks) <= 10
            share = Counter()
            for block in blocks:
                share[block.file] += block.records
            assert sum(share.values()) == count
            spread = [share[file] for file in range(files)]
            assert max(spread) - min(spread) <= 1 + (files > 1 and count // files // 10)


def test_joined_records_are_those_of_all_blocks_in_another_order(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "WINDOW_BYTES", 4_000)
    framed = [records.framed(b"%05d" % i) for i in range(900)]
    size = len(framed[0])
    blocks = []
    for unit in range(3):
        path = tmp_path / f"{unit}"
        path.write_bytes(b"".join(framed[300 * unit : 300 * unit + 300]))
        blocks += [
            shards.BlockLocation(str(path), offset, 20 * size)
            for offset in range(0, 300 * size, 20 * size)
        ]

    def merge(number):
        names = tuple(f"{tmp_path}/{name}" for name in ("y", "z"))
        config = CorpusSettings(**VALUES | {"output_file": names})
        shards.merge(f"{tmp_path}/x.json", config, "train", number, blocks)
        return records.split(Path(names[number]).read_bytes())

    merged = merge(0)
    assert merged != framed
    assert sorted(merged) == framed
    order = np.corrcoef([framed.index(record) for record in merged], range(900))[0, 1]
    assert abs(order) < 4 / np.sqrt(45)  # blocks are what is drawn
    assert merge(0) == merged != merge(1)


@pytest.mark.parametrize(
    "changes", [{"objective": "nsp"}, {"released_behaviour": True}]
)
def test_one_held_out_document_is_too_few_where_b_comes_from_another(changes):
    config = CorpusSettings(**VALUES, eval_fraction=0.1, **changes)
    with pytest.raises(InputError) as error:
        manifest.check_input(Counter(train_documents=8, eval_documents=1), config)
    assert str(error.value) == (
        "--eval_fraction=0.1: one document of 9 is held out, and the second segment "
        "must come from another; expected a larger share, or 0"
    )
    for enough in (0, 2):
        read = Counter(train_documents=8, eval_documents=enough)
        manifest.check_input(read, config)
    ordinary = CorpusSettings(**VALUES, eval_fraction=0.1)
    manifest.check_input(Counter(train_documents=8, eval_documents=1), ordinary)


def test_more_than_one_percent_of_unknown_tokens_is_a_warning():
    config = CorpusSettings(**VALUES)
    read = Counter(train_documents=8, train_tokens=1000, train_unknown_tokens=357)
    assert manifest.check_input(read, config) == [
        "35.7% of the tokens are unknown: the vocabulary is not made for this text"
    ]
    assert manifest.check_input(Counter(read, train_unknown_tokens=-347), config) == []
