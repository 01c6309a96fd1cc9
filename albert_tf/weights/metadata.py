"""Reads and writes `task.json` and `vocabulary.json`, the metadata of weights.

The files are in the folder of the weights. `task.json` describes the inputs and outputs
of a fine-tuned model, and names its vocabulary. In folders without a task (pretraining,
exports), `vocabulary.json` names the vocabulary. In a folder of Hugging Face,
`config.json` describes the outputs.
"""

import glob
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from albert_tf import errors
from albert_tf.data import files, json_values
from albert_tf.errors import InputError
from albert_tf.text.tokenization import Tokenizer
from albert_tf.weights import checkpoints

VOCABULARY = "vocabulary.json"
TASK = "task.json"
CONFIG = "albert_config.json"
HF_CONFIG = "config.json"

# `problem_type` in transformers' `config.json`, by kind of task in `task.json`.
HF_PROBLEMS = {
    "classification": "single_label_classification",
    "multi_label": "multi_label_classification",
    "regression": "regression",
}
# Contents of `task.json` for the head of SQuAD 1.1.
SPAN_TASK = {"kind": "question_answering", "head": "linear"}
# For each class of model: the end of its name in transformers (after "AlbertFor"), and
# the contents of `task.json` for a model of this architecture.
HF_TASKS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "AlbertClassifier": ("SequenceClassification", {"kind": "classification"}),
    "AlbertTokenClassifier": ("TokenClassification", {"kind": "token_classification"}),
    "AlbertSpanLabeler": ("QuestionAnswering", SPAN_TASK),
    "AlbertMultipleChoice": ("MultipleChoice", {"kind": "multiple_choice"}),
    "AlbertPretrainer": ("MaskedLM", {"kind": "fill_mask"}),
}

# Keys of `task.json` whose values must be equal in all members of an ensemble.
_SHARED_KEYS = ["kind", "task", "labels", "label_separator", "texts", "choices"]
_SHARED_KEYS += ["version", "head"]


def write(folder: Path, tokenizer: Tokenizer | None, task: Mapping[str, Any]) -> None:
    """Copies the vocabulary into a folder, and writes the file that names it.

    Args:
        folder: the folder, which is created if it does not exist.
        tokenizer: the tokenizer whose vocabulary is copied and named. If None, only the
            keys of `task` are written.
        task: the other keys of the file, such as the kind of task and the labels. With
            the key "kind" the file is `task.json`, without it `vocabulary.json`.

    Raises:
        InputError: the folder cannot be written, or has another vocabulary of the same
            name.
    """
    name = TASK if "kind" in task else VOCABULARY
    if tokenizer:
        task = {**task, **identify(tokenizer)}
        vocabulary = folder / tokenizer.file_name
        if not vocabulary.exists():
            files.write(vocabulary, tokenizer.contents)
        elif vocabulary.read_bytes() != tokenizer.contents:
            raise InputError(
                f"{vocabulary}: exists, and differs from {tokenizer.path}; expected "
                f"another name, or another folder"
            )
    files.write(folder / name, to_json(task))


