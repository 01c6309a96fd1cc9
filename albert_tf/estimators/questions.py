"""Estimators for questions: answers from a passage, and multiple choice."""

from typing import Any, ClassVar

import numpy as np

from albert_tf.estimators.base import COMMON_SETTINGS, FineTuned
from albert_tf.tasks.race.task import MultipleChoice as MultipleChoiceTask
from albert_tf.tasks.settings.race import RaceRunSettings, RaceSettings
from albert_tf.tasks.settings.squad import SquadRunSettings, SquadSettings
from albert_tf.tasks.squad import reading
from albert_tf.tasks.squad.task import QuestionAnswering


class QuestionAnswerer(FineTuned):
    """Finds the answers to questions in passages, with the settings of `run_squad.py`.

    Data is the path of a file in SQuAD's format, or a table with the columns
    `question`, `context` and `answers`. `answers` is a list of dicts with `text` and
    `answer_start`, or one dict with these keys and lists as values, as in Hugging
    Face's data sets. If `answers` is empty, the passage does not answer the question.
    """

    family = QuestionAnswering
    settings_classes = (SquadSettings, SquadRunSettings, *COMMON_SETTINGS)
    columns = ("question", "context", "answers")
    lists = ("answers",)
    files: ClassVar = {**FineTuned.files, "dev": "predict_file"}

    def predict(self, questions: Any, **options: Any) -> list[str]:
        """Returns the answer to each question; "" if the passage has no answer.

        Args:
            questions: dicts or a table with `question` and `context`; pairs (question,
                context); or the path of a file.
            **options: see `PipelineSettings`: `threshold`, `runtime`, `batch_size`.

        Raises:
            InputError: the model is not fine-tuned, or a row is not a question.
        """
        return [answer["answer"] for answer in self(questions, **options)]

    def _to_inputs(self, examples):
        # Each tuple is one input of the pipeline: (question, context).
        return [
            (question.text, paragraph.context)
            for paragraph in examples.paragraphs
            for question in paragraph.questions
        ]

    def _write_rows(self, table, folder, split):
        # In SQuAD's format, a question also has these two keys.
        for number, row in enumerate(table, 1):
            answers = reading.parse_answers(row["answers"], f"{split}, row {number}")
            row |= {"id": number, "is_impossible": not answers}
        return super()._write_rows(table, folder, split)


class MultipleChoice(FineTuned):
    """Chooses among options, with the settings of `run_race.py`.

    Data is the path of a file of JSON lines, or a table. The keys or columns are
    `article`, `question`, `options` (a list) and `answer` (a letter, or an index from 0
    on).
    """

    family = MultipleChoiceTask
    settings_classes = (RaceSettings, RaceRunSettings, *COMMON_SETTINGS)
    columns = ("article", "question", "options", "answer")
    lists = ("options",)

    def predict(self, questions: Any, **options: Any) -> np.ndarray:
        """Returns the index of the chosen option of each question, int [n].

        Args:
            questions: dicts or a table with `article`, `question` and `options`; or the
                path of a file.
            **options: see `PipelineSettings`: `runtime`, `batch_size`.

        Raises:
            InputError: the model is not fine-tuned, or a row is not a question.
        """
        return np.array([answer["choice"] for answer in self(questions, **options)])

    def _to_inputs(self, examples):
        # Each tuple is one input of the pipeline: (article, question, options).
        return [(q.article, q.text, [*q.options]) for q in examples]
