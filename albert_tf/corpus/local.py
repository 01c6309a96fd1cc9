"""Runs the generator on one machine: two passes, resumable, in bounded memory.

Pass 1 tokenizes splits of the text into files of groups. Pass 2 makes the records of
units of work. At last the units' parts are joined into the output files. Everything
unfinished lies in a folder beside the output, `<output>.work`: each file in it appears
when it is complete, with a JSON note that a rerun looks for.
"""

import contextlib
import functools
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from albert_tf.corpus import (
    examples,
    files,
    manifest,
    marks,
    plan,
    store,
    text,
)
from albert_tf.corpus.config import CorpusSettings, Subset
from albert_tf.corpus.workers import Progress, Workers, own_memory
from albert_tf.data import records
from albert_tf.data.files import LOCK, atomic, locked, remove_leftovers
from albert_tf.text import tokenization

_COPY_BYTES = 1 << 20
_SETTINGS = "settings.json"
# Less text than this, times its duplicates, is done before another process has started.
_BYTES_PER_WORKER = 4 << 20

Note = dict[str, Any]
Finished = tuple[Note, tuple[int, int]]


def generate(config: CorpusSettings, log: IO[str]) -> str:
    """Makes the record files that the settings ask for; see `corpus.generate`."""
    sizes = text.find_files(config.input_file)
    config = config.cleaning_as(tokenizer(config))
    identity = manifest.identity(config, vocabulary(config), sizes)
    description = manifest.path_for(config.base_of("train"))
    work = Path(f"{config.base_of('train')}.work")
    if manifest.is_finished(config, identity, log):
        log.write(f"{description}: nothing to do, its files are complete\n")
    else:
        useful = 1 + sum(sizes.values()) * config.dupe_factor // _BYTES_PER_WORKER
        workers = Workers(min(config.workers, useful))
        with _claimed(work, config, identity, log):
            try:
                with workers:
                    _Run(config, sizes, identity, work, workers, log).run()
            except text.TextError:
                # Once the text is mended, or the settings are, nothing here is of use.
                _remove(work)
                raise
    _remove(work)
    return description


@functools.lru_cache(maxsize=1)
def tokenizer(config: CorpusSettings) -> tokenization.Tokenizer:
    """Loads the tokenizer that the settings name, once in each process."""
    return tokenization.load(
        spm_model_file=config.spm_model_file,
        vocab_file=config.vocab_file,
        do_lower_case=config.do_lower_case,
        keep_accents=config.keep_accents,
    )


@functools.lru_cache(maxsize=1)
def vocabulary(config: CorpusSettings) -> examples.Vocabulary:
    """Looks up the vocabulary that the settings name, once in each process."""
    return examples.Vocabulary.of(tokenizer(config), config)


def warn_of_marks(config: CorpusSettings, log: IO[str]) -> None:
    """Warns where the vocabulary's clean-up loses letters of the text."""
    clean = tokenizer(config).clean
    warning = marks.check(
        config.input_file, config.decode_errors, clean, tokenizer(config).do_lower_case
    )
    if warning:
        log.write(f"warning: {warning}\n")


def tokenize_split(
    note: Path, config: CorpusSettings, number: int, split: text.Split
) -> Finished:
    """Tokenizes one split into a file of groups; the first pass's job for a worker."""
    counts: Counter = Counter()
    groups = []
    with atomic(str(_groups_file(note.parent, number))) as file:
        for subset, padded_tokens, packed in store.groups(
            split, number, config, tokenizer(config), counts
        ):
            place = file.tell(), len(packed)
            groups.append(plan.Group(subset, number, *place, padded_tokens))
            file.write(packed)
    return _noted(note, counts, groups=groups)


