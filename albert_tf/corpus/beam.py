"""Runs a function on Apache Beam, for clusters.

The vocabulary must be at the same local path on every worker; the input and the output
may be remote (gs://, s3://, hdfs://).
"""

from collections.abc import Callable, Iterable
from typing import Any

from albert_tf.corpus import files, manifest
from albert_tf.corpus.config import CorpusSettings
from albert_tf.errors import InputError


def run(
    config: CorpusSettings,
    function: Callable[..., Any],
    jobs: Iterable[tuple[Any, ...]],
) -> list[Any]:
    """Calls a function for every job, on any worker and perhaps more than once.

    Args:
        config: the runner and its options.
        function: defined at the top of a module.
        jobs: its arguments for each call; the first is the file of its result, which
            is {"error": ...} after an InputError: runners wrap exceptions as they like.

    Returns:
        The jobs.

    Raises:
        InputError: Apache Beam is not installed.
    """
    files.beam_file_systems()
    import apache_beam
    from apache_beam.options.pipeline_options import PipelineOptions

    jobs = list(jobs)
    options = PipelineOptions([f"--runner={config.runner}", *config.runner_options])
    with apache_beam.Pipeline(options=options) as pipeline:
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
        manifest.write(job[0], {"error": str(error)})
