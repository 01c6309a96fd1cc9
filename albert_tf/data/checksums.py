"""Checksums of all files of a folder, in a file beside them."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from albert_tf import errors
from albert_tf.data import json_values
from albert_tf.data.files import flush
from albert_tf.errors import InputError

NAME = "checksums.json"
_KEY = "sha256"


def write(folder: Path) -> None:
    """Writes `checksums.json`: the SHA-256 of every file of a folder, by its path.

    Raises:
        InputError: a file cannot be read, or this one not be written.
    """
    with errors.writing(folder / NAME):
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        sums = {}
        for path in paths:
            if path != folder / NAME:
                flush(path)
                sums[path.relative_to(folder).as_posix()] = of(path)
        (folder / NAME).write_text(json.dumps({_KEY: sums}, indent=2) + "\n", "utf-8")
        flush(folder / NAME)


def of(path: Path) -> str:
    """Returns the SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def differences(folder: Path) -> Iterator[tuple[Path, str | None]]:
    """Yields each file that `checksums.json` lists, and what is wrong with it, if any.

    Raises:
        InputError: `checksums.json` is damaged.
    """
    with errors.reading(folder / NAME):
        text = (folder / NAME).read_text("utf-8")
    values = json_values.parse(text, folder / NAME)
    sums = json_values.get(values, _KEY, dict, str(folder / NAME))
    for name, expected in sums.items():
        path = folder / name
        # Of a stranger's file: what it names stays inside.
        if not path.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"{folder / NAME}: {name!r}: expected a file beside it")
        try:
            with errors.reading(path):
                same = of(path) == expected
            yield path, None if same else f"differs from its SHA-256 in {NAME}"
        except InputError as mistake:
            yield path, errors.reason(mistake.__cause__ or mistake)


def verify(folder: Path) -> None:
    """Refuses a folder with a file that is not what its `checksums.json` lists.

    Raises:
        InputError: it names the file.
    """
    if (folder / NAME).is_file():
        for path, difference in differences(folder):
            if difference:
                raise InputError(
                    f"{path}: {difference}; expected the files as they were exported "
                    f"(or none of {NAME}, if they were changed on purpose)"
                )
