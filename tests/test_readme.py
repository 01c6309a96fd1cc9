import fnmatch
import re
import shlex
from pathlib import Path

import pytest

from albert_tf.corpus import CorpusSettings

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\w*\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
COMMANDS = [
    shlex.split(line)[1:]
    for block in BLOCKS
    for line in block.replace("\\\n", "").splitlines()
    if re.match(r"(python|\S+/python) \w+\.py ", line)
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_scripts_take_the_commands_of_the_readme(command, settings_of, monkeypatch):
    monkeypatch.chdir(ROOT)  # they name recipes
    settings_of(*command)


def flags_of(script):
    [command] = [command for command in COMMANDS if command[0] == script]
    pairs = [flag.removeprefix("--").split("=", 1) for flag in command[1:]]
    return {pair[0]: pair[-1] for pair in pairs}


def test_pretraining_finds_what_the_commands_before_it_made():
    vocabulary = flags_of("train_sentencepiece.py")
    made = flags_of("create_pretraining_data.py")
    read = flags_of("run_pretraining.py")
    assert made["input_file"] == vocabulary["input_file"]
    assert made["spm_model_file"] == vocabulary["model_prefix"] + ".model"
    records = CorpusSettings(
        input_file=(made["input_file"],),
        output_file=(made["output_file"],),
        spm_model_file=made["spm_model_file"],
        eval_fraction=float(made.get("eval_fraction", 0)),
    )
    training = fnmatch.filter(records.targets, read["input_file"])
    assert set(training) >= set(records.files_of("train"))
    assert read["eval_input_file"] in records.targets
    assert read["eval_input_file"] not in training
