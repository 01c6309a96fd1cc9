"""Finds the input files, divides them into ranges, and reads and tokenizes documents.

A range is a part of a file that begins and ends between documents, or a complete small
or compressed file. The ranges and their numbers depend only on the files, not on the
number of workers. The seed that decides which documents of a range are held out is
derived from its number.

A segment has the token ids of a line, or of a part of a long line. The released code is
Google's TensorFlow 1 implementation of ALBERT.
"""

import codecs
import functools
import gzip
import io
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Literal, NamedTuple

import numpy as np

from albert_tf.corpus import files
from albert_tf.corpus.config import CorpusSettings
from albert_tf.data import json_values
from albert_tf.data.files import GZIP_MAGIC, to_utf8
from albert_tf.errors import InputError, quote, wrap_read
from albert_tf.text.tokenization import Tokenizer, WordStarts

# The approximate size of a range. Ranges of remote files are larger, since a remote
# request is necessary to find the end of each range.
RANGE_BYTES = 1 << 18
REMOTE_RANGE_BYTES = 1 << 21
MAX_LINE_BYTES = 16 << 20
# A document is in memory as a whole, so a longer document is divided. For example, a
# large file without blank lines is one document.
MAX_DOCUMENT_CHARS = 4 << 20
# A line with more tokens is cut into several segments; one in 200 sentences of
# Wikipedia has more. A record consists of two texts, A and B, which are made of whole
# segments and then cut to fit. With long segments, much text would be cut off and lost,
# and A and B would always have similar lengths.
MAX_SEGMENT_TOKENS = 96
_GZIP_RATIO = 3  # estimated size of text divided by its compressed size
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# The first two bytes of files with a byte order mark.
_BYTE_ORDER_MARKS = (codecs.BOM_UTF8[:2], *_UTF_16)
_LINE_CHARS = 1 << 16  # longer lines are divided before they are tokenized
# A function from texts to the token ids of each text.
_Encode = Callable[[list[str]], list[list[int]]]


class ByteRange(NamedTuple):
    """The part of a file between two byte offsets.

    Attributes:
        file: the path of the file.
        begin: the offset of the first byte; 0 for compressed files.
        end: the offset after the last byte, or None for the complete file.
    """

    file: str
    begin: int
    end: int | None


def find_files(patterns: Sequence[str]) -> dict[str, int]:
    """Finds the files that match the patterns.

    Returns:
        {path: size in bytes}, in the order of the patterns, and sorted by path for each
        pattern.

    Raises:
        InputError: a pattern matches no file, or two patterns match the same file.
    """
    sizes: dict[str, int] = {}
    paths: dict[str, str] = {}  # by real path
    for pattern in patterns:
        matches = files.glob(pattern)
        if not matches:
            raise InputError(
                f"--input_file={pattern}: no such file; expected files or patterns "
                f"such as corpus/*.txt"
            )
        for path, size in sorted(matches.items()):
            key = files.real_path(path)
            if key in paths:
                raise InputError(f"--input_file: {path} and {paths[key]} are one file")
            paths[key] = path
            sizes[path] = size
    return sizes


def divide_files(sizes: Mapping[str, int]) -> Iterator[tuple[ByteRange, int]]:
    """Divides files into ranges of about `RANGE_BYTES`, between documents.

    Gzip and UTF-16 files are not divided.

    Args:
        sizes: {path: bytes}, as from `find_files`.

    Yields:
        A range, and the approximate size of its text in bytes.
    """
    for path, size in sizes.items():
        step = REMOTE_RANGE_BYTES if files.is_remote(path) else RANGE_BYTES
        begin = 0
        with files.open_binary(path) as file:
            head = file.read(2)
            if head == GZIP_MAGIC or head in _UTF_16:
                ratio = _GZIP_RATIO if head == GZIP_MAGIC else 1
                yield ByteRange(path, 0, None), size * ratio
                continue
            while begin < size:
                end = _next_boundary(file, path, begin + step, size)
                yield ByteRange(path, begin, end), end - begin
                begin = end


def read(
    part: ByteRange, errors: str, counts: Counter, encoding: str = "utf-8"
) -> Iterator[list[str]]:
    r"""Reads the documents of a range.

    Blank lines separate documents; in JSON lines, each line is a document. `\r` ends
    lines only in a file without `\n`; a `\n` at the end of the file does not count.

    Args:
        part: the range to read; a .jsonl or .jsonl.gz file has JSON lines.
        errors: the handling of invalid bytes: "strict" (an error), "replace" (by
            U+FFFD) or "ignore" (drops them).
        counts: counts the `lines`, and the `undecodable_lines` among them.
        encoding: the encoding of a file without a byte order mark.

    Yields:
        The lines of a document, without empty lines and without white space at the
        ends of lines.

    Raises:
        InputError: the file or its text cannot be read; the message names the file
            and the line.
    """
    lines = _decode(part, errors, counts, encoding)
    first_lines = list(itertools.islice(lines, 2))
    # If `\n` gives the file only one line, its lines may end with `\r`.
    if len(first_lines) == 1 and part.begin == 0:
        first_lines = list(enumerate(first_lines[0][1].split("\r"), 1))
    lines = itertools.chain(first_lines, lines)
    is_json = _holds_json_lines(part.file)
    stream = _text_lines(part, lines) if is_json else (text for _, text in lines)
    document: list[str] = []
    size = 0
    # The blank line that is added here ends the last document.
    for line in itertools.chain(map(str.strip, stream), [""]):
        if document and (not line or size > MAX_DOCUMENT_CHARS):
            yield document
            document, size = [], 0
        if line:
            document.append(line)
            size += len(line)


