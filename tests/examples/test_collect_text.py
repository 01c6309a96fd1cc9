import runpy

import pytest
from helpers import ROOT


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(ROOT / "examples/collect_text.py"))


def test_prose_is_kept_and_everything_else_left_out(script):
    text = """Pads the *rows* of an array, see :func:`numpy.pad`.

Widths are given in ``pixels``. Rows that
are too long stay `as they are <x.html>`_. Here x = 3 is a formula.

* The second item goes
  on in this line [2]_.

::

    Some indented code.

Args:
    rows: The array to pad. It must have two axes.

After the list comes more prose?

Parameters
----------
width : int
    How many pixels to put in front.

    >>> pad(rows, 3)
"""
    assert script["clean"](text) == [
        "Widths are given in pixels.",
        "Rows that are too long stay as they are.",
        "The second item goes on in this line.",
        "After the list comes more prose?",
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
