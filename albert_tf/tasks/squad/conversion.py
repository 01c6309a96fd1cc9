"""Tokenizes the texts of a dataset, on several processes.

The processes get whole paragraphs, so that each context is tokenized once and held in
one place; what they make is put in the order of the file.
"""

import dataclasses
import functools
from collections.abc import Iterator

from albert_tf.corpus.workers import Workers
from albert_tf.tasks.squad import features
from albert_tf.tasks.squad.features import Tokens
from albert_tf.tasks.squad.reading import Dataset, Paragraph
from albert_tf.text.tokenization import Tokenizer

# Characters of the paragraphs that a process gets at once: some tenths of a second.
_CHARACTERS = 500_000


def encode(
    dataset: Dataset,
    tokenizer: Tokenizer,
    training: bool = False,
    num_workers: int = 1,
) -> Tokens:
    """Does what `features.encode` does, with several processes.

    Args:
        dataset: of a file, all of it.
        tokenizer: whose vocabulary each process opens.
        training: see `features.encode`.
        num_workers: processes.

    Raises:
        InputError: see `features.encode`; or a process was killed.
    """
    parts = [
        dataclasses.replace(dataset, paragraphs=paragraphs)
        for paragraphs in _parts(dataset)
    ]
    cleaning = tokenizer.do_lower_case, tokenizer.keep_accents
    kind = type(tokenizer), tokenizer.path, *cleaning
    with Workers(min(num_workers, len(parts))) as workers:
        jobs = ((number, part, kind, training) for number, part in enumerate(parts))
        encoded = dict(workers.each(_encode, jobs))
    return Tokens.joined([encoded[number] for number in range(len(parts))])


def _encode(
    number: int, dataset: Dataset, kind: tuple[type, str, bool, bool], training: bool
) -> tuple[int, Tokens]:
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
