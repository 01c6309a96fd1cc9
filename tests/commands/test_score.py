"""`albert-tf score`: files as our runs write them, and what does not fit."""

import json

import pytest

from albert_tf.commands import score
from albert_tf.errors import InputError
from albert_tf.tasks.settings.scoring import ScoreSettings

MRPC = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
LABELS = ("1", "0", "1", "1")


@pytest.fixture
def run(tmp_path, capsys):
    """Scores a file's text against data; returns what is printed."""

    def call(name, text, data, data_text, **settings):
        for file, contents in ((name, text), (data, data_text)):
            (tmp_path / file).write_text(contents)
        given = ScoreSettings(data=f"{tmp_path}/{data}", **settings)
        score.main(given, [f"{tmp_path}/{name}"])
        return dict(line.split(" = ") for line in capsys.readouterr().out.splitlines())

    return call


def mrpc(labels=LABELS):
    rows = (f"{label}\t7\t8\tA.\tB.\n" for label in labels)
    return "dev.tsv", MRPC + "".join(rows)


def predicted(words, start=0):
    lines = (f"{number}\t{word}\n" for number, word in enumerate(words, start))
    return "index\tprediction\n" + "".join(lines)


def test_a_table_for_the_site_is_scored_by_its_name(run, tmp_path):
    path = tmp_path / "scores.json"
    printed = run("MRPC.tsv", predicted("1110"), *mrpc(), output_file=str(path))
    # Of three ones, two are predicted, and of three predicted, two are right.
    assert printed == {"eval_accuracy": "0.5", "f1": "0.666667"}
    assert json.loads(path.read_text()) == {"eval_accuracy": 0.5, "f1": 2 / 3}


def test_rows_are_matched_by_index(run):
    lines = predicted("1011").splitlines(keepends=True)
    text = "".join([lines[0], *reversed(lines[1:])])
    printed = run("submit_results.tsv", text, *mrpc(), task="mrpc")
    assert printed["eval_accuracy"] == "1"


def passages():
    lines = [
        {"article": "A.", "question": "Q?", "options": ["a", "b", "c"], "answer": n}
        | {"id": f"q{n}"}
        for n in range(3)
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


def choices(*numbers):
    lines = ({"id": f"q{n}", "choice": choice} for n, choice in enumerate(numbers))
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_choices_of_race_are_scored(run):
    printed = run("predictions.jsonl", choices(0, 1, 0), "dev.json", passages())
    assert printed == {"eval_accuracy": "0.666667"}


def question():
    answers = [{"text": "a fine film", "answer_start": 2}]
    qas = [{"id": "x", "question": "What?", "answers": answers}]
    paragraph = {"context": "A a fine film.", "qas": qas}
    return json.dumps(
        {"version": "1.1", "data": [{"title": "T", "paragraphs": [paragraph]}]}
    )


def test_answers_of_squad_are_scored_in_percent(run):
    text = json.dumps({"x": "fine film, the"})
    printed = run("predictions.json", text, "dev.json", question())
    assert printed == {"exact_match": "100", "f1": "100"}
    with pytest.raises(InputError, match=r"^--null_odds_file=n: expected SQuAD, not"):
        run("x.jsonl", "", "dev.json", passages(), null_odds_file="n")


@pytest.mark.parametrize(
    ("name", "text", "settings", "message"),
    [
        (
            "MRPC.tsv",
            predicted("10"),
            {},
            "{path}: 2 of 4 have no prediction, the first is '2'",
        ),
        (
            "MRPC.tsv",
            predicted("1012"),
            {},
            "{path}:5: label '2'; expected one of '0', '1'",
        ),
        (
            "MRPC.tsv",
            predicted("1011", 1),
            {},
            "{path}: row 4: '4' is not in {folder}/dev.tsv",
        ),
        (
            "MRPC.tsv",
            predicted("1011") + "3\t1\n",
            {},
            "{path}: row 5: '3' has a prediction before",
        ),
        (
            "mine.tsv",
            "",
            {},
            "mine.tsv: its name does not show the task; expected --task=squad, race or "
            "a task of GLUE with it",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    run, tmp_path, name, text, settings, message
):
    with pytest.raises(InputError) as mistake:
        run(name, text, *mrpc(), **settings)
    assert str(mistake.value) == message.format(path=tmp_path / name, folder=tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (choices(0, 1), ": 1 of 3 have no prediction, the first is 'q2'"),
        (choices(0, 3, 1), ":2: choice 3; expected 0 to 2"),
        (choices(0, 1, 2, 0), ":4: 'q3' is not in {folder}/dev.json"),
        (choices(0) * 2, ":2: 'q0' has a prediction before"),
    ],
)
def test_choices_that_do_not_fit_are_refused(run, tmp_path, text, message):
    with pytest.raises(InputError) as mistake:
        run("p.jsonl", text, "dev.json", passages())
    assert str(mistake.value) == f"{tmp_path}/p.jsonl" + message.format(folder=tmp_path)


def test_an_unknown_task_and_a_second_file_are_refused(run):
    with pytest.raises(InputError, match=r"^--task=mrp: unknown; expected one of ax, "):
        run("p.tsv", predicted("1011"), *mrpc(), task="mrp")
    with pytest.raises(InputError, match=r"^2 files of predictions; expected one"):
        score.main(ScoreSettings(data="x"), ["a", "b"])
