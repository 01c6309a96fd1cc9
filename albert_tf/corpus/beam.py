"""Runs the generator on Apache Beam, for clusters: the same records, byte for byte.

The units and the functions are those of `local`. Beam restarts what fails, so nothing
is kept between runs. The vocabulary must be at the same local
path on every worker; the input and the output may be remote (gs://, s3://, hdfs://).
"""

import contextlib
import json
import os
import re
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np

from albert_tf.corpus import documents, files, local, manifest, units
from albert_tf.corpus.config import CorpusSettings, Subset
from albert_tf.data import records
from albert_tf.data.files import atomic
from albert_tf.errors import InputError

_FAILURE = re.compile(r"(?:Input|Text)Error: (.*?)(?: \[while running|\n|$)")


def generate(config: CorpusSettings, log: IO[str]) -> str:
    """Makes the record files that the settings ask for; see `local.generate`.

    Raises:
        InputError: the input, the vocabulary or the output cannot be used, or Apache
            Beam is not installed.
    """
    files.beam_file_systems()
    sizes = documents.find_files(config.input_file)
    config = config.cleaning_as(local.tokenizer(config))
    description = manifest.path_for(config.base_of("train"))
    identity = manifest.identity(config, local.tokenizer(config), sizes)
    if manifest.is_finished(config, identity, log):
        log.write(f"{description}: nothing to do, its files are complete\n")
        return description
    files.check_outputs(config.targets, sizes)
    import apache_beam
    from apache_beam.options.pipeline_options import PipelineOptions

    options = PipelineOptions([f"--runner={config.runner}", *config.runner_options])
    run = uuid.uuid4().hex
    try:
        with apache_beam.Pipeline(options=options) as pipeline:
            _build(pipeline, config, identity, run)
    except Exception as error:
        # Runners carry a worker's exception home as text inside one of their own.
        mistake = _FAILURE.search(f"{type(error).__name__}: {error}")
        if mistake:
            raise InputError(mistake[1]) from error
        raise
    finally:
        # Only now: a bundle that Beam tries again needs its parts again.
        _remove_parts(config, run, log)
    _report(config, log)
    return description


def _report(config: CorpusSettings, log: IO[str]) -> None:
    """Prints what a local run prints: warnings, then a line for each subset.

    The pipeline's functions run elsewhere, so the numbers are read from the files.
    """
    train = _description(config, "train")
    numbers = train["statistics"]
    read = Counter({name: n for name, n in numbers.items() if isinstance(n, int)})
    for name in ("documents", "tokens", "unknown_tokens"):
        read[f"train_{name}"] = numbers[name]
    read["eval_documents"] = numbers["held_out_documents"]
    for warning in manifest.check_input(read, config):
        log.write(f"warning: {warning}\n")
    local.warn_of_marks(config, log)
    if numbers["held_out_documents"]:
        log.write(manifest.summary(_description(config, "eval")))
    log.write(manifest.summary(train))


def _description(config: CorpusSettings, subset: Subset) -> dict[str, Any]:
    path = manifest.path_for(config.base_of(subset))
    with files.open_binary(path) as file:
        return json.loads(file.read())


def _build(
    pipeline: Any, config: CorpusSettings, identity: dict[str, Any], run: str
) -> None:
    import apache_beam as beam

    parts = beam.pvalue.AsList(
        pipeline
        | "Units" >> beam.Create(units.plan(identity["input"], config))
        | "Spread units" >> beam.Reshuffle()
        | "Make parts" >> beam.Map(_make, config, run)
    )
    # One element whose only use is to run a function once, after its side inputs.
    once = pipeline | "Once" >> beam.Create([None])
    sizes = beam.pvalue.AsList(
        once
        | "Files" >> beam.FlatMap(_targets, config, identity, parts)
        | "Spread files" >> beam.Reshuffle()
        | "Join parts" >> beam.Map(_join, config, run)
    )
    _ = once | "Describe" >> beam.Map(_describe, config, identity, run, parts, sizes)


