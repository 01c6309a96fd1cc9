"""Cuts the texts of a dataset into pieces, on several processes, or takes them ready.

The processes get whole paragraphs, so that each context is cut once and held in one
place; what they make is put in the order of the file.
"""

import dataclasses
import functools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from albert_tf.corpus.workers import Workers
from albert_tf.data import cache
from albert_tf.tasks.squad import features
from albert_tf.tasks.squad.features import Pieces
from albert_tf.tasks.squad.reading import Dataset, Paragraph
from albert_tf.text.tokenization import Tokenizer

# Characters of the paragraphs that a process gets at once: some tenths of a second.
_CHARACTERS = 500_000
_SECONDS_BETWEEN_LINES = 5.0


def convert(
    dataset: Dataset,
    tokenizer: Tokenizer,
    path: Path,
    *,
    training: bool = False,
    num_workers: int = 1,
    unsaved: list[Callable[[], None]] | None = None,
    log: IO[str] = sys.stderr,
) -> Pieces:
    """Returns the pieces of a dataset: from a file of an earlier run, or made now.

    Args:
        dataset: of a file, all of it.
        tokenizer: cuts texts into pieces.
        path: the file that keeps them, `.npz`.
        training: see `features.encode`.
        num_workers: processes.
        unsaved: see `cache.load_or_make`.
        log: where progress goes.

    Raises:
        InputError: see `features.encode` and `cache.load_or_make`.
    """
    made_from = {
        "task": "squad",
        "file": cache.fingerprint(dataset.path),
        "version": dataset.version,
        "vocabulary": tokenizer.fingerprint,
        "training": training,
    }

    def make() -> cache.Arrays:
        return vars(encode(dataset, tokenizer, training, num_workers, log))

    arrays, known = cache.load_or_make(path, made_from, make, unsaved)
    if known:
        log.write(f"{dataset.path}: converted before, in {path}\n")
    return Pieces(**arrays)


def encode(
    dataset: Dataset,
    tokenizer: Tokenizer,
    training: bool = False,
    num_workers: int = 1,
    log: IO[str] = sys.stderr,
) -> Pieces:
    """Makes the pieces of a dataset; see `convert`."""
    parts = [
        dataclasses.replace(dataset, paragraphs=paragraphs)
        for paragraphs in _parts(dataset)
    ]
    cleaning = tokenizer.do_lower_case, tokenizer.keep_accents
    kind = type(tokenizer), tokenizer.path, *cleaning
    progress = _Progress(dataset, log)
    found: dict[int, Pieces] = {}
    with Workers(min(num_workers, len(parts))) as workers:
        jobs = ((number, part, kind, training) for number, part in enumerate(parts))
        for number, pieces in workers.each(_encode, jobs):
            found[number] = pieces
            progress.add(len(pieces.answers))
    progress.finish()
    return Pieces.joined([found[number] for number in range(len(parts))])


def _encode(
    number: int, dataset: Dataset, kind: tuple[type, str, bool, bool], training: bool
) -> tuple[int, Pieces]:
    return number, features.encode(dataset, _tokenizer(*kind), training=training)


@functools.lru_cache(1)
def _tokenizer(
    kind: type, path: str, do_lower_case: bool, keep_accents: bool
) -> Tokenizer:
    """Opens a vocabulary, once in each process."""
    return kind(path, do_lower_case, keep_accents)


def _parts(dataset: Dataset) -> Iterator[tuple[Paragraph, ...]]:
    """Cuts a dataset into runs of paragraphs of about equal work."""
    part: list[Paragraph] = []
    work = 0
    for paragraph in dataset.paragraphs:
        part.append(paragraph)
        work += len(paragraph.context) + sum(len(q.text) for q in paragraph.questions)
        if work >= _CHARACTERS:
            yield tuple(part)
            part, work = [], 0
    if part:
        yield tuple(part)


class _Progress:
    """Writes a line every few seconds, and one at the end."""

    def __init__(self, dataset: Dataset, log: IO[str]):
        self._name = dataset.path
        self._total = sum(len(paragraph.questions) for paragraph in dataset.paragraphs)
        self._done = 0
        self._log = log
        self._begin = self._last = time.monotonic()

    def add(self, questions: int) -> None:
        """Counts questions that are done."""
        self._done += questions
        waited = time.monotonic() - self._last
        if waited >= _SECONDS_BETWEEN_LINES and self._done < self._total:
            self._last = time.monotonic()
            self.finish()

    def finish(self) -> None:
        """Writes how far it is."""
        speed = self._done / max(time.monotonic() - self._begin, 1e-9)
        self._log.write(
            f"{self._name}: {self._done:,} of {self._total:,} questions converted, "
            f"{speed:,.0f} questions/s\n"
        )
        self._log.flush()
