"""Finds the input files, divides them into ranges, and reads and tokenizes documents.

A range is a part of a file that begins and ends between documents, or a whole small or
compressed file. Ranges depend on the files alone, never on the number of workers, and
so do all numbers derived from them.
"""

import functools
import gzip
import hashlib
import itertools
import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Literal, NamedTuple

import numpy as np

from albert_tf.corpus import files
from albert_tf.corpus.config import CorpusSettings
from albert_tf.data import records
from albert_tf.errors import InputError
from albert_tf.text.tokenization import Tokenizer, WordStarts

RANGE_BYTES = 1 << 18
# To read where a document ends takes a request there.
REMOTE_RANGE_BYTES = 1 << 21
MAX_LINE_BYTES = 16 << 20
# Longer documents are divided, so that one file without blank lines fits into memory.
MAX_DOCUMENT_CHARS = 4 << 20
# Few sentences are longer: one in 200 of Wikipedia's. Of long segments much is cut off
# where an instance's last does not fit, and A and B would always be alike in length.
MAX_SEGMENT_TOKENS = 96
_GZIP_RATIO = 3
_BATCH_CHARS = 1 << 18
_LINE_CHARS = 1 << 16
# Of a counter; the name of the file follows.
_DIGEST = "digest/"


_EncodeBatch = Callable[[Sequence[str]], list[list[int]]]


def _parts_of(size: int) -> re.Pattern[str]:
    """Matches the longest text that white space or the end follows, or full ones."""
    text_of = rf"\S.{{0,{size - 1}}}"
    return re.compile(rf"{text_of}(?!\S)|{text_of}", re.DOTALL)


_LINE_PARTS = _parts_of(_LINE_CHARS)


class TextError(InputError):
    """The text itself cannot be used; what was made of it is of no use either."""


class Range(NamedTuple):
    """The part of a file that lies between two byte offsets.

    Attributes:
        file: path.
        begin: first byte; 0 for compressed files.
        end: one past the last byte, or None for the whole file.
    """

    file: str
    begin: int
    end: int | None


def find_files(patterns: Sequence[str]) -> dict[str, int]:
    """Lists the files that the patterns name, each pattern's in sorted order.

    Returns:
        {path: size in bytes}.

    Raises:
        InputError: a pattern matches no file, or two match the same one.
    """
    sizes: dict[str, int] = {}
    names: dict[str, str] = {}
    for pattern in patterns:
        matches = files.glob(pattern)
        if os.path.isdir(pattern):
            raise InputError(
                f"--input_file={pattern}: is a folder; expected files or patterns such "
                f"as corpus/*.txt"
            )
        if not matches:
            raise InputError(f"--input_file={pattern}: no such file")
        for path, size in sorted(matches.items()):
            file = path if files.is_remote(path) else os.path.realpath(path)
            if file in names:
                other = "" if path == names[file] else f", as {names[file]} too"
                raise InputError(f"--input_file: {path} is named twice{other}")
            names[file] = path
            sizes[path] = size
    return sizes


def ranges(sizes: Mapping[str, int]) -> Iterator[tuple[Range, int]]:
    """Divides files into ranges of about `RANGE_BYTES`.

    Args:
        sizes: {path: bytes}, as from `find_files`.

    Yields:
        A range, and about how many bytes of text it holds.
    """
    for path, size in sizes.items():
        whole = Range(path, 0, None)
        if size and _is_gzip(whole):
            yield whole, size * _GZIP_RATIO
            continue
        step = REMOTE_RANGE_BYTES if files.is_remote(path) else RANGE_BYTES
        begin = 0
        with files.open_binary(path) as file:
            while begin < size:
                end = _next_boundary(file, path, begin + step, size)
                yield Range(path, begin, end), end - begin
                begin = end