def _make(unit: units.Unit, config: CorpusSettings, run: str) -> units.Part:
    """Makes one unit's records, in a file of this call's own: Beam may call again."""
    path = _temporary(config.files_of(unit.subset)[0], run)
    with _create(path) as file:
        counts, blocks = units.make(unit, config, local.tokenizer(config), file)
    return units.Part(
        unit.subset, unit.number, path, counts, np.array(blocks, np.int64)
    )


def _in_order(parts: Sequence[units.Part]) -> list[units.Part]:
    """Sorts parts, which come in any order, by their units."""
    return sorted(parts, key=lambda part: part.number)


def _targets(
    _nothing: None,
    config: CorpusSettings,
    identity: dict[str, Any],
    parts: Sequence[units.Part],
) -> Iterator[tuple[Subset, int, list[units.Source]]]:
    """Yields each output file: its subset, its number and its blocks."""
    parts = _in_order(parts)
    manifest.check_input(manifest.total(parts, identity["input"]), config)
    for subset in manifest.with_records(parts, config):
        for number in range(len(config.files_of(subset))):
            yield subset, number, units.sources(parts, subset, number)


def _join(
    target: tuple[Subset, int, list[units.Source]], config: CorpusSettings, run: str
) -> tuple[tuple[Subset, int], int]:
    """Makes an output file, and returns its size in bytes.

    The parts stay: Beam may call this again, and the result is the same each time.
    """
    subset, number, blocks = target
    path = config.files_of(subset)[number]
    with _replaced(path, run) as file:
        writer = records.Writer(file, config.compress)
        for window in units.joined(blocks, config, subset, number):
            writer.write_framed(window)
        writer.finish()
    size = files.size_of(path)
    if size is None:
        raise InputError(f"{path}: has gone since it was written")
    return (subset, number), size


@contextlib.contextmanager
def _replaced(target: str, run: str) -> Iterator[IO[bytes]]:
    """Opens a file that replaces another when it is complete."""
    if not files.is_remote(target):
        with atomic(target) as file:
            yield file
        return
    temporary = _temporary(target, run)
    with _create(temporary) as file:
        yield file
    systems = files.beam_file_systems()
    if systems.exists(target):
        systems.delete([target])
    systems.rename([temporary], [target])


def _temporary(target: str, run: str) -> str:
    return f"{target}.tmp-{run}-{uuid.uuid4().hex}"


def _remove_parts(config: CorpusSettings, run: str, log: IO[str]) -> None:
    """Removes what all tries of this run's steps have left, and nothing else.

    What cannot be removed gets a warning: an error here would hide the run's own.
    """
    systems = files.beam_file_systems()
    subsets: list[Subset] = ["train", "eval"]
    targets = [path for subset in subsets for path in config.files_of(subset)]
    starts = {files.description_of(path).removesuffix(".json") for path in targets}
    for start in sorted(starts):
        pattern = f"{start}*.tmp-{run}-*"  # of all shards, and of the description
        try:
            [match] = systems.match([pattern])
            left = [file.path for file in match.metadata_list]
            if left:
                systems.delete(left)
        except Exception as error:  # Each file system raises its own.
            log.write(f"warning: {pattern}: cannot be removed: {error}\n")


def _describe(
    _nothing: None,
    config: CorpusSettings,
    identity: dict[str, Any],
    run: str,
    parts: Sequence[units.Part],
    sizes: Sequence[tuple[tuple[Subset, int], int]],
) -> None:
    """Writes the descriptions, once all files are there."""
    bytes_of = dict(sizes)
    parts = _in_order(parts)
    for subset in manifest.with_records(parts, config):
        file_sizes = [bytes_of[subset, n] for n in range(len(config.files_of(subset)))]
        content = manifest.describe(identity, config, subset, parts, file_sizes)
        with _replaced(manifest.path_for(config.base_of(subset)), run) as file:
            file.write(manifest.to_bytes(content))


def _create(path: str) -> IO[bytes]:
    systems = files.beam_file_systems()
    folder = os.path.dirname(path)
    if folder and not files.is_remote(path):
        os.makedirs(folder, exist_ok=True)
    return systems.create(path, compression_type="uncompressed")
