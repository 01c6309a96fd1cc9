"""Raw text in, answers out: what `predict.py` does, and for use from Python.

    answer = predict.load("runs/mrpc")
    for row in answer([{"text_a": "It rains.", "text_b": "Rain falls."}]):
        print(row["label"], row["probability"])

A pipeline, see `tasks.pipelines`, encodes rows and makes the answers; TensorFlow, ONNX
Runtime or LiteRT runs the model between. Inputs of like length share a batch.
"""

import contextlib
import functools
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import tqdm

from albert_tf import errors
from albert_tf.data.files import atomic
from albert_tf.errors import InputError
from albert_tf.serve import rows as text_rows
from albert_tf.serve import sessions
from albert_tf.serve.settings.predict import PredictSettings
from albert_tf.tasks import registry
from albert_tf.tasks.pipelines import Arrays, Example, Pipeline, Row, Run
from albert_tf.tasks.settings.answer import AnswerSettings
from albert_tf.weights import metadata
from albert_tf.weights.folder import ModelFolder
from albert_tf.weights.settings import ModelFileSettings

if TYPE_CHECKING:  # an exported model answers without it
    import keras

# Inputs that are sorted by length together, and so held in memory.
_INPUTS_TO_SORT = 2048

Log = Callable[[str], None]


class Predictor:
    """Answers rows of text.

    Args:
        pipeline: how.
        open_run: opens the model as a function of arrays; it is told whether the job is
            larger than a batch.
        batch_size: inputs of the model that are run at once.
        source: where its weights were read from.
        task: its `kind`, and what else `task.json` holds of a fine-tuned one.
        model: in Keras; None for an exported one.
        export: writes it as a SavedModel that takes raw text; None for a kind that has
            none.

    Attributes:
        fields: the keys that a row must have, in the order of columns, and whether each
            holds a list of texts.
        tokenizer: the vocabulary.
        source: as given.
        task: as given.
        model: as given.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        open_run: Callable[[bool], Run],
        batch_size: int,
        source: str,
        task: Mapping[str, Any],
        model: "keras.Model | None" = None,
        export: Callable[[str | Path], None] | None = None,
    ):
        self.fields = pipeline.fields
        self.tokenizer = pipeline.tokenizer
        self.source = source
        self.task = task
        self.model = model
        self._pipeline = pipeline
        self._open_run = open_run
        self._batch_size = batch_size
        self._export = export
        self._run: Run | None = None

    def export(self, folder: str | Path) -> None:
        """Writes the same answers as a SavedModel that takes raw text.

        Args:
            folder: is made; an older SavedModel there is replaced.

        Raises:
            InputError: the model is an exported one, the kind of task has no such
                SavedModel, or the folder cannot be written.
        """
        if self._export is None:
            raise InputError(
                f"{self.source}: not exported for {self.task['kind']}; expected the "
                f"weights of a fine-tuned model, or --task=embedding"
            )
        self._export(folder)

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
        for examples in _grouped(itertools.starmap(self._encode, rows)):
            inputs = [each for example in examples for each in example.inputs]
            outputs = iter(self._forward(inputs))
            for example in examples:
                own = list(itertools.islice(outputs, len(example.inputs)))
                yield self._pipeline.postprocess(example, own)

    def _encode(self, location: str, row: Any) -> Example:
        checked = text_rows.check(location, row, self.fields)
        try:
            return self._pipeline.preprocess(checked)
        except InputError as mistake:
            raise InputError(f"{location}: {mistake}") from None

    def _forward(self, inputs: Sequence[Arrays]) -> list[Any]:
        """Returns what the pipeline takes of the model's outputs for each input."""
        if self._run is None:
            self._run = self._open_run(len(inputs) > self._batch_size)
        outputs: list[Any] = [None] * len(inputs)
        shapes = [each["input_ids"].shape for each in inputs]
        order = sorted(range(len(inputs)), key=shapes.__getitem__)
        for begin in range(0, len(order), self._batch_size):
            numbers = order[begin : begin + self._batch_size]
            batch = [inputs[i] for i in numbers]
            found = self._pipeline.forward(batch, self._run)
            for i, output in zip(numbers, found, strict=True):
                outputs[i] = output
        return outputs


def _grouped(examples: Iterable[Example]) -> Iterator[list[Example]]:
    """Yields as many examples at a time as are sorted by length together."""
    group: list[Example] = []
    count = 0
    for example in examples:
        group.append(example)
        count += max(1, len(example.inputs))
        if count >= _INPUTS_TO_SORT:
            yield group
            group, count = [], 0
    if group:
        yield group


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
        rows = text_rows.read(config, arguments, predictor.fields, log)
        write: Callable[[bytes], Any] = _to_standard_output
        if config.output_file:
            write = files.enter_context(atomic(config.output_file)).write
        answers = predictor.answer_placed(rows)
        for answer in tqdm.tqdm(answers, unit="row", file=log, disable=None):
            write(json.dumps(answer, ensure_ascii=False).encode() + b"\n")


