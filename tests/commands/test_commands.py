"""`albert-tf`: its help, its version, and a command as its script."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import albert_tf
from albert_tf import commands
from albert_tf.__main__ import main

ROOT = Path(__file__).parents[2]


@pytest.fixture
def call(monkeypatch, capsys):
    """Returns the status, the output and the errors of `albert-tf` with arguments."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["albert-tf", *arguments])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code
        return code, *capsys.readouterr()

    return run


def test_help_fits_a_screen_and_names_every_command(call):
    code, text, errors = call("--help")
    assert (code, errors) == (0, "")
    lines = text.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    listed = re.findall(r"^    ([\w-]+)  +\w", text, re.MULTILINE)
    assert listed == list(commands.COMMANDS)
    for name in listed:
        assert commands.find_command(name).__doc__


def test_every_script_of_the_checkout_is_a_command():
    scripts = {path.name for path in ROOT.glob("*.py")}
    assert scripts == set(commands.SCRIPTS.values())
    for name, script in commands.SCRIPTS.items():
        assert f'commands.run_command("{name}")' in (ROOT / script).read_text()


def test_the_version_is_that_of_the_package(call):
    assert call("--version") == (0, f"albert_tf {albert_tf.__version__}\n", "")


@pytest.mark.parametrize("arguments", [["clasify"], ["--task_name=x"], []])
def test_an_unknown_command_is_one_line(call, arguments):
    name = arguments[0] if arguments else "no command"
    expected = ", ".join(commands.COMMANDS)
    assert call(*arguments) == (2, "", f"error: {name}: expected one of {expected}\n")


def test_a_commands_help_is_its_scripts_under_its_own_name(call):
    words = [sys.executable, "run_pretraining.py", "--help"]
    script = subprocess.run(words, cwd=ROOT, capture_output=True, text=True).stdout
    _, command, _ = call("pretrain", "--help")
    assert "    albert-tf pretrain --albert_config_file=" in command
    assert "records of albert-tf corpus." in command
    assert not re.search(r"python |\w+\.py\b", command)
    for name, other in commands.SCRIPTS.items():
        for form in (f"python {other}", other):
            script = script.replace(form, f"albert-tf {name}")
    assert command == script


def test_a_process_may_run_one_command_after_another(call):
    assert call("race") == (2, "", "error: --output_dir: required, see --help\n")
    code, _, errors = call("export", "--high_only")
    assert (code, errors) == (2, "error: Unknown command line flag 'high_only'\n")
    assert call("race", "--num_runs=x")[0] == 2
    code, _, errors = call("predict", "--model=x", "--top_k=0", "A.")
    assert (code, errors) == (2, "error: --top_k=0: must be at least 1\n")
    assert call("race", "stray")[2].startswith("error: unexpected argument 'stray'")
