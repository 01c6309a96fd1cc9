"""Writes and reads TFRecord files of `tf.train.Example`s with a feature spec.

A spec lists the features of a record and the length of each. `encode` and `create`
write files with a spec; `check`, `parser` and `dataset` read them with it:

    SPEC = {"input_ids": Feature("int", 128), "weights": Feature("float", 20)}
    with create("train.tfrecord") as writer:
        writer.write(encode(SPEC, {"input_ids": ids, "weights": weights}))
    for batch in dataset(["train.tfrecord"], SPEC, batch_size=8):
        ...

Writing needs neither TensorFlow nor protocol buffer objects. So worker processes start
in a fraction of a second, and a record takes microseconds.
"""

import contextlib
import functools
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Literal, NamedTuple

import google_crc32c
import numpy as np

from albert_tf import errors
from albert_tf.data.files import GZIP_MAGIC, atomic
from albert_tf.errors import InputError

if TYPE_CHECKING:
    import tensorflow as tf

# TFRecord: a length with its checksum before a record, and a checksum after it.
_HEADER_BYTES, _FOOTER_BYTES = 12, 4
# Tags (each has a field number and a wire type) of the protocol buffer fields in
# tensorflow/core/example/{example,feature}.proto.
_FEATURES = b"\x0a"
_ENTRY = b"\x0a"
_KEY = b"\x0a"
_VALUE = b"\x12"
_PACKED = b"\x0a"
_LIST = {"float": b"\x12", "int": b"\x1a"}


class Feature(NamedTuple):
    """One feature of a record: `length` numbers of one kind.

    Attributes:
        kind: "int" (stored as int64) or "float" (stored as float32).
        length: number of values in each record.
    """

    kind: Literal["int", "float"]
    length: int

    def __str__(self) -> str:
        return f"{self.length} values of type {self.kind}"


Spec = Mapping[str, Feature]
# Exclusive upper limits of the values of some features; no value is negative.
Limits = Mapping[str, int]


def encode(spec: Spec, batch: Mapping[str, np.ndarray]) -> list[bytes]:
    """Serialises a batch as `tf.train.Example`s, each in the frame of TFRecord.

    Features are written in the order of their names, so equal numbers give equal bytes.

    Args:
        spec: the features, by name.
        batch: int or float [B, length] for each feature of the spec, and no other.

    Returns:
        B records, see `frame`.
    """
    columns = []
    for name in sorted(spec):
        kind = spec[name].kind
        data, ends = (_floats if kind == "float" else _varints)(batch[name])
        columns.append(_entries(name, kind, data, ends))
    return [
        frame(_FEATURES + _varint(sum(map(len, entries))) + b"".join(entries))
        for entries in zip(*columns, strict=True)
    ]


class Writer:
    """Appends records to an open file.

    Args:
        file: receives the records.
        compress: whether to compress them with gzip.
    """

    def __init__(self, file: IO[bytes], compress: bool = False):
        self._file = file
        # wbits 31 makes a gzip header without a time, so all runs give equal bytes.
        self._gzip = zlib.compressobj(level=1, wbits=31) if compress else None

    def write(self, records: Sequence[bytes]) -> None:
        """Appends records, as `encode` or `split` returns them."""
        data = b"".join(records)
        self._file.write(self._gzip.compress(data) if self._gzip else data)

    def close(self) -> None:
        """Writes the end of a compressed file; must be the last call."""
        if self._gzip:
            self._file.write(self._gzip.flush())


def frame(record: bytes) -> bytes:
    """Returns a serialised example with the length and the checksums of TFRecord."""
    size = struct.pack("<Q", len(record))
    return b"".join((size, masked_checksum(size), record, masked_checksum(record)))


def split(data: bytes) -> list[bytes]:
    """Splits uncompressed data of a TFRecord file into records."""
    records = []
    begin = 0
    while begin < len(data):
        [length] = struct.unpack_from("<Q", data, begin)
        end = begin + _HEADER_BYTES + length + _FOOTER_BYTES
        records.append(data[begin:end])
        begin = end
    return records


