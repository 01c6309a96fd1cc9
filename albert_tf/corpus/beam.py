"""Runs the generator on Apache Beam, for clusters: the same records, byte for byte.

The steps are those of `local`, with the same functions on the same units of work; what
there is a file of the work folder is an element of a collection here. Beam restarts
what fails, so nothing is kept between runs. The vocabulary must be at the same local
path on every worker; the input and the output may be remote (gs://, s3://, hdfs://).
"""

import contextlib
import json
import os
import re
import shutil
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple

from albert_tf.corpus import (
    examples,
    files,
    local,
    manifest,
    plan,
    store,
    text,
)
from albert_tf.corpus.config import CorpusSettings, Subset
from albert_tf.data import records
from albert_tf.data.files import atomic
from albert_tf.errors import InputError

_FAILURE = re.compile(r"(?:Input|Text)Error: (.*?)(?: \[while running|\n|$)")
_GROUP, _NOTE, _COUNTS, _FILE = "group", "note", "counts", "file"

GroupKey = tuple[int, int]


class Part(NamedTuple):
    """What one unit made for one file.

    Attributes:
        unit: number of the unit.
        path: a temporary file of finished records.
    """

    unit: int
    path: str


def generate(config: CorpusSettings, log: IO[str]) -> str:
    """Makes the record files that the settings ask for; see `local.generate`.

    Raises:
        InputError: the input, the vocabulary or the output cannot be used, or Apache
            Beam is not installed.
    """
    files.beam_file_systems()
    sizes = text.find_files(config.input_file)
    config = config.cleaning_as(local.tokenizer(config))
    description = manifest.path_for(config.base_of("train"))
    identity = manifest.identity(config, local.vocabulary(config), sizes)
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
            _build(pipeline, config, sizes, identity, run)
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
    counts = {name: n for name, n in numbers.items() if isinstance(n, int)}
    read = Counter(counts)
    read["train_documents"] = numbers["documents"]
    read["train_tokens"] = numbers["tokens"]
    read["train_unknown_tokens"] = numbers["unknown_tokens"]
    read["eval_documents"] = numbers["held_out_documents"]
    for warning in plan.check_input(read, config):
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
    pipeline: Any,
    config: CorpusSettings,
    sizes: dict[str, int],
    identity: dict[str, Any],
    run: str,
) -> None:
    import apache_beam as beam

    splits = list(enumerate(text.plan(sizes)))
    read = (
        pipeline
        | "Splits" >> beam.Create(splits)
        | "Spread" >> beam.Reshuffle()
        | "Tokenize" >> beam.FlatMap(_tokenize, config).with_outputs(_NOTE, _GROUP)
    )
    notes = beam.pvalue.AsList(read[_NOTE])
    # One element whose only use is to run a function once, after its side inputs.
    once = pipeline | "Once" >> beam.Create([None])
    uses = once | "Plan" >> beam.FlatMap(_assign, config, sizes, notes)
    made = (
        {"packed": read[_GROUP], "uses": uses}
        | "Join groups and uses" >> beam.CoGroupByKey()
        | "Deal out" >> beam.FlatMap(_deal_out)
        | "Units" >> beam.GroupByKey()
        | "Make" >> beam.FlatMap(_make, config, run).with_outputs(_COUNTS, _FILE)
    )
    joined = (
        made[_FILE]
        | "Files" >> beam.GroupByKey()
        | "Join parts" >> beam.Map(_join, config, run)
    )
    counts = beam.pvalue.AsList(made[_COUNTS])
    joined_sizes = beam.pvalue.AsList(joined)
    _ = once | "Describe" >> beam.Map(
        _describe, config, identity, run, sizes, notes, counts, joined_sizes
    )


def _tokenize(
    numbered: tuple[int, text.Split], config: CorpusSettings
) -> Iterator[Any]:
    """Yields a split's groups by key, then a note: its index and its counters."""
    from apache_beam.pvalue import TaggedOutput

    number, split = numbered
    counts: Counter = Counter()
    groups = []
    made = store.groups(split, number, config, local.tokenizer(config), counts)
    for place, (subset, padded_tokens, packed) in enumerate(made):
        groups.append(plan.Group(subset, number, place, len(packed), padded_tokens))
        yield TaggedOutput(_GROUP, ((number, place), packed))
    yield TaggedOutput(_NOTE, (groups, counts))


def _read_counts(sizes: dict[str, int], notes: Iterable[Any]) -> Counter:
    read = Counter(empty_files=list(sizes.values()).count(0))
    for _, counts in notes:
        read.update(counts)
    return read


