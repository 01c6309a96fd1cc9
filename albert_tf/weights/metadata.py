"""`task.json` and `vocabulary.json`, which stand beside weights.

`task.json` describes the outputs of a fine-tuned model and how inputs are made for it,
and names its vocabulary. Where there is no task (pretraining, exports),
`vocabulary.json` alone names the vocabulary. In a folder of Hugging Face,
`config.json` describes the outputs.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from albert_tf import errors
from albert_tf.data import json_values
from albert_tf.data.files import atomic, write_together
from albert_tf.errors import InputError
from albert_tf.model.config import read_json_object
from albert_tf.text.tokenization import Tokenizer
from albert_tf.weights import checkpoints

VOCABULARY = "vocabulary.json"
TASK = "task.json"
CONFIG = "albert_config.json"
HF_CONFIG = "config.json"

# What transformers calls the kinds of sequence classification, and the heads of others.
HF_PROBLEMS = {
    "classification": "single_label_classification",
    "multi_label": "multi_label_classification",
    "regression": "regression",
}
_HF_KINDS = {
    "SequenceClassification": "classification",
    "TokenClassification": "token_classification",
    "QuestionAnswering": "question_answering",
    "MultipleChoice": "multiple_choice",
    "MaskedLM": "fill_mask",
}


# Keys of `task.json` that are read here. All others belong to the family of the task,
# which checks them.
_TYPES = {
    "kind": str,
    "vocabulary": str,
    "do_lower_case": bool,
    "keep_accents": bool,
    "fingerprint": str,
}


def write_task(
    folder: Path, tokenizer: Tokenizer | None, task: Mapping[str, Any]
) -> None:
    """Copies the vocabulary into a folder, and writes `task.json`.

    Args:
        folder: made if need be.
        tokenizer: whose vocabulary and casing are noted; None: none is known.
        task: what else `task.json` stores, see `FineTuningTask.description`.

    Raises:
        InputError: the folder cannot be written, or holds another vocabulary of that
            name.
    """
    contents = {**task, **(identity(tokenizer) if tokenizer else {})}
    _write(folder, TASK, contents, tokenizer)


def write_vocabulary(
    folder: Path, identity: Mapping[str, Any], tokenizer: Tokenizer | None
) -> None:
    """Notes the vocabulary of a folder without a task.

    Args:
        folder: made if need be.
        identity: see `identity`.
        tokenizer: whose file is copied; None where it is gone.

    Raises:
        InputError: see `write_task`.
    """
    _write(folder, VOCABULARY, identity, tokenizer)


def _write(
    folder: Path, name: str, contents: Mapping[str, Any], tokenizer: Tokenizer | None
) -> None:
    with errors.wrap_write(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if tokenizer:
        vocabulary = folder / tokenizer.file_name
        if not vocabulary.exists():
            with atomic(str(vocabulary)) as file:
                file.write(tokenizer.contents)
        elif vocabulary.read_bytes() != tokenizer.contents:
            raise InputError(
                f"{vocabulary}: exists, and is not {tokenizer.path}; expected another "
                f"name, or another folder"
            )
    with atomic(str(folder / name)) as file:
        file.write(_json(contents))


def identity(tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns what names a vocabulary in a folder: file, cleaning and fingerprint."""
    return {
        "vocabulary": tokenizer.file_name,
        "do_lower_case": tokenizer.do_lower_case,
        "keep_accents": tokenizer.keep_accents,
        "fingerprint": tokenizer.fingerprint,
    }


def identity_json(tokenizer: Tokenizer) -> bytes:
    """Returns what stands in a `vocabulary.json`."""
    return _json(identity(tokenizer))


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n"


