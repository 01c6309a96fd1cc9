"""Ends a command when a signal asks for it; training between two steps."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# `timeout` and batch systems may send one signal twice.
_SECONDS_OF_ONE = 1.0


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
    """

    number: int | None = None

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
        raises: whether the first one raises Interrupted in the block.
    """
    watch = Watch()

    def handle(number: int, _: object) -> None:
        nonlocal raises
        if raises:
            raises, watch.number = False, watch.number or number
            raise Interrupted(128 + number)

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
    wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, handle)  # else there is no number to read
    try:
        yield watch
    finally:
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
    first = 0.0
    while received := os.read(reader, 1):
        number = received[0]
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
