"""What lets a folder of weights be used without the flags it was trained with.

Beside the checkpoints and `albert_config.json` stand the vocabulary and `task.json`,
which says what the outputs mean and how inputs are made. Where there is no task
(pretraining, exports), `vocabulary.json` alone names the vocabulary.
"""

import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from albert_tf import errors
from albert_tf.data import json_values, records
from albert_tf.errors import InputError
from albert_tf.model.config import AlbertConfig, read_json_object
from albert_tf.text import tokenization
from albert_tf.text.tokenization import Tokenizer

VOCABULARY = "vocabulary.json"
_TASK = "task.json"
_CONFIG = "albert_config.json"
_BEST = "model.ckpt-best"
_OF_WEIGHTS = (
    *("*.index", "*.safetensors", "*.h5", "*.keras", "*.bin", "saved_model.pb"),
    _TASK,
)
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
    "keep_accents": (lambda value: isinstance(value, bool), "true or false"),
    "fingerprint": (_is_text, "a text"),
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
    _copy_vocabulary(folder, tokenizer)
    contents = {**task, **identity(tokenizer)}
    with records.atomic(str(folder / _TASK)) as file:
        file.write(_json(contents))


def write_vocabulary(
    folder: Path, identity: Mapping[str, Any], tokenizer: Tokenizer | None
) -> None:
    """Notes the vocabulary of a folder without a task.

    Args:
        folder: made if need be.
        identity: see `identity`.
        tokenizer: whose file is copied; None where it is gone.

    Raises:
        InputError: the folder cannot be written.
    """
    if tokenizer:
        _copy_vocabulary(folder, tokenizer)
    with errors.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with records.atomic(str(folder / VOCABULARY)) as file:
        file.write(_json(identity))


def _copy_vocabulary(folder: Path, tokenizer: Tokenizer) -> None:
    """Copies a file, in one move; a link of that name gives way to the copy.

    Raises:
        InputError: the folder cannot be written, or holds another file of that name
            that no run has put there.
    """
    source = Path(tokenizer.path)
    vocabulary = folder / source.name
    with errors.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        contents = source.read_bytes()
        if vocabulary.is_file() and vocabulary.read_bytes() == contents:
            return
        if vocabulary.exists() and not _note_naming(vocabulary):
            raise InputError(
                f"{vocabulary}: exists, and is not {source}; expected another name, or "
                f"another folder"
            )
        new = folder / f".{source.name}.{os.getpid()}"
        try:
            new.write_bytes(contents)
            new.replace(vocabulary)
        finally:
            new.unlink(missing_ok=True)


