"""Texts, and pairs of texts, to the inputs of the model, without padding.

An input is `[CLS] a [SEP]` in segment 0, and `b [SEP]` in segment 1 if there is a
second text. Inputs are stored one after the other without padding, so that each batch
is padded only to its own longest input.
"""

import array
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from albert_tf.errors import InputError
from albert_tf.text.tokenization import WORD_MARK, Tokenizer

# A gap of one token in a text.
MASK = "[MASK]"
# [CLS] and two [SEP].
_SPECIAL = 3
# Before tokenization, `cut` keeps this many characters for each token that is used.
_CHARACTERS = 20
# `cut` keeps characters for this many tokens more.
_MARGIN = 64
# Number of examples that are tokenized at a time.
_CHUNK = 10_000


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The inputs of n examples.

    Attributes:
        ids: int32 [N], the ids of all inputs one after the other.
        bounds: int64 [n + 1]; input i has ids [bounds[i], bounds[i + 1]).
        first_lengths: int32 [n], tokens of segment 0 of each input.
        truncated: number of shortened inputs.
        truncated_pieces: number of tokens that they lost, without those that `cut`
            removed.
    """

    ids: np.ndarray
    bounds: np.ndarray
    first_lengths: np.ndarray
    truncated: int
    truncated_pieces: int

    def __len__(self) -> int:
        """Returns the number of inputs."""
        return len(self.first_lengths)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each input, int64 [n]."""
        return np.diff(self.bounds)


def encode(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    second_texts: Sequence[str] | None,
    max_seq_length: int,
    *,
    num_threads: int = 1,
) -> Inputs:
    """Turns texts into inputs of at most `max_seq_length` tokens.

    Excess tokens are removed one by one from the end of the longer text, or of the
    second text if both are equally long.

    **As released:** a second text without tokens counts as none, so it has no [SEP].

    Args:
        tokenizer: the vocabulary.
        texts: the first text of each example.
        second_texts: the second text of each example; None: there are none.
        max_seq_length: maximum number of tokens of an input, with [CLS] and [SEP].
        num_threads: maximum number of threads.

    Raises:
        InputError: `max_seq_length` is too small for text, or the vocabulary lacks
            [CLS] or [SEP].
    """

    def tokenize(texts: Sequence[str]) -> Iterator[list[int]]:
        for begin in range(0, len(texts), _CHUNK):
            chunk = texts[begin : begin + _CHUNK]
            short = [cut(tokenizer, text, max_seq_length) for text in chunk]
            yield from tokenizer.encode_batch(short, num_threads)

    if second_texts is None:
        return join(tokenizer, ((ids, ()) for ids in tokenize(texts)), max_seq_length)
    pairs = zip(tokenize(texts), tokenize(second_texts), strict=True)
    return join(tokenizer, pairs, max_seq_length)


def join(
    tokenizer: Tokenizer,
    pairs: Iterable[tuple[Sequence[int], Sequence[int]]],
    max_seq_length: int,
) -> Inputs:
    """Joins pairs of texts that are ids, as `encode` does; a second one may be empty.

    Raises:
        InputError: see `encode`.
    """
    if max_seq_length <= _SPECIAL:
        raise InputError(
            f"--max_seq_length={max_seq_length}: expected at least {_SPECIAL + 1}, for "
            f"[CLS], two [SEP] and text"
        )
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    ids, lengths, firsts = array.array("i"), array.array("q"), array.array("i")
    truncated = lost = 0
    for a, b in pairs:
        limit = max_seq_length - (_SPECIAL if b else _SPECIAL - 1)
        size_a, size_b = truncated_lengths(len(a), len(b), limit)
        excess = len(a) + len(b) - size_a - size_b
        truncated += excess > 0
        lost += excess
        row = [cls, *a[:size_a], sep]
        firsts.append(len(row))
        if b:
            row += [*b[:size_b], sep]
        ids.extend(row)
        lengths.append(len(row))
    return Inputs(
        ids=np.array(ids, np.int32),
        bounds=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        first_lengths=np.array(firsts, np.int32),
        truncated=truncated,
        truncated_pieces=lost,
    )