def identify(tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns a vocabulary's file name, settings of cleaning and fingerprint (hash)."""
    return {
        "vocabulary": tokenizer.file_name,
        "do_lower_case": tokenizer.do_lower_case,
        "keep_accents": tokenizer.keep_accents,
        "fingerprint": tokenizer.fingerprint,
    }


def to_json(values: Mapping[str, Any]) -> bytes:
    """Returns metadata as the contents of a JSON file."""
    return json.dumps(values, indent=2, ensure_ascii=False).encode() + b"\n"


def find_task(path: Path) -> Mapping[str, Any]:
    """Returns the task of a fine-tuned model, with the keys of `task.json`.

    The keys come from `task.json`, or if there is none, from Hugging Face's
    `config.json`. If the folder has neither file, there are no keys.

    Args:
        path: the model's folder, a file in it, or the prefix of a checkpoint.

    Raises:
        InputError: the file is not a JSON object, or has a value of a wrong type.
    """
    folder = path if path.is_dir() else path.parent
    return read_task(folder) or _read_hf_task(folder / HF_CONFIG)


def find_members(patterns: Sequence[str], name: str) -> list[str]:
    """Lists the models of an ensemble, and checks that all have the same task.

    Args:
        patterns: folders, or patterns of folders as in a shell, such as "run-*".
        name: the beginning of messages, such as the flag that gives the patterns.

    Raises:
        InputError: there is no fine-tuned model in a folder, or two models have
            different tasks, labels or numbers of choices.
    """
    folders: list[str] = []
    for pattern in patterns:
        # Sorting by length first puts "run-10" after "run-9".
        matches = sorted(glob.glob(pattern), key=lambda path: (len(path), path))
        # A pattern without a match stays in the list, so that an error below names it.
        folders += matches or [pattern]
    if not folders:
        raise InputError(f"{name}: requires one or more folders")
    first_task: Mapping[str, Any] = {}
    for folder in folders:
        task = find_task(Path(folder)) if Path(folder).is_dir() else {}
        if not task:
            raise InputError(f"{name}: no fine-tuned model in {folder!r}")
        first_task = first_task or task
        for key in _SHARED_KEYS:
            if task.get(key) != first_task.get(key):
                raise InputError(
                    f"{name}: {folder} has {key} {task.get(key)!r}, but {folders[0]} "
                    f"has {first_task.get(key)!r}; all members need the same"
                )
    return folders


def is_from_run(task: Mapping[str, Any]) -> bool:
    """Whether a task is from the `task.json` of a run of this package.

    Other tasks are from a `config.json` or follow from names of weights. They may lack
    keys. A run always writes the key "do_lower_case".
    """
    return "do_lower_case" in task


def _read_hf_task(path: Path) -> Mapping[str, Any]:
    """Returns the task in Hugging Face's `config.json`, with the keys of `task.json`.

    Returns:
        The keys and values; empty if there is no file, or if this package has no such
        task.
    """
    if not path.is_file():
        return {}
    config = json_values.read_object(path)
    architecture = re.search(r"AlbertFor(\w+)", str(config.get("architectures")))
    tasks = dict(HF_TASKS.values())  # by the end of the architecture's name
    task = tasks.get(architecture[1], {}) if architecture else {}
    kind = task.get("kind")
    if kind not in ("classification", "token_classification"):
        return task
    # If the file names no labels, there are two, as in transformers.
    names = json_values.get(config, "id2label", dict, str(path), default={})
    names = names or {"0": "LABEL_0", "1": "LABEL_1"}
    labels = [names.get(str(label_id)) for label_id in range(len(names))]
    if not _are_texts(labels):
        raise InputError(
            f"{path}: id2label={errors.quote(names)}: expected a text for each number "
            f"from 0 on"
        )
    if kind == "classification":
        # If the file names no type of problem, a single label means regression, as in
        # transformers.
        default = HF_PROBLEMS["classification" if len(labels) > 1 else "regression"]
        problem = str(config.get("problem_type") or default)
        kinds = {value: key for key, value in HF_PROBLEMS.items()}
        kind = kinds.get(problem)
    if kind == "regression":  # this package has no regression with several outputs
        return {} if len(labels) > 1 else {"kind": kind}
    return {"kind": kind, "labels": labels} if kind else {}


def read_task(folder: Path) -> Mapping[str, Any]:
    """Returns the contents of a folder's `task.json`; empty if there is none.

    KerasHub's file of this name is ignored.

    Raises:
        InputError: the file is not a JSON object, or has a value of a wrong type.
    """
    return _read(folder / TASK)


def _read(path: Path) -> Mapping[str, Any]:
    """Reads and checks a file of metadata; empty if there is none of this package."""
    task = json_values.read_object(path) if path.is_file() else {}
    if task.keys() >= {"class_name", "registered_name"}:
        return {}  # a file of KerasHub
    # `json_values.get` raises an error for a value of another type. The settings class
    # of the task checks the values of the remaining keys.
    for key in ("kind", "vocabulary", "fingerprint"):
        json_values.get(task, key, str, str(path), default="")
    for key in ("do_lower_case", "keep_accents"):
        json_values.get(task, key, bool, str(path), default=False)
    labels, vocabulary = task.get("labels") or [], task.get("vocabulary", "")
    if not _are_texts(labels):
        raise InputError(f"{path}: labels={errors.quote(labels)}: expected texts")
    if Path(vocabulary).name != vocabulary:
        raise InputError(
            f"{path}: vocabulary={errors.quote(vocabulary)}: expected the name of a "
            f"file in this folder"
        )
    return task


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(x, str) for x in values)


def copy(source: Path, target: Path) -> None:
    """Copies a folder of a fine-tuned model with only its best checkpoint.

    Raises:
        InputError: a file cannot be copied.
    """
    names = [CONFIG, read_task(source)["vocabulary"], TASK]
    names += [path.name for path in source.glob(f"{checkpoints.BEST}.*")]
    with errors.wrap_write(target), files.atomic_folder(target) as new:
        for name in names:
            shutil.copyfile(source / name, new / name)


def find_fingerprint(folder: Path) -> str | None:
    """Reads the fingerprint of a folder's vocabulary; None if no metadata have one.

    Raises:
        InputError: the metadata are damaged.
    """
    return find_vocabulary(folder)[1].get("fingerprint")


def find_vocabulary(folder: Path) -> tuple[Path, Mapping[str, Any]]:
    """Reads the metadata file that names a folder's vocabulary.

    Returns:
        The path and the contents of the first file that exists and is not empty. The
        order is `task.json`, `vocabulary.json`, and `assets/vocabulary.json`, which
        exports have. If there is none, the path of a missing `task.json`, and no
        contents.
    """
    for name in (TASK, VOCABULARY, f"assets/{VOCABULARY}"):
        if stored := _read(folder / name):
            return folder / name, stored
    return folder / TASK, {}
