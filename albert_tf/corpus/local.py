"""Runs the generator on one machine, in worker processes; a killed run is resumed.

Units make parts of the records, and the parts are joined into the output files. All
that is unfinished lies in a folder beside the output, `<output>.work`: each file in it
appears when it is complete, and once it is on the disk a JSON file of its results, that
a rerun looks for.
"""

import concurrent.futures
import contextlib
import functools
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from tqdm import tqdm

from albert_tf import errors
from albert_tf.corpus import documents, files, manifest, units, vocabulary
from albert_tf.corpus.config import CorpusSettings, Subset
from albert_tf.corpus.workers import Workers
from albert_tf.data import records
from albert_tf.data.files import LOCK, atomic, flush, locked
from albert_tf.errors import InputError
from albert_tf.text import tokenization

_SETTINGS = "settings.json"
_PART = ".part"
_SECONDS_BETWEEN_LINES = 5.0

Result = dict[str, Any]


def generate(config: CorpusSettings, log: IO[str]) -> str:
    """Makes the record files that the settings ask for; see `corpus.generate`."""
    sizes = documents.find_files(config.input_file)
    config = config.cleaning_as(tokenizer(config))
    identity = manifest.identity(config, tokenizer(config), sizes)
    description = manifest.path_for(config.base_of("train"))
    work = Path(f"{config.base_of('train')}.work")
    if manifest.is_finished(config, identity, log):
        log.write(f"{description}: nothing to do, its files are complete\n")
    else:
        # A unit is done before another process has started.
        useful = 1 + sum(sizes.values()) * config.dupe_factor // units.UNIT_BYTES
        workers = Workers(min(config.workers, useful))
        with _claimed(work, config, identity, log):
            try:
                with workers:
                    _Run(config, identity, work, workers, log).run()
            except documents.TextError:
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


def warn_of_marks(config: CorpusSettings, log: IO[str]) -> None:
    """Warns where the vocabulary's clean-up loses letters of the text."""
    lines = vocabulary.read_lines(config.input_file, config.decode_errors)
    cleaning = tokenizer(config).clean, tokenizer(config).do_lower_case
    warning = vocabulary.lost_marks(lines, *cleaning)
    if warning:
        log.write(f"warning: {warning}\n")


def make_part(
    path: Path, config: CorpusSettings, unit: units.Unit
) -> tuple[Path, Result]:
    """Makes the records of one unit; a job for a worker."""
    # Flushed by `_finish`, while the next unit is made.
    with atomic(str(path.with_suffix(_PART)), flushes=False) as file:
        counts, blocks = units.make(unit, config, tokenizer(config), file)
    return path, {"counts": counts, "blocks": blocks}


def join_file(
    path: Path,
    config: CorpusSettings,
    subset: Subset,
    number: int,
    blocks: Sequence[units.Source],
) -> tuple[Path, Result]:
    """Makes an output file of its blocks; a job for a worker."""
    target = config.files_of(subset)[number]
    with records.create(target, config.compress) as writer:
        for window in units.joined(blocks, config, subset, number):
            writer.write_framed(window)
    return path, {}


def _finish(path: Path, result: Result) -> None:
    """Writes the result of a job, which is finished then, once its part is on disk."""
    part = path.with_suffix(_PART)
    if part.exists():
        try:
            with errors.writing(part):
                flush(part)
        except InputError:
            part.unlink()  # what is full may have room then
            raise
    manifest.write(str(path), result)


@contextlib.contextmanager
def _claimed(
    work: Path, config: CorpusSettings, identity: dict[str, Any], log: IO[str]
) -> Iterator[None]:
    """Makes the folder of unfinished files, or takes over what a killed run left."""
    files.check_outputs(config.targets, identity["input"])
    with locked(work):
        settings = str(work / _SETTINGS)
        earlier = manifest.read(settings)
        if earlier:
            manifest.check_same(str(work), earlier, identity)
            reason = _outdated(work, config, earlier, identity)
            if reason:
                log.write(f"{work}: {reason}, so all is made anew\n")
                earlier = None
        if not earlier:
            _clear(work)
            manifest.write(settings, identity)
        yield


