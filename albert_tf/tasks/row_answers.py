"""How rows of text are answered in Python, whatever runs the model.

TensorFlow, ONNX Runtime and LiteRT give the outputs of a model; what stands around it,
from texts to ids and from outputs to answers, is here, and needs none of them. Kinds
that are not here are answered in a TensorFlow graph alone, see `answer`.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from albert_tf import errors
from albert_tf.errors import InputError
from albert_tf.model.config import AlbertConfig
from albert_tf.tasks import custom
from albert_tf.tasks.settings.answer import AnswerSettings
from albert_tf.tasks.settings.classification import ClassificationSettings
from albert_tf.tasks.text_task import THRESHOLD
from albert_tf.text import inputs
from albert_tf.text.inputs import MASK
from albert_tf.text.tokenization import WORD_MARK, Tokenizer

# Kinds of answers that need no fine-tuning.
PRETRAINED = ("fill_mask", "score", "sentence_order", "embedding")
# Those of fine-tuned models, and which of them have labels.
FINE_TUNED = (
    *("classification", "multi_label", "token_classification"),
    *("regression", "question_answering", "multiple_choice"),
)
LABELLED = FINE_TUNED[:3]
# Which fields of `AnswerSettings` each kind has beside those of all. Embeddings are the
# only ones here that other runtimes do not answer.
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "classification": ("threshold", "top_k", "runtime", "labels"),
    "multi_label": ("threshold", "top_k", "runtime", "labels"),
    "regression": ("runtime",),
    "multiple_choice": ("runtime",),
    "question_answering": ("threshold", "top_k", "runtime"),
    "fill_mask": ("top_k", "targets", "runtime"),
    "sentence_order": ("runtime",),
    "embedding": ("layer", "pooling"),
}
_MAX_SEQ_LENGTH = 512

Row = dict[str, Any]
Outputs = Mapping[str, Any]
# From a batch, int32 arrays by name, to a model's outputs.
Run = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class RowAnswer:
    """A way from rows of text to answers.

    Attributes:
        fields: the keys of a row, in the order of columns, and whether each holds a
            list of texts; None: a text that may be absent.
        tokenizer: the vocabulary.
        respond: answers rows with a function that runs the model; plain text, numbers,
            lists and dicts for each.
        outputs: what it needs of the model; empty: all of its head.
        complete: adds to an answer what its whole row is needed for.
        problem: returns why a row cannot be answered; None where it can.
        shorten: takes from a row what the model cannot read, so that very long texts
            are not tokenized.
    """

    fields: Mapping[str, bool | None]
    tokenizer: Tokenizer
    respond: Callable[[Sequence[Row], Run], list[dict[str, Any]]]
    outputs: tuple[str, ...] = ()
    complete: Callable[[Row, dict[str, Any]], dict[str, Any]] = lambda row, answer: (
        answer
    )
    problem: Callable[[Row], str | None] = lambda row: None
    shorten: Callable[[Row], Row] = lambda row: row


def of_kind(
    kind: str,
    stored: Mapping[str, Any],
    config: AlbertConfig,
    tokenizer: Tokenizer,
    options: AnswerSettings,
    place: str | Path = "task.json",
) -> RowAnswer | None:
    """Returns how a kind of model answers rows.

    Args:
        kind: of the task.
        stored: the contents of its `task.json`; of no account to a pretrained one.
        config: the model's.
        tokenizer: its vocabulary.
        options: how to answer.
        place: of the `task.json`, for messages.

    Returns:
        None where a TensorFlow graph alone answers this kind.

    Raises:
        InputError: what is stored or an option does not fit.
    """
    if kind in ("classification", "multi_label", "regression"):
        return _text_task(stored, config, tokenizer, options, place)
    if kind == "question_answering":
        from albert_tf.tasks.squad import rows as squad

        return squad.question_answering(stored, config, tokenizer, options, place)
    if kind == "multiple_choice":
        from albert_tf.tasks.race import rows as race

        return race.multiple_choice(stored, config, tokenizer, options, place)
    if kind in ("fill_mask", "sentence_order"):
        length = longest_input(config, options)
        check_inputs(config, tokenizer, length)
        inputs.encode(tokenizer, [], None, length)  # refuses a short length
        if kind == "sentence_order":
            return _sentence_order(tokenizer, length)
        return _fill_mask(config, tokenizer, length, options)
    return None


def longest_input(config: AlbertConfig, options: AnswerSettings) -> int:
    """Returns the most tokens of an input of a pretrained model."""
    if options.max_seq_length is not None:
        return options.max_seq_length
    return min(_MAX_SEQ_LENGTH, config.max_position_embeddings)


def check_inputs(config: AlbertConfig, tokenizer: Tokenizer, length: int) -> None:
    """Refuses ids or positions that a model does not have; warns of unused ids.

    Raises:
        InputError: see `AlbertConfig.check_vocabulary`; or a length above the model's
            positions.
    """
    config.check_vocabulary(tokenizer.path, tokenizer.vocab_size)
    if length > (longest := config.max_position_embeddings):
        raise InputError(
            f"--max_seq_length={length}: expected at most {longest}, the model's "
            f"max_position_embeddings"
        )


def check_threshold(
    labels: Sequence[str], multi_label: bool, threshold: float | None
) -> None:
    """Refuses a threshold that labels cannot have."""
    if threshold is None:
        return
    if not 0 <= threshold <= 1:
        raise InputError(f"threshold {threshold}: expected a probability in [0, 1]")
    if not multi_label and len(labels) != 2:
        raise InputError(
            f"threshold {threshold} with {len(labels)} labels of which a text has one; "
            f"expected 2 labels"
        )


def beginnings(
    tokenizer: Tokenizer, max_seq_length: int, *names: str
) -> Callable[[Row], Row]:
    """Returns a `RowAnswer.shorten` that keeps the beginnings of the named texts."""

    def shorten(row: Row) -> Row:
        given = [name for name in names if name in row]
        cut = {n: inputs.cut(tokenizer, row[n], max_seq_length) for n in given}
        return {**row, **cut}

    return shorten


def rounded(value: Any) -> Any:
    """Returns numbers with the digits that a float32 has, and no more."""
    return np.asarray(value, np.float32).astype(str).astype(float).tolist()


def text(value: Any) -> str:
    """Returns a text, which TensorFlow gives as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def softmax(logits: np.ndarray, axis: int = -1) -> np.ndarray:
    """Returns probabilities, of the shape of the logits."""
    shifted = np.exp(logits - logits.max(axis=axis, keepdims=True))
    return shifted / shifted.sum(axis=axis, keepdims=True)


