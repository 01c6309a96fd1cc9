"""Strategies that damage valid files: bytes, lines, JSON, records, zip members."""

import contextlib
import io
import json
import zipfile

import numpy as np
from hypothesis import strategies as st

from albert_tf.data import records

# What breaks readers of numbers and of texts, as JSON has it.
_NUMBERS = (
    *("0", "-1", "1", "2", "7", "0.5", "-0.0", "1e308", "1e309", "1e-320", "NaN"),
    *("Infinity", "-Infinity", "2147483648", "9223372036854775808", "1" + "0" * 30),
    *("18446744073709551616", "-9223372036854775809", "9" * 5000),
)
_TEXTS = (
    *("", " ", "\t", "\0", "\ufeff", "\u2028", "\x85", "\x1b[2J", "é" * 3, "e\u0301"),
    *("..", "../../x", "/etc/passwd", "a/b", "%s{0}$x", "x" * 10_000, "א", "😀", "ﷺ"),
    *("NaN", "null", "0", "1e5", "-", "[MASK]", "O", "B-", "I-x", "\r", "\n"),
)
_DEEP = 100_000
_WHOLE = (
    *("null", "true", "false", "[]", "{}", "[[]]", '[""]', '{"": 0}', '"\\ud800"'),
    *(
        "[" * _DEEP,
        "[" * _DEEP + "]" * _DEEP,
        '{"a":' * _DEEP,
        "[1" + ",1" * 9999 + "]",
    ),
    *("", "nul", "'", "{,}", "1,", "//"),
)
_EXTREME = (0, 1, -1, 127, 128, 255, 1 << 15, 1 << 31, (1 << 31) - 1, (1 << 63) - 1)
_NASTY = (
    *(b"\0", b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b"\r", b"\r\n", b"\n", b"\t", b'"'),
    *(b",", b"\xed\xa0\x80", b"\xc3", b"\xe2\x80\xa8", b"{", b"\x1f\x8b", b"\x80" * 9),
)


def texts():
    """Texts of all kinds, with the nasty ones among them."""
    return st.sampled_from(_TEXTS) | st.text(max_size=8)


@st.composite
def damaged(draw, data):
    """Bytes that are flipped, cut, doubled, dropped, inserted or overwritten."""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.integers(1, 64)))
        kind = draw(st.integers(0, 6))
        if kind == 0 and at < len(data):
            flipped = data[at] ^ draw(st.integers(1, 255))
            data = data[:at] + bytes([flipped]) + data[at + 1 :]
        elif kind == 1:
            data = data[:at]
        elif kind == 2:
            data = data[:end] + data[at:]
        elif kind == 3:
            data = data[:at] + data[end:]
        elif kind == 4:
            new = draw(st.sampled_from(_NASTY) | st.binary(max_size=8))
            data = data[:at] + new + data[at:]
        elif kind == 5:
            size, order = draw(st.sampled_from([1, 2, 4, 8])), draw(st.booleans())
            number = draw(st.sampled_from(_EXTREME)) % (1 << 8 * size)
            new = number.to_bytes(size, "big" if order else "little")
            data = data[:at] + new + data[at + size :]
        else:
            other = draw(st.integers(0, len(data)))
            data = data[:at] + data[other : other + end - at] + data[at:]
    return data


class _Pairs(list):
    """A JSON object, whose keys may come twice."""


class _Raw(str):
    """JSON that stands for itself, whether or not it is JSON."""


def _to_json(value):
    if isinstance(value, _Raw):
        return str(value)
    if isinstance(value, _Pairs):
        return f"{{{','.join(f'{json.dumps(k)}:{_to_json(v)}' for k, v in value)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_to_json, value))}]"
    return json.dumps(value)


def _slots(value, slots):
    """Lists (container, index) of every value below one."""
    for i, item in enumerate(value if isinstance(value, list) else ()):
        slots.append((value, i))
        _slots(item[1] if isinstance(value, _Pairs) else item, slots)
    return slots


