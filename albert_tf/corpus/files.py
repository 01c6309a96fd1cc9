"""Files: local paths, and remote ones through Apache Beam's file systems."""

import glob as local_glob
import os
import re
from collections.abc import Iterable
from typing import IO, Any

from albert_tf.errors import InputError

_SHARD = re.compile(r"-[0-9]{5}-of-[0-9]{5}$")


def description_of(record_file: str) -> str:
    """Returns where the description of a record file is, or would be."""
    return f"{_SHARD.sub('', record_file)}.json"


def glob(pattern: str) -> dict[str, int]:
    """Returns the files that match a pattern, with their sizes in bytes."""
    if is_remote(pattern):
        [match] = beam_file_systems().match([pattern])
        return {file.path: file.size_in_bytes for file in match.metadata_list}
    if os.path.isfile(pattern):  # its name may hold characters that patterns use
        return {pattern: os.path.getsize(pattern)}
    paths = local_glob.glob(pattern, recursive=True)
    return {path: os.path.getsize(path) for path in paths if os.path.isfile(path)}


def size_of(path: str) -> int | None:
    """Returns the bytes of a file; None where there is none."""
    if is_remote(path):
        if not beam_file_systems().exists(path):
            return None
        return glob(path).get(path)
    return os.path.getsize(path) if os.path.isfile(path) else None


def modified(path: str) -> float:
    """Returns when a file was last changed, in seconds since 1970.

    Of a local file that is when its contents or its times were: what is copied over it
    with the time of the original is seen, too.
    """
    if is_remote(path):
        return beam_file_systems().last_updated(path)
    return max(written(path), os.stat(path).st_ctime)


def written(path: str) -> float:
    """Returns the time that a file bears, which a copy may have of its original.

    Descriptions of earlier versions go by it, in seconds since 1970.
    """
    if is_remote(path):
        return beam_file_systems().last_updated(path)
    return os.path.getmtime(path)


def open_binary(path: str) -> IO[bytes]:
    """Opens a file for reading.

    Raises:
        InputError: it cannot be opened.
    """
    try:
        if is_remote(path):
            return beam_file_systems().open(path, compression_type="uncompressed")
        return open(path, "rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def check_outputs(targets: Iterable[str], inputs: Iterable[str]) -> None:
    """Checks that files can be written, and makes the folders of local ones.

    Raises:
        InputError: a target is an input file or a folder, or cannot be written.
    """
    read = {_same_for_all_spellings(path) for path in inputs}
    for target in targets:
        if _same_for_all_spellings(target) in read:
            raise InputError(f"--output_file: {target} is an input file, too")
        if not is_remote(target):
            _check_local_output(target)


def _same_for_all_spellings(path: str) -> str:
    return path if is_remote(path) else os.path.realpath(path)


def _check_local_output(target: str) -> None:
    folder = os.path.dirname(target) or "."
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{target}: its folder cannot be made: {error.strerror}"
        ) from error
    if not os.access(folder, os.W_OK):
        raise InputError(f"{target}: its folder cannot be written")
    if os.path.isdir(target):
        raise InputError(f"{target}: is a folder; expected the name of a file")
    if os.path.exists(target) and not os.path.isfile(target):
        raise InputError(
            f"--output_file: {target} is a pipe or a device; expected the name of a "
            f"file, since unfinished work and a description stand beside it"
        )


def beam_file_systems() -> Any:
    """Imports Beam's `FileSystems`.

    Raises:
        InputError: Apache Beam is not installed.
    """
    try:
        from apache_beam.io.filesystems import FileSystems
    except ImportError as error:
        raise InputError(
            "Apache Beam is not installed; pip install 'albert_tf[beam]' adds it"
        ) from error
    return FileSystems


def is_remote(path: str) -> bool:
    """Returns whether a path is not on this machine's file systems."""
    return "://" in path
