"""Makes record files: plan -> make parts -> merge -> describe.

Units make parts of the records, and the parts are merged into the output files. All
that is unfinished lies in a folder beside the output, `<output>.work`. A part or an
output file is complete once the JSON file of its result is in that folder, and is not
made again. Parts are made and merged by processes of this machine or by Apache Beam.
"""

import contextlib
import dataclasses
import functools
import itertools
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from tqdm import tqdm

from albert_tf.corpus import beam, documents, files, manifest, units, workers
from albert_tf.corpus.config import CorpusSettings, Subset
from albert_tf.data import records
from albert_tf.data.files import locked
from albert_tf.errors import InputError
from albert_tf.text import tokenization

_SECONDS_BETWEEN_LINES = 5.0


def generate(config: CorpusSettings, log: IO[str] = sys.stderr) -> str:
    """Makes the record files that the settings ask for.

    The same settings and input give the same bytes, however many workers there are, on
    Beam or not, and however often the run was killed and started again.

    Args:
        config: the run's settings.
        log: where progress and warnings go.

    Returns:
        The path of the description of the training files, a JSON file beside them.

    Raises:
        InputError: the input, the vocabulary or the output cannot be used, or records
            of other settings are there.
    """
    sizes = documents.find_files(config.input_file)
    config = config.cleaning_as(tokenizer(config))
    identity = manifest.identity(config, tokenizer(config), sizes)
    description = manifest.path_for(config.base_of("train"))
    work = f"{config.base_of('train')}.work"
    if manifest.is_complete(config, identity, log):
        log.write(f"{description}: nothing to do, its files are complete\n")
    else:
        files.check_outputs(config.targets, sizes)
        plan = units.plan(sizes, config)
        runner: Any = workers.pool(min(config.workers, len(plan)))
        if config.runner:
            runner = contextlib.nullcontext(functools.partial(beam.run, config))
        is_remote = files.is_remote(work)
        lock = contextlib.nullcontext() if is_remote else locked(Path(work))
        with lock, runner as run:
            files.remove_unfinished(config.targets)
            _Run(config, identity, work, log, run).make(plan)
    files.remove_folder(work)
    # Records may be moved to other machines, and what is trained on them needs it.
    vocabulary = config.spm_model_file or config.vocab_file
    manifest.copy_vocabulary(description, str(vocabulary))
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


def make_part(path: str, config: CorpusSettings, unit: units.Unit) -> None:
    """Makes the records of one unit; a job for a worker.

    Args:
        path: the file of its result; its records lie beside it.
        config: the run's settings.
        unit: what to read.
    """
    with files.create(_part_of(path)) as file:
        counts, blocks = units.make(unit, config, tokenizer(config), file)
    manifest.write(path, {"counts": counts, "blocks": blocks})


def merge_file(
    path: str,
    config: CorpusSettings,
    subset: Subset,
    number: int,
    blocks: Sequence[units.Source],
) -> None:
    """Makes an output file of its blocks; a job for a worker.

    Args:
        path: the file of its result.
        config: the run's settings.
        subset: "train" or "eval".
        number: that of the output file.
        blocks: what the file is made of.
    """
    with files.create(config.files_of(subset)[number]) as file:
        writer = records.Writer(file, config.compress)
        for window in units.joined(blocks, config, subset, number):
            writer.write_framed(window)
        writer.finish()
    manifest.write(path, {})


def _part_of(result: str) -> str:
    return f"{result.removesuffix('.json')}.part"


@dataclasses.dataclass(frozen=True)
class _Run:
    """The steps of one run, or those that an earlier one has left to do.

    Attributes:
        config: the run's settings.
        identity: what `manifest.identity` returned.
        work: the folder of unfinished files.
        log: where progress and warnings go.
        run: calls a function for every job, in any order.
    """

    config: CorpusSettings
    identity: dict[str, Any]
    work: str
    log: IO[str]
    run: Callable[..., Iterable[Any]]

    def make(self, plan: Sequence[units.Unit]) -> None:
        """Makes and merges the parts, and describes the files."""
        config = self.config
        self._begin()
        paths = [f"{self.work}/{unit.subset}-{unit.number:05}.json" for unit in plan]
        jobs = zip(paths, itertools.repeat(config), plan)
        parts = [
            units.Part(
                unit.subset,
                _part_of(path),
                result["counts"],
                np.array(result["blocks"], np.int64),
            )
            for unit, path, result in zip(
                plan, paths, self._each("units", make_part, paths, jobs), strict=True
            )
        ]
        for warning in manifest.check_input(manifest.total(parts), config):
            self.log.write(f"warning: {warning}\n")
        subsets = manifest.with_records(parts, config)
        # A description that is there is of other records.
        files.remove(manifest.path_for(config.base_of(name)) for name in config.subsets)
        targets = [
            (name, n) for name in subsets for n in range(len(config.files_of(name)))
        ]
        paths = [f"{self.work}/merge-{name}-{n:05}.json" for name, n in targets]
        merges = (
            (path, config, *target, units.sources(parts, *target))
            for path, target in zip(paths, targets, strict=True)
        )
        self._each("files", merge_file, paths, merges)
        # The training files come last: with their description all is done.
        for subset in subsets[::-1]:
            sizes = [files.size_of(path) or 0 for path in config.files_of(subset)]
            content = manifest.describe(self.identity, config, subset, parts, sizes)
            manifest.write(manifest.path_for(config.base_of(subset)), content)
            self.log.write(manifest.summary(content))

    def _begin(self) -> None:
        """Empties the folder of unfinished files, unless they are of this very run."""
        settings = f"{self.work}/settings.json"
        earlier = manifest.read(settings)
        if earlier == self.identity:
            return
        if earlier:
            self.log.write(
                f"{self.work}: settings or text have changed; starting over\n"
            )
        files.remove([settings, *files.glob(f"{self.work}/*")])
        manifest.write(settings, self.identity)

    def _each(
        self,
        name: str,
        function: Callable[..., None],
        paths: Sequence[str],
        jobs: Iterable[tuple[Any, ...]],
    ) -> list[dict[str, Any]]:
        """Does the jobs that have no result yet, and returns the results of all.

        Args:
            name: what the jobs make.
            function: does one.
            paths: of the result of each job.
            jobs: the arguments of `function`; the path is the first.

        Raises:
            InputError: a job raised it.
        """
        finished = files.glob(f"{self.work}/*.json").keys() & set(paths)
        missing = (job for job in jobs if job[0] not in finished)
        if finished:
            self.log.write(f"{name}: {len(finished)} of {len(paths)} resumed\n")
        bar = tqdm(
            total=len(paths),
            initial=len(finished),
            desc=name,
            file=self.log,
            mininterval=0.2 if self.log.isatty() else _SECONDS_BETWEEN_LINES,
        )
        with bar:
            for _ in self.run(function, missing):
                bar.update()
        results = [manifest.read(path) or {} for path in paths]
        for path, result in zip(paths, results, strict=True):
            if "error" in result:
                files.remove([path])
                raise InputError(result["error"])
        return results
