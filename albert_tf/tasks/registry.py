"""The classes of each task type, by the name of the type in `task.json` and `--task`.

A new family of tasks needs a line in `FINE_TUNED`; commands, `predict`, exports and the
demo page find the family here.
"""

import pkgutil
from pathlib import Path
from typing import Any, NamedTuple

from albert_tf import errors
from albert_tf.errors import InputError


class TaskClasses(NamedTuple):
    """The classes of a task type, as "module:Class".

    Attributes:
        pipeline: a `pipelines.Pipeline`, which answers raw text.
        task: a `base.FineTuningTask`, which trains a model; None if a pretrained model
            needs no fine-tuning for the task type.
    """

    pipeline: str
    task: str | None = None


def _kind(folder: str, pipeline: str, task: str) -> TaskClasses:
    """Returns the classes of a family in a folder of `tasks`."""
    path = f"albert_tf.tasks.{folder}"
    return TaskClasses(f"{path}.pipeline:{pipeline}", f"{path}.task:{task}")


PRETRAINED = {
    "fill_mask": TaskClasses("albert_tf.tasks.pretrained:FillMask"),
    "score": TaskClasses("albert_tf.tasks.pretrained:Score"),
    "sentence_order": TaskClasses("albert_tf.tasks.pretrained:SentenceOrder"),
    "embedding": TaskClasses("albert_tf.tasks.pretrained:Embedding"),
}
# The task class of all types that predict labels or a number for each text.
_TEXTS = "albert_tf.tasks.classification:Classification"
_LABELS = TaskClasses("albert_tf.tasks.text_pipeline:ClassificationPipeline", _TEXTS)
FINE_TUNED = {
    "classification": _LABELS,
    "multi_label": _LABELS,
    "token_classification": _kind("tagging", "TokenClassificationPipeline", "Tagging"),
    "regression": TaskClasses(
        "albert_tf.tasks.text_pipeline:RegressionPipeline", _TEXTS
    ),
    "question_answering": _kind(
        "squad", "QuestionAnsweringPipeline", "QuestionAnswering"
    ),
    "multiple_choice": _kind("race", "MultipleChoicePipeline", "MultipleChoice"),
}


def find_pipeline_class(kind: str, location: str | Path = "task.json") -> type[Any]:
    """Returns the pipeline class of a task type, without an import of TensorFlow.

    Args:
        kind: the task type.
        location: the source of the name, for messages.

    Raises:
        InputError: there is no such task type.
    """
    kinds = {**FINE_TUNED, **PRETRAINED}
    if kind not in kinds:
        raise InputError(
            f"{location}: kind={errors.quote(kind)}: expected one of {', '.join(kinds)}"
        )
    return pkgutil.resolve_name(kinds[kind].pipeline)


def find_task_class(kind: str | None) -> type[Any] | None:
    """Returns the task class of a fine-tuned task type; None for other names."""
    entry = FINE_TUNED.get(kind or "")
    return pkgutil.resolve_name(entry.task) if entry and entry.task else None
