"""Lets a signal end a run between two steps."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import NoReturn

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(SystemExit):
    """A run has stopped as a signal asked; uncaught, it ends with the signal's status.

    Args:
        number: the signal's.
    """

    def __init__(self, number: int):
        super().__init__(128 + number)
        self.signal = signal.Signals(number)


class StopFlag:
    """Shows whether a signal has asked to stop.

    Attributes:
        signum: the number of the signal, if one came.
    """

    signum: int | None = None

    def stop(self) -> NoReturn:
        """Raises Stopped; for SIGTERM if it was another worker that got a signal."""
        raise Stopped(self.signum or signal.SIGTERM)


@contextlib.contextmanager
def catch_signals() -> Iterator[StopFlag]:
    """Catches SIGTERM and SIGINT while the block runs; a second one ends the process.

    A signal that is ignored stays ignored, as in the background of a shell. Only the
    main thread can catch signals; in others the flag is never set.
    """
    flag = StopFlag()
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    if threading.current_thread() is not threading.main_thread():
        before.clear()

    def note(number: int, _: object) -> None:
        flag.signum = number
        for each in before:
            signal.signal(each, signal.SIG_DFL)

    before = {n: handler for n, handler in before.items() if handler != signal.SIG_IGN}
    for number in before:
        signal.signal(number, note)
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
