"""The file `run.json` with the flags of a run.

    {"task": "classification", "flags": {"learning_rate": 2e-05, ...},
     "vocabulary": "<hash>", "versions": {"albert_tf": ..., "tensorflow": ...}}

When a run resumes, the flags that differ from its `run.json` are logged. This command
repeats a run in another folder:

    albert-tf classify --config=runs/a/run.json --output_dir=runs/b
"""

import contextlib
import dataclasses
import importlib.metadata
import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import albert_tf
from albert_tf import flags
from albert_tf.data import files, json_values
from albert_tf.errors import InputError
from albert_tf.tasks import base
from albert_tf.weights import checkpoints, metadata

NAME = "run.json"
_LIBRARIES = ("tensorflow", "keras", "tensorflow-text", "sentencepiece", "numpy")


@dataclasses.dataclass(frozen=True)
class RunFile:
    """Writes the `run.json` of a run, and logs which flags of a resumed run changed.

    Attributes:
        folder: the run's folder.
        settings: the settings objects of the run, whose fields are its flags.
    """

    folder: Path
    settings: tuple[flags.Settings, ...]

    @property
    def flag_values(self) -> dict[str, Any]:
        """The values of all flags by name, in JSON's types."""
        values: dict[str, Any] = {}
        for group in self.settings:
            values |= flags.values(group)
        return json.loads(json.dumps(values))

    def _log_changes(self, log: Callable[[str], None]) -> None:
        """Logs which flags of a resumed run changed, in one line."""
        # A run resumes if it has checkpoints; with --num_runs, they are in subfolders.
        folders = (self.folder, *self.folder.glob("run-*"))
        if not any(map(checkpoints.list_steps, folders)):
            return
        saved, current = read_flags(self.folder), self.flag_values
        changed = [
            f"--{name}={current[name]} (before: {value})"
            for name, value in saved.items()
            if name in current and current[name] != value
        ]
        if changed:
            log(f"Flags changed since the run began: {', '.join(changed)}")

    def write(self, task: base.Task, log: Callable[[str], None]) -> None:
        """Writes the file into its folder, which must exist.

        Args:
            task: the task of the run.
            log: receives a line if flags of a resumed run changed.

        Raises:
            InputError: the old file is damaged, or the new one cannot be written.
        """
        self._log_changes(log)
        python = platform.python_version()
        versions = {"albert_tf": albert_tf.__version__, "python": python}
        for name in _LIBRARIES:
            # The file lacks the version of a library that is installed under another
            # name, such as tensorflow-cpu.
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                versions[name] = importlib.metadata.version(name)
        content = {
            "task": task.task_type,
            "flags": self.flag_values,
            "vocabulary": task.vocabulary,
            "versions": versions,
        }
        files.write(self.folder / NAME, metadata.to_json(content))

    def log_end(self, log: Callable[[str], None], options: str) -> None:
        """Logs the run's folder and a command that predicts with the model.

        Args:
            log: receives the lines.
            options: the other arguments of the command that predicts.
        """
        log(f"In {self.folder}: the model, metrics.jsonl, training_curves.png, {NAME}")
        log(f"Try it: albert-tf predict --model={self.folder}{options}")


def read_flags(folder: Path) -> dict[str, Any]:
    """Returns the flags of a run from its `run.json`; {} if there is no such file.

    Args:
        folder: the run's folder. If it is one of several runs (`run-1`), the file may
            be in the parent folder.

    Raises:
        InputError: the file is damaged.
    """
    paths = [folder / NAME]
    if folder.name.startswith("run-"):
        paths.append(folder.parent / NAME)
    path = next(filter(Path.is_file, paths), None)
    if path is None:
        return {}
    values = json_values.read_object(path).get("flags")
    if not isinstance(values, dict):
        raise InputError(f"{path}: 'flags' must be an object")
    return values
