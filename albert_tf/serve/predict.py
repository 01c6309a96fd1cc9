"""Raw text in, answers out: what `predict.py` does, and for use from Python.

    answer = predict.load("runs/mrpc")
    for found in answer([{"text_a": "It rains.", "text_b": "Rain falls."}]):
        print(found["label"], found["probability"])

Texts go through the very graphs that `serving` saves, so a served model gives the same
answers. Texts of like length share a batch.
"""

import contextlib
import dataclasses
import itertools
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf import errors, weights
from albert_tf.data import (
    json_values,
    quiet,
    tables,
)
from albert_tf.data.files import atomic
from albert_tf.data.tables import RowError, Table
from albert_tf.errors import InputError
from albert_tf.model import models
from albert_tf.model.config import AlbertConfig
from albert_tf.serve import graphs, runtimes
from albert_tf.serve.graphs.signatures import Service
from albert_tf.serve.settings.predict import AnswerSettings, PredictSettings
from albert_tf.tasks.squad.answers import Search
from albert_tf.tasks.squad.features import Lengths
from albert_tf.text import inputs
from albert_tf.text.inputs import MASK
from albert_tf.text.tokenization import Tokenizer
from albert_tf.weights import metadata
from albert_tf.weights.folder import ModelFolder
from albert_tf.weights.settings import ModelFileSettings

# Rows that are sorted by length together, and so held in memory.
_ROWS_TO_SORT = 2048
# Seconds between two lines of progress.
_BETWEEN_LINES = 10.0
_MAX_SEQ_LENGTH = 512

_TOP_K = 5
# Of texts that are read to their end: a passage of a million takes 400 MB.
_MOST_CHARACTERS = 1_000_000
# Of these a model reads the beginning; the question of a choice is cut from its front.
_BEGINNINGS = frozenset({"text", "text_a", "text_b", "article"})

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

Row = Mapping[str, Any]


