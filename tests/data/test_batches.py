import itertools

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data import batches, records
from albert_tf.errors import InputError

SPEC = {"number": records.Feature("int", 1), "x": records.Feature("float", 3)}


def write(path, spec, rows, compress=False):
    with records.create(str(path), compress) as writer:
        writer.write(records.encode(spec, rows))
    return str(path)


@pytest.fixture
def make_records(tmp_path):
    """Makes files of 7, 5 and 11 numbered records; the second one is compressed."""

    def make(prepare=None, sizes=(7, 5, 11)):
        ends = np.cumsum([0, *sizes])
        files = []
        for number, (begin, end) in enumerate(itertools.pairwise(ends)):
            rows = np.arange(begin, end)[:, None]
            path = tmp_path / f"{number}.tfrecord"
            values = {"number": rows, "x": rows / [[1, 2, 4]]}
            files.append(write(path, SPEC, values, compress=number == 1))
        return batches.Records(tuple(files), tuple(sizes), SPEC, prepare)

    return make


# Keeps the sources, which must live as long as their datasets.
SOURCES = []


def by_length(lengths, pad_multiple=2, longest=11):
    def make_batch(rows, length):
        ids = np.zeros((len(rows), 2, length), np.int32)
        for row, count in zip(ids, lengths[rows], strict=True):
            assert count <= length
            row[:, :count] = 1
        return {"ids": ids, "number": rows[:, None].astype(np.int32)}

    SOURCES.append(batches.BucketedExamples(lengths, make_batch, longest, pad_multiple))
    return SOURCES[-1]


LENGTHS = np.array([5, 3, 11, 7, 2, 9, 4, 4, 8, 6, 10, 3, 1])


@pytest.fixture(params=["records", "examples by length"])
def source(request, make_records):
    return make_records() if request.param == "records" else by_length(LENGTHS)


def numbers(dataset, count=None):
    result = dataset if count is None else dataset.take(count)
    return [batch["number"].numpy()[:, 0].tolist() for batch in result]


def flat(lists):
    return [number for row in lists for number in row]


HINT = "; expected more memory or smaller batches; in training, also more "
HINT += "--gradient_accumulation_steps, or --recompute=block"
KINDS = [("InvalidArgumentError", ""), ("ResourceExhaustedError", HINT)]


@pytest.mark.parametrize(("kind", "hint"), KINDS)
def test_tensorflow_errors_become_one_line(kind, hint, make_records):
    with (
        pytest.raises(InputError) as mistake,
        batches.translate_errors(make_records(), lambda: "after step 3"),
    ):
        raise getattr(tf.errors, kind)(None, None, "what happened")
    assert str(mistake.value) == f"after step 3: what happened{hint}"


def test_every_epoch_has_every_example_once_in_another_order(make_records):
    for source, size in ((make_records(), 23), (by_length(LENGTHS), 13)):
        result = flat(numbers(source.training(batches.InputShard(1), seed=3), 2 * size))
        first, second = result[:size], result[size:]
        assert sorted(first) == sorted(second) == list(range(size))
        assert first != second and first != sorted(first)


def test_seed_decides_the_order(source):
    one, again, other = (
        numbers(source.training(batches.InputShard(4), seed=seed), 20)
        for seed in (3, 3, 4)
    )
    assert one == again != other


