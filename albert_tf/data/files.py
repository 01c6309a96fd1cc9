"""Reads text files, writes files atomically, and locks folders."""

import codecs
import contextlib
import glob
import gzip
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from albert_tf import errors
from albert_tf.errors import InputError

LOCK = ".lock"  # the name of the lock file in a locked folder
# A name that ends with a result of `_temporary_suffix`.
_TEMPORARY = re.compile(r".*\.tmp-[0-9a-f]{8}", re.DOTALL)
# The end of a message about a text in another encoding.
OTHER_ENCODING = "; expected UTF-8, or --encoding=cp1252 or the like"
# The first bytes of a gzip file.
GZIP_MAGIC = b"\x1f\x8b"
# The mark of UTF-32-LE begins with the mark of UTF-16-LE, so UTF-32 is tried first.
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def suffix(path: str | Path) -> str:
    """Returns the suffix of a file name in lower case; `.gz` at the end is ignored."""
    return Path(str(path).lower().removesuffix(".gz")).suffix


def read_text(path: str | Path, encoding: str | None = None) -> str:
    """Reads a text file, and returns its text as a string.

    Args:
        path: a file, plain or compressed with gzip.
        encoding: encoding of a file without a byte order mark; None means UTF-8.

    Raises:
        InputError: the file cannot be read or decoded.
    """
    return read_utf8(path, encoding).decode()


def read_utf8(
    path: str | Path, encoding: str | None = None, handler: str = "strict"
) -> bytes:
    """Reads a text file, and returns its text as bytes in UTF-8.

    Args:
        path: a file, plain or compressed with gzip.
        encoding: encoding of a file without a byte order mark; None means UTF-8.
        handler: "strict", or "surrogateescape" to keep invalid bytes.

    Raises:
        InputError: the file cannot be read, or `to_utf8` raises it.
    """
    with errors.wrap_read(path):
        data = Path(path).read_bytes()
    return to_utf8(data, path, encoding, handler)


def to_utf8(
    data: bytes, path: Any, encoding: str | None = None, handler: str = "strict"
) -> bytes:
    r"""Converts the contents of a text file, plain or compressed with gzip, to UTF-8.

    If a text has no `\n` except at its end, each `\r` ends a line and becomes `\n`. In
    other texts, a lone `\r` is a character.

    Args:
        data: contents of the file.
        path: the file, for messages.
        encoding: encoding of a file without a byte order mark. None means UTF-8, for
            callers without the flag --encoding: messages then do not mention the flag.
        handler: "strict", or "surrogateescape" to keep invalid bytes.

    Raises:
        InputError: there is no such encoding, the file is in another encoding, or it is
            a damaged gzip file.
    """
    if data.startswith(GZIP_MAGIC):
        with errors.wrap_read(path, "a whole gzip file"):
            data = gzip.decompress(data)
    mark_encoding = next(
        (name for mark, name in _BYTE_ORDER_MARKS.items() if data.startswith(mark)), ""
    )
    name = mark_encoding or encoding or "utf-8"
    if name == "utf-8" and b"\0" in data[:2]:
        raise InputError(
            f"{path}: UTF-16 without a byte order mark; expected UTF-8"
            f"{'' if encoding is None else ', or --encoding=utf-16-le'}"
        )
    # With "surrogateescape", UTF-8 needs no conversion: its invalid bytes are kept.
    if name != "utf-8" or handler == "strict":
        try:
            text = data.decode(name, handler)
        except LookupError:
            raise InputError(f"--encoding={name}: no such encoding of text") from None
        except UnicodeError as error:
            start = getattr(error, "start", 0)
            line = data.count(b"\n", 0, start) + 1
            offset = start - data.rfind(b"\n", 0, start) - 1
            name = name.upper().removesuffix("-SIG")
            raise InputError(
                f"{path}:{line}: not {name} at byte {offset} of the line"
                f"{'' if encoding is None else OTHER_ENCODING}"
            ) from None
        data = text.encode("utf-8", handler)
    if b"\r" in data and b"\n" not in data.rstrip(b"\r\n"):
        data = re.sub(b"\r\n?", b"\n", data)
    return data


