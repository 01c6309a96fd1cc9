"""Turns text into groups of tokenized documents: the generator's first pass.

A group is a run of neighbouring documents that fill about `GROUP_TOKENS` tokens of
padded instances. The second pass reads groups in random order, so it needs one small
index entry for each group, not for each document, and reads the disk in long runs.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from albert_tf.corpus import text
from albert_tf.corpus.config import CorpusSettings, Subset
from albert_tf.text.tokenization import Tokenizer, WordStarts

GROUP_TOKENS = 1 << 16
# Few sentences are longer: one in 200 of Wikipedia's. Of long segments much is cut off
# where an instance's last does not fit, and A and B would always be alike in length.
MAX_SEGMENT_TOKENS = 96
_BATCH_CHARS = 1 << 18
_LINE_CHARS = 1 << 16

EncodeBatch = Callable[[Sequence[str]], list[list[int]]]


def _parts_of(size: int) -> re.Pattern[str]:
    """Matches the longest text that white space or the end follows, or full ones."""
    text_of = rf"\S.{{0,{size - 1}}}"
    return re.compile(rf"{text_of}(?!\S)|{text_of}", re.DOTALL)


_LINE_PARTS = _parts_of(_LINE_CHARS)


class Group:
    """Tokenized documents, packed into bytes.

    Layout: uint32 counts of documents and segments; uint32 segments of each document;
    uint32 tokens of each segment; then the tokens, uint16 where the vocabulary allows.
    """

    def __init__(self) -> None:
        self.padded_tokens = 0
        self._documents: list[int] = []
        self._segments: list[int] = []
        self._tokens: list[int] = []

    def add(self, segments: Sequence[Sequence[int]], config: CorpusSettings) -> None:
        """Appends a document: the token ids of its segments, none of them empty."""
        self._documents.append(len(segments))
        self._segments += map(len, segments)
        self._tokens += itertools.chain.from_iterable(segments)
        instances = -(-sum(map(len, segments)) // config.max_num_tokens)
        self.padded_tokens += instances * config.max_seq_length

    def pack(self, vocab_size: int) -> bytes:
        """Returns the documents as bytes, for `unpack`."""
        head = [len(self._documents), len(self._segments)]
        numbers = np.array(head + self._documents + self._segments, np.uint32)
        return (
            numbers.tobytes() + np.array(self._tokens, token_type(vocab_size)).tobytes()
        )


def unpack(packed: bytes, vocab_size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reads what `Group.pack` made.

    Returns:
        documents: uint32 [D], segments of each document.
        segments: uint32 [S], tokens of each segment.
        tokens: uint16 or uint32 [N], their ids.
    """
    documents, segments = np.frombuffer(packed, np.uint32, 2).tolist()
    numbers = np.frombuffer(packed, np.uint32, documents + segments, offset=8)
    tokens = np.frombuffer(
        packed, token_type(vocab_size), offset=8 + 4 * (documents + segments)
    )
    return numbers[:documents], numbers[documents:], tokens


def token_type(vocab_size: int) -> type[np.unsignedinteger]:
    """The smallest type that holds every id."""
    return np.uint16 if vocab_size <= 1 << 16 else np.uint32


def groups(
    split: text.Split,
    number: int,
    config: CorpusSettings,
    tokenizer: Tokenizer,
    counts: Counter,
) -> Iterator[tuple[Subset, int, bytes]]:
    """Tokenizes the text of a split.

    Args:
        split: the ranges to read.
        number: the split's place in the plan, which seeds the choice of the documents
            that are held out.
        config: the run's settings.
        tokenizer: the vocabulary.
        counts: raised by what was read and what was left out.

    Yields:
        The subset, the padded tokens and the packed bytes of one group.
    """
    hold_out = np.random.default_rng([config.random_seed, 0, number])
    starts = tokenizer.word_starts(config.word_start_rule)
    by_text = config.word_start_rule == "released"
    encode = tokenizer.encode_batch_as_released if by_text else tokenizer.encode_batch
    limit = min(MAX_SEGMENT_TOKENS, config.max_num_tokens // 2)
    # The second is what unknown tokens within a word have in released behaviour.
    unknown = {tokenizer.unk_id, tokenizer.mask_id}
    open_groups: dict[Subset, Group] = {"train": Group(), "eval": Group()}
    for lines in _encoded(split, config, encode, counts):
        segments = [ids for ids in lines if ids]
        counts["lines_without_tokens"] += len(lines) - len(segments)
        # Drawn for every document, so that the choice does not depend on its text.
        subset: Subset = "eval" if hold_out.random() < config.eval_fraction else "train"
        if not segments:
            counts["documents_without_tokens"] += 1
            continue
        if not config.released_behaviour:
            segments = [
                part for ids in segments for part in _cut(ids, limit, starts, counts)
            ]
        counts[f"{subset}_documents"] += 1
        counts[f"{subset}_tokens"] += sum(map(len, segments))
        counts[f"{subset}_unknown_tokens"] += sum(
            ids.count(id) for ids in segments for id in unknown
        )
        group = open_groups[subset]
        group.add(segments, config)
        if group.padded_tokens >= GROUP_TOKENS:
            yield subset, group.padded_tokens, group.pack(tokenizer.vocab_size)
            open_groups[subset] = Group()
    for subset, group in open_groups.items():
        if group.padded_tokens:
            yield subset, group.padded_tokens, group.pack(tokenizer.vocab_size)


def _encoded(
    split: text.Split, config: CorpusSettings, encode: EncodeBatch, counts: Counter
) -> Iterator[list[list[int]]]:
    """Yields the token ids of each document's lines, encoding many lines at a time."""
    documents = itertools.chain.from_iterable(
        text.documents(part, config.decode_errors, counts) for part in split
    )
    for batch in _batches(documents):
        ids = iter(_encoded_lines(itertools.chain.from_iterable(batch), encode))
        for lines in batch:
            yield list(itertools.islice(ids, len(lines)))


def _encoded_lines(lines: Iterable[str], encode: EncodeBatch) -> Iterator[list[int]]:
    """Encodes lines, very long ones in parts: a tokenizer takes 200 times their size.

    **As released:** a line is one text. Parts end at white space, where tokens end too,
    so tokens differ only in text of 65,536 characters without any, and where the
    release sums so many scores that they lose their last digits (from about 500,000).
    """
    for is_long, some in itertools.groupby(lines, lambda line: len(line) > _LINE_CHARS):
        if not is_long:
            yield from encode(list(some))
            continue
        for line in some:
            parts = (
                ids for part in _LINE_PARTS.findall(line) for ids in encode([part])
            )
            yield list(itertools.chain.from_iterable(parts))


def _batches(documents: Iterator[list[str]]) -> Iterator[list[list[str]]]:
    batch: list[list[str]] = []
    size = 0
    for lines in documents:
        batch.append(lines)
        size += sum(map(len, lines))
        if size >= _BATCH_CHARS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _cut(
    ids: list[int], limit: int, starts: WordStarts, counts: Counter
) -> Iterator[list[int]]:
    """Cuts a long line, a paragraph say, into segments of at most `limit` tokens.

    They are as even as word starts allow; a word longer than a segment is cut too.
    """
    if len(ids) > limit:
        counts["lines_cut"] += 1
    begin = 0
    while (left := len(ids) - begin) > limit:
        even = -(-left // -(-left // limit))
        words = np.flatnonzero(starts(np.array(ids[begin : begin + even + 1]))[1:])
        end = begin + (int(words[-1]) + 1 if words.size else even)
        yield ids[begin:end]
        begin = end
    yield ids[begin:]
