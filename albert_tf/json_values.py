"""Values of JSON objects that have to be there and of one type."""

from typing import Any

from albert_tf.errors import InputError

_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "a number",
    bool: "a truth value",
}
_REQUIRED = object()


def get(value: Any, key: str, kind: type, place: str, default: Any = _REQUIRED) -> Any:
    """Returns what an object has under a key.

    Args:
        value: what should be an object.
        key: of it.
        kind: dict, list, str, int or bool: the type of what is there.
        place: where the object stands, for messages.
        default: what stands for a key that is missing; without it that is an error.

    Raises:
        InputError: it is no object, lacks the key, or has another type there.
    """
    if not isinstance(value, dict):
        raise InputError(f"{place}: {describe(value)} where an object is expected")
    found = value.get(key, default)
    if found is _REQUIRED:
        raise InputError(f"{place}: the key {key!r} is missing")
    if type(found) is not kind:
        raise InputError(
            f"{place}: {key!r} is {describe(found)}; expected {_NAMES[kind]}"
        )
    return found


def describe(value: Any) -> str:
    """Names the type of a value, for messages."""
    return _NAMES.get(type(value), repr(value))
