import dataclasses

import numpy as np
import pytest

from albert_tf.tasks.settings.squad import SquadSettings
from albert_tf.tasks.squad import features

# Tokens that stand elsewhere in the text than the release says, as (first question
# about the context, token): (text here, text there). White space at the ends of the
# release's text is left out: it strips answers. Why ours is right:
# - A word mark of its own stands for no text. The release gives it the first letter of
#   the word, or a character that the vocabulary takes for a space.
_MARKS = {"q000": "T", "q005": "C", "q015": "\uff26", "q019": "\u6771"}
_MARKS |= {"q025": "W", "q029": "O"}
_MARK = {(id, 0): ("", text) for id, text in _MARKS.items()}
_MARK["q019", 46] = ("", "\u200d")
# - A combining mark belongs to its letter; the release cuts it off after the last one.
# - The joiner of an emoji belongs to it, and is no space.
# - A space of no width is not where an answer begins: stripping would leave it there.
_OFFICIAL = {
    ("q032", 0): ("a\u0301", "a"),
    ("q032", 1): ("e\u0301", "e"),
    ("q032", 5): ("cafe\u0301", "cafe"),
    ("q032", 14): ("zero\u200b", "zero"),
    ("q032", 15): ("width", "\u200bwidth"),
}
_LOWER = {
    **_OFFICIAL,
    ("q019", 0): ("", "\u6771"),
    ("q019", 39): ("\U0001f469\u200d", "\U0001f469"),
    ("q019", 40): ("", "\u200d"),
}
DIFFERENCES = {
    "own_384_official": _LOWER,
    "own_64_official": _LOWER,
    "own_64_cased_official": {
        **_OFFICIAL,
        **_MARK,
        ("q019", 45): ("\U0001f469\u200d", "\U0001f469"),
        ("q032", 21): ("A\u030a", "A"),
    },
    "own_96_small": {
        ("q005", 0): ("", "C"),
        ("q019", 0): ("", "\u6771"),
        ("q032", 0): ("a\u0301", "a"),
        ("q032", 1): ("e\u0301", "e"),
        ("q032", 19): ("e\u0301", "e"),
        ("q032", 36): ("zero\u200b", "zero"),
        ("q032", 37): ("", "\u200b"),
        ("q032", 50): ("o\u0308", "o"),
    },
}


def test_features_are_the_released_ones(recorded):
    windows = recorded.windows()
    expected = recorded.arrays
    assert len(windows) == len(expected["predict/input_ids"])
    length = recorded.lengths.max_seq_length
    for i, window in enumerate(windows):
        found = window.make_inputs(length)
        for name, values in found.items():
            assert (values == expected[f"predict/{name}"][i]).all(), (name, i)
        max_context = np.zeros(length)
        after = window.context_start + len(window.max_context)
        max_context[window.context_start : after] = window.max_context
        assert (max_context == expected["predict/max_context"][i]).all(), i
        assert len(window.ids) == expected["predict/paragraph_len"][i]


def test_targets_are_the_released_ones(recorded):
    windows = recorded.windows(training=True)
    for name in ("start_position", "end_position"):
        found = [getattr(window, name) for window in windows]
        assert found == recorded.arrays[f"train/{name}"].tolist(), name


def test_offsets_are_the_released_ones_except_for_a_few(recorded):
    about = {
        question.id: paragraph.questions[0].id
        for paragraph in recorded.dataset.paragraphs
        for question in paragraph.questions
    }
    found = {}
    for window, released, index in zip(
        recorded.windows(),
        recorded.released_spans(),
        recorded.arrays["predict/doc_span_index"].tolist(),
        strict=True,
    ):
        text = window.text
        # The tokens of a context that fit into a window.
        size = recorded.lengths.max_seq_length - window.context_start - 1
        step = min(recorded.lengths.doc_stride, size)
        for token, (ours, theirs) in enumerate(
            zip(window.spans, released, strict=True), index * step
        ):
            begin, end = theirs
            bare = text[begin:end].strip()
            begin += text[begin:end].index(bare)
            # The release finds a word mark in the space before its word.
            empty = ours[0] == ours[1] and not bare
            if not empty and tuple(ours) != (begin, begin + len(bare)):
                found[about[window.question.id], token] = (text[slice(*ours)], bare)
    assert found == DIFFERENCES[recorded.name]


def test_no_question_is_dropped(recorded):
    arguments = recorded.dataset, recorded.tokenizer, recorded.lengths
    windows = list(features.make_windows(*arguments, training=True))
    asked = [question.id for question in recorded.dataset.questions]
    assert list(dict.fromkeys(window.question.id for window in windows)) == asked
    # Hangul, which the release could not align.
    (window,) = [w for w in windows if w.question.id == "q023" and w.start_position]
    start = window.context_start
    places = window.start_position - start, window.end_position - start
    assert window.extract_answer(*places) == (0, 3, "\uc11c\uc6b8\uc740")


# The ids of the pieces in conftest.py.
PAD, UNK, CLS, SEP, WHO, RAN, MARK, A, B, C, D, E, F, G, H, X = range(16)