def digests(parts: Iterable[Range]) -> Counter:
    """Returns the counters of some ranges' text that other text would change.

    `read` raises the same counters, which costs less than reading twice. Of a
    compressed file the text counts.

    Raises:
        InputError: a file cannot be read.
    """
    counts: Counter = Counter()
    for part in parts:
        for _ in _lines(part, counts):
            pass
    return only_digests(counts)


def only_digests(counts: Counter) -> Counter:
    """Returns the counters among others that `digests` returns."""
    return Counter({k: n for k, n in counts.items() if k.startswith(_DIGEST)})


def digest_of(path: str, counts: Counter) -> str:
    """Returns the digest of a file's text, out of the counters of all its ranges.

    Returns:
        16 hexadecimal digits; zeros of an empty file.
    """
    return f"{counts[f'{_DIGEST}{path}'] % (1 << 64):016x}"


def read(part: Range, errors: str, counts: Counter) -> Iterator[list[str]]:
    """Reads the documents of a range.

    Args:
        part: where to read; a name that ends in .jsonl or .jsonl.gz holds JSON lines.
        errors: as for `bytes.decode`: "strict", "replace" or "ignore".
        counts: raised by the `lines` read, the `undecodable_lines` among them, the
            `divided_documents`, and what `digests` returns.

    Yields:
        The lines of one document: not empty, without white space at their ends.

    Raises:
        TextError: see the messages; each names the file and the line.
        InputError: the file cannot be read.
    """
    lines = _decoded(part, errors, counts)
    is_json = _holds_json_lines(part.file)
    stream = _json_texts(part, lines) if is_json else (t for _, t in lines)
    document: list[str] = []
    size = 0
    for line in itertools.chain(map(str.strip, stream), [""]):
        divide = bool(line) and size > MAX_DOCUMENT_CHARS
        if document and (not line or divide):
            counts["divided_documents"] += divide
            yield document
            document, size = [], 0
        if line:
            document.append(line)
            size += len(line)


def _holds_json_lines(path: str) -> bool:
    return path.removesuffix(".gz").endswith(".jsonl")


def _json_texts(part: Range, lines: Iterator[tuple[int, str]]) -> Iterator[str]:
    """Yields the lines of each text, and an empty one after each."""
    for number, line in lines:
        if not line.strip():
            continue
        try:
            text = json.loads(line)["text"]
        # Numbers of thousands of digits, or thousands of brackets, are no JSON error.
        except (ValueError, RecursionError, KeyError, TypeError) as error:
            raise TextError(
                f"{part.file}: line {_lines_before(part) + number}: expected JSON "
                f'such as {{"text": "..."}}, got {_shortened(line)}'
            ) from error
        if not isinstance(text, str):
            raise TextError(
                f"{part.file}: line {_lines_before(part) + number}: expected a string "
                f"as text, got {_shortened(json.dumps(text))}"
            )
        # A blank line within a text parts paragraphs, not documents.
        yield from filter(str.strip, text.split("\n"))
        yield ""


def _decoded(part: Range, errors: str, counts: Counter) -> Iterator[tuple[int, str]]:
    """Yields the number of each line, counted from the range's first, and its text."""
    at = part.begin
    for number, line in enumerate(_lines(part, counts), 1):
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            if errors == "strict":
                raise TextError(
                    f"{part.file}: line {_lines_before(part) + number}, byte "
                    f"{at + error.start}: not UTF-8 (byte 0x{line[error.start]:02x}"
                    f"); --replace_invalid_utf8 puts U+FFFD there"
                ) from error
            text = line.decode(errors=errors)
            counts["undecodable_lines"] += 1
        yield number, text.removeprefix("\ufeff") if at == 0 else text
        at += len(line)


