"""Lets one run at a time write to a folder."""

import contextlib
import datetime
import errno
import fcntl
import logging
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from albert_tf import errors
from albert_tf.errors import InputError

NAME = ".lock"
_WITHOUT_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_held = threading.local()


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keeps others out of a folder, which is made if need be, while the block runs.

    The system releases the lock when the process ends, even when it is killed: a lock
    file alone locks nothing. Who holds the lock may take it again. A file system that
    cannot lock files is warned of, and used without.

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
        folder.mkdir(parents=True, exist_ok=True)
        file = _locked(folder)
    mine.add(place)
    try:
        yield
    finally:
        mine.remove(place)
        with contextlib.suppress(OSError):
            (folder / NAME).unlink()  # before it is released: it may be another's then
        os.close(file)
        if is_new:
            with contextlib.suppress(OSError):  # the run has written there
                folder.rmdir()


def _locked(folder: Path) -> int:
    """Opens the lock file, locks it, and notes in it who did."""
    path = folder / NAME
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(file, 1000).decode(errors="replace")
            os.close(file)
            raise InputError(
                f"{folder}: another run is at work here ({holder or 'just started'}); "
                f"expected a folder of its own"
            ) from None
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
