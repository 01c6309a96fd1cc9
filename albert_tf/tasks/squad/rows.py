"""Rows of a question and a context to answers, in Python."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from albert_tf.errors import InputError
from albert_tf.model.config import AlbertConfig
from albert_tf.tasks import row_answers
from albert_tf.tasks.row_answers import Outputs, Row, RowAnswer, Run
from albert_tf.tasks.settings.answer import AnswerSettings
from albert_tf.tasks.settings.squad import SquadSettings
from albert_tf.tasks.squad import answers, features
from albert_tf.tasks.squad.answers import Candidates, Search
from albert_tf.tasks.squad.features import Lengths, Windows
from albert_tf.tasks.squad.reading import Dataset, Paragraph, Question
from albert_tf.text.tokenization import Tokenizer

# The memory that an answer needs grows with the windows that a model reads at once.
WINDOWS_AT_ONCE = 32


def question_answering(
    stored: Mapping[str, Any],
    config: AlbertConfig,
    tokenizer: Tokenizer,
    options: AnswerSettings,
    place: str | Path,
) -> RowAnswer:
    """Returns what answers questions; see `row_answers.of_kind`."""
    settings = SquadSettings.from_stored(stored, place)
    settings = settings.completed(None, config.max_position_embeddings)
    length = options.max_seq_length or settings.max_seq_length
    lengths = Lengths(length, settings.doc_stride, settings.max_query_length)
    search = Search(settings.n_best_size, settings.max_answer_length)
    threshold = settings.threshold if options.threshold is None else options.threshold
    check_threshold(settings.version, threshold)
    row_answers.check_inputs(config, tokenizer, length)
    shortest = 1
    if settings.head == "conditional":
        shortest = max(settings.start_n_top, settings.end_n_top)

    def respond(rows: Sequence[Row], run: Run) -> list[dict[str, Any]]:
        dataset = _dataset(rows, settings.version)
        tokens = features.encode(dataset, tokenizer)
        windows = Windows(dataset, tokens, tokenizer, lengths)
        scored = _scored(windows, run, shortest)
        each = answers.candidates(
            windows, scored, search, settings.head, settings.version
        )
        return [
            describe(_outputs(best, threshold)) | _best(best, options.top_k)
            for _, best in each
        ]

    return RowAnswer(
        {"question": False, "context": False},
        tokenizer,
        respond,
        shorten=row_answers.beginnings(tokenizer, length, "question"),
    )


def check_threshold(version: str, threshold: float | None) -> None:
    """Refuses a threshold where there are no odds."""
    if threshold is not None and version == "1.1":
        raise InputError(
            f"threshold {threshold}: a model of SQuAD 1.1 has no null odds"
        )


def _dataset(rows: Sequence[Row], version: str) -> Dataset:
    paragraphs = (
        Paragraph(row["context"], (Question(str(n), row["question"], (), False),))
        for n, row in enumerate(rows)
    )
    return Dataset("", version, tuple(paragraphs))


def _scored(windows: Windows, run: Run, shortest: int) -> Iterator[Outputs]:
    """Yields the model's outputs for each window in turn."""
    for begin in range(0, len(windows), WINDOWS_AT_ONCE):
        some = np.arange(begin, min(begin + WINDOWS_AT_ONCE, len(windows)))
        longest = max(int(windows.lengths[some].max()), shortest)
        outputs = run(windows.batch(some, longest))
        for i in range(len(some)):
            yield {name: value[i] for name, value in outputs.items()}


def _outputs(candidates: Candidates, threshold: float | None) -> dict[str, Any]:
    """Returns the outputs of one question, see `graph.question_answering`."""
    outputs: dict[str, Any] = {"answer": "", "begin": -1, "end": -1, "probability": 0.0}
    odds = candidates.null_odds
    if candidates.spans:
        best = candidates.spans[0]
        outputs["probability"] = answers.n_best(candidates)[0]["probability"]
        if threshold is None or odds is None or odds <= threshold:
            outputs |= {"answer": best.text, "begin": best.begin, "end": best.end}
    return outputs if odds is None else {**outputs, "null_odds": odds}


def _best(candidates: Candidates, top_k: int | None) -> dict[str, Any]:
    """Returns the likeliest answers to one question, if they are asked for."""
    if top_k is None:
        return {}
    listed = zip(candidates.spans[:top_k], answers.n_best(candidates), strict=False)
    fields = ({**dataclasses.asdict(span), **entry} for span, entry in listed)
    return {"answers": [describe({**each, "answer": each["text"]}) for each in fields]}


def describe(outputs: Outputs) -> dict[str, Any]:
    """Describes the answer to one question."""
    answer = {
        "answer": row_answers.text(outputs["answer"]),
        "begin": int(outputs["begin"]),
        "end": int(outputs["end"]),
        "probability": row_answers.rounded(outputs["probability"]),
    }
    if "null_odds" in outputs:
        answer["null_odds"] = row_answers.rounded(outputs["null_odds"])
    return answer
