import gzip
import json

import pytest

from albert_tf.errors import InputError
from albert_tf.tasks.squad import reading


@pytest.fixture
def write(tmp_path):
    """Writes a file and returns its path."""

    def write(contents):
        path = tmp_path / "squad.json"
        text = contents if isinstance(contents, str) else json.dumps(contents)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def question(id="q1", text="Who?", answers=(("the fox", 4),), **more):
    found = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": id, "question": text, "answers": found, **more}


def squad(*questions, context="and the fox saw the fox", **more):
    paragraph = {"context": context, "qas": list(questions)}
    return {"data": [{"paragraphs": [paragraph]}], **more}


def test_reads_articles_paragraphs_questions_and_answers(write):
    contents = squad(question(), question("q2", answers=[("a", 0), ("f", 8)]))
    contents["data"].append(
        {
            "title": "passed over",
            "paragraphs": [
                {"context": "", "qas": []},
                {"context": "Ž\n", "qas": [{"id": 7, "question": "Is it?"}]},
            ],
        }
    )
    dataset = reading.read(write(contents))
    first, last = dataset.paragraphs
    assert first.context == "and the fox saw the fox"
    assert first.questions[0] == reading.Question(
        "q1", "Who?", (reading.Answer("the fox", 4),), False
    )
    assert last.context == "Ž\n"
    assert [q.id for q in dataset.questions] == ["q1", "q2", "7"]
    assert [len(q.answers) for q in dataset.questions] == [1, 2, 0]


@pytest.mark.parametrize(
    ("contents", "version"),
    [
        (squad(question(), version="1.1"), "1.1"),
        (squad(question()), "1.1"),
        (squad(question(), version="v2.0"), "2.0"),
        (squad(question(), version=2), "2.0"),
        (squad(question(), version="V2.0"), "2.0"),
        (squad(question(), version="squad_v2"), "2.0"),
        (squad(question(), version="2021-02-02"), "1.1"),
        (squad(question(), question("b", answers=())), "2.0"),
        (squad(question("a", answers=())), "1.1"),
        (squad(question(), question("b", answers=()), version="1.1"), "1.1"),
        (squad(question("a"), question("b", answers=(), is_impossible=True)), "2.0"),
    ],
)
def test_the_data_say_the_version(write, contents, version):
    assert reading.read(write(contents)).version == version


def test_a_given_version_counts(write):
    path = write(squad(question(), version="1.1"))
    assert reading.read(path, "2.0").version == "2.0"


def drop(contents, *path):
    value = contents
    for key in path[:-1]:
        value = value[key]
    del value[path[-1]]
    return contents


QUESTION = ("data", 0, "paragraphs", 0, "qas", 0)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ("{\n\n'", ":3: not JSON: Expecting property name"),
        ('{"data":' * 50_000, ":1: not JSON that can be read: nested too deeply"),
        (f'{{"data": {"1" * 5000}}}', ":1: not JSON that can be read: a number of m"),
        ("[]", ": no questions; expected some"),
        ("3", ": a number where an object is expected"),
        ("{}\n{}", ":1: the key 'paragraphs' is missing"),
        ('{"data": [\n]}\n!', ":3: not JSON: Extra data"),
        ('{"question": "?", "id": 1}\n[', ":2: not JSON: Expecting value"),
        ('{"question": "?", "id": 1}', ":1: the key 'context' is missing"),
        ('[{"context": "", "id": 1}]', ": question '1': the key 'question' is missing"),
        (
            squad({"id": "q", "question": "?", "answers": "fox"}),
            ": question 'q': answers is \"fox\"; expected dicts of text and answer_sta",
        ),
        (
            squad({**question(), "answers": {"text": ["a", "b"], "answer_start": [1]}}),
            ": question 'q1': 'answer_start' is None; expected a number",
        ),
        ({"version": "1.1"}, ":1: the key 'paragraphs' is missing"),
        ({"data": {}}, ": no questions; expected some"),
        ({"data": [[]]}, ":row 1: a list where an object is expected"),
        (drop(squad(question()), *QUESTION[:3]), ":row 1: the key 'paragraphs' is"),
        (
            drop(squad(question()), *QUESTION[:4], "context"),
            ":row 1.paragraphs[0]: the key 'context' is missing",
        ),
        (squad(context=3), ":row 1.paragraphs[0]: 'context' is a number; expected a"),
        (
            drop(squad(question()), *QUESTION, "id"),
            ":row 1.paragraphs[0].qas[0]: the key 'id' is missing",
        ),
        (
            drop(squad(question("x9")), *QUESTION, "question"),
            ": question 'x9': the key 'question' is missing",
        ),
        (
            drop(squad(question()), *QUESTION, "answers", 0, "answer_start"),
            ": question 'q1': the key 'answer_start' is missing",
        ),
        (
            squad(question(answers=[("fox", "8")])),
            ": question 'q1': 'answer_start' is a text; expected a number",
        ),
        (
            squad(question(is_impossible="no")),
            ": question 'q1': 'is_impossible' is a text; expected a truth value",
        ),
        (
            squad(question(), question("q2"), question()),
            ": question id 'q1' occurs 2 times; each question needs its own id",
        ),
        (squad(), ": no questions; expected some under data.paragraphs"),
    ],
)
def test_bad_files_are_refused_by_place(write, contents, message):
    path = write(contents)
    with pytest.raises(InputError) as error:
        reading.read(path)
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)


