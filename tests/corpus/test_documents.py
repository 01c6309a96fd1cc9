import gzip
import json
from collections import Counter

import pytest
from helpers import refusal

from albert_tf.corpus import documents
from albert_tf.errors import InputError


def read(path, errors="strict", **options):
    counts = Counter()
    sizes = documents.find_files([str(path)])
    texts = [
        document
        for part, _ in documents.divide_files(sizes)
        for document in documents.read(part, errors, counts, **options)
    ]
    return texts, counts


LINES = [{"id": 7, "text": "one\n\n two\u2028still \n"}, {"text": "three"}]
JSON = "\n".join(map(json.dumps, LINES)).encode() + b"\n\n"
OF_JSON = [["one", "two\u2028still"], ["three"]]
RETURNS = [["one", "two"], ["three"]]


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a", b"\xef\xbb\xbfone \r\n\ttwo\n \t\n\n\nthree\xe3\x80\x80\n", RETURNS),
        ("a", "a\u2028b\x0bc\x85d\n".encode(), [["a\u2028b\x0bc\x85d"]]),
        # Without line feeds, carriage returns end lines.
        ("a", b"one\rtwo\r\rthree\r", RETURNS),
        ("a", b"\xef\xbb\xbfone\rtwo\r\rthree\r\n", RETURNS),
        ("a.jsonl", b'{"text": "one"}\r{"text": "two"}\r', [["one"], ["two"]]),
        # Compressed text is recognised by its bytes.
        ("a.txt", gzip.compress(b"one\n\ntwo\n", mtime=0), [["one"], ["two"]]),
        # JSON lines hold a document each.
        ("a.jsonl", JSON, OF_JSON),
        ("a.jsonl.gz", gzip.compress(JSON, mtime=0), OF_JSON),
    ],
)
def test_documents_and_lines_of_a_file(tmp_path, name, data, expected):
    (tmp_path / name).write_bytes(data)
    assert read(tmp_path / name)[0] == expected


ONE, TWO = "Grüße\u2028 a\rb", "two"
TEXT = f"{ONE}\n\n{TWO}\n"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "gb18030", "utf-16-le"])
@pytest.mark.parametrize("given", ["gb18030", None])
def test_encodings(tmp_path, monkeypatch, encoding, given):
    monkeypatch.setattr(documents, "RANGE_BYTES", 3)
    path = tmp_path / "x.txt"
    mark = "\ufeff" if encoding == "utf-16-le" else ""
    path.write_bytes((mark + TEXT).encode(encoding))
    named = {"encoding": given} if given else {}
    if encoding == "gb18030" and not given:
        assert "line 1, byte 2: not UTF-8 (byte 0x" in refusal(read, path)
        assert read(path, "replace")[1]["undecodable_lines"] == 1
    else:
        assert read(path, **named)[0] == [[ONE], [TWO]]