def _plans(config: CorpusSettings, notes: Iterable[Any]) -> list[plan.Plan]:
    return plan.make((group for groups, _ in notes for group in groups), config)


def _assign(
    _nothing: None, config: CorpusSettings, sizes: dict[str, int], notes: Sequence[Any]
) -> Iterator[tuple[GroupKey, tuple[plan.Unit, int, int]]]:
    """Yields, for every use of a group, the unit, the place in it, the group's number.

    The unit comes without its list of groups, which would be repeated in each element.
    """
    plan.check_input(_read_counts(sizes, notes), config)
    for subset_plan in _plans(config, notes):
        for unit in subset_plan.units():
            bare = unit._replace(groups=[])
            for place, (number, group) in enumerate(unit.groups):
                yield (group.split, group.offset), (bare, place, number)


def _deal_out(
    keyed: tuple[GroupKey, dict[str, Iterable[Any]]],
) -> Iterator[tuple[tuple[str, int], Any]]:
    _, found = keyed
    [packed] = found["packed"]
    for unit, place, number in found["uses"]:
        yield (unit.subset, unit.number), (place, unit, number, packed)


def _make(
    keyed: tuple[tuple[Subset, int], Iterable[Any]], config: CorpusSettings, run: str
) -> Iterator[Any]:
    """Makes one unit's part of each of its files, then yields its counters."""
    from apache_beam.pvalue import TaggedOutput

    _, uses = keyed
    ordered = sorted(uses, key=lambda use: use[0])
    unit = ordered[0][1]
    counts: Counter = Counter()
    batches = examples.make(
        ((number, packed) for _, _, number, packed in ordered),
        config,
        local.vocabulary(config),
        unit.seed,
        counts,
    )
    targets = config.files_of(unit.subset)
    # A unit that Beam tries again must not write over what the first try wrote.
    paths = [_temporary(targets[file], run) for file in unit.files]
    handles = [_create(path) for path in paths]
    writers = [records.Writer(handle, config.compress) for handle in handles]
    records.deal_out(batches, writers)
    for handle, writer in zip(handles, writers, strict=True):
        writer.finish()
        handle.close()
    for file, path, writer in zip(unit.files, paths, writers, strict=True):
        counts[f"records/{file}"] = writer.records
        yield TaggedOutput(_FILE, ((unit.subset, file), Part(unit.number, path)))
    yield TaggedOutput(_COUNTS, (unit.subset, counts))


def _join(
    keyed: tuple[tuple[Subset, int], Iterable[Part]], config: CorpusSettings, run: str
) -> tuple[tuple[Subset, int], int]:
    """Joins the parts of a file in order, and returns its size in bytes.

    The parts stay: Beam may call this again, and the result is the same each time.
    """
    (subset, number), parts = keyed
    target = config.files_of(subset)[number]
    with _replaced(target, run) as joined:
        for part in sorted(parts):
            with files.open_binary(part.path) as file:
                shutil.copyfileobj(file, joined, 1 << 20)
    size = files.size_of(target)
    if size is None:
        raise InputError(f"{target}: has gone since it was written")
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
            left = [found.path for found in match.metadata_list]
            if left:
                systems.delete(left)
        except Exception as error:  # Each file system raises its own.
            log.write(f"warning: {pattern}: cannot be removed: {error}\n")


def _describe(
    _nothing: None,
    config: CorpusSettings,
    identity: dict[str, Any],
    run: str,
    sizes: dict[str, int],
    notes: Sequence[Any],
    made: Sequence[tuple[Subset, Counter]],
    joined: Sequence[tuple[tuple[Subset, int], int]],
) -> None:
    """Writes the descriptions, once all files are there."""
    bytes_of = dict(joined)
    for subset_plan in _plans(config, notes):
        subset = subset_plan.subset
        counts = _read_counts(sizes, notes)
        for _, unit_counts in filter(lambda pair: pair[0] == subset, made):
            counts.update(unit_counts)
        file_sizes = [bytes_of[subset, n] for n in range(subset_plan.files)]
        content = manifest.describe(identity, config, subset, file_sizes, counts)
        path = manifest.path_for(config.base_of(subset))
        with _replaced(path, run) as file:
            file.write(manifest.to_bytes(content))


def _create(path: str) -> IO[bytes]:
    systems = files.beam_file_systems()
    folder = os.path.dirname(path)
    if folder and not files.is_remote(path):
        os.makedirs(folder, exist_ok=True)
    return systems.create(path, compression_type="uncompressed")
