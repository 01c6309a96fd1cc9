"""Checks the index of a TF checkpoint, whose mistakes end TensorFlow's process.

TensorFlow compares checksums, but takes for granted that what they cover is
well-formed. An index is a table of LevelDB: blocks of entries, a byte and a checksum
behind each, then a footer of 48 bytes, which says where the block of all blocks is.
"""

from collections.abc import Iterator
from pathlib import Path

from albert_tf.data.records import masked_checksum

_FOOTER = 48
_RESTART = 4  # bytes of a number at the end of a block
_MOST_DIMENSIONS = 254
_MOST_ELEMENTS = 1 << 62


def check(path: Path) -> None:
    """Parses every entry.

    Raises:
        Exception: of many kinds; wrap it in `errors.reading`.
    """
    from tensorflow.core.protobuf import tensor_bundle_pb2

    data = path.read_bytes()
    _, at = _handle(data, len(data) - _FOOTER)
    blocks, _ = _handle(data, at)
    for _, place in _entries(data, *blocks):
        handle, _ = _handle(place, 0)
        for key, value in _entries(data, *handle):
            if not key:
                tensor_bundle_pb2.BundleHeaderProto.FromString(value)
                continue
            entry = tensor_bundle_pb2.BundleEntryProto.FromString(value)
            _check_shape(entry.shape)


def check_end(path: Path) -> None:
    """Compares what TensorFlow never reads: the block before the last, and padding.

    Raises:
        Exception: of many kinds; wrap it in `errors.reading`.
    """
    data = path.read_bytes()
    (begin, size), at = _handle(data, len(data) - _FOOTER)
    (after, _), at = _handle(data, at)
    end = begin + size + 1  # with the kind of its compression
    is_whole = end + 4 == after and not any(data[at:-8])
    if not is_whole or data[end:after] != masked_checksum(data[begin:end]):
        raise ValueError("the end of its index is damaged")


def _check_shape(shape) -> None:
    elements = 1
    for dimension in shape.dim:
        elements *= dimension.size
        if dimension.size < 0 or elements > _MOST_ELEMENTS:
            raise ValueError("an impossible shape")
    if shape.unknown_rank or len(shape.dim) > _MOST_DIMENSIONS:
        raise ValueError("an impossible shape")


def _entries(data: bytes, begin: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yields the keys and values of a block."""
    block = data[begin : begin + size]
    if len(block) < size or data[begin + size] != 0:
        raise ValueError("a block is cut short or compressed")
    restarts = int.from_bytes(block[-_RESTART:], "little")
    end = size - _RESTART * (restarts + 1)
    key, at = b"", 0
    while at < end:
        shared, at = _number(block, at)
        added, at = _number(block, at)
        length, at = _number(block, at)
        key = key[:shared] + block[at : at + added]
        at += added
        yield key, block[at : at + length]
        at += length
    if at != end:
        raise ValueError("a block is damaged")


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """Returns where a block begins, its size, and what is after them."""
    begin, at = _number(data, at)
    size, at = _number(data, at)
    return (begin, size), at


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Returns a number in base 128, low digits first, and what is after it."""
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at
