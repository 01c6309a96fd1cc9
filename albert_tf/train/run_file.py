"""`run.json`: what a run was last given, and what differs when it resumes.

    {"task": "classification", "flags": {"learning_rate": 2e-05, ...},
     "vocabulary": fingerprint, "versions": {"albert_tf": ..., "tensorflow": ...}}

Its flags make the run again, in another folder:
`albert-tf classify --config=runs/a/run.json --output_dir=runs/b`.
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
from albert_tf import errors, flags
from albert_tf.data.files import atomic
from albert_tf.errors import InputError
from albert_tf.model.config import read_json_object
from albert_tf.tasks.base import Task
from albert_tf.weights import checkpoints

NAME = "run.json"
_LIBRARIES = ("tensorflow", "keras", "tensorflow-text", "sentencepiece", "numpy")


@dataclasses.dataclass(frozen=True)
class RunFile:
    """What a run is given.

    Attributes:
        folder: of the run.
        settings: all of its settings classes' objects.
    """

    folder: Path
    settings: tuple[flags.Settings, ...]

    @property
    def flags(self) -> dict[str, Any]:
        """Every flag, as JSON has it."""
        given: dict[str, Any] = {}
        for group in self.settings:
            given |= flags.values(group)
        return json.loads(json.dumps(given))

    def check(self, log: Callable[[str], None]) -> None:
        """Logs which flags differ from those that a run that resumes had before.

        Args:
            log: gets one line with all of them.

        Raises:
            InputError: the optimizer is another, whose slots the checkpoints lack, or
                the file is damaged.
        """
        folders = (self.folder, *self.folder.glob("run-*"))
        if not any(map(checkpoints.steps, folders)):
            return
        before, now = read_flags(self.folder), self.flags
        differing = [
            f"--{name}={now[name]} (before: {value})"
            for name, value in before.items()
            if name in now and now[name] != value
        ]
        if before.get("optimizer", now["optimizer"]) != now["optimizer"]:
            raise InputError(
                f"--optimizer={now['optimizer']}: the run in {self.folder} had "
                f"{before['optimizer']}; expected the same, or another --output_dir"
            )
        if differing:
            log(f"Other flags than the run had before: {', '.join(differing)}")

    def write(self, task: Task) -> None:
        """Writes the file, and the folder.

        Raises:
            InputError: it cannot be written.
        """
        versions = {"albert_tf": albert_tf.__version__}
        versions["python"] = platform.python_version()
        for name in _LIBRARIES:  # a build may have another name
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                versions[name] = importlib.metadata.version(name)
        content = {
            "task": task.kind,
            "flags": self.flags,
            "vocabulary": task.vocabulary,
            "versions": versions,
        }
        with errors.writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        with atomic(str(self.folder / NAME)) as file:
            text = json.dumps(content, indent=2, ensure_ascii=False)
            file.write(f"{text}\n".encode())

    def ended(self, log: Callable[[str], None], options: str = "") -> None:
        """Logs where everything lies, and how to ask the model.

        Args:
            log: gets the lines.
            options: of the command that asks it.
        """
        log(f"In {self.folder}: the model, metrics.jsonl, training_curves.png, {NAME}")
        log(f"Try it: albert-tf predict --model={self.folder}{options}")


def read_flags(folder: Path) -> dict[str, Any]:
    """Returns the flags that a run was last given; empty without `run.json`.

    Args:
        folder: of the run; of one of several, the folder above it has the file.

    Raises:
        InputError: the file is damaged.
    """
    for place in (folder, folder.parent) if folder.name[:4] == "run-" else (folder,):
        if (place / NAME).is_file():
            found = read_json_object(place / NAME).get("flags")
            if not isinstance(found, dict):
                raise InputError(f"{place / NAME}: expected the key 'flags', an object")
            return found
    return {}