def _to_standard_output(line: bytes) -> None:
    with errors.wrap_write("standard output"):
        sys.stdout.write(line.decode())
        sys.stdout.flush()


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
        log: logs a line. With it `options.runtime` "auto" may be ONNX Runtime, see
            `runtimes.choose`. Without it TensorFlow computes.

    Raises:
        InputError: something is missing or does not fit.
    """
    exported = sessions.find(path)
    opened = ModelFolder(path, checkpoint=checkpoint, files=files)
    _ = opened.task or exported or opened.source  # refuses a path where nothing is
    task = _described(path, opened, options)
    pipeline = _pipeline(task, opened, options)
    if exported is None:
        return _load_weights(task, opened, pipeline, options, log)
    if checkpoint != "best":
        raise InputError(f"--checkpoint={checkpoint}: {exported} is one model")
    return _load_exported(exported, task, pipeline, options, log)


def _described(
    path: str | Path, opened: ModelFolder, options: AnswerSettings
) -> dict[str, Any]:
    """Returns the keys of a `task.json` that a folder and the options give.

    Raises:
        InputError: they do not say what the model does, or contradict each other.
    """
    stored, is_ours = opened.task, metadata.is_written(opened.task)
    location = opened.folders[0] / metadata.TASK
    fine_tuned = stored.get("kind")
    kind = options.task or fine_tuned
    if kind is None:
        raise InputError(
            f"{path}: no task.json says what it was fine-tuned for; expected --task, "
            f"one of {', '.join((*registry.PRETRAINED, *registry.FINE_TUNED))}"
        )
    allowed = [*registry.PRETRAINED]
    if not is_ours and fine_tuned in metadata.HF_PROBLEMS:
        allowed += metadata.HF_PROBLEMS
    else:
        allowed += registry.FINE_TUNED if fine_tuned is None else [fine_tuned]
    if kind not in allowed:
        listed = ", ".join(dict.fromkeys(allowed))
        raise InputError(f"--task={kind}: expected one of {listed}")
    task = {**(stored if kind in registry.FINE_TUNED else {}), "kind": kind}
    if options.labels:
        task["labels"] = list(options.labels)
    elif "labels" not in registry.pipeline(kind, location).options:
        task.pop("labels", None)
    elif not is_ours and "labels" not in task:
        raise InputError(
            f"--task={kind}: expected --labels with it, in the order of the outputs"
        )
    if kind == "question_answering" and options.threshold is not None and not is_ours:
        task["version"] = "2.0"  # only this has odds
    return task


def _pipeline(
    task: Mapping[str, Any], opened: ModelFolder, options: AnswerSettings
) -> Pipeline:
    """Returns the pipeline of a `task.json`."""
    location = opened.folders[0] / metadata.TASK
    pipeline = registry.pipeline(task["kind"], location)
    options.check_for(
        task["kind"],
        pipeline.options,
        lambda: ((kind, each.options) for kind, each in registry.pipelines()),
    )
    settings = pipeline.settings_class and pipeline.settings_class.from_stored(
        task, location
    ).with_defaults(None, opened.config.max_position_embeddings)
    return pipeline(settings, opened.config, opened.tokenizer, options)


def _load_exported(
    file: Path,
    task: Mapping[str, Any],
    pipeline: Pipeline,
    options: AnswerSettings,
    log: Log | None,
) -> Predictor:
    """Opens what `convert` writes, without TensorFlow."""
    runtime = next(name for name, end in sessions.SUFFIXES.items() if end in file.name)
    if options.runtime not in ("auto", runtime):
        raise InputError(
            f"--runtime={options.runtime}: {file} runs in {runtime}; expected that"
        )

    def open_run(is_large: bool) -> Run:
        session = sessions.load(file, packed=is_large or log is None)
        if not {*pipeline.outputs} <= {*session.outputs}:
            raise InputError(
                f"--task={task['kind']}: {file} gives {', '.join(session.outputs)}; "
                f"expected the folder that it was converted from"
            )
        return session

    return Predictor(pipeline, open_run, options.batch_size, str(file), task)


def _load_weights(
    task: Mapping[str, Any],
    opened: ModelFolder,
    pipeline: Any,
    options: AnswerSettings,
    log: Log | None,
) -> Predictor:
    from albert_tf import weights
    from albert_tf.serve import runtimes, saved_models
    from albert_tf.tasks import text_graphs

    family = registry.task(task["kind"])
    if family is None:
        model, parts = pipeline.build_model(), pipeline.parts
    else:
        trained = family(pipeline.settings, opened.config, opened.tokenizer)
        model, parts = trained.build_model(), ("encoder", "head")
        task = {**task, **trained.description}
    unread = () if getattr(model, "head_reads_pooler", True) else "encoder.pooler"
    weights.load(model, opened.source, only=parts, allow_missing=unread, warn=False)

    def export(folder: str | Path) -> None:
        if family is None:
            serving_fn = text_graphs.embeddings(
                model, opened.tokenizer, max_seq_length=pipeline.max_seq_length
            )
        else:
            serving_fn = trained.serving_fn(model, options)
        saved_models.export(serving_fn, folder)

    def open_run(is_large: bool) -> Run:
        return runtimes.choose(
            model, pipeline.outputs, options.runtime, is_large=is_large, log=log
        )

    return Predictor(
        pipeline,
        open_run,
        options.batch_size,
        opened.source.path,
        task,
        model,
        export if family or task["kind"] == "embedding" else None,
    )
