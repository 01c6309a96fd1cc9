"""Opens models that answer raw text, for `predict.py` and for Python.

    predictor = predict.load("runs/mrpc")
    for answer in predictor([{"text_a": "It rains.", "text_b": "Rain falls."}]):
        print(answer["label"], answer["probability"])

A row is the text, or the texts, of one example. An answer is the prediction for a row,
a dict of JSON values. A pipeline encodes rows, and makes answers from the outputs of
the model, see `tasks.pipelines`. TensorFlow, ONNX Runtime or LiteRT runs the model.
Inputs of similar length share a batch.
"""

import contextlib
import dataclasses
import functools
import gc
import itertools
import json
import operator
import os
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
from albert_tf.serve.settings import PredictSettings
from albert_tf.tasks import registry
from albert_tf.tasks.pipelines import Arrays, Example, ModelFunction, Pipeline, Row
from albert_tf.tasks.settings.pipeline import PipelineSettings
from albert_tf.weights import metadata
from albert_tf.weights.folder import ModelFolder
from albert_tf.weights.settings import ModelFileSettings

if TYPE_CHECKING:  # not imported at run time: exported models need no Keras
    import keras

    from albert_tf.tasks.serving import ServingFunction

# Number of inputs that are in memory together, and are sorted by length.
_INPUTS_TO_SORT = 2048

# Deprecated: the former name of `PipelineSettings`.
AnswerSettings = PipelineSettings


@dataclasses.dataclass
class Predictor:
    """Answers rows of text.

    Attributes:
        pipeline: encodes rows and makes answers.
        open_model: a function that opens the model and returns the function that runs
            it. The argument `is_large` tells whether the first inputs are more than one
            batch.
        batch_size: number of inputs in a batch.
        source: the path of the weights.
        task: the keys of `task.json`; only `kind` for a pretrained model.
        model: the Keras model; None for an exported model.
        serving_fn: a function that creates the graph of a SavedModel; None if the task
            has no SavedModel, or the model is already exported.
    """

    pipeline: Any
    open_model: Callable[..., ModelFunction]
    batch_size: int
    source: str
    task: Mapping[str, Any]
    model: "keras.Model | None" = None
    serving_fn: "Callable[[], ServingFunction] | None" = None
    _call: ModelFunction | None = dataclasses.field(default=None, init=False)

    @property
    def fields(self) -> Mapping[str, bool | None]:
        """The keys of a row in the order of columns, see `rows.Fields`."""
        return self.pipeline.fields

    def export(self, folder: str | Path) -> None:
        """Writes a SavedModel that takes raw text and returns predictions as tensors.

        Args:
            folder: the folder to create; an older SavedModel there is replaced.

        Raises:
            InputError: the task has no SavedModel, the model is already exported, or
                the folder cannot be written.
        """
        if self.serving_fn is None:
            raise InputError(
                f"{self.source}: cannot export {self.task['kind']}; pass the weights "
                f"of a fine-tuned model, or --task=embedding"
            )
        from albert_tf.serve import saved_models

        saved_models.export(self.serving_fn(), folder)

    def __call__(self, rows: Iterable[Row | str]) -> Iterator[dict[str, Any]]:
        """Answers rows in their order, in groups of about two thousand inputs.

        Args:
            rows: dicts with a text, or a list of texts, for each of `fields`. If only
                one field is required, a row can also be a text.

        Yields:
            The answer to each row, a dict of JSON values.

        Raises:
            InputError: a field is missing or has another type, or a row cannot be
                answered.
        """
        return self.answer_located((f"row {n}", row) for n, row in enumerate(rows, 1))

    def answer_located(
        self, rows: Iterable[tuple[str, Row | str]]
    ) -> Iterator[dict[str, Any]]:
        """Answers (location, row) pairs; messages name the location. See `__call__`."""
        for example, outputs in self._run_model(rows):
            yield self.pipeline.postprocess(example, outputs)

    def score(self, rows: Iterable[tuple[str, Row | str]]) -> Iterator[Any]:
        """Yields the scores of (location, row) pairs, from which answers are decided.

        See `FineTunedPipeline.score`. `Ensemble` averages the scores of several models.
        """
        for example, outputs in self._run_model(rows):
            yield self.pipeline.score(example, outputs)

    def _run_model(
        self, rows: Iterable[tuple[str, Row | str]]
    ) -> Iterator[tuple[Example, list[Any]]]:
        """Yields each row as an example, with one output for each of its inputs."""
        for examples in _group(itertools.starmap(self._encode, rows)):
            inputs = [each for example in examples for each in example.inputs]
            outputs = iter(self._forward(inputs))
            for example in examples:
                yield example, list(itertools.islice(outputs, len(example.inputs)))

    def _encode(self, location: str, row: Any) -> Example:
        """Checks and encodes a row; the messages of errors begin with the location."""
        checked = text_rows.check(location, row, self.fields)
        try:
            return self.pipeline.preprocess(checked)
        except InputError as mistake:
            raise InputError(f"{location}: {mistake}") from None

    def _forward(self, inputs: Sequence[Arrays]) -> list[Any]:
        """Returns an output for each input, in the order of the inputs.

        Inputs of similar length share a batch.
        """
        if self._call is None:
            self._call = self.open_model(is_large=len(inputs) > self.batch_size)
        outputs: list[Any] = [None] * len(inputs)
        order = sorted(range(len(inputs)), key=lambda i: inputs[i]["input_ids"].shape)
        for begin in range(0, len(order), self.batch_size):
            indices = order[begin : begin + self.batch_size]
            results = self.pipeline.forward([inputs[i] for i in indices], self._call)
            for i, output in zip(indices, results, strict=True):
                outputs[i] = output
        return outputs


