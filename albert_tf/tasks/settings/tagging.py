"""The settings of `run_tagging.py`."""

import dataclasses
from typing import Literal

from albert_tf import flags
from albert_tf.errors import InputError
from albert_tf.tasks.settings.base import NEEDED, OPTIONAL, TaskSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingSettings(TaskSettings):
    """Which sentences, and how they are read.

    Raises:
        InputError: a label stands twice.
    """

    task_name: str = flags.field(
        "Name of the data set, for files.", "tagging", stored=OPTIONAL, key="task"
    )
    train_file: str | None = flags.field(
        "Sentences to train on: columns as in CoNLL-2003, or JSON (.jsonl, .json) with "
        "tokens and tags, or with text and label.",
        None,
    )
    eval_file: str | None = flags.field(
        "Sentences to evaluate on, as for --train_file.",
        None,
    )
    predict_file: str | None = flags.field(
        "Sentences to predict, as for --train_file; labels may be absent.",
        None,
    )
    token_column: str | None = flags.field(
        "Number of the tokens' column, from 1 on, or their key in JSON; by default the "
        "first column, or tokens.",
        None,
    )
    label_column: str | None = flags.field(
        "Number of the labels' column, from 1 on, or their key in JSON; by default the "
        "last column, or tags.",
        None,
    )
    tag_scheme: Literal["iob2", "iob1", "words"] = flags.field(
        "How the files mark entities: iob2 begins each with B-; in iob1, as CoNLL-2003 "
        "was released, B- only parts neighbours of one type; words: not at all, each "
        "label is of a word. Other notations, such as BIOES, become iob2.",
        "iob2",
    )
    labels: tuple[str, ...] | None = flags.field(
        "All labels, in the order of the outputs; by default those of --train_file, "
        "or else those of the model's folder.",
        None,
        stored=NEEDED,
    )
    max_seq_length: int | None = flags.field(
        "Most tokens of an input; longer sentences are read in windows. By default "
        "what the model was fine-tuned with, or else 512, or what the model can take.",
        None,
        at_least=3,
        stored=OPTIONAL,
        otherwise=512,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.labels or ())) < len(self.labels or ()):
            raise InputError(
                f"--labels={','.join(self.labels or ())}: a label stands twice"
            )
