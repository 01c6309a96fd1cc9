"""What a notebook shows: HTML without foreign tags, and values as they were."""

import json
import pickle
import re
import sys
import types

import pytest

import albert_tf
from albert_tf.estimators import notebooks

BAD = "<script>alert('1')</script>"
SPAN = {"type": BAD, "text": BAD, "begin": 2, "end": 2 + len(BAD), "probability": 0.5}
GAP = [{"piece": BAD, "probability": 0.25}]


def shown(kind, row, answer):
    return notebooks.Answers([answer], kind, [row])._repr_html_()


def answer(text, begin, end):
    chances = {"probability": 0.75, "null_odds": -1.5}
    return {"answer": text, "begin": begin, "end": end, **chances}


SHOWN = {
    "gaps": (
        shown,
        ("fill_mask", {"text": f"{BAD} [MASK]"}, {"gaps": [GAP]}),
        ["25.0%", "<mark"],
    ),
    "question": (
        shown,
        (
            "question_answering",
            {"question": f"so {BAD}", "context": f"a {BAD} b"},
            answer(BAD, 2, 2 + len(BAD)),
        ),
        ["75.0%", "<p>so &lt;", "a <mark"],
    ),
    "spans": (
        shown,
        ("token_classification", {"text": f"a {BAD} b"}, {"spans": [SPAN]}),
        ["50%", "a <mark"],
    ),
    "card": (notebooks.card, (BAD, {BAD: [BAD], "accuracy": 0.12345}), ["0.1235"]),
    "table": (
        notebooks.progress_table,
        ([{"kind": "eval", "step": 1, BAD: 0.5}],),
        ["<td>0.5</td>"],
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_texts_are_escaped(name):
    show, arguments, parts = SHOWN[name]
    html = show(*arguments)
    assert "<script" not in html and "&lt;script&gt;" in html
    for part in parts:
        assert part in html
    opened = re.findall(r"<(\w+)", html)
    assert sorted(opened) == sorted(re.findall(r"</(\w+)>", html))


def test_answers_are_a_list_that_shows_some():
    spans, row = [[SPAN]] * 23, {"text": "a " + BAD}
    whole = [{"spans": each} for each in spans]
    answers = notebooks.Answers(whole, "token_classification", [row] * 23)
    assert answers == whole and json.loads(json.dumps(answers)) == whole
    html = answers._repr_html_()
    assert html.count("<mark") == 20 and "and 3 more" in html
    values = answers.holding(spans)
    again = pickle.loads(pickle.dumps(values))
    assert again == spans and again._repr_html_() == html


def test_an_answer_stands_in_the_middle_of_a_long_passage():
    context = "x " * 5000 + "here" + " y" * 5000
    row = {"question": "where", "context": context}
    html = shown("question_answering", row, answer("here", 10_000, 10_004))
    assert re.search(r"…x x .* <mark[^>]*>here<.*</mark> y y .*y…", html)
    assert len(html) < 2500
    none = shown("question_answering", row, answer("", -1, -1))
    assert "no answer" in none and "<mark" not in none


def test_a_table_of_training_has_a_line_for_each_evaluation():
    train = [{"kind": "train", "step": s, "loss": 1.0 / s, "time": 3.5} for s in (1, 4)]
    html = notebooks.progress_table(train)
    assert re.findall("<td>([^<]*)", html) == [
        *("step", "training loss", "1", "1", "4", "0.25")
    ]
    evaluated = {"kind": "eval", "step": 4, "time": 3.5, "loss": 0.5, "f1": 0.75}
    html = notebooks.progress_table([*train, evaluated, {"kind": "resume", "step": 4}])
    assert re.findall("<td>([^<]*)", html) == [
        *("step", "training loss", "loss", "f1", "4", "0.25", "0.5", "0.75")
    ]


@pytest.mark.usefixtures("draws")
def test_progress_is_shown_in_place_and_other_lines_are_printed(
    tmp_path, monkeypatch, capsys
):
    display = pytest.importorskip("IPython.display")
    shown = []
    handle = types.SimpleNamespace(update=lambda html: shown.append(html.data))
    monkeypatch.setattr(display, "display", lambda *a, **k: handle)
    progress = notebooks.Progress(tmp_path)
    progress.write("step 1/2")
    assert not shown
    progress.write("\n")  # before the file is there
    entry = {"kind": "train", "step": 1, "loss": 2.0}
    (tmp_path / "run-1").mkdir()
    (tmp_path / "run-1/metrics.jsonl").write_text(json.dumps(entry) + "\n")
    print("step 1/2  loss <2>", "Warning: so", file=progress, sep="\n")
    print("step 2/2", file=progress)
    progress.finish()
    assert capsys.readouterr().err == "Warning: so\n"
    assert len(shown) == 3
    assert all("data:image/png;base64,iVBOR" in html for html in shown)
    assert "<td>training loss</td></tr><tr><td>1</td><td>2</td>" in shown[0]
    assert "loss &lt;2&gt;" in shown[0] and "step 2/2" in shown[1]


def test_only_a_kernel_is_a_notebook(monkeypatch):
    IPython = pytest.importorskip("IPython")
    assert not notebooks.is_running()
    for shell, expected in (({}, False), ({"kernel": 1}, True)):
        given = types.SimpleNamespace(**shell)
        monkeypatch.setattr(IPython, "get_ipython", lambda given=given: given)
        assert notebooks.is_running() == expected
    monkeypatch.delitem(sys.modules, "IPython")
    assert not notebooks.is_running()


def test_a_model_shows_its_settings():
    model = albert_tf.TextClassifier("albert_base_v2", epochs=2.0, text=BAD)
    html = model._repr_html_()
    assert html == model._repr_mimebundle_()["text/html"]
    assert "<b>TextClassifier</b>" in html and "albert_base_v2" in html
    assert "&lt;script&gt;" in html and "<script" not in html
