import gzip
import re

import pytest

from albert_tf.data.files import OTHER_ENCODING as OTHER
from albert_tf.data.tables import Column, Dialect, RowError, read
from albert_tf.errors import InputError

TEXT, LABEL = Column("text"), Column("label")
WRONG = "bytes of another encoding in "
EXPECTED = "; expected 2 ('text', 'label')"
LONG = "x" * 200_001


@pytest.fixture
def write(tmp_path):
    def to_file(name, contents):
        data = contents if isinstance(contents, bytes) else contents.encode()
        (tmp_path / name).write_bytes(data)
        return tmp_path / name

    return to_file


def rows(path, columns=(TEXT, LABEL), **options):
    return read(path, columns, tuple, **options).rows


def refuses(path, message, columns=(TEXT, LABEL), make=tuple, **options):
    expected = message.format(path)
    with pytest.raises(InputError, match=f"^{re.escape(expected)}$"):
        read(path, columns, make, **options)


ODD = "a\u2028b\x85c\x0bd\re"


@pytest.mark.parametrize(
    ("name", "contents", "expected"),
    [
        # The names select the columns; quotation marks of a TSV are text.
        ("a.tsv", "label\tother\ttext\n1\tx\tred\n0\ty\tblue\n",
         [("red", "1"), ("blue", "0")]),
        ("a.tsv", 'text\tlabel\n"open\t1\n"shut" it\t0\n',
         [('"open', "1"), ('"shut" it', "0")]),
        # Only line feeds end a line.
        ("a.tsv", f"text\tlabel\r\n{ODD}\t1\r\n", [(ODD, "1")]),
        # Longer than csv allows by default.
        ("a.tsv", f"text\tlabel\n{LONG}\t1\n", [(LONG, "1")]),
        ("a.csv", f"text,label\n{LONG},1\n", [(LONG, "1")]),
        ("a.CSV", 'text,label\r\n"a, ""b""\nc",1\r\nd,0\r\n',
         [('a, "b"\nc', "1"), ("d", "0")]),
        ("a.csv", 'text,label\r\n"a\rb\r\nc",1\r\nd,0\r',
         [("a\rb\r\nc", "1"), ("d", "0")]),
        # Numbers are texts, and lists tuples.
        ("a.jsonl", '{"label": 1.5, "text": "a\\tb"}\n'
         '{"text": "c", "label": ["x", 2]}\n{"label": true, "text": "d"}\n',
         [("a\tb", "1.5"), ("c", ("x", "2")), ("d", "true")]),
    ],
    ids=range(8),
)  # fmt: skip
def test_rows_of_a_table(write, name, contents, expected):
    assert rows(write(name, contents)) == expected


def test_a_file_without_header_is_read_with_declared_columns(write):
    path = write("a.tsv", "gj04\t1\t\tred\n")
    header = ("source", "label", "mark", "text")
    assert rows(path, header=header) == [("red", "1")]


@pytest.mark.parametrize(
    ("name", "contents"),
    [("a.tsv", "question\nred\n"), ("a.jsonl", '{"question": "red"}\n')],
)
def test_a_column_may_have_another_name_or_be_absent(write, name, contents):
    columns = (Column("text", "question"), Column("index", required=False))
    assert rows(write(name, contents), columns) == [("red", None)]


@pytest.mark.parametrize(
    ("name", "contents"),
    [
        ("a.tsv", "\ntext\tlabel\r\n\r\nred\t1\n\nblue\t0\n\n\r\n"),
        ("a.csv", '\r\ntext,label\n\nred,1\n\n"blue",0\n\n\n'),
        ("a.jsonl", '\n \n{"text": "red", "label": 1}\n\n\r\n'
         '{"text": "blue", "label": 0}\n\n'),
    ],
)  # fmt: skip
def test_blank_lines_are_skipped_and_counted_wherever_they_stand(write, name, contents):
    path = write(name, contents)
    table = read(path, (TEXT, LABEL), tuple)
    assert table[:2] == ([("red", "1"), ("blue", "0")], [])
    blank = 5 if name == "a.jsonl" else 4  # those before a header are not counted
    assert table.notes(path) == [f"{path}: {blank} blank lines skipped"]
    assert table._replace(blank=1).notes("x") == ["x: 1 blank line skipped"]
    assert table._replace(blank=0).notes("x") == []


def test_a_row_after_a_blank_line_keeps_the_number_of_its_line(write):
    cells = "1 cells; expected 2 ('text', 'label')"
    refuses(write("a.tsv", "text\tlabel\n\na\n"), "{}:3: " + cells)
    refuses(write("a.csv", 'text,label\n\n"a\nb",1\n\nc\n'), "{}:6: " + cells)
    refuses(write("a.tsv", "\n\nte\tlabel\n"), "{}: no column 'text'; its columns are "
            "'te', 'label'")  # fmt: skip