def make_unit(note: Path, config: CorpusSettings, unit: plan.Unit) -> Finished:
    """Makes one unit's part of each of its files; the second pass's job."""
    counts: Counter = Counter()
    groups = _read_groups(note.parent, unit.groups)
    with contextlib.ExitStack() as stack:
        writers = []
        for file in unit.files:
            path = _part_file(note.parent, unit.subset, unit.number, file)
            writers.append(
                stack.enter_context(records.create(str(path), config.compress))
            )
        batches = examples.make(groups, config, vocabulary(config), unit.seed, counts)
        records.deal_out(batches, writers)
    for file, writer in zip(unit.files, writers, strict=True):
        counts[f"records/{file}"] = writer.records
    return _noted(note, counts)


def join_file(note: Path, target: str, parts: Sequence[Path]) -> Finished:
    """Joins parts into an output file, then removes them to free the disk."""
    remove_leftovers(target)
    with atomic(target) as joined:
        for part in parts:
            with open(part, "rb") as file:
                shutil.copyfileobj(file, joined, _COPY_BYTES)
    finished = _noted(note, Counter())
    for part in parts:
        part.unlink()
    return finished


def _noted(note: Path, counts: Counter, **more: Any) -> Finished:
    content = {"counts": counts, **more}
    manifest.write(str(note), content)
    return content, own_memory()


def _note_file(work: Path, name: str, number: int) -> Path:
    return work / f"{name}-{number:05}.json"


def _groups_file(work: Path, split: int) -> Path:
    return work / f"split-{split:05}.groups"


def _part_file(work: Path, subset: str, unit: int, file: int) -> Path:
    return work / f"{subset}-{unit:05}-{file:05}.part"


def _read_groups(
    work: Path, groups: Sequence[tuple[int, plan.Group]]
) -> Iterator[tuple[int, bytes]]:
    for number, group in groups:
        with open(_groups_file(work, group.split), "rb") as file:
            file.seek(group.offset)
            yield number, file.read(group.size)


@contextlib.contextmanager
def _claimed(
    work: Path, config: CorpusSettings, wanted: Note, log: IO[str]
) -> Iterator[None]:
    """Makes the folder of unfinished files, or takes over what a killed run left."""
    files.check_outputs(config.targets, wanted["input"])
    with locked(work):
        settings = str(work / _SETTINGS)
        noted = manifest.read(settings)
        if noted:
            manifest.check_same(str(work), noted, wanted)
            if not _is_of_the_text(work, noted, wanted):
                log.write(f"{work}: the text has changed since, so all is made anew\n")
                noted = None
        if not noted:
            _clear(work)
            manifest.write(settings, wanted)
        yield


def _is_of_the_text(work: Path, noted: Note, wanted: Note) -> bool:
    """Checks that splits which an earlier run tokenized hold the text of today."""
    if noted["input"] != wanted["input"]:
        return False
    if noted["modified"] == wanted["modified"]:
        return True
    for number, split in enumerate(text.plan(wanted["input"])):
        path = str(_note_file(work, "tokenize", number))
        note = manifest.read(path)
        if not note:
            continue
        digests = text.digests(split)
        if digests.keys() <= note["counts"].keys():
            if not digests.items() <= note["counts"].items():
                return False
        elif any(files.written(p.file) != noted["modified"][p.file] for p in split):
            return False
        else:  # Earlier versions noted no digests, which the description needs.
            manifest.write(path, {**note, "counts": note["counts"] | digests})
    return True


def _clear(work: Path) -> None:
    """Removes what is left of a run that cannot be resumed, but for the lock."""
    for left in work.iterdir():
        if left.is_dir():
            shutil.rmtree(left)
        elif left.name != LOCK:
            left.unlink()


def _remove(work: Path) -> None:
    """Removes the folder of unfinished files; its settings first.

    What a kill leaves of it then belongs to no run, and the next one starts anew.
    """
    with contextlib.suppress(OSError):
        (work / _SETTINGS).unlink()
    shutil.rmtree(work, ignore_errors=True)