@contextlib.contextmanager
def create(path: str, compress: bool = False) -> Iterator[Writer]:
    """Opens a TFRecord file for writing; it gets its name when it is complete.

    Args:
        path: the file to make; its folder is made, too.
        compress: whether to compress it with gzip.

    Raises:
        InputError: the file cannot be written (permissions, no space left, ...).
    """
    with atomic(path) as file:
        writer = Writer(file, compress)
        yield writer
        writer.close()


def parser(
    spec: Spec, limits: Limits | None = None
) -> Callable[["tf.Tensor"], dict[str, "tf.Tensor"]]:
    """Returns a function that parses serialised examples to a batch.

    Args:
        spec: the features, by name; other features of a record are ignored.
        limits: exclusive upper limits of integer features, by name.

    Returns:
        A function for `tf.data`: string [B] -> {name: int32 or float32 [B, length]}. It
        raises InvalidArgumentError if a record does not fit, see `locate_error`.
    """
    import tensorflow as tf

    kinds = {"int": tf.int64, "float": tf.float32}
    features = {
        name: tf.io.FixedLenFeature([length], kinds[kind])
        for name, (kind, length) in spec.items()
    }

    @tf.autograph.experimental.do_not_convert
    def parse(serialised: "tf.Tensor") -> dict[str, "tf.Tensor"]:
        batch = tf.io.parse_example(serialised, features)
        batch = {
            # Embedding lookups take int32 on every device.
            name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
            for name, value in batch.items()
        }
        if limits:
            # Read as unsigned, a negative number is above every limit.
            bits = [tf.bitcast(batch[name], tf.uint32) for name in limits]
            is_valid = tf.stack([tf.reduce_max(x) for x in bits]) < [*limits.values()]
            ranges = ", ".join(f"{name} 0 to {limits[name] - 1}" for name in limits)
            message = f"a number outside its range: {ranges}"
            tf.raw_ops.Assert(condition=tf.reduce_all(is_valid), data=[message])
        return batch

    return parse


def dataset(files: Sequence[str], spec: Spec, *, batch_size: int) -> "tf.data.Dataset":
    """Reads record files in order, as batches.

    Args:
        files: TFRecord files, plain or all compressed with gzip.
        spec: the features to read.
        batch_size: examples in a batch.

    Returns:
        A dataset of {name: int32 or float32 [B, length]}.

    Raises:
        InputError: see `check`.
    """
    import tensorflow as tf

    check(files, spec)
    records = tf.data.TFRecordDataset(list(files), compression(files[0]))
    return records.batch(batch_size).map(parser(spec))


def count(path: str) -> int:
    """Counts the records of a file.

    Raises:
        InputError: the file cannot be read, is damaged or ends within a record.
    """
    import tensorflow as tf

    with errors.wrap_read(path, "a whole TFRecord file"):
        records = tf.data.TFRecordDataset(path, compression(path), 1 << 20)
        # Calls for batches take a tenth of the time of calls for records.
        sizes = records.batch(1000).map(tf.size)
        return int(sizes.reduce(0, tf.add))


def features_of(path: str) -> dict[str, Feature]:
    """Returns the features of a file's first record, by name; {} without a record.

    Raises:
        InputError: the file cannot be read, or is no TFRecord file of examples.
    """
    import tensorflow as tf

    kinds = {"int64_list": "int", "float_list": "float", "bytes_list": "bytes"}
    features = {}
    with errors.wrap_read(path, "a TFRecord file of tf.train.Examples"):
        for record in tf.data.TFRecordDataset(path, compression(path)).take(1):
            example = tf.train.Example.FromString(record.numpy())
            for name, value in example.features.feature.items():
                # A feature without any list counts as one with an empty list.
                kind = value.WhichOneof("kind") or "bytes_list"
                length = len(getattr(value, kind).value)
                features[name] = Feature(kinds[kind], length)  # type: ignore[arg-type]
    return features


def check(files: Iterable[str], spec: Spec) -> None:
    """Compares the first record of every file with the spec.

    Raises:
        InputError: a file cannot be read, or a feature is missing, of the other kind or
            of another length.
    """
    for path in files:
        features = features_of(path)
        for name, expected in spec.items():
            actual = features.get(name)
            # A file without records fits every spec.
            if features and actual != expected:
                raise InputError(
                    f"{path}: feature {name!r}: {actual or 'missing'}; expected "
                    f"{expected}"
                )


