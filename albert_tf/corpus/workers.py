"""Runs a function in worker processes, or on Apache Beam for clusters.

On Beam, the vocabulary must be at the same local path on every worker; the input and
the output may be remote (gs://, s3://, hdfs://).
"""

import concurrent.futures
import contextlib
import functools
import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from albert_tf import errors
from albert_tf.corpus import files
from albert_tf.errors import InputError

# The type of the function that `pool` yields.
MapJobs = Callable[..., Iterable[Any]]


@contextlib.contextmanager
def pool(
    count: int, runner: str | None = None, runner_options: Sequence[str] = ()
) -> Iterator[MapJobs]:
    """Starts worker processes, or prepares Beam; an error in the block ends them.

    Args:
        count: number of processes; if it is 1, the calling process does the jobs.
        runner: the Beam runner to use instead of processes.
        runner_options: the options of the Beam runner.

    Yields:
        A function `map_jobs(function, jobs)`, where a job is a tuple of arguments. It
        calls `function` with each job, and yields one item per finished job: in
        processes, the result of the call; on Beam, the job. `function` must be defined
        at the top level of a module, so that workers can import it.

        On Beam, a call may be repeated, and the first argument of a job must be the
        path of the JSON file for its result. If a call raises InputError, `map_jobs`
        does not raise it, since each runner wraps exceptions in its own way. Instead,
        the JSON file contains {"error": message}, and the caller must look for it.

    Raises:
        InputError: a worker was killed, a function raised InputError (except on Beam),
            or Apache Beam or the runner is not installed.
    """
    if runner:
        yield functools.partial(_run_on_beam, runner, runner_options)
        return
    if count <= 1:
        yield itertools.starmap
        return
    # Forked copies of a process that runs TensorFlow can hang.
    context = multiprocessing.get_context("spawn")
    # A worker ends when the pipe is closed. This process closes the pipe when it closes
    # `writer` or dies.
    reader, writer = context.Pipe(duplex=False)
    executor = concurrent.futures.ProcessPoolExecutor(
        count, mp_context=context, initializer=_watch_parent, initargs=(reader,)
    )

    def map_jobs(function: Callable[..., Any], jobs: Iterable[Any]) -> Iterator[Any]:
        futures = [executor.submit(function, *job) for job in jobs]
        for future in concurrent.futures.as_completed(futures):
            yield future.result()

    try:
        yield map_jobs
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
    """Starts a thread that ends this worker when its parent closes the pipe or dies.

    Args:
        reader: the worker's end of the pipe.
    """

    def watch() -> None:
        reader.poll(timeout=None)  # returns when the pipe is closed
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=watch, daemon=True).start()


def _run_on_beam(
    runner: str,
    runner_options: Sequence[str],
    function: Callable[..., Any],
    jobs: Sequence[tuple[Any, ...]],
) -> Sequence[Any]:
    """Calls a function for every job on Beam; `pool` describes the calls as `run`."""
    files.beam_file_systems()
    import apache_beam
    from apache_beam.options.pipeline_options import PipelineOptions

    options = [*runner_options, f"--runner={runner}"]
    if runner == "DaskRunner":
        # Beam does not know this runner by its short name.
        options[-1] = "--runner=apache_beam.runners.dask.dask_runner.DaskRunner"
        if not any("partition" in option for option in runner_options):
            # By default, a partition has 128 jobs, and one worker runs them in turn.
            options.append("--dask_partition_size=1")
    try:
        pipeline = apache_beam.Pipeline(options=PipelineOptions(options))
    except (ImportError, ValueError) as error:
        raise InputError(f"--runner: {errors.summarize(error)}") from error
    with pipeline:
        _ = (
            pipeline
            | apache_beam.Create(jobs)
            | apache_beam.Reshuffle()
            | apache_beam.Map(_call, function)
        )
    return jobs


def _call(job: tuple[Any, ...], function: Callable[..., Any]) -> None:
    """Does a job; if it raises InputError, writes the message to the result's file."""
    try:
        function(*job)
    except InputError as error:
        files.write_json(job[0], {"error": str(error)})