def _holds_json_lines(path: str) -> bool:
    """Returns whether a file has JSON lines, by its name."""
    return path.removesuffix(".gz").endswith(".jsonl")


def _text_lines(part: ByteRange, lines: Iterator[tuple[int, str]]) -> Iterator[str]:
    """Yields the lines of the text in each JSON line, and "" after each text.

    Args:
        part: the range, for messages.
        lines: the numbers and the contents of the JSON lines.
    """
    for number, line in lines:
        if not line.strip():
            continue
        try:
            # The error below names the file, so the location is "" in both calls.
            text = json_values.get(json_values.parse(line, ""), "text", str, "")
        except InputError as error:
            raise InputError(
                f"{_location(part, number)}: expected JSON such as "
                f'{{"text": "..."}}, got {quote(line.strip())}'
            ) from error
        # A blank line within a text separates paragraphs, not documents.
        yield from filter(str.strip, text.split("\n"))
        yield ""


def _decode(
    part: ByteRange, errors: str, counts: Counter, encoding: str
) -> Iterator[tuple[int, str]]:
    """Yields the number of each line in the range, from 1, and its decoded text.

    The arguments are those of `read`.
    """
    to_utf8(b" ", part.file, encoding)  # checks the name of the encoding
    end = math.inf if part.end is None else part.end
    offset, number = part.begin, 0
    expected = "text, or a complete gzip file of text"
    with files.open_binary(part.file) as raw, wrap_read(part.file, expected):
        head = raw.read(2)
        raw.seek(offset)
        file: Any = raw
        if head == GZIP_MAGIC:
            file = gzip.GzipFile(fileobj=raw)
        elif head in _UTF_16:
            file = io.BytesIO(to_utf8(raw.read(), part.file))
        if head in _BYTE_ORDER_MARKS:
            encoding = "utf-8"  # UTF-16 was converted above
        while offset < end and (line := file.readline(MAX_LINE_BYTES)):
            number += 1
            if len(line) == MAX_LINE_BYTES:
                raise InputError(
                    f"{_location(part, number)} is longer than {MAX_LINE_BYTES:,} "
                    f"bytes; expected one sentence or paragraph a line"
                )
            try:
                text = line.decode(encoding)
            except UnicodeDecodeError as error:
                if errors == "strict":
                    raise InputError(
                        f"{_location(part, number)}, byte {offset + error.start}: not "
                        f"{encoding.upper()} (byte 0x{line[error.start]:02x}); "
                        f"give the right --encoding, or --replace_invalid_utf8 to put "
                        f"U+FFFD there"
                    ) from error
                text = line.decode(encoding, errors)
                counts["undecodable_lines"] += 1
            yield number, text.removeprefix("\ufeff") if offset == 0 else text
            offset += len(line)
    counts["lines"] += number


def _location(part: ByteRange, number: int) -> str:
    """Returns the file and the number of a line in the file, for messages.

    This is slow: to count lines, it reads the file up to the range.

    Args:
        part: the range.
        number: the number of the line in the range, from 1.
    """
    with files.open_binary(part.file) as file:
        remaining = part.begin
        while block := file.read(min(remaining, 1 << 20)):
            number += block.count(b"\n")
            remaining -= len(block)
    return f"{part.file}: line {number}"


def _next_boundary(file: IO[bytes], path: str, offset: int, size: int) -> int:
    """Returns the offset of the first boundary between documents after `offset`."""
    if offset >= size:
        return size
    file.seek(offset)
    file.readline(MAX_LINE_BYTES)  # the rest of the line at `offset`
    if _holds_json_lines(path):
        return file.tell()
    while line := file.readline(MAX_LINE_BYTES):
        if not line.strip():
            return file.tell()
    return size


