import re

import pytest

from albert_tf import InputError
from albert_tf.json_values import get


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


def test_a_value_that_is_there_or_may_be_absent():
    assert get({"a": "b"}, "a", str, "") == "b"
    assert get({}, "a", str, "", default="c") == "c"
