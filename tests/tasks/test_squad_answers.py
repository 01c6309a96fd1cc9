import dataclasses
import json
import math

import numpy as np
import pytest

from albert_tf.tasks.settings.squad import SquadSettings
from albert_tf.tasks.squad import answers, features, reading, scores

SIZES = {"n_best_size": 20, "max_answer_length": 30}
LINEAR = SquadSettings(version="1.1", head="linear", **SIZES)
CONDITIONAL = SquadSettings(version="2.0", head="conditional", **SIZES)
BEAMS = (
    *("start_top_index", "start_top_log_probs"),
    *("end_top_index", "end_top_log_probs"),
    "cls_logits",
)


def as_released(recorded):
    """Returns the windows, with the tokens where the release says."""
    pairs = zip(recorded.windows(), recorded.released_spans(), strict=True)
    return [dataclasses.replace(window, spans=spans) for window, spans in pairs]


def answers_of_version_1(recorded):
    windows, outputs = [], []
    length = recorded.lengths.max_seq_length
    for window, id in zip(
        as_released(recorded), recorded.arrays["predict/unique_id"], strict=True
    ):
        random = np.random.RandomState(id)
        start, end = (
            (random.standard_normal(length) * 3).astype("float32") for _ in range(2)
        )
        # As released, padding is searched, too.
        windows.append(dataclasses.replace(window, ids=np.zeros(length, "int32")))
        outputs.append({"start_logits": start, "end_logits": end})
    return answers.collect_answers(windows, outputs, LINEAR)


def answers_of_version_2(recorded):
    windows = as_released(recorded)
    outputs = [
        {name: recorded.arrays[f"predict/{name}"][i] for name in BEAMS}
        for i in range(len(windows))
    ]
    return answers.collect_answers(windows, outputs, CONDITIONAL)


def assert_n_best(found, expected, dropped=("q023", "q024")):
    listed = {id: list(entries.values()) for id, entries in found.n_best.items()}
    for id, entries in expected["nbest_first15"].items():
        assert listed[id] == entries, id
    for id, first in expected["top3"].items():
        if id not in dropped:
            three = [[span["text"], span["probability"]] for span in listed[id][:3]]
            assert three == first, id


def test_version_1_gives_the_released_lists(recorded):
    found, expected = answers_of_version_1(recorded), recorded.results["v1"]
    assert len(found.texts) == 34
    assert found.texts.items() <= expected["predictions"].items()
    assert_n_best(found, expected)
    sizes = {id: len(entries) for id, entries in found.n_best.items()}
    assert sizes.items() <= expected["nbest_len"].items()


def test_version_2_gives_the_released_lists_and_null_odds(recorded):
    found = answers_of_version_2(recorded)
    assert len(found.texts) == 34
    for threshold in (None, 0.3):
        expected = recorded.results["v2"][f"threshold={threshold}"]
        texts = found.apply_null_threshold(threshold)
        assert texts.items() <= expected["predictions"].items()
        assert found.null_odds.items() <= expected["null_odds"].items()
    assert_n_best(found, recorded.results["v2"]["threshold=None"])


def test_version_2_is_evaluated_as_released(recorded):
    found = answers_of_version_2(recorded)
    # What the release gives the questions that it drops.
    texts = {**found.texts, "q023": "", "q024": ""}
    odds = {**found.null_odds, "q023": 1e6, "q024": 1e6}
    expected = recorded.results["v2"]["evaluate_v2"]
    metrics = scores.evaluate(recorded.dataset, texts, odds)
    threshold = metrics["best_f1_thresh"]
    assert threshold == expected["null_score_diff_threshold"]
    # The release answers below the best threshold only, and then takes 1 for another.
    below = {id: text if odds[id] < threshold else "" for id, text in texts.items()}
    assert below == recorded.results["v2"]["evaluate_v2 predictions"]
    found = scores.evaluate(recorded.dataset, below, odds, threshold=1.0)
    for name in ("exact", "f1", "total"):
        assert found[name] == pytest.approx(expected[name], abs=1e-12)


def window(text, first_token, max_context, id="q", context_start=3):
    """Makes a window over the words of a text."""
    words = text.split()
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    spans = np.stack([ends - [len(word) for word in words], ends], axis=1)
    count = len(max_context)
    return features.Window(
        reading.Question(id, "?", (), False),
        text,
        np.zeros(context_start + count + 1, "int32"),
        context_start,
        spans[first_token:][:count],
        np.array(max_context, bool),
        0,
        0,
    )


