"""Makes record files, in steps: plan -> make shards -> merge -> describe.

Each shard has a part of the records, and all shards are merged into the output files.
A shard in this sense is temporary, and not an output file such as name-00000-of-00016.
Local processes or Apache Beam make and merge the shards. The shards are in the folder
`<output>.work` until the run is complete. For each complete shard and output file, that
folder gets a JSON file. A later run that finds the JSON file does not make the shard or
output file again.
"""

import contextlib
import dataclasses
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tqdm import tqdm

from albert_tf.corpus import documents, files, manifest, shards, workers
from albert_tf.corpus.config import CorpusSettings, Subset
from albert_tf.data import cores
from albert_tf.data.files import lock_folder
from albert_tf.errors import InputError

# The time between two lines of progress in a log that is not a terminal.
_SECONDS_BETWEEN_LINES = 5.0


def generate(config: CorpusSettings, log: IO[str] = sys.stderr) -> str:
    """Makes the record files of the settings.

    The same settings and input give the same bytes for any number of workers, with and
    without Beam, and after any number of interruptions.

    Args:
        config: the run's settings.
        log: a text file that gets progress and warnings.

    Returns:
        The path of the JSON description of the training files.

    Raises:
        InputError: the input, the vocabulary or the output cannot be used, or the
            output has records of other settings.
    """
    sizes = documents.find_files(config.input_file)
    tokenizer = shards.load_tokenizer(config)
    # If the user does not give these two settings, the vocabulary decides them.
    config = dataclasses.replace(
        config,
        do_lower_case=tokenizer.do_lower_case,
        keep_accents=tokenizer.keep_accents,
    )
    identity = manifest.identify(config, tokenizer, sizes)
    description_path = config.description_path("train")
    work = f"{config.base_path('train')}.work"
    if manifest.is_complete(config, identity, log):
        log.write(f"{description_path}: nothing to do, its files are complete\n")
    else:
        files.check_outputs(config.outputs, sizes)
        plans = shards.make_plans(sizes, config)
        num_workers = min(config.num_workers or cores.available(), len(plans))
        pool = workers.pool(num_workers, config.runner, config.runner_options)
        is_remote = files.is_remote(work)  # remote folders cannot be locked
        lock = contextlib.nullcontext() if is_remote else lock_folder(Path(work))
        with lock, pool as map_jobs:
            files.remove_unfinished(config.outputs)  # temporary files of killed runs
            _prepare_folder(work, identity, log)
            _make_files(config, identity, plans, work, log, map_jobs)
    files.remove_folder(work)
    # Records may be moved to other machines, and training on them needs the vocabulary.
    manifest.copy_vocabulary(description_path, tokenizer.path)
    return description_path


def _prepare_folder(work: str, identity: Mapping[str, Any], log: IO[str]) -> None:
    """Deletes unfinished files of an earlier run with other settings or input.

    Args:
        work: the folder of unfinished files.
        identity: the result of `manifest.identify` for this run.
        log: gets a line if files are deleted.
    """
    settings_path = f"{work}/settings.json"
    earlier_identity = files.read_json(settings_path)
    if earlier_identity == identity:
        return
    if earlier_identity:
        log.write(f"{work}: settings or text have changed; starting over\n")
    # The settings go first: a run that is killed in this line leaves files without
    # settings, and the next run deletes them.
    files.remove([settings_path, *files.glob(f"{work}/*")])
    files.write_json(settings_path, identity)


def _make_files(
    config: CorpusSettings,
    identity: Mapping[str, Any],
    plans: Sequence[shards.ShardPlan],
    work: str,
    log: IO[str],
    map_jobs: workers.MapJobs,
) -> None:
    """Makes and merges the shards, and describes the files.

    Args:
        config: the run's settings.
        identity: the result of `manifest.identify`.
        plans: the plans of all shards.
        work: the folder of unfinished files.
        log: gets progress and warnings.
        map_jobs: does jobs; the function that `workers.pool` yields.
    """
    jobs = [(f"{work}/{p.subset}-{p.number:05}.json", config, p) for p in plans]
    results = _run_jobs("shards", shards.make_shard, jobs, work, log, map_jobs)
    counts: dict[Subset, Counter] = {subset: Counter() for subset in config.subsets}
    # `blocks` and `num_records` have the key (subset, n) for output file n of a subset.
    blocks = defaultdict[Any, list[tuple[str, shards.RecordBlock]]](list)
    num_records: Counter = Counter()
    for (path, _, plan), result in zip(jobs, results, strict=True):
        counts[plan.subset].update(result["counts"])
        shard_path = shards.record_file(path)
        # The JSON file has each `RecordBlock` as a list.
        for block in map(shards.RecordBlock._make, result["blocks"]):
            blocks[plan.subset, block.file].append((shard_path, block))
            num_records[plan.subset, block.file] += block.records
    for warning in manifest.check_input(counts, config):
        log.write(f"warning: {warning}\n")
    subsets = [subset for subset in config.subsets if counts[subset]["instances"]]
    # An old description would be wrong as soon as `merge` replaces the first file.
    files.remove(config.description_path(subset) for subset in config.subsets)
    merges = [
        (f"{work}/merge-{subset}-{n:05}.json", config, subset, n, blocks[subset, n])
        for subset in subsets
        for n in range(len(config.record_files(subset)))
    ]
    _run_jobs("files", shards.merge, merges, work, log, map_jobs)
    # The description of the training files comes last: `manifest.is_complete` accepts a
    # run only if all its descriptions exist.
    for subset in subsets[::-1]:
        description = manifest.build(identity, config, subset, counts, num_records)
        files.write_json(config.description_path(subset), description)
        log.write(manifest.summarize(description))


def _run_jobs(
    name: str,
    function: Callable[..., None],
    jobs: Sequence[tuple[Any, ...]],
    work: str,
    log: IO[str],
    map_jobs: workers.MapJobs,
) -> list[dict[str, Any]]:
    """Runs the jobs that have no result yet, and returns the results of all jobs.

    Args:
        name: a plural noun for the results, for messages.
        function: the function that does one job.
        jobs: the arguments of `function` for each job. The first argument is the path
            of the job's result, a JSON file.
        work: the folder of unfinished files.
        log: gets progress.
        map_jobs: does jobs; the function that `workers.pool` yields.

    Raises:
        InputError: a job raised an InputError.
    """
    paths = [job[0] for job in jobs]
    complete_paths = files.glob(f"{work}/*.json").keys() & set(paths)
    if complete_paths:
        log.write(f"{name}: {len(complete_paths)} of {len(paths)} resumed\n")
    with tqdm(
        total=len(paths),
        initial=len(complete_paths),
        desc=name,
        file=log,
        mininterval=0.2 if log.isatty() else _SECONDS_BETWEEN_LINES,
    ) as bar:
        for _ in map_jobs(function, [j for j in jobs if j[0] not in complete_paths]):
            bar.update()
    results = [files.read_json(path) or {} for path in paths]
    for path, result in zip(paths, results, strict=True):
        if "error" in result:
            files.remove([path])
            raise InputError(result["error"])
    return results
