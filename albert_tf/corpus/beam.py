"""Runs a function on Apache Beam, for clusters.

The vocabulary must be at the same local path on every worker; the input and the output
may be remote (gs://, s3://, hdfs://).
"""

from collections.abc import Callable, Sequence
from typing import Any

from albert_tf import errors
from albert_tf.corpus import files
from albert_tf.corpus.config import CorpusSettings
from albert_tf.errors import InputError

# Beam does not know this runner by its short name.
_RUNNERS = {"DaskRunner": "apache_beam.runners.dask.dask_runner.DaskRunner"}


def run(
    config: CorpusSettings,
    function: Callable[..., Any],
    jobs: Sequence[tuple[Any, ...]],
) -> Sequence[Any]:
    """Calls a function for every job, on any worker and perhaps more than once.

    Args:
        config: the runner and its options.
        function: a function that is defined at the top of a module.
        jobs: the arguments of each call; its first argument is the path of the JSON
            file for the result. After an InputError, the result is {"error": message},
            because runners wrap exceptions differently.

    Returns:
        The jobs, one item per finished call, after the end of all calls.

    Raises:
        InputError: Apache Beam or the runner is not installed.
    """
    files.beam_file_systems()
    import apache_beam
    from apache_beam.options.pipeline_options import PipelineOptions

    runner = _RUNNERS.get(str(config.runner), config.runner)
    options = [f"--runner={runner}", *config.runner_options]
    partition_flags = ("--dask_npartitions", "--dask_partition_size")
    has_partition_flag = any(option.startswith(partition_flags) for option in options)
    if config.runner == "DaskRunner" and not has_partition_flag:
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
    try:
        function(*job)
    except InputError as error:
        files.write_json(job[0], {"error": str(error)})
