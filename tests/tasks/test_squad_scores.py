import json

import pytest
from helpers import SHARED

from albert_tf.errors import InputError
from albert_tf.tasks import squad
from albert_tf.tasks.squad import reading, scores

REAL = SHARED / "data/squad"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Cat,\nand an Apple!", "cat and apple"),
        ("a.b (U.S.)", "ab us"),
        ("theory of another", "theory of another"),
        ("The-a an", "thea"),
        ("«Der» the…end", "«der» …end"),
        ("x\u2026the\u2026y", "x\u2026 \u2026y"),
        ("\u3000A ", ""),
    ],
)
def test_normalize(text, expected):
    assert scores.normalize(text) == expected


@pytest.mark.parametrize(
    ("answer", "truth", "exact", "f1"),
    [
        ("The cat", "cat.", 1, 1),
        ("black cat", "a cat", 0, 2 / 3),
        # Precision 2/3, recall 2/4: each word counts as often as both have it.
        ("to be be", "to be or not", 0, 2 * (2 / 3) * 0.5 / (2 / 3 + 0.5)),
        ("dog", "cat", 0, 0),
        ("", "cat", 0, 0),
    ],
)
def test_exact_match_and_f1(answer, truth, exact, f1):
    for empty_counts in (False, True):
        assert scores.f1(answer, truth, empty_counts) == pytest.approx(f1, abs=1e-15)
    assert scores.exact_match(answer, truth) == exact
    # Answers without words agree only in SQuAD 2.0.
    assert scores.exact_match("the", "!") == 1
    assert [scores.f1("the", "!", version_2) for version_2 in (False, True)] == [0, 1]


def dataset(version, **answers):
    questions = []
    for id, texts in answers.items():
        known = tuple(reading.Answer(text, 0) for text in texts)
        questions.append(reading.Question(id, "?", known, not texts))
    paragraph = reading.Paragraph("", tuple(questions))
    return reading.Dataset("f.json", version, (paragraph,))


def test_version_1_worked_by_hand():
    data = dataset("1.1", p=["red cat", "the cat"], q=["dog", "x y z"], r=["x"])
    # p: exact by its second answer; q: x of two words, of three; r: no prediction.
    found = scores.evaluate(data, {"p": "cat", "q": "w x", "unasked": "x"})
    assert list(found) == ["exact_match", "f1"]
    assert found["exact_match"] == pytest.approx(100 / 3)
    assert found["f1"] == pytest.approx(100 * (1 + 0.4) / 3)


V2 = dataset("2.0", p=["red cat"], q=["dog"], r=[], s=[], t=["the"])
PREDICTIONS = {"p": "cat", "q": "dog", "r": "x", "s": "", "t": ""}
ODDS = {"p": 0.5, "q": -1.0, "r": 2.5, "s": -3.0, "t": 4.0}


def test_version_2_worked_by_hand():
    # q, s, and t, whose answer has no words.
    expected = {"exact": 100 * 3 / 5, "f1": 100 * (2 / 3 + 3) / 5, "total": 5}
    expected |= {"HasAns_exact": 100 * 2 / 3, "HasAns_f1": 100 * (2 / 3 + 2) / 3}
    expected |= {"HasAns_total": 3, "NoAns_exact": 50, "NoAns_f1": 50, "NoAns_total": 2}
    found = scores.evaluate(V2, PREDICTIONS)
    assert found == pytest.approx(expected)
    assert list(found)[:4] == ["exact", "f1", "total", "HasAns_exact"]


def test_a_part_without_questions_has_no_figures():
    found = scores.evaluate(dataset("2.0", r=[]), {"r": ""})
    assert list(found) == [
        *("exact", "f1", "total", "NoAns_exact", "NoAns_f1", "NoAns_total")
    ]


def test_best_thresholds_worked_by_hand():
    found = scores.evaluate(V2, PREDICTIONS, ODDS)
    # From 2 (r and s not answered), by rising odds: s +0, q +1, p +0 exact and +2/3 F1,
    # r -1, t +1.
    assert found["best_exact"] == pytest.approx(100 * 3 / 5)
    assert found["best_exact_thresh"] == -1.0
    assert found["best_f1"] == pytest.approx(100 * (3 + 2 / 3) / 5)
    assert found["best_f1_thresh"] == 0.5
    # Halfway to the null odds of r.
    assert scores.search_threshold(V2, PREDICTIONS, ODDS) == 1.5
    for name in ("exact", "f1"):
        threshold = found[f"best_{name}_thresh"]
        at = scores.evaluate(V2, PREDICTIONS, ODDS, threshold)
        assert at[name] == pytest.approx(found[f"best_{name}"])
        # A question is answered at the threshold, not only below it.
        below = scores.evaluate(V2, PREDICTIONS, ODDS, threshold - 1e-9)
        assert below[name] < at[name]


# Null odds, and the official threshold and ours.
CENTERS = [
    ({"p": -4.0, "q": -1.0, "r": 2.0}, -1.0, 0.5),
    # All of those that are right come first, and one is alone.
    ({"p": -4.0, "q": -1.0}, -1.0, 0.0),
    # None is answered: the official threshold stays 0, which would answer r.
    ({"r": -5.0}, 0.0, -6.0),
    # The next one has other null odds, however many share the best.
    ({"p": -1.0, "q": -1.0, "r": 0.5, "s": 0.5}, -1.0, -0.25),
]


