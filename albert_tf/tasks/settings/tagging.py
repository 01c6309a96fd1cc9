"""The settings of `run_tagging.py`.

The first line of a settings class's docstring is a heading in `--help`.
"""

import dataclasses
from typing import Literal

from albert_tf import flags
from albert_tf.tasks.settings.base import TaskSettings, size_field


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingSettings(TaskSettings):
    """Data.

    Args:
        task_name: Name of the data set, used in file names.
        train_file: Sentences to train on: columns as in CoNLL-2003, or JSON (.jsonl,
            .json) with the keys tokens and tags, or text and label.
        eval_file: Sentences to evaluate on, in the same formats.
        predict_file: Sentences to predict, in the same formats; the labels are
            optional.
        token_column: Column of the tokens: a number from 1, or a JSON key. Default: the
            first column, or tokens.
        label_column: Column of the labels: a number from 1, or a JSON key. Default: the
            last column, or tags.
        tag_scheme: Notation of entities: iob2 (every entity begins with B-), iob1
            (as in the original CoNLL-2003: B- only between adjacent entities of the
            same type) or words (the labels do not mark entities). Other notations of
            entities, such as BIOES, are converted to iob2, except with words.
        labels: All labels, in the order of the outputs. Default: the labels of
            --train_file, or the model's labels.
        max_seq_length: Maximum number of tokens per input; longer sentences are split
            into windows. Default: the model's value, otherwise 512, but at most the
            longest input of the model.
    """

    task_name: str = flags.field("tagging", stored="optional", key="task")
    train_file: str | None = flags.field(None)
    eval_file: str | None = flags.field(None)
    predict_file: str | None = flags.field(None)
    token_column: str | None = flags.field(None, stored="optional")
    label_column: str | None = flags.field(None, stored="optional")
    tag_scheme: Literal["iob2", "iob1", "words"] = flags.field("iob2")
    labels: tuple[str, ...] | None = flags.field(
        None, stored="required", must_match_head=True
    )
    max_seq_length: int | None = size_field(
        512, stored="optional", at_least=3, affects_encoding=True
    )
