"""The data sets of texts by name; a new data set must be added to `TASKS`."""

import re

from albert_tf.errors import InputError
from albert_tf.tasks import glue
from albert_tf.tasks.text_task import TextTask

_SINGLE_TEXTS = (glue.COLA, glue.SST2)
_SIMILARITY = (glue.MRPC, glue.QQP, glue.STSB)
_INFERENCE = (glue.MNLI, glue.MISMATCHED_MNLI, glue.AX, glue.QNLI, glue.RTE, glue.WNLI)
TASKS: dict[str, TextTask] = {
    task.name: task for task in (*_SINGLE_TEXTS, *_SIMILARITY, *_INFERENCE)
}


def get_task(name: str) -> TextTask:
    """Returns the task with a name or alias.

    Letter case, dashes, underscores and spaces are ignored.

    Raises:
        InputError: there is no such task.
    """
    for task in TASKS.values():
        if _normalize(name) in map(_normalize, (task.name, *task.aliases)):
            return task
    raise InputError(
        f"--task_name={name}: must be one of {', '.join(sorted(TASKS))} or custom"
    )


def _normalize(name: str) -> str:
    """Returns a name in small letters, without dashes, underscores and spaces."""
    return re.sub("[-_ ]", "", name).lower()