@pytest.mark.parametrize(("odds", "official", "center"), CENTERS)
def test_a_threshold_for_other_questions_keeps_away_from_these(odds, official, center):
    known = {"p": ["red cat"], "q": ["dog"], "r": [], "s": [], "t": ["x"]}
    data = dataset("2.0", **{id: known[id] for id in odds})
    texts = {id: (known[id] or ["wrong"])[0] for id in odds}
    metrics = scores.evaluate(data, texts, odds)
    assert metrics["best_f1_thresh"] == official
    assert scores.center_threshold(metrics, odds) == center


def squad_file(*questions, **more):
    return {"data": [{"paragraphs": [{"context": "x y", "qas": questions}]}], **more}


def test_evaluates_files(write):
    asked = [
        {"id": "p", "question": "?", "answers": [{"text": "x", "answer_start": 0}]},
        {"id": "q", "question": "?", "answers": [], "is_impossible": True},
    ]
    both = write("both.json", squad_file(*asked))
    predictions = write("predictions.json", {"p": "x", "q": "y"})
    found = squad.evaluate_files(both, predictions)
    assert (found["exact"], found["NoAns_exact"], found["total"]) == (50, 0, 2)
    odds = write("odds.json", {"p": -1, "q": 0.5})
    found = squad.evaluate_files(both, predictions, null_odds_json=odds, threshold=0.0)
    assert (found["exact"], found["best_f1_thresh"]) == (100, -1)
    one = write("one.json", squad_file(asked[0], version="1.1"))
    assert squad.evaluate_files(one, predictions) == {"exact_match": 100, "f1": 100}
    found = squad.evaluate_files(one, predictions, version="2.0")
    assert found["HasAns_total"] == 1


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_missing_predictions_are_counted_and_score_0(write, version, caplog):
    asked = [
        {"id": id, "question": "?", "answers": [{"text": id, "answer_start": 0}]}
        for id in ("x", "y", "z")
    ]
    if version == "2.0":
        asked[2] |= {"answers": [], "is_impossible": True}
    data = write("data.json", squad_file(*asked, version=version))
    predictions = write("p.json", {"y": "y", "w": "w"})
    found = squad.evaluate_files(data, predictions)
    assert found["f1"] == pytest.approx(100 / 3)
    assert caplog.messages == [
        f"{predictions}: no prediction for 2 of 3 questions, which score 0; the "
        f"first is 'x'"
    ]
    if version == "2.0":
        assert (found["total"], found["HasAns_f1"], found["NoAns_f1"]) == (3, 50, 0)
        odds = write("odds.json", {"y": -1.0})
        for threshold in (None, -2.0):
            given = {"null_odds_json": odds, "threshold": threshold}
            found = squad.evaluate_files(data, predictions, **given)
            assert found["best_f1"] == pytest.approx(100 / 3)
            assert found["f1"] == pytest.approx(0 if threshold else 100 / 3)
    for others in ({}, {"w": "x", "v": "y"}):
        with pytest.raises(InputError, match=r"p\.json: none of its . question ids is"):
            squad.evaluate_files(data, write("p.json", others))


@pytest.mark.parametrize(
    ("file", "expected"), [("predictions", "answers"), ("odds", "numbers")]
)
def test_files_of_something_else_are_refused(write, file, expected):
    asked = {"id": "q", "question": "?", "answers": [], "is_impossible": True}
    data = write("data.json", squad_file(asked))
    contents = {"predictions": {"q": ""}, "odds": {"q": 1.5}, file: {"q": ["x"]}}
    predictions, odds = (write(f"{n}.json", found) for n, found in contents.items())
    message = rf"{file}\.json: question 'q' has \['x'\]; expected {expected}"
    with pytest.raises(InputError, match=message):
        squad.evaluate_files(data, predictions, null_odds_json=odds)


@pytest.mark.parametrize(
    ("data", "arguments", "message"),
    [
        (V2, (PREDICTIONS, {"p": 1.0}), "f.json: question 'q' has no null odds"),
        (V2, (PREDICTIONS, None, 1.0), "threshold 1.0: needs null odds to compare"),
        (dataset("1.1", q=[]), ({"q": "x"},), "f.json: question 'q' has no answer to"),
        (dataset("1.1", q=["x"]), ({}, {}), "f.json: null odds and thresholds are on"),
    ],
)
def test_what_cannot_be_scored_is_refused(data, arguments, message):
    with pytest.raises(InputError, match=message):
        scores.evaluate(data, *arguments)
    with pytest.raises(InputError, match=r"f\.json: no question has an answer; the s"):
        scores.search_threshold(dataset("2.0", q=[]), {"q": "x"}, {"q": 1.0})


@pytest.mark.skipif(not REAL.exists(), reason="needs the real files")
@pytest.mark.parametrize(
    "name",
    [
        "v1.1_LogisticRegression_Stanford.json",
        "v1.1_rnetplus_ensemble_MSRA.json",
        "v2.0_BiDAF_SelfAttn_ELMo_AI2.json",
    ],
)
def test_scores_of_real_systems_are_those_of_the_official_scripts(name):
    folder = REAL / "predictions"
    expected = json.loads((folder / "EXPECTED_METRICS.json").read_text())[name]
    found = squad.evaluate_files(REAL / f"dev-{name[:4]}.json", folder / name)
    assert list(found) == list(expected)
    assert found == pytest.approx(expected, abs=1e-9)
