"""An estimator for labels of words."""

import types
from typing import Any

from albert_tf.estimators import rows
from albert_tf.estimators.base import FineTuned
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings
from albert_tf.tasks.tagging.task import Tagging


class TokenClassifier(FineTuned):
    """Labels words: named entities, parts of speech; settings of `run_tagging.py`.

    Data is the path of a file in CoNLL-2003's columns or of JSON lines, or a table with
    lists in the columns `tokens` and `tags`. `token_column` and `label_column` are
    other names of columns, or numbers of a CoNLL file's columns. Tags of entities are
    IOB2.
    """

    family = Tagging
    run_settings = FineTuningSettings
    columns = ("tokens", "tags")
    lists = ("tokens", "tags")
    saved_settings = types.MappingProxyType(
        {name: name for name in ("token_column", "label_column")}
    )

    def predict(self, texts: Any, **options: Any) -> list[list[dict[str, Any]]]:
        """Returns the spans of each text.

        Args:
            texts: raw texts, of any length; or the path of a file, whose words are
                joined by spaces.
            **options: see `AnswerSettings`: `runtime`, `batch_size`.

        Returns:
            For each text a list of dicts with `type`, `text`, `begin`, `end`
            (characters of the text) and `probability`.

        Raises:
            InputError: the model is not fine-tuned, or a row is not a text.
        """
        return [answer["spans"] for answer in self(texts, **options)]

    def _columns(self, values):
        names = (values.get("token_column"), values.get("label_column"))
        # A setting replaces the class's own name of a column.
        columns = [name or own for name, own in zip(names, self.columns, strict=True)]
        return columns, columns

    def _to_rows(self, examples):
        return [{"text": " ".join(sentence.words)} for sentence in examples]

    def _read(self, data):
        return rows.read([data] if isinstance(data, str) else data, ("text",), "texts")
