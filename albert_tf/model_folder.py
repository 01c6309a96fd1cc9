"""What lets a folder of weights be used without the flags it was trained with.

Beside the checkpoints and `albert_config.json` stand the vocabulary and `task.json`,
which says what the outputs mean and how inputs are made.
"""

import dataclasses
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from albert_tf import records, tokenization
from albert_tf.config import AlbertConfig, read_json_object
from albert_tf.errors import InputError
from albert_tf.tokenization import Tokenizer

_TASK = "task.json"
_CONFIG = "albert_config.json"
_BEST = "model.ckpt-best"


@dataclasses.dataclass(frozen=True)
class ModelFolder:
    """A folder of a fine-tuned model.

    Attributes:
        config: the model's.
        tokenizer: with the vocabulary and casing that it was trained with.
        task: the contents of `task.json`: "kind" ("classification", ...) and what goes
            with it.
        weights: what `weights.load` takes: the best checkpoint where there is one.
    """

    config: AlbertConfig
    tokenizer: Tokenizer
    task: Mapping[str, Any]
    weights: Path


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
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if vocabulary.resolve() != Path(tokenizer.path).resolve():
            shutil.copyfile(tokenizer.path, vocabulary)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}") from error
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
    task = read_json_object(folder / _TASK)
    return ModelFolder(
        config=AlbertConfig.from_json_file(folder / _CONFIG),
        tokenizer=_described(folder, task),
        task=task,
        weights=weights_in(folder),
    )


def weights_in(path: Path) -> Path:
    """Returns the best checkpoint of a run's folder; else the path."""
    is_run = (path / _TASK).is_file() or (path / f"{_BEST}.json").is_file()
    return path / _BEST if is_run and (path / f"{_BEST}.index").exists() else path


def task_of(folder: Path) -> Mapping[str, Any] | None:
    """Returns the contents of a folder's `task.json`; None where there is none."""
    path = folder / _TASK
    return read_json_object(path) if path.is_file() else None


def copy(source: Path, target: Path) -> None:
    """Copies a fine-tuned model without its other checkpoints; both are folders.

    Raises:
        InputError: something cannot be copied.
    """
    try:
        task = read_json_object(source / _TASK)
        for name in (_CONFIG, task["vocabulary"], _TASK):
            shutil.copyfile(source / name, target / name)
        for path in sorted(source.glob(f"{_BEST}.*")):
            shutil.copyfile(path, target / path.name)
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror}") from error


def find_config(folders: Iterable[Path]) -> AlbertConfig | None:
    """Returns the configuration in the first of some folders that has one."""
    for folder in folders:
        for name in (_CONFIG, f"assets/{_CONFIG}"):
            if (folder / name).is_file():
                return AlbertConfig.from_json_file(folder / name)
    return None


def find_tokenizer(
    folders: Iterable[Path], do_lower_case: bool | None
) -> Tokenizer | None:
    """Returns the tokenizer of the first of some folders that has a vocabulary.

    Args:
        folders: of runs, released checkpoints or TF-Hub modules.
        do_lower_case: None: as the folder says; lower-casing where it does not.

    Raises:
        InputError: a folder has several vocabularies.
    """
    for folder in folders:
        if (folder / _TASK).is_file():
            task = read_json_object(folder / _TASK)
            return _described(folder, task, do_lower_case)
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
            return _open(found[0], do_lower_case is not False)
    return None


def _described(
    folder: Path, task: Mapping[str, Any], do_lower_case: bool | None = None
) -> Tokenizer:
    try:
        path, casing = folder / task["vocabulary"], bool(task["do_lower_case"])
    except KeyError as missing:
        raise InputError(f"{folder / _TASK}: expected the key {missing}") from None
    return _open(path, casing if do_lower_case is None else do_lower_case)


def _open(path: Path, do_lower_case: bool) -> Tokenizer:
    if path.suffix == ".txt":
        return tokenization.load(vocab_file=str(path), do_lower_case=do_lower_case)
    return tokenization.load(spm_model_file=str(path), do_lower_case=do_lower_case)
