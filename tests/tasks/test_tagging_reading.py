"""Files of sentences with labels: columns and JSON lines, and what is refused."""

import gzip
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
    assert reading.read_file(path)[0] == (("a", "New York"), ("O", "B-LOC"), ("1", "1"))
    assert reading.read_file(path, "pos")[1] == (("b",), ("x",), ("3",))
    assert reading.read_file(path, "other")[1].labels is None


TOKENS, ENTITIES = ("Anna", "#", "Oslo"), ("B-PER", "O", "B-LOC")
COLUMNS = "Anna\tNNP\tB-PER\n#\t#\tO\nOslo\tNNP\tB-LOC\n"
INDEXED = "# text = Anna # Oslo\n1 Anna B-PER\n1-2 x _\n2 # O\n2.1 y _\n3 Oslo B-LOC\n"
SENTENCE = '{"tokens": ["Anna", "#", "Oslo"], "tags": ["B-PER", "O", "B-LOC"]}'
OTHERS = [
    (COLUMNS, "a.txt", {}),
    (COLUMNS.replace("\n", "\r"), "a.txt", {}),
    (COLUMNS.replace("\t", " "), "a.conll", {}),
    (f"# a comment\n#begin x\n{COLUMNS}\n#end", "a.txt", {}),
    (INDEXED, "a.txt", {"token_column": "2"}),
    (INDEXED.replace(" ", "\t"), "a.conllu", {"token_column": "2"}),
    (SENTENCE, "a.jsonl", {}),
    (f"[{SENTENCE}]", "a.json", {}),
    (f'{{"version": 1,\n "data": [{SENTENCE}]}}', "a.json", {}),
    (SENTENCE.replace("tokens", "words"), "a.json", {"token_column": "words"}),
    (SENTENCE, "a.jsonl.gz", {}),
]


