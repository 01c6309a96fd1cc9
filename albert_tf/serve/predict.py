"""Raw text in, answers out: what `predict.py` does, and for use from Python.

    answer = predict.load("runs/mrpc")
    for row in answer([{"text_a": "It rains.", "text_b": "Rain falls."}]):
        print(row["label"], row["probability"])

TensorFlow or another runtime computes the model, and `tasks.row_answers` what stands
around it. Texts of like length share a batch.
"""

import contextlib
import functools
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from albert_tf import errors
from albert_tf.data import quiet
from albert_tf.data.files import atomic
from albert_tf.errors import InputError
from albert_tf.serve import rows as text_rows
from albert_tf.serve import sessions
from albert_tf.serve.settings.predict import PredictSettings
from albert_tf.tasks import row_answers
from albert_tf.tasks.row_answers import FINE_TUNED, PRETRAINED, RowAnswer, Run
from albert_tf.tasks.settings.answer import AnswerSettings
from albert_tf.text.tokenization import Tokenizer
from albert_tf.weights import metadata
from albert_tf.weights.folder import ModelFolder
from albert_tf.weights.settings import ModelFileSettings

if TYPE_CHECKING:  # an exported model answers without them
    import keras

    from albert_tf.serve.service import Service

# Rows that are sorted by length together, and so held in memory.
_ROWS_TO_SORT = 2048
# Seconds between two lines of progress.
_BETWEEN_LINES = 10.0

Row = Mapping[str, Any]
Log = Callable[[str], None]


