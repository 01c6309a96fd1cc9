"""recipes/minimal_pairs.py counts and reads as its documentation says."""

import json

import pytest

from albert_tf.errors import InputError
from albert_tf.recipes import minimal_pairs


def line(good, bad, term, paradigm):
    keys = ("sentence_good", "sentence_bad", "linguistics_term", "UID")
    return json.dumps(dict(zip(keys, (good, bad, term, paradigm), strict=True))) + "\n"


def test_shares_of_paradigms_terms_and_all(tmp_path):
    (tmp_path / "1.jsonl").write_text(
        line("a", "b", "first", "x")
        + line("b", "a", "first", "x")
        + line("a", "a b", "first", "x")
        + line("a", "c", "first", "x")
        + line("a", "b", "first", "y")
    )
    (tmp_path / "2.jsonl").write_text(line("b", "a", "second", "z"))
    pairs = minimal_pairs.read([f"{tmp_path}/*.jsonl"])
    scores = {"a": -1.0, "b": -2.0, "c": -1.0, "a b": -3.0}
    assert minimal_pairs.accuracies(pairs, scores) == {
        "paradigms": {"x": 2.5 / 4, "y": 1.0, "z": 0.0},
        "terms": {"first": (2.5 / 4 + 1) / 2, "second": 0.0},
        "mean": {
            "accuracy": pytest.approx((2.5 / 4 + 1) / 3),
            "standard_error": pytest.approx((0.625 * 0.375 / 4) ** 0.5 / 3),
        },
    }


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ('{"sentence_good": "a"}\n', r"x\.jsonl:1: no key 'sentence_bad'"),
        (line(["a"], "b", "c", "d"), r"x\.jsonl:1: a list; expected texts"),
        (None, r"--pairs: .*x\.jsonl: no such file"),
    ],
)
def test_what_is_no_pair_is_refused(contents, message, tmp_path):
    path = tmp_path / "x.jsonl"
    if contents is not None:
        path.write_text(contents)
    with pytest.raises(InputError, match=message):
        minimal_pairs.read([str(path)])
