"""docs/data_flow.md shows what the code makes.

After a change of the generator's draws, `UPDATE_PAGES=1 pytest` of this file writes the
records on the page anew; choose a --seed there that shows padding and both labels.
"""

import io
import os
import re
import runpy
import shlex
from pathlib import Path

import pytest

from albert_tf import corpus

ROOT = Path(__file__).parents[2]
PATH = ROOT / "docs" / "data_flow.md"
PAGE = PATH.read_text(encoding="utf-8")
BLOCKS = {
    kind: text
    for kind, text in re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.S)
    if kind
}


@pytest.fixture
def settings(tmp_path):
    """The generator's settings in the page's command, on the page's text."""
    (tmp_path / "bridge.txt").write_text(BLOCKS["text"])
    [command] = re.findall(r"^python create_(?:.*\\\n)*.*", PAGE, re.MULTILINE)
    flags = dict(
        flag.removeprefix("--").split("=")
        for flag in shlex.split(command.replace("\\\n", ""))[2:]
    )
    return corpus.CorpusSettings(
        input_file=(str(tmp_path / flags["input_file"]),),
        output_file=(str(tmp_path / flags["output_file"]),),
        spm_model_file=str(ROOT / flags["spm_model_file"]),
        max_seq_length=int(flags["max_seq_length"]),
        dupe_factor=int(flags["dupe_factor"]),
        random_seed=int(flags["seed"]),
        num_workers=1,
    )


def test_the_page_shows_the_records(settings):
    corpus.generate(settings, io.StringIO())
    script = runpy.run_path(str(ROOT / "examples" / "show_records.py"))
    tables = "\n\n".join(script["tables"](settings.output_file[0], 2)) + "\n"
    if os.environ.get("UPDATE_PAGES"):
        PATH.write_text(PAGE.replace(BLOCKS["records"], tables), encoding="utf-8")
    assert BLOCKS["records"] == tables, "UPDATE_PAGES=1 writes it"
    assert {line[:22] for line in tables.splitlines() if "labels" in line} == {
        "next_sentence_labels 0",
        "next_sentence_labels 1",
    }
