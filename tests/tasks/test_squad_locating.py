import pytest

from albert_tf.errors import InputError
from albert_tf.tasks.squad import locating, reading
from albert_tf.text import tokenization


@pytest.fixture
def word_pieces(tmp_path):
    """Keeps case and accents."""
    path = tmp_path / "vocab.txt"
    words = ["Caf\u00e9", "caf\u00e9", "Tea", "tea", "and", "9", "pm", "##pm", "."]
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words]))
    return tokenization.WordPieceTokenizer(str(path), do_lower_case=False)


def dataset(*paragraphs):
    """Makes paragraphs of (context, (text, start) or None, ...), questions q0, q1..."""
    made, number = [], 0
    for context, *answers in paragraphs:
        questions = []
        for answer in answers:
            known = () if answer is None else (reading.Answer(*answer),)
            questions.append(reading.Question(f"q{number}", "?", known, answer is None))
            number += 1
        made.append(reading.Paragraph(context, tuple(questions)))
    return reading.Dataset("f.json", "2.0", tuple(made))


def places(found):
    return [answer.start for answer in found.answers.values()]


FOXES = "and the fox saw the fox"


@pytest.mark.parametrize(
    ("start", "expected"),
    [(4, 4), (16, 16), (0, 4), (9, 4), (11, 16), (99, 16), (-5, 4)],
)
def test_an_answer_is_taken_from_the_nearest_place(tokenizer, start, expected):
    data = dataset((FOXES, ("the fox", start), None, ("saw", 12)))
    found = locating.locate(data, tokenizer)
    assert found.answers == {
        0: reading.Answer("the fox", expected),
        2: reading.Answer("saw", 12),
    }
    warning = (
        f"Warning: f.json: 1 of 2 answers are not at answer_start and were moved to "
        f"the nearest location, by these numbers of characters: 'q0' "
        f"({expected - start:+})"
    )
    assert found.notes == ([] if start == expected else [warning])


EMOJI = "\U0001f44d\U0001f44d no no. Caf\u00e9: no."
FLAGS = "caf\u00e9 no. \U0001f1eb\U0001f1f7 no"
# The places of each "no" in characters.
PLACES = ((3, 6, 16), (5, 12))


UNITS = [("utf-16-le", 2, "UTF-16 units"), ("utf-8", 1, "bytes of UTF-8")]


@pytest.mark.parametrize(("encoding", "size", "unit"), UNITS)
def test_other_units_are_understood_where_all_answers_agree(
    tokenizer, encoding, size, unit
):
    def counted(context, place):
        return len(context[:place].encode(encoding)) // size

    contexts = (EMOJI, FLAGS)
    paragraphs = [
        (context, *(("no", counted(context, at)) for at in starts))
        for context, starts in zip(contexts, PLACES, strict=True)
    ]
    found = locating.locate(dataset(*paragraphs), tokenizer)
    assert places(found) == [3, 6, 16, 5, 12]
    assert found.notes == [f"f.json: every answer_start counts {unit}"]
    # One that is elsewhere, and all are counted in characters again.
    wrong = (FOXES, ("saw", 0))
    found = locating.locate(dataset(*paragraphs, wrong), tokenizer)
    assert places(found)[-1] == 12
    [note] = found.notes
    assert "of 6 answers are not at answer_start" in note and "'q5' (+12)" in note


# Of ../shared/field/squad_mixed.json: case, no-break space, normal form, line end.
MIXED = "The Caf\u00e9 of Anna is open until 9\u00a0pm.\r\nIt serves Tea and cake."


@pytest.mark.parametrize(
    ("answer", "begin", "part"),
    [
        (("tea and cake", 48), 48, "Tea and cake"),
        (("9 pm", 31), 31, "9\u00a0pm"),
        (("Cafe\u0301", 4), 4, "Caf\u00e9"),
        ((" CAFE  of ", 3), 4, "Caf\u00e9 of"),
        (("pm.\nIt serves", 33), 33, "pm.\r\nIt serves"),
        (("\uff34ea", 0), 48, "Tea"),
    ],
)
def test_answers_are_found_as_the_tokenizer_sees_them(tokenizer, answer, begin, part):
    found = locating.locate(dataset((MIXED, answer)), tokenizer)
    assert found.answers == {0: reading.Answer(part, begin)}
    assert len(found.notes) == (answer[1] + answer[0].startswith(" ") != begin)


def test_marks_of_a_decomposed_context_belong_to_the_answer(tokenizer):
    found = locating.locate(dataset(("a Cafe\u0301.", ("caf\u00e9", 2))), tokenizer)
    assert found.answers == {0: reading.Answer("Cafe\u0301", 2)}


def test_a_tokenizer_that_keeps_case_tells_it_apart(word_pieces):
    context = "Caf\u00e9 and  Tea. 9pm"
    answers = [("tea", 10), ("cafe", 0), ("and Tea", 5), ("9 pm", 15)]
    found = locating.locate(dataset((context, *answers)), word_pieces, True)
    assert found.answers == {2: reading.Answer("and  Tea", 5)}
    assert list(found.reasons) == [0, 1, 3]


BAD = dataset((FOXES, ("the fox", 4), ("cats", 0), (" ", 3), None))
REASONS = "'q1' (\"cats\" is not in its context), 'q2' (\" \" is not in its context)"


def test_questions_that_cannot_be_learned_are_named_together(tokenizer, refuses):
    with refuses(
        f"f.json: 2 of 4 questions have no answer to train on: {REASONS}; correct "
        f"the answers, or use --skip_bad_rows to leave such questions out"
    ):
        locating.locate(BAD, tokenizer)
    found = locating.locate(BAD, tokenizer, skip_bad_rows=True)
    assert (list(found.answers), list(found.reasons)) == ([0], [1, 2])
    assert found.notes == [f"Warning: f.json: 2 of 4 questions are left out: {REASONS}"]


def test_a_file_of_bad_questions_alone_is_refused(tokenizer):
    with pytest.raises(InputError, match=r"f\.json: 1 of 1 questions have no answer"):
        locating.locate(dataset((FOXES, ("cats", 0))), tokenizer, skip_bad_rows=True)
    open_one = reading.Question("q", "?", (), False)
    paragraphs = (reading.Paragraph(FOXES, (open_one,)),)
    data = reading.Dataset("f.json", "1.1", paragraphs)
    with pytest.raises(InputError, match=r"train on: 'q' \(no answer\); correct"):
        locating.locate(data, tokenizer)
