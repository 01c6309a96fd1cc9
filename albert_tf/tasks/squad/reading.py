"""Reads files in the format of SQuAD 1.1 and 2.0, which XQuAD and many others share.

    {"version": "1.1", "data": [{"paragraphs": [{"context": text, "qas": [
        {"id": text, "question": text, "is_impossible": false,
         "answers": [{"text": text, "answer_start": character}]}]}]}]}

`version` and `is_impossible` may be absent, and so may the answers where they are not
needed. An id may be a number. Other keys are ignored.
"""

import collections
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from albert_tf.data.json_values import get
from albert_tf.errors import InputError
from albert_tf.model.config import read_json_object

VERSIONS = ("1.1", "2.0")


# Tuples go to other processes three times as fast as dataclasses do.
class Answer(NamedTuple):
    """An answer and the character of the context at which it is said to begin."""

    text: str
    start: int


class Question(NamedTuple):
    """A question; without answers it is impossible, or nobody has answered it yet."""

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
        """The id of a question for lack of whose answer nothing can be scored.

        In SQuAD 1.1 that is any question without an answer. In 2.0 such a question
        counts as impossible, unless there is no answer in the whole file.
        """
        first = None
        for question in self.questions:
            if question.answers or question.is_impossible:
                if self.version == "2.0":
                    return None
            elif first is None:
                first = question.id
        return first

    def warnings(self) -> dict[str, int]:
        """Counts what is odd but can be used, by what it is."""
        counts: collections.Counter[str] = collections.Counter()
        for paragraph in self.paragraphs:
            asked = len(paragraph.questions)
            if not paragraph.context.strip():
                counts["questions about an empty context"] += asked
            for question in paragraph.questions:
                if question.is_impossible and question.answers:
                    counts["impossible questions with answers"] += 1
                if not question.text.strip():
                    counts["empty questions"] += 1
                if any(not _stands_at(paragraph.context, a) for a in question.answers):
                    counts["questions with an answer that is not at answer_start"] += 1
        return dict(counts)


def read(path: str | Path, version: str | None = None) -> Dataset:
    """Reads a file.

    Args:
        path: JSON in UTF-8.
        version: "1.1" or "2.0"; None takes 2.0 where a question is impossible, or where
            the file's `version` says so, and 1.1 elsewhere.

    Raises:
        InputError: the file cannot be read or is not JSON, a key is missing or of
            another type, or an id occurs twice. The message names the file and the
            question's id, or its place.
    """
    if version not in (None, *VERSIONS):
        raise InputError(f"version {version!r}: expected one of {list(VERSIONS)}")
    contents = read_json_object(path)
    paragraphs = []
    for i, article in enumerate(get(contents, "data", list, str(path))):
        place = f"{path}: data[{i}]"
        for j, paragraph in enumerate(get(article, "paragraphs", list, place)):
            paragraphs.append(_paragraph(paragraph, f"{place}.paragraphs[{j}]", path))
    seen: set[str] = set()
    for question in (q for paragraph in paragraphs for q in paragraph.questions):
        if question.id in seen:
            raise InputError(
                f"{path}: question id {question.id!r} occurs twice; expected an id for "
                f"each question"
            )
        seen.add(question.id)
    if not seen:
        raise InputError(f"{path}: no questions; expected some under data.paragraphs")
    version, reason = (version, "given") if version else _version(contents, paragraphs)
    return Dataset(str(path), version, reason, tuple(paragraphs))


def training_answer(path: str, context: str, question: Question) -> Answer | None:
    """Returns the answer to train on: the first one, where it stands in the context.

    An answer that does not stand where the file says is taken from the nearest place
    where it does.

    Returns:
        None for an impossible question.

    Raises:
        InputError: the question is not impossible but has no answer, or its answer is
            empty or nowhere in the context. The release trained on other text then.
    """
    if question.is_impossible:
        return None
    if not question.answers:
        raise InputError(
            f"{path}: question {question.id!r} has no answer and is not impossible; "
            f"expected an answer to train on"
        )
    answer = question.answers[0]
    if not answer.text.strip():
        raise InputError(f"{path}: question {question.id!r} has an empty answer")
    if _stands_at(context, answer):
        return answer
    after = context.find(answer.text, max(0, answer.start))
    before = context.rfind(answer.text, 0, max(0, answer.start + len(answer.text) - 1))
    places = [place for place in (before, after) if place >= 0]
    if not places:
        raise InputError(
            f"{path}: question {question.id!r}: the answer {answer.text!r} is not in "
            f"its context"
        )
    nearest = min(places, key=lambda place: abs(place - answer.start))
    return Answer(answer.text, nearest)


def _stands_at(context: str, answer: Answer) -> bool:
    return answer.start >= 0 and context.startswith(answer.text, answer.start)


def _paragraph(value: Any, place: str, path: str | Path) -> Paragraph:
    context = get(value, "context", str, place)
    questions = []
    for i, item in enumerate(get(value, "qas", list, place)):
        where = f"{place}.qas[{i}]"
        number = isinstance(item, dict) and type(item.get("id")) is int
        id = str(get(item, "id", int if number else str, where))
        questions.append(_question(item, id, f"{path}: question {id!r}"))
    return Paragraph(context, tuple(questions))


def _question(value: Mapping[str, Any], id: str, place: str) -> Question:
    answers = tuple(
        Answer(get(answer, "text", str, place), get(answer, "answer_start", int, place))
        for answer in get(value, "answers", list, place, default=[])
    )
    impossible = get(value, "is_impossible", bool, place, default=False)
    return Question(id, get(value, "question", str, place), answers, impossible)


def _version(
    contents: Mapping[str, Any], paragraphs: list[Paragraph]
) -> tuple[str, str]:
    for question in (q for paragraph in paragraphs for q in paragraph.questions):
        if question.is_impossible:
            return "2.0", f"question {question.id!r} is impossible"
    stated = contents.get("version")
    if str(stated).lstrip("v").startswith("2"):
        return "2.0", f"the file's version is {stated!r}"
    return "1.1", f"no question is impossible and the file's version is {stated!r}"
