"""Converts weights to another format, and compares the outputs of both models."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from albert_tf import errors, weights
from albert_tf.data.files import atomic_folder
from albert_tf.errors import InputError
from albert_tf.model import models
from albert_tf.model.config import AlbertConfig
from albert_tf.serve import runtimes, sessions
from albert_tf.serve.runtimes.signatures import build_signature
from albert_tf.serve.settings import ConversionSettings
from albert_tf.tasks import registry
from albert_tf.text import tokenization
from albert_tf.text.tokenization import Tokenizer
from albert_tf.weights import metadata
from albert_tf.weights.folder import ModelFolder
from albert_tf.weights.names import expand

# Maximum difference allowed between the outputs of Keras and of another runtime, with
# the same float32 weights.
TOLERANCE = 1e-4

_Tokens = Mapping[str, np.ndarray]


def convert(settings: ConversionSettings) -> None:
    """Converts weights, and prints the steps and the result of the check.

    The check reads the written model, and compares its outputs with the outputs of the
    input model. Code in the input is never executed.

    Raises:
        InputError: see `weights.load`, `weights.save` and `runtimes.save`; or the
            configuration is missing, the vocabulary does not fit, or outputs differ.
            In litert and onnx, outputs may differ by up to `TOLERANCE` with float32
            weights, and by any number with weights of lower precision.
    """
    is_same_path = Path(settings.output).resolve() == Path(settings.input).resolve()
    if not settings.output or is_same_path:
        raise InputError(
            f"--output={settings.output!r}: must be a path other than --input"
        )
    # `settings` also has the flags of the configuration and the vocabulary.
    folder = ModelFolder(settings.input, checkpoint=settings.checkpoint, files=settings)
    source, model = folder.source, _build_model(settings, folder)
    allow_missing = settings.allow_missing
    if not getattr(model, "head_reads_pooler", True):
        allow_missing = (*allow_missing, "encoder.pooler")
    report = weights.load(model, source, allow_missing=allow_missing)
    print(
        f"read     {source.path} ({report.format}): {type(model).__name__}, "
        f"{len(report.loaded)} weights, {model.count_params():,} parameters, "
        f"{len(report.ignored)} other tensors skipped"
    )
    if settings.vocab_size or settings.max_position_embeddings:
        model = _grow(model, settings)
        folder.config = model.config
    if settings.output_format in runtimes.SUFFIXES:
        _export(model, settings, folder)
    else:
        _check_written(model, path=_save(model, settings, folder))


def _build_model(settings: ConversionSettings, folder: ModelFolder) -> keras.Model:
    """Creates a model that fits the input's weights, without loading them."""
    kind = folder.task.get("kind")
    task_class = registry.find_task_class(kind)
    if settings.output_format in runtimes.SUFFIXES and task_class is not None:
        # The task class also uses numbers that only `task.json` has. For example, the
        # graph for SQuAD 2.0 contains the numbers of candidate starts and ends.
        task = task_class(_read_settings(folder), folder.config, folder.tokenizer)
        return task.build_model()
    model = weights.model_for(folder.source, folder.config)
    if isinstance(model, models.AlbertClassifier) and kind == "multiple_choice":
        # `model_for` only knows the names and shapes of the weights, which are the same
        # for multiple choice and for regression.
        return models.AlbertMultipleChoice(folder.config)
    return model


def _complete_task(folder: ModelFolder) -> dict[str, Any]:
    """Returns the content of `task.json` for the input's task, with all keys.

    The result is empty if the input has no task, or a task of pretrained models, such
    as fill_mask.
    """
    if folder.task.get("kind") not in registry.FINE_TUNED:
        return {}
    if metadata.is_from_run(folder.task):
        return {**folder.task}
    # The task of another program's model lacks some keys. "stored" marks the settings
    # that belong in `task.json`.
    return {**folder.task, **_read_settings(folder).select("stored")}


def _read_settings(folder: ModelFolder) -> Any:
    """Returns the settings in `task.json`, with defaults for missing keys."""
    settings_class = registry.find_pipeline_class(folder.task["kind"]).settings_class
    settings = settings_class.from_stored(folder.task, metadata.TASK)
    # None, because `settings` already has the saved values.
    return settings.with_defaults(None, folder.config.max_position_embeddings)


