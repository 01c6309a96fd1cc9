"""Reads RACE, and anybody's own questions with choices.

RACE has a folder for each split and level, and in it a file for each passage, as it is
distributed, or all of them in `all.txt`, one after the other, as the released script
expects them:

    RACE/dev/middle/1.txt   {"id": "middle1.txt", "article": text, "questions": [text],
                             "options": [[text, text, text, text]], "answers": ["B"]}

Other sets are JSON lines, or a list, with a question each:

    {"id": "7", "article": text, "question": text, "options": [text, text],
     "answer": "B"}

`answer` is a letter, or the number of an option from 0 on. Without an id the place in
the file serves as one. Other keys are ignored. Answers may be absent or null where they
are not needed. Empty options at the end of a list stand for none.
"""

import dataclasses
import re
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from albert_tf import errors
from albert_tf.data import json_values
from albert_tf.data.files import read_text
from albert_tf.data.json_values import describe, get
from albert_tf.errors import InputError

LETTERS = string.ascii_uppercase
LEVELS = ("middle", "high")
# Stands in a question for what an option fills in: underscores, but not a single one
# between letters or digits (`file_name`).
BLANK = re.compile(r"__+|(?<![^\W_])_|_(?![^\W_])")
_ALL = "all.txt"


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A question with its choices.

    Attributes:
        id: its own, or that of its passage and its number there from 1 on.
        article: what it is about; may be empty.
        text: may have blanks where the option belongs, see `completed`; may be empty.
        options: C texts.
        answer: number of the right option; None where it is not known.
        level: "middle" or "high" of RACE, else empty.
        location: where it was read, for messages.
    """

    id: str
    article: str
    text: str
    options: tuple[str, ...]
    answer: int | None
    level: str
    location: str

    @property
    def numbers(self) -> range:
        """The numbers of the options."""
        return range(len(self.options))

    def completed(self, number: int) -> str:
        """Returns the question with an option in place of each blank, or after it.

        **As released:** each `_` of RACE's questions is a blank. Of other questions a
        run of underscores is one, and one between letters (`file_name`) is none.
        """
        option = self.options[number]
        blank = "_" if self.level else BLANK
        text, blanks = re.subn(blank, lambda _: option, self.text)
        return text if blanks else f"{text} {option}"


def read_split(
    data_dir: str | Path,
    split: str,
    levels: Sequence[str] = LEVELS,
    encoding: str = "utf-8",
) -> list[Question]:
    """Reads a split of RACE: all of its middle level first, as released.

    Args:
        data_dir: the folder with `train`, `dev` and `test`, or the one above it, which
            calls it RACE.
        split: one of the three.
        levels: those to read.
        encoding: of files without a byte order mark.

    Raises:
        InputError: a folder is missing or empty, or what `read_file` refuses.
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
            questions += _read(path, level, encoding)
    return questions


def read_file(path: str | Path, encoding: str = "utf-8") -> list[Question]:
    """Reads a file of either kind; see `files.to_utf8`.

    Raises:
        InputError: the file cannot be read, is empty, or is not JSON; a key is missing
            or of another type; there are not as many answers or lists of options as
            questions; there are fewer than two options; an answer is not among the
            options, or could be several.
    """
    return _read(Path(path), "", encoding)


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
    return [together] if together in files else files


def _read(path: Path, level: str, encoding: str) -> list[Question]:
    questions: list[Question] = []
    for location, value in json_values.objects(read_text(path, encoding), path):
        if isinstance(value, dict) and "questions" in value:
            questions += _passage(value, level, location)
        else:
            questions.append(_single(value, location))
    if not questions:
        raise InputError(f"{path}: no question; expected JSON with one or more")
    return questions


def _passage(value: dict[str, Any], level: str, location: str) -> list[Question]:
    """Returns the questions of a passage of RACE."""
    article = get(value, "article", str, location)
    texts = get(value, "questions", list, location)
    options = get(value, "options", list, location)
    answers: list[Any] = [None] * len(texts)
    if value.get("answers") is not None:
        answers = get(value, "answers", list, location)
    if not len(texts) == len(options) == len(answers):
        raise InputError(
            f"{location}: {len(texts)} questions, {len(options)} lists of options, "
            f"{len(answers)} answers; expected as many of each"
        )
    id = _id(value, location)
    questions = []
    for i, (text, choices, answer) in enumerate(
        zip(texts, options, answers, strict=True), 1
    ):
        where = f"{location}: question {i}"
        if not isinstance(text, str):
            raise InputError(f"{where}: {describe(text)}; expected a text")
        choices = _options(choices, where)
        number = _answer(answer, choices, where)
        questions.append(
            Question(f"{id}-{i}", article, text, choices, number, level, where)
        )
    return questions


def _single(value: Any, location: str) -> Question:
    """Returns the question of a line."""
    article = get(value, "article", str, location)
    text = get(value, "question", str, location)
    options = _options(get(value, "options", list, location), location)
    answer = _answer(value.get("answer"), options, location)
    return Question(_id(value, location), article, text, options, answer, "", location)


def _id(value: dict[str, Any], location: str) -> str:
    """Returns the id of a passage or a question; without one its place."""
    id = value.get("id")
    if id is None or id == "":
        return Path(location).name
    if not isinstance(id, str | int | float):
        raise InputError(f"{location}: the id is {describe(id)}; expected a text")
    return str(id)


def present(options: Sequence[str]) -> Sequence[str]:
    """Returns options without the empty ones at the end, which stand for none."""
    if options and options[-1]:
        return options
    count = max((i for i, option in enumerate(options, 1) if option), default=1)
    return options[:count]


def _options(value: Any, location: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(o, str) for o in value):
        raise InputError(f"{location}: the options are not a list of texts")
    options = tuple(present(value))
    if not 2 <= len(options) <= len(LETTERS):
        raise InputError(
            f"{location}: {len(options)} options; expected 2 to {len(LETTERS)}"
        )
    return options


def _answer(value: Any, options: tuple[str, ...], location: str) -> int | None:
    """Returns the number of the option that a letter or a number means."""
    if value is None:
        return None
    count = len(options)
    if isinstance(value, str) and len(value) == 1 and value in LETTERS[:count]:
        return LETTERS.index(value)
    if type(value) is int and 0 <= value < count:
        return value
    raise InputError(
        f"{location}: answer {errors.quote(value)}; expected a letter from A to "
        f"{LETTERS[count - 1]}, or a number from 0 to {count - 1}"
    )
