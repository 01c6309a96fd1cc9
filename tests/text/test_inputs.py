import re

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import InputError
from albert_tf.text import in_graph, inputs


class Words:
    """A tokenizer of numbers: "7 9" has the ids 7 and 9."""

    cls_id, sep_id = 101, 102

    def encode_batch(self, texts, num_threads=1):
        return [[int(word) for word in text.split()] for text in texts]


def rows(encoded):
    return [x.tolist() for x in np.split(encoded.ids, encoded.bounds[1:-1])]


def test_pairs_and_single_texts_are_joined_as_released():
    encoded = inputs.encode(Words(), ["1 2", "3", "4"], ["5", "6 7 8", " "], 9)
    # The last has no second text.
    first, second = [101, 1, 2, 102, 5, 102], [101, 3, 102, 6, 7, 8, 102]
    assert rows(encoded) == [first, second, [101, 4, 102]]
    assert encoded.first_lengths.tolist() == [4, 3, 3]
    assert encoded.lengths.tolist() == [6, 7, 3]
    assert (len(encoded), encoded.truncated, encoded.truncated_pieces) == (3, 0, 0)


def test_what_is_too_long_is_shortened_and_counted():
    first = ["1 2 3 4 5", "1", "1 2 3 4", "1"]
    second = ["6", "2 3 4 5 6", "5 6 7 8", "2 3 4"]
    encoded = inputs.encode(Words(), first, second, 7)
    assert rows(encoded) == [
        [101, 1, 2, 3, 102, 6, 102],
        [101, 1, 102, 2, 3, 4, 102],
        [101, 1, 2, 102, 5, 6, 102],
        [101, 1, 102, 2, 3, 4, 102],
    ]
    assert (encoded.truncated, encoded.truncated_pieces) == (3, 2 + 2 + 4)
    encoded = inputs.encode(Words(), first, None, 5)
    assert rows(encoded)[0] == [101, 1, 2, 3, 102]
    assert (encoded.truncated, encoded.truncated_pieces) == (2, 3)


def test_as_many_pieces_stay_as_when_they_are_taken_one_by_one():
    for first in range(9):
        for second in range(9):
            for room in range(19):
                a, b = first, second
                while a + b > room:
                    a, b = (a - 1, b) if a > b else (a, b - 1)
                assert inputs.truncate_lengths(first, second, room) == (a, b)


def test_a_batch_is_padded_to_the_length_asked_for():
    encoded = inputs.encode(Words(), ["1 2", "3", "4"], ["5", "6 7 8", " "], 9)
    batch = inputs.pad(encoded, [2, 0], 8, pad_id=99)
    assert {name: value.tolist() for name, value in batch.items()} == {
        "input_ids": [
            [101, 4, 102, 99, 99, 99, 99, 99],
            [101, 1, 2, 102, 5, 102, 99, 99],
        ],
        "input_mask": [[1, 1, 1, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 0, 0]],
        "segment_ids": [[0, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 0, 0]],
    }
    assert {value.dtype.name for value in batch.values()} == {"int32"}


def test_neither_chunks_nor_threads_change_the_ids(tokenizer, monkeypatch):
    texts = ["A cat sat, in 1,995.", "Nobody", "", "the river rose", "x " * 40]
    seconds = [*reversed(texts)]
    expected = inputs.encode(tokenizer, texts, seconds, 31)
    monkeypatch.setattr(inputs, "_CHUNK", 2)
    encoded = inputs.encode(tokenizer, texts, seconds, 31, num_threads=3)
    assert rows(encoded) == rows(expected)
    assert len(encoded) == len(texts)


def test_a_length_without_room_for_text_is_refused():
    message = "--max_seq_length=3: expected at least 4, for [CLS], two [SEP] and text"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        inputs.encode(Words(), ["1"], None, 3)


def test_a_very_long_text_is_cut_behind_all_that_is_wanted(tokenizer):
    words = "the value of each object in a list of strings is returned "
    for text in (words * 900, words.replace(" ", "") * 900, " " * 30_000 + words * 900):
        beginning = inputs.cut(tokenizer, text, 50)
        assert text.startswith(beginning) and len(beginning) < len(text)
        assert tokenizer.encode(beginning)[:60] == tokenizer.encode(text)[:60]
        assert len(tokenizer.encode(beginning)) > 50 + 60
    for text in ("", words * 20, " " * 99_999):
        assert inputs.cut(tokenizer, text, 50) is text


# In a graph


def ragged(texts):
    rows = Words().encode_batch(texts)
    return tf.ragged.constant(rows, tf.int32, ragged_rank=1, row_splits_dtype=tf.int64)


def drawn(seed, count=50):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 15, count)
    return [" ".join(map(str, rng.integers(1, 99, length))) for length in lengths]


@pytest.mark.parametrize("max_seq_length", [4, 5, 8, 13, 16, 31])
@pytest.mark.parametrize("pairs", [True, False])
def test_ids_and_segments_are_those_of_python(max_seq_length, pairs):
    first, second = drawn(1), drawn(2) if pairs else None
    expected = inputs.encode(Words(), first, second, max_seq_length)
    ids, first_lengths = in_graph.join(
        ragged(first), ragged(second) if pairs else None, max_seq_length, 101, 102
    )
    rows = np.split(expected.ids, expected.bounds[1:-1])
    assert ids.to_list() == [row.tolist() for row in rows]
    assert first_lengths.numpy().tolist() == expected.first_lengths.tolist()
    for length in (None, 40):
        batch = in_graph.pad(ids, first_lengths, 99, length)
        longest = length or expected.lengths.max()
        wanted = inputs.pad(expected, range(len(first)), longest, 99)
        assert batch.keys() == wanted.keys()
        for name, value in wanted.items():
            np.testing.assert_array_equal(batch[name], value)


def test_no_rows_make_no_inputs():
    none = ragged(["1"])[:0]
    ids, first_lengths = in_graph.join(none, none, 9, 101, 102)
    # The model takes the first token of each.
    assert in_graph.pad(ids, first_lengths, 0)["input_ids"].shape == (0, 1)