def _grow(model: keras.Model, settings: ConversionSettings) -> keras.Model:
    """Returns a model with more tokens or positions, and otherwise the same weights.

    New rows of the word table, and new output biases, are the mean of the old ones plus
    noise (seed 0). The noise has the standard deviation of initial weights. New rows of
    the position table repeat the old rows in order.
    """
    options = model.get_config()
    for name in ("vocab_size", "max_position_embeddings"):
        least = options["config"][name]
        size = getattr(settings, name) or least
        if size < least:
            raise InputError(f"--{name}={size}: must be at least {least}, the old size")
        options["config"][name] = size
    grown = type(model).from_config(options)
    rng = np.random.default_rng(0)
    # `expand` lists the weights of a model, always in the same order.
    for old, new in zip(expand(model, "keras"), expand(grown, "keras"), strict=True):
        value = keras.ops.convert_to_numpy(old.variable)
        if old.path.endswith("embeddings.position"):
            value = np.resize(value, new.shape)
        elif new.shape[0] > len(value):
            shape = (new.shape[0] - len(value), *new.shape[1:])
            rows = rng.normal(value.mean(axis=0), model.config.initializer_range, shape)
            value = np.concatenate([value, rows])
        new.variable.assign(value)
    return grown


def _open_tokenizer(
    settings: ConversionSettings, folder: ModelFolder
) -> Tokenizer | None:
    """Opens the vocabulary of the output; returns None if there is none.

    With --vocab_size, the flags can name a new vocabulary. `find_tokenizer` would
    reject it, because the input's metadata describe the old vocabulary.
    """
    if settings.vocab_size is None or not any(settings.vocabularies):
        return folder.find_tokenizer()
    cleaning = settings.do_lower_case, settings.keep_accents
    tokenizer = tokenization.load(*settings.vocabularies, *cleaning)
    folder.config.check_vocabulary(tokenizer.path, tokenizer.vocab_size)
    return tokenizer


def _save(
    model: keras.Model, settings: ConversionSettings, folder: ModelFolder
) -> Path:
    """Writes the weights, the vocabulary and `task.json`.

    With a `.keras` file, it writes the vocabulary and `task.json` only if there is a
    task.

    Returns:
        The path of the weights.
    """
    format = settings.output_format
    # For hf, `weights.save` writes the vocabulary and the task in Hugging Face's files.
    # There is no `task.json`.
    task = {} if format == "hf" else _complete_task(folder)
    needs_vocabulary = format != "keras" or bool(task)
    tokenizer = _open_tokenizer(settings, folder) if needs_vocabulary else None
    options: dict[str, Any] = {}
    if format == "hf":
        options = {"tokenizer": tokenizer, "task": folder.task}
    written = weights.save(model, settings.output, format, **options)
    print(f"written  {written} ({format})")
    task_file = written.parent / metadata.TASK
    if needs_vocabulary and tokenizer is None:
        print(
            f"skipped  the vocabulary: none in {folder.folders[0]}; pass "
            f"--spm_model_file or --vocab_file"
        )
    if format == "keras" and task and task_file.exists():
        print(f"kept     {task_file}: predictions use its labels and vocabulary")
    elif format != "hf" and (task or tokenizer is not None):
        metadata.write(written.parent, tokenizer, task)
    return written


def _check_written(model: keras.Model, path: Path) -> None:
    """Reads the written model, and checks that its outputs are equal to `model`'s."""
    source = weights.open_source(path)
    copy = weights.model_for(source, source.config())
    # `model_for` cannot always distinguish multiple choice from regression: both have
    # the same weights.
    if isinstance(model, models.AlbertMultipleChoice):
        copy = models.AlbertMultipleChoice(source.config())
    weights.load(copy, path)
    tokens = _sample_tokens(model.config)
    expected, actual = _run(model, tokens), _run(copy, tokens)
    name = "the written model, read again"
    _compare(name, expected, actual, tokens["input_mask"], tolerance=0.0)


