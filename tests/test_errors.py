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
    with pytest.raises(InputError) as caught, errors.wrap_read("a.json", "a config"):
        fail()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "Graph execution error:\n\nDetected at node Gather defined at (most "
            'recent call last):\n  File "f.py", line 5, in f\n\nindices[0] = 7 is'
            " not in [0, 5)\n\t [[{{node Gather}}]] [Op:__inference_f_12]",
            "indices[0] = 7 is not in [0, 5)",
        ),
        (
            "{{function_node __wrapped__IteratorGetNext_device_/job:a/device:CPU:0}} "
            "Error in user-defined function passed to MapDataset:6 transformation with "
            "iterator: Iterator::Root::Prefetch::ParallelMapV2: Key: a.  Number of "
            "int64 values != expected.\n\t [[{{node ParseExample/ParseExampleV2}}]] "
            "[Op:IteratorGetNext] name: ",
            "Key: a.  Number of int64 values != expected.",
        ),
        (
            "Graph execution error:\n\n2 root error(s) found.\n  (0) INVALID_ARGUMENT:"
            "  indices[1] = 9\n\t [[{{node a}}]]\n\t [[b]]\n  (1) INTERNAL: c\n",
            "indices[1] = 9",
        ),
        ("first\nsecond", "first"),
    ],
)
def test_where_an_error_came_up_in_tensorflow_is_left_out(text, reason):
    assert errors.summarize(ValueError(text)) == reason


def test_values_are_shown_by_their_beginning():
    value = cycle = []
    for _ in range(5000):
        value = [value]
    cycle.append(cycle)
    assert errors.quote({"a": "\ud800"}) == r'{"a": "\ud800"}'
    assert errors.quote("x" * 99) == '"' + "x" * 39 + "..."
    kinds = [errors.quote(x) for x in (value, cycle, {(1,): 2})]
    assert kinds == ["list", "list", "dict"]
