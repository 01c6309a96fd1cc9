"""Reads files of text, writes files whole or not at all, and locks folders."""

import codecs
import contextlib
import datetime
import errno
import fcntl
import glob
import gzip
import io
import logging
import os
import re
import shutil
import socket
import stat
import tempfile
import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from albert_tf import errors
from albert_tf.data import stopping
from albert_tf.errors import InputError

LOCK = ".lock"
# In a folder of `temporary_in`, what is about to be replaced.
REPLACED = "replaced"
_STREAM = re.compile(r"/dev/(stdout|stderr)|(?:/dev|/proc/self)/fd/([0-9]+)")
_NUMBERS = {"stdout": 1, "stderr": 2}
_TEMPORARY = re.compile(r"\.tmp-[0-9]+-[0-9a-f]{8}")
_WRITING = ".writing-"
_WITHOUT_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
# Of a file that is written, in bytes.
_BEGUN_TOGETHER = 1 << 22
_held = threading.local()
OTHER_ENCODING = "; expected UTF-8, or --encoding=cp1252 or the like"
_GZIP = b"\x1f\x8b"
# That of UTF-32 begins as that of UTF-16 does.
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def suffix(path: str | Path) -> str:
    """Returns the last suffix of a name, in lower case; before `.gz` if that is it."""
    return Path(str(path).lower().removesuffix(".gz")).suffix


def read_text(path: str | Path, encoding: str | None = None) -> str:
    """Returns the text of a file; see `to_utf8`.

    Raises:
        InputError: it cannot be read, too.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    return to_utf8(data, path, encoding).decode()


def to_utf8(
    data: bytes, path: Any, encoding: str | None = None, handler: str = "strict"
) -> bytes:
    r"""Returns the text of a file, plain or compressed with gzip, in UTF-8.

    In a text without `\n`, but at its end, `\r` ends lines and becomes `\n`. Elsewhere
    a lone `\r` is a character.

    Args:
        data: contents of the file.
        path: the file, for messages.
        encoding: of a file without a byte order mark, which decides otherwise. None is
            UTF-8, in a reader that has no flag for it.
        handler: of wrong bytes, see `bytes.decode`; "surrogateescape" leaves them.

    Raises:
        InputError: there is no such encoding, or the file is not in it.
    """
    if data.startswith(_GZIP):
        with errors.reading(path, "a whole gzip file"):
            data = gzip.decompress(data)
    marked = next((name for mark, name in _MARKS.items() if data.startswith(mark)), "")
    name = marked or encoding or "utf-8"
    if name == "utf-8" and b"\0" in data[:2]:
        raise InputError(
            f"{path}: UTF-16 without a byte order mark; expected UTF-8"
            f"{'' if encoding is None else ', or --encoding=utf-16-le'}"
        )
    if name != "utf-8" or handler == "strict":
        try:
            text = data.decode(name, handler)
        except LookupError:
            raise InputError(f"--encoding={name}: no such encoding of text") from None
        except UnicodeError as error:
            begin = getattr(error, "start", 0)
            line = data.count(b"\n", 0, begin) + 1
            at = begin - data.rfind(b"\n", 0, begin) - 1
            name = name.upper().removesuffix("-SIG")
            raise InputError(
                f"{path}:{line}: not {name} at byte {at} of the line"
                f"{'' if encoding is None else OTHER_ENCODING}"
            ) from None
        data = text.encode("utf-8", handler)
    if b"\r" in data and b"\n" not in data.rstrip(b"\r\n"):
        data = re.sub(b"\r\n?", b"\n", data)
    return data


@contextlib.contextmanager
def atomic(path: str, flushes: bool = True) -> Iterator[IO[bytes]]:
    """Opens a file for writing that replaces `path` only when it is complete.

    Where `path` is a link, the file that it names is replaced and the link stays. A
    replaced file keeps its permissions, and what killed processes have left of theirs
    is removed. Pipes, devices and the process's own streams
    (/dev/stdout) cannot be replaced: they are written to directly.

    Args:
        path: the file to make; its folder must exist.
        flushes: whether it waits until the file is on its disk, before it replaces.

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
            _remove_leftovers(target)
            if os.path.exists(target):
                os.fchmod(output.fileno(), stat.S_IMODE(os.stat(target).st_mode))
        with io.BufferedWriter(output) as file:
            yield file
            file.flush()
            with errors.writing(path):
                if flushes:
                    os.fsync(file.fileno())
        with errors.writing(path):
            os.replace(temporary, target)
    finally:
        with contextlib.suppress(OSError):
            os.remove(temporary)


def append(path: Path, text: str) -> None:
    """Adds text to a file; where that fails, takes back what came to be there.

    Raises:
        InputError: the file cannot be written.
    """
    with errors.writing(path), path.open("ab", buffering=0) as file:
        size, rest = file.tell(), text.encode()
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(size)
            raise


