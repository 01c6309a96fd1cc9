import pytest

from albert_tf.corpus.config import CorpusSettings


def settings(**changes):
    values = {"input_file": ("x",), "output_file": ("y",), "vocab_file": "v"}
    return CorpusSettings(**values | changes)


def test_shards_are_written_out_and_the_eval_file_has_its_own_name():
    config = settings(output_file=("d/x.tfrecord@3", "z"))
    shards = [f"d/x.tfrecord-0000{i}-of-00003" for i in range(3)]
    assert config.record_files("train") == [*shards, "z"]
    assert config.record_files("eval") == ["d/x.eval.tfrecord"]


def test_a_name_of_a_held_out_file_is_free_where_none_is_held_out():
    assert settings(output_file=("a", "a.eval")).outputs == ["a", "a.eval", "a.json"]


PREDICTIONS = "max_predictions_per_seq"
UNMASKED = {"masked_lm_prob": 0.0, PREDICTIONS: 7, "released_behaviour": True}


@pytest.mark.parametrize(
    ("changes", "name", "value"),
    [
        ({}, PREDICTIONS, 77),  # 0.15 * 512 = 76.8
        ({"max_seq_length": 128}, PREDICTIONS, 19),
        ({"released_behaviour": True}, PREDICTIONS, 20),
        ({PREDICTIONS: 7}, PREDICTIONS, 7),
        (UNMASKED, PREDICTIONS, 0),
        ({}, "word_rule", "word_mark"),
        ({"word_rule": "released"}, "word_rule", "released"),
        ({"released_behaviour": True}, "word_rule", "released"),
        ({"random_next_sentence": True}, "objective", "nsp"),
    ],
)
def test_a_description_has_the_values_that_act(changes, name, value):
    assert settings(**changes).to_dict()[name] == value


def test_equal_records_have_equal_settings_wherever_they_are_made():
    here = settings(output_file=("a/y@2",), num_workers=3, max_predictions_per_seq=77)
    there = settings(output_file=("b/y@2",), input_file=("c/x",), runner="DirectRunner")
    assert here.to_dict() == there.to_dict()
    assert here.to_dict() != settings(output_file=("a/y@3",)).to_dict()
