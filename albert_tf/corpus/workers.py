"""Runs a function in worker processes."""

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


@contextlib.contextmanager
def pool(count: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """Starts worker processes; an error in the block ends them at once.

    Args:
        count: number of processes; if it is 1, the calling process does the jobs.

    Yields:
        A function `run(function, jobs)`: it calls `function`, which must be defined at
        the top level of a module, with the arguments of each job, and yields the
        results as they become ready.

    Raises:
        InputError: a worker was killed, or a function raised it.
    """
    if count <= 1:
        yield itertools.starmap
        return
    # Forked copies of a process that runs TensorFlow can hang.
    context = multiprocessing.get_context("spawn")
    # The workers' `reader` notices when this process dies or closes `writer`.
    reader, writer = context.Pipe(duplex=False)
    executor = concurrent.futures.ProcessPoolExecutor(
        count, mp_context=context, initializer=_watch_parent, initargs=(reader,)
    )

    def run(
        function: Callable[..., Any], jobs: Iterable[tuple[Any, ...]]
    ) -> Iterator[Any]:
        futures = [executor.submit(function, *job) for job in jobs]
        for future in concurrent.futures.as_completed(futures):
            yield future.result()

    try:
        yield run
    except concurrent.futures.BrokenExecutor as error:
        raise InputError(
            "a worker process was killed, perhaps for lack of memory; the same command "
            "resumes from here, if necessary with fewer --num_workers"
        ) from error
    except BaseException:
        writer.close()
        raise
    finally:
        executor.shutdown(cancel_futures=True)


def _watch_parent(reader: multiprocessing.connection.Connection) -> None:
    """Ends this worker when its parent closes the other end of the pipe, or dies."""

    def watch() -> None:
        reader.poll(timeout=None)  # waits until the pipe is closed
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it
    threading.Thread(target=watch, daemon=True).start()
