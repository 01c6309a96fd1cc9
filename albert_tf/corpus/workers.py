"""Runs functions in worker processes."""

import concurrent.futures
import fcntl
import itertools
import multiprocessing
import multiprocessing.connection
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tqdm import tqdm

from albert_tf.data.stopping import held
from albert_tf.errors import InputError


class Workers:
    """A pool of processes; with one worker everything runs in the caller's own.

    Use it as a context manager. An error ends the processes at once, whatever they do.

    Args:
        count: number of processes.
        advice: what to do when one is killed.
    """

    def __init__(
        self,
        count: int,
        advice: str = "the same command resumes from here, with fewer --num_workers if "
        "need be",
    ):
        self.count = count
        self._advice = advice
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
            # A signal would leave the pool half shut, and the process hangs.
            with held():
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
                    with held():
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
                f"a worker process was killed, perhaps for want of memory; "
                f"{self._advice}"
            ) from error


def _live_on(lifeline: multiprocessing.connection.Connection) -> None:
    """Ends this worker when the parent closes its end of a pipe, or dies.

    That works even where the parent dies by a signal that none can catch.
    """

    def watch() -> None:
        lifeline.poll(None)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    tqdm.set_lock(threading.RLock())  # its own is a semaphore, which a kill leaves
    # SentencePiece lets no thread of Python run: the system ends the process by itself.
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)
