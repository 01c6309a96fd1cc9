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
    first, second, third = dataset.paragraphs
    assert first.context == "and the fox saw the fox"
    assert first.questions[0] == reading.Question(
        "q1", "Who?", (reading.Answer("the fox", 4),), False
    )
    assert second.questions == ()
    assert third.context == "Ž\n"
    assert [q.id for q in dataset.questions] == ["q1", "q2", "7"]
    assert [len(q.answers) for q in dataset.questions] == [1, 2, 0]


@pytest.mark.parametrize(
    ("contents", "version", "reason"),
    [
        (squad(question(), version="1.1"), "1.1", "the file's version is '1.1'"),
        (squad(question()), "1.1", "no question is impossible and the file's"),
        (squad(question(), version="v2.0"), "2.0", "the file's version is 'v2.0'"),
        (squad(question(), version=2), "2.0", "the file's version is 2"),
        (
            squad(question("a"), question("b", answers=(), is_impossible=True)),
            "2.0",
            "question 'b' is impossible",
        ),
    ],
)
def test_the_data_say_the_version(write, contents, version, reason):
    dataset = reading.read(write(contents))
    assert dataset.version == version
    assert reason in dataset.version_is_from


def test_a_given_version_counts(write):
    dataset = reading.read(write(squad(question(), version="1.1")), "2.0")
    assert (dataset.version, dataset.version_is_from) == ("2.0", "given")
    with pytest.raises(InputError, match=r"version '2': expected one of \['1.1', '2"):
        reading.read("nowhere.json", "2")


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
        ("[]", ": expected a JSON object, got []"),
        ({"version": "1.1"}, ": the key 'data' is missing"),
        ({"data": {}}, ": 'data' is an object; expected a list"),
        ({"data": [[]]}, ": data[0]: a list where an object is expected"),
        (drop(squad(question()), *QUESTION[:3]), "data[0]: the key 'paragraphs' is"),
        (
            drop(squad(question()), *QUESTION[:4], "context"),
            ": data[0].paragraphs[0]: the key 'context' is missing",
        ),
        (squad(context=3), "data[0].paragraphs[0]: 'context' is a number; expected a"),
        (
            drop(squad(question()), *QUESTION, "id"),
            ": data[0].paragraphs[0].qas[0]: the key 'id' is missing",
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
            ": question id 'q1' occurs twice; expected an id for each question",
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
    with pytest.raises(InputError, match=r"latin\.json: not UTF-8 at byte 10"):
        reading.read(path)


def test_what_is_odd_is_counted(write):
    contents = squad(
        question("a"),
        question("b", text="  ", answers=[("fox", 8), ("fox", 9)]),
        question("c", answers=[("cat", 0)]),
        question("d", answers=[("fox", -3)]),
        question("e", is_impossible=True),
    )
    contents["data"] += squad(question("f", answers=[]), context=" \n")["data"]
    assert reading.read(write(contents)).warnings() == {
        "questions about an empty context": 1,
        "empty questions": 1,
        "questions with an answer that is not at answer_start": 3,
        "impossible questions with answers": 1,
    }
    assert reading.read(write(squad(question()))).warnings() == {}


CONTEXT = "and the fox saw the fox"


@pytest.mark.parametrize(
    ("start", "expected"),
    [(4, 4), (16, 16), (0, 4), (9, 4), (11, 16), (15, 16), (99, 16), (-5, 4)],
)
def test_an_answer_is_taken_from_the_nearest_place(start, expected):
    answers = (reading.Answer("the fox", start), reading.Answer("and", 0))
    found = reading.training_answer(
        "f.json", CONTEXT, reading.Question("q", "Who?", answers, False)
    )
    assert found == reading.Answer("the fox", expected)


def test_an_impossible_question_has_no_answer_to_train_on():
    answers = (reading.Answer("the fox", 4),)
    asked = reading.Question("q", "Who?", answers, True)
    assert reading.training_answer("f.json", CONTEXT, asked) is None


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ((), "f.json: question 'q' has no answer and is not impossible; expected an"),
        ((reading.Answer(" ", 3),), "f.json: question 'q' has an empty answer"),
        (
            (reading.Answer("The fox", 4),),
            "f.json: question 'q': the answer 'The fox' is not in its context",
        ),
    ],
)
def test_questions_without_an_answer_to_train_on_are_refused(answers, message):
    with pytest.raises(InputError, match=message):
        reading.training_answer(
            "f.json", CONTEXT, reading.Question("q", "Who?", answers, False)
        )


def test_ids_are_text_that_a_file_can_hold(write):
    path = write(squad(question("\udc00a", context="\ud83d")))
    assert [q.id for q in reading.read(path).questions] == ["\ufffda"]
