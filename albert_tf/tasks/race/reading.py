"""Reads RACE and other questions with choices.

RACE has a folder for each split and level (middle or high school). A folder has a file
for each passage, as distributed. Or it has one file `all.txt` with all passages, as the
released script expects. A passage is a JSON object:

    RACE/dev/middle/1.txt   {"id": "middle1.txt", "article": text, "questions": [text],
                             "options": [[text, text, text, text]], "answers": ["B"]}

Other data sets are JSON lines or a JSON list, with one question per item:

    {"id": "7", "article": text, "question": text, "options": [text, text],
     "answer": "B"}

`answer` is a letter, or the index of the option from 0. By default, `id` is the name of
the file and the number of the line or row. Other keys are ignored. Answers that a run
does not need may be absent or null. Empty options at the end of a list are dropped.
"""

import dataclasses
import re
import string
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from albert_tf import errors
from albert_tf.data import json_values
from albert_tf.data.files import read_text
from albert_tf.data.json_values import get, name_type
from albert_tf.errors import InputError

LETTERS = string.ascii_uppercase
LEVELS = ("middle", "high")  # schools, as names of folders
# The blank of a question is a gap into which the option goes. It is written as
# underscores, but a single underscore between letters or digits (`file_name`) is no
# blank.
BLANK = re.compile(r"__+|(?<![^\W_])_|_(?![^\W_])")
_ALL = "all.txt"


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A question with its choices.

    Attributes:
        id: the question's id; for RACE the passage's id and the number of the question
            from 1, as in "middle1.txt-1".
        article: the passage; may be empty.
        text: the question, which may have blanks, see `choices`; may be empty.
        options: C possible answers.
        answer: index of the correct option; None if unknown.
        level: "middle" or "high" for RACE, otherwise "".
        location: location in the file, for messages.
    """

    id: str
    article: str
    text: str
    options: tuple[str, ...]
    answer: int | None = None
    level: str = ""
    location: str = ""

    @property
    def choices(self) -> list[str]:
        """C texts: the question with one option in its blanks, or after the question.

        **As released:** in RACE, each `_` is a blank. For other data, this differs:
        several underscores in a row are one blank, and `_` between letters or digits
        (`file_name`) is no blank.
        """
        parts = re.split("_" if self.level else BLANK, self.text)
        if len(parts) == 1:
            return [f"{self.text} {option}" for option in self.options]
        return [option.join(parts) for option in self.options]


def read_split(
    data_dir: str | Path,
    split: str,
    levels: Sequence[str] = LEVELS,
    encoding: str = "utf-8",
) -> list[Question]:
    """Reads a split of RACE, one level after the other.

    Args:
        data_dir: the folder with `train`, `dev` and `test`, or the parent of a
            folder RACE that has them.
        split: "train", "dev" or "test".
        levels: the levels to read.
        encoding: the encoding of files without a byte order mark.

    Raises:
        InputError: a folder is missing or empty, or `read_file` raises it.
    """
    roots = (Path(data_dir, "RACE"), Path(data_dir))
    root = next((root for root in roots if (root / split).is_dir()), None)
    if root is None:
        raise InputError(
            f"--data_dir={data_dir}: no folder {split}; expected the folder RACE of "
            f"the data set, with train, dev and test in it, or its parent folder"
        )
    questions: list[Question] = []
    for level in levels:
        for path in _list_files(root / split / level):
            questions += read_file(path, encoding, level)
    return questions


def read_file(
    path: str | Path, encoding: str = "utf-8", level: str = ""
) -> list[Question]:
    """Reads a file of RACE or of another data set.

    The docstring of the module describes the formats.

    Args:
        path: the file; `files.to_utf8` decodes it.
        encoding: the encoding of a file without a byte order mark.
        level: "middle" or "high" for the questions of RACE, otherwise "".

    Raises:
        InputError: the file cannot be read, has no question, or is not JSON; a key is
            missing or its value has the wrong type; the numbers of questions, answers
            and lists of options differ; there are fewer than 2 or more than 26 options;
            or an answer is not an option.
    """
    questions: list[Question] = []
    for location, value in json_values.locate_rows(read_text(path, encoding), path):
        questions += _parse(value, level, location)
    if not questions:
        raise InputError(f"{path}: no question; expected JSON with one or more")
    return questions


def _list_files(folder: Path) -> list[Path]:
    """Returns the files in the folder of a level; only `all.txt` if it is there."""
    if not folder.is_dir():
        raise InputError(
            f"{folder}: no such folder; add it, or use --middle_only or --high_only"
        )
    files = [path for path in sorted(folder.glob("[!.]*")) if path.is_file()]
    if not files:
        raise InputError(f"{folder}: no file; expected one for each passage, or {_ALL}")
    return [folder / _ALL] if folder / _ALL in files else files


def _parse(value: Any, level: str, location: str) -> Iterator[Question]:
    """Yields the questions of a passage of RACE, or a single question."""
    article = get(value, "article", str, location)
    id = value.get("id")
    if id in (None, ""):
        # The default id is the location without the folder: "file:line".
        id = Path(location).name
    if not isinstance(id, str | int | float):
        raise InputError(f"{location}: the id is {name_type(id)}; expected a text")
    is_passage = "questions" in value
    if is_passage:
        texts = get(value, "questions", list, location)
        option_lists = get(value, "options", list, location)
        answers = [None] * len(texts)
        if value.get("answers") is not None:
            answers = get(value, "answers", list, location)
    else:
        texts = [get(value, "question", str, location)]
        option_lists, answers = [value.get("options")], [value.get("answer")]
        level = ""  # only RACE has levels
    if not len(texts) == len(option_lists) == len(answers):
        raise InputError(
            f"{location}: {len(texts)} questions, {len(option_lists)} lists of "
            f"options, {len(answers)} answers; expected equal numbers"
        )
    for i, text in enumerate(texts):
        question_location = f"{location}: question {i + 1}" if is_passage else location
        if not isinstance(text, str):
            raise InputError(f"{question_location}: {name_type(text)}; expected a text")
        options = _parse_options(option_lists[i], question_location)
        answer = _parse_answer(answers[i], options, question_location)
        name = f"{id}-{i + 1}" if is_passage else str(id)
        yield Question(name, article, text, options, answer, level, question_location)


def drop_empty(options: Sequence[str]) -> Sequence[str]:
    """Returns options without empty ones at the end; the first one always remains."""
    count = len(options)
    while count > 1 and not options[count - 1]:
        count -= 1
    return options[:count]


def _parse_options(value: Any, location: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(o, str) for o in value):
        raise InputError(f"{location}: the options are not a list of texts")
    options = tuple(drop_empty(value))
    if not 2 <= len(options) <= len(LETTERS):
        raise InputError(
            f"{location}: {len(options)} options; expected 2 to {len(LETTERS)}"
        )
    return options


def _parse_answer(value: Any, options: tuple[str, ...], location: str) -> int | None:
    """Returns the index of an option from its letter or index."""
    letters = LETTERS[: len(options)]
    if value is None:
        return None
    if isinstance(value, str) and len(value) == 1 and value in letters:
        return letters.index(value)
    if type(value) is int and 0 <= value < len(letters):
        return value
    raise InputError(
        f"{location}: answer {errors.quote(value)}; expected a letter from A to "
        f"{letters[-1]}, or a number from 0 to {len(letters) - 1}"
    )