def _lines(part: Range, counts: Counter) -> Iterator[bytes]:
    """Yields the lines of a range, then raises `counts` by them and by their digest."""
    digest = hashlib.blake2b(b"%d\n" % part.begin, digest_size=8)
    with files.open_binary(part.file) as raw:
        raw.seek(part.begin)
        file = gzip.GzipFile(fileobj=raw) if _is_gzip(part) else raw
        at = part.begin
        number = 0
        while part.end is None or at < part.end:
            line = _read_line(file, part, number)
            if not line:
                break
            number += 1
            at += len(line)
            digest.update(line)
            yield line
    counts["lines"] += number
    # A sum, so that the ranges of a file may be read in any order.
    counts[f"{_DIGEST}{part.file}"] += int.from_bytes(digest.digest())


def _read_line(file: IO[bytes] | gzip.GzipFile, part: Range, number: int) -> bytes:
    try:
        line = file.readline(MAX_LINE_BYTES)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TextError(f"{part.file}: damaged gzip file: {error}") from error
    except OSError as error:
        raise InputError(f"{part.file}: cannot be read: {error.strerror}") from error
    if len(line) == MAX_LINE_BYTES:
        raise TextError(
            f"{part.file}: line {_lines_before(part) + number + 1} is longer than "
            f"{MAX_LINE_BYTES:,} bytes; expected one sentence or paragraph a line"
        )
    return line


def _lines_before(part: Range) -> int:
    """Counts the lines before a range; slow, for error messages only."""
    with files.open_binary(part.file) as file:
        left, lines = part.begin, 0
        while block := file.read(min(left, 1 << 20)):
            lines += block.count(b"\n")
            left -= len(block)
    return lines


def _next_boundary(file: IO[bytes], path: str, at: int, size: int) -> int:
    """Finds the first place between two documents after a byte offset."""
    if at >= size:
        return size
    file.seek(at)
    file.readline(MAX_LINE_BYTES)
    if _holds_json_lines(path):
        return file.tell()
    while line := file.readline(MAX_LINE_BYTES):
        if not line.strip():
            return file.tell()
    return size


def _is_gzip(part: Range) -> bool:
    if part.end is not None:
        return False
    with files.open_binary(part.file) as file:
        return file.read(2) == records.GZIP_MAGIC


def _shortened(text: str, width: int = 60) -> str:
    text = text.strip()
    return text if len(text) <= width else f"{text[:width]}..."


def tokenize(
    documents: Iterable[list[str]],
    config: CorpusSettings,
    tokenizer: Tokenizer,
    counts: Counter,
) -> Iterator[list[list[int]]]:
    """Yields the segments of each document that has any, as token ids.

    Args:
        documents: the lines of each.
        config: the run's settings.
        tokenizer: the vocabulary.
        counts: raised by what was cut and what was left out.
    """
    starts = word_starts(tokenizer, config.word_start_rule)
    by_text = config.word_start_rule == "released"
    encode = tokenizer.encode_batch_as_released if by_text else tokenizer.encode_batch
    limit = min(MAX_SEGMENT_TOKENS, config.max_num_tokens // 2)
    if config.line_by_line:
        limit = config.max_num_tokens
    for batch in _batches(documents):
        encoded = _encode(itertools.chain.from_iterable(batch), encode)
        for lines in batch:
            segments = [ids for ids in itertools.islice(encoded, len(lines)) if ids]
            counts["lines_without_tokens"] += len(lines) - len(segments)
            counts["documents_without_tokens"] += not segments
            if not config.released_behaviour:
                segments = [
                    part
                    for ids in segments
                    for part in _cut(ids, limit, starts, counts)
                ]
            if segments:
                yield segments


@functools.lru_cache(maxsize=2)
def word_starts(
    tokenizer: Tokenizer, rule: Literal["word_mark", "released"]
) -> WordStarts:
    """Returns `tokenizer.word_starts(rule)`, which takes some time to make."""
    return tokenizer.word_starts(rule)


def _encode(lines: Iterable[str], encode: _EncodeBatch) -> Iterator[list[int]]:
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


def _batches(documents: Iterable[list[str]]) -> Iterator[list[list[str]]]:
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
    """Cuts a long line, such as a paragraph, into segments of at most `limit` tokens.

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
