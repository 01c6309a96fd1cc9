"""Answers as HTML: what is marked, what is escaped, what is left out."""

import re

import pytest

from albert_tf.serve import display
from albert_tf.tasks import base, pretrained

ANSWERS = {
    "classification": (
        {"text": "x"},
        {
            "label": "<no>",
            "probability": 0.7,
            "probabilities": {"yes": 0.3, "<no>": 0.7},
        },
        ["<no>", "Probability of each label", "<no> 70.0%", "yes 30.0%"],
    ),
    "multi_label": (
        {"text_a": "x", "text_b": "y"},
        {"labels": [], "probabilities": {str(n): n / 20 for n in range(12)}},
        ["no label", "the likeliest 10 of 12", "11 55.0%", "2 10.0%"],
    ),
    "regression": ({"text": "x"}, {"value": 2.5}, ["value 2.5"]),
    "multiple_choice": (
        {"article": "a", "question": "q", "options": ["same", "same"]},
        {"choice": 1, "answer": "same", "probabilities": [0.25, 0.75]},
        ["same", "2. same 75.0%", "1. same 25.0%"],
    ),
    "question_answering": (
        {"question": "q", "context": "In <Paris>."},
        {"answer": "<Paris>", "begin": 3, "end": 10, "probability": 0.5},
        ["<Paris>", "In [<Paris> 50.0%]."],
    ),
    "token_classification": (
        {"text": "Ann met Bo in Rome."},
        {
            "spans": [
                {"type": "PER", "begin": 0, "end": 3, "probability": 0.9},
                {"type": "PER", "begin": 8, "end": 10, "probability": 0.8},
                {"type": "LOC", "begin": 14, "end": 18, "probability": 0.7},
            ]
        },
        ["3 spans", "[Ann PER 90%] met [Bo PER 80%] in [Rome LOC 70%]."],
    ),
    "fill_mask": (
        {"text": "a [MASK] and [MASK]."},
        {"gaps": [[{"piece": "▁list", "probability": 0.4}], []], "beyond_length": 1},
        ["a [list 40%] and [[MASK] beyond the length].", "Gap 1", "list 40.0%"],
    ),
    "sentence_order": (
        {"text_a": "x", "text_b": "y"},
        {"in_order": 0.2},
        ["in the other order", "in the other order 80.0%", "in order 20.0%"],
    ),
    "score": ({"text": "x"}, {"score": -3.0, "tokens": 1}, ["score -3", "tokens 1"]),
    "embedding": ({"text": "x"}, {"embedding": [0.5, -1]}, ["embedding 0.5, -1"]),
}


def read(text):
    """Returns HTML as one line, marks in brackets."""
    text = re.sub(r"<mark[^>]*>", "[", text).replace("</mark>", "]")
    text = re.sub(r"<small[^>]*>|</small>", "", text)
    text = re.sub(r"<[^>]*>", " ", text)
    text = text.replace("&lt;", "<").replace("&gt;", ">")
    return " ".join(text.split())


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_is_shown(kind):
    row, answer, parts = ANSWERS[kind]
    shown = display.answer_html(kind, row, answer)
    assert "<no>" not in shown
    assert "<Paris>" not in shown
    text = read(shown)
    for part in parts:
        assert part in text
        text = text[text.index(part) + len(part) :]


def test_every_kind_is_shown():
    kinds = {*base.families(), *pretrained.FAMILIES}
    assert kinds == set(ANSWERS) == set(display._SHOWN)


def test_spans_of_a_type_share_a_colour():
    row, answer, _ = ANSWERS["token_classification"]
    shown = display.answer_html("token_classification", row, answer)
    colours = re.findall(r"solid rgb\(([\d,]+)\)", shown)
    assert colours[0] == colours[1] != colours[2]


def test_a_piece_within_a_word_joins_it():
    row = {"text": "un [MASK] [MASK], [MASK]"}
    gaps = [[{"piece": piece, "probability": 0.4}] for piece in ("do", "▁it")]
    answer = {"gaps": [*gaps, []], "filled": "undo it, [MASK]"}
    shown = read(display.answer_html("fill_mask", row, answer))
    assert shown.startswith("un[do 40%] [it 40%], [[MASK] beyond the length]")


def test_no_answer_is_named():
    answer = {"answer": "", "begin": -1, "end": -1, "probability": 0.0, "null_odds": 2}
    row = {"question": "q", "context": "c"}
    shown = read(display.answer_html("question_answering", row, answer))
    assert shown == "no answer in this passage Null odds: 2"
