"""Verifies what this package and the released code write, whole folders at a time.

Where a folder has `checksums.json`, every byte of the files it lists counts, as it does
of plain TFRecords, of caches and of checkpoints. JSON and .keras are read in full.
"""

import dataclasses
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from albert_tf import errors, weights
from albert_tf.data import cache, checksums, json_values, records
from albert_tf.errors import InputError
from albert_tf.model.config import read_json_object
from albert_tf.weights import checkpoints

_EVENTS = "events.out.tfevents"


@dataclasses.dataclass(frozen=True)
class Finding:
    """What was verified.

    Attributes:
        path: the file, or the prefix of a checkpoint.
        what: it is.
        problem: what is wrong with it; None: nothing.
    """

    path: Path
    what: str
    problem: str | None = None


def folder(path: Path) -> Iterator[Finding]:
    """Verifies all that is recognised in a folder and the folders in it.

    Hidden files and those of TensorBoard, which a run may be writing, are left out.

    Raises:
        InputError: no such folder, or nothing in it is recognised.
    """
    if not path.is_dir():
        raise InputError(f"{path}: expected a folder")
    is_empty = True
    for place, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for finding in _of_one(Path(place), names):
            is_empty = False
            yield finding
    if is_empty:
        raise InputError(
            f"{path}: expected a run, records, a cache, an export or a checkpoint; "
            f"nothing in it is one"
        )


def _of_one(place: Path, names: list[str]) -> Iterator[Finding]:
    """Verifies the files of one folder."""
    done = set()
    if checksums.NAME in names:
        try:
            for path, difference in checksums.differences(place):
                done.add(path)
                yield Finding(path, "SHA-256", difference)
        except InputError as mistake:
            yield _damaged(place / checksums.NAME, "SHA-256", mistake)
        done.add(place / checksums.NAME)
    # Descriptions come first: what they count needs no second look.
    for name in sorted(names, key=lambda name: (not name.endswith(".json"), name)):
        path = place / name
        if path not in done and not name.startswith(".") and _EVENTS not in name:
            yield from _of_file(path, done)


def _of_file(path: Path, done: set[Path]) -> Iterator[Finding]:
    try:
        if path.suffix == ".json":
            content = read_json_object(path)
            yield Finding(path, "JSON")
            if "files" in content and "subset" in content:
                yield from _described(path, content["files"], done)
        elif what := _verified(path):
            yield Finding(path, what)
    except InputError as mistake:
        yield _damaged(path, "", mistake)


def _damaged(path: Path, what: str, mistake: InputError) -> Finding:
    return Finding(path, what, str(mistake).removeprefix(f"{path}: "))


def _described(path: Path, entries: Any, done: set[Path]) -> Iterator[Finding]:
    """Counts the records of the files that a description lists."""
    for name in entries:
        file = path.parent / name
        done.add(file)
        entry = json_values.get(entries, name, dict, f"{path}: files")
        expected = json_values.get(entry, "records", int, f"{path}: {name}")
        try:
            count = records.count_verified(str(file))
            if count != expected:
                raise InputError(
                    f"{file}: holds {count:,} records; expected {expected:,}, as in "
                    f"{path.name}"
                )
            yield Finding(file, f"{count:,} records, as described")
        except (InputError, OSError) as mistake:
            problem = errors.reason(mistake).removeprefix(f"{file}: ")
            yield Finding(file, "records", problem)


def _verified(path: Path) -> str | None:
    """Reads a file in full; returns what it is, None for one of another kind.

    Raises:
        InputError: it is damaged.
    """
    if path.suffix == ".index":
        if (reason := checkpoints.damage(path.with_suffix(""))) is not None:
            raise InputError(f"{path}: its checkpoint is damaged: {reason}")
        return "checkpoint"
    if path.name == "checkpoint":
        checkpoints.choose(path.parent, "newest")
        return "names a checkpoint"
    if path.suffix == ".jsonl":
        with errors.reading(path):
            lines = path.read_text("utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            json_values.parse(line, path, number)
        return f"{len(lines):,} lines of JSON"
    if path.suffix == ".npz" and cache.is_cache(path):
        cache.verify(path)
        return "cache"
    if path.suffix in (".keras", ".safetensors", ".h5"):
        return _weights(path)
    if "tfrecord" in path.name or records.looks_like_records(path):
        return f"{records.count_verified(str(path)):,} records"
    return None


def _weights(path: Path) -> str:
    if path.suffix == ".keras":
        with errors.reading(path), zipfile.ZipFile(path) as archive:
            if (entry := archive.testzip()) is not None:
                raise ValueError(f"{entry} differs from its CRC-32")
    source = weights.open_source(path)
    for name in source.shapes:
        source.read(name)
    return "weights" if path.suffix == ".keras" else "weights, readable; no checksums"