@contextlib.contextmanager
def atomic(path: str | Path) -> Iterator[IO[bytes]]:
    """Opens a temporary file, which replaces `path` when it is complete.

    The file is complete when the block ends without an error. If `path` is a link, the
    file replaces the target of the link.

    Args:
        path: the file to make; its folder is made, too.

    Yields:
        A binary file with a temporary name in the same folder.

    Raises:
        InputError: the file cannot be written (permissions, no space left, ...), or
            `path` is a folder or a device, such as /dev/null.
    """
    target = os.path.realpath(path)
    temporary = Path(f"{target}{_temporary_suffix()}")
    try:
        # A device or a pipe would be replaced, too.
        if os.path.exists(target) and not os.path.isfile(target):
            raise OSError("not a regular file")
        temporary.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            yield file
        flush(temporary)
        os.replace(temporary, target)
    except OSError as error:
        message = errors.summarize(error)
        raise InputError(f"{path}: cannot be written: {message}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def write(path: str | Path, content: str | bytes) -> None:
    """Writes a file atomically; text is encoded as UTF-8."""
    with atomic(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def flush(path: Path) -> None:
    """Waits until a file is on the disk; some full disks report errors only then."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextlib.contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yields an empty folder; when the block ends, its files move to `folder`.

    After an error in the block, no file moves. The index of a TF1 checkpoint moves
    after the data, since the checkpoint is readable as soon as its index exists. The
    file `checkpoint`, which names the newest checkpoint, moves last.
    """
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / _temporary_suffix()
    temporary.mkdir()
    try:
        yield temporary
        files = sorted(temporary.iterdir(), key=_move_order)
        for file in files:
            flush(file)
            if file.suffix == ".index":
                # An old index of the same name does not belong to the new data.
                (folder / file.name).unlink(missing_ok=True)
        for file in files:
            file.replace(folder / file.name)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _move_order(file: Path) -> tuple[bool, bool, str]:
    """Returns a key for sorting: other files first, then indices, then `checkpoint`."""
    return file.name == "checkpoint", file.suffix == ".index", file.name


def _temporary_suffix() -> str:
    """Returns a new suffix for the name of a temporary file or folder."""
    return f".tmp-{uuid.uuid4().hex[:8]}"


def remove_temporary(folder: Path, name: str = "") -> None:
    """Removes temporary files and folders that killed processes left in a folder.

    Args:
        folder: the folder.
        name: only files whose names begin with this text are removed. No other process
            may write temporary files of such names at this time. So the caller must
            have locked the folder, or be the only one that writes files of this name.
    """
    for path in folder.glob(f"{glob.escape(name)}*"):
        if _TEMPORARY.fullmatch(path.name):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


@contextlib.contextmanager
def lock_folder(folder: Path, wait: bool = False) -> Iterator[None]:
    """Locks a folder while the block runs, and creates it if it does not exist.

    The system releases the lock when the process ends or is killed. The thread that
    holds the lock may lock the folder again.

    Args:
        folder: the folder.
        wait: whether to wait if another process or thread holds the lock. Without
            `wait`, a lock that is held is an error.

    Raises:
        InputError: another process or thread holds the lock, or the folder cannot be
            written.
    """
    import filelock  # --help of a command does not need it

    is_new = not folder.exists()
    lock = filelock.FileLock(folder.resolve() / LOCK, is_singleton=True)
    with errors.wrap_write(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=-1 if wait else 0)
        except filelock.Timeout:
            raise InputError(
                f"{folder}: another run uses this folder; choose another folder, or "
                f"wait until that run ends"
            ) from None
    try:
        # If the thread locks the folder again within the block, the counter is above 1.
        if lock.lock_counter == 1:
            remove_temporary(folder)
        yield
    finally:
        if lock.lock_counter == 1:
            # The file is deleted before the release: after the release, it could be the
            # lock of another process.
            (folder / LOCK).unlink(missing_ok=True)
        lock.release()
        if is_new:
            with contextlib.suppress(OSError):  # the folder is not empty
                folder.rmdir()