def test_an_encoding_that_is_none(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("one")
    with pytest.raises(InputError, match=r"^--encoding=klingon: no such encoding"):
        read(path, encoding="klingon")


def test_ranges_divide_large_files_between_documents(tmp_path, monkeypatch):
    path = tmp_path / "x.txt"
    expected = [[f"{i} {j}" for j in range(1 + i % 4)] for i in range(97)]
    path.write_text("\ufeff" + "\n\n".join("\n".join(lines) for lines in expected))
    for size in (1, 13, 50, 1_000_000):
        monkeypatch.setattr(documents, "RANGE_BYTES", size)
        ranges = list(documents.divide_files(documents.find_files([str(path)])))
        assert len(ranges) == {1: 97, 1_000_000: 1}.get(size, len(ranges))
        assert read(path)[0] == expected


def test_ranges_divide_json_lines_at_every_line(tmp_path, monkeypatch):
    path = tmp_path / "x.jsonl"
    path.write_text("".join(f'{{"text": "{i}"}}\n' for i in range(50)))
    monkeypatch.setattr(documents, "RANGE_BYTES", 60)
    ranges = list(documents.divide_files(documents.find_files([str(path)])))
    assert len(ranges) == 10  # of five lines each
    assert read(path)[0] == [[str(i)] for i in range(50)]


def test_small_files_are_ranges_and_empty_ones_are_none(tmp_path):
    for name in "bca":
        (tmp_path / name).write_text(name)
    (tmp_path / "d").write_text("")
    ranges = documents.divide_files(documents.find_files([str(tmp_path / "*")]))
    found = [(part.file[-1], weight) for part, weight in ranges]
    assert found == [("a", 1), ("b", 1), ("c", 1)]


def test_a_document_without_end_is_divided(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "MAX_DOCUMENT_CHARS", 10)
    (tmp_path / "x").write_text("12345\n" * 7 + "\n12345\n12345\n12345\n\n12")
    texts, _ = read(tmp_path / "x")
    assert [len(document) for document in texts] == [3, 3, 1, 3, 1]


@pytest.mark.parametrize("begin", [0, 30])
def test_bytes_that_are_not_utf8_are_named(tmp_path, begin, monkeypatch):
    monkeypatch.setattr(documents, "RANGE_BYTES", 10)
    path = tmp_path / "x"
    before = b"\xc3\xa9o\n\n" * (begin // 5)
    path.write_bytes(before + b"tw\xc3\xa9\n\xc3\xa9\xfftail\n")
    assert refusal(read, path) == (
        f"{path}: line {begin // 5 * 2 + 2}, byte {begin + 7}: not UTF-8 (byte 0xff); "
        f"give the right --encoding, or --replace_invalid_utf8 to put U+FFFD there"
    )


def test_bytes_that_are_not_utf8_can_be_replaced_or_left_out(tmp_path):
    (tmp_path / "x").write_bytes(b"a\xffb\nc\n")
    texts, counts = read(tmp_path / "x", "replace")
    assert (texts, counts["undecodable_lines"]) == ([["a\ufffdb", "c"]], 1)
    assert read(tmp_path / "x", "ignore")[0] == [["ab", "c"]]


# JSON that Python cannot hold.
DEEP = '{"text": ' + "[" * 100_000 + "]" * 100_000 + "}"
DIGITS = '{"text": ' + "9" * 5_000 + "}"


@pytest.mark.parametrize(
    ("line", "actual"),
    [
        ("{oops", r'"{oops"'),
        ('{"txt": "a"}', r'"{\"txt\": \"a\"}"'),
        ("[1]", '"[1]"'),
        ('{"text": 3}', r'"{\"text\": 3}"'),
        (DEEP, r'"{\"text\": ' + "[" * 28 + "..."),
        (DIGITS, r'"{\"text\": ' + "9" * 28 + "..."),
    ],
    ids=range(6),
)
def test_json_of_another_form_is_named(tmp_path, monkeypatch, line, actual):
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "a"}\n' * 30 + f"{line}\n")
    monkeypatch.setattr(documents, "RANGE_BYTES", 100)
    assert refusal(read, path) == (
        f'{path}: line 31: expected JSON such as {{"text": "..."}}, got {actual}'
    )


def test_a_line_that_is_too_long_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "MAX_LINE_BYTES", 1000)
    path = tmp_path / "x"
    path.write_bytes(b"one\n" + b"x" * 1200 + b"\n")
    assert refusal(read, path) == (
        f"{path}: line 2 is longer than 1,000 bytes; expected one sentence or "
        f"paragraph a line"
    )


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (["*.txt"], "--input_file={0}/*.txt: no such file; expected files or patterns "
         "such as corpus/*.txt"),
        ([""], "--input_file={0}/: no such file; expected files or patterns such as "
         "corpus/*.txt"),
        (["a", "*"], "--input_file: {0}/a and {0}/a are one file"),
        (["a", "./a"], "--input_file: {0}/./a and {0}/a are one file"),
    ],
)  # fmt: skip
def test_patterns_that_name_nothing_or_a_file_twice(tmp_path, patterns, message):
    (tmp_path / "a").write_text("a")
    assert refusal(
        documents.find_files, [f"{tmp_path}/{pattern}" for pattern in patterns]
    ) == message.format(tmp_path)
