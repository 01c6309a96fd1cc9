"""Lets a signal (SIGTERM or SIGINT) end a run between two steps.

with catch_signals() as flag:
    for step in steps:
        ...
        if flag.signum:
            flag.stop()
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import NoReturn

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(SystemExit):
    """Ends a run that a signal has asked to stop, with the signal's exit status.

    Args:
        number: the number of the signal.
    """

    def __init__(self, number: int):
        super().__init__(128 + number)
        self.signal = signal.Signals(number)


class StopFlag:
    """Shows whether a signal has asked to stop.

    Attributes:
        signum: the number of the signal; None before a signal arrives.
    """

    signum: int | None = None

    def stop(self) -> NoReturn:
        """Raises Stopped with the signal's number.

        In a run of several processes, all of them stop when one gets a signal. A
        process without a signal of its own raises Stopped with SIGTERM's number.
        """
        raise Stopped(self.signum or signal.SIGTERM)


@contextlib.contextmanager
def catch_signals() -> Iterator[StopFlag]:
    """Catches SIGTERM and SIGINT while the block runs.

    The first signal sets the flag; a second signal ends the process at once. A signal
    that the process ignores, as in the background of a shell, is still ignored. Only
    the main thread can catch signals; in other threads, the flag is never set.
    """
    flag = StopFlag()
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in _SIGNALS if is_main}
    handlers = {n: old for n, old in handlers.items() if old != signal.SIG_IGN}

    def set_flag(number: int, _: object) -> None:
        flag.signum = number
        for each_number in handlers:  # the next signal ends the process
            signal.signal(each_number, signal.SIG_DFL)

    for number in handlers:
        signal.signal(number, set_flag)
    try:
        yield flag
    finally:
        # `getsignal` returns None for a handler that was not installed from Python.
        for number, handler in handlers.items():
            signal.signal(number, handler or signal.SIG_DFL)
