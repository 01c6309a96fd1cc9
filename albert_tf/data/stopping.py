"""Ends a command when a signal asks for it; training between two steps."""

import contextlib
import os
import select
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import NoReturn

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# `timeout` and batch systems may send one signal twice.
_SECONDS_OF_ONE = 1.0
# After which an exception that is gone while its block runs on counts as lost.
_SECONDS_TO_ARRIVE = 0.5


class Stopped(SystemExit):
    """A run has stopped as a signal asked; uncaught, it ends with the signal's status.

    Args:
        number: the signal's.
    """

    def __init__(self, number: int):
        super().__init__(128 + number)
        self.signal = signal.Signals(number)


class Interrupted(SystemExit):
    """A signal has interrupted a command, wherever it was; see `ending`."""


class Watch:
    """Whether a signal has asked to stop.

    Attributes:
        number: of the first signal that came; None: none did.
        is_over: whether there is nothing more to interrupt.
    """

    number: int | None = None
    is_over = False
    _raised: "weakref.ref[Interrupted] | None" = None

    def interrupt(self, number: int) -> None:
        """Raises Interrupted, unless one is on its way already."""
        if self.is_over or (self._raised and self._raised()):
            return
        self.number = self.number or number
        interrupted = Interrupted(128 + self.number)
        self._raised = weakref.ref(interrupted)
        try:
            raise interrupted
        finally:
            del interrupted  # else its own traceback would keep it

    def has_lost(self) -> bool:
        """Whether what `interrupt` raised is gone, and the block is not.

        Python itself drops what is raised in a `__del__`, a callback of the garbage
        collector or one of ctypes.
        """
        return bool(not self.is_over and self._raised and not self._raised())

    def stop(self) -> NoReturn:
        """Raises Stopped; for SIGTERM where it was another worker that got a signal."""
        raise Stopped(self.number or signal.SIGTERM)


@contextlib.contextmanager
def watched(log: Callable[[str], None], raises: bool = False) -> Iterator[Watch]:
    """Notes SIGTERM and SIGINT while the block runs; a second one ends the process.

    Python calls handlers between its own instructions alone, so not within a step that
    takes minutes: a thread that reads the numbers of signals as they come does the
    work. A signal that is ignored stays so, as behind `nohup`. Only the main thread can
    watch; elsewhere nothing is noted.

    Args:
        log: gets a line when a signal comes.
        raises: whether the first one raises Interrupted in the block, again and again
            where that is lost.
    """
    watch = Watch()

    def handle(number: int, _: object) -> None:
        if raises:
            watch.interrupt(number)

    if threading.current_thread() is not threading.main_thread():
        yield watch
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    numbers = [n for n, handler in before.items() if handler is not signal.SIG_IGN]
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    thread = threading.Thread(
        target=_listen, args=(reader, numbers, watch, log), daemon=True
    )
    thread.start()
    unraisable = sys.unraisablehook
    if raises:
        # Where a signal came, what Python cannot raise is of its making.
        sys.unraisablehook = lambda lost: None if watch.number else unraisable(lost)
    wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, handle)  # else there is no number to read
    try:
        yield watch
    finally:
        watch.is_over = True
        sys.unraisablehook = unraisable
        for number in numbers:
            signal.signal(number, before[number] or signal.SIG_DFL)
        signal.set_wakeup_fd(wakeup)
        os.close(writer)
        thread.join()
        os.close(reader)


@contextlib.contextmanager
def ending(advice: str) -> Iterator[None]:
    """Ends the block at SIGTERM or SIGINT with one line and the signal's status.

    What the block has opened is closed as after an error. A second signal ends the
    process at once.

    Args:
        advice: the line's end: what is left to do.

    Raises:
        Interrupted: a signal came, whatever else the block has made of that.
    """
    with watched(lambda _: None, raises=True) as watch:
        try:
            yield
        except BaseException as error:  # within an import, libraries raise their own
            watch.is_over = True
            is_done = isinstance(error, SystemExit) and not error.code
            if watch.number is None or is_done:
                raise
            name = signal.Signals(watch.number).name
            sys.stderr.write(f"stopped by {name}; {advice}\n")
            interrupted = Interrupted(128 + watch.number)
        else:
            return
    for number in _SIGNALS:  # Python's own end must not answer another one
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    raise interrupted


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Holds signals back while the block runs; processes it starts never see them.

    For moves of several files, and for starting and ending workers: else each of these
    would print a traceback of its own before the parent ends the run.
    """
    came: list[signal.Signals] = []
    # Signals reach the main thread alone, but the mask does not keep them away:
    # another thread may take them for it.
    is_main = threading.current_thread() is threading.main_thread()
    before = {}
    if is_main:
        for number in _SIGNALS:
            before[number] = signal.getsignal(number)
            if before[number] is not signal.SIG_IGN:
                signal.signal(
                    number, lambda number, _: came.append(signal.Signals(number))
                )
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
        for first in came[:1]:
            if callable(handler := before[first]):
                handler(first, None)
            else:
                signal.raise_signal(first)


def _listen(reader: int, numbers: list[int], watch: Watch, log) -> None:
    first, sent = 0.0, 0
    poll = select.poll()
    poll.register(reader)
    while True:
        wait = 1000 * _SECONDS_TO_ARRIVE if first else None
        if not poll.poll(wait):
            if watch.has_lost() and watch.number and not sent:
                sent = watch.number
                signal.pthread_kill(threading.main_thread().ident or 0, sent)
            continue
        received = os.read(reader, 1)
        if not received:
            return
        number = received[0]
        if number == sent:
            sent = 0
            continue
        if number not in numbers:
            continue
        if not first:
            first, watch.number = time.monotonic(), watch.number or number
            with contextlib.suppress(Exception):  # else no second signal would be read
                log(
                    f"{signal.Signals(number).name}: stopping after this step; another "
                    f"signal ends the run at once"
                )
        elif time.monotonic() - first > _SECONDS_OF_ONE:
            os._exit(128 + number)
