"""Arrays that are made once and kept in a file, with what they were made from."""

import hashlib
import json
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from albert_tf import records
from albert_tf.errors import InputError

# Raise it when the same settings give other arrays.
_VERSION = 1
_MADE_FROM = "made_from"

Arrays = dict[str, np.ndarray]


def load_or_make(
    path: Path, made_from: Mapping[str, Any], make: Callable[[], Arrays]
) -> tuple[Arrays, bool]:
    """Returns arrays from a file, or makes them and writes the file.

    A file that was made from something else, or is damaged, is made anew.

    Args:
        path: the file, `.npz`.
        made_from: everything that decides what the arrays are, as JSON: settings,
            fingerprints of files (see `fingerprint`), of the vocabulary.
        make: makes the arrays.

    Returns:
        The arrays, and whether they were in the file.

    Raises:
        InputError: the file cannot be written, or what `make` raises.
    """
    wanted = json.dumps({**made_from, "version": _VERSION}, sort_keys=True)
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            if str(stored[_MADE_FROM]) == wanted:
                return {
                    name: stored[name] for name in stored if name != _MADE_FROM
                }, True
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        pass  # not there, or cut short
    arrays = make()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
    with records.atomic(str(path)) as output:
        contents: dict[str, Any] = {**arrays, _MADE_FROM: np.array(wanted)}
        np.savez(output, **contents)
    return arrays, False


def digest(texts: Iterable[str]) -> str:
    """Returns what tells texts in an order from others, hexadecimal SHA-256."""
    found = hashlib.sha256()
    for text in texts:
        found.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return found.hexdigest()


def fingerprint(path: str | Path) -> list[Any]:
    """Returns what tells a file from another: its whole path, size and time."""
    path = Path(path).resolve()
    state = path.stat()
    return [str(path), state.st_size, state.st_mtime_ns]
