import collections
import dataclasses
import json
import math

import numpy as np
import pytest

from albert_tf.tasks.settings.squad import SquadSettings
from albert_tf.tasks.squad import answers, features, reading, scores

LINEAR = SquadSettings(head="linear", n_best_size=20, max_answer_length=30)
CONDITIONAL = dataclasses.replace(LINEAR, head="conditional")
BEAMS = (
    *("start_top_index", "start_top_log_probs"),
    *("end_top_index", "end_top_log_probs"),
    "cls_logits",
)


def as_released(recorded, windows):
    """Puts the tokens where the release says."""
    return [
        dataclasses.replace(window, spans=spans)
        for window, spans in zip(windows, recorded.released_spans(), strict=True)
    ]


def candidates_of_version_1(recorded, windows):
    found = collections.defaultdict(list)
    length = recorded.lengths.max_seq_length
    ids = recorded.arrays["predict/unique_id"]
    for window, id in zip(windows, ids, strict=True):
        random = np.random.RandomState(id)
        start, end = (
            (random.standard_normal(length) * 3).astype("float32") for _ in range(2)
        )
        # As released, padding is searched, too.
        window = dataclasses.replace(window, ids=np.zeros(length, "int32"))
        outputs = {"start_logits": start, "end_logits": end}
        spans, _ = answers.make_spans(window, outputs, LINEAR)
        found[window.question.id].append((spans, None))
    return {id: answers.merge(each, LINEAR) for id, each in found.items()}


def candidates_of_version_2(recorded, windows):
    found = collections.defaultdict(list)
    for i, window in enumerate(windows):
        outputs = {name: recorded.arrays[f"predict/{name}"][i] for name in BEAMS}
        spans = answers.make_spans(window, outputs, CONDITIONAL)
        found[window.question.id].append(spans)
    return {id: answers.merge(each, CONDITIONAL) for id, each in found.items()}


def collected(candidates):
    return answers.collect_answers(candidates.items())


def assert_n_best(found, expected, dropped=("q023", "q024")):
    for id, listed in expected["nbest_first15"].items():
        assert found[id] == listed, id
    for id, first in expected["top3"].items():
        if id not in dropped:
            three = [[span["text"], span["probability"]] for span in found[id][:3]]
            assert three == first, id


def test_version_1_gives_the_released_lists(recorded):
    windows = as_released(recorded, recorded.windows())
    candidates = candidates_of_version_1(recorded, windows)
    expected = recorded.results["v1"]
    assert len(candidates) == 34
    for id, text in collected(candidates).texts.items():
        assert text == expected["predictions"][id], id
    found = {id: answers.n_best(listed) for id, listed in candidates.items()}
    assert_n_best(found, expected)
    assert {id: len(spans) for id, spans in found.items()} == {
        id: size for id, size in expected["nbest_len"].items() if id in found
    }


def test_version_2_gives_the_released_lists_and_null_odds(recorded):
    windows = as_released(recorded, recorded.windows())
    candidates = candidates_of_version_2(recorded, windows)
    for threshold in (None, 0.3):
        expected = recorded.results["v2"][f"threshold={threshold}"]
        found = collected(candidates).apply_null_threshold(threshold)
        assert len(found) == 34
        for id, text in found.items():
            assert text == expected["predictions"][id], (threshold, id)
        odds = collected(candidates).null_odds
        assert odds == {id: expected["null_odds"][id] for id in found}
    listed = {id: answers.n_best(found) for id, found in candidates.items()}
    assert_n_best(listed, recorded.results["v2"]["threshold=None"])


def test_version_2_is_evaluated_as_released(recorded):
    windows = as_released(recorded, recorded.windows())
    candidates = candidates_of_version_2(recorded, windows)
    # What the release gives the questions that it drops.
    texts = {**collected(candidates).texts, "q023": "", "q024": ""}
    odds = {**collected(candidates).null_odds, "q023": 1e6, "q024": 1e6}
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
    settings, span = dataclasses.replace(LINEAR, n_best_size=3), answers.Span
    first = [span("x", 3, 1), span("y", 1, 1)]
    second = [span("y", 2, 1), span("z", 1, 1), span("w", 0, 1)]
    found = answers.merge([(first, np.float32(0.5)), (second, -0.25)], settings)
    assert [(s.text, s.score) for s in found.spans] == [("x", 4), ("y", 3), ("z", 2)]
    assert found.null_odds == -0.25
    assert answers.merge([([], np.float32(2))], settings) == answers.Candidates((), 2.0)


def test_a_question_is_answered_up_to_the_threshold():
    found = answers.Answers({"q": "x", "r": "y"}, {"q": 0.5})
    texts = [found.apply_null_threshold(t)["q"] for t in (0.49, 0.5, 0.51, None)]
    assert texts == ["", "x", "x", "x"]
    assert found.apply_null_threshold(-9.0) == {"q": "", "r": "y"}


def test_without_a_valid_span_the_released_texts_stand():
    none = [("a", answers.Candidates((), None)), ("b", answers.Candidates((), 0.0))]
    found = answers.collect_answers(none)
    assert (found.texts, found.null_odds) == ({"a": "empty", "b": ""}, {"b": 0.0})
    entries = [[*found.n_best[id].values()] for id in "ab"]
    assert [list(each[0].values()) for each in entries] == [
        ["empty", 1.0, 0.0, 0.0],
        ["", 1.0, -1e6, -1e6],
    ]


def test_the_files_are_the_released_ones():
    span = answers.Span
    found = {
        "q": answers.Candidates((span("é", 1.0, 2.0), span("y", 1.0, 1.0)), 0.5),
        'r"': answers.Candidates((span("{}", -3.0, 0.5),), 0.125),
    }
    files = answers.collect_answers(found.items()).files(threshold=0.25)
    n_best = files.pop("nbest_predictions.json")
    assert {name: json.loads(text) for name, text in files.items()} == {
        "predictions.json": {"q": "", 'r"': "{}"},
        "null_odds.json": {"q": 0.5, 'r"': 0.125},
    }
    listed = {id: answers.n_best(candidates) for id, candidates in found.items()}
    assert n_best == json.dumps(listed, indent=4) + "\n"
    best, second = listed["q"]
    assert (best["text"], best["start_log_prob"], best["end_log_prob"]) == ("é", 1, 2)
    assert second["probability"] == pytest.approx(1 / (1 + math.e))
    files = answers.Answers({"q": "empty"}, {}).files()
    assert files == {"predictions.json": '{\n    "q": "empty"\n}\n'}
