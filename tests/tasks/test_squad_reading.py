import gzip
import json

import pytest

from albert_tf.errors import InputError
from albert_tf.tasks.squad import reading


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
    dataset = reading.read(write("squad.json", contents))
    first, last = dataset.paragraphs
    assert first.context == "and the fox saw the fox"
    assert first.questions[0] == reading.Question(
        "q1", "Who?", (reading.Answer("the fox", 4),), False
    )
    assert last.context == "Ž\n"
    assert [q.id for q in dataset.questions] == ["q1", "q2", "7"]
    assert [len(q.answers) for q in dataset.questions] == [1, 2, 0]


NAMES = {"1.1": "1.1", "v2.0": "2.0", 2: "2.0", "V2.0": "2.0", "squad_v2": "2.0"}
VERSIONS = [
    *((squad(question(), version=name), found) for name, found in NAMES.items()),
    (squad(question(), version="2021-02-02"), "1.1"),
    (squad(question()), "1.1"),
    (squad(question(), question("b", answers=())), "2.0"),
    (squad(question("a", answers=())), "1.1"),
    (squad(question(), question("b", answers=()), version="1.1"), "1.1"),
    (squad(question("a"), question("b", answers=(), is_impossible=True)), "2.0"),
]


@pytest.mark.parametrize(("contents", "version"), VERSIONS)
def test_the_data_say_the_version(write, contents, version):
    path = write("squad.json", contents)
    assert reading.read(path).version == version
    assert reading.read(path, "2.0").version == "2.0"


def article(**paragraph):
    return {"data": [{"paragraphs": [paragraph]}]}


# Mistakes in the JSON itself are the tests of `json_values`.
@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ("[]", ": no questions; expected some"),
        ('{"question": "?", "id": 1}', ":1: the key 'context' is missing"),
        ('[{"context": "", "id": 1}]', ": question '1': the key 'question' is missing"),
        ({"data": [[]]}, ":row 1: a list where an object is expected"),
        ({"data": [{}]}, ":row 1: the key 'paragraphs' is missing"),
        (article(qas=[]), ":row 1.paragraphs[0]: the key 'context' is missing"),
        (article(context="", qas=[{}]),
         ":row 1.paragraphs[0].qas[0]: the key 'id' is missing"),
        (squad({"id": "q", "question": "?", "answers": "fox"}),
         ": question 'q': answers is \"fox\"; expected dicts of text and answer_sta"),
        (squad({**question(), "answers": {"text": ["a", "b"], "answer_start": [1]}}),
         ": question 'q1': 'answer_start' is None; expected a number"),
        (squad(question(is_impossible="no")),
         ": question 'q1': 'is_impossible' is a text; expected a truth value"),
        (squad(question(), question("q2"), question()),
         ": question id 'q1' occurs 2 times; each question needs its own id"),
    ],
)  # fmt: skip
def test_bad_files_are_refused_by_location(write, contents, message):
    path = write("squad.json", contents)
    with pytest.raises(InputError) as error:
        reading.read(path)
    assert str(error.value).startswith(f"{path}{message}")


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


OF_SQUAD = [{**record, "answers": question()["answers"]} for record in RECORDS]
TEXTS = [LINES, "\ufeff" + LINES.replace("\n", "\r\n\n") + "\n", json.dumps(RECORDS)]
TEXTS += [json.dumps({"data": rows}, indent=2) for rows in (RECORDS, OF_SQUAD)]


@pytest.mark.parametrize("text", TEXTS)
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


@pytest.mark.parametrize("absent", [{"answers": []}, {"answers": None}, {}])
def test_without_answers_a_question_of_version_2_is_impossible(write, absent):
    asked = [question("a"), {"id": "b", "question": "Who sang?", **absent}]
    dataset = reading.read(write("squad.json", squad(*asked, version="v2.0")))
    assert [q.is_impossible for q in dataset.questions] == [False, True]
    assert dataset.first_unlabeled_id is None
    # Nobody has answered a question here, and the last one must have an answer.
    dataset = reading.read(write("squad.json", squad(asked[1], version="v2.0")))
    assert dataset.first_unlabeled_id == "b"
    assert (
        reading.read(write("squad.json", squad(*asked)), "1.1").first_unlabeled_id
        == "b"
    )