def _remove_leftovers(target: str) -> None:
    """Removes what killed processes have left of `atomic`, and nothing else."""
    for temporary in glob.glob(f"{glob.escape(target)}.tmp-*"):
        is_ours = _TEMPORARY.fullmatch(temporary, len(target))
        if is_ours and stat.S_ISREG(os.lstat(temporary).st_mode):
            # Who holds the lock is alive, maybe in another container.
            with contextlib.suppress(OSError), open(temporary, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.remove(temporary)


def flush(path: Path) -> None:
    """Waits until a file is on its disk, which may turn out full only now."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextlib.contextmanager
def write_together(folder: Path) -> Iterator[Path]:
    """Yields an empty folder whose files move to `folder` when all are written.

    Of a TF1 checkpoint the data lands before the index, without which it counts as
    none, and the file `checkpoint`, which names it, last.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with temporary_in(folder) as temporary:
        yield temporary
        files = sorted(temporary.iterdir(), key=_place_in_line)
        for file in files:
            flush(file)
        with stopping.held():
            _move(files, folder)


def _move(files: Sequence[Path], folder: Path) -> None:
    for file in files:
        if file.suffix == ".index":
            # An index of the same name does not belong to the new data.
            (folder / file.name).unlink(missing_ok=True)
    for file in files:
        if file.suffix == ".index" or ".data-" in file.name:
            # A link to another run's checkpoint: that one stays whole.
            file.replace(folder / file.name)
        else:
            # Of a link the file that it names is replaced, maybe on another disk.
            shutil.move(file, os.path.realpath(folder / file.name))


@contextlib.contextmanager
def temporary_in(parent: Path) -> Iterator[Path]:
    """Yields an empty folder in another; afterwards it is removed with its files.

    What killed processes have left of theirs is removed, too. What stands in one of
    their folders as `replaced/NAME`, while there is no `parent/NAME`, returns there.
    """
    for left in parent.glob(f"{_WRITING}*"):
        with contextlib.suppress(OSError):
            _remove_abandoned(left)
    while True:
        path = Path(tempfile.mkdtemp(dir=parent, prefix=_WRITING))
        with contextlib.suppress(FileNotFoundError):
            file = os.open(path, os.O_RDONLY)
            break  # else another process took it for abandoned
    try:
        with contextlib.suppress(OSError):  # some file systems have no locks
            fcntl.flock(file, fcntl.LOCK_EX)
        path.mkdir(exist_ok=True)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(file)


def _remove_abandoned(folder: Path) -> None:
    """Removes a folder of `temporary_in` unless its process lives."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for replaced in folder.glob(f"{REPLACED}/*"):
            if not (folder.parent / replaced.name).exists():
                replaced.rename(folder.parent / replaced.name)
        shutil.rmtree(folder)
    finally:
        os.close(file)


@contextlib.contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Keeps others out of a folder, which is made if need be, while the block runs.

    The system releases the lock when the process ends, even when it is killed: a lock
    file alone locks nothing. Who holds the lock may take it again. A file system that
    cannot lock files is warned of, and used without.

    Args:
        folder: to lock.
        wait: for another process or thread that holds the lock.

    Raises:
        InputError: another process or thread holds the lock, or the folder cannot be
            written.
    """
    place = folder.resolve()
    mine = _held.__dict__.setdefault("folders", set())
    if place in mine:
        yield
        return
    is_new = not folder.exists()
    with errors.writing(folder):
        file = _lock_file(folder, wait)
    mine.add(place)
    try:
        yield
    finally:
        mine.remove(place)
        with contextlib.suppress(OSError):
            (folder / LOCK).unlink()  # before it is released: it may be another's then
        os.close(file)
        if is_new:
            with contextlib.suppress(OSError):  # the run has written there
                folder.rmdir()


class _Output(io.FileIO):
    """A file whose own errors name it, so that they differ from those of its users."""

    def __init__(self, path: str, opened: str | int):
        super().__init__(opened, "wb")
        self._path = path
        self._written = self._begun = 0

    def write(self, data: Any) -> int:
        with errors.writing(self._path):
            count = super().write(data)
        self._written += count
        if self._written - self._begun >= _BEGUN_TOGETHER:
            self._begin_flush()
        return count

    def _begin_flush(self) -> None:
        """Lets the system write what it holds, so that a later flush waits less."""
        part = self._begun, self._written - self._begun
        self._begun = self._written
        # Linux writes dirty pages before it could forget them; its errors stay.
        with contextlib.suppress(OSError, AttributeError):  # pipes, other systems
            os.posix_fadvise(self.fileno(), *part, os.POSIX_FADV_DONTNEED)

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


def _place_in_line(file: Path) -> tuple[bool, bool, str]:
    """Sorts a checkpoint's index behind its data, and what names it behind both."""
    return file.name == "checkpoint", file.suffix == ".index", file.name


def _lock_file(folder: Path, wait: bool) -> int:
    """Opens the lock file, locks it, and notes in it who did."""
    path = folder / LOCK
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            continue  # its holder has just removed the folder
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(file, 1000).decode(errors="replace") or "just started"
            if not wait:
                os.close(file)
                raise InputError(
                    f"{folder}: another run is at work here ({holder}); "
                    f"expected a folder of its own"
                ) from None
            logging.getLogger(__name__).warning("%s: waiting for %s", folder, holder)
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _WITHOUT_LOCKS:
                os.close(file)
                raise
            logging.getLogger(__name__).warning(
                "%s: this file system has no locks (%s); start no second run there",
                folder,
                error.strerror,
            )
            return file
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), os.stat(path)):
                break
        os.close(file)  # its holder has just removed it
    started = datetime.datetime.now().isoformat(" ", "seconds")
    holder = f"process {os.getpid()} on {socket.gethostname()}, since {started}"
    os.truncate(file, 0)
    os.write(file, holder.encode())
    return file
