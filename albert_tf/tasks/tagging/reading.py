"""Reads sentences with a label for each word.

Files have a token a line, its columns between spaces or tabs, and blank lines between
sentences; `-DOCSTART-` lines are skipped. Or they are JSON lines, each a sentence:

    {"tokens": ["Anna", "left", "Oslo"], "tags": ["B-PER", "O", "B-LOC"]}

Where all labels are O, B-TYPE and I-TYPE they mark entities (IOB2), else each stands
for itself, as parts of speech do.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from albert_tf import errors
from albert_tf.data import json_values, tables
from albert_tf.data.tables import RowError
from albert_tf.errors import InputError

OUTSIDE, BEGIN, INSIDE = "O", "B-", "I-"
_DOCUMENT = "-DOCSTART-"


class Sentence(NamedTuple):
    """The words of a sentence.

    Attributes:
        words: one or more.
        labels: as many; None where they are not known.
        lines: where each word stands in its file, from 1 on.
    """

    words: tuple[str, ...]
    labels: tuple[str, ...] | None
    lines: tuple[int, ...]


def read_file(
    path: str | Path, label_column: str | None = None, tag_scheme: str = "iob2"
) -> list[Sentence]:
    """Reads the sentences of a file; of `.json` and `.jsonl` a line each.

    Args:
        path: a file in UTF-8.
        label_column: number of the column from 1 on, by default the last one; of JSON
            the key, by default "tags". Without a second column or the key, the labels
            are not known.
        tag_scheme: "iob2"; or "iob1", where B- only parts neighbours of one type: its
            labels become those of IOB2.

    Raises:
        InputError: the file cannot be read, has no sentence, a line has another number
            of columns than those before, or is no such JSON; entities are not marked
            by the scheme.
    """
    is_json = Path(path).suffix.lower() in (".json", ".jsonl")
    with errors.reading(path), open(path, "rb") as file:
        lines = list(tables.lines(file))
    for number, line in lines:
        if isinstance(line, RowError):
            raise InputError(f"{path}:{number}: {line}")
    read = _of_json if is_json else _of_columns
    sentences = list(read(path, lines, label_column))  # type: ignore[arg-type]
    if not sentences:
        raise InputError(f"{path}: no sentence; expected one or more")
    _check_alike(path, sentences)
    if has_entities(label for label, _ in labelled(sentences)):
        sentences = [_in_iob2(path, sentence, tag_scheme) for sentence in sentences]
    return sentences


Lines = Iterable[tuple[int, str]]


def _of_columns(path: Any, lines: Lines, label_column: str | None):
    """Yields the sentences of a file with columns."""
    rows: list[tuple[int, list[str]]] = []
    width = 0
    for number, line in itertools.chain(lines, [(0, "")]):
        cells = line.split("\t") if "\t" in line else re.findall("[^ ]+", line)
        if cells and cells[0] != _DOCUMENT and line.strip():
            width = width or len(cells)
            if len(cells) != width or not cells[0]:
                raise InputError(
                    f"{path}:{number}: {errors.shown(line)}: expected {width} columns, "
                    f"as before, of which the first is the token"
                )
            rows.append((number, cells))
        elif rows:
            yield _sentence(rows, _place(path, label_column, width))
            rows = []


def _place(path: Any, label_column: str | None, width: int) -> int | None:
    """Returns the place of the labels in a row; None where there is none."""
    if label_column is None or width == 1:
        return width - 1 or None
    if not label_column.isdecimal() or not 2 <= int(label_column) <= width:
        raise InputError(
            f"--label_column={label_column}: {path} has {width} columns; expected 2 to "
            f"{width}, the number of a column after the token's"
        )
    return int(label_column) - 1


def _sentence(rows: list[tuple[int, list[str]]], place: int | None) -> Sentence:
    labels = None if place is None else tuple(cells[place] for _, cells in rows)
    words = tuple(cells[0] for _, cells in rows)
    return Sentence(words, labels, tuple(number for number, _ in rows))


def _of_json(path: Any, lines: Lines, label_column: str | None):
    """Yields the sentences of JSON lines."""
    key = label_column or "tags"
    for number, line in lines:
        if not line.strip():
            continue
        row = json_values.parse(line, path, number)
        if not isinstance(row, dict):
            raise InputError(
                f"{path}:{number}: {errors.shown(row)}; expected an object with tokens"
            )
        words: Any = row.get("tokens")
        labels: Any = row.get(key)
        if not _are_words(words) or any(re.search(r"[\t\r\n]", w) for w in words):
            raise InputError(
                f"{path}:{number}: tokens is {errors.shown(words)}; expected a list of "
                f"words without tabs and line ends"
            )
        if labels is not None and not (
            _are_words(labels) and len(labels) == len(words)
        ):
            raise InputError(
                f"{path}:{number}: {key} is {errors.shown(labels)}; expected a list of "
                f"{len(words)} texts, one for each token"
            )
        yield Sentence(
            tuple(words),
            None if labels is None else tuple(labels),
            (number,) * len(words),
        )


def _are_words(value: Any) -> bool:
    is_list = isinstance(value, list) and bool(value)
    return is_list and all(isinstance(text, str) and text for text in value)


def labelled(sentences: Iterable[Sentence]) -> Iterator[tuple[str, int]]:
    """Yields all labels with their lines."""
    for sentence in sentences:
        yield from zip(sentence.labels or (), sentence.lines, strict=False)


def has_entities(labels: Iterable[str]) -> bool:
    """Whether labels mark entities: all of them are O, B-TYPE or I-TYPE."""
    return all(label == OUTSIDE or _is_marked(label) for label in labels)


def _is_marked(label: str) -> bool:
    return label[:2] in (BEGIN, INSIDE)


def _check_alike(path: Any, sentences: Iterable[Sentence]) -> None:
    """Refuses labels of which some mark entities, and others do not."""
    marked: str | None = None
    other: tuple[str, int] | None = None
    for label, line in labelled(sentences):
        if _is_marked(label):
            marked = marked or label
        elif label != OUTSIDE:
            other = other or (label, line)
    if marked and other:
        raise InputError(
            f"{path}:{other[1]}: label {other[0]!r} beside {marked!r}; expected O, "
            f"B-... and I-... alone (IOB2), or labels without B- and I-"
        )


def _in_iob2(path: Any, sentence: Sentence, tag_scheme: str) -> Sentence:
    """Returns a sentence that begins each entity with B-."""
    given, labels = sentence.labels or (), []
    for before, label, line in zip(("", *given), given, sentence.lines, strict=False):
        if label in (BEGIN, INSIDE):
            raise InputError(
                f"{path}:{line}: label {label!r}: expected the type of an entity after "
                f"it, as in '{label}PER'"
            )
        if label.startswith(INSIDE) and before[2:] != label[2:]:
            begun = BEGIN + label[2:]
            if tag_scheme == "iob2":
                where = f"after {before!r}" if before else "at the beginning"
                raise InputError(
                    f"{path}:{line}: label {label!r} {where}; expected {begun!r} "
                    f"(IOB2), or --tag_scheme=iob1"
                )
            label = begun
        labels.append(label)
    return sentence._replace(labels=tuple(labels) or None)


def all_labels(sentences: Iterable[Sentence]) -> tuple[str, ...]:
    """Returns the labels of a model that learns from sentences, O before entities.

    Of each type of entity there are both labels, whether or not sentences have them.
    """
    labels = sorted({label for label, _ in labelled(sentences)})
    if not has_entities(labels):
        return tuple(labels)
    types = sorted({label[2:] for label in labels if label != OUTSIDE})
    return (OUTSIDE, *(p + name for name in types for p in (BEGIN, INSIDE)))


def check_labels(
    path: Any, sentences: Iterable[Sentence], labels: Sequence[str]
) -> None:
    """Refuses labels that a model does not have."""
    for label, line in labelled(sentences):
        if label not in labels:
            raise InputError(
                f"{path}:{line}: label {label!r}; expected one of {', '.join(labels)} "
                f"(those of --train_file, of --labels or of the model's folder)"
            )
