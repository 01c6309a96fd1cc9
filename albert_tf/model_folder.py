"""What lets a folder of weights be used without the flags it was trained with.

Beside the checkpoints and `albert_config.json` stand the vocabulary and `task.json`,
which says what the outputs mean and how inputs are made.
"""

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from albert_tf import errors, json_values, records, tokenization
from albert_tf.config import AlbertConfig, read_json_object
from albert_tf.errors import InputError
from albert_tf.tokenization import Tokenizer

_TASK = "task.json"
_CONFIG = "albert_config.json"
_BEST = "model.ckpt-best"
# What predicting with a model of a kind needs of its `task.json`.
_NEEDED = {
    "classification": ("labels", "texts"),
    "multi_label": ("labels", "texts"),
    "regression": ("texts", "bounds"),
    "multiple_choice": ("max_qa_length",),
    "question_answering": (
        *("version", "head", "doc_stride", "max_query_length", "n_best_size"),
        *("max_answer_length", "start_n_top", "end_n_top", "null_score_diff_threshold"),
    ),
}


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_text, value))


def _is_count(value: Any) -> bool:
    return type(value) is int and value > 0


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300  # nor not a number


def _is_bounds(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))


def _is_name(value: Any) -> bool:
    """Whether it names a file that is in the folder itself."""
    if not _is_text(value) or value in ("", "..") or "\0" in value:
        return False
    return Path(value).name == value


_COUNT = _is_count, "an integer of at least 1"
# Of the keys of `task.json` that are read: the check, and what is expected.
_VALUES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "kind": (
        lambda value: _is_text(value) and value in _NEEDED,
        f"one of {', '.join(_NEEDED)}",
    ),
    "task": (_is_text, "a text"),
    "labels": (lambda value: value is None or _is_texts(value), "texts, or null"),
    "label_separator": (
        lambda value: value is None or (_is_text(value) and bool(value)),
        "a text, or null",
    ),
    "texts": (lambda value: _is_count(value) and value < 3, "1 or 2"),
    "bounds": (
        lambda value: value is None or _is_bounds(value),
        "two numbers, or null",
    ),
    "version": (lambda value: value in ("1.1", "2.0"), "1.1 or 2.0"),
    "head": (lambda value: value in ("linear", "conditional"), "linear or conditional"),
    "choices": (lambda value: type(value) is int and value >= 0, "an integer"),
    **dict.fromkeys(
        (
            *("max_seq_length", "max_qa_length", "doc_stride", "max_query_length"),
            *("n_best_size", "max_answer_length", "start_n_top", "end_n_top"),
        ),
        _COUNT,
    ),
    "null_score_diff_threshold": (
        lambda value: value is None or _is_number(value),
        "a number, or null",
    ),
    "threshold_fitted_on": (
        lambda value: value is None or _is_text(value),
        "a text, or null",
    ),
    "vocabulary": (_is_name, "the name of a file in this folder"),
    "do_lower_case": (lambda value: isinstance(value, bool), "true or false"),
}


@dataclasses.dataclass(frozen=True)
class ModelFolder:
    """A folder of a fine-tuned model.

    Attributes:
        config: the model's.
        tokenizer: with the vocabulary and casing that it was trained with.
        task: the contents of `task.json`: "kind" ("classification", ...) and what goes
            with it.
    """

    config: AlbertConfig
    tokenizer: Tokenizer
    task: Mapping[str, Any]


def write(folder: Path, tokenizer: Tokenizer, task: Mapping[str, Any]) -> None:
    """Copies the vocabulary into a folder, and writes `task.json`.

    Args:
        folder: made if need be.
        tokenizer: whose vocabulary and casing are noted.
        task: what else `task.json` says, see `ModelFolder`.

    Raises:
        InputError: the folder cannot be written.
    """
    vocabulary = folder / Path(tokenizer.path).name
    with errors.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if vocabulary.resolve() != Path(tokenizer.path).resolve():
            shutil.copyfile(tokenizer.path, vocabulary)
    contents = {
        **task,
        "vocabulary": vocabulary.name,
        "do_lower_case": tokenizer.do_lower_case,
    }
    with records.atomic(str(folder / _TASK)) as file:
        file.write(json.dumps(contents, indent=2, ensure_ascii=False).encode() + b"\n")


def read(folder: str | Path) -> ModelFolder:
    """Opens a folder that `write` and a run have filled.

    Raises:
        InputError: something is missing or damaged.
    """
    folder = Path(folder)
    if not (folder / _TASK).is_file():
        raise InputError(
            f"{folder}: no {_TASK}; expected the output_dir of a fine-tuning run"
        )
    task = _read_task(folder)
    return ModelFolder(
        config=AlbertConfig.from_json_file(folder / _CONFIG),
        tokenizer=_noted(folder, task),
        task=task,
    )


