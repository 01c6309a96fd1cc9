"""Reads RACE, and anybody's own questions with choices.

RACE has a folder for each split and level, and in it a file for each passage, as it is
distributed, or all of them in `all.txt`, one after the other, as the released script
expects them:

    RACE/dev/middle/1.txt   {"id": "middle1.txt", "article": text, "questions": [text],
                             "options": [[text, text, text, text]], "answers": ["B"]}

Other sets are JSON lines with a question each:

    {"id": "7", "article": text, "question": text, "options": [text, text],
     "answer": "B"}

`answer` is a letter, the number of an option from 0 on, or an option's text. Without an
id the place in the file serves as one. Other keys are ignored. Answers may be absent or
null where they are not needed.
"""

import collections
import dataclasses
import re
import string
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from albert_tf.data import json_values
from albert_tf.data.json_values import describe, get
from albert_tf.errors import InputError

LETTERS = string.ascii_uppercase
LEVELS = ("middle", "high")
# Stands in a question for what an option fills in.
GAP = "_"
_ALL = "all.txt"


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A question with its choices.

    Attributes:
        id: its own, or that of its passage and its number there from 1 on.
        article: what it is about; may be empty.
        text: may hold `_` where the option belongs; may be empty.
        options: C texts.
        answer: number of the right option; None where it is not known.
        level: "middle" or "high" of RACE, else empty.
        place: where it was read, for messages.
    """

    id: str
    article: str
    text: str
    options: tuple[str, ...]
    answer: int | None
    level: str
    place: str

    def completed(self, number: int) -> str:
        """Returns the question with an option in place of each `_`, or after it."""
        option = self.options[number]
        if GAP in self.text:
            return self.text.replace(GAP, option)
        return f"{self.text} {option}"


def read_split(
    data_dir: str | Path, split: str, levels: Sequence[str] = LEVELS
) -> list[Question]:
    """Reads a split of RACE: all of its middle level first, as released.

    Args:
        data_dir: the folder with `train`, `dev` and `test`, or the one above it, which
            calls it RACE.
        split: one of the three.
        levels: those to read.

    Raises:
        InputError: a folder is missing or empty, or what `read_file` refuses; or there
            is an `all.txt` that does not hold as many passages as there are files
            beside it.
    """
    roots = (Path(data_dir, "RACE"), Path(data_dir))
    root = next((root for root in roots if (root / split).is_dir()), None)
    if root is None:
        raise InputError(
            f"--data_dir={data_dir}: no folder {split}; expected the folder RACE of "
            f"the data set, with train, dev and test in it, or the one above it"
        )
    questions: list[Question] = []
    for level in levels:
        for path in _files(root / split / level):
            questions += _read(path, level)
    return _checked(questions)


def read_file(path: str | Path) -> list[Question]:
    """Reads a file of either kind.

    Raises:
        InputError: the file cannot be read, is empty, or is not JSON; a key is missing
            or of another type; there are not as many answers or lists of options as
            questions; there are fewer than two options, or not as many as other
            questions have; an answer is not among the options, or could be
            several.
    """
    return _checked(_read(Path(path), ""))


def _files(folder: Path) -> list[Path]:
    """Lists the files of a level."""
    if not folder.is_dir():
        raise InputError(
            f"{folder}: no such folder; expected it, or --middle_only or --high_only "
            f"without it"
        )
    files = sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and not path.name.startswith(".")
    )
    if not files:
        raise InputError(f"{folder}: no file; expected one for each passage, or {_ALL}")
    together = folder / _ALL
    if together not in files:
        return files
    held, beside = sum(1 for _ in _objects(together)), len(files) - 1
    if beside and held != beside:
        raise InputError(
            f"{together}: {held} passages, but {beside} files beside it; expected all "
            f"of these in it, or no {_ALL}"
        )
    return [together]


def _read(path: Path, level: str) -> list[Question]:
    questions: list[Question] = []
    for place, value in _objects(path):
        if isinstance(value, dict) and "questions" in value:
            questions += _passage(value, level, place)
        else:
            questions.append(_single(value, place))
    if not questions:
        raise InputError(f"{path}: no question; expected JSON with one or more")
    return questions


def _after_space(text: str, position: int) -> int:
    return re.compile(r"\s*").match(text, position).end()  # type: ignore[union-attr]


def _objects(path: Path) -> Iterator[tuple[str, Any]]:
    """Yields the JSON values of a file, and where each stands.

    A line may hold several, as where files without a line end were put together.
    """
    try:
        text = json_values.whole_pairs(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}") from None
    line, position = 1, 0
    while (begin := _after_space(text, position)) < len(text):
        line += text.count("\n", position, begin)
        value, end = json_values.parse_next(text, begin, path, line)
        yield f"{path}:{line}", value
        line += text.count("\n", begin, end)
        position = end


def _passage(value: dict[str, Any], level: str, place: str) -> list[Question]:
    """Returns the questions of a passage of RACE."""
    article = get(value, "article", str, place)
    texts = get(value, "questions", list, place)
    options = get(value, "options", list, place)
    answers: list[Any] = [None] * len(texts)
    if value.get("answers") is not None:
        answers = get(value, "answers", list, place)
    if not len(texts) == len(options) == len(answers):
        raise InputError(
            f"{place}: {len(texts)} questions, {len(options)} lists of options, "
            f"{len(answers)} answers; expected as many of each"
        )
    id = _id(value, place)
    questions = []
    for i, (text, choices, answer) in enumerate(
        zip(texts, options, answers, strict=True), 1
    ):
        where = f"{place}: question {i}"
        if not isinstance(text, str):
            raise InputError(f"{where}: {describe(text)}; expected a text")
        choices = _options(choices, where)
        number = _letter(answer, choices, where)
        questions.append(
            Question(f"{id}-{i}", article, text, choices, number, level, where)
        )
    return questions


def _single(value: Any, place: str) -> Question:
    """Returns the question of a line."""
    article = get(value, "article", str, place)
    text = get(value, "question", str, place)
    options = _options(get(value, "options", list, place), place)
    answer = _any_answer(value.get("answer"), options, place)
    return Question(_id(value, place), article, text, options, answer, "", place)


def _id(value: dict[str, Any], place: str) -> str:
    """Returns the id of a passage or a question; without one its place."""
    id = value.get("id")
    if id is None or id == "":
        return Path(place).name
    if not isinstance(id, str | int | float):
        raise InputError(f"{place}: the id is {describe(id)}; expected a text")
    return str(id)


def _options(value: Any, place: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(o, str) for o in value):
        raise InputError(f"{place}: the options are not a list of texts")
    if not 2 <= len(value) <= len(LETTERS):
        raise InputError(f"{place}: {len(value)} options; expected 2 to {len(LETTERS)}")
    return tuple(value)


def _letter(value: Any, options: tuple[str, ...], place: str) -> int | None:
    if value is None:
        return None
    letters = LETTERS[: len(options)]
    if not isinstance(value, str) or len(value) != 1 or value not in letters:
        raise InputError(
            f"{place}: answer {_shown(value)}; expected a letter from A to "
            f"{letters[-1]}"
        )
    return letters.index(value)


def _any_answer(value: Any, options: tuple[str, ...], place: str) -> int | None:
    """Returns the option that a letter, a number or its text means."""
    if value is None:
        return None
    matches = []
    if type(value) in (int, str):
        names = enumerate(zip(range(len(options)), LETTERS, options, strict=False))
        matches = [i for i, name in names if value in name]
    if len(matches) != 1:
        fault = "could be several options" if matches else "is no option"
        raise InputError(
            f"{place}: answer {_shown(value)} {fault}; expected a letter from A to "
            f"{LETTERS[len(options) - 1]}, a number from 0 to {len(options) - 1}, or "
            f"the text of an option"
        )
    return matches[0]


def _shown(answer: Any) -> str:
    return describe(answer) if isinstance(answer, list | dict) else repr(answer)


def _checked(questions: list[Question]) -> list[Question]:
    """Refuses a question that has not as many options as the others."""
    counts = collections.Counter(len(question.options) for question in questions)
    usual = counts.most_common(1)[0][0]
    for question in questions:
        if len(question.options) != usual:
            raise InputError(
                f"{question.place}: {len(question.options)} options; expected {usual}, "
                f"as most questions here have"
            )
    return questions
