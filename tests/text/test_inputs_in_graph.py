"""Inputs made in a graph are those that `inputs` makes in Python."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.text import inputs, inputs_in_graph


class Numbers:
    """A tokenizer of numbers: "7 9" has the ids 7 and 9."""

    cls_id, sep_id = 101, 102

    def encode_batch(self, texts, num_threads=1):
        return [[int(word) for word in text.split()] for text in texts]


def ragged(texts):
    rows = Numbers().encode_batch(texts)
    return tf.ragged.constant(rows, tf.int32, ragged_rank=1, row_splits_dtype=tf.int64)


def drawn(seed, count=50):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 15, count)
    return [" ".join(map(str, rng.integers(1, 99, length))) for length in lengths]


@pytest.mark.parametrize("max_seq_length", [4, 5, 8, 13, 16, 31])
@pytest.mark.parametrize("pairs", [True, False])
def test_ids_and_segments_are_those_of_python(max_seq_length, pairs):
    first, second = drawn(1), drawn(2) if pairs else None
    expected = inputs.encode(Numbers(), first, second, max_seq_length)
    ids, first_lengths = inputs_in_graph.join(
        ragged(first), ragged(second) if pairs else None, max_seq_length, 101, 102
    )
    rows = np.split(expected.ids, expected.bounds[1:-1])
    assert ids.to_list() == [row.tolist() for row in rows]
    assert first_lengths.numpy().tolist() == expected.first_lengths.tolist()
    for length in (None, 40):
        batch = inputs_in_graph.pad(ids, first_lengths, 99, length)
        longest = length or expected.lengths.max()
        wanted = inputs.pad(expected, range(len(first)), longest, 99)
        assert batch.keys() == wanted.keys()
        for name, value in wanted.items():
            np.testing.assert_array_equal(batch[name], value)


def test_no_rows_make_no_inputs():
    none = ragged(["1"])[:0]
    ids, first_lengths = inputs_in_graph.join(none, none, 9, 101, 102)
    assert inputs_in_graph.pad(ids, first_lengths, 0)["input_ids"].shape == (0, 0)