def test_an_empty_text_in_a_table_of_one_column(write):
    column = (TEXT._replace(may_be_empty=True),)
    path = write("b.tsv", "text\tlabel\n\t1\n")
    assert rows(path, (*column, LABEL)) == [("", "1")]
    table = read(write("a.tsv", "text\na\n\nb\n\n\n"), column, list)
    assert table == ([["a"], [""], ["b"], [""], [""]], [], 0)
    table = read(write("a.csv", 'text\na\n\n""\nb\n""\n\n'), column, list)
    assert table == ([["a"], [""], ["b"], [""]], [], 2)
    table = read(write("b.tsv", "\n\na\n"), column, list, header=("text",))
    assert table.rows == [[""], [""], ["a"]]


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
def test_a_lone_carriage_return_is_a_character_of_the_text(write, name):
    path = write(name, "text\none\rtwo\nthree\r\n\rfour\r\n")
    assert rows(path, (TEXT,)) == [("one\rtwo",), ("three",), ("\rfour",)]


RED = [("red; ö", "1"), ("blue", "0")]


@pytest.mark.parametrize(
    ("name", "contents", "dialect"),
    [
        ("a.tsv", "text\tlabel\rred; ö\t1\rblue\t0\r", {}),
        ("a.csv", "text,label\rred; ö,1\rblue,0\r\n", {}),
        ("a.jsonl", '{"text": "red; ö", "label": 1}\r{"text": "blue", "label": 0}', {}),
        ("a.csv", 'text;label\n"red; ö";1\nblue;0\n', {}),
        ("a.csv", 'n;text;label\n;"red; ö";1\n;blue;0\n', {}),
        ("a.csv", 'sep=;\r\ntext;label\r\n"red; ö";1\r\nblue;0\r\n', {}),
        ("a.csv", "sep=|\ntext|label\nred; ö|1\nblue|0\n", {}),
        ("a.csv", "text\tlabel\nred; ö\t1\nblue\t0\n", {}),
        ("a.txt", 'text,label\n"red; ö",1\nblue,0\n', {}),
        ("a.csv", 'a, text, label\n3, "red; ö", 1\n3, blue, 0\n', {}),
        ("a.csv", "a#text#label\n3#red; ö#1\n3#blue#0\n", {"delimiter": "#"}),
        ("a.tsv", '"text"\tlabel\n"red; ö"\t1\n"blue"\t0\n', {"quoted": True}),
        ("a.tsv", " Text\tLABEL \nred; ö\t1\nblue\t0\n", {}),
        ("a.json", '[{"text": "red; ö", "label": 1},{"text": "blue", "label": 0}]', {}),
        ("a.json", '[\n {"text": "red; ö",\n "label": 1},\n'
         ' {"text": "blue", "label": 0}\n]\n', {}),
        ("a.json", '{"text": {"5": "red; ö", "7": "blue"}, "label": {"5": 1, "7": 0}}',
         {}),
        ("a.json", '{"v": 2,\n "data": [{"text": "red; ö", "label": 1},\n'
         '{"text": "blue", "label": 0}]}', {}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252", "gz"])
def test_tables_as_others_write_them(write, name, contents, dialect, encoding):
    data = contents.encode("utf-8" if encoding == "gz" else encoding)
    data = gzip.compress(data) if encoding == "gz" else data
    named = {"encoding": "cp1252"} if encoding == "cp1252" else {}
    actual = rows(write(name, data), dialect=Dialect(**dialect, **named))
    assert actual == RED


def test_a_gzip_file_that_ends_early_is_refused(write):
    path = write("a.tsv", gzip.compress(b"text\tlabel\na\t1\n")[:-9])
    with pytest.raises(InputError, match="expected a whole gzip file"):
        rows(path)


def test_quotes_that_stay_around_cells_of_a_tsv_are_logged(write):
    path = write("a.tsv", 'text\tlabel\n"a ""red"" b"\t1\n"blue"\t0\n')
    lines = []
    assert rows(path, log=lines.append)[1] == ('"blue"', "0")
    assert lines == [
        f"{path}: quotes around cells are read as characters; --quoted removes them"
    ]
    rows(path, log=lines.append, dialect=Dialect(quoted=True))
    rows(write("a.tsv", 'text\tlabel\n"a" or "b"\t1\nc ""d""\t0\n'), log=lines.append)
    assert len(lines) == 1


def test_a_delimiter_that_the_header_decides_is_logged(write):
    lines, path = [], write("a.csv", "text;label\na;1\n")
    rows(path, log=lines.append)
    assert lines == [f"{path}: the delimiter is ';', as in the first line"]


def test_an_encoding_that_is_none(write):
    path = write("a.csv", b"text,label\n\xff,1\n")
    for name in ("klingon", "hex"):
        with pytest.raises(InputError, match=f"^--encoding={name}: no such encoding"):
            rows(path, dialect=Dialect(encoding=name))
    with pytest.raises(InputError, match=f":2: {WRONG}"):
        rows(path, dialect=Dialect(encoding="ascii"))


@pytest.mark.parametrize(
    ("name", "contents", "problem"),
    [
        ("a.tsv", "text\tlabel\na\t1\nb\n", "3: 1 cells" + EXPECTED),
        ("a.tsv", "text\tlabel\n \t1\n", "2: nothing in column 'text'"),
        ("a.tsv", b"text\tlabel\na\xff\t1\n", "2: " + WRONG + "'a\\udcff'" + OTHER),
        ("a.csv", 'text,label\n"a\nb",1\nc\n', "4: 1 cells" + EXPECTED),
        ("a.csv", b"text,label\na\xff,1\n", "2: " + WRONG + "'a\\udcff'" + OTHER),
        (
            "a.csv",
            'text,label\n"a"b,1\n',
            "2: broken quoting: ',' expected after '\"'",
        ),
        ("a.jsonl", "{\n", "2: not JSON: Expecting property name enclosed in double "
         "quotes (column 1)"),
        ("a.jsonl", "null\n", "1: not a JSON object but null"),
        ("a.jsonl", "[" * 9999, "1: not JSON that can be read: nested too deeply"),
        ("a.jsonl", "1" * 5000, "1: not JSON that can be read: Exceeds the limit (4300 "
         "digits) for integer string conversion: value has 5000 digits; use "
         "sys.set_int_max_str_digits() to increase the limit"),
        ("a.jsonl", "[1, 2]\n", "row 1: not a JSON object but 1"),
        ("a.jsonl", '{"text": "a"}\n', "1: no key 'label'; its keys are 'text'"),
        ("a.jsonl", '{"text": "a", "label": null}',
         "1: null under 'label'; expected text or a number"),
        ("a.jsonl", '{"text": NaN, "label": 1}',
         "1: NaN under 'text'; expected text or a number"),
    ],
)  # fmt: skip
def test_a_broken_row_is_named(write, name, contents, problem):
    path = write(name, contents)
    refuses(path, "{}:" + problem)


def test_a_row_that_cannot_be_made_use_of_is_named(write):
    def make(values):
        raise RowError(f"label {values[1]!r}")

    refuses(write("a.tsv", "text\tlabel\na\t7\n"), "{}:2: label '7'", make=make)


def test_broken_rows_are_skipped_and_noted_when_asked(write):
    path = write("a.csv", 'text,label\na,1\nb\n"x"y,1\nc,0\n')
    table = read(path, (TEXT, LABEL), tuple, skip_bad_rows=True)
    assert table.rows == [("a", "1"), ("c", "0")]
    assert table.skipped == [
        f"{path}:3: 1 cells; expected 2 ('text', 'label')",
        f"{path}:4: broken quoting: ',' expected after '\"'",
    ]
    assert table.notes(path) == [
        f"{path}: 2 of 4 rows are broken and skipped:",
        *(f"  {reason}" for reason in table.skipped),
    ]


@pytest.mark.parametrize(
    ("options", "name", "contents", "message"),
    [
        ({"skip_bad_rows": True}, "a.csv", 'text,label\na,1\n"b,1\nc,0\n',
         "{}: the quote opened in line 3 never ends"),
        ({"skip_bad_rows": True}, "a.tsv", "text\tlabel\na\nb\n",
         "{0}: no row to read; the first of 2: {0}:2: 1 cells" + EXPECTED),
        ({"header": ("text", "label")}, "a.jsonl", '{"text": "a", "label": 1}',
         "{}: names its own columns, but these names are given: 'text', 'label'"),
        ({}, "a.csv", '"a\nb",' + "c" * 300 + "\n1,2\n",
         "{}: no column 'text'; its columns are 'a\\nb', '" + "c" * 191 + "..."),
        ({}, "a.xls", "",
         "{}: unknown kind of table; expected a name that ends in .tsv, .txt, .csv, "
         ".jsonl, .json"),
        ({}, "a.tsv", "", "{}: no row to read"),
        ({}, "a.tsv", "text\tlabel\n", "{}: no row to read"),
        ({}, "a.tsv", "text\tclass\na\t1\n",
         "{}: no column 'label'; its columns are 'text', 'class'"),
        ({}, "a.tsv", "text\tlabel\ttext\na\t1\tb\n",
         "{}: has the column 'text' 2 times"),
        ({}, "a.tsv", b"te\xff\n", "{}:1: " + WRONG + "'te\\udcff'" + OTHER),
        ({}, "a.tsv", 'text\tlabel\r"a\nb"\t1\rc\t0\r',
         "{}: a lone \\r in the first line; expected \\n or \\r\\n at line ends"),
        ({}, "a.tsv", "TEXT\tText\tlabel\na\tb\t1\n",
         "{}: no column 'text'; its columns are 'TEXT', 'Text', 'label'"),
        ({}, "a.csv", "text;label,n\na;1,2\n",
         "{}: no column 'text'; its columns are 'text;label', 'n'"),
        ({}, "a.json", '[{"text": "a", "label": 1},\n{"text": "b"',
         "{}:2: not JSON: Expecting ',' delimiter (column 13)"),
        ({}, "a.tsv", "text\tlabel\na\t1\n".encode("utf-16-le"),
         "{}: UTF-16 without a byte order mark; expected UTF-8, or "
         "--encoding=utf-16-le"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_used_are_named(write, options, name, contents, message):
    refuses(write(name, contents), message, **options)


def test_a_file_that_is_not_there_is_named(tmp_path):
    missing = "{}: No such file or directory; expected a readable file"
    refuses(tmp_path / "a.tsv", missing)