class Predictor:
    """Answers rows of text.

    Args:
        service: what answers them.
        describe: makes an answer of the service's outputs for one row.
        tokenizer: counts the pieces of a text, to find rows of like length.
        batch_size: rows that are answered at once.
        problem: returns why a row cannot be answered; None where it can.
        max_seq_length: most tokens of an input, for which long texts are cut before
            they are tokenized; None cuts none.

    Attributes:
        fields: the keys that a row must have, in the order of columns.
        service: as given; `save` exports it.
        source: where its weights were read from, None if they are not of a file.
    """

    def __init__(
        self,
        service: Service,
        describe: Callable[[Mapping[str, Any]], dict[str, Any]],
        tokenizer: Tokenizer,
        batch_size: int = 32,
        problem: Callable[[Mapping[str, Any]], str | None] = lambda row: None,
        max_seq_length: int | None = None,
    ):
        self.service = service
        self.source: str | None = None
        self.fields = tuple(service.specs)
        self._describe = describe
        self._tokenizer = tokenizer
        self._batch_size = batch_size
        self._problem = problem
        self._max_seq_length = max_seq_length

    def __call__(self, rows: Iterable[Row | str]) -> Iterator[dict[str, Any]]:
        """Answers rows in their order, some thousand of them at a time.

        Args:
            rows: texts by the names of `fields`, or the text itself where there is one
                field; options are a list of texts.

        Yields:
            What was found for each row: plain text, numbers, lists and dicts.

        Raises:
            InputError: a row lacks a field, it is of another kind, or there is nothing
                to answer.
        """
        return self.answer_placed((f"row {n}", row) for n, row in enumerate(rows, 1))

    def answer_placed(
        self, rows: Iterable[tuple[str, Row | str]]
    ) -> Iterator[dict[str, Any]]:
        """Does the same for rows with their places, which messages name."""
        rows = iter(rows)
        while several := list(itertools.islice(rows, _ROWS_TO_SORT)):
            checked = [self._checked(place, row) for place, row in several]
            yield from self._answered(checked)

    def _checked(self, place: str, row: Any) -> dict[str, Any]:
        if isinstance(row, str) and len(self.fields) == 1:
            row = {self.fields[0]: row}
        if not isinstance(row, Mapping):
            raise InputError(
                f"{place}: {errors.shown(row)}; expected an object with "
                f"{', '.join(self.fields)}"
            )
        found = {}
        for name, spec in self.service.specs.items():
            value = row.get(name)
            is_list = len(spec.shape) == 2
            texts = value if is_list and isinstance(value, list) else [value]
            if (
                not texts
                or not all(isinstance(text, str) for text in texts)
                or (is_list and not isinstance(value, list))
            ):
                kind = "a list of texts" if is_list else "a text"
                given = errors.shown(value) if name in row else "missing"
                raise InputError(
                    f"{place}: {name} is {given}; expected {kind} "
                    f"(a row has {', '.join(self.fields)})"
                )
            # Half of a surrogate pair is no text, and TensorFlow refuses it.
            texts = [_LONE_SURROGATE.sub("\ufffd", str(text)) for text in texts]
            found[name] = texts if is_list else texts[0]
        if problem := self._problem(found):
            raise InputError(f"{place}: {problem}")
        row = self._cut(found)
        self._check_length(place, row)
        return row

    def _cut(self, row: dict[str, Any]) -> dict[str, Any]:
        """Cuts texts of which the beginning alone can matter."""
        most = self._max_seq_length
        if most is None:
            return row
        names = {*_BEGINNINGS, *(["question"] if "context" in row else [])}
        for name in names & row.keys():
            text = inputs.cut(self._tokenizer, row[name], most)
            # Gaps beyond the length are counted.
            lost = row[name].count(MASK) - text.count(MASK)
            row[name] = text + MASK * lost
        return row

    def _check_length(self, place: str, row: dict[str, Any]) -> None:
        for name, value in row.items():
            longest = max(map(len, value if isinstance(value, list) else [value]))
            if longest > _MOST_CHARACTERS:
                raise InputError(
                    f"{place}: {name} has {longest:,} characters; expected at most "
                    f"{_MOST_CHARACTERS:,}"
                )

    def _answered(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = [{} for _ in rows]
        for numbers in self._batches(rows):
            found = self._batch([rows[i] for i in numbers])
            for i, answer in zip(numbers, found, strict=True):
                answers[i] = answer
        return answers

    def _batches(self, rows: list[dict[str, Any]]) -> Iterator[list[int]]:
        """Yields the numbers of rows of like length, and as many options."""
        sizes = self._sizes(rows)
        batch: list[int] = []
        for i in sorted(range(len(rows)), key=sizes.__getitem__):
            full = len(batch) == self._batch_size
            if batch and (full or sizes[i][0] != sizes[batch[0]][0]):
                yield batch
                batch = []
            batch.append(i)
        if batch:
            yield batch

    def _sizes(self, rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
        """Returns the number of options of each row, and of all its pieces.

        Of two texts with as many characters, one may have twice as many pieces: by
        characters, a third of a batch was padding.
        """
        texts = [_texts(row) for row in rows]
        flat = list(itertools.chain.from_iterable(texts))
        lengths = map(len, self._tokenizer.encode_batch(flat))
        return [
            (_options(row), sum(itertools.islice(lengths, len(of_row))))
            for row, of_row in zip(rows, texts, strict=True)
        ]

    def _batch(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        texts = {name: tf.constant([row[name] for row in rows]) for name in self.fields}
        outputs = {k: v.numpy() for k, v in self.service.compiled(**texts).items()}
        return [
            self._describe({name: value[i] for name, value in outputs.items()})
            for i in range(len(rows))
        ]


def run(
    config: PredictSettings,
    options: AnswerSettings,
    arguments: Sequence[str] = (),
    log: IO[str] = sys.stderr,
) -> None:
    """Answers texts from arguments, a file or standard input, as JSON lines.

    Args:
        config: the model and the files.
        options: how to answer.
        arguments: texts, one row each, where no file is named.
        log: where progress goes.

    Raises:
        InputError: see `load`; or a file cannot be read or written, or a row is bad.
    """
    quiet.tensorflow()
    if arguments and config.input_file:
        raise InputError("texts as arguments and --input_file: give one of them")
    name = config.input_file or "the input"
    is_json = _is_json(config)
    predictor = _load(config, options)
    print(f"Reading {predictor.source}", file=log)
    with contextlib.ExitStack() as files:
        write: Callable[[bytes], Any] = _to_standard_output
        lines: Iterator[tuple[int, str | RowError]] = iter(enumerate(arguments, 1))
        if not arguments:
            lines = _lines(config.input_file, files)
        if config.output_file:
            write = files.enter_context(atomic(config.output_file)).write
        rows = _rows(lines, predictor.fields, name, is_json, log)
        for answer in _told(predictor.answer_placed(rows), log):
            write(json.dumps(answer, ensure_ascii=False).encode() + b"\n")


def _is_json(config: PredictSettings) -> bool:
    if config.input_format != "auto" or config.input_file is None:
        return config.input_format == "json"
    suffix = Path(config.input_file).suffix.lower()
    if suffix == ".csv":  # as text, its header and quotes would be answered
        raise InputError(
            f"--input_file={config.input_file}: CSV is not read; expected texts with "
            f"tabs between the columns, or JSON lines (.jsonl); with "
            f"--input_format=text every line is a text"
        )
    return suffix in (".json", ".jsonl")


def _load(config: PredictSettings, options: AnswerSettings) -> Predictor:
    return load(
        config.model,
        options,
        checkpoint=config.checkpoint,
        files=config,
    )


def _to_standard_output(line: bytes) -> None:
    with errors.writing("standard output"):
        sys.stdout.write(line.decode())
        sys.stdout.flush()


def _lines(
    path: str | None, files: contextlib.ExitStack
) -> Iterator[tuple[int, str | RowError]]:
    """Returns the lines of a file or of standard input, with their numbers."""
    if path is None:
        # Not its text, in which a lone carriage return would end a line.
        return tables.lines(sys.stdin.buffer)
    try:
        return tables.lines(files.enter_context(open(path, "rb")))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def _rows(
    lines: Iterator[tuple[int, str | RowError]],
    fields: Sequence[str],
    name: str,
    is_json: bool,
    log: IO[str],
) -> Iterator[tuple[str, Row | str]]:
    """Parses lines; yields rows and their places.

    Where a row is one text, every line is a row, an empty one too. Elsewhere blank
    lines are skipped and counted.
    """
    blank = 0
    while True:
        with errors.reading(name):
            number, text = next(lines, (0, ""))
        if not number:
            break
        place = f"{name}:{number}"
        if isinstance(text, RowError):
            raise InputError(f"{place}: {text}")
        if is_json:
            text = text.strip()
        if not text and (is_json or len(fields) > 1):
            blank += 1
        elif is_json:
            yield place, json_values.parse(text, name, number)
        else:
            yield place, _of_columns(text, fields, place)
    for note in Table([], [], blank).notes(name):
        print(note, file=log)


def _of_columns(text: str, fields: Sequence[str], place: str) -> Row:
    """Parses a line; the last field takes all further columns if it is a list."""
    columns: list[Any] = text.split("\t")
    if fields[-1] == "options":
        columns = [*columns[: len(fields) - 1], columns[len(fields) - 1 :]]
    if len(columns) != len(fields):
        raise InputError(
            f"{place}: {len(columns)} columns; expected {len(fields)} "
            f"({', '.join(fields)}), with tabs between them"
        )
    return dict(zip(fields, columns, strict=True))


def _told(answers: Iterator[Any], log: IO[str]) -> Iterator[Any]:
    """Passes answers on; says now and then how many there were."""
    begin = last = time.perf_counter()
    for number, answer in enumerate(answers, 1):
        yield answer
        now = time.perf_counter()
        if now - last > _BETWEEN_LINES:
            last = now
            print(f"{number:,} rows, {number / (now - begin):,.1f} a second", file=log)


def _texts(row: Row) -> list[str]:
    """Returns the texts of a row, each option's too."""
    lists = [v if isinstance(v, list) else [v] for v in row.values()]
    return list(itertools.chain.from_iterable(lists))


def _options(row: Row) -> int:
    return sum(len(value) for value in row.values() if isinstance(value, list))


def load(
    path: str | Path,
    options: AnswerSettings = AnswerSettings(),
    *,
    checkpoint: str = "best",
    files: ModelFileSettings = ModelFileSettings(),
) -> Predictor:
    """Opens a model for raw text.

    Args:
        path: the folder of a fine-tuning run, or one of its checkpoints; or weights
            of any format that `weights.load` takes, for `options.task`.
        options: how to answer.
        checkpoint: which one of a run's folder, see `weights.open_source`.
        files: the configuration and vocabulary; by default those beside the weights.

    Raises:
        InputError: something is missing or does not fit.
    """
    opened = ModelFolder(path, checkpoint=checkpoint, files=files)
    described = opened.task
    kind = options.task or described.get("kind")
    if kind is None:
        _ = opened.source  # refuses a path where nothing is
        raise InputError(
            f"{path}: no task.json says what it was fine-tuned for; expected --task, "
            f"one of {', '.join(_FOR_ANY_MODEL)}"
        )
    allowed = [*_FOR_ANY_MODEL, *(filter(None, [described.get("kind")]))]
    if kind not in allowed:
        raise InputError(f"--task={kind}: expected one of {', '.join(allowed)}")
    options.check_for(kind)
    if kind == described.get("kind"):
        metadata.check_complete(opened.folders[0], described)
    else:
        described = {}
    source, tokenizer = opened.source, opened.tokenizer
    described = {**described, "kind": kind}
    model = _KINDS[kind].model(opened.config, described)
    parts = {"fill_mask": "masked_lm", "sentence_order": "sentence", "embedding": ""}
    only = [part for part in ("encoder", parts.get(kind, "head")) if part]
    weights.load(model, source, only=only, warn=False)
    predictor = of_model(model, tokenizer, described, options)
    predictor.source = source.path
    return predictor


def of_model(
    model: keras.Model,
    tokenizer: Tokenizer,
    task: Mapping[str, Any],
    options: AnswerSettings = AnswerSettings(),
) -> Predictor:
    """Makes a predictor of a model that is there already.

    Args:
        model: of the kind that `task` says.
        tokenizer: its vocabulary.
        task: what `task.json` says, see `FineTuningTask.description`.
        options: how to answer.

    Raises:
        InputError: the options do not fit the model.
    """
    kind = _KINDS[task["kind"]]
    options.check_for(task["kind"])
    longest = min(_MAX_SEQ_LENGTH, model.config.max_position_embeddings)
    length = options.max_seq_length
    if length is None:
        length = task.get("max_seq_length", longest)
    opened = _Opened(model, tokenizer, task, options, length)
    service, describe = kind.service(opened)
    if options.runtime is not None:
        # Takes long: the service above was built for what it refuses.
        model = runtimes.computed_by(model, options.runtime, kind.outputs)
        service, describe = kind.service(dataclasses.replace(opened, model=model))
    return Predictor(
        service, describe, tokenizer, options.batch_size, kind.problem, length
    )


@dataclasses.dataclass(frozen=True)
class _Opened:
    """What the kinds build their services from."""

    model: Any
    tokenizer: Tokenizer
    task: Mapping[str, Any]
    options: AnswerSettings
    max_seq_length: int


Described = tuple[Service, Callable[[Mapping[str, Any]], dict[str, Any]]]


def _classification(opened: _Opened) -> Described:
    labels = opened.task["labels"]
    several = opened.task["kind"] == "multi_label"
    service = graphs.classifier(
        opened.model,
        opened.tokenizer,
        labels=labels,
        max_seq_length=opened.max_seq_length,
        pairs=opened.task["texts"] == 2,
        multi_label=several,
        threshold=opened.options.threshold,
    )

    def describe(found):
        chances = dict(zip(labels, _rounded(found["probabilities"]), strict=True))
        if several:
            chosen = [
                label for label, c in zip(labels, found["chosen"], strict=True) if c
            ]
            return {"labels": chosen, "probabilities": chances}
        return {
            "label": found["label"].decode(),
            "probability": _rounded(found["probability"]),
            "probabilities": chances,
        }

    return service, describe


def _regression(opened: _Opened) -> Described:
    service = graphs.regressor(
        opened.model,
        opened.tokenizer,
        max_seq_length=opened.max_seq_length,
        pairs=opened.task["texts"] == 2,
        bounds=opened.task["bounds"],
    )
    return service, lambda found: {"value": _rounded(found["value"])}


def _multiple_choice(opened: _Opened) -> Described:
    service = graphs.multiple_choice(
        opened.model,
        opened.tokenizer,
        max_seq_length=opened.max_seq_length,
        max_qa_length=opened.task["max_qa_length"],
    )

    def describe(found):
        return {
            "choice": int(found["choice"]),
            "answer": found["answer"].decode(),
            "probabilities": _rounded(found["probabilities"]),
        }

    return service, describe


def _question_answering(opened: _Opened) -> Described:
    task, threshold = opened.task, opened.options.threshold
    if threshold is None:
        threshold = task["null_score_diff_threshold"]
    service = graphs.question_answering(
        opened.model,
        opened.tokenizer,
        lengths=Lengths(
            opened.max_seq_length, task["doc_stride"], task["max_query_length"]
        ),
        search=Search(task["n_best_size"], task["max_answer_length"]),
        version=task["version"],
        threshold=threshold,
    )

    def describe(found):
        answer = {
            "answer": found["answer"].decode(),
            "begin": int(found["begin"]),
            "end": int(found["end"]),
            "probability": _rounded(found["probability"]),
        }
        if "null_odds" in found:
            answer["null_odds"] = _rounded(found["null_odds"])
        return answer

    return service, describe


def _fill_mask(opened: _Opened) -> Described:
    service = graphs.fill_mask(
        opened.model,
        opened.tokenizer,
        max_seq_length=opened.max_seq_length,
        top_k=opened.options.top_k or _TOP_K,
    )

    def describe(found):
        # The gaps of another text in the batch may be more.
        gaps = [
            [
                {"piece": piece.decode(), "probability": chance}
                for piece, chance in zip(pieces, _rounded(chances), strict=True)
            ]
            for pieces, chances in zip(
                found["pieces"], found["probabilities"], strict=True
            )
            if chances[0] > 0
        ]
        if beyond := int(found["beyond_length"]):
            return {"gaps": gaps + [[]] * beyond, "beyond_length": beyond}
        return {"gaps": gaps}

    return service, describe


def _sentence_order(opened: _Opened) -> Described:
    service = graphs.sentence_order(
        opened.model,
        opened.tokenizer,
        max_seq_length=opened.max_seq_length,
    )
    return service, lambda found: {"in_order": _rounded(found["in_order"])}


def _embedding(opened: _Opened) -> Described:
    service = graphs.embeddings(
        opened.model, opened.tokenizer, max_seq_length=opened.max_seq_length
    )
    config = opened.model.config
    layers = config.num_hidden_layers * config.inner_group_num
    layer, pooling = opened.options.layer, opened.options.pooling or "mean"
    layer = -1 if layer is None else layer
    if not (1 <= layer <= layers or -layers <= layer <= -1):
        raise InputError(f"--layer={layer}: expected 1 to {layers}, or -1 for the last")
    place = layer - 1 if layer > 0 else layer

    def describe(found):
        vector = found["pooled"] if pooling == "pooled" else found[pooling][place]
        return {"embedding": _rounded(vector)}

    return service, describe


def _spans(config: AlbertConfig, task: Mapping[str, Any]) -> keras.Model:
    if task["head"] == "linear":
        return models.AlbertSpanLabeler(config)
    return models.AlbertConditionalSpanLabeler(
        config, task["start_n_top"], task["end_n_top"]
    )


def _classifier(config: AlbertConfig, task: Mapping[str, Any]) -> keras.Model:
    return models.AlbertClassifier(config, len(task.get("labels") or [None]))


@dataclasses.dataclass(frozen=True)
class _Kind:
    """How to build a model of a kind, and what serves it.

    Attributes:
        model: makes one.
        service: answers by it.
        outputs: what that needs of the model; nothing stands for all of its head.
        problem: returns why a row cannot be answered; None where it can.
    """

    model: Callable[[AlbertConfig, Mapping[str, Any]], keras.Model]
    service: Callable[[_Opened], Described]
    outputs: tuple[str, ...] = ()
    problem: Callable[[Mapping[str, Any]], str | None] = lambda row: None


def _lack_of_gaps(row: Mapping[str, Any]) -> str | None:
    if MASK in row["text"]:
        return None
    return f"no {MASK} in {errors.shown(row['text'])}; expected one for each gap"


_KINDS = {
    "classification": _Kind(_classifier, _classification),
    "multi_label": _Kind(_classifier, _classification),
    "regression": _Kind(_classifier, _regression),
    "multiple_choice": _Kind(
        lambda config, task: models.AlbertMultipleChoice(config), _multiple_choice
    ),
    "question_answering": _Kind(_spans, _question_answering),
    "fill_mask": _Kind(
        lambda config, task: models.AlbertPretrainer(config, sentence_head=False),
        _fill_mask,
        ("mlm_logits",),
        _lack_of_gaps,
    ),
    "sentence_order": _Kind(
        lambda config, task: models.AlbertPretrainer(config),
        _sentence_order,
        ("sop_logits",),
    ),
    "embedding": _Kind(lambda config, task: models.AlbertEncoder(config), _embedding),
}
_FOR_ANY_MODEL = ("fill_mask", "sentence_order", "embedding")


def _rounded(value: np.ndarray) -> Any:
    """Returns numbers with the digits that a float32 has, and no more."""
    return np.asarray(value).astype(str).astype(float).tolist()
