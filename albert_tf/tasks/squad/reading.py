"""Reads questions in the format of SQuAD 1.1 and 2.0, or of the library `datasets`.

    {"version": "1.1", "data": [{"paragraphs": [{"context": text, "qas": [
        {"id": text, "question": text, "is_impossible": false,
         "answers": [{"text": text, "answer_start": character}]}]}]}]}

    {"id": text, "context": text, "question": text,
     "answers": {"text": [text], "answer_start": [character]}}

The second format is that of `datasets`. Each question is a line, or an item of a list;
the list is the whole file, or the value of `data` in an object. In both formats,
`answers` may be a list of objects or one object with lists. The file may be compressed
with gzip.

`version` and `is_impossible` are optional. `answers` is also optional if the run does
not need them. In SQuAD 2.0, a question without answers is impossible, as in the
official script. But if no question of a file has an answer or is marked as impossible,
all questions are unlabeled. An id may be a number. Other keys are ignored.
"""

import collections
import dataclasses
import itertools
import operator
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from albert_tf import errors
from albert_tf.data import json_values
from albert_tf.data.files import read_text
from albert_tf.data.json_values import get
from albert_tf.errors import InputError

# Keys of a question in the second format. An article of the first format lacks them.
_QUESTION_KEYS = ("context", "question")


class Answer(NamedTuple):
    """An answer, and the index of its first character in the context.

    The index is the file's `answer_start`, unchanged. The module `locating` corrects it
    later.
    """

    text: str
    start: int


class Question(NamedTuple):
    """A question; without answers, it is impossible or unlabeled."""

    id: str
    text: str
    answers: tuple[Answer, ...]
    is_impossible: bool


class Paragraph(NamedTuple):
    """A context and the questions about it."""

    context: str
    questions: tuple[Question, ...]


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A file's contents.

    Attributes:
        path: the file.
        version: "1.1", or "2.0" if a question may have no answer.
        paragraphs: the paragraphs in the order of the file.
    """

    path: str
    version: str
    paragraphs: tuple[Paragraph, ...]

    def __iter__(self) -> Iterator[Paragraph]:
        """Returns an iterator over the paragraphs."""
        return iter(self.paragraphs)

    @property
    def questions(self) -> Iterator[Question]:
        """All questions, in the order of the file."""
        for paragraph in self.paragraphs:
            yield from paragraph.questions

    @property
    def first_unlabeled_id(self) -> str | None:
        """The id of the first unlabeled question, which cannot be scored, or None.

        An unlabeled question has no answer and is not marked as impossible.
        """
        unlabeled = (q.id for q in self.questions if not (q.answers or q.is_impossible))
        return next(unlabeled, None)


def read(
    path: str | Path, version: str | None = None, encoding: str | None = None
) -> Dataset:
    """Reads the questions of a file.

    Args:
        path: a text file with JSON or JSON lines, see `files.read_text`.
        version: "1.1" or "2.0". The default is "2.0" in three cases: the first number
            in the file's `version` is 2; a question is marked as impossible; or the
            file has no `version`, and some of its questions have answers, but not all.
            Otherwise the default is "1.1".
        encoding: the encoding of a file without a byte order mark, by default UTF-8.

    Raises:
        InputError: the file cannot be read or is not JSON, a key is missing, a value
            has the wrong type, or an id occurs twice. The message names the file, and
            the id or the location of the question.
    """
    header: dict[str, Any] = {}  # receives the object that contains the list of items
    items = list(json_values.locate_rows(read_text(path, encoding), path, header))
    # A pair is the context of a question, and the question.
    pairs = [pair for location, item in items for pair in _parse(item, location, path)]
    questions = [question for _, question in pairs]
    if not questions:
        raise InputError(f"{path}: no questions; expected some under data.paragraphs")
    counts = collections.Counter([question.id for question in questions])
    id, count = counts.most_common(1)[0]
    if count > 1:
        raise InputError(
            f"{path}: question id {id!r} occurs {count} times; each question needs its "
            f"own id"
        )
    version = version or _infer_version(header.get("version"), questions)
    # A question without answers is impossible, unless all questions are unlabeled.
    if version == "2.0" and any(q.answers or q.is_impossible for q in questions):
        pairs = [
            (context, q if q.answers else q._replace(is_impossible=True))
            for context, q in pairs
        ]
    # Adjacent questions with the same context share one paragraph, so that the context
    # is tokenized once.
    paragraphs = (
        Paragraph(context, tuple(question for _, question in group))
        for context, group in itertools.groupby(pairs, operator.itemgetter(0))
    )
    return Dataset(str(path), version, tuple(paragraphs))


def parse_answers(value: Any, location: str) -> tuple[Answer, ...]:
    """Returns the answers to a question.

    Args:
        value: a list of objects with `text` and `answer_start`, one such object, or one
            object with a list under each key; None if there are no answers.
        location: the question's location, for messages.

    Raises:
        InputError: `value` is something else.
    """
    items = [] if value is None else value
    if isinstance(items, dict):
        texts, starts = items.get("text"), items.get("answer_start")
        if isinstance(texts, list) and isinstance(starts, list):
            pairs = itertools.zip_longest(texts, starts)
            items = [{"text": text, "answer_start": start} for text, start in pairs]
        else:
            items = [items]
    if not isinstance(items, list) or not all(isinstance(each, dict) for each in items):
        raise InputError(
            f"{location}: answers is {errors.quote(value)}; expected dicts of "
            f"text and answer_start, or one with lists of them"
        )
    answers = []
    for each in items:
        text = get(each, "text", str, location)
        answers.append(Answer(text, get(each, "answer_start", int, location)))
    return tuple(answers)


def _parse(
    item: Any, location: str, path: str | Path
) -> Iterator[tuple[str, Question]]:
    """Yields a pair of the context and the question for each question of an item.

    Args:
        item: an article of the first format, or a question of the second format.
        location: the item's location, for messages.
        path: the file, for messages.
    """
    if isinstance(item, dict) and not item.keys().isdisjoint(_QUESTION_KEYS):
        question = _parse_question(item, location, path)
        yield get(item, "context", str, location), question
        return
    for i, paragraph in enumerate(get(item, "paragraphs", list, location)):
        paragraph_location = f"{location}.paragraphs[{i}]"
        context = get(paragraph, "context", str, paragraph_location)
        for j, question in enumerate(get(paragraph, "qas", list, paragraph_location)):
            question_location = f"{paragraph_location}.qas[{j}]"
            yield context, _parse_question(question, question_location, path)


def _parse_question(value: Any, location: str, path: str | Path) -> Question:
    is_number = isinstance(value, dict) and type(value.get("id")) is int
    id = str(get(value, "id", int if is_number else str, location))
    location = f"{path}: question {id!r}"
    return Question(
        id,
        get(value, "question", str, location),
        parse_answers(value.get("answers"), location),
        get(value, "is_impossible", bool, location, default=False),
    )


def _infer_version(version: Any, questions: Sequence[Question]) -> str:
    """Returns the version of a file, "1.1" or "2.0", as explained for `read`.

    Args:
        version: the value of `version` in the file, or None.
        questions: all questions.
    """
    # 2 is the first number in "2.0", "v2.0" and "squad_v2", but not in "2018-06-11".
    is_v2 = re.findall(r"\d+", str(version))[:1] == ["2"]
    has_impossible = any(question.is_impossible for question in questions)
    has_answers = [bool(question.answers) for question in questions]
    is_mixed = not version and any(has_answers) and not all(has_answers)
    return "2.0" if is_v2 or has_impossible or is_mixed else "1.1"