class _Run:
    """The steps of one run, and what they share.

    Attributes:
        config: the run's settings.
        sizes: {input file: bytes}.
        identity: what `manifest.identity` returned.
        work: the folder of unfinished files.
        workers: the pool.
        log: where progress and warnings go.
    """

    def __init__(
        self,
        config: CorpusSettings,
        sizes: dict[str, int],
        identity: Note,
        work: Path,
        workers: Workers,
        log: IO[str],
    ):
        self.config = config
        self.sizes = sizes
        self.identity = identity
        self.work = work
        self.workers = workers
        self.log = log

    def run(self) -> None:
        """Does all steps, or those that an earlier run has left to do."""
        read = Counter(empty_files=list(self.sizes.values()).count(0))
        groups = self._tokenize(read)
        for warning in plan.check_input(read, self.config):
            self.log.write(f"warning: {warning}\n")
        warn_of_marks(self.config, self.log)
        # The training files come last: their description says that all is done.
        for subset_plan in plan.make(groups, self.config):
            self._make(subset_plan, read)

    def _tokenize(self, read: Counter) -> list[plan.Group]:
        splits = text.plan(self.sizes)
        jobs = ((self.config, number, split) for number, split in enumerate(splits))
        groups = []
        for note in self._each("tokenize", len(splits), tokenize_split, jobs):
            read.update(note["counts"])
            groups += [plan.Group(*group) for group in note["groups"]]
        return groups

    def _make(self, todo: plan.Plan, read: Counter) -> None:
        """Makes the files of one subset, and their description."""
        made = read.copy()
        jobs = ((self.config, unit) for unit in todo.units())
        for note in self._each(todo.subset, todo.unit_count, make_unit, jobs):
            made.update(note["counts"])
        if not made["instances"]:
            raise text.TextError(
                f"no instance could be made: all {made['dropped_segments']} segments "
                f"are single words; expected sentences"
            )
        targets = self.config.files_of(todo.subset)
        parts = (
            [
                _part_file(self.work, todo.subset, unit, file)
                for unit in todo.units_of(file)
            ]
            for file in range(len(targets))
        )
        joins = zip(targets, parts, strict=True)
        # One that is there describes other records, of text that has changed since.
        stale: set[Subset] = {todo.subset, "train"}
        for subset in stale:
            Path(manifest.path_for(self.config.base_of(subset))).unlink(missing_ok=True)
        for _ in self._each(f"{todo.subset}-join", len(targets), join_file, joins):
            pass
        sizes = [os.path.getsize(target) for target in targets]
        content = manifest.describe(
            self.identity, self.config, todo.subset, sizes, made
        )
        manifest.write(manifest.path_for(self.config.base_of(todo.subset)), content)
        self.log.write(manifest.summary(content))

    def _each(
        self,
        name: str,
        total: int,
        function: Callable[..., Finished],
        jobs: Iterable[tuple[Any, ...]],
    ) -> Iterator[Note]:
        """Does the jobs that have no note yet.

        Args:
            name: what the jobs do; their notes are `<name>-<number>.json`.
            total: number of jobs.
            function: does one; it takes the path of the note that it must write last.
            jobs: the other arguments of `function`, for each job.

        Yields:
            The notes of all jobs, in any order.
        """
        before = len(list(self.work.glob(f"{name}-[0-9]*.json")))
        if before:
            self.log.write(f"{name}: {before} of {total} done by an earlier run\n")
        progress = Progress(name, total, before, self.log)
        found: list[Note] = []

        def missing() -> Iterator[tuple[Any, ...]]:
            for number, job in enumerate(jobs):
                path = _note_file(self.work, name, number)
                note = manifest.read(str(path))
                if note is None:
                    yield path, *job
                else:
                    found.append(note)

        for note, memory in self.workers.each(function, missing()):
            progress.add(1, note["counts"], memory)
            yield note
        progress.finish()
        yield from found
