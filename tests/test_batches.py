import numpy as np
import pytest

from albert_tf import batches, records

SPEC = {"number": records.Feature("int", 1), "x": records.Feature("float", 3)}


@pytest.fixture
def source(tmp_path):
    """Makes files of 7, 5 and 11 numbered records."""

    def make(prepare=None, sizes=(7, 5, 11)):
        files, first = [], 0
        for number, size in enumerate(sizes):
            path = str(tmp_path / f"{number}.tfrecord")
            rows = np.arange(first, first + size)[:, None]
            with records.create(path) as writer:
                writer.write(
                    records.encode(SPEC, {"number": rows, "x": rows / [[1, 2, 4]]})
                )
            files.append(path)
            first += size
        return batches.Source(tuple(files), tuple(sizes), SPEC, prepare)

    return make


def numbers(dataset, count=None):
    found = dataset if count is None else dataset.take(count)
    return [batch["number"].numpy()[:, 0].tolist() for batch in found]


def flat(lists):
    return [number for row in lists for number in row]


def test_every_epoch_has_every_example_once_in_another_order(source):
    found = flat(numbers(batches.training(source(), batches.Share(1), seed=3), 46))
    first, second = found[:23], found[23:]
    assert sorted(first) == sorted(second) == list(range(23))
    assert first != second and first != sorted(first)


def test_seed_decides_the_order(source):
    one, again, other = (
        numbers(batches.training(source(), batches.Share(4), seed=seed), 9)
        for seed in (3, 3, 4)
    )
    assert one == again != other


@pytest.mark.parametrize("start", [4, 24, 92, 100])
def test_a_run_goes_on_where_it_stopped(source, start):
    whole = numbers(batches.training(source(), batches.Share(4), seed=3), 40)
    rest = batches.training(source(), batches.Share(4), seed=3, start=start)
    assert numbers(rest, 10) == whole[start // 4 : start // 4 + 10]


def test_another_batch_size_goes_on_from_the_same_example(source):
    whole = flat(numbers(batches.training(source(), batches.Share(4), seed=3), 20))
    rest = batches.training(source(), batches.Share(3), seed=3, start=8)
    assert flat(numbers(rest, 10)) == whole[8:38]


def test_replicas_and_pipelines_share_the_batch_of_one_device(source):
    whole = numbers(batches.training(source(), batches.Share(12), seed=3), 5)
    shares = [batches.Share(12, 2, pipeline, 3) for pipeline in (0, 1)]
    parts = [numbers(batches.training(source(), share, seed=3), 10) for share in shares]
    for step in range(5):
        of_step = [part[2 * step : 2 * step + 2] for part in parts]
        assert flat(flat(of_step)) == whole[step]


def test_prepared_examples_go_on_with_the_same_draws(source):
    import tensorflow as tf

    def draw(batch, seed):
        noise = tf.random.stateless_uniform(tf.shape(batch["x"]), seed)
        return {**batch, "x": batch["x"] + noise}

    def read(start, count, seed=3):
        share = batches.Share(8, replica_batch_size=4)
        found = batches.training(source(draw), share, seed=seed, start=start)
        return np.stack([batch["x"].numpy() for batch in found.take(count)])

    # 64 batches of 8 are prepared together: so the 70th is of the second such lot.
    whole = read(0, 150)
    np.testing.assert_array_equal(read(70 * 8, 10), whole[140:150])
    assert (read(0, 10, seed=4) != whole[:10]).any()
    whole_numbers = whole - np.floor(whole)
    assert np.unique(whole_numbers[:, :, 0]).size > 590  # the draws are not repeated


def test_evaluation_reads_everything_once_and_fills_up(source):
    found = list(batches.evaluation(source(), batches.Share(5)))
    read = flat(batch["number"].numpy()[:, 0].tolist() for batch in found)
    weights = flat(batch["example_weight"].numpy().tolist() for batch in found)
    assert sorted(read[:23]) == list(range(23)) and len(read) == 25
    assert weights == [1.0] * 23 + [0.0] * 2


def test_evaluation_stops_after_some_batches(source):
    found = list(batches.evaluation(source(), batches.Share(5), max_batches=2))
    assert [batch["example_weight"].numpy().tolist() for batch in found] == [
        [1.0] * 5
    ] * 2


def test_evaluation_is_shared_between_pipelines(source):
    parts = [
        list(batches.evaluation(source(), batches.Share(6, 2, pipeline)))
        for pipeline in (0, 1)
    ]
    pairs = [
        (int(number), float(weight))
        for batch in parts[0] + parts[1]
        for number, weight in zip(
            batch["number"][:, 0], batch["example_weight"], strict=True
        )
    ]
    assert len(parts[0]) == len(parts[1]) == 4
    assert sorted(number for number, weight in pairs if weight) == list(range(23))
