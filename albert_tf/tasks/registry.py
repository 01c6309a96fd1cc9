"""The classes of each task type.

The name of a task type is the value of "kind" in `task.json`, and of `--task`. Task
types with the same task class are a family: "classification", "multi_label" and
"regression" are one family. Each other fine-tuned type is a family of its own. Each
task type of a new family needs an entry in `FINE_TUNED`. Commands, `predict`, exports
and the demo page find the classes here.
"""

import pkgutil
from pathlib import Path
from typing import Any, NamedTuple

from albert_tf import errors
from albert_tf.errors import InputError


class TaskClasses(NamedTuple):
    """The names of the classes of a task type, as "module:Class".

    Attributes:
        pipeline: a subclass of `pipelines.Pipeline`, for predictions from raw text.
        task: a subclass of `base.FineTuningTask`, for training; None for task types for
            which a pretrained model needs no fine-tuning.
    """

    pipeline: str
    task: str | None = None


def _build(folder: str, pipeline: str, task: str) -> TaskClasses:
    """Returns the entry of a task type with a folder of its own in `tasks`.

    Args:
        folder: the name of the folder.
        pipeline: the name of the pipeline class, in `pipeline.py`.
        task: the name of the task class, in `task.py`.
    """
    path = f"albert_tf.tasks.{folder}"
    return TaskClasses(f"{path}.pipeline:{pipeline}", f"{path}.task:{task}")


PRETRAINED = {
    "fill_mask": TaskClasses("albert_tf.tasks.pretrained:FillMask"),
    "score": TaskClasses("albert_tf.tasks.pretrained:Score"),
    "sentence_order": TaskClasses("albert_tf.tasks.pretrained:SentenceOrder"),
    "embedding": TaskClasses("albert_tf.tasks.pretrained:Embedding"),
}
# The task class that predicts labels or a number for each text.
_TEXT_TASK = "albert_tf.tasks.classification:Classification"
_TEXT_PIPELINES = "albert_tf.tasks.text_pipeline"
_CLASSIFICATION = TaskClasses(f"{_TEXT_PIPELINES}:ClassificationPipeline", _TEXT_TASK)
FINE_TUNED = {
    "classification": _CLASSIFICATION,
    "multi_label": _CLASSIFICATION,
    "token_classification": _build("tagging", "TokenClassificationPipeline", "Tagging"),
    "regression": TaskClasses(f"{_TEXT_PIPELINES}:RegressionPipeline", _TEXT_TASK),
    "question_answering": _build(
        "squad", "QuestionAnsweringPipeline", "QuestionAnswering"
    ),
    "multiple_choice": _build("race", "MultipleChoicePipeline", "MultipleChoice"),
}


def find_pipeline_class(kind: str, location: str | Path = "task.json") -> type[Any]:
    """Returns the pipeline class of a task type; does not import TensorFlow.

    Args:
        kind: the name of the task type.
        location: the file or flag with the name, for messages.

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
    """Returns the task class of a fine-tuned task type; None for any other name."""
    entry = FINE_TUNED.get(kind or "")
    return pkgutil.resolve_name(entry.task) if entry and entry.task else None