def test_a_run_resumes_where_it_stopped(source):
    whole = numbers(source.training(batches.InputShard(4), seed=3), 80)
    for start in (4, 24, 92, 100, 108, 256):
        rest = source.training(batches.InputShard(4), seed=3, start=start)
        assert numbers(rest, 10) == whole[start // 4 : start // 4 + 10], start


def test_another_batch_size_resumes_at_the_same_example(make_records):
    whole = flat(numbers(make_records().training(batches.InputShard(4), seed=3), 20))
    rest = make_records().training(batches.InputShard(3), seed=3, start=8)
    assert flat(numbers(rest, 10)) == whole[8:38]


def test_replicas_and_pipelines_share_the_batch_of_one_device(source):
    def read(shard, count):
        return list(source.training(shard, seed=3).take(count))

    whole = read(batches.InputShard(12), 5)
    parts = [
        read(batches.InputShard(12, tf.distribute.InputContext(2, i, 4)), 10)
        for i in (0, 1)
    ]
    for step, batch in enumerate(whole):
        step_parts = flat([part[2 * step : 2 * step + 2] for part in parts])
        for name, value in batch.items():
            combined = np.concatenate([part[name].numpy() for part in step_parts])
            np.testing.assert_array_equal(combined, value.numpy())


def test_prepared_examples_resume_with_the_same_draws(make_records):
    def draw(batch, seed, positions):
        noise = tf.map_fn(
            lambda position: tf.random.stateless_uniform([3], [seed, position]),
            positions,
            fn_output_signature=tf.float32,
        )
        return {**batch, "x": batch["x"] + noise}

    def read(start, count, seed=3):
        shard = batches.InputShard(8, tf.distribute.InputContext(1, 0, 2))
        result = make_records(draw).training(shard, seed=seed, start=start)
        return np.stack([batch["x"].numpy() for batch in result.take(count)])

    # 64 batches of 8 are prepared together.
    whole = read(0, 150)
    np.testing.assert_array_equal(read(70 * 8, 10), whole[140:150])
    assert (read(0, 10, seed=4) != whole[:10]).any()
    whole_numbers = whole - np.floor(whole)
    assert np.unique(whole_numbers[:, :, 0]).size > 590  # the draws are not repeated


def test_evaluation_reads_everything_once_and_fills_up(make_records):
    result = list(make_records().evaluation(batches.InputShard(10)))
    rows = [batch["row"].numpy().tolist() for batch in result]
    assert rows == [[*range(10)], [*range(10, 20)], [20, 21, 22, *[-1] * 7]]
    read = flat(batch["number"].numpy()[:, 0].tolist() for batch in result)
    assert sorted(read[:23]) == list(range(23)) and len(read) == 30
    weights = flat(batch["example_weight"].numpy().tolist() for batch in result)
    assert weights == [1.0] * 23 + [0.0] * 7


def test_evaluation_stops_after_some_batches(make_records):
    for source in (make_records(), by_length(LENGTHS)):
        read = list(source.evaluation(batches.InputShard(3), max_batches=2))
        assert sorted(np.concatenate([batch["row"] for batch in read])) == [*range(6)]
        assert all(batch["example_weight"].numpy().all() for batch in read)


def test_evaluation_is_shared_between_pipelines(make_records):
    parts = [
        list(make_records().evaluation(batches.InputShard(6, context)))
        for context in (tf.distribute.InputContext(2, i, 2) for i in (0, 1))
    ]
    assert len(parts[0]) == len(parts[1]) == 4
    rows = [b["number"][:, 0][b["example_weight"] > 0] for b in parts[0] + parts[1]]
    assert sorted(np.concatenate(rows)) == list(range(23))


def test_batches_of_similar_length_are_padded_to_a_multiple():
    lengths = np.random.default_rng(3).permutation(np.repeat([2, 5, 9, 11], 12))
    source = by_length(lengths, 4)
    result = list(source.training(batches.InputShard(4), seed=3).take(24))
    widths = [batch["ids"].shape[-1] for batch in result]
    assert sorted(set(widths)) == [4, 8, 11]
    assert widths.count(11) == 12
    assert widths != sorted(widths)
    assert all(b["ids"].shape == (4, 2, n) for b, n in zip(result, widths, strict=True))


def test_fewer_examples_than_a_batch_are_repeated():
    read = by_length(np.array([3, 5])).training(batches.InputShard(5), seed=1).take(2)
    assert sorted(flat(numbers(read))) == [0] * 5 + [1] * 5


def test_unshuffle_restores_the_order_of_an_evaluation(monkeypatch):
    monkeypatch.setattr(batches, "_EXAMPLES_TO_SORT", 8)
    read = list(by_length(LENGTHS).evaluation(batches.InputShard(3)))
    rows = np.concatenate([batch["row"] for batch in read])
    assert sorted(rows) == [-1, -1, *range(13)]
    weights = np.concatenate([batch["example_weight"] for batch in read])
    np.testing.assert_array_equal(weights, rows >= 0)
    assert list(rows[:3]) != [0, 1, 2]
    result = ({"row": b["row"], "n": b["number"][:, 0]} for b in read)
    assert [value["n"] for value in batches.unshuffle(result)] == list(range(13))


def test_without_a_multiple_all_batches_are_as_wide_as_the_longest():
    read = by_length(LENGTHS, pad_multiple=0).evaluation(batches.InputShard(3))
    assert read.element_spec["ids"].shape == (3, 2, 11)
    assert {batch["ids"].shape for batch in read} == {(3, 2, 11)}
