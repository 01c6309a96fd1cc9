"""Finds tasks by name, by looking through the modules of this folder."""

import importlib
import pkgutil
import re

from albert_tf import tasks
from albert_tf.errors import InputError
from albert_tf.tasks.text_task import TextTask


def find(name: str) -> TextTask:
    """Returns the task of a name; case, dashes and underscores do not count.

    Raises:
        InputError: there is no such task, the message lists all; or see `every`.
    """
    tasks_by_name = every()
    by_spelling = {
        _plain(spelling): task
        for task in tasks_by_name.values()
        for spelling in (task.name, *task.aliases)
    }
    if _plain(name) not in by_spelling:
        raise InputError(
            f"--task_name={name}: unknown; expected one of "
            f"{', '.join(sorted(tasks_by_name))} or custom"
        )
    return by_spelling[_plain(name)]


def every() -> dict[str, TextTask]:
    """Returns all tasks by name, in the order of modules and their lines.

    Raises:
        InputError: two tasks go by one name, or one has a split of another name.
    """
    by_name: dict[str, TextTask] = {}
    owners: dict[str, tuple[TextTask, str]] = {}
    for entry in pkgutil.iter_modules(tasks.__path__):
        module = importlib.import_module(f"{tasks.__name__}.{entry.name}")
        for task in vars(module).values():
            if not isinstance(task, TextTask):
                continue
            for spelling in (task.name, *task.aliases):
                owner, where = owners.setdefault(_plain(spelling), (task, entry.name))
                if owner is not task:
                    raise InputError(
                        f"two tasks go by the name {spelling!r}, in {where}.py and "
                        f"{entry.name}.py of {tasks.__path__[0]}"
                    )
            by_name[task.name] = task
    return by_name


def _plain(name: str) -> str:
    return re.sub("[-_ ]", "", name).lower()