class Predictor:
    """Answers rows of text.

    Args:
        answer: how.
        run: the model, as a function of arrays.
        make_service: the same as one graph, for other programs.
        batch_size: rows that are answered at once.

    Attributes:
        fields: the keys that a row must have, in the order of columns, and whether each
            holds a list of texts.
        source: where its weights were read from, None if they are not of a file.
        task: its `kind`, and what else `task.json` holds of a fine-tuned one.
    """

    def __init__(
        self,
        answer: RowAnswer,
        run: Run,
        make_service: "Callable[[], Service]",
        batch_size: int = 32,
    ):
        self.source: str | None = None
        self.task: Mapping[str, Any] = {}
        self.fields = answer.fields
        self._answer = answer
        self._run = run
        self._make_service = make_service
        self._batch_size = batch_size

    @functools.cached_property
    def service(self) -> "Service":
        """The same answers as one graph, made when first asked for; `save` exports it.

        Raises:
            InputError: the model is an exported one.
        """
        return self._make_service()

    def __call__(self, rows: Iterable[Row | str]) -> Iterator[dict[str, Any]]:
        """Answers rows in their order, some thousand of them at a time.

        Args:
            rows: texts by the names of `fields`, or the text itself where there is one
                field; options are a list of texts.

        Yields:
            The answer to each row: plain text, numbers, lists and dicts.

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
            answers = self._answer_all([shortened for _, shortened in checked])
            for (row, _), answer in zip(checked, answers, strict=True):
                yield self._answer.complete(row, answer)

    def _checked(self, place: str, row: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns a row, and what the model can read of it."""
        checked = text_rows.check(place, row, self.fields)
        if problem := self._answer.problem(checked):
            raise InputError(f"{place}: {problem}")
        shortened = self._answer.shorten(checked)
        text_rows.check_lengths(place, shortened)
        return checked, shortened

    def _answer_all(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = [{} for _ in rows]
        for numbers in self._batches(rows):
            batch = self._answer_batch([rows[i] for i in numbers])
            for i, answer in zip(numbers, batch, strict=True):
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
        """Returns the number of texts of each row, and of all its tokens.

        Of two texts with as many characters, one may have twice as many tokens: by
        characters, a third of a batch was padding.
        """
        texts = [_texts(row) for row in rows]
        flat = list(itertools.chain.from_iterable(texts))
        lengths = map(len, self._answer.tokenizer.encode_batch(flat))
        return [(len(row), sum(itertools.islice(lengths, len(row)))) for row in texts]

    def _answer_batch(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return self._answer.respond(rows, self._run)


def _texts(row: Row) -> list[str]:
    """Returns the texts of a row, each option's too."""
    lists = [v if isinstance(v, list) else [v] for v in row.values()]
    return list(itertools.chain.from_iterable(lists))


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
    if sessions.find(config.model) is None:
        quiet.tensorflow()
    if arguments and config.input_file:
        raise InputError("texts as arguments and --input_file: give one of them")
    predictor = load(
        config.model,
        options,
        checkpoint=config.checkpoint,
        files=config,
        log=functools.partial(print, file=log),
    )
    print(f"Reading {predictor.source}", file=log)
    with contextlib.ExitStack() as files:
        rows = text_rows.read(config, arguments, predictor.fields, files, log)
        write: Callable[[bytes], Any] = _to_standard_output
        if config.output_file:
            write = files.enter_context(atomic(config.output_file)).write
        for answer in _log_rate(predictor.answer_placed(rows), log):
            write(json.dumps(answer, ensure_ascii=False).encode() + b"\n")


def _to_standard_output(line: bytes) -> None:
    with errors.writing("standard output"):
        sys.stdout.write(line.decode())
        sys.stdout.flush()


def _log_rate(answers: Iterator[Any], log: IO[str]) -> Iterator[Any]:
    """Yields answers; logs now and then how many there were."""
    begin = last = time.perf_counter()
    for number, answer in enumerate(answers, 1):
        yield answer
        now = time.perf_counter()
        if now - last > _BETWEEN_LINES:
            last = now
            speed = number / (now - begin)
            print(f"answered so far: {number:,}, {speed:,.2f} a second", file=log)


def load(
    path: str | Path,
    options: AnswerSettings = AnswerSettings(),
    *,
    checkpoint: str = "best",
    files: ModelFileSettings = ModelFileSettings(),
    log: Log | None = None,
) -> Predictor:
    """Opens a model for raw text.

    Args:
        path: the folder of a fine-tuning run, or one of its checkpoints; a folder that
            `convert` wrote for another runtime; or weights of any format that
            `weights.load` takes, for `options.task`.
        options: how to answer.
        checkpoint: which one of a run's folder, see `weights.open_source`.
        files: the configuration and vocabulary; by default those beside the weights.
        log: logs a line. With it `options.runtime` "auto" is what is fastest, see
            `runtimes.fastest`: from batch to batch the last digits may differ. Without
            it TensorFlow computes, and the same rows get the same digits each time.

    Raises:
        InputError: something is missing or does not fit.
    """
    exported = sessions.find(path)
    opened = ModelFolder(path, checkpoint=checkpoint, files=files)
    _ = opened.task or exported or opened.source  # refuses a path where nothing is
    task = _described(path, opened, options)
    if exported is not None:
        if checkpoint != "best":
            raise InputError(f"--checkpoint={checkpoint}: {exported} is one model")
        return _of_export(exported, task, opened, options)
    return _of_weights(task, opened, options, log)


def _described(
    path: str | Path, opened: ModelFolder, options: AnswerSettings
) -> dict[str, Any]:
    """Returns the keys of a `task.json` that a folder and the options give.

    Raises:
        InputError: they do not say what the model does, or contradict each other.
    """
    stored, is_ours = opened.task, metadata.is_written(opened.task)
    fine_tuned = stored.get("kind")
    kind = options.task or fine_tuned
    if kind is None:
        raise InputError(
            f"{path}: no task.json says what it was fine-tuned for; expected --task, "
            f"one of {', '.join((*PRETRAINED, *FINE_TUNED))}"
        )
    allowed = [*PRETRAINED, *(FINE_TUNED if fine_tuned is None else [fine_tuned])]
    if not is_ours and fine_tuned in metadata.HF_PROBLEMS:
        allowed = [*PRETRAINED, *metadata.HF_PROBLEMS]
    if kind not in allowed:
        listed = ", ".join(dict.fromkeys(allowed))
        raise InputError(f"--task={kind}: expected one of {listed}")
    task = {**(stored if kind in FINE_TUNED else {}), "kind": kind}
    if options.labels:
        task["labels"] = list(options.labels)
    elif kind not in row_answers.LABELLED:
        task.pop("labels", None)
    elif not is_ours and "labels" not in task:
        raise InputError(
            f"--task={kind}: expected --labels with it, in the order of the outputs"
        )
    if kind == "question_answering" and options.threshold is not None and not is_ours:
        task["version"] = "2.0"  # only this has odds
    return task


def _of_export(
    file: Path, task: Mapping[str, Any], opened: ModelFolder, options: AnswerSettings
) -> Predictor:
    """Opens what `convert` writes, without TensorFlow."""
    kind, place = task["kind"], opened.folders[0] / metadata.TASK
    runtime = next(name for name, end in sessions.SUFFIXES.items() if end in file.name)
    if options.runtime not in ("auto", runtime):
        raise InputError(
            f"--runtime={options.runtime}: {file} runs in {runtime}; expected that"
        )
    if kind in row_answers.OPTIONS:
        options.check_for(kind, row_answers.OPTIONS)
    answer = row_answers.of_kind(
        kind, task, opened.config, opened.tokenizer, options, place
    )
    session = sessions.load(file, soon=True)
    lacks = answer and [n for n in answer.outputs if n not in session.outputs]
    if answer is None or lacks:
        raise InputError(
            f"--task={kind}: {file} gives {', '.join(session.outputs)}; expected the "
            f"folder that it was converted from"
        )

    def refuse() -> NoReturn:
        raise InputError(
            f"{file}: another runtime computes the model; expected the folder that it "
            f"was converted from"
        )

    predictor = Predictor(answer, session, refuse, options.batch_size)
    predictor.source, predictor.task = str(file), task
    return predictor


def _of_weights(
    described: Mapping[str, Any],
    opened: ModelFolder,
    options: AnswerSettings,
    log: Log | None,
) -> Predictor:
    from albert_tf import weights

    kind, place = described["kind"], opened.folders[0] / metadata.TASK
    family = _family(kind, options, place)
    source, tokenizer = opened.source, opened.tokenizer
    task = family.from_stored(described, opened.config, tokenizer, place)
    answer = row_answers.of_kind(
        kind, described, opened.config, tokenizer, options, place
    )
    model = task.build_model()
    unread = () if getattr(model, "head_reads_pooler", True) else "encoder.pooler"
    weights.load(model, source, only=task.parts, allow_missing=unread, warn=False)
    predictor = _predictor(task, model, answer, options, log)
    predictor.source = source.path
    predictor.task = {**described, **getattr(task, "description", {})}
    return predictor


def of_model(
    model: "keras.Model",
    tokenizer: Tokenizer,
    task: Mapping[str, Any],
    options: AnswerSettings = AnswerSettings(),
) -> Predictor:
    """Makes a predictor of a model that is there already.

    TensorFlow computes it unless `options` name another runtime, which does not see
    weights that change later.

    Args:
        model: of the kind of `task`.
        tokenizer: its vocabulary.
        task: the contents of a `task.json`, see `FineTuningTask.description`.
        options: how to answer.

    Raises:
        InputError: the options do not fit the model.
    """
    family = _family(task["kind"], options, metadata.TASK)
    answer = row_answers.of_kind(task["kind"], task, model.config, tokenizer, options)
    stored = family.from_stored(task, model.config, tokenizer)
    return _predictor(stored, model, answer, options)


def _predictor(
    task: Any,
    model: "keras.Model",
    answer: RowAnswer | None,
    options: AnswerSettings,
    log: Log | None = None,
) -> Predictor:
    from albert_tf.serve import runtimes
    from albert_tf.serve.service import Service

    if answer is None:
        graph = task.answer(model, options)
        if options.runtime not in ("auto", "tensorflow"):
            # Takes long: the answer above was made for what it refuses.
            model = runtimes.computed_by(model, options.runtime)
            graph = task.answer(model, options)
        return of_service(Service(graph), task.tokenizer, options.batch_size)
    run: Run
    if options.runtime == "auto" and log is not None:
        run = runtimes.fastest(model, answer.outputs, log)
    elif options.runtime in ("auto", "tensorflow"):
        run = runtimes.in_tensorflow(model, first_at_once=log is not None)
    else:
        run = runtimes.session_of(model, options.runtime, answer.outputs)

    def make_service() -> "Service":
        return Service(task.answer(model, options))

    return Predictor(answer, run, make_service, options.batch_size)


def of_service(
    service: "Service", tokenizer: Tokenizer, batch_size: int = 32
) -> Predictor:
    """Makes a predictor of a graph, for the kinds that it alone answers."""
    import tensorflow as tf

    graph = service.answer

    def respond(rows: Sequence[Row], run: Run) -> list[dict[str, Any]]:
        texts = {name: tf.constant([row[name] for row in rows]) for name in graph.specs}
        outputs = {k: v.numpy() for k, v in service.compiled(**texts).items()}
        return row_answers.described(graph.describe, outputs, len(rows))

    fields = {name: spec.shape.rank == 2 for name, spec in graph.specs.items()}
    answer = RowAnswer(fields, tokenizer, respond, shorten=graph.shorten)
    return Predictor(answer, dict, lambda: service, batch_size)


def _family(kind: str, options: AnswerSettings, place: str | Path) -> type[Any]:
    """Returns the family of a kind, which has the given options.

    Raises:
        InputError: there is none, or an option of another kind is given.
    """
    from albert_tf.tasks import base, pretrained

    every: dict[str, type[Any]] = {**base.families(), **pretrained.FAMILIES}
    if kind not in every:
        raise InputError(
            f"{place}: kind={errors.shown(kind)}: expected one of {', '.join(every)}"
        )
    options.check_for(kind, {k: of_kind.options_of(k) for k, of_kind in every.items()})
    return every[kind]
