"""The clean-up of the release, and the letters that it loses."""

import functools

from albert_tf.corpus import marks
from albert_tf.text.tokenization import clean_text

PLAIN = [f"word{i}" for i in range(98)]


def _warning(words, clean=clean_text):
    spellings = marks.Spellings(clean, do_lower_case=True)
    spellings.add(" ".join(words))
    return spellings.warning()


def test_lost_marks_are_named_with_the_words_that_become_one():
    assert _warning([*PLAIN, "Її", "край,", "йод", "ії"]) == (
        "3.9% of the words lose their marks (йод -> иод, край -> краи, ії -> іі), and "  # noqa: RUF001
        "1 groups of words become one (ії/її); a vocabulary trained with "
        "--keep_accents keeps the marks"
    )


def test_two_words_in_a_hundred_may_be_names():
    assert _warning([*PLAIN, "café", "São"]) is None
    assert _warning([*PLAIN, "café", "São", "Köln"]) == (
        "3.0% of the words lose their marks (café -> cafe, köln -> koln, são -> sao); "
        "a vocabulary trained with --keep_accents keeps the marks"
    )


def test_kept_accents_lose_nothing():
    kept = functools.partial(clean_text, keep_accents=True)
    assert _warning(["Її", "край", "йод", "क्या"], kept) is None