# What `labelled` needs of `keras.ops`, for arrays.
NUMPY = SimpleNamespace(
    softmax=softmax,
    sigmoid=lambda logits: np.float32(1 / (1 + np.exp(-np.float64(logits)))),
    argmax=np.argmax,
    take_along_axis=np.take_along_axis,
    cast=lambda array, dtype: array.astype(dtype),
    clip=np.clip,
)


def labelled(
    ops: Any, logits: Any, multi_label: bool, threshold: float | None
) -> dict[str, Any]:
    """Chooses labels, in Python and in a graph.

    Args:
        ops: `NUMPY` or `keras.ops`.
        logits: float [B, K].
        multi_label: whether labels are independent (sigmoid, not softmax).
        threshold: see `text_graphs.classifier`.

    Returns:
        `probabilities`, float [B, K]; with `multi_label` `chosen`, int32 [B, K], else
        `choice`, int32 [B], and `probability`, float [B], its own.
    """
    least = THRESHOLD if threshold is None else threshold
    probabilities = ops.sigmoid(logits) if multi_label else ops.softmax(logits)
    if multi_label:
        chosen = ops.cast(probabilities >= least, "int32")
        return {"probabilities": probabilities, "chosen": chosen}
    choice = ops.argmax(probabilities, axis=-1)
    if threshold is not None:
        choice = ops.cast(probabilities[:, 1] >= least, "int32")
    own = ops.take_along_axis(probabilities, choice[:, None], axis=1)[:, 0]
    return {"probabilities": probabilities, "choice": choice, "probability": own}


def describe_labels(
    labels: Sequence[str], top_k: int | None = None
) -> Callable[[Outputs], dict[str, Any]]:
    """Returns what describes the outputs of one row, whose `label` is chosen.

    With `top_k`, so many probabilities are listed, the highest first.
    """

    def describe(outputs: Outputs) -> dict[str, Any]:
        each = dict(zip(labels, rounded(outputs["probabilities"]), strict=True))
        if top_k is not None:
            best = sorted(each, key=each.__getitem__, reverse=True)[:top_k]
            each = {label: each[label] for label in best}
        if "chosen" in outputs:
            has = zip(labels, outputs["chosen"], strict=True)
            return {"labels": [k for k, c in has if c], "probabilities": each}
        label = outputs["label"] if "label" in outputs else labels[outputs["choice"]]
        return {
            "label": text(label),
            "probability": rounded(outputs["probability"]),
            "probabilities": each,
        }

    return describe