def _outdated(
    work: Path,
    config: CorpusSettings,
    earlier: dict[str, Any],
    identity: dict[str, Any],
) -> str | None:
    """Returns why what an earlier run has made cannot be used, if so."""
    if earlier["format"] != identity["format"]:
        return "it is from another version"
    if earlier["input"] == identity["input"]:
        if earlier["modified"] == identity["modified"]:
            return None
        for unit in units.plan(identity["input"], config):
            result = manifest.read(str(_result_of(work, unit)))
            if result and not units.has_read(result["counts"], unit):
                break
        else:
            return None
    return "the text has changed since"


def _result_of(work: Path, unit: units.Unit) -> Path:
    return work / f"{unit.subset}-{unit.number:05}.json"


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
        identity: what `manifest.identity` returned.
        work: the folder of unfinished files.
        workers: the pool.
        log: where progress and warnings go.
    """

    def __init__(
        self,
        config: CorpusSettings,
        identity: dict[str, Any],
        work: Path,
        workers: Workers,
        log: IO[str],
    ):
        self.config = config
        self.identity = identity
        self.work = work
        self.workers = workers
        self.log = log

    def run(self) -> None:
        """Does all steps, or those that an earlier run has left to do."""
        warn_of_marks(self.config, self.log)
        parts = self._parts()
        read = manifest.total(parts, self.identity["input"])
        for warning in manifest.check_input(read, self.config):
            self.log.write(f"warning: {warning}\n")
        with_records = manifest.with_records(parts, self.config)
        self._join(parts, with_records)
        # The training files come last: with their description all is done.
        for subset in with_records[::-1]:
            targets = map(os.path.getsize, self.config.files_of(subset))
            content = manifest.describe(
                self.identity, self.config, subset, parts, list(targets)
            )
            manifest.write(manifest.path_for(self.config.base_of(subset)), content)
            self.log.write(manifest.summary(content))

    def _parts(self) -> list[units.Part]:
        todo = units.plan(self.identity["input"], self.config)
        paths = [_result_of(self.work, unit) for unit in todo]
        jobs = [(self.config, unit) for unit in todo]
        results = self._each("units", make_part, paths, jobs)
        return [
            units.Part(
                unit.subset,
                unit.number,
                str(path.with_suffix(_PART)),
                result["counts"],
                np.array(result["blocks"], np.int64),
            )
            for unit, path, result in zip(todo, paths, results, strict=True)
        ]

    def _join(self, parts: Sequence[units.Part], subsets: Sequence[Subset]) -> None:
        """Makes the output files."""
        # A description that is there is of other records, of text that has changed.
        for subset in self.config.subsets:
            Path(manifest.path_for(self.config.base_of(subset))).unlink(missing_ok=True)
        targets = [
            (subset, number)
            for subset in subsets
            for number in range(len(self.config.files_of(subset)))
        ]
        paths = [self.work / f"join-{subset}-{n:05}.json" for subset, n in targets]
        jobs = (
            (self.config, *target, units.sources(parts, *target)) for target in targets
        )
        self._each("files", join_file, paths, jobs)

    def _each(
        self,
        name: str,
        function: Callable[..., tuple[Path, Result]],
        paths: Sequence[Path],
        jobs: Iterable[tuple[Any, ...]],
    ) -> list[Result]:
        """Does the jobs that have no result yet.

        Args:
            name: what the jobs make.
            function: does one; it takes the path of the result, and returns both.
            paths: of the result of each job.
            jobs: the other arguments of `function`, for each job.

        Returns:
            The results, in the order of the jobs.
        """
        finished = {path for path in paths if path.exists()}
        missing = (
            (path, *job)
            for path, job in zip(paths, jobs, strict=True)
            if path not in finished
        )
        if finished:
            self.log.write(f"{name}: {len(finished)} of {len(paths)} resumed\n")
        bar = tqdm(
            total=len(paths),
            initial=len(finished),
            desc=name,
            file=self.log,
            mininterval=0.2 if self.log.isatty() else _SECONDS_BETWEEN_LINES,
        )
        with bar, concurrent.futures.ThreadPoolExecutor(1) as flusher:
            before = None
            for path, result in self.workers.each(function, missing):
                if before:
                    before.result()  # raises what its flush did
                before = flusher.submit(_finish, path, result)
                bar.update()
            if before:
                before.result()
        return [json.loads(path.read_bytes()) for path in paths]