@pytest.mark.parametrize(("text", "name", "columns"), OTHERS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
def test_files_as_others_write_them(text, name, columns, encoding, written):
    data = text.encode(encoding)
    path = written(gzip.compress(data) if name.endswith(".gz") else data, name)
    named = {"encoding": encoding} if encoding == "cp1252" else {}
    [sentence] = reading.read_file(path, **columns, **named)
    assert sentence[:2] == (TOKENS, ENTITIES)


def test_numbers_that_are_words(written):
    for name, text in (("a.txt", "1,000\nx"), ("a.csv", "1,000\tO\nx\tO")):
        assert reading.read_file(written(text, name))[0].words == ("1,000", "x")
    for text in ("7 CD\n8 CD\n\n1 CD\n3 CD", "1-2 CD\n3.4 CD"):
        [first, *_] = reading.read_file(written(text))
        assert first.labels == ("CD", "CD")
    [sentence] = reading.read_file(written("1 CD\n2 CD"), token_column="1")
    assert sentence.words == ("1", "2")


def test_conll_u_needs_the_column_of_labels(written):
    path = written("1\tAnna\t_\tPROPN" + "\t_" * 6)
    with pytest.raises(InputError, match="CoNLL-U: also --label_column=4"):
        reading.read_file(path, token_column="2")
    [sentence] = reading.read_file(path, "4", token_column="2")
    assert sentence[:2] == (("Anna",), ("PROPN",))


NOTATIONS = ["B-PER I-PER B-PER O B-LOC", "B_PER I_PER B_PER O B_LOC"]
NOTATIONS += ["PER-B PER-I PER-B O LOC-B", "B-PER E-PER S-PER O S-LOC"]
NOTATIONS += ["B-PER L-PER U-PER O U-LOC", "B_PER E_PER S_PER O S_LOC"]


@pytest.mark.parametrize("labels", [*NOTATIONS, "I-PER I-PER B-PER O I-LOC"])
def test_notations_of_entities_become_iob2(labels, written):
    words = "\n".join(f"w {label}" for label in labels.split())
    lines, scheme = [], "iob1" if labels[0] == "I" else "iob2"
    [sentence] = reading.read_file(written(words), None, scheme, log=lines.append)
    assert " ".join(sentence.labels) == "B-PER I-PER B-PER O B-LOC"
    assert len(lines) == (labels in NOTATIONS[1:])


def test_types_alone_mark_entities_beside_o(written):
    path, lines = written("a PER\nb PER\nc LOC\nd O\ne PER"), []
    [sentence] = reading.read_file(path, log=lines.append)
    assert sentence.labels == ("B-PER", "I-PER", "B-LOC", "O", "B-PER")
    assert lines == [
        f"{path}: labels 'LOC', 'PER' mark entities and are converted to IOB2; "
        f"--tag_scheme=words does not convert them"
    ]
    [sentence] = reading.read_file(path, tag_scheme="words")
    assert sentence.labels == ("PER", "PER", "LOC", "O", "PER")


@pytest.mark.parametrize("text", ["a N\nb O\nc V", "a NN-S\nb VB-B", "a B_x\nb NN"])
def test_parts_of_speech_stand_for_themselves(text, written):
    [sentence] = reading.read_file(written(text))
    assert list(sentence.labels) == text.split()[1::2]


TEXT = {"text": "(Anna-Lena's) in New York."}
WORDS = ("(", "Anna-Lena", "'s", ")", "in", "New", "York", ".")


@pytest.mark.parametrize(
    "row",
    [
        {**TEXT, "label": [[1, 10, "PER"], [17, 25, "LOC"]]},
        {**TEXT, "entities": [{"start_offset": 17, "end_offset": 25, "label": "LOC"},
                              {"start_offset": 1, "end_offset": 10, "label": "PER"}]},
        {**TEXT, "spans": [{"type": "PER", "begin": 1, "end": 10, "text": "Anna-Lena"},
                           {"type": "LOC", "begin": 17, "end": 25}]},
        {**TEXT, "label": [{"start": 1, "end": 10, "labels": ["PER"]},
                           {"start": 17, "end": 25, "labels": ["LOC"]}]},
        [TEXT["text"], {"entities": [[1, 10, "PER"], [17, 25, "LOC"]]}],
    ],
)  # fmt: skip
def test_spans_of_characters_become_labels_of_words(row, written):
    [sentence, other] = reading.read_file(
        written(json.dumps([row, {"text": "A b", "label": []}]), "a.json")
    )
    labels = ("O", "B-PER", "O", "O", "O", "B-LOC", "I-LOC", "O")
    assert sentence[:2] == (WORDS, labels)
    assert other[:2] == (("A", "b"), ("O", "O"))
    [sentence] = reading.read_file(written(json.dumps(TEXT), "a.jsonl"))
    assert sentence[:2] == (WORDS, None)


def spans(*values):
    return json.dumps({"text": "Anna b", "label": values})


REFUSED = [
    ("\n\n", "a.txt", ": no sentence; expected one or more"),
    ("0 a O\n1 b O\n\n# 3\n0 c O\n0-1 d O\n1 e O\n\n2 f O", "a.txt",
     ": column 1 numbers the tokens; use --token_column=2 (CoNLL-U: also "
     "--label_column=4); or --token_column=1, if the numbers are words"),
    ("a x O\n\nb O", "a.txt",
     ':3: "b O": expected 3 columns, as before, with the token in column 1'),
    ("\tO", "a.txt", ':1: "\\tO": expected 2 columns'),
    ("a O\nb I-", "a.txt", ":2: label 'I-': needs the type of an entity, as in 'I-"),
    ("a O\nb I-PER", "a.txt",
     ":2: label 'I-PER' after 'O'; expected 'B-PER' (IOB2), or --tag_scheme=iob1"),
    ("a O\n\nb I-PER", "a.txt", ":3: label 'I-PER' at the beginning; expected 'B-PER'"),
    ("a B-PER\nb X-PER", "a.txt",
     ":2: label 'X-PER' and label 'B-PER': use only O, B-... and I-... (IOB2), "
     "or no labels with B- and I-"),
    ("\nAnna,B-PER\nleft,O\n", "a.csv",
     ':2: "Anna,B-PER": commas between columns; use spaces or tabs, or JSON'),
    ('"a"', "a.json", ':1: "a"; expected an object with tokens'),
    ("{}", "a.json", ":1: tokens is null; expected a list of words without tabs and l"),
    ('{"tokens": ["a", ""]}', "a.json", ':1: tokens is ["a", ""]; expected a list of'),
    ('{"tokens": ["a", "b"], "tags": ["O"]}', "a.json",
     ':1: tags is ["O"]; expected a list of 2 texts, one for each token'),
    ('{"tokens": ["a"], "tags": [0]}', "a.json", ":1: tags is [0]; expected a list of"),
    (spans([0, 9, "X"]), "a.json", ':1: span [0, 9, "X"]; expected the index of its '),
    (spans([0, 4]), "a.json", ":1: span [0, 4]; expected the index of its first"),
    (spans({"start": 0, "end": 4, "label": "X", "text": "nna"}), "a.json",
     ":1: span {"),
    (spans([0, 4, "X"], [2, 6, "Y"]), "a.json",
     ":1: spans (0, 4, 'X') and (2, 6, 'Y') overlap"),
    (spans([4, 5, "X"]), "a.json", ":1: no word in the text, or in one of its spans"),
    ('{"text": "b", "label": {"a": 1}}', "a.json", ':1: {"a": 1}; expected spans'),
]  # fmt: skip


@pytest.mark.parametrize(("text", "name", "message"), REFUSED)
def test_what_is_refused(text, name, message, written):
    path = written(text, name)
    with pytest.raises(InputError) as refused:
        reading.read_file(path)
    assert str(refused.value).startswith(f"{path}{message}")


def test_labels_may_stand_before_their_tokens(written, refuses):
    path = written("B-ACTOR\tSteve\nI-ACTOR\tCoogan\nO\tsings\n")
    with refuses(
        f"{path}: column 1 has the labels of entities; use --token_column=2 "
        f"--label_column=1; or --token_column=1, if they are the words"
    ):
        reading.read_file(path)
    [sentence] = reading.read_file(path, "1", token_column="2")
    assert sentence[:2] == (("Steve", "Coogan", "sings"), ("B-ACTOR", "I-ACTOR", "O"))
    [sentence] = reading.read_file(written("O UH\n"), token_column="1")
    assert sentence[:2] == (("O",), ("UH",))


def test_words_are_cut_at_a_span_and_logged(written):
    texts = ["\U0001f44d Anna left", "Anna left", "Annas 北京大学"]
    spans = [[[3, 7, "PER"]], [[0, 4, "PER"]]]  # the first in UTF-16 units
    spans += [[[0, 4, "PER"], [6, 8, "LOC"]]]
    lines = [{"text": t, "label": s} for t, s in zip(texts, spans, strict=True)]
    path, log = written("\n".join(map(json.dumps, lines)), "a.jsonl"), []
    assert reading.read_file(path, log=log.append)[1:] == [
        (("Anna", "left"), ("B-PER", "O"), ("2",) * 2),
        (
            ("Anna", "s", *"北京大学"),
            ("B-PER", "O", "B-LOC", "I-LOC", "O", "O"),
            ("3",) * 6,
        ),
    ]
    assert log == [
        f"Warning: {path}: 2 of 3 texts have spans that begin or end within a word, "
        f"first {path}:1; expected positions in characters"
    ]


def test_a_column_that_is_not_there(written, refuses):
    path = written("a x O")
    for column in ("1", "4", "0", "ner", "-1"):
        with refuses(
            f"--label_column={column}: {path} has 3 columns; expected the number of a "
            f"column other than 1, the token's"
        ):
            reading.read_file(path, column)
    with pytest.raises(InputError, match=r"^--token_column=4: .* has 3 columns"):
        reading.read_file(path, token_column="4")
