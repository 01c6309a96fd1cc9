"""`run.json`: what a run was last given, and what differs when it resumes.

    {"task": "classification", "flags": {"learning_rate": 2e-05, ...},
     "data": fingerprint of the examples, "vocabulary": fingerprint,
     "versions": {"albert_tf": ..., "tensorflow": ...}, "revision": of a git checkout}

Its flags make the run again, in another folder:
`albert-tf classify --config=runs/a/run.json --output_dir=runs/b`. A field of settings
declares what a change means to a run that resumes: `resume="refused"` or `"free"`;
other changes are logged as warnings.
"""

import dataclasses
import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Callable, Iterable, Mapping
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
        """Names each flag that differs from those that the run had before.

        Args:
            log: gets a warning for each that may differ.

        Raises:
            InputError: one differs that would spoil the run, or the file is damaged.
        """
        path = self.folder / NAME
        if not path.is_file() or not _has_checkpoints(self.folder):
            return
        before = read_json_object(path).get("flags")
        if not isinstance(before, Mapping):
            raise InputError(f"{path}: expected the key 'flags', an object")
        meanings = changes(type(group) for group in self.settings)
        now = self.flags
        warnings = []
        for name, meaning in meanings.items():
            # A flag that an earlier version did not have is none that differs.
            was, is_now = before.get(name, now[name]), now[name]
            if was == is_now or meaning == "free":
                continue
            difference = f"--{name}={_shown(is_now)}: the run had {_shown(was)}"
            if meaning == "refused":
                raise InputError(
                    f"{difference} ({path}); expected the same, or another --output_dir"
                )
            warnings.append(f"Warning: {difference}")
        for warning in warnings:
            log(warning)

    def write(self, task: Task) -> None:
        """Writes the file, and the folder.

        Raises:
            InputError: it cannot be written.
        """
        content = {
            "task": task.kind,
            "flags": self.flags,
            "data": task.training and task.training.fingerprint,
            "vocabulary": task.vocabulary,
            "versions": _versions(),
            "revision": _revision(),
        }
        with errors.writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        with atomic(str(self.folder / NAME)) as file:
            file.write(json.dumps(content, indent=2, ensure_ascii=False).encode())
            file.write(b"\n")

    def ended(self, log: Callable[[str], None], options: str = "") -> None:
        """Logs where everything lies, and how to ask the model.

        Args:
            log: gets the lines.
            options: of the command that asks it.
        """
        log(f"In {self.folder}: the model, metrics.jsonl, training_curves.png, {NAME}")
        log(f"To ask it: albert-tf predict --model={self.folder}{options}")


def settings(folder: Path, config: flags.Settings) -> dict[str, Any]:
    """Returns the settings of a run: all that its `run.json` has, and those given.

    Args:
        folder: of the run; of one of several, the folder above it has the file.
        config: what the run was called with.
    """
    above = folder.parent if folder.name.startswith("run-") else folder
    path = next((f / NAME for f in (folder, above) if (f / NAME).is_file()), None)
    stored = read_json_object(path).get("flags") if path else None
    noted = stored if isinstance(stored, dict) else {}
    return {**noted, **json.loads(json.dumps(flags.values(config)))}


def changes(settings: Iterable[type]) -> dict[str, str]:
    """Returns what a change of each flag means to a run that resumes.

    Returns:
        By the name of the flag "refused", "warned" or "free".
    """
    return {
        item.name: item.metadata.get("resume", "warned")
        for group in settings
        for item in flags.fields(group)
    }


def _has_checkpoints(folder: Path) -> bool:
    return any(map(checkpoints.steps, (folder, *folder.glob("run-*"))))


def _shown(value: Any) -> str:
    if value is None:
        return "(none)"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _versions() -> dict[str, str]:
    installed = {
        "albert_tf": albert_tf.__version__,
        "python": platform.python_version(),
    }
    for name in _LIBRARIES:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # a build of another name
            continue
    return installed


def _revision() -> str | None:
    """Returns the commit of the checkout that this package is in, if it is in one."""
    root = Path(albert_tf.__file__).parents[1]
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"],
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
