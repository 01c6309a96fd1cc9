"""What holds for every script: --help comes at once, and a mistake is one line."""

import inspect
import os
import shlex
import subprocess
import sys

import pytest
from helpers import ROOT

from albert_tf import commands

SCRIPTS = sorted(path.name for path in ROOT.glob("*.py"))
SLOW = {"keras", "matplotlib", "official", "orbit", "tensorflow", "torch"}


def run(script, *arguments):
    return subprocess.run(
        [sys.executable, "-X", "importtime", str(ROOT / script), *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )


def imported(result):
    lines = [x for x in result.stderr.splitlines() if x.startswith("import time:")]
    return {line.split("|")[2].strip().split(".")[0] for line in lines}


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_and_a_mistake_need_no_tensorflow(script):
    result = run(script, "--help")
    assert result.returncode == 0
    assert "absl" in imported(result)
    assert not imported(result) & SLOW
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[2].startswith(f"    python {script} --")
    assert " (required)" in result.stdout
    mistake = run(script)
    assert mistake.returncode == 2
    assert mistake.stderr.splitlines()[-1].endswith(": required, see --help")
    assert not imported(mistake) & SLOW


@pytest.mark.parametrize(("name", "script"), commands.SCRIPTS.items())
def test_the_examples_of_the_help_can_be_pasted(name, script, settings_of):
    text = inspect.getdoc(commands.command(name))
    lines = text.replace("\\\n", "").splitlines()
    examples = [shlex.split(line) for line in lines if line.startswith("    python ")]
    assert examples
    for program, name, *arguments in examples:
        assert (program, name) == ("python", script)
        settings_of(script, *arguments)