def test_files_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"none\.json: cannot be read: No such file"):
        reading.read(tmp_path / "none.json")
    path = tmp_path / "latin.json"
    path.write_bytes(b'{"data": "\xe9"}')
    with pytest.raises(InputError, match=r"latin\.json:1: not UTF-8 at byte 10"):
        reading.read(path)


RECORDS = [
    {
        "id": id,
        "title": "T",
        "context": context,
        "question": "Who?",
        "answers": {"text": ["the fox"], "answer_start": [4]},
    }
    for id, context in (("a", "and the fox"), ("b", "and the fox"), ("c", "or the fox"))
]
LINES = "\n".join(map(json.dumps, RECORDS))


@pytest.mark.parametrize(
    "text",
    [
        LINES,
        "\ufeff" + LINES.replace("\n", "\r\n\n") + "\n",
        json.dumps(RECORDS),
        json.dumps({"data": RECORDS}, indent=2),
        json.dumps(
            {"data": [{**r, "answers": question()["answers"]} for r in RECORDS]}
        ),
    ],
    ids=["lines", "blank lines", "list", "data", "answers of SQuAD"],
)
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_records_of_datasets_are_read(tmp_path, text, compress):
    path = tmp_path / "f.json"
    path.write_bytes(compress(text.encode()))
    dataset = reading.read(path)
    assert dataset.version == "1.1"
    # The context that two questions share is there once.
    assert [paragraph.context for paragraph in dataset.paragraphs] == [
        "and the fox",
        "or the fox",
    ]
    assert [q.id for q in dataset.questions] == ["a", "b", "c"]
    assert {q.answers for q in dataset.questions} == {(reading.Answer("the fox", 4),)}


def test_a_record_alone_and_a_cut_archive(tmp_path):
    path = tmp_path / "f.json.gz"
    path.write_bytes(gzip.compress(LINES.splitlines()[0].encode()))
    assert [q.id for q in reading.read(path).questions] == ["a"]
    path.write_bytes(gzip.compress(LINES.encode())[:-9])
    with pytest.raises(InputError, match=r"f\.json\.gz: .*expected a whole gzip file"):
        reading.read(path)
    path.write_text(f"{LINES}\n{LINES}")
    with pytest.raises(InputError, match="question id 'a' occurs 2 times"):
        reading.read(path)


@pytest.mark.parametrize("absent", [{"answers": []}, {"answers": None}, {}])
def test_without_answers_a_question_of_version_2_is_impossible(write, absent):
    asked = [question("a"), {"id": "b", "question": "Who sang?", **absent}]
    dataset = reading.read(write(squad(*asked, version="v2.0")))
    assert [q.is_impossible for q in dataset.questions] == [False, True]
    assert dataset.first_question_without_answer is None
    # Nobody has answered a question here, and the last one must have an answer.
    dataset = reading.read(write(squad(asked[1], version="v2.0")))
    assert dataset.first_question_without_answer == "b"
    assert (
        reading.read(write(squad(*asked)), "1.1").first_question_without_answer == "b"
    )


def test_ids_are_text_that_a_file_can_hold(write):
    path = write(squad(question("\udc00a", context="\ud83d")))
    assert [q.id for q in reading.read(path).questions] == ["\ufffda"]