class Ensemble:
    """Answers rows of text with the mean scores of several fine-tuned models.

    Only one model is in memory at a time.

    Args:
        paths: the folders of the models.
        open_member: a function that opens the model of a folder.

    Attributes:
        fields: see `Predictor`.
        source: the paths.
        task: the task of the first model.
    """

    def __init__(self, paths: Sequence[str], open_member: Callable[[str], Predictor]):
        self._paths = paths
        self._open = open_member
        # The first model is opened here, because the attributes need it. The first call
        # uses it, and then sets this attribute to None to free its memory.
        self._first_member: Predictor | None = open_member(paths[0])
        self._pipeline = self._first_member.pipeline
        self.fields = self._first_member.fields
        self.source = ", ".join(paths)
        self.task = self._first_member.task

    def __call__(self, rows: Iterable[Row | str]) -> Iterator[dict[str, Any]]:
        """Answers rows as `Predictor` does, but reads all rows before it answers."""
        return self.answer_located((f"row {n}", row) for n, row in enumerate(rows, 1))

    def answer_located(
        self, rows: Iterable[tuple[str, Row | str]]
    ) -> Iterator[dict[str, Any]]:
        """Answers (location, row) pairs; messages name the location. See `__call__`."""
        rows, totals = list(rows), list[Any]()
        for path in self._paths:
            member = self._first_member or self._open(path)
            self._first_member = None
            scores = list(member.score(rows))
            del member  # frees its memory before the next model is opened
            gc.collect()
            # `totals` is empty before the first model.
            totals = list(map(operator.add, totals, scores)) if totals else scores
        for (location, row), total in zip(rows, totals, strict=True):
            checked = text_rows.check(location, row, self.fields)
            yield self._pipeline.decide(checked, total / len(self._paths))


def _group(examples: Iterable[Example]) -> Iterator[list[Example]]:
    """Yields groups of examples. A group ends when it has `_INPUTS_TO_SORT` inputs.

    A row can have several inputs, such as the windows of a long text.
    """
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


