"""Arrays that are made once and kept in a file, with what they were made from."""

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from albert_tf import errors
from albert_tf.data.files import atomic
from albert_tf.errors import InputError

# Raise it when the same settings give other arrays.
_VERSION = 1
_MADE_FROM, _ARRAYS, _HASHED = "made_from", "arrays", "hashed"
# Behind the zip, with the SHA-256 of all that stands before.
_SHA256 = b"sha256:"
# Bytes at either end of a file where the name of that entry stands.
_HEAD, _TAIL = 64, 1 << 16
_BLOCK = 1 << 20

Arrays = dict[str, np.ndarray]


def load_or_make(
    path: Path,
    made_from: Mapping[str, Any],
    make: Callable[[], Arrays],
    unsaved: list[Callable[[], None]] | None = None,
) -> tuple[Arrays, bool]:
    """Returns arrays from a file, or makes them and writes the file.

    A file that was made from something else, or is damaged, is made anew; one that is
    no cache is left as it is.

    Args:
        path: the file, `.npz`.
        made_from: everything that decides what the arrays are, as JSON: settings,
            fingerprints of files (see `fingerprint`), of the vocabulary.
        make: makes the arrays.
        unsaved: gets what writes the file, to be called when all else fits; None writes
            it at once.

    Returns:
        The arrays, and whether they were in the file.

    Raises:
        InputError: the file is no cache, or cannot be written, or what `make` raises.
    """
    wanted = json.loads(json.dumps({**made_from, "version": _VERSION}))
    if _exists(path):
        try:
            with errors.reading(path):
                if (stored := _read(path, wanted)) is not None:
                    return stored, True
        except InputError:
            pass  # damaged
    arrays = make()

    def save() -> None:
        also = {_ARRAYS: sorted(arrays), _HASHED: True}
        noted = json.dumps({**wanted, **also}, sort_keys=True)
        # In front, so that what is left of a file that was cut is recognised.
        contents: dict[str, Any] = {_MADE_FROM: np.array(noted), **arrays}
        with errors.writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic(str(path)) as output:
                hashing = _Hashing(output)
                np.savez(hashing, **contents)
                output.write(_SHA256 + hashing.sha256.digest())

    if unsaved is None:
        save()
    else:
        unsaved.append(save)
    return arrays, False


def _exists(path: Path) -> bool:
    """Whether there is a cache, whole or damaged.

    Raises:
        InputError: the file is another one, which must not be replaced.
    """
    try:
        with errors.reading(path), open(path, "rb") as file:
            ends = file.read(_HEAD)
            file.seek(max(file.seek(0, 2) - _TAIL, 0))
            ends += file.read()
    except InputError as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            return False
        raise
    if ends and f"{_MADE_FROM}.npy".encode() not in ends:
        raise InputError(
            f"{path}: not a cache of converted examples (.npz; the TFRecords and "
            f"pickles of the released code are not read); it is left as it is, "
            f"expected another path"
        )
    return True


class _Hashing(io.RawIOBase):
    """A file to write to from the beginning to the end, and the hash of what was."""

    def __init__(self, file: IO[bytes]):
        self._file = file
        self.sha256 = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        return self._file.write(data)


def verify(path: Path) -> None:
    """Refuses a damaged file of `load_or_make`.

    Raises:
        InputError: it is damaged, or another file.
    """
    if not is_cache(path):
        raise InputError(f"{path}: not a cache of converted examples")
    with errors.reading(path, "a whole cache"):
        _check_bytes(path)
        with np.load(path, allow_pickle=False) as stored:
            for name in stored:
                stored[name].shape  # noqa: B018 (reads it)


def is_cache(path: Path) -> bool:
    """Whether a file is one of `load_or_make`, whole or damaged."""
    try:
        return _exists(path)
    except InputError:
        return False


def _check_bytes(path: Path) -> None:
    """Compares the checksum of the whole file; of an older one those of its entries.

    Raises:
        ValueError: they differ.
    """
    size = path.stat().st_size - len(_SHA256) - hashlib.sha256().digest_size
    with open(path, "rb") as file:
        checksum = hashlib.sha256()
        for begin in range(0, size, _BLOCK):
            checksum.update(file.read(min(_BLOCK, size - begin)))
        rest = file.read()
    if rest == _SHA256 + checksum.digest():
        return
    if rest.startswith(_SHA256):
        raise ValueError("differs from its SHA-256")
    with zipfile.ZipFile(path) as archive:
        if archive.testzip() is not None:
            raise ValueError("an entry differs from its CRC-32")
        if _HASHED in json.loads(str(np.load(path)[_MADE_FROM])):
            raise ValueError("its SHA-256 is missing")


def _read(path: Path, wanted: Mapping[str, Any]) -> Arrays | None:
    """Returns the arrays of a file; None where they are damaged or others.

    Raises:
        Exception: whatever zipfile, numpy and json raise on a damaged file.
    """
    # Of all bytes: a header that makes an array shorter would hide its checksum.
    _check_bytes(path)
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
        made_from = json.loads(str(stored[_MADE_FROM]))
        arrays = {name: stored[name] for name in stored if name != _MADE_FROM}
        # Older files have neither.
        names, _ = made_from.pop(_ARRAYS, None), made_from.pop(_HASHED, None)
        if made_from != wanted or names not in (None, sorted(arrays)):
            return None
        return arrays


def digest(texts: Iterable[str]) -> str:
    """Returns a hash of texts in their order, hexadecimal SHA-256."""
    checksum = hashlib.sha256()
    for text in texts:
        checksum.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return checksum.hexdigest()


def fingerprint(path: str | Path) -> list[Any]:
    """Returns what another file has not: its whole path, size and time."""
    path = Path(path).resolve()
    state = path.stat()
    return [str(path), state.st_size, state.st_mtime_ns]