def find_task(path: Path) -> Mapping[str, Any]:
    """Returns what a model was fine-tuned for, in the keys of `task.json`.

    They are those of its `task.json`; else those that Hugging Face's `config.json`
    answers; without either there are none.

    Args:
        path: the model's folder, a file in it, or the prefix of a checkpoint.

    Raises:
        InputError: see `read_task`; or labels that are not numbered from 0 on.
    """
    folder = path if path.is_dir() else path.parent
    task = read_task(folder)
    if task is None and (folder / HF_CONFIG).is_file():
        task = _hf_task(folder / HF_CONFIG)
    return task or {}


def is_written(task: Mapping[str, Any]) -> bool:
    """Whether a run wrote a `task.json`: other descriptions may lack keys."""
    return "do_lower_case" in task


def _hf_task(path: Path) -> Mapping[str, Any] | None:
    config = read_json_object(path)
    classes = config.get("architectures")
    theirs = classes[0] if isinstance(classes, list) and classes else ""
    kind = _HF_KINDS.get(str(theirs).rpartition("AlbertFor")[2])
    if kind == "question_answering":
        return {"kind": kind, "head": "linear"}
    if kind not in ("classification", "token_classification"):
        return {"kind": kind} if kind else None
    # As in transformers, two labels unless the file says otherwise.
    names = config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    labels: Any = None
    if isinstance(names, dict):
        labels = [names.get(str(number)) for number in range(len(names))]
    if not _are_texts(labels):
        raise InputError(
            f"{path}: id2label={errors.quote(names)}: expected a text for each number "
            f"from 0 on"
        )
    if kind == "classification":
        default = HF_PROBLEMS["classification" if labels[1:] else "regression"]
        problem = str(config.get("problem_type") or default)
        kind = {theirs: ours for ours, theirs in HF_PROBLEMS.items()}.get(problem)
    if kind == "regression":
        return None if labels[1:] else {"kind": kind}
    return {"kind": kind, "labels": labels} if kind else None


def read_task(folder: Path) -> Mapping[str, Any] | None:
    """Returns the contents of a folder's `task.json`; None where there is none.

    KerasHub has a file of this name, too, which does not count.

    Raises:
        InputError: it is no JSON object, or a value is of another type than is read.
    """
    return _read(folder / TASK) if (folder / TASK).is_file() else None


def _read(path: Path) -> Mapping[str, Any] | None:
    task = read_json_object(path)
    if task.keys() >= {"class_name", "registered_name"}:
        return None  # of KerasHub
    for key, kind in _TYPES.items():
        json_values.get(task, key, kind, str(path), kind())
    labels, name = task.get("labels") or [], task.get("vocabulary", "")
    if not _are_texts(labels):
        raise InputError(f"{path}: labels={errors.quote(labels)}: expected texts")
    if Path(name).name != name:
        raise InputError(
            f"{path}: vocabulary={errors.quote(name)}: expected the name of a file in "
            f"this folder"
        )
    return task


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(x, str) for x in values)


def copy(source: Path, target: Path) -> None:
    """Copies a fine-tuned model without its other checkpoints; both are folders.

    Raises:
        InputError: something cannot be copied.
    """
    vocabulary = (read_task(source) or {})["vocabulary"]
    with errors.wrap_write(target), write_together(target) as new:
        for name in (CONFIG, vocabulary, TASK):
            shutil.copyfile(source / name, new / name)
        for path in sorted(source.glob(f"{checkpoints.BEST}.*")):
            shutil.copyfile(path, new / path.name)


def fingerprint(folder: Path) -> str | None:
    """Returns the fingerprint of a folder's vocabulary; None where none is noted.

    Raises:
        InputError: what notes it is damaged.
    """
    note = find(folder)
    return note[1].get("fingerprint") if note else None


def find(folder: Path) -> tuple[Path, Mapping[str, Any]] | None:
    """Reads the file that names a folder's vocabulary."""
    for name in (TASK, VOCABULARY, f"assets/{VOCABULARY}"):
        if (folder / name).is_file() and (note := _read(folder / name)) is not None:
            return folder / name, note
    return None
