"""Scores files of predictions, of this package or others, against what is right."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from albert_tf.data import json_values, tables
from albert_tf.errors import InputError, reading
from albert_tf.tasks import catalogue, squad
from albert_tf.tasks.race import task as race
from albert_tf.tasks.race.reading import Question, read_file, read_split
from albert_tf.tasks.settings.scoring import ScoreSettings
from albert_tf.tasks.text_task import TextTask

_OF_SUFFIX = {".json": "squad", ".jsonl": "race"}


def score(predictions: str, settings: ScoreSettings) -> dict[str, float]:
    """Scores a file of predictions.

    Args:
        predictions: `predictions.json` of SQuAD, `predictions.jsonl` of RACE, or
            `submit_results.tsv` or a file for GLUE's site.
        settings: the task and the data.

    Returns:
        The task's scores; those of SQuAD are percent, as its script prints them, others
        are fractions.

    Raises:
        InputError: the task is not known, a file cannot be read, or predictions and
            data do not belong together.
    """
    path = Path(predictions)
    name = settings.task or _OF_SUFFIX.get(path.suffix) or _of_site(path.name)
    if name == "squad":
        return squad.evaluate_files(
            settings.data,
            predictions,
            null_odds_json=settings.null_odds_file,
            threshold=settings.threshold,
        )
    if settings.null_odds_file is not None:
        raise InputError(
            f"--null_odds_file={settings.null_odds_file}: expected SQuAD, not {name}"
        )
    if name == "race":
        return score_race(path, Path(settings.data))
    try:
        task = catalogue.find(name)
    except InputError as error:
        message = str(error).removeprefix("--task_name=").removesuffix(" or custom")
        raise InputError(f"--task={message}, race, squad") from None
    return score_table(task, path, Path(settings.data))


def score_race(path: Path, data: Path) -> dict[str, float]:
    """Scores `predictions.jsonl` of RACE; see `score`."""
    if data.is_dir():
        levels = [level for level in race.LEVELS if (data / level).is_dir()]
        questions = read_split(data.parent, data.name, levels or race.LEVELS)
    else:
        questions = read_file(data)
    for question in questions:
        if question.answer is None:
            raise InputError(f"{question.place}: no answer; expected one to score")
    choices: dict[str, int] = {}
    options = {question.id: question for question in questions}
    if len(options) < len(questions):
        raise InputError(f"{data}: several questions have one id")
    with reading(path), open(path, "rb") as file:
        for number, line in tables.lines(file, path):
            place = f"{path}:{number}"
            if line.strip():
                row = json_values.parse(line, path, number)
                id = json_values.get(row, "id", str, place)
                _check_id(id, options, choices, place, data)
                choices[id] = _choice(row, options[id], place)
    _check_all(options, choices, path)
    numbers = [choices[question.id] for question in questions]
    return race.accuracies(np.eye(max(numbers) + 1)[numbers], questions)


def score_table(task: TextTask, path: Path, data: Path) -> dict[str, float]:
    """Scores a table with the columns index and prediction; see `score`."""
    split = next((name for name in task.headers if name.startswith("dev")), "dev")
    examples = _with_files(task, split, data).read(split, data.parent).rows
    answers = {example.guid: example for example in examples}
    if len(answers) < len(examples):
        raise InputError(f"{data}: several rows have one index")
    # A table whose texts are the indices.
    own = dataclasses.replace(
        task, index=None, headers={}, text=("index",), label="prediction"
    )
    table = _with_files(own, "dev", path).read("dev", path.parent)
    given: dict[str, Any] = {}
    for row, example in enumerate(table.rows, 1):
        _check_id(example.text_a, answers, given, f"{path}: row {row}", data)
        given[example.text_a] = example
    _check_all(answers, given, path)
    ordered = [given[example.guid] for example in examples]
    return task.score(task.targets(examples), task.targets(ordered))


def _of_site(name: str) -> str:
    """Returns the task of a file for GLUE's site."""
    for task in catalogue.TASKS.values():
        if name in task.submission.values():
            return task.name
    raise InputError(
        f"{name}: its name does not show the task; expected --task=squad, race or a "
        f"task of GLUE with it"
    )


def _with_files(task: TextTask, split: str, path: Path) -> TextTask:
    return dataclasses.replace(task, files={split: path.name})


def _choice(row: Any, question: Question, place: str) -> int:
    choice = json_values.get(row, "choice", int, place)
    if not 0 <= choice < len(question.options):
        raise InputError(
            f"{place}: choice {choice}; expected 0 to {len(question.options) - 1}"
        )
    return choice


def _check_id(id: str, expected: Any, given: Any, place: str, data: Path) -> None:
    if id not in expected:
        raise InputError(f"{place}: {id!r} is not in {data}")
    if id in given:
        raise InputError(f"{place}: {id!r} has a prediction before")


def _check_all(expected: Any, given: Any, path: Path) -> None:
    missing = [id for id in expected if id not in given]
    if missing:
        raise InputError(
            f"{path}: {len(missing)} of {len(expected)} have no prediction, the first "
            f"is {missing[0]!r}"
        )
