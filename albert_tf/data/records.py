"""Writes and reads TFRecord files of `tf.train.Example`s with a feature spec.

A spec lists the features of a record, with the kind and length of each. `encode` and
`create` write files with a spec; `check`, `parser` and `dataset` read files with it:

    SPEC = {"input_ids": Feature("int", 128), "weights": Feature("float", 20)}
    with create("train.tfrecord") as writer:
        writer.write(encode(SPEC, {"input_ids": ids, "weights": weights}))
    for batch in dataset(["train.tfrecord"], SPEC, batch_size=8):
        ...

The code for writing needs neither TensorFlow nor protocol buffer objects. So worker
processes start in a fraction of a second, and a record takes microseconds.

In shapes, B is the number of records in a batch.
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

# A TFRecord file has the length of each record with its checksum (12 bytes) before the
# record, and the checksum of the record (4 bytes) after it.
_HEADER_BYTES, _FOOTER_BYTES = 12, 4
# Tags of the protocol buffer fields in tensorflow/core/example/{example,feature}.proto.
# A tag is a field number and a wire type.
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


# The features of a record, by name.
Spec = Mapping[str, Feature]
# {name: exclusive upper limit} of the values of some integer features. A negative value
# of these features is out of range, too.
Limits = Mapping[str, int]


def encode(spec: Spec, batch: Mapping[str, np.ndarray]) -> list[bytes]:
    """Serialises a batch as `tf.train.Example`s, and makes a TFRecord record of each.

    Features are written in the order of their names, so equal numbers give equal bytes.

    Args:
        spec: the features, by name.
        batch: int or float [B, length] for each feature of the spec.

    Returns:
        B records, each with TFRecord's length and checksums around the example.
    """
    # For each feature, its serialised entry in each record.
    columns = []
    for name in sorted(spec):
        kind = spec[name].kind
        encode_numbers = _floats if kind == "float" else _varints
        data, ends = encode_numbers(batch[name])
        columns.append(_entries(name, kind, data, ends))
    return [
        frame(_FEATURES + _varint(sum(map(len, entries))) + b"".join(entries))
        for entries in zip(*columns, strict=True)
    ]


class Writer:
    """Appends records to a file that is open already; `create` also opens the file.

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
    """Adds the length and the checksums of TFRecord to a serialised example."""
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
    """Opens a temporary TFRecord file, which replaces `path` when it is complete.

    Args:
        path: the file to make; its folder is made, too.
        compress: whether to compress the file with gzip.

    Yields:
        A `Writer`.

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
    """Returns a function that parses a batch of serialised examples.

    Args:
        spec: the features, by name; other features of a record are ignored.
        limits: {name: exclusive upper limit} of integer features to check.

    Returns:
        A function for `tf.data`: string [B] -> {name: int32 or float32 [B, length]}. It
        raises InvalidArgumentError if a record does not fit the spec or the limits.
        `locate_error` then finds the record.
    """
    import tensorflow as tf

    dtypes = {"int": tf.int64, "float": tf.float32}
    features = {
        name: tf.io.FixedLenFeature([length], dtypes[kind])
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
            # As an unsigned integer, a negative number is above every limit.
            bits = [tf.bitcast(batch[name], tf.uint32) for name in limits]
            is_valid = tf.stack([tf.reduce_max(x) for x in bits]) < [*limits.values()]
            ranges = ", ".join(f"{name} 0 to {limits[name] - 1}" for name in limits)
            message = f"a number outside its range: {ranges}"
            tf.raw_ops.Assert(condition=tf.reduce_all(is_valid), data=[message])
        return batch

    return parse


def dataset(files: Sequence[str], spec: Spec, *, batch_size: int) -> "tf.data.Dataset":
    """Reads record files in order, as batches; checks the files first.

    Args:
        files: TFRecord files, plain or compressed with gzip.
        spec: the features to read.
        batch_size: examples in a batch.

    Returns:
        A dataset of {name: int32 or float32 [B, length]}.

    Raises:
        InputError: a file cannot be read, or its first record does not fit the spec.
    """
    import tensorflow as tf

    check(files, spec)
    pairs = tf.data.Dataset.from_tensor_slices([(f, compression(f)) for f in files])
    records = pairs.flat_map(lambda pair: tf.data.TFRecordDataset(pair[0], pair[1]))
    return records.batch(batch_size).map(parser(spec))


def count(path: str) -> int:
    """Counts the records of a file.

    Raises:
        InputError: the file cannot be read, is damaged or ends within a record.
    """
    import tensorflow as tf

    with errors.wrap_read(path, "a whole TFRecord file"):
        records = tf.data.TFRecordDataset(path, compression(path), buffer_size=1 << 20)
        # Counting batches takes a tenth of the time of counting single records.
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
                # A feature of bytes, or without a list of values, gets the kind
                # "bytes", which no spec has.
                kind = value.WhichOneof("kind") or "bytes_list"
                length = len(getattr(value, kind).value)
                features[name] = Feature(kinds[kind], length)  # type: ignore[arg-type]
    return features


def check(files: Iterable[str], spec: Spec) -> None:
    """Checks that the first record of every file has the features of the spec.

    A file without records fits every spec.

    Raises:
        InputError: a file cannot be read, or a feature is missing, of the other kind or
            of another length.
    """
    for path in files:
        features = features_of(path)
        for name, expected in spec.items():
            actual = features.get(name)
            if features and actual != expected:
                raise InputError(
                    f"{path}: feature {name!r}: {actual or 'missing'}; expected "
                    f"{expected}"
                )


def locate_error(
    files: Iterable[str], spec: Spec, limits: Limits | None = None
) -> None:
    """Raises an error with the file and the number of the first record that is bad.

    Call this after `tf.data` has failed: its error does not name the record.

    Args:
        files: TFRecord files.
        spec: the features to read.
        limits: the limits of values, as for `parser`.

    Raises:
        InputError: a record is damaged, or does not fit the spec or the limits.
    """
    import tensorflow as tf

    for path in files:
        items = tf.data.TFRecordDataset(path, compression(path)).batch(1)
        number = 1  # the number of the record that is parsed next
        try:
            for _ in items.map(parser(spec, limits)):
                number += 1
        # TensorFlow's message can quote bytes of a record. If they are not text, the
        # error is UnicodeDecodeError.
        except (tf.errors.OpError, UnicodeDecodeError) as error:
            raise InputError(
                f"{path}: record {number}: {errors.summarize(error)}; expected a "
                f"whole record with the features of the other records"
            ) from error


def compression(path: str) -> Literal["", "GZIP"]:
    """Finds out the compression of a file from its first bytes.

    Returns:
        The name of the compression for `tf.data.TFRecordDataset`.

    Raises:
        InputError: the file cannot be read.
    """
    with errors.wrap_read(path), open(path, "rb") as file:
        return "GZIP" if file.read(2) == GZIP_MAGIC else ""


def _floats(values: np.ndarray) -> tuple[bytes, list[int]]:
    """Encodes floats as float32.

    Args:
        values: float [B, n], n numbers for each record.

    Returns:
        The bytes of all rows one after the other, and the end of each row in them.
    """
    size = 4 * values.shape[1]
    return values.astype("<f4").tobytes(), [size * (i + 1) for i in range(len(values))]


def _varints(values: np.ndarray) -> tuple[bytes, list[int]]:
    """Encodes integers as protocol buffers do: in base 128, lowest digit first.

    For speed, the loops are over digits, not over integers.

    Args:
        values: int [B, n], n numbers for each record; a negative number takes ten
            bytes.

    Returns:
        The bytes of all rows one after the other, and the end of each row in them.
    """
    rows, length = values.shape
    # Fast path: every integer has one digit.
    if values.size == 0 or (values.min() >= 0 and values.max() < 128):
        row_ends = [length * (i + 1) for i in range(rows)]
        return values.astype(np.uint8).tobytes(), row_ends
    flat = values.astype(np.int64, copy=False).ravel().view(np.uint64)
    # Each digit takes a byte. After the loop, `sizes` has each integer's byte count.
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
    # A row ends where its last integer ends.
    return data.tobytes(), ends[length - 1 :: length].tolist()


def _entries(name: str, kind: str, data: bytes, ends: list[int]) -> Iterator[bytes]:
    """Yields the serialised entry of a feature for each record: its name and values.

    Args:
        name: the name of the feature.
        kind: "int" or "float".
        data: the encoded numbers of all records.
        ends: for each record, the end of its numbers in `data`.
    """
    start = 0
    for end in ends:
        yield _header(name, kind, end - start) + data[start:end]
        start = end


@functools.lru_cache(maxsize=1 << 16)
def _header(name: str, kind: str, size: int) -> bytes:
    """Returns the bytes of a feature's entry before its numbers.

    Args:
        name: the name of the feature.
        kind: "int" or "float".
        size: the number of bytes of the numbers.
    """
    # An entry consists of nested messages, and each follows its tag and its size. The
    # loop begins with the innermost message.
    prefix = b""
    for tag in (_PACKED, _LIST[kind], _VALUE):
        prefix = tag + _varint(size + len(prefix)) + prefix
    key = _KEY + _varint(len(name.encode())) + name.encode()
    return _ENTRY + _varint(size + len(key) + len(prefix)) + key + prefix


@functools.lru_cache(maxsize=1 << 16)
def _varint(value: int) -> bytes:
    """Encodes one integer, as `_varints` does."""
    return _varints(np.array([[value]]))[0]


def masked_checksum(data: bytes) -> bytes:
    """Returns the checksum of TFRecord: a CRC-32C, rotated, plus a constant."""
    crc = google_crc32c.value(data)
    crc = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return struct.pack("<I", crc)
