"""Texts, and pairs of texts, to the inputs of the model, without padding.

An input is `[CLS] a [SEP]` in segment 0, and `b [SEP]` in segment 1 where there is a
second text. Inputs are kept at their own lengths, one after the other, so that each
batch is padded to what it needs and not to the longest of all.
"""

import array
import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from albert_tf.errors import InputError
from albert_tf.text.tokenization import WORD_MARK, Tokenizer

# Stands for one piece in a text whose gaps are to be filled.
MASK = "[MASK]"
# [CLS] and two [SEP].
_SPECIAL = 3
# A text is cut before it is tokenized where it has so many characters for each piece
# that is wanted, and so many pieces more than that.
_CHARACTERS = 20
_MARGIN = 64
# Texts of so many examples are held as lists of pieces at once.
_CHUNK = 10_000


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The inputs of n examples.

    Attributes:
        ids: int32 [N], the ids of all inputs one after the other.
        bounds: int64 [n + 1]; input i holds ids [bounds[i], bounds[i + 1]).
        first_lengths: int32 [n], tokens of segment 0 of each input.
        truncated: how many inputs were shortened.
        truncated_pieces: how many pieces they lost; of a text that is very long, those
            beyond where `cut` ends it are not counted.
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

    The pieces that are too many are taken from the end of the longer text one by one,
    from the second where both are equally long.

    **As released:** a second text without a piece counts as none, so it has no [SEP].

    Args:
        tokenizer: the vocabulary.
        texts: the first text of each example.
        second_texts: the second of each; None where examples have one.
        max_seq_length: most tokens of an input, [CLS] and [SEP] included.
        num_threads: at most so many threads tokenize.

    Raises:
        InputError: `max_seq_length` leaves no room for text, or the vocabulary lacks
            [CLS] or [SEP].
    """
    pairs = _pieces(tokenizer, texts, second_texts, max_seq_length, num_threads)
    return join(tokenizer, pairs, max_seq_length)


def join(
    tokenizer: Tokenizer,
    pairs: Iterable[tuple[Sequence[int], Sequence[int]]],
    max_seq_length: int,
) -> Inputs:
    """Does the same for texts that are ids already; without a second one, it is empty.

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
        room = max_seq_length - (_SPECIAL if b else _SPECIAL - 1)
        kept_a, kept_b = kept_lengths(len(a), len(b), room)
        excess = len(a) + len(b) - kept_a - kept_b
        truncated += excess > 0
        lost += excess
        row = [cls, *a[:kept_a], sep]
        firsts.append(len(row))
        if b:
            row += [*b[:kept_b], sep]
        ids.extend(row)
        lengths.append(len(row))
    return Inputs(
        ids=np.array(ids, np.int32),
        bounds=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        first_lengths=np.array(firsts, np.int32),
        truncated=truncated,
        truncated_pieces=lost,
    )


def cut(tokenizer: Tokenizer, text: str, most: int) -> str:
    """Returns a text, or a beginning of it that has all pieces that are wanted.

    To tokenize a text of 10 MB takes a gigabyte, and a model reads its first 512 pieces
    at most. It ends at a space, which no piece reaches over, or where there is none in
    reach, so many pieces behind those wanted that they stay as they are.

    Args:
        tokenizer: the vocabulary.
        text: any text; one of ordinary length is returned as it is.
        most: how many pieces of it are wanted.
    """
    size = _CHARACTERS * (most + _MARGIN)
    while size < len(text):
        end = text.find(" ", size, 2 * size)
        begin = text[: end if end >= 0 else size]
        if len(tokenizer.encode(begin)) >= most + _MARGIN:
            return begin
        size *= 4
    return text


def concatenate(parts: Sequence[Inputs]) -> Inputs:
    """Returns the inputs of several one after the other; there is at least one."""
    if len(parts) == 1:
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
    """Returns the piece ids of a text in which [MASK] stands for one piece.

    The parts between are encoded by themselves. One that does not begin with a space,
    such as ".", would get the piece of a lone space in front, which is left out.
    """
    ids: list[int] = []
    space = tokenizer.piece_to_id(WORD_MARK)
    for number, part in enumerate(text.split(MASK)):
        pieces = tokenizer.encode(part)
        if number:
            ids.append(tokenizer.mask_id)
            lone_space = pieces[:1] == [space] != [tokenizer.unk_id]
            if lone_space and not part[0].isspace():
                del pieces[0]
        ids += pieces
    return ids


def kept_lengths(first: int, second: int, room: int) -> tuple[int, int]:
    """Returns how many tokens of two texts stay, of `room` in all.

    One token after the other is taken from the longer text, as released from the
    second where both are equally long. Each may have its half, and what the other
    leaves.
    """
    half = room // 2
    return (
        min(first, max(room - second, room - half)),
        min(second, max(room - first, half)),
    )


def pad(
    inputs: Inputs, rows: Sequence[int] | np.ndarray, length: int, pad_id: int
) -> dict[str, np.ndarray]:
    """Makes a batch of some inputs.

    Args:
        inputs: the inputs.
        rows: numbers of those to take, B.
        length: tokens of every row of the batch, T.
        pad_id: the id after the end of an input; mask and segments are 0 there.

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
    places = np.arange(length)[None, :]  # [1, T]
    mask = places < lengths
    ids = np.full(mask.shape, pad_id, np.int32)
    ids[mask] = inputs.ids[(begins + places)[mask]]
    second = mask & (places >= inputs.first_lengths[rows][:, None])
    return {
        "input_ids": ids,
        "input_mask": mask.astype(np.int32),
        "segment_ids": second.astype(np.int32),
    }


def _pieces(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    second_texts: Sequence[str] | None,
    most: int,
    num_threads: int,
) -> Iterable[tuple[list[int], list[int]]]:
    def short(chunk: Sequence[str]) -> list[str]:
        return [cut(tokenizer, text, most) for text in chunk]

    for begin in range(0, len(texts), _CHUNK):
        chunk = slice(begin, begin + _CHUNK)
        first = tokenizer.encode_batch(short(texts[chunk]), num_threads)
        second: list[list[int]] = [[] for _ in first]
        if second_texts is not None:
            second = tokenizer.encode_batch(short(second_texts[chunk]), num_threads)
        yield from zip(first, second, strict=True)