_ABSURD = st.one_of(
    st.sampled_from(_NUMBERS).map(_Raw),
    st.sampled_from(_WHOLE).map(_Raw),
    texts(),
    st.integers(-3, 100),
)


@st.composite
def json_text(draw, text):
    """JSON with values that are dropped, doubled, renamed, replaced or exchanged."""
    root = [json.loads(text, object_pairs_hook=_Pairs)]
    for _ in range(draw(st.integers(1, 3))):
        slots = _slots(root, [])
        if not slots:
            break
        holder, i = draw(st.sampled_from(slots))
        in_object = isinstance(holder, _Pairs)
        kind = draw(st.integers(0, 7))
        if kind == 0 and holder is not root:
            del holder[i]
            continue
        if kind == 1 and holder is not root:
            holder.insert(draw(st.integers(0, len(holder))), holder[i])
            continue
        if kind == 2 and in_object:
            holder[i] = (draw(texts()), holder[i][1])
            continue
        value = holder[i][1] if in_object else holder[i]
        if kind == 3:
            other, j = draw(st.sampled_from(slots))
            value = other[j][1] if isinstance(other, _Pairs) else other[j]
            value = _Raw(_to_json(value))
        elif kind == 4:
            value = _Raw(f"[{_to_json(value)}]")
        elif kind == 5 and isinstance(value, str):
            at = draw(st.integers(0, len(value)))
            value = value[:at] + draw(texts()) + value[at:]
        else:
            value = draw(_ABSURD)
        holder[i] = (holder[i][0], value) if in_object else value
    return _to_json(root[0]) if len(root) == 1 else ""


@st.composite
def encoded(draw, strategy):
    """Text as bytes, in UTF-8 or otherwise, with or without a byte order mark."""
    text = draw(strategy)
    kind = draw(st.integers(0, 11))
    if kind == 1:
        return b"\xef\xbb\xbf" + text.encode()
    if kind == 2:
        return text.encode("utf-16")
    if kind == 3:
        return text.replace("\n", "\r\n").encode()
    if kind == 4:
        return text.encode("latin-1", errors="replace")
    return text.encode()


def json_file(data):
    """Damaged JSON: its values, or its bytes."""
    return encoded(json_text(data.decode())) | damaged(data)


@st.composite
def json_lines(draw, data):
    """JSON lines of which one or two are damaged."""
    rows = data.decode().splitlines()
    for _ in range(draw(st.integers(1, 2))):
        i = draw(st.integers(0, len(rows) - 1))
        try:
            rows[i] = draw(json_text(rows[i]))
        except (ValueError, RecursionError):  # damaged before
            rows[i] = draw(texts())
    return draw(encoded(st.just("\n".join(rows) + "\n")))


@st.composite
def lines(draw, data, separator="\t"):
    """Lines of cells that are dropped, doubled, exchanged, replaced or added to."""
    rows = [row.split(separator) for row in data.decode().split("\n")]
    for _ in range(draw(st.integers(1, 4))):
        if not rows:
            break
        i = draw(st.integers(0, len(rows) - 1))
        j = draw(st.integers(0, max(0, len(rows[i]) - 1)))
        kind = draw(st.integers(0, 7))
        if kind == 0:
            del rows[i]
        elif kind == 1:
            rows.insert(draw(st.integers(0, len(rows))), list(rows[i]))
        elif kind == 2:
            rows.insert(i, draw(st.sampled_from([[""], [" "], ["\r"], ["", ""]])))
        elif kind == 3:
            rows[i].insert(j, draw(texts()))
        elif kind == 4 and rows[i]:
            del rows[i][j]
        elif kind == 5 and rows[i]:
            at = draw(st.integers(0, len(rows[i][j])))
            new = draw(st.sampled_from(['"', '""', "'", "\r", "\0", separator]))
            rows[i][j] = rows[i][j][:at] + new + rows[i][j][at:]
        elif rows[i]:
            rows[i][j] = draw(st.sampled_from(_NUMBERS) | texts())
    return draw(encoded(st.just("\n".join(map(separator.join, rows)))))