def locate_error(
    files: Iterable[str], spec: Spec, limits: Limits | None = None
) -> None:
    """Finds the record on which `tf.data` failed, since its error names no record.

    Args:
        files: TFRecord files.
        spec: the features to read.
        limits: see `parser`.

    Raises:
        InputError: a record is damaged, or does not fit the spec or the limits; the
            message has its number.
    """
    import tensorflow as tf

    for path in files:
        items = tf.data.TFRecordDataset(path, compression(path)).batch(1)
        number = 1  # of the record to parse next
        try:
            for _ in items.map(parser(spec, limits)):
                number += 1
        # UnicodeDecodeError: TensorFlow's message quotes a record that is no text.
        except (tf.errors.OpError, UnicodeDecodeError) as error:
            raise InputError(
                f"{path}: record {number}: {errors.summarize(error)}; expected a "
                f"whole record with the features of the others"
            ) from error


def compression(path: str) -> Literal["", "GZIP"]:
    """Returns the compression of a file, which its first bytes show.

    Returns:
        The name for `tf.data.TFRecordDataset`.

    Raises:
        InputError: the file cannot be read.
    """
    with errors.wrap_read(path), open(path, "rb") as file:
        return "GZIP" if file.read(2) == GZIP_MAGIC else ""


def _floats(values: np.ndarray) -> tuple[bytes, list[int]]:
    """Encodes float [B, n] as float32; returns bytes and ends as `_varints` does."""
    size = 4 * values.shape[1]
    return values.astype("<f4").tobytes(), [size * (i + 1) for i in range(len(values))]


def _varints(values: np.ndarray) -> tuple[bytes, list[int]]:
    """Encodes integers in base 128, low digits first, without a loop over integers.

    Args:
        values: int [B, n]; negative numbers take ten bytes, as in protocol buffers.

    Returns:
        The bytes of all rows one after the other, and the end of each row in them.
    """
    rows, length = values.shape
    if values.size == 0 or (values.min() >= 0 and values.max() < 128):
        row_ends = [length * (i + 1) for i in range(rows)]
        return values.astype(np.uint8).tobytes(), row_ends
    flat = values.astype(np.int64, copy=False).ravel().view(np.uint64)
    # `sizes` becomes the number of digits, one byte each, of every integer.
    max_digits = int(flat.max()).bit_length() // 7 + 1
    sizes = np.ones(flat.size, np.int64)
    for digit in range(1, max_digits):
        sizes += flat >= np.uint64(1 << 7 * digit)
    ends = np.cumsum(sizes)
    data = np.empty(ends[-1], np.uint8)
    starts = ends - sizes
    data[starts] = flat & np.uint64(127)
    for digit in range(1, max_digits):
        indices = np.flatnonzero(sizes > digit)
        positions = starts[indices] + digit
        data[positions] = (flat[indices] >> np.uint64(7 * digit)) & np.uint64(127)
        # The highest bit of a byte says that another byte of the integer follows.
        data[positions - 1] |= 128
    return data.tobytes(), ends[length - 1 :: length].tolist()


def _entries(name: str, kind: str, data: bytes, ends: list[int]) -> Iterator[bytes]:
    """Yields the serialised map entry, name and values, of a feature in each record."""
    start = 0
    for end in ends:
        yield _header(name, kind, end - start) + data[start:end]
        start = end


@functools.lru_cache(maxsize=1 << 16)
def _header(name: str, kind: str, size: int) -> bytes:
    """Returns the bytes before a feature's packed numbers, which take `size` bytes."""
    # Each message follows its tag and its size. The loop starts with the innermost one.
    prefix = b""
    for tag in (_PACKED, _LIST[kind], _VALUE):
        prefix = tag + _varint(size + len(prefix)) + prefix
    key = _KEY + _varint(len(name.encode())) + name.encode()
    return _ENTRY + _varint(size + len(key) + len(prefix)) + key + prefix


@functools.lru_cache(maxsize=1 << 16)
def _varint(value: int) -> bytes:
    return _varints(np.array([[value]]))[0]


def masked_checksum(data: bytes) -> bytes:
    """Returns the CRC-32C of data, rotated and shifted as the TFRecord format does."""
    crc = google_crc32c.value(data)
    crc = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return struct.pack("<I", crc)
