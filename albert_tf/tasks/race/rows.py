"""Rows of an article, a question and its options to answers, in Python."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from albert_tf.model.config import AlbertConfig
from albert_tf.tasks import row_answers
from albert_tf.tasks.race import features
from albert_tf.tasks.race.reading import Question, present
from albert_tf.tasks.row_answers import Outputs, Row, RowAnswer, Run
from albert_tf.tasks.settings.answer import AnswerSettings
from albert_tf.tasks.settings.race import RaceSettings
from albert_tf.text.tokenization import Tokenizer


def multiple_choice(
    stored: Mapping[str, Any],
    config: AlbertConfig,
    tokenizer: Tokenizer,
    options: AnswerSettings,
    place: str | Path,
) -> RowAnswer:
    """Returns what chooses among options; see `row_answers.of_kind`."""
    settings = RaceSettings.from_stored(stored, place)
    settings = settings.completed(None, config.max_position_embeddings)
    lengths = features.Lengths(
        options.max_seq_length or settings.max_seq_length or 512,
        settings.max_qa_length or 128,
    )
    row_answers.check_inputs(config, tokenizer, lengths.max_seq_length)

    def respond(rows: Sequence[Row], run: Run) -> list[dict[str, Any]]:
        questions = []
        for row in rows:
            texts = tuple(present(row["options"]))
            asked = row["article"], row["question"], texts
            questions.append(Question("", *asked, answer=None, level="", place=""))
        encoded = features.encode(tokenizer, questions, lengths)
        longest = min(int(encoded.whole_lengths.max()), lengths.max_seq_length)
        most = max(len(row["options"]) for row in rows)
        batch = encoded.batch(range(len(rows)), most, longest, lengths, tokenizer)
        shares = row_answers.softmax(run(batch)["logits"])
        choice = shares.argmax(-1)
        outputs = {
            "probabilities": [
                each[: len(row["options"])]
                for row, each in zip(rows, shares, strict=True)
            ],
            "choice": choice,
            "answer": [row["options"][i] for row, i in zip(rows, choice, strict=True)],
        }
        return row_answers.described(describe, outputs, len(rows))

    shorten = row_answers.beginnings(tokenizer, lengths.max_seq_length, "article")
    fields = {"article": False, "question": False, "options": True}
    return RowAnswer(fields, tokenizer, respond, ("logits",), shorten=shorten)


def describe(outputs: Outputs) -> dict[str, Any]:
    """Describes the choice of one row."""
    return {
        "choice": int(outputs["choice"]),
        "answer": row_answers.text(outputs["answer"]),
        "probabilities": row_answers.rounded(outputs["probabilities"]),
    }
