"""Caches arrays in a file, with a key: all values that decide the arrays."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from albert_tf import errors
from albert_tf.data.files import atomic

# Increase this number when the same settings begin to give other arrays.
_VERSION = 2
_KEY = "made_from"  # the name of the key's array in the file

Arrays = dict[str, np.ndarray]


def load_or_make(
    path: Path, key: Mapping[str, Any], make_arrays: Callable[[], Arrays]
) -> tuple[Arrays, bool]:
    """Returns the arrays of a file; makes the arrays and the file if necessary.

    If the file has another key, it is replaced.

    Args:
        path: the file, `.npz`.
        key: all values that decide the arrays, as JSON: settings, the fingerprint of
            the vocabulary, and `fingerprint(path)` of each input file.
        make_arrays: makes the arrays.

    Returns:
        The arrays, and whether they come from the file.

    Raises:
        InputError: the file is not a cache, is damaged or cannot be written, or
            `make_arrays` raises an InputError.
    """
    key_text = json.dumps({**key, "version": _VERSION}, sort_keys=True)
    if path.exists():
        expected = "a cache of encoded examples; delete it, or give another path"
        with errors.wrap_read(path, expected), open(path, "rb") as file:
            stored = np.load(file)
            if str(stored[_KEY]) == key_text:
                return {name: stored[name] for name in stored if name != _KEY}, True
    arrays = make_arrays()
    with atomic(path) as output:
        fields: dict[str, Any] = {_KEY: key_text, **arrays}
        np.savez(output, **fields)
    return arrays, False


def digest(texts: Iterable[str]) -> str:
    """Returns a hash of texts and their order: SHA-256, hexadecimal."""
    checksum = hashlib.sha256()
    for text in texts:
        checksum.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return checksum.hexdigest()


def fingerprint(path: str | Path) -> list[Any]:
    """Returns values that identify a version of a file.

    Returns:
        [absolute path, size in bytes, modification time in nanoseconds].
    """
    path = Path(path).resolve()
    state = path.stat()
    return [str(path), state.st_size, state.st_mtime_ns]
