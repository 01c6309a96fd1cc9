"""Converts weights from one format to another, and checks the result with numbers."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from albert_tf import models, runtimes, weights
from albert_tf.config import AlbertConfig, read_json_object
from albert_tf.errors import InputError
from albert_tf.settings.conversion import ConversionSettings

# Largest difference of an output that two programs may show on the same weights.
TOLERANCE = 1e-4


def convert(settings: ConversionSettings) -> None:
    """Converts weights and prints what was converted and how it was checked.

    The same tokens are run through the model that was read, through what was written,
    read again, and through the programs that the two formats belong to, as far as
    these are installed.

    Raises:
        InputError: what `weights.load`, `weights.save` and `runtimes.save` refuse, no
            configuration, a `precision` that the format does not have, or outputs that
            differ by more than `TOLERANCE`.
    """
    for_runtime = settings.output_format in runtimes.SUFFIXES
    if settings.precision != "float32" and not for_runtime:
        raise InputError(
            f"precision={settings.precision!r} with output_format="
            f"{settings.output_format!r}: expected 'float32'"
        )
    if not settings.output or Path(settings.output).resolve() == (
        Path(settings.input).resolve()
    ):
        raise InputError(
            f"output={settings.output!r}: expected another path than input"
        )
    source = weights.open_source(settings.input, settings.checkpoint)
    config = _config(source, settings.albert_config_file)
    model = weights.model_for(source, config)
    report = weights.load(model, source, allow_missing=settings.allow_missing)
    print(
        f"read     {source.path} ({report.format}): {type(model).__name__}, "
        f"{len(report.loaded)} weights, {model.count_params():,} parameters, "
        f"{len(report.ignored)} other tensors skipped"
    )
    if for_runtime:
        _export(model, settings)
        return
    written = weights.save(model, settings.output, settings.output_format)
    print(f"written  {written} ({settings.output_format})")

    tokens = _sample_tokens(config)
    ours = _run(model, tokens)
    again = weights.open_source(written)
    copy = weights.model_for(again, again.config())
    if isinstance(model, models.AlbertMultipleChoice):  # looks like regression
        copy = models.AlbertMultipleChoice(again.config())
    weights.load(copy, written)
    mask = tokens["input_mask"]
    _compare("read again from what was written", ours, _run(copy, tokens), mask, 0.0)
    for place, format in (
        (settings.input, report.format),
        (written, settings.output_format),
    ):
        theirs = _run_natively(Path(place), format, tokens)
        if theirs:
            _compare(f"{place} run by {format} itself", ours, theirs, mask, TOLERANCE)


def _export(model: keras.Model, settings: ConversionSettings) -> None:
    """Writes a file for another runtime, and runs it there."""
    path = runtimes.save(
        model,
        settings.output,
        settings.output_format,
        precision=settings.precision,
    )
    print(
        f"written  {path} ({settings.output_format}, {settings.precision}, "
        f"{path.stat().st_size:,} bytes)"
    )
    tokens = _sample_tokens(model.config)
    mask = tokens["input_mask"]
    # Where no positions are given, Keras predicts all of them.
    everywhere = np.broadcast_to(np.arange(mask.shape[1]), mask.shape)
    batch = _inputs(model, tokens) | {"masked_lm_positions": everywhere}
    theirs = runtimes.load(path)(batch)
    # What rounding costs depends on the weights: it is shown, and has no bound.
    tolerance = TOLERANCE if settings.precision == "float32" else np.inf
    what = f"{path} run by {settings.output_format} itself"
    _compare(what, _run(model, tokens), theirs, mask, tolerance)


def _config(source: weights.Source, file: str | None) -> AlbertConfig:
    if file:
        return AlbertConfig.find(file)
    try:
        return source.config()
    except InputError as mistake:
        raise InputError(
            f"{mistake}; name the configuration with --albert_config_file"
        ) from None


def _sample_tokens(config: AlbertConfig) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    length = min(16, config.max_position_embeddings)
    mask = np.ones((3, length), np.int32)
    mask[1, length // 2 :] = 0
    return {
        "input_ids": rng.integers(0, config.vocab_size, (3, length)).astype(np.int32),
        "input_mask": mask,
        "segment_ids": rng.integers(
            0, min(2, config.type_vocab_size), (3, length)
        ).astype(np.int32),
    }


def _inputs(model: keras.Model, tokens: Mapping[str, np.ndarray]) -> dict[str, Any]:
    if isinstance(model, models.AlbertConditionalSpanLabeler):
        return {**tokens, "p_mask": 1 - tokens["input_mask"]}
    if isinstance(model, models.AlbertMultipleChoice):
        return {key: value[:, None] for key, value in tokens.items()}
    return dict(tokens)


def _run(model: keras.Model, tokens: Mapping[str, np.ndarray]) -> dict[str, Any]:
    outputs = {**model(_inputs(model, tokens))}
    if isinstance(model, models.AlbertClassifier):
        outputs |= model.encoder(tokens)
    outputs.pop("encoder_outputs", None)
    return {key: np.asarray(value) for key, value in outputs.items()}


def _run_natively(path: Path, format: str, tokens) -> dict[str, np.ndarray]:
    """Runs weights in the program that they belong to, under our names of outputs.

    Returns nothing where that program is not installed, or no longer runs (TF1).
    """
    installed = importlib.util.find_spec
    whole = (path / "config.json").exists()
    if format == "hf" and whole and installed("torch") and installed("transformers"):
        return _run_huggingface(path, tokens)
    if format == "kerashub" and whole and installed("keras_hub"):
        return _run_kerashub(path, tokens)
    if format in ("model_garden", "keras") and (path / "saved_model.pb").exists():
        return _run_tf_hub(path, tokens)
    return {}


def _run_huggingface(path: Path, tokens) -> dict[str, np.ndarray]:
    import torch
    import transformers

    config = read_json_object(path / "config.json")
    architecture = (config.get("architectures") or ["AlbertModel"])[0]
    transformers.utils.logging.disable_progress_bar()
    model = getattr(transformers, architecture).from_pretrained(
        path, dtype=torch.float32
    )
    model.eval()
    tensors = {key: torch.tensor(value).long() for key, value in tokens.items()}
    names = {
        "last_hidden_state": "sequence_output",
        "pooler_output": "pooled_output",
        "prediction_logits": "mlm_logits",
        "logits": "mlm_logits" if "MaskedLM" in architecture else "logits",
    }
    if "MultipleChoice" in architecture:
        tensors = {key: value[:, None] for key, value in tensors.items()}
    with torch.no_grad():
        outputs = model(
            input_ids=tensors["input_ids"],
            attention_mask=tensors["input_mask"],
            token_type_ids=tensors["segment_ids"],
        )
    return {names.get(key, key): value.numpy() for key, value in outputs.items()}


def _run_kerashub(path: Path, tokens) -> dict[str, np.ndarray]:
    import keras_hub

    model = keras_hub.models.AlbertBackbone.from_preset(str(path))
    outputs = model(
        {
            "token_ids": tokens["input_ids"],
            "padding_mask": tokens["input_mask"],
            "segment_ids": tokens["segment_ids"],
        }
    )
    return {key: np.asarray(value) for key, value in outputs.items()}


def _run_tf_hub(path: Path, tokens) -> dict[str, np.ndarray]:
    import tensorflow as tf

    module = tf.saved_model.load(str(path))
    if not callable(module):  # it answers raw text
        return {}
    outputs = module(
        {
            "input_word_ids": tf.constant(tokens["input_ids"]),
            "input_mask": tf.constant(tokens["input_mask"]),
            "input_type_ids": tf.constant(tokens["segment_ids"]),
        },
        training=False,
    )
    return {key: outputs[key].numpy() for key in ("sequence_output", "pooled_output")}


def _compare(what: str, ours, theirs, mask: np.ndarray, tolerance: float) -> None:
    """Prints the largest difference of the outputs that both have; padding aside."""
    differences = {}
    for key in sorted(ours.keys() & theirs.keys()):
        a, b = np.asarray(ours[key], np.float64), np.asarray(theirs[key], np.float64)
        if a.shape[:2] == mask.shape and b.shape == a.shape:
            a, b = a[mask > 0], b[mask > 0]
        differences[key] = float(np.abs(a - b.reshape(a.shape)).max())
    text = ", ".join(f"{key} {value:.1e}" for key, value in differences.items())
    print(f"checked  {what}: largest difference {text}")
    if not max(differences.values()) <= tolerance:
        raise InputError(
            f"self-check failed: {what} differs by more than {tolerance:.0e}"
        )
