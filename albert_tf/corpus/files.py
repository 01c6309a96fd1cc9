"""Reads and writes local files, and remote files (such as gs://) with Apache Beam."""

import contextlib
import glob as local_glob
import json
import logging
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from albert_tf import errors
from albert_tf.data.files import atomic, remove_temporary
from albert_tf.errors import InputError

_SHARD = re.compile(r"-[0-9]{5}-of-[0-9]{5}$")


def description_path(record_file: str) -> str:
    """Returns the path of the JSON file that describes a record file.

    The N shards of name@N have one description together, name.json.
    """
    return f"{_SHARD.sub('', record_file)}.json"


def glob(pattern: str) -> dict[str, int]:
    """Returns {path: size in bytes} of the files that match a path or a pattern."""
    if is_remote(pattern):
        [match] = beam_file_systems().match([pattern])
        return {file.path: file.size_in_bytes for file in match.metadata_list}
    if os.path.isfile(pattern):  # its name may contain wildcards
        return {pattern: os.path.getsize(pattern)}
    paths = local_glob.glob(pattern, recursive=True)
    return {path: os.path.getsize(path) for path in paths if os.path.isfile(path)}


def size(path: str) -> int | None:
    """Returns the size of a file in bytes; None if it does not exist."""
    return glob(path).get(path)


def modification_time(path: str) -> float:
    """Returns the time of the last change of a file, in seconds since 1970."""
    if is_remote(path):
        return beam_file_systems().last_updated(path)
    return os.path.getmtime(path)


def open_binary(path: str) -> IO[bytes]:
    """Opens a file for reading; a compressed file is not decompressed.

    Raises:
        InputError: the file cannot be opened.
    """
    with errors.wrap_read(path):
        if is_remote(path):
            return beam_file_systems().open(path, compression_type="uncompressed")
        return open(path, "rb")


def read_json(path: str) -> dict[str, Any] | None:
    """Reads a JSON object from a file; returns None if the file does not exist.

    Raises:
        InputError: the file cannot be read, or does not contain a JSON object.
    """
    if size(path) is None:
        return None
    with open_binary(path) as file, errors.wrap_read(path, "a JSON object"):
        # If the value is not an object, ** raises TypeError.
        return {**json.loads(file.read())}


def write_json(path: str, content: Mapping[str, Any]) -> None:
    """Writes a JSON file atomically."""
    with create(path) as file:
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        file.write(text.encode())


@contextlib.contextmanager
def create(path: str) -> Iterator[IO[bytes]]:
    """Opens a temporary file for writing, and names it `path` when it is complete.

    Raises:
        InputError: a local file cannot be written. For remote files, Beam's errors are
            raised.
    """
    if not is_remote(path):
        with atomic(path) as file:
            yield file
        return
    systems, temporary = beam_file_systems(), f"{path}.tmp-{uuid.uuid4().hex}"
    try:
        with systems.create(temporary, compression_type="uncompressed") as file:
            yield file
        remove([path])
        systems.rename([temporary], [path])
    except BaseException:
        remove([temporary])
        raise


def remove_unfinished(targets: Iterable[str]) -> None:
    """Removes the temporary files that killed processes left for local targets."""
    for target in targets:
        if not is_remote(target):
            remove_temporary(Path(target).parent, Path(target).name)


def remove(paths: Iterable[str]) -> None:
    """Removes files; a file that does not exist is no error."""
    for path in paths:
        if is_remote(path):
            if beam_file_systems().exists(path):
                beam_file_systems().delete([path])
        else:
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)


def remove_folder(path: str) -> None:
    """Removes a folder and its files."""
    if not is_remote(path):
        shutil.rmtree(path, ignore_errors=True)
    elif glob(f"{path}/*"):
        beam_file_systems().delete([path])


def check_outputs(targets: Iterable[str], inputs: Iterable[str]) -> None:
    """Checks that output files can be written, and creates the folders of local ones.

    Raises:
        InputError: a target is an input file or a folder, or cannot be written.
    """
    input_paths = {real_path(path) for path in inputs}
    for target in targets:
        if real_path(target) in input_paths:
            raise InputError(f"--output_file: {target} is an input file, too")
        if is_remote(target):
            continue
        folder = os.path.dirname(target) or "."
        with errors.wrap_write(target):
            os.makedirs(folder, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise InputError(f"{target}: its folder cannot be written")
        if os.path.exists(target) and not os.path.isfile(target):
            raise InputError(f"{target}: expected the name of a file")


def real_path(path: str) -> str:
    """Returns the absolute path of a local file, with all links resolved.

    Different paths of one file have the same result. A remote path is not changed.
    """
    return path if is_remote(path) else os.path.realpath(path)


def beam_file_systems() -> Any:
    """Imports and returns Beam's `FileSystems`.

    Raises:
        InputError: Apache Beam is not installed.
    """
    # Beam warns about each cloud whose packages are not installed.
    logging.getLogger("apache_beam.io.filesystems").setLevel(logging.ERROR)
    errors.check_installed("--runner or a remote file", "apache_beam", extra="beam")
    from apache_beam.io.filesystems import FileSystems

    return FileSystems


def is_remote(path: str) -> bool:
    """Returns whether a path is not on this machine's file systems."""
    return "://" in path
