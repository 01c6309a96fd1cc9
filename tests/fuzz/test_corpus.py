"""Every input that ever broke a reader is taken or refused in one line."""

from pathlib import Path

import pytest
from invariants import check
from readers import READERS

INPUTS = sorted(Path(__file__).parent.glob("corpus/*/*"))


@pytest.mark.parametrize("source", INPUTS, ids=lambda path: path.name)
def test_input_that_broke_a_reader(source, tmp_path):
    folder = tmp_path / "input"
    folder.mkdir()
    for path in source.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    check(READERS[source.parent.name], folder)
