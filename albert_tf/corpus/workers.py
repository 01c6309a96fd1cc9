"""Runs functions in worker processes."""

import concurrent.futures
import contextlib
import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from albert_tf.errors import InputError


class Workers:
    """A pool of processes; with one worker everything runs in the caller's own.

    Use it as a context manager. An error ends the processes at once, whatever they do.

    Args:
        count: number of processes.
    """

    def __init__(self, count: int):
        self.count = count
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None

    def __enter__(self) -> "Workers":
        if self.count > 1:
            # Forked copies of a process that runs TensorFlow can hang.
            context = multiprocessing.get_context("spawn")
            other_end, self._lifeline = context.Pipe(duplex=False)
            self._pool = concurrent.futures.ProcessPoolExecutor(
                self.count,
                mp_context=context,
                initializer=_live_on,
                initargs=(other_end,),
            )
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if self._pool:
            # A second Ctrl-C would leave the pool half shut, and the process hangs.
            with _without_interrupts():
                if error:
                    self._lifeline.close()
                self._pool.shutdown(cancel_futures=True)

    def each(
        self, function: Callable[..., Any], jobs: Iterable[tuple[Any, ...]]
    ) -> Iterator[Any]:
        """Calls a function for every job.

        Args:
            function: defined at the top of a module.
            jobs: its arguments for each call; drawn as workers become free.

        Yields:
            The results, in the order in which they become ready.

        Raises:
            InputError: a worker was killed, or `function` raised it.
        """
        if self._pool is None:
            yield from itertools.starmap(function, jobs)
            return
        jobs = iter(jobs)
        running: set[concurrent.futures.Future] = set()
        try:
            while True:
                for job in itertools.islice(jobs, 2 * self.count - len(running)):
                    with _without_interrupts():
                        running.add(self._pool.submit(function, *job))
                if not running:
                    return
                done, running = concurrent.futures.wait(
                    running, return_when=concurrent.futures.FIRST_COMPLETED
                )
                for future in done:
                    yield future.result()
        except concurrent.futures.BrokenExecutor as error:
            raise InputError(
                "a worker process was killed, perhaps for want of memory; the same "
                "command resumes from here, with fewer --num_workers if need be"
            ) from error


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Holds Ctrl-C back; processes started meanwhile never see it.

    Else each would print a traceback of its own before the parent ends the run: that it
    was interrupted, or that its parent was while telling it what to do.
    """
    held: list[int] = []
    # Interrupts reach the main thread alone, but the mask does not keep them away:
    # another thread may take the signal for it.
    is_main = threading.current_thread() is threading.main_thread()
    if is_main:
        handler = signal.signal(signal.SIGINT, lambda *_: held.append(1))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if is_main:
            signal.signal(signal.SIGINT, handler)
        if held:
            signal.raise_signal(signal.SIGINT)


def _live_on(lifeline: multiprocessing.connection.Connection) -> None:
    """Ends this worker when the parent closes its end of a pipe, or dies.

    That works even where the parent dies by a signal that none can catch.
    """

    def watch() -> None:
        lifeline.poll(None)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