def described(
    describe: Callable[[Outputs], dict[str, Any]], outputs: Outputs, count: int
) -> list[dict[str, Any]]:
    """Describes the outputs of several rows."""
    rows = ({name: value[i] for name, value in outputs.items()} for i in range(count))
    return [describe(row) for row in rows]


def _text_task(stored, config, tokenizer, options, place) -> RowAnswer:
    settings = ClassificationSettings.from_stored(stored, place)
    settings = settings.completed(None, config.max_position_embeddings)
    task = custom.of_model(settings)
    length = options.max_seq_length or settings.max_seq_length or _MAX_SEQ_LENGTH
    check_inputs(config, tokenizer, length)
    inputs.encode(tokenizer, [], None, length)  # refuses a short length
    fields = {"text": False, "text_b": None}  # of which a folder may not say more
    if settings.texts is not None:
        names = ("text_a", "text_b") if settings.texts == 2 else ("text",)
        fields = dict.fromkeys(names, False)
    multi_label = task.kind == "multi_label"
    if task.labels is not None:
        check_threshold(task.labels, multi_label, options.threshold)

    def respond(rows: Sequence[Row], run: Run) -> list[dict[str, Any]]:
        # Rows of one batch have as many texts.
        logits = run(batch_of(tokenizer, rows, tuple(rows[0]), length))["logits"]
        if task.labels is None:
            value = bounded(NUMPY, logits, task.bounds)
            return described(describe_value, {"value": value}, len(rows))
        if logits.shape[-1] != len(task.labels):
            raise InputError(
                f"{place}: {len(task.labels)} labels; expected {logits.shape[-1]}, one "
                f"for each output of the model"
            )
        outputs = labelled(NUMPY, logits, multi_label, options.threshold)
        describe = describe_labels(task.labels, options.top_k)
        return described(describe, outputs, len(rows))

    shorten = beginnings(tokenizer, length, *fields)
    return RowAnswer(fields, tokenizer, respond, ("logits",), shorten=shorten)


def bounded(ops: Any, logits: Any, bounds: tuple[float, float] | None) -> Any:
    """Returns the numbers of a regression, float [B], of logits, float [B, 1]."""
    return ops.clip(logits[:, 0], *(bounds or (-math.inf, math.inf)))


def describe_value(outputs: Outputs) -> dict[str, Any]:
    """Describes the number of one row."""
    return {"value": rounded(outputs["value"])}


def batch_of(
    tokenizer: Tokenizer, rows: Sequence[Row], names: Sequence[str], length: int
) -> dict[str, np.ndarray]:
    """Returns the inputs of texts, or of pairs of texts, int32 [B, T]."""
    first, *second = ([row[name] for row in rows] for name in names)
    encoded = inputs.encode(tokenizer, first, second[0] if second else None, length)
    every = range(len(rows))
    return inputs.pad(encoded, every, int(encoded.lengths.max()), tokenizer.pad_id)


def _sentence_order(tokenizer: Tokenizer, length: int) -> RowAnswer:
    names = ("text_a", "text_b")

    def respond(rows: Sequence[Row], run: Run) -> list[dict[str, Any]]:
        batch = batch_of(tokenizer, rows, names, length)
        # An exported model has the masked LM too, whose output is left alone.
        nowhere = np.zeros((len(rows), 1), np.int32)
        logits = run({**batch, "masked_lm_positions": nowhere})["sop_logits"]
        outputs = {"in_order": softmax(logits)[:, 0]}
        return described(describe_order, outputs, len(rows))

    shorten = beginnings(tokenizer, length, *names)
    fields = dict.fromkeys(names, False)
    return RowAnswer(fields, tokenizer, respond, ("sop_logits",), shorten=shorten)


def describe_order(outputs: Outputs) -> dict[str, Any]:
    """Describes the order of one row."""
    return {"in_order": rounded(outputs["in_order"])}


TOP_K = 5


def target_ids(tokenizer: Tokenizer, targets: Sequence[str]) -> list[int]:
    """Returns the ids of words.

    Raises:
        InputError: a word is not one token.
    """
    ids = [tokenizer.encode(target) for target in targets]
    for target, each in zip(targets, ids, strict=True):
        if len(each) != 1 or each == [tokenizer.unk_id]:
            raise InputError(
                f"target {target!r}: expected one token of the vocabulary, not "
                f"{tokenizer.tokenize(target)}"
            )
    return [id for [id] in ids]


