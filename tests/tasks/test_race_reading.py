import json

import pytest

from albert_tf import InputError
from albert_tf.tasks.race import reading

PASSAGE = {
    "id": "middle7.txt",
    "article": "Mina baked.",
    "questions": ["Who baked?", "Mina _ ."],
    "options": [["Otto", "Mina", "Greta"], ["sang", "baked", "_"]],
    "answers": ["B", "C"],
}
SINGLE = {"article": "", "question": "Is it?", "options": ["yes", "no"], "answer": 1}


def write(path, *values):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def test_a_file_for_each_passage_whatever_it_is_called(tmp_path):
    dev = tmp_path / "RACE/dev"
    (dev / "high").mkdir(parents=True)
    # The data set has one object a file without a line end, some print it over lines.
    (dev / "high/10.json").write_text(json.dumps({**PASSAGE, "id": "high10"}, indent=1))
    (dev / "high/9").write_text(json.dumps({**PASSAGE, "id": "high9"}))
    (dev / "high/.hidden").write_text("no JSON")
    write(dev / "middle/1.txt", PASSAGE)
    for root in (tmp_path, tmp_path / "RACE"):
        found = reading.read_split(root, "dev")
        assert [(q.id, q.level, q.answer) for q in found] == [
            ("middle7.txt-1", "middle", 1),
            ("middle7.txt-2", "middle", 2),
            ("high10-1", "high", 1),
            ("high10-2", "high", 2),
            ("high9-1", "high", 1),
            ("high9-2", "high", 2),
        ]
    assert len(reading.read_split(tmp_path, "dev", ["high"])) == 4
    assert len(reading.read_split(tmp_path, "dev", ["middle"])) == 2


def test_passages_in_one_file(tmp_path):
    text = json.dumps(PASSAGE)
    (tmp_path / "dev/middle").mkdir(parents=True)
    (tmp_path / "dev/middle/all.txt").write_text(f"{text}\n{text}\n\n{text}\n")
    found = reading.read_split(tmp_path, "dev", ["middle"])
    assert [q.location.rpartition("/")[2] for q in found[::2]] == [
        *("all.txt:1: question 1", "all.txt:2: question 1", "all.txt:4: question 1")
    ]
    # The files beside it are not read.
    write(tmp_path / "dev/middle/a.txt", PASSAGE)
    assert len(reading.read_split(tmp_path, "dev", ["middle"])) == 6


# A question, and where its blanks are; the same in a graph, see tests/serve.
BLANKS = [
    ("Who?", "Who? y"),
    ("_ and _.", "y and y."),
    ("The file is ____ .", "The file is y ."),
    ("Which has file_name in main_loop ?", "Which has file_name in main_loop ? y"),
    ("file_name is __, a_b_c: _", "file_name is y, a_b_c: y"),
    ("x_1 é_ü 日_本", "x_1 é_ü 日_本 y"),
    ("un_ , _ed , a__b", "uny , yed , ayb"),
]


@pytest.mark.parametrize(("text", "expected"), BLANKS)
def test_an_option_stands_in_the_blanks_or_behind(text, expected):
    question = reading.Question("", "", text, ("x", "y"))
    assert question.choices[1] == expected
    # As released, each underscore of RACE is a blank.
    question = reading.Question("", "", "It is_long __.", ("x", "y"), level="high")
    assert question.choices[1] == "It isylong yy."


def test_a_list_of_questions_is_read_as_their_lines_are(tmp_path):
    path = tmp_path / "own.json"
    path.write_text(json.dumps([SINGLE, {**SINGLE, "id": 7}, PASSAGE], indent=2))
    found = reading.read_file(path)
    names = ["own.json:row 1", "7", "middle7.txt-1", "middle7.txt-2"]
    assert [question.id for question in found] == names
    assert [question.answer for question in found] == [1, 1, 1, 2]


def test_an_answer_is_a_letter_or_a_number_or_unknown(tmp_path):
    letter, unknown = {**SINGLE, "answer": "B"}, {**PASSAGE, "answers": None}
    partly = {**PASSAGE, "answers": [None, "A"]}
    three = {**SINGLE, "options": ["a", "b", "c"], "answer": None, "id": 5}
    path = write(tmp_path / "own.jsonl", letter, SINGLE, unknown, partly, three)
    found = reading.read_file(path)
    assert [q.answer for q in found] == [1, 1, None, None, None, 0, None]
    assert (found[0].id, found[0].level, found[-1].id) == ("own.jsonl:1", "", "5")


ONE_OF_TWO = "expected a letter from A to B, or a number from 0 to 1"


@pytest.mark.parametrize(
    "value, message",
    [
        ([SINGLE, []], "row 2: a list where an object is expected"),
        ({**SINGLE, "id": [1]}, "1: the id is a list; expected a text"),
        ({**SINGLE, "answer": "C"}, f'1: answer "C"; {ONE_OF_TWO}'),
        ({**SINGLE, "answer": 2}, f"1: answer 2; {ONE_OF_TWO}"),
        ({**SINGLE, "answer": True}, f"1: answer true; {ONE_OF_TWO}"),
        ({**SINGLE, "options": ["yes", "", ""]}, "1: 1 options; expected 2 to 26"),
        ({**SINGLE, "options": ["yes", 5]}, "1: the options are not a list of texts"),
        ({"article": "", "options": []}, "1: the key 'question' is missing"),
        ({**PASSAGE, "answers": ["B", "BC"]},
         '1: question 2: answer "BC"; expected a letter from A to C, or '
         "a number from 0 to 2"),
        ({**PASSAGE, "answers": ["B"]},
         "1: 2 questions, 2 lists of options, 1 answers; expected equal numbers"),
        ({**PASSAGE, "questions": ["Who?", 3]},
         "1: question 2: a number; expected a text"),
        ({**PASSAGE, "options": [["a", "b", "c"], "abc"]},
         "1: question 2: the options are not a list of texts"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_question(tmp_path, refuses, value, message):
    path = write(tmp_path / "own.jsonl", value)
    with refuses(f"{path}:{message}"):
        reading.read_file(path)


def test_questions_may_have_different_numbers_of_options(tmp_path):
    many = [{**SINGLE, "options": options} for options in ("abcd", "ab", "abc")]
    many = [{**value, "options": [*value["options"]]} for value in many]
    many.append({**SINGLE, "options": ["a", "", "c", "", ""]})
    found = reading.read_file(write(tmp_path / "own.jsonl", *many))
    assert [len(question.options) for question in found] == [4, 2, 3, 3]


def test_files_that_are_no_json(tmp_path, refuses):
    path = write(tmp_path / "own.jsonl")
    with refuses(f"{path}: no question; expected JSON with one or more"):
        reading.read_file(path)
    path.write_text(json.dumps(SINGLE) + "\n\n{'article': 1}\n")
    with pytest.raises(InputError, match=f"^{path}:3: not JSON: Expecting"):
        reading.read_file(path)


def test_folders_that_are_not_race(tmp_path, refuses):
    with refuses(
        f"--data_dir={tmp_path}: no folder dev; expected the folder RACE of the data "
        f"set, with train, dev and test in it, or its parent folder"
    ):
        reading.read_split(tmp_path, "dev")
    level = tmp_path / "dev/middle"
    (tmp_path / "dev").mkdir()
    with refuses(
        f"{level}: no such folder; add it, or use --middle_only or --high_only"
    ):
        reading.read_split(tmp_path, "dev")
    level.mkdir()
    with refuses(f"{level}: no file; expected one for each passage, or all.txt"):
        reading.read_split(tmp_path, "dev")
