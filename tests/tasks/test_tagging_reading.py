"""Files of sentences with labels: columns and JSON lines, and what is refused."""

import json

import pytest

from albert_tf.errors import InputError
from albert_tf.tasks.tagging import reading


@pytest.fixture
def written(tmp_path):
    def write(text, name="some.txt"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_own_sentences_have_the_columns_of_conll(data):
    sentences = reading.read_file(data / "tagging/train.txt")
    assert len(sentences) == 40
    assert sentences[0] == (
        ("Anna", "Berg", "visited", "Oslo", "in", "May", "."),
        ("B-PER", "I-PER", "O", "B-LOC", "O", "O", "O"),
        (3, 4, 5, 6, 7, 8, 9),
    )
    types = ("LOC", "MISC", "ORG", "PER")
    labels = ("O", *(p + name for name in types for p in ("B-", "I-")))
    assert reading.all_labels(sentences) == labels
    tags = reading.read_file(data / "tagging/train.txt", "2")
    assert tags[4].labels == ("NN", "VBD", "DT", "NN", ".")
    assert not reading.has_entities(tags[4].labels)
    assert reading.all_labels(tags[4:5]) == (".", "DT", "NN", "VBD")


def test_columns_stand_between_spaces_or_tabs(written):
    lines = "\ufeff-DOCSTART- O\r\n\r\n  \r\na  x O\r\nNew York\tx\tB-LOC\n \nb z O"
    assert reading.read_file(written(lines)) == [
        (("a", "New York"), ("O", "B-LOC"), (4, 5)),
        (("b",), ("O",), (7,)),
    ]
    assert reading.read_file(written("a\nb\n\nc\n"), "4") == [
        (("a", "b"), None, (1, 2)),
        (("c",), None, (4,)),
    ]


def test_json_lines(written):
    rows = [
        {"tokens": ["a", "New York"], "tags": ["O", "B-LOC"], "pos": ["x", "y"]},
        {"tokens": ["b"], "tags": ["O"], "pos": ["x"]},
    ]
    path = written("\n\n".join(map(json.dumps, rows)), "some.jsonl")
    assert reading.read_file(path)[0] == (("a", "New York"), ("O", "B-LOC"), (1, 1))
    assert reading.read_file(path, "pos")[1] == (("b",), ("x",), (3,))
    assert reading.read_file(path, "other")[1].labels is None


def test_entities_of_iob1_become_those_of_iob2(written):
    rows = ["a I-LOC", "b I-LOC", "c B-LOC", "d I-PER", "e O", "f I-PER"]
    path = written("\n".join(rows))
    [sentence] = reading.read_file(path, tag_scheme="iob1")
    assert sentence.labels == ("B-LOC", "I-LOC", "B-LOC", "B-PER", "O", "B-PER")
    # What begins with B- already stays.
    path = written("a B-LOC\nb I-LOC\nc O")
    [sentence] = reading.read_file(path, tag_scheme="iob1")
    assert sentence.labels == ("B-LOC", "I-LOC", "O")


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("\n\n", None, ": no sentence; expected one or more"),
        (b"a O\n\xff O", None, ":2: not UTF-8 at byte 0 of the line"),
        (
            "a x O\n\nb O",
            None,
            ':3: "b O": expected 3 columns, as before, of which the first is the token',
        ),
        (
            "\tO",
            None,
            ':1: "\\tO": expected 2 columns, as before, of which the first is the '
            "token",
        ),
        (
            "a O\nb I-",
            None,
            ":2: label 'I-': expected the type of an entity after it, as in 'I-PER'",
        ),
        (
            "a O\nb I-PER",
            None,
            ":2: label 'I-PER' after 'O'; expected 'B-PER' (IOB2), or "
            "--tag_scheme=iob1",
        ),
        (
            "a B-LOC\nb I-PER",
            None,
            ":2: label 'I-PER' after 'B-LOC'; expected 'B-PER' (IOB2), or "
            "--tag_scheme=iob1",
        ),
        (
            "a O\n\nb I-PER",
            None,
            ":3: label 'I-PER' at the beginning; expected 'B-PER' (IOB2), or "
            "--tag_scheme=iob1",
        ),
        (
            "a B-PER\nb E-PER",
            None,
            ":2: label 'E-PER' beside 'B-PER'; expected O, B-... and I-... alone "
            "(IOB2), or labels without B- and I-",
        ),
    ],
)
def test_columns_that_are_refused(text, column, message, written):
    path = written(text)
    with pytest.raises(InputError) as refused:
        reading.read_file(path, column)
    assert str(refused.value) == f"{path}{message}"


@pytest.mark.parametrize("column", ["1", "4", "0", "ner", "-1"])
def test_a_column_that_is_not_there(column, written):
    path = written("a x O")
    with pytest.raises(InputError) as refused:
        reading.read_file(path, column)
    assert str(refused.value) == (
        f"--label_column={column}: {path} has 3 columns; expected 2 to 3, the number "
        f"of a column after the token's"
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (["a"], '["a"]; expected an object with tokens'),
        ({}, "tokens is null; expected a list of words without tabs and line ends"),
        (
            {"tokens": ["a", ""]},
            'tokens is ["a", ""]; expected a list of words without tabs and line ends',
        ),
        (
            {"tokens": ["a\nb"]},
            r'tokens is ["a\nb"]; expected a list of words without tabs and line ends',
        ),
        (
            {"tokens": ["a", "b"], "tags": ["O"]},
            'tags is ["O"]; expected a list of 2 texts, one for each token',
        ),
        (
            {"tokens": ["a"], "tags": [0]},
            "tags is [0]; expected a list of 1 texts, one for each token",
        ),
    ],
)
def test_json_that_is_refused(row, message, written):
    path = written("\n" + json.dumps(row), "some.json")
    with pytest.raises(InputError) as refused:
        reading.read_file(path)
    assert str(refused.value) == f"{path}:2: {message}"


def test_labels_that_a_model_lacks(written):
    sentences = reading.read_file(written("a O\nb B-PER"))
    with pytest.raises(InputError) as refused:
        reading.check_labels("some.txt", sentences, ("O", "B-LOC"))
    assert str(refused.value) == (
        "some.txt:2: label 'B-PER'; expected one of O, B-LOC (those of --train_file, "
        "of --labels or of the model's folder)"
    )