def tokenize(
    documents: Iterable[list[str]],
    config: CorpusSettings,
    tokenizer: Tokenizer,
    counts: Counter,
) -> Iterator[list[list[int]]]:
    """Yields the segments of each document that has tokens, as token ids.

    A line becomes one segment, or several segments if it has many tokens. With the rule
    "spaces", a token that continues a word gets the sum of its id and the vocabulary's
    size (see `_encode_words`); `shards` restores the id.

    Args:
        documents: the lines of each document.
        config: the run's settings.
        tokenizer: the tokenizer of the vocabulary.
        counts: counts the `lines_cut`, the lines that become several segments.
    """
    rule = config.word_start_rule
    find_starts = word_starts(tokenizer, rule)
    encode: _Encode = tokenizer.encode_batch
    if rule == "released":
        encode = tokenizer.encode_batch_as_released
    elif rule == "spaces":
        encode = functools.partial(_encode_words, tokenizer)
    # A segment has at most half of a record's tokens, so that two segments fit.
    limit = min(MAX_SEGMENT_TOKENS, config.max_num_tokens // 2)
    for lines in documents:
        segments = [ids for ids in _encode_lines(encode, lines) if ids]
        if not config.released_behaviour:
            parts = (_cut(ids, limit, find_starts, counts) for ids in segments)
            segments = list(itertools.chain.from_iterable(parts))
        if segments:
            yield segments


@functools.lru_cache(maxsize=2)
def word_starts(
    tokenizer: Tokenizer, rule: Literal["word_mark", "spaces", "released"]
) -> WordStarts:
    """Returns the function that finds the first tokens of words by a rule.

    The returned functions are cached, since their arrays take time to build. With the
    rule "spaces", the function expects ids from `_encode_words`: the id of a token that
    continues a word is at least the vocabulary's size.
    """
    if rule != "spaces":
        return tokenizer.word_starts(rule)
    begins = np.arange(2 * tokenizer.vocab_size) < tokenizer.vocab_size
    never = np.zeros_like(begins)
    return WordStarts(begins, begins_after_end=never, ends_word=never)


def _encode_words(tokenizer: Tokenizer, lines: list[str]) -> list[list[int]]:
    """Encodes lines for the rule "spaces", by which words are the parts between spaces.

    The id of a token that continues a word is marked: the vocabulary's size is added.
    """
    words = [line.split() for line in lines]
    # For each line, a group with the ids of each word.
    groups = list(_encode_groups(tokenizer.encode_batch, words))
    for ids in itertools.chain.from_iterable(groups):
        ids[1:] = [id + tokenizer.vocab_size for id in ids[1:]]
    return [list(itertools.chain.from_iterable(group)) for group in groups]


def _encode_lines(encode: _Encode, lines: list[str]) -> list[list[int]]:
    """Encodes lines; tokenizes very long lines in parts, to save memory.

    A tokenizer needs memory of 200 times the size of its text.

    **As released:** the released code tokenizes a line as a whole. Here each part of a
    long line ends at white space, where a token ends, too. So the tokens differ only in
    two cases. In the first case, a line has 65,536 consecutive characters without white
    space. In the second case, a line has more than about 500,000 characters. The
    released code then adds up so many scores that the sums lose their last digits.
    """
    part_pattern = rf"\S.{{0,{_LINE_CHARS - 1}}}"
    # First choice: the longest part that ends before white space or at the line's end.
    # Second choice, if there is no such part: `_LINE_CHARS` characters.
    pattern = re.compile(rf"{part_pattern}(?!\S)|{part_pattern}", re.DOTALL)
    parts = [
        pattern.findall(line) if len(line) > _LINE_CHARS else [line] for line in lines
    ]
    groups = _encode_groups(encode, parts)
    return [list(itertools.chain.from_iterable(ids)) for ids in groups]


def _encode_groups(
    encode: _Encode, groups: Sequence[list[str]]
) -> Iterator[list[list[int]]]:
    """Encodes the texts of all groups in one call.

    Yields:
        For each group, the token ids of each text.
    """
    encoded = iter(encode(list(itertools.chain.from_iterable(groups))))
    return (list(itertools.islice(encoded, len(texts))) for texts in groups)


def _cut(
    ids: list[int], limit: int, find_starts: WordStarts, counts: Counter
) -> Iterator[list[int]]:
    """Cuts a long line, such as a paragraph, into segments of at most `limit` tokens.

    The lengths of the segments are as even as word starts allow. A word longer than
    `limit` is cut.
    """
    counts["lines_cut"] += len(ids) > limit
    begin = 0
    while (remaining := len(ids) - begin) > limit:
        num_segments = math.ceil(remaining / limit)
        size = math.ceil(remaining / num_segments)
        # A new word should begin after the segment. Of the possible sizes up to `size`,
        # the largest one is chosen. If there is none, the segment has `size` tokens.
        window = np.array(ids[begin : begin + size + 1])
        possible_sizes = np.flatnonzero(find_starts(window)[1:]) + 1
        end = begin + (int(possible_sizes[-1]) if possible_sizes.size else size)
        yield ids[begin:end]
        begin = end
    yield ids[begin:]
