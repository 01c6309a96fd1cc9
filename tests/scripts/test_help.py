"""What holds for every script: --help comes at once, and a mistake is one line."""

import inspect
import os
import shlex
import subprocess
import sys

import pytest
from helpers import ROOT

from albert_tf import commands

# Runs each script without flags and with --help.
RUN = """
import io, runpy, sys
from contextlib import redirect_stderr, redirect_stdout
for script in sys.argv[2:]:
    for status, flags in ((2, []), (0, ["--help"])):
        sys.argv, printed = [script, *flags], io.StringIO()
        try:
            with redirect_stdout(printed), redirect_stderr(printed):
                runpy.run_path(script, run_name="__main__")
        except SystemExit as end:
            assert end.code == status, (script, printed.getvalue())
        lines = printed.getvalue().splitlines()
        if not flags:
            assert lines[0].endswith(": required, see --help") and not lines[1:], lines
    assert max(map(len, lines)) <= 80, script
    assert lines[2].startswith(f"    python {script} --"), script
    assert " (required)" in printed.getvalue(), script
    slow = {"keras", "matplotlib", "official", "orbit", "tensorflow", "torch"}
    if script != "train_sentencepiece.py":
        slow.add("numpy")
    assert not slow & sys.modules.keys(), script
"""


def test_help_and_a_mistake_need_no_tensorflow():
    scripts = sorted(path.name for path in ROOT.glob("*.py"))
    assert scripts == sorted(commands.SCRIPTS.values())
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", RUN, "", *scripts]
    assert subprocess.run(command, cwd=ROOT, env=environ).returncode == 0


@pytest.mark.parametrize(("name", "script"), commands.SCRIPTS.items())
def test_the_examples_of_the_help_can_be_pasted(name, script, settings_of):
    text = inspect.getdoc(commands.find_command(name))
    lines = text.replace("\\\n", "").splitlines()
    examples = [shlex.split(line) for line in lines if line.startswith("    python ")]
    assert examples
    for program, name, *arguments in examples:
        assert (program, name) == ("python", script)
        settings_of(script, *arguments)
