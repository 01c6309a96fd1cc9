import re

import numpy as np
import pytest

from albert_tf import InputError
from albert_tf.tasks.race import features, reading
from albert_tf.tasks.settings.race import RaceSettings


def lengths_of(max_seq_length, max_qa_length):
    return RaceSettings(max_seq_length=max_seq_length, max_qa_length=max_qa_length)


@pytest.fixture(scope="module")
def questions(data):
    return reading.read_split(data / "race_own", "dev")


@pytest.mark.parametrize("name", ["small 64 24", "small 256 128"])
def test_inputs_are_the_released_ones(name, golden, questions, tokenizer):
    recorded = golden("race_own.json")[name]
    lengths = lengths_of(recorded["max_seq_length"], recorded["max_qa_length"])
    found = features.encode(tokenizer, questions, lengths)
    *examples, padding = recorded["features"]
    assert not padding["is_real_example"]
    assert len(found) == len(examples) == 6
    rows = [3, 0, 5, 1, 4, 2]
    batch = found.batch(rows, 4, lengths.max_seq_length, lengths, tokenizer)
    position = np.arange(lengths.max_seq_length)
    for place, row in enumerate(rows):
        assert questions[row].answer == examples[row]["label_id"]
        for choice, wanted in enumerate(examples[row]["choices"]):
            count, ones = wanted["n"], wanted["seg_ones"]
            found_rows = {name: value[place, choice] for name, value in batch.items()}
            assert found_rows["input_ids"][:count].tolist() == wanted["input_ids"]
            assert (found_rows["input_ids"][count:] == 0).all()
            mask = position < count
            assert (found_rows["input_mask"] == mask).all()
            assert (
                found_rows["segment_ids"] == (mask & (position >= count - ones))
            ).all()
    longest = [max(c["n"] for c in example["choices"]) for example in examples]
    used = np.minimum(found.whole_lengths, lengths.max_seq_length)
    assert used.tolist() == longest


def test_lengths_of_what_is_cut(tokenizer):
    def question(article, options):
        return reading.Question("", article, "file", options, 0, "", "")

    found = features.encode(
        tokenizer,
        [
            question("list " * 30, ("list", "list list")),  # 30 + 3 + 3 tokens
            question("list " * 30, ("list", "list")),  # 30 + 2 + 3
            question("object", ("list", "list " * 9)),  # 1 + 5 of 10 + 3
        ],
        lengths_of(32, 5),
    )
    assert found.whole_lengths.tolist() == [36, 35, 9]
    assert found.choices_cut == 1


def test_choices_that_a_question_does_not_have_are_padding(tokenizer):
    options = [("list", "file string"), ("object",) * 4, ("a", "b", "c")]
    questions = [
        reading.Question("", f"file {n}", "is", options[n], 0, "", "") for n in range(3)
    ]
    lengths = lengths_of(20, 8)
    every = features.encode(tokenizer, questions, lengths)
    batch = every.batch([2, 0], 5, 11, lengths, tokenizer)
    assert batch["input_ids"].shape == (2, 5, 11)
    for row, number in enumerate((2, 0)):
        alone = features.encode(tokenizer, questions[number : number + 1], lengths)
        count = len(options[number])
        assert every.whole_lengths[number] == alone.whole_lengths[0]
        expected = alone.batch([0], count, 11, lengths, tokenizer)
        for name, value in batch.items():
            assert (value[row, :count] == expected[name][0]).all()
            filler = tokenizer.pad_id if name == "input_ids" else 0
            assert (value[row, count:] == filler).all()


def test_lengths_leave_room_for_an_article():
    message = "--max_seq_length=27: must be at least 28, --max_qa_length=24 and 4 more"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        lengths_of(27, 24)