def write_answers(
    settings: PredictSettings,
    options: PipelineSettings,
    arguments: Sequence[str] = (),
    log: IO[str] = sys.stderr,
) -> None:
    """Answers texts from arguments, a file or standard input, as JSON lines.

    Args:
        settings: the model and the files.
        options: settings of the answers.
        arguments: lines to answer instead of a file or standard input; empty for none.
        log: receives progress.

    Raises:
        InputError: see `load`; or a file cannot be read or written, or a row is bad.
    """
    if arguments and settings.input_file:
        raise InputError("texts as arguments and --input_file: give one of them")
    keywords: Any = {"checkpoint": settings.checkpoint, "files": settings}
    keywords["log"] = functools.partial(print, file=log)
    predictor: Predictor | Ensemble
    # A comma or `*` means several models, unless the whole value is an existing path.
    if set(",*") & set(settings.model) and not os.path.exists(settings.model):
        predictor = load_ensemble(settings.model.split(","), options, **keywords)
    else:
        predictor = load(settings.model, options, **keywords)
    print(f"Reading {predictor.source}", file=log)
    with contextlib.ExitStack() as files:
        rows = text_rows.read(settings, arguments, predictor, log)
        write: Callable[[bytes], Any] = _write_to_standard_output
        if settings.output_file:
            write = files.enter_context(atomic(settings.output_file)).write
        answers = predictor.answer_located(rows)
        # disable=None: the progress bar appears only if `log` is a terminal.
        for answer in tqdm.tqdm(answers, unit="row", file=log, disable=None):
            write(json.dumps(answer, ensure_ascii=False).encode() + b"\n")


def _write_to_standard_output(line: bytes) -> None:
    with errors.wrap_write("standard output"):
        sys.stdout.write(line.decode())
        sys.stdout.flush()


def load_ensemble(paths: Sequence[str], *arguments: Any, **options: Any) -> Ensemble:
    """Opens several fine-tuned models as an `Ensemble`.

    Args:
        paths: the folders of the models, or patterns such as "runs/mrpc/run-*".
        *arguments: see `load`.
        **options: see `load`.

    Raises:
        InputError: the models have different tasks, labels or numbers of options.
    """
    folders = metadata.find_members(paths, "--model")
    return Ensemble(folders, lambda path: load(path, *arguments, **options))


def load(
    path: str | Path,
    options: PipelineSettings = PipelineSettings(),
    *,
    checkpoint: str = "best",
    files: ModelFileSettings = ModelFileSettings(),
    log: Callable[[str], None] | None = None,
) -> Predictor:
    """Opens a model for raw text.

    Args:
        path: the folder of a fine-tuning run, or one of its checkpoints; a folder that
            `convert` wrote for another runtime; or weights in any format of
            `weights.load`. `options.task` is required if the folder names no task, see
            `ModelFolder.task`.
        options: settings of the answers.
        checkpoint: the checkpoint to use in the folder of a run, "best" or "newest".
        files: the configuration and vocabulary; by default from the weights' folder.
        log: for a call from a command, a function that logs a line; None for a call
            from Python. With None, `options.runtime` "auto" never chooses ONNX Runtime.

    Raises:
        InputError: the model, its configuration, vocabulary or task is missing, or does
            not fit the options.
    """
    exported_file = sessions.find(path)
    folder = ModelFolder(path, checkpoint=checkpoint, files=files)
    if not folder.task and exported_file is None:
        _ = folder.source  # raises an error if there are no weights
    task = _resolve_task(path, folder, options)
    pipeline = _build_pipeline(task, folder, options)
    if exported_file is None:
        return _load_weights(task, folder, pipeline, options, log)
    if checkpoint != "best":
        raise InputError(f"--checkpoint={checkpoint}: {exported_file} is one model")
    return _load_exported(exported_file, task, pipeline, options)