def _export(
    model: keras.Model, settings: ConversionSettings, folder: ModelFolder
) -> None:
    """Writes a model for another runtime, and compares its outputs with Keras's."""
    path, format = Path(settings.output), settings.output_format
    if path.suffix in runtimes.SUFFIXES.values():
        runtimes.save(model, path, format, precision=settings.precision)
    else:
        path = _export_folder(model, settings, folder)
    print(
        f"written  {path} ({format}, {settings.precision}, "
        f"{path.stat().st_size:,} bytes)"
    )
    tokens = _sample_tokens(model.config)
    mask = tokens["input_mask"]
    # Without `masked_lm_positions`, the Keras model predicts at all positions. The
    # written model requires this input.
    positions = np.broadcast_to(np.arange(mask.shape[1]), mask.shape)
    batch = _select_inputs(model, tokens) | {"masked_lm_positions": positions}
    session = runtimes.load(path)
    # The error of lower precision depends on the weights, so it is only printed.
    tolerance = TOLERANCE if settings.precision == "float32" else np.inf
    expected, actual = _run(model, tokens), session(batch)
    _compare(f"{path} in {format}", expected, actual, mask, tolerance)


def _export_folder(
    model: keras.Model, settings: ConversionSettings, folder: ModelFolder
) -> Path:
    """Writes a folder that `predict` can use without TensorFlow.

    It has the model, its configuration, the vocabulary and `task.json`.

    Returns:
        The path of the model in the folder.
    """
    target, format = Path(settings.output), settings.output_format
    name = f"{sessions.NAME}{runtimes.SUFFIXES[format]}"
    existing = sessions.find(target)
    if existing is not None and existing.name != name:
        raise InputError(f"{existing}: exists; use another folder for {name}")
    # If no vocabulary exists, `folder.tokenizer` raises an error that names the flags.
    tokenizer = _open_tokenizer(settings, folder) or folder.tokenizer
    with errors.wrap_write(target), atomic_folder(target) as new_folder:
        metadata.write(new_folder, tokenizer, _complete_task(folder))
        config = model.config.to_json_string().encode()
        (new_folder / metadata.CONFIG).write_bytes(config)
        runtimes.save(model, new_folder / name, format, precision=settings.precision)
    return target / name


def _sample_tokens(config: AlbertConfig) -> dict[str, np.ndarray]:
    """Returns random encoder inputs, int32 [3, T tokens]; one row has padding."""
    rng = np.random.default_rng(0)
    shape = (3, min(16, config.max_position_embeddings))
    num_segments = min(2, config.type_vocab_size)
    mask = np.ones(shape, np.int32)
    mask[1, shape[1] // 2 :] = 0
    return {
        "input_ids": rng.integers(0, config.vocab_size, shape).astype(np.int32),
        "input_mask": mask,
        "segment_ids": rng.integers(0, num_segments, shape).astype(np.int32),
    }


def _select_inputs(model: keras.Model, tokens: _Tokens) -> dict[str, Any]:
    """Returns those of `tokens` and `p_mask` that the model takes as inputs.

    `p_mask` is 1 for padding. For multiple choice, each row becomes a question with one
    choice, [3, 1, T]. T is the number of tokens.
    """
    shapes = build_signature(model).inputs
    return {
        name: value[:, None] if "choices" in shapes[name] else value
        for name, value in {**tokens, "p_mask": 1 - tokens["input_mask"]}.items()
        if name in shapes
    }


def _run(model: keras.Model, tokens: _Tokens) -> dict[str, Any]:
    """Returns the outputs of a model, except the list `encoder_outputs`.

    A classifier computes only the state of the first token. Its encoder's outputs are
    added, so that all tokens are compared.
    """
    outputs = {**model(_select_inputs(model, tokens))}
    if isinstance(model, models.AlbertClassifier):
        outputs |= model.encoder(tokens)
    outputs.pop("encoder_outputs", None)
    return {key: np.asarray(value) for key, value in outputs.items()}


def _compare(name: str, expected, actual, mask: np.ndarray, tolerance: float) -> None:
    """Prints and checks the largest difference of each output that both models have.

    Outputs of tokens at which `mask` is 0 are ignored.
    """
    differences = {}
    for key in sorted(expected.keys() & actual.keys()):
        difference = np.abs(np.subtract(expected[key], actual[key], dtype=np.float64))
        if difference.shape[:2] == mask.shape:
            difference = difference[mask > 0]
        differences[key] = float(difference.max())
    text = ", ".join(f"{key} {value:.1e}" for key, value in differences.items())
    print(f"checked  {name}: largest difference {text}")
    # A difference that is NaN fails, too: the maximum of NumPy is then NaN.
    if not np.max([*differences.values()]) <= tolerance:
        raise InputError(f"check failed: {name} differs by more than {tolerance:.0e}")