def test_spans_of_a_linear_head_worked_by_hand():
    # Positions: [CLS] query [SEP] b c d e [SEP] padding
    read = window("a b c d e f", 1, [False, True, True, True])
    start = np.float32([9, 9, 0, 7, 5, 3, 1, 0, 0])
    end = np.float32([9, 0, 0, 8, 2, 4, 6, 9, 0])
    outputs = {"start_logits": start, "end_logits": end}
    settings = dataclasses.replace(LINEAR, n_best_size=6, max_answer_length=2)
    found, null = answers.make_spans(read, outputs, settings)
    assert null == 18
    # "b" has more context elsewhere; "c d e" is longer than two.
    assert [(s.text, s.start_score, s.end_score) for s in found] == [
        ("c d", 5, 4),
        ("d e", 3, 6),
        ("c", 5, 2),
        ("d", 3, 4),
        ("e", 1, 6),
    ]
    assert [(s.begin, s.end) for s in found][:2] == [(4, 7), (6, 9)]
    # The four best starts are [CLS], the query, "b" and "c"; the ends [SEP], [CLS],
    # "b" and "e".
    few = dataclasses.replace(settings, n_best_size=4, max_answer_length=3)
    found, _ = answers.make_spans(read, outputs, few)
    assert [s.text for s in found] == ["c d e"]


def test_one_text_is_listed_once_with_its_best_score():
    read = window("x y x y", 0, [True] * 4)
    start = np.float32([-9, -9, -9, 1, -9, 2, -9, -9])
    end = np.float32([-9, -9, -9, -9, 1, -9, 2, -9])
    outputs = {"start_logits": start, "end_logits": end}
    settings = dataclasses.replace(LINEAR, n_best_size=2)
    (best, _), _ = answers.make_spans(read, outputs, settings)
    assert (best.text, best.score, best.begin) == ("x y", 4, 4)


def test_spans_of_a_conditional_head_worked_by_hand():
    read = window("a b c", 0, [True] * 3)
    beams = {
        "start_top_index": [4, 3],
        "start_top_log_probs": [-1.0, -2.0],
        "end_top_index": [5, 4, 3, 6, 3, 4],
        "end_top_log_probs": [-0.5, -1.5, -0.1, -0.2, -0.4, -3.0],
        "cls_logits": 0.75,
    }
    beams = {name: np.array(value) for name, value in beams.items()}
    found, null = answers.make_spans(read, beams, CONDITIONAL)
    assert null == 0.75
    # "b" to "a" runs backwards, and position 6 is the [SEP].
    assert [(s.text, s.score) for s in found] == [
        ("b c", -1.5),
        ("a", -2.4),
        ("b", -2.5),
        ("a b", -5.0),
    ]


def test_windows_of_a_question_are_merged():
    settings, span = dataclasses.replace(CONDITIONAL, n_best_size=3), answers.Span
    first = [span("x", 3, 1), span("y", 1, 1)]
    second = [span("y", 2, 1), span("z", 1, 1), span("w", 0, 1)]
    found, odds = answers.merge([(first, np.float32(0.5)), (second, -0.25)], settings)
    assert [(s.text, s.score) for s in found] == [("x", 4), ("y", 3), ("z", 2)]
    assert odds == -0.25
    settings = dataclasses.replace(settings, head="linear")
    assert answers.merge([(first, 0.5)], settings)[1] == 0.5 - 4
    # Without a valid span, the released texts and scores.
    assert answers.merge([([], 2.0)], CONDITIONAL) == ([span("", -1e6, -1e6)], 2.0)
    assert answers.merge([([], 2.0)], LINEAR) == ([span("empty", 0.0, 0.0)], None)


def test_a_question_is_answered_up_to_the_threshold():
    found = answers.Answers({"q": "x", "r": "y"}, {"q": 0.5})
    texts = [found.apply_null_threshold(t)["q"] for t in (0.49, 0.5, 0.51, None)]
    assert texts == ["", "x", "x", "x"]
    assert found.apply_null_threshold(-9.0) == {"q": "", "r": "y"}


def test_the_files_are_the_released_ones():
    span = answers.Span
    spans = {
        "q": [span("é", 1.0, 2.0), span("y", 1.0, 1.0)],
        'r"': [span("{}", -3.0, 0.5)],
    }
    lists = {id: answers.make_n_best(each) for id, each in spans.items()}
    texts = {id: each[0].text for id, each in spans.items()}
    odds = {"q": 0.5, 'r"': 0.125}
    files = answers.Answers(texts, odds, lists).files(threshold=0.25)
    n_best = files.pop("nbest_predictions.json")
    assert {name: json.loads(text) for name, text in files.items()} == {
        "predictions.json": {"q": "", 'r"': "{}"},
        "null_odds.json": odds,
    }
    listed = {id: list(entries.values()) for id, entries in lists.items()}
    assert n_best == json.dumps(listed, indent=4) + "\n"
    best, second = listed["q"]
    assert (best["text"], best["start_log_prob"], best["end_log_prob"]) == ("é", 1, 2)
    assert second["probability"] == pytest.approx(1 / (1 + math.e))
    files = answers.Answers({"q": "empty"}, {}).files()
    assert files == {"predictions.json": '{\n    "q": "empty"\n}\n'}
