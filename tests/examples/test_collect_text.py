import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(EXAMPLES / "collect_text.py"))


def test_prose_is_kept_and_everything_else_left_out(script):
    text = """Pads the *rows* of an array, see :func:`numpy.pad`.

Widths are given in ``pixels``. Rows that
are too long stay `as they are <x.html>`_. Here x = 3 is a formula.

* The first item ends here.
* The second one goes
  on in this line [2]_.

::

    Some indented code.

Args:
    rows: The array to pad. It must have two axes.

    More about the rows of the array.

After the list comes more prose?

Notes
-----
These words are "worth" keeping.

Parameters
----------
width : int
    How many pixels to put in front.

    >>> pad(rows, 3)
    The result is in the doctest.
"""
    assert script["clean"](text) == [
        "Widths are given in pixels.",
        "Rows that are too long stay as they are.",
        "The first item ends here.",
        "The second one goes on in this line.",
        "After the list comes more prose?",
        'These words are "worth" keeping.',
    ]


@pytest.mark.parametrize(
    "sentence, kept",
    [
        ("This is a sentence, e.g. a short one (of 2 parts).", True),
        ("Too short a one.", True),
        ("Too short.", False),
        ("no capital begins this line.", False),
        ("No full stop ends this line", False),
        ("The path is albert/config.py today.", False),
        ("The name is input_ids in records.", False),
        ("Call model.fit to train the model.", False),
        ("ONE TWO Three Four Five six.", False),
        ("Word " * 61 + "more.", False),
    ],
)
def test_a_sentence_is_plain_english(script, sentence, kept):
    assert list(script["sentences"](sentence)) == ([sentence] if kept else [])


def test_sentences_end_before_a_capital_but_not_within_abbreviations(script):
    found = script["sentences"](
        "It is small, i.e. Tiny things are. Is it the last? It is not the last."
    )
    assert list(found) == [
        "It is small, i.e. Tiny things are.",
        "Is it the last?",
        "It is not the last.",
    ]


def test_docstrings_are_read_without_running_the_file(script, tmp_path):
    path = tmp_path / "x.py"
    path.write_text(
        '"""Of the module."""\nraise SystemExit\n'
        'class A:\n    """Of the class."""\n\n'
        '    def f(self):\n        """Of the function."""\n'
    )
    assert sorted(script["docstrings"](path)) == [
        "Of the class.",
        "Of the function.",
        "Of the module.",
    ]
    path.write_text("not python")
    assert not list(script["docstrings"](path))


def test_only_a_package_s_own_files_are_read_in_order(script, tmp_path):
    for name in ("b.py", "a/c.py", "tests/d.py", "site-packages/e.py", "a/f.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = script["source_files"](tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in found] == ["b.py", "a/c.py"]
