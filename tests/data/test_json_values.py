import re

import pytest

from albert_tf import InputError
from albert_tf.data.json_values import get, parse


@pytest.mark.parametrize(
    "value, kind, message",
    [
        ([], str, "f.json:3: a list where an object is expected"),
        (None, str, "f.json:3: None where an object is expected"),
        ({}, str, "f.json:3: the key 'a' is missing"),
        ({"a": {}}, list, "f.json:3: 'a' is an object; expected a list"),
        ({"a": True}, int, "f.json:3: 'a' is a truth value; expected a number"),
        ({"a": 1.5}, int, "f.json:3: 'a' is 1.5; expected a number"),
    ],
)
def test_a_value_that_is_not_there_or_of_another_type(value, kind, message):
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        get(value, "a", kind, "f.json:3")


@pytest.mark.parametrize(
    "text, value",
    [
        (r'"a\ud800b"', "a\ufffdb"),
        (r'"\uDc00\ud83d"', "\ufffd\ufffd"),
        (r'"\uD83D\uDE00"', "\U0001f600"),
        (r'"\ud83d\ud83d\ude00"', "\ufffd\U0001f600"),
        (r'"\\ud800"', r"\ud800"),
        (r'"\\\ud800\u0041"', "\\\ufffdA"),
    ],
)
def test_half_a_surrogate_pair_is_replaced(text, value):
    assert parse(text, "f") == value
