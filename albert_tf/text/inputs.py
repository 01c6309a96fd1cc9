"""Turns texts, and pairs of texts, into the inputs of a model, without padding.

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

# The text of a gap that a model fills with one token.
MASK = "[MASK]"
# Number of special tokens of a pair of texts: [CLS] and two [SEP].
_SPECIAL = 3
# `cut` first tries the beginning of a text with this many characters for each token.
_CHARACTERS = 20
# `cut` keeps this many tokens in addition to the tokens that are used.
_MARGIN = 64
# Number of texts that are tokenized together.
_CHUNK = 10_000


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The inputs of n examples.

    Attributes:
        ids: int32 [N], the ids of the tokens of all inputs, one input after the other.
        bounds: int64 [n + 1]; input i has ids [bounds[i], bounds[i + 1]).
        first_lengths: int32 [n], number of tokens in segment 0 of each input.
        truncated: number of inputs that were truncated.
        truncated_pieces: number of tokens that truncation removed. Text that `cut`
            removed is not counted, because it is not tokenized.
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
        """Number of tokens of each input, int64 [n]."""
        return np.diff(self.bounds)


def encode(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    second_texts: Sequence[str] | None,
    max_seq_length: int,
    *,
    num_threads: int = 1,
) -> Inputs:
    """Tokenizes texts or pairs of texts, and makes inputs of them.

    Excess tokens are removed one by one from the end of the longer text, or of the
    second text if both are equally long.

    **As released:** a second text without tokens is left out, with its [SEP].

    Args:
        tokenizer: the vocabulary.
        texts: the first text of each example.
        second_texts: the second text of each example; None if all are single texts.
        max_seq_length: maximum number of tokens of an input, with [CLS] and [SEP].
        num_threads: maximum number of threads.

    Raises:
        InputError: `max_seq_length` leaves no token for text, or the vocabulary lacks
            [CLS] or [SEP].
    """

    def tokenize(column: Sequence[str]) -> Iterator[list[int]]:
        for begin in range(0, len(column), _CHUNK):
            chunk = column[begin : begin + _CHUNK]
            short_texts = [cut(tokenizer, text, max_seq_length) for text in chunk]
            yield from tokenizer.encode_batch(short_texts, num_threads)

    if second_texts is None:
        return join(tokenizer, ((ids, ()) for ids in tokenize(texts)), max_seq_length)
    pairs = zip(tokenize(texts), tokenize(second_texts), strict=True)
    return join(tokenizer, pairs, max_seq_length)


def join(
    tokenizer: Tokenizer,
    pairs: Iterable[tuple[Sequence[int], Sequence[int]]],
    max_seq_length: int,
) -> Inputs:
    """Makes inputs of tokenized texts, and truncates them as `encode` does.

    Args:
        tokenizer: the vocabulary, for the ids of special tokens.
        pairs: the ids of the first and the second text of each example. The second text
            is empty if an example has only one.
        max_seq_length: maximum number of tokens of an input, with [CLS] and [SEP].

    Raises:
        InputError: `max_seq_length` leaves no token for text, or the vocabulary lacks
            [CLS] or [SEP].
    """
    if max_seq_length <= _SPECIAL:
        raise InputError(
            f"--max_seq_length={max_seq_length}: expected at least {_SPECIAL + 1}, for "
            f"[CLS], two [SEP] and text"
        )
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    ids, lengths, first_lengths = array.array("i"), array.array("q"), array.array("i")
    truncated = removed = 0
    for first, second in pairs:
        limit = max_seq_length - (_SPECIAL if second else _SPECIAL - 1)
        sizes = truncate_lengths(len(first), len(second), limit)
        excess = len(first) + len(second) - sum(sizes)
        truncated += excess > 0
        removed += excess
        row = [cls, *first[: sizes[0]], sep]
        first_lengths.append(len(row))
        if second:
            row += [*second[: sizes[1]], sep]
        ids.extend(row)
        lengths.append(len(row))
    return Inputs(
        ids=np.array(ids, np.int32),
        bounds=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        first_lengths=np.array(first_lengths, np.int32),
        truncated=truncated,
        truncated_pieces=removed,
    )


def cut(tokenizer: Tokenizer, text: str, max_tokens: int) -> str:
    """Cuts a very long text; its first `max_tokens` tokens stay the same.

    Tokenizing a text of 10 MB takes a gigabyte of memory, but a model reads only its
    first 512 tokens or so. The result ends before a space, because no token contains a
    space. If no space is near, it ends inside a word, and the last tokens can differ.
    Therefore a text that is cut keeps at least `max_tokens + _MARGIN` tokens.

    Args:
        tokenizer: the vocabulary.
        text: any text; a text of ordinary length is returned unchanged.
        max_tokens: number of tokens from the beginning of the text that are used.
    """
    size = _CHARACTERS * (max_tokens + _MARGIN)
    while size < len(text):
        end = text.find(" ", size, 2 * size)
        beginning = text[: end if end >= 0 else size]
        if len(tokenizer.encode(beginning)) >= max_tokens + _MARGIN:
            return beginning
        size *= 4  # too few tokens: tries a longer beginning
    return text


def concatenate(parts: Sequence[Inputs]) -> Inputs:
    """Joins the inputs of one or more parts, one part after the other."""
    if len(parts) == 1:  # avoids a copy of the largest data sets, which have one part
        return parts[0]
    lengths = np.concatenate([part.lengths for part in parts])
    return Inputs(
        ids=np.concatenate([part.ids for part in parts]),
        bounds=np.concatenate([[0], np.cumsum(lengths)]),
        first_lengths=np.concatenate([part.first_lengths for part in parts]),
        truncated=sum(part.truncated for part in parts),
        truncated_pieces=sum(part.truncated_pieces for part in parts),
    )


def encode_masked(tokenizer: Tokenizer, text: str) -> list[int]:
    """Returns the ids of a text in which each "[MASK]" becomes the token [MASK].

    The text between two [MASK] is encoded separately, as the beginning of a word. If
    the text after a [MASK] does not begin with a space, for example ".", its first
    token can be a lone word mark ("▁"). This token is removed.
    """
    ids: list[int] = []
    mark_id = tokenizer.piece_to_id(WORD_MARK)
    # If the vocabulary lacks the lone word mark, `piece_to_id` returns the unknown id.
    has_mark = mark_id != tokenizer.unk_id
    for number, part in enumerate(text.split(MASK)):
        part_ids = tokenizer.encode(part)
        if number:  # there is a [MASK] before this part
            ids.append(tokenizer.mask_id)
            if has_mark and part_ids[:1] == [mark_id] and not part[0].isspace():
                del part_ids[0]
        ids += part_ids
    return ids


def truncate_lengths(
    first: Any, second: Any, limit: Any, min_fn: Callable = min, max_fn: Callable = max
) -> tuple[Any, Any]:
    """Returns the lengths of two texts after truncation to `limit` tokens in total.

    **As released:** tokens are removed one by one from the longer text, or from the
    second text if both are equally long. So each text may use half of the limit, and
    the part of the other half that the other text does not need. If the limit is odd,
    the first text has the larger half.

    Args:
        first: number of tokens of the first text; an integer, or a tensor of integers.
        second: number of tokens of the second text.
        limit: maximum total number of tokens of both texts.
        min_fn: returns the smaller of two numbers; for tensors `tf.minimum`.
        max_fn: returns the larger of two numbers; for tensors `tf.maximum`.
    """
    half = limit // 2
    return (
        min_fn(first, max_fn(limit - second, limit - half)),
        min_fn(second, max_fn(limit - first, half)),
    )


def pad(
    inputs: Inputs, rows: Sequence[int] | np.ndarray, length: int, pad_id: int
) -> dict[str, np.ndarray]:
    """Makes a batch of some inputs, padded to one length.

    Args:
        inputs: all inputs.
        rows: indices of the B inputs of the batch.
        length: T, number of tokens of each row; no input is longer.
        pad_id: the id of padding; the mask and the segment ids of padding are 0.

    Returns:
        `input_ids`, `input_mask` and `segment_ids`, int32 [B, T] each.
    """
    rows = np.asarray(rows, np.int64)
    begins = inputs.bounds[rows][:, None]  # [B, 1]
    lengths = inputs.bounds[rows + 1][:, None] - begins
    positions = np.arange(length)[None, :]  # [1, T]
    mask = positions < lengths
    ids = np.full(mask.shape, pad_id, np.int32)
    ids[mask] = inputs.ids[(begins + positions)[mask]]
    is_second = mask & (positions >= inputs.first_lengths[rows][:, None])
    return {
        "input_ids": ids,
        "input_mask": mask.astype(np.int32),
        "segment_ids": is_second.astype(np.int32),
    }