def cut(tokenizer: Tokenizer, text: str, max_tokens: int) -> str:
    """Returns a text, or a beginning of it with the same first tokens.

    Tokenizing a text of 10 MB takes a gigabyte, while a model reads only the first 512
    tokens or so. The beginning ends at a space, which no piece contains. If no space is
    near, it ends some tokens later, so that the first tokens are the same.

    Args:
        tokenizer: the vocabulary.
        text: any text; a text of ordinary length is returned unchanged.
        max_tokens: number of tokens that are used.
    """
    size = _CHARACTERS * (max_tokens + _MARGIN)
    while size < len(text):
        end = text.find(" ", size, 2 * size)
        begin = text[: end if end >= 0 else size]
        if len(tokenizer.encode(begin)) >= max_tokens + _MARGIN:
            return begin
        size *= 4
    return text


def concatenate(parts: Sequence[Inputs]) -> Inputs:
    """Joins parts one after the other; there is at least one part."""
    if len(parts) == 1:  # the largest data sets have one part: no copy
        return parts[0]
    begins = np.cumsum([0, *(part.bounds[-1] for part in parts[:-1])])
    bounds = [part.bounds[1:] + b for part, b in zip(parts, begins, strict=True)]
    return Inputs(
        ids=np.concatenate([part.ids for part in parts]),
        bounds=np.concatenate([[0], *bounds]),
        first_lengths=np.concatenate([part.first_lengths for part in parts]),
        truncated=sum(part.truncated for part in parts),
        truncated_pieces=sum(part.truncated_pieces for part in parts),
    )


def encode_masked(tokenizer: Tokenizer, text: str) -> list[int]:
    """Returns the ids of a text in which each [MASK] is one token.

    The text between two [MASK] is encoded separately. If it does not begin with a
    space, such as ".", it would begin with a single word mark, which is removed.
    """
    ids: list[int] = []
    space = tokenizer.piece_to_id(WORD_MARK)
    for number, part in enumerate(text.split(MASK)):
        pieces = tokenizer.encode(part)
        if number:
            ids.append(tokenizer.mask_id)
            begins_with_mark = pieces[:1] == [space] != [tokenizer.unk_id]
            if begins_with_mark and not part[0].isspace():
                del pieces[0]
        ids += pieces
    return ids


def truncated_lengths(
    first: Any, second: Any, limit: Any, min_fn: Callable = min, max_fn: Callable = max
) -> tuple[Any, Any]:
    """Returns the lengths of two texts that are truncated to `limit` tokens in all.

    As released, tokens are removed one by one from the longer text, or from the second
    if both are equally long. So each text gets half of the limit, and the tokens that
    the other text does not use. For tensors, pass TensorFlow's `minimum` and `maximum`.
    """
    half = limit // 2
    return (
        min_fn(first, max_fn(limit - second, limit - half)),
        min_fn(second, max_fn(limit - first, half)),
    )


def pad(
    inputs: Inputs, rows: Sequence[int] | np.ndarray, length: int, pad_id: int
) -> dict[str, np.ndarray]:
    """Makes a batch of some inputs.

    Args:
        inputs: the inputs.
        rows: indices of the B inputs of the batch.
        length: T, number of tokens of each row.
        pad_id: the id of padding; mask and segments are 0 there.

    Returns:
        `input_ids`, `input_mask` and `segment_ids`, int32 [B, T] each.

    Raises:
        ValueError: an input is longer than `length`.
    """
    rows = np.asarray(rows, np.int64)
    begins = inputs.bounds[rows][:, None]  # [B, 1]
    lengths = inputs.bounds[rows + 1][:, None] - begins
    if rows.size and lengths.max() > length:
        raise ValueError(f"an input of {lengths.max()} tokens; expected <= {length}")
    positions = np.arange(length)[None, :]  # [1, T]
    mask = positions < lengths
    ids = np.full(mask.shape, pad_id, np.int32)
    ids[mask] = inputs.ids[(begins + positions)[mask]]
    second = mask & (positions >= inputs.first_lengths[rows][:, None])
    return {
        "input_ids": ids,
        "input_mask": mask.astype(np.int32),
        "segment_ids": second.astype(np.int32),
    }
