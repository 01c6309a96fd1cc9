"""Reads questions as SQuAD 1.1 and 2.0 have them, and as `datasets` writes them.

    {"version": "1.1", "data": [{"paragraphs": [{"context": text, "qas": [
        {"id": text, "question": text, "is_impossible": false,
         "answers": [{"text": text, "answer_start": character}]}]}]}]}

    {"id": text, "context": text, "question": text,
     "answers": {"text": [text], "answer_start": [character]}}

Records of the second form are the lines of a file, or the items of a list that is the
whole file or its `data`. Both forms of `answers` are read in both. The file may be
compressed with gzip.

`version` and `is_impossible` may be absent, and so may the answers if they are not
needed. In SQuAD 2.0 a question without answers is impossible, as in the official
script, unless no question of the file has an answer. An id may be a number. Other keys
are ignored.
"""

import dataclasses
import itertools
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from albert_tf import errors
from albert_tf.data import json_values
from albert_tf.data.files import read_text
from albert_tf.data.json_values import get
from albert_tf.errors import InputError

VERSIONS = ("1.1", "2.0")
# Keys that articles do not have.
_OF_RECORDS = ("context", "question")


class Answer(NamedTuple):
    """An answer and the character of the context at which it is said to begin."""

    text: str
    start: int


class Question(NamedTuple):
    """A question.

    One that has no answers and is not impossible has not been answered by anybody yet.
    """

    id: str
    text: str
    answers: tuple[Answer, ...]
    is_impossible: bool


class Paragraph(NamedTuple):
    """A context and the questions asked about it."""

    context: str
    questions: tuple[Question, ...]


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A file's contents.

    Attributes:
        path: the file.
        version: "1.1", or "2.0" where a question may have no answer.
        version_is_from: what decided the version, in words.
        paragraphs: in the order of the file.
    """

    path: str
    version: str
    version_is_from: str
    paragraphs: tuple[Paragraph, ...]

    @property
    def questions(self) -> Iterator[Question]:
        """Every question, in the order of the file."""
        for paragraph in self.paragraphs:
            yield from paragraph.questions

    @property
    def unanswered(self) -> str | None:
        """The id of the first question that has nothing to be scored against."""
        open_ones = (q.id for q in self.questions if not (q.answers or q.is_impossible))
        return next(open_ones, None)


def read(
    path: str | Path, version: str | None = None, encoding: str | None = None
) -> Dataset:
    """Reads a file.

    Args:
        path: JSON or JSON lines; a file of text, see `files.read_text`.
        version: "1.1" or "2.0"; None takes 2.0 if a question is impossible, if the
            file's `version` says so, or if it has none and only some questions have
            answers; else 1.1.
        encoding: of a file without a byte order mark; None: UTF-8.

    Raises:
        InputError: the file cannot be read or is not JSON, a key is missing or of
            another type, or an id occurs twice. The message names the file and the
            question's id, or its location.
    """
    if version not in (None, *VERSIONS):
        raise InputError(f"version {version!r}: expected one of {list(VERSIONS)}")
    stated, items = _items(path, encoding)
    asked = [pair for item, place in items for pair in _asked(item, place, path)]
    questions = [question for _, question in asked]
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise InputError(
                f"{path}: question id {question.id!r} occurs twice; expected an id for "
                f"each question"
            )
        seen.add(question.id)
    if not seen:
        raise InputError(f"{path}: no questions; expected some under data.paragraphs")
    version, reason = (version, "given") if version else _version(stated, questions)
    if version == "2.0" and any(q.answers or q.is_impossible for q in questions):
        asked = [
            (context, q if q.answers else q._replace(is_impossible=True))
            for context, q in asked
        ]
    # A context that each of its questions repeats is tokenized once too.
    paragraphs = (
        Paragraph(context, tuple(question for _, question in pairs))
        for context, pairs in itertools.groupby(asked, operator.itemgetter(0))
    )
    return Dataset(str(path), version, reason, tuple(paragraphs))


def answers(value: Any, place: str) -> tuple[Answer, ...]:
    """Returns the answers to a question.

    Args:
        value: a list of objects with `text` and `answer_start`, one such object, or one
            with a list under each key; None if there are no answers.
        place: where they stand, for messages.

    Raises:
        InputError: they have another form.
    """
    given = [] if value is None else value
    if isinstance(given, Mapping):
        texts, starts = given.get("text"), given.get("answer_start")
        if isinstance(texts, list) and isinstance(starts, list):
            pairs = itertools.zip_longest(texts, starts)
            given = [{"text": text, "answer_start": start} for text, start in pairs]
        else:
            given = [given]
    if isinstance(given, list) and all(isinstance(each, Mapping) for each in given):
        return tuple(
            Answer(get(each, "text", str, place), get(each, "answer_start", int, place))
            for each in given
        )
    raise InputError(
        f"{place}: answers is {errors.shown(value)}; expected dicts of text and "
        f"answer_start, or one with lists of them"
    )


def _items(path: str | Path, encoding: str | None) -> tuple[Any, list[tuple[Any, str]]]:
    """Returns the version that a file states, and its items with their locations."""
    text = json_values.whole_pairs(read_text(path, encoding))
    begin = len(text) - len(text.lstrip())
    first, end = json_values.parse_next(text, begin, path)
    if text[end:].strip():
        lines = [text] if "\n" in text[begin:end] else text.split("\n")
        return None, [
            (json_values.parse(line, path, number), f"{path}:{number}")
            for number, line in enumerate(lines, 1)
            if line.strip()
        ]
    if isinstance(first, list):
        return None, [(item, f"{path}: [{i}]") for i, item in enumerate(first)]
    if _is_record(first):
        return None, [(first, f"{path}:1")]
    items = enumerate(get(first, "data", list, str(path)))
    return first.get("version"), [(item, f"{path}: data[{i}]") for i, item in items]


def _asked(item: Any, place: str, path: str | Path) -> Iterator[tuple[str, Question]]:
    """Yields the questions of an article or a record, each with its context."""
    if _is_record(item):
        question = _question(item, place, path)
        yield get(item, "context", str, place), question
        return
    for i, paragraph in enumerate(get(item, "paragraphs", list, place)):
        where = f"{place}.paragraphs[{i}]"
        context = get(paragraph, "context", str, where)
        for j, asked in enumerate(get(paragraph, "qas", list, where)):
            yield context, _question(asked, f"{where}.qas[{j}]", path)


def _is_record(item: Any) -> bool:
    return isinstance(item, dict) and not item.keys().isdisjoint(_OF_RECORDS)


def _question(value: Any, place: str, path: str | Path) -> Question:
    number = isinstance(value, dict) and type(value.get("id")) is int
    id = str(get(value, "id", int if number else str, place))
    place = f"{path}: question {id!r}"
    return Question(
        id,
        get(value, "question", str, place),
        answers(value.get("answers"), place),
        get(value, "is_impossible", bool, place, default=False),
    )


def _version(stated: Any, questions: Sequence[Question]) -> tuple[str, str]:
    """Returns the version that a file shows, and how, in words."""
    for question in questions:
        if question.is_impossible:
            return "2.0", f"question {question.id!r} is impossible"
    # The first number of "2.0", "v2.0" or "squad_v2", but not of a date.
    if re.findall(r"\d+", str(stated))[:1] == ["2"]:
        return "2.0", f"the file's version is {stated!r}"
    without = [question.id for question in questions if not question.answers]
    if not stated and 0 < len(without) < len(questions):
        return "2.0", f"no version is given and question {without[0]!r} has no answer"
    return "1.1", f"no question is impossible and the file's version is {stated!r}"
