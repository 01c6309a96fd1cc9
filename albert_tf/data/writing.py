"""Writes files that are either whole or not there."""

import contextlib
import fcntl
import glob
import io
import os
import re
import stat
import uuid
from collections.abc import Iterator
from typing import IO, Any

from albert_tf import errors

_STREAM = re.compile(r"/dev/(stdout|stderr)|(?:/dev|/proc/self)/fd/([0-9]+)")
_NUMBERS = {"stdout": 1, "stderr": 2}
_TEMPORARY = re.compile(r"\.tmp-[0-9]+-[0-9a-f]{8}")


@contextlib.contextmanager
def atomic(path: str) -> Iterator[IO[bytes]]:
    """Opens a file for writing that replaces `path` only when it is complete.

    Where `path` is a link, the file that it names is replaced and the link stays. A
    replaced file keeps its permissions. Pipes, devices and the process's own streams
    (/dev/stdout) cannot be replaced: they are written to directly.

    Args:
        path: the file to make; its folder must exist.

    Yields:
        A binary file, under a temporary name beside the one to replace.

    Raises:
        InputError: the file cannot be written (permissions, no space left, ...). Errors
            of the block that have other causes pass as they are.
    """
    with errors.writing(path):
        direct = _opened_directly(path)
    if direct is not None:
        with io.BufferedWriter(direct) as file:
            yield file
        return
    target = os.path.realpath(path)
    # Workers in containers may share both a disk and a process number.
    temporary = f"{target}.tmp-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    try:
        with errors.writing(path):
            output = _Output(path, temporary)
            _lock(output)
            if os.path.exists(target):
                os.fchmod(output.fileno(), stat.S_IMODE(os.stat(target).st_mode))
        with io.BufferedWriter(output) as file:
            yield file
            file.flush()
            with errors.writing(path):
                os.fsync(file.fileno())
        with errors.writing(path):
            os.replace(temporary, target)
    finally:
        with contextlib.suppress(OSError):
            os.remove(temporary)


def remove_leftovers(path: str) -> None:
    """Removes what killed processes have left of `atomic(path)`, and nothing else."""
    target = os.path.realpath(path)
    for found in glob.glob(f"{glob.escape(target)}.tmp-*"):
        is_ours = _TEMPORARY.fullmatch(found, len(target))
        if is_ours and stat.S_ISREG(os.lstat(found).st_mode):
            # Who holds the lock is alive, maybe in another container.
            with contextlib.suppress(OSError), open(found, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.remove(found)


class _Output(io.FileIO):
    """A file whose own errors name it, so that they differ from those of its users."""

    def __init__(self, path: str, opened: str | int):
        super().__init__(opened, "wb")
        self._path = path

    def write(self, data: Any) -> int:
        with errors.writing(self._path):
            return super().write(data)

    def close(self) -> None:
        with errors.writing(self._path):
            super().close()


def _opened_directly(path: str) -> _Output | None:
    """Opens what is no regular file; None for what is one, or is not there yet."""
    stream = _STREAM.fullmatch(os.path.abspath(path))
    if stream:
        # Opened anew, a file behind the stream would be written from its beginning.
        return _Output(path, os.dup(_NUMBERS.get(stream[1]) or int(stream[2])))
    if os.path.exists(path) and not os.path.isfile(path):
        return _Output(path, path)
    return None


def _lock(output: _Output) -> None:
    with contextlib.suppress(OSError):  # some file systems have no locks
        fcntl.flock(output, fcntl.LOCK_EX | fcntl.LOCK_NB)
