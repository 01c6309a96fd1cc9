"""Stops a run between two steps when a signal asks for it."""

import contextlib
import os
import signal
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
def watched(log: Callable[[str], None]) -> Iterator[Watch]:
    """Notes SIGTERM and SIGINT while the block runs; a second one ends the process.

    Python calls handlers between its own instructions alone, so not within a step that
    takes minutes: a thread that reads the numbers of signals as they come does the
    work. A signal that is ignored stays so, as behind `nohup`. Only the main thread can
    watch; elsewhere nothing is noted.

    Args:
        log: gets a line when a signal comes.
    """
    watch = Watch()
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
        signal.signal(number, lambda *_: None)  # else there is no number to read
    try:
        yield watch
    finally:
        for number in numbers:
            signal.signal(number, before[number] or signal.SIG_DFL)
        signal.set_wakeup_fd(wakeup)
        os.close(writer)
        thread.join()
        os.close(reader)


def _listen(reader: int, numbers: list[int], watch: Watch, log) -> None:
    first = 0.0
    while received := os.read(reader, 1):
        number = received[0]
        if number not in numbers:
            continue
        if watch.number is None:
            first, watch.number = time.monotonic(), number
            with contextlib.suppress(Exception):  # else no second signal would be read
                log(
                    f"{signal.Signals(number).name}: stopping after this step; another "
                    f"signal ends the run at once"
                )
        elif time.monotonic() - first > _SECONDS_OF_ONE:
            os._exit(128 + number)