@st.composite
def zip_file(draw, data, members):
    """A zip file of which one member is damaged, or its bytes.

    Args:
        draw: of Hypothesis.
        data: the file.
        members: {ending of a name: function from bytes to a strategy}.
    """
    if draw(st.integers(0, 3)) == 0:
        return draw(damaged(data))
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(made, "w") as new:
        names = old.namelist()
        target = draw(st.sampled_from(names))
        kind = draw(st.integers(0, 9))
        for name in names:
            contents = old.read(name)
            if name == target and kind == 0:
                continue
            if name == target and kind == 1:
                new.writestr(draw(texts()).replace("\0", "") or "x", contents)
                continue
            if name == target:
                ending = name.rpartition(".")[2]
                contents = draw(members.get(ending, damaged)(contents))
            new.writestr(zipfile.ZipInfo(name), contents)
    return made.getvalue()


@st.composite
def h5_file(draw, data):
    """An HDF5 file with datasets that are gone, renamed, huge, links or of other types.

    Or its bytes are damaged.
    """
    import h5py

    if draw(st.integers(0, 2)) == 0:
        return draw(damaged(data))
    made = io.BytesIO(data)
    with h5py.File(made, "r+") as file:
        names = []
        file.visit(names.append)
        for _ in range(draw(st.integers(1, 2))):
            # What was damaged before may be gone, or behind a link to nothing.
            with contextlib.suppress(KeyError, OSError, RuntimeError, ValueError):
                _damage_item(draw, file, draw(st.sampled_from(names)))
    return made.getvalue()


def _damage_item(draw, file, name):
    import h5py

    kind = draw(st.integers(0, 7))
    item = file[name]
    shape = item.shape if getattr(item, "size", 1e9) < 10**5 else (2, 2)
    if kind in (1, 2):
        other = draw(st.sampled_from(["x", "a/b", "\u00e9", f"{name}_"]))
        if other not in file:
            file[other] = item
    if kind != 2:
        del file[name]
    if kind == 3:
        file.create_dataset(name, (10**6, 10**6), "f4", chunks=(9, 9))
    elif kind == 4:
        file[name] = h5py.SoftLink(draw(st.sampled_from(["/", "/none"])))
    elif kind == 5:
        file[name] = h5py.ExternalLink("/etc/passwd", "/")
    elif kind == 6:
        types = ["i1", "f2", "f8", "S3", "c8", "?", "<u8"]
        file[name] = np.zeros(shape, draw(st.sampled_from(types)))
    elif kind == 7:
        sizes = st.lists(st.integers(0, 5), max_size=4)
        file[name] = np.full(draw(sizes), np.nan, "f4")


@st.composite
def safetensors_file(draw, data):
    """A safetensors file whose header says something else, or damaged bytes."""
    if draw(st.integers(0, 2)) == 0:
        return draw(damaged(data))
    size = int.from_bytes(data[:8], "little")
    header = draw(json_text(data[8 : 8 + size].decode())).encode()
    return len(header).to_bytes(8, "little") + header + data[8 + size :]


@st.composite
def index_file(draw, data):
    """The index of a TF1 checkpoint, damaged below its checksums or with them.

    It is a table of LevelDB: blocks, each with a byte and a checksum behind it, and a
    footer of 48 bytes that says where two of them are.
    """
    if draw(st.integers(0, 3)) == 0:
        return draw(damaged(data))
    handles, at = [], len(data) - 48
    for _ in range(4):
        value, shift = 0, 0
        while True:
            value |= (data[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if data[at - 1] < 128:
                break
        handles.append(value)
    second, third = handles[0], handles[2]
    blocks = [data[:second], data[second:third], data[third : len(data) - 48]]
    i = draw(st.sampled_from([0, 0, 0, 2]))
    block = blocks[i][:-5]
    new = draw(damaged(block))[: len(block)]
    block = new + block[len(new) :] + blocks[i][-5:-4]
    blocks[i] = block + records.masked_checksum(block)
    return b"".join(blocks) + data[-48:]