def identity(tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns what names a vocabulary in a folder: file, cleaning and fingerprint."""
    return {
        "vocabulary": Path(tokenizer.path).name,
        "do_lower_case": tokenizer.do_lower_case,
        "keep_accents": tokenizer.keep_accents,
        "fingerprint": tokenizer.fingerprint,
    }


def identity_json(tokenizer: Tokenizer) -> bytes:
    """Returns what stands in a `vocabulary.json`."""
    return _json(identity(tokenizer))


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n"


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
        tokenizer=_noted(folder / _TASK, task),
        task=task,
    )


def task_of(folder: Path) -> Mapping[str, Any] | None:
    """Returns the contents of a folder's `task.json`; None where there is none.

    Raises:
        InputError: it is no JSON object, or a value is of another type than is read.
    """
    return _read_task(folder) if (folder / _TASK).is_file() else None


def _read_task(folder: Path) -> Mapping[str, Any]:
    return _read_note(folder / _TASK)


def _read_note(path: Path) -> Mapping[str, Any]:
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
    vocabulary = _needed(source / _TASK, _read_task(source), "vocabulary")
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


def check_vocabulary(
    config: AlbertConfig, tokenizer: Tokenizer, folders: Iterable[Path]
) -> None:
    """Refuses a vocabulary of another size than the model's.

    Args:
        config: the model's.
        tokenizer: has the vocabulary.
        folders: where the weights may be, see `is_noted`.

    Raises:
        InputError: see `AlbertConfig.check_vocabulary`.
    """
    path, size = tokenizer.path, tokenizer.vocab_size
    config.check_vocabulary(path, size, is_noted(folders))


def is_noted(folders: Iterable[Path]) -> bool:
    """Whether the first of some folders that has weights notes their vocabulary.

    Returns:
        True also where none has weights: a new model's vocabulary is noted.
    """
    for folder in folders:
        if any(next(folder.glob(pattern), None) for pattern in _OF_WEIGHTS):
            return fingerprint_of(folder) is not None
    return True


def places(output_dir: str, start: str | None) -> list[Path]:
    """Lists where a run's files may be: one that is resumed has its own.

    Args:
        output_dir: the run's.
        start: the weights that it starts from, a file or a folder, if there are any.
    """
    found = [Path(output_dir)]
    if start:
        found.append(Path(start) if Path(start).is_dir() else Path(start).parent)
    return found


def fingerprint_of(folder: Path) -> str | None:
    """Returns the fingerprint of a folder's vocabulary; None where none is noted.

    Raises:
        InputError: what notes it is damaged.
    """
    note = _note_in(folder)
    return note[1].get("fingerprint") if note else None


def open_tokenizer(
    spm_model_file: str | None,
    vocab_file: str | None,
    folders: Iterable[Path],
    do_lower_case: bool | None,
    keep_accents: bool | None = None,
) -> Tokenizer:
    """Opens a vocabulary that is named, and finds out how text is cleaned for it.

    That is in this order: as given, as a note beside the weights that has the
    vocabulary's fingerprint, as the note in the vocabulary's own folder that names it,
    as other notes beside the weights, as the vocabulary itself, as released.

    Args:
        spm_model_file: SentencePiece's; it counts where both are given.
        vocab_file: WordPiece's.
        folders: of the weights that it goes with.
        do_lower_case: casing.
        keep_accents: whether combining marks stay.

    Raises:
        InputError: a file cannot be read or is damaged, or a folder notes another
            vocabulary.
    """
    notes = list(filter(None, map(_note_in, folders)))
    for note in notes[:1]:
        _check_same((spm_model_file, vocab_file), *note)
    beside_weights = [note for _, note in notes]
    certain = [note for note in beside_weights if "fingerprint" in note]
    own = _note_naming(Path(spm_model_file or vocab_file or ""))
    given = {"do_lower_case": do_lower_case, "keep_accents": keep_accents}
    cleaning = (
        _first(value, *(note.get(key) for note in (*certain, own, *beside_weights)))
        for key, value in given.items()
    )
    return tokenization.load(spm_model_file, vocab_file, *cleaning)


def find_tokenizer(
    folders: Iterable[Path],
    do_lower_case: bool | None = None,
    keep_accents: bool | None = None,
) -> Tokenizer | None:
    """Returns the tokenizer of the first of some folders that has a vocabulary.

    Args:
        folders: of runs, released checkpoints or TF-Hub modules.
        do_lower_case: None: as the folder notes, or the vocabulary; else lower case.
        keep_accents: None: as the folder notes, or the vocabulary; else false.

    Raises:
        InputError: a folder has several vocabularies, one is damaged, or it is not the
            one that the folder notes.
    """
    cleaning = do_lower_case, keep_accents
    for folder in folders:
        note = _note_in(folder)
        if note:
            path, content = note
            name = content.get("vocabulary", "")
            # What a pretraining run could not copy is put there by hand.
            if path.name == _TASK or (path.parent / name).is_file():
                return _noted(path, content, *cleaning)
        if found := _only_vocabulary(folder):
            if note:
                return open_tokenizer(*_kinds(found), [folder], *cleaning)
            return tokenization.load(*_kinds(found), *cleaning)
    return None


def _note_in(folder: Path) -> tuple[Path, Mapping[str, Any]] | None:
    """Reads the file that names a folder's vocabulary."""
    for name in (_TASK, VOCABULARY, f"assets/{VOCABULARY}"):
        if (folder / name).is_file():
            return folder / name, _read_note(folder / name)
    return None


def _note_naming(vocabulary: Path) -> Mapping[str, Any]:
    """Reads the note in a vocabulary's folder; empty where it names no such file."""
    found = _note_in(vocabulary.parent)
    if found is None or found[1].get("vocabulary") != vocabulary.name:
        return {}
    return found[1]


def _noted(
    path: Path,
    note: Mapping[str, Any],
    do_lower_case: bool | None = None,
    keep_accents: bool | None = None,
) -> Tokenizer:
    """Opens the vocabulary that `task.json` or `vocabulary.json` names."""
    files = _kinds(path.parent / _needed(path, note, "vocabulary"))
    _check_same(files, path, note)
    casing = _first(do_lower_case, _needed(path, note, "do_lower_case"))
    accents = _first(keep_accents, note.get("keep_accents"))
    return tokenization.load(*files, casing, accents)


_Files = tuple[str | None, str | None]


def _check_same(files: _Files, path: Path, note: Mapping[str, Any]) -> None:
    """Refuses a vocabulary other than the one whose fingerprint is noted."""
    if "fingerprint" not in note:
        return
    cleaning = note.get("do_lower_case"), note.get("keep_accents")
    tokenizer = tokenization.load(*files, *cleaning)
    if tokenizer.fingerprint != note["fingerprint"]:
        raise InputError(
            f"{tokenizer.path}: {tokenizer.vocab_size} pieces, and not the vocabulary "
            f"that {path} names; expected {note.get('vocabulary') or 'that one'}"
        )


def _needed(path: Path, note: Mapping[str, Any], key: str) -> Any:
    if key not in note:
        raise InputError(f"{path}: expected the key {key!r}")
    return note[key]


def _only_vocabulary(folder: Path) -> Path | None:
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
    return found[0] if found else None


def _first(*values: bool | None) -> bool | None:
    return next((value for value in values if value is not None), None)


def _kinds(path: Path) -> _Files:
    """Returns the arguments of `tokenization.load` for a vocabulary of either kind."""
    return (None, str(path)) if path.suffix == ".txt" else (str(path), None)