def _fill_mask(
    config: AlbertConfig, tokenizer: Tokenizer, length: int, options: AnswerSettings
) -> RowAnswer:
    top_k = options.top_k or TOP_K
    names = [tokenizer.id_to_piece(id) for id in range(tokenizer.vocab_size)]
    scored: Any = slice(None)
    if options.targets is not None:
        scored = target_ids(tokenizer, options.targets)
    # A model may have more ids than its vocabulary.
    pieces = np.array(names + [""] * (config.vocab_size - len(names)), object)[scored]
    cls, sep, mask = tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id

    def respond(rows: Sequence[Row], run: Run) -> list[dict[str, Any]]:
        whole = [inputs.encode_masked(tokenizer, row["text"]) for row in rows]
        ids = [[cls, *each[: length - 2], sep] for each in whole]
        gaps = [np.flatnonzero(np.equal(each, mask)) for each in ids]
        positions = np.zeros((len(rows), max(1, *map(len, gaps))), np.int32)
        for position, gap in zip(positions, gaps, strict=True):
            position[: len(gap)] = gap
        batch = _padded(ids, tokenizer.pad_id)
        logits = run({**batch, "masked_lm_positions": positions})["mlm_logits"]
        answers = []
        for each, gap, scores in zip(whole, gaps, logits, strict=True):
            shares = softmax(scores[: len(gap)])[:, scored]
            best = np.argsort(-shares, axis=-1, kind="stable")[:, :top_k]
            outputs = {
                "pieces": pieces[best],
                "probabilities": np.take_along_axis(shares, best, axis=-1),
                "beyond_length": each.count(mask) - len(gap),
            }
            answers.append(describe_gaps(outputs))
        return answers

    def shorten(row: Row) -> Row:
        cut = inputs.cut(tokenizer, row["text"], length)
        # The gaps beyond the length are counted.
        return {"text": cut + MASK * (row["text"].count(MASK) - cut.count(MASK))}

    return RowAnswer(
        {"text": False},
        tokenizer,
        respond,
        ("mlm_logits",),
        complete=lambda row, answer: {
            **answer,
            "filled": filled(row["text"], answer["gaps"], tokenizer),
        },
        problem=_lack_of_gaps,
        shorten=shorten,
    )


def _padded(rows: Sequence[Sequence[int]], pad_id: int) -> dict[str, np.ndarray]:
    """Returns the inputs of rows of one segment, int32 [B, T]."""
    lengths = np.array([len(row) for row in rows], np.int32)
    joined = inputs.Inputs(
        np.concatenate(rows).astype(np.int32),
        np.cumsum([0, *lengths]),
        lengths,
        truncated=0,
        truncated_pieces=0,
    )
    return inputs.pad(joined, range(len(rows)), int(lengths.max()), pad_id)


def describe_gaps(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Describes the gaps of one row; those of graphs are as many as any row has."""
    rows = zip(outputs["pieces"], outputs["probabilities"], strict=True)
    gaps = [
        [
            {"piece": text(piece), "probability": probability}
            for piece, probability in zip(pieces, rounded(best), strict=True)
        ]
        for pieces, best in rows
        if best[0] > 0  # another text in the batch may have more gaps
    ]
    if beyond := int(outputs["beyond_length"]):
        return {"gaps": gaps + [[]] * beyond, "beyond_length": beyond}
    return {"gaps": gaps}


def filled(
    text: str, gaps: Sequence[Sequence[Mapping[str, Any]]], tokenizer: Tokenizer
) -> str:
    """Fills the gaps of a text with the likeliest pieces.

    A piece that begins no word has no space before it.

    Args:
        text: with [MASK] for each gap.
        gaps: as answered; one without pieces stays [MASK].
        tokenizer: the vocabulary.
    """
    marks_words = tokenizer.piece_to_id(WORD_MARK) != tokenizer.unk_id
    result, *others = text.split(MASK)
    for number, after in enumerate(others):
        piece = gaps[number][0]["piece"] if number < len(gaps) and gaps[number] else ""
        if piece.startswith(WORD_MARK):
            piece = piece[len(WORD_MARK) :]
            result += " " if result and not result[-1].isspace() else ""
        elif piece.startswith("##") or (piece and marks_words):
            piece, result = piece.removeprefix("##"), result.rstrip()
        result += (piece or MASK) + after
    return result


def _lack_of_gaps(row: Row) -> str | None:
    if MASK in row["text"]:
        return None
    return f"no {MASK} in {errors.shown(row['text'])}; expected one for each gap"
