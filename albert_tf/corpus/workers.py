"""Runs functions in worker processes, and says how far the work is."""

import concurrent.futures
import contextlib
import itertools
import multiprocessing
import multiprocessing.connection
import os
import resource
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

from albert_tf.errors import InputError

_SECONDS_BETWEEN_LINES = 5.0
_KIB = 1024
# A piece of work has read documents or used them: one of the two passes.
_DOCUMENTS = ("train_documents", "eval_documents", "used_documents")
_TOKENS = ("train_tokens", "eval_tokens", "instance_tokens")


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
                "command goes on from here, with fewer --num_workers if need be"
            ) from error


class Progress:
    """Prints documents, tokens, speed, memory and the time left to a stream.

    On a terminal one line is rewritten; elsewhere a line is added every few seconds.

    Args:
        name: what is being done.
        total: size of the whole work, in any unit.
        done: how much of it an earlier run has done.
        stream: where to print.
    """

    def __init__(self, name: str, total: int, done: int, stream: IO[str]):
        self._name = name
        self._total = total
        self._done = self._done_before = done
        self._stream = stream
        self._terminal = stream.isatty()
        self._start = self._last = time.monotonic()
        self._documents = self._tokens = 0
        self._memory: dict[int, int] = {}

    def add(self, work: int, counts: Counter, memory: tuple[int, int]) -> None:
        """Notes a finished piece of work.

        Args:
            work: its size, in the unit of `total`.
            counts: the counters that it raised.
            memory: what `memory` returned where it was done.
        """
        self._done += work
        self._documents += sum(counts[name] for name in _DOCUMENTS)
        self._tokens += sum(counts[name] for name in _TOKENS)
        self._memory |= dict([memory, own_memory()])
        now = time.monotonic()
        if now - self._last >= (0.2 if self._terminal else _SECONDS_BETWEEN_LINES):
            self._last = now
            rate = (self._done - self._done_before) / (now - self._start)
            left = f"{_clock((self._total - self._done) / rate)} left"
            self._print(left, "\r" if self._terminal else "\n")

    def finish(self) -> None:
        """Prints the last line, unless an earlier run had done everything."""
        if self._memory:
            self._print(f"took {_clock(time.monotonic() - self._start)}", "\n")

    def _print(self, clock: str, end: str) -> None:
        seconds = max(time.monotonic() - self._start, 1e-9)
        text = (
            f"{self._documents:,} documents, {self._tokens:,} tokens, "
            f"{self._tokens / seconds:,.0f} tokens/s, "
        )
        line = (
            f"{self._name}: {self._done / self._total:4.0%}, "
            f"{text if self._tokens else ''}"
            f"{sum(self._memory.values()) >> 20:,} MiB, {clock}"
        )
        self._stream.write(f"{line:<78}{end}" if self._terminal else f"{line}{end}")
        self._stream.flush()


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


def own_memory() -> tuple[int, int]:
    """Returns the id of this process and its peak resident memory in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return os.getpid(), peak if sys.platform == "darwin" else peak * _KIB


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _live_on(lifeline: multiprocessing.connection.Connection) -> None:
    """Ends this worker when the parent closes its end of a pipe, or dies.

    That works even where the parent dies by a signal that none can catch.
    """

    def watch() -> None:
        lifeline.poll(None)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