def lengths(*sizes):
    names = ("max_seq_length", "doc_stride", "max_query_length")
    return SquadSettings(**dict(zip(names, sizes, strict=True)))


LENGTHS = lengths(9, 3, 2)


def test_windows_worked_by_hand(pieces, dataset):
    context = "a b  cx d e f g h"
    data = dataset((context, ("who ran?", "cx d", 5), ("ran", None)))
    found = list(features.make_windows(data, pieces, LENGTHS, training=True))
    assert [window.ids.tolist() for window in found] == [
        # The question is cut off after two tokens; four of the context fit.
        [CLS, WHO, RAN, SEP, A, B, C, X, SEP],
        [CLS, WHO, RAN, SEP, X, D, E, F, SEP],
        [CLS, WHO, RAN, SEP, F, G, H, SEP],
        # A shorter question leaves room for five.
        [CLS, RAN, SEP, A, B, C, X, D, SEP],
        [CLS, RAN, SEP, X, D, E, F, G, SEP],
        [CLS, RAN, SEP, F, G, H, SEP],
    ]
    assert [window.max_context.tolist() for window in found] == [
        # "##x" has no text before it in the second window, nor after it in the first:
        # the first stays. "f" likewise, but the third window is shorter.
        [True, True, True, True],
        [False, True, True, True],
        [False, True, True],
        [True, True, True, True, False],
        [False, True, True, True, False],
        [False, True, True],
    ]
    assert [(w.start_position, w.end_position) for w in found] == [(0, 0)] * 6
    assert found[4].spans.tolist() == [[6, 7], [8, 9], [10, 11], [12, 13], [14, 15]]
    assert found[4].extract_answer(0, 2) == (6, 11, "x d e")


def test_a_word_mark_at_the_end_adds_no_space_to_an_answer(pieces, dataset):
    data = dataset(("a  b", ("who", None)))
    (window,) = features.make_windows(data, pieces, LENGTHS)
    # As SentencePiece gives it: "a", a word mark, "b".
    spans = np.array([[0, 1], [3, 3], [3, 4]])
    window = dataclasses.replace(window, spans=spans)
    assert window.extract_answer(0, 1) == (0, 1, "a")
    assert window.extract_answer(1, 1) == (3, 3, "")
    assert window.extract_answer(1, 2) == (3, 4, "b")


def test_the_answer_is_a_target_where_all_of_it_is_in_the_window(pieces, dataset):
    data = dataset(("a b c d e f g h", ("who ran?", " d e", 5)))
    found = features.make_windows(data, pieces, LENGTHS, training=True)
    batch = found.make_batch(range(3), 9, targets=True)
    # Of "d e", only "d" is in the first.
    assert batch["start_positions"].tolist() == [0, 4, 0]
    assert batch["end_positions"].tolist() == [0, 5, 0]
    assert batch["is_impossible"].tolist() == [1, 0, 1]
    assert batch["is_impossible"].dtype == batch["end_positions"].dtype == np.int32


def test_an_answer_without_pieces_is_marked_by_the_one_after(pieces, dataset):
    data = dataset(
        ("a \u200d b", ("who", "\u200d", 2)),
        ("a b \u200d", ("who", "\u200d", 4)),
        ("\u200d", ("who", "\u200d", 0)),
    )
    found = features.make_windows(data, pieces, LENGTHS, training=True)
    assert [window.start_position for window in found] == [4, 4, 0]


def test_a_long_window_counts_for_more_than_a_side(pieces, dataset):
    data = dataset(("a " * 700, ("who ran", None)))
    found = features.make_windows(data, pieces, lengths(505, 400, 2))
    first, second = (window.max_context for window in found)
    # Of 500 and 300 tokens. Piece 450 has 49 after it in the first, 50 before it in the
    # second, and 49 + 5 is more than 50 + 3; but 48 + 5 is less than 51 + 3.
    assert first.nonzero()[0].tolist() == list(range(451))
    assert second.nonzero()[0].tolist() == list(range(51, 300))


@pytest.mark.parametrize(("stride", "split"), [(1, 0), (3, 0), (4, 2), (99, 2)])
def test_answers_that_no_window_holds_are_counted(pieces, stride, split, dataset):
    asked = [("who ran", "a b", 0), ("who ran", "d e", 6), ("who ran", "h a", 14)]
    data = dataset(("a b c d e f g h a", *asked, ("who ran", None)))
    settings = lengths(8 + 1, stride, 2)
    assert features.make_windows(data, pieces, settings).split_answer_count == 0
    found = features.make_windows(data, pieces, settings, training=True)
    assert found.split_answer_count == split
    whole = {window.question.id for window in found if window.start_position}
    assert len(whole) == 3 - split


def test_a_question_that_is_left_out_has_no_window(pieces, dataset):
    asked = [("who", "b", 2), ("ran", "nowhere", 0), ("who ran", None)]
    data = dataset(("a b", *asked))
    tokens = features.encode(data, pieces, training=True, skip_bad_rows=True)
    found = features.Windows(data, tokens, pieces, LENGTHS)
    assert [window.question.id for window in found] == ["q00", "q02"]
    assert found.bounds.tolist() == [0, 1, 1, 2]
