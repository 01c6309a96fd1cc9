"""Others' exceptions become one line that names the file."""

import json

import pytest

from albert_tf import errors
from albert_tf.errors import InputError


def _deep():
    return json.loads("[" * 100_000)


def _full():
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("fail", "message"),
    [
        (_deep, "a.json: nested too deeply; expected a config"),
        (_full, "a.json: No space left on device; expected a config"),
        (lambda: int(""), "a.json: invalid literal for int() with base 10: ''"),
        (lambda: {}["key"], "a.json: 'key'; expected a config"),
        (lambda: next(iter(())), "a.json: StopIteration; expected a config"),
    ],
)
def test_reading_names_the_file_the_reason_and_what_was_expected(fail, message):
    with pytest.raises(InputError) as caught, errors.reading("a.json", "a config"):
        fail()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_writing_names_the_file_and_the_reason():
    with pytest.raises(InputError) as caught, errors.writing("out"):
        _full()
    assert str(caught.value) == "out: cannot be written: No space left on device"


def test_input_errors_keep_their_message():
    for wrap in (errors.reading("x"), errors.writing("x")):
        with pytest.raises(InputError, match=r"^mine$"), wrap:
            raise InputError("mine")
