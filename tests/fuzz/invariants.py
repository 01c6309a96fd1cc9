"""What must hold when a reader is given any input."""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from albert_tf.errors import InputError
from albert_tf.weights import MisfitError

SECONDS = 20
# What libraries take once, and what is rounded up to pages and pools.
MEMORY_FLOOR = 96 << 20
MEMORY_FACTOR = 10
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_PROCESSES = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork")
_CHANGES = (
    *("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink"),
    *("os.chmod", "os.chown", "os.truncate", "shutil.rmtree", "shutil.move"),
)
# Where programs and the system's own files are, which libraries read when they please.
_SYSTEM = ("/usr/", "/lib", "/proc/", "/sys/", "/dev/", "/etc/ld", "/etc/localtime",
           "/etc/mime", "/opt/")  # fmt: skip


class Broken(AssertionError):  # noqa: N818 (it is a result of the fuzzer)
    """A reader has done what it must not; the first word says what."""


class _Guard:
    """Notes what a reader opens, changes, starts and connects to."""

    def __init__(self):
        self.folder = None
        self.offences = []

    def __call__(self, event, arguments):
        if self.folder is None:
            return
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, str | bytes):
                self._file(os.fsdecode(path), flags or 0)
        elif event in _CHANGES:
            self._file(os.fsdecode(arguments[0]), _WRITING)
        elif event in _PROCESSES or event == "socket.connect":
            self.offences.append(f"{event} {arguments[:1]}")

    def _file(self, path, flags):
        path = os.path.abspath(path)
        if f"{path}/".startswith(f"{self.folder}/"):
            return
        if flags & _WRITING:
            self.offences.append(f"writes {path}")
        elif not path.startswith(_READABLE):
            self.offences.append(f"reads {path}")


_READABLE = (
    *_SYSTEM,
    *{os.path.realpath(path) for path in (sys.prefix, sys.base_prefix)},
    *{os.path.abspath(path) for path in (sys.prefix, sys.base_prefix)},
    str(Path(__file__).parents[2]),
)
_guard = _Guard()


def _hang(number, frame):
    raise Broken(f"hang: no answer in {SECONDS} seconds")


def _memory(key):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) << 10
    return 0


@contextlib.contextmanager
def _timed():
    before = signal.signal(signal.SIGALRM, _hang)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def check(read, folder):
    """Reads what is in a folder.

    Args:
        read: returns nothing, or raises InputError or `Broken`.
        folder: of the input, with nothing else in it. Harnesses may write beside it.

    Returns:
        whether the input was taken; False: it was refused.

    Raises:
        Broken: an invariant does not hold; its cause is the exception, if any.
    """
    if _guard not in _installed:
        sys.addaudithook(_guard)
        _installed.append(_guard)
    before = {path: path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}
    size = sum(path.stat().st_size for path in before if path.is_file())
    with contextlib.suppress(OSError):  # the high-water mark begins anew
        Path("/proc/self/clear_refs").write_text("5")
    memory = _memory("VmRSS:")
    _guard.folder, _guard.offences = str(folder.parent), []
    began, taken = time.perf_counter(), True
    try:
        with _timed():
            read(folder)
    except InputError as error:
        taken = False
        _check_message(error)
    except Broken:
        raise
    except Exception as error:
        raise Broken(f"exception: {type(error).__name__}: {error}"[:300]) from error
    finally:
        offences, _guard.folder = _guard.offences, None
    if offences:
        raise Broken(f"file: {offences[0]}")
    after = {path: path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}
    if after != before:
        raise Broken(f"file: {sorted(map(str, after.keys() ^ before.keys()))} changed")
    grown = _memory("VmHWM:") - memory
    if grown > MEMORY_FACTOR * size + MEMORY_FLOOR:
        raise Broken(f"memory: {grown >> 20} MiB for {size:,} bytes")
    if time.perf_counter() - began > SECONDS:
        raise Broken(f"hang: {time.perf_counter() - began:.0f} seconds")
    return taken


_installed = []


def _check_message(error):
    text = str(error)
    if not text.strip():
        raise Broken("message: empty")
    lines = 1 if not isinstance(error, MisfitError) else 99
    if len(text.split("\n")) > lines or "\r" in text:
        raise Broken(f"message: several lines: {text[:200]!r}") from error
    if "\0" in text or "\x1b" in text:
        raise Broken(f"message: control characters: {text[:200]!r}") from error
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Broken(f"message: no text: {text[:200]!r}") from error


def same(kind, expected, got):
    """Refuses a result that lost something.

    Raises:
        Broken: what was expected is not there.
    """
    if expected != got:
        raise Broken(f"{kind}: {str(expected)[:150]} became {str(got)[:150]}")