def _resolve_task(
    path: str | Path, folder: ModelFolder, options: PipelineSettings
) -> dict[str, Any]:
    """Returns the values of a folder's `task.json`, changed by `options`.

    Raises:
        InputError: the task is unknown, or the options contradict the folder.
    """
    stored, is_from_run = folder.task, metadata.is_from_run(folder.task)
    location = folder.folders[0] / metadata.TASK
    stored_kind = stored.get("kind")
    kind = options.task or stored_kind
    if kind is None:
        raise InputError(
            f"{path}: has no task.json; pass --task, one of "
            f"{', '.join((*registry.PRETRAINED, *registry.FINE_TUNED))}"
        )
    allowed = list(registry.PRETRAINED)
    # Hugging Face's config.json often lacks the problem type. Then `stored_kind` is a
    # guess, so --task can name another problem type.
    if not is_from_run and stored_kind in metadata.HF_PROBLEMS:
        allowed += metadata.HF_PROBLEMS
    else:
        allowed += registry.FINE_TUNED if stored_kind is None else [stored_kind]
    if kind not in allowed:
        names = ", ".join(dict.fromkeys(allowed))
        raise InputError(f"--task={kind}: must be one of {names}")
    task = {**(stored if kind in registry.FINE_TUNED else {}), "kind": kind}
    if options.labels:
        task["labels"] = list(options.labels)
    elif "labels" not in registry.find_pipeline_class(kind, location).option_names:
        # For example, --task=regression does not use the labels in config.json.
        task.pop("labels", None)
    elif not is_from_run and "labels" not in task:
        raise InputError(
            f"--task={kind}: needs --labels, in the order of the model's outputs"
        )
    has_threshold = options.threshold is not None
    if kind == "question_answering" and has_threshold and not is_from_run:
        task["version"] = "2.0"  # only this version scores "no answer"
    return task


def _build_pipeline(
    task: Mapping[str, Any], folder: ModelFolder, options: PipelineSettings
) -> Pipeline:
    """Returns the pipeline of a task.

    Args:
        task: the result of `_resolve_task`.
        folder: the folder of the model.
        options: settings of the answers.
    """
    location = folder.folders[0] / metadata.TASK
    pipeline_class = registry.find_pipeline_class(task["kind"], location)
    options.check_for(task["kind"], pipeline_class.option_names)
    settings = None
    if pipeline_class.settings_class is not None:
        longest = folder.config.max_position_embeddings
        stored = pipeline_class.settings_class.from_stored(task, location)
        settings = stored.with_defaults(saved_settings=None, longest=longest)
    return pipeline_class(settings, folder.config, folder.tokenizer, options)


def _load_exported(
    file: Path, task: Mapping[str, Any], pipeline: Pipeline, options: PipelineSettings
) -> Predictor:
    """Opens an ONNX or LiteRT file that `convert` wrote, without TensorFlow."""
    runtime = next(key for key, end in sessions.SUFFIXES.items() if end == file.suffix)
    if options.runtime not in ("auto", runtime):
        raise InputError(f"--runtime={options.runtime}: {file} only runs in {runtime}")
    session = sessions.load(file)
    if not set(pipeline.output_names) <= set(session.outputs):
        raise InputError(
            f"--task={task['kind']}: {file} only has {', '.join(session.outputs)}; "
            f"pass the folder that it was converted from"
        )
    batch_size = options.batch_size
    return Predictor(pipeline, lambda is_large: session, batch_size, str(file), task)


def _load_weights(
    task: Mapping[str, Any],
    folder: ModelFolder,
    pipeline: Any,
    options: PipelineSettings,
    log: Callable[[str], None] | None,
) -> Predictor:
    """Builds the Keras model of a task, and loads its weights."""
    from albert_tf import weights
    from albert_tf.serve import runtimes
    from albert_tf.tasks import text_graphs

    kind, serving_fn = task["kind"], None
    if task_class := registry.find_task_class(kind):
        fine_tuned = task_class(pipeline.settings, folder.config, folder.tokenizer)
        model, groups = fine_tuned.build_model(), ("encoder", "head")
        # The description also has the keys that the stored task lacks.
        task = {**task, **fine_tuned.description}
        serving_fn = functools.partial(fine_tuned.serving_fn, model, options.threshold)
    else:
        model, groups = pipeline.build_model(), pipeline.weight_groups
        if kind == "embedding":
            embed = functools.partial(text_graphs.embeddings, model, folder.tokenizer)
            length = pipeline.max_seq_length
            serving_fn = functools.partial(embed, max_seq_length=length)
    # The weights may lack the pooler if no head of the model reads it.
    optional = () if getattr(model, "head_reads_pooler", True) else "encoder.pooler"
    weights.load(model, folder.source, only=groups, allow_missing=optional, warn=False)
    open_model = functools.partial(
        runtimes.choose, model, pipeline.output_names, options.runtime, log=log
    )
    batch_size, path = options.batch_size, folder.source.path
    return Predictor(pipeline, open_model, batch_size, path, task, model, serving_fn)