def task_of(folder: Path) -> Mapping[str, Any] | None:
    """Returns the contents of a folder's `task.json`; None where there is none.

    Raises:
        InputError: it is no JSON object, or a value is of another type than is read.
    """
    return _read_task(folder) if (folder / _TASK).is_file() else None


def _read_task(folder: Path) -> Mapping[str, Any]:
    path = folder / _TASK
    task = read_json_object(path)
    for key, (is_right, expected) in _VALUES.items():
        if key in task and not is_right(task[key]):
            raise InputError(
                f"{path}: {key}={json_values.shown(task[key])}: expected {expected}"
            )
    return task


def check_complete(folder: Path, task: Mapping[str, Any]) -> None:
    """Refuses a `task.json` that does not hold what its kind needs to be used.

    Args:
        folder: where it is.
        task: its contents, see `task_of`.

    Raises:
        InputError: a key is missing.
    """
    if "kind" not in task:
        raise InputError(f"{folder / _TASK}: expected the key 'kind'")
    for key in _NEEDED[task["kind"]]:
        if key not in task:
            raise InputError(
                f"{folder / _TASK}: expected the key {key!r}, for {task['kind']}"
            )
    if task["kind"] in ("classification", "multi_label") and task["labels"] is None:
        raise InputError(f"{folder / _TASK}: labels=null: expected texts")


def copy(source: Path, target: Path) -> None:
    """Copies a fine-tuned model without its other checkpoints; both are folders.

    Raises:
        InputError: something cannot be copied.
    """
    vocabulary, _ = _vocabulary_in(source, _read_task(source))
    with errors.writing(target):
        for name in (_CONFIG, vocabulary, _TASK):
            shutil.copyfile(source / name, target / name)
        for path in sorted(source.glob(f"{_BEST}.*")):
            shutil.copyfile(path, target / path.name)


def find_config(folders: Iterable[Path]) -> AlbertConfig | None:
    """Returns the configuration in the first of some folders that has one."""
    for folder in folders:
        for name in (_CONFIG, f"assets/{_CONFIG}"):
            if (folder / name).is_file():
                return AlbertConfig.from_json_file(folder / name)
    return None


def open_tokenizer(
    spm_model_file: str | None,
    vocab_file: str | None,
    folders: Iterable[Path],
    do_lower_case: bool | None,
) -> Tokenizer:
    """Opens a vocabulary that is named, and finds out its casing.

    That is in this order: as given, as the `task.json` beside the vocabulary notes, as
    the first `task.json` of the weights' folders notes, as the vocabulary itself says,
    lower case.

    Args:
        spm_model_file: SentencePiece's; it counts where both are given.
        vocab_file: WordPiece's.
        folders: of the weights that it goes with.
        do_lower_case: casing.

    Raises:
        InputError: a file cannot be read or is damaged.
    """
    own = Path(spm_model_file or vocab_file or "").parent
    notes = filter(None, map(task_of, (own, *folders)))
    noted = next((n["do_lower_case"] for n in notes if "do_lower_case" in n), None)
    casing = noted if do_lower_case is None else do_lower_case
    return tokenization.load(spm_model_file, vocab_file, casing)


def find_tokenizer(
    folders: Iterable[Path], do_lower_case: bool | None
) -> Tokenizer | None:
    """Returns the tokenizer of the first of some folders that has a vocabulary.

    Args:
        folders: of runs, released checkpoints or TF-Hub modules.
        do_lower_case: None: as the folder notes, or the vocabulary; else lower-casing.

    Raises:
        InputError: a folder has several vocabularies, or one is damaged.
    """
    for folder in folders:
        if task := task_of(folder):
            return _noted(folder, task, do_lower_case)
        found = [
            path
            for place in (folder, folder / "assets")
            for pattern in ("*.model", "vocab*.txt")
            for path in sorted(place.glob(pattern))
        ]
        if len(found) > 1:
            raise InputError(
                f"{folder}: {len(found)} vocabularies "
                f"({', '.join(path.name for path in found)}); expected "
                f"--spm_model_file or --vocab_file"
            )
        if found:
            return _open(found[0], do_lower_case)
    return None


def _noted(
    folder: Path, task: Mapping[str, Any], do_lower_case: bool | None = None
) -> Tokenizer:
    name, casing = _vocabulary_in(folder, task)
    return _open(folder / name, casing if do_lower_case is None else do_lower_case)


def _vocabulary_in(folder: Path, task: Mapping[str, Any]) -> tuple[str, bool]:
    """Returns the name of the vocabulary in a folder, and its casing."""
    try:
        return task["vocabulary"], task["do_lower_case"]
    except KeyError as missing:
        raise InputError(f"{folder / _TASK}: expected the key {missing}") from None


def _open(path: Path, do_lower_case: bool | None) -> Tokenizer:
    if path.suffix == ".txt":
        return tokenization.load(vocab_file=str(path), do_lower_case=do_lower_case)
    return tokenization.load(spm_model_file=str(path), do_lower_case=do_lower_case)
