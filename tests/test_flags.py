import dataclasses
import subprocess
import sys
from typing import Literal

import pytest
from absl import flags as absl_flags

from albert_tf import flags


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    input_file: tuple[str, ...] = flags.field("Text files.")
    steps: int = flags.field("Updates.", 7, alias="train_step")
    rate: float = flags.field("Learning rate.", 0.5)
    mode: Literal["sop", "nsp"] = flags.field("Objective.", "sop")
    name: str | None = flags.field("A name.", None)
    lower: bool = flags.field("Lower-case.", True)


@pytest.fixture
def parse(monkeypatch):
    values = absl_flags.FlagValues()
    monkeypatch.setattr(absl_flags, "FLAGS", values)
    for name in ("bool", "integer", "float", "string", "enum", "list"):
        declare = getattr(absl_flags, f"DEFINE_{name}")
        monkeypatch.setattr(
            absl_flags,
            f"DEFINE_{name}",
            lambda *a, declare=declare: declare(*a, flag_values=values),
        )
    alias = absl_flags.DEFINE_alias
    monkeypatch.setattr(
        absl_flags, "DEFINE_alias", lambda n, o: alias(n, o, flag_values=values)
    )
    require = absl_flags.mark_flag_as_required
    monkeypatch.setattr(
        absl_flags, "mark_flag_as_required", lambda n: require(n, flag_values=values)
    )

    def call(*arguments, **defaults):
        flags.define(Settings, **defaults)
        values(["script", *arguments])
        return flags.read(Settings)

    return call


def test_values_reach_the_settings_with_their_types(parse):
    settings = parse(
        "--input_file=a,b", "--rate=0.25", "--mode=nsp", "--nolower", "--name=x"
    )
    assert settings == Settings(
        input_file=("a", "b"), rate=0.25, mode="nsp", lower=False, name="x"
    )


def test_alias_and_script_default_set_the_same_field(parse):
    assert parse("--input_file=a", "--train_step=9", rate=2.0) == Settings(
        input_file=("a",), steps=9, rate=2.0
    )


def test_a_field_without_default_is_a_required_flag(parse):
    with pytest.raises(absl_flags.IllegalFlagValueError, match="--input_file"):
        parse("--steps=3")


def test_a_value_outside_the_choices_is_refused(parse):
    with pytest.raises(absl_flags.IllegalFlagValueError, match="<sop\\|nsp>"):
        parse("--input_file=a", "--mode=mlm")


def run_script(body, *arguments):
    code = f"from albert_tf import errors, flags\n{body}\nflags.run(main)"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True
    )


def test_a_users_mistake_is_one_line_without_traceback():
    result = run_script("def main(): raise errors.InputError('x.txt: empty file')")
    assert (result.returncode, result.stderr) == (2, "error: x.txt: empty file\n")


def test_a_stray_argument_is_refused_by_name():
    result = run_script("def main(): pass", "stray")
    assert result.returncode == 2
    assert result.stderr == (
        "error: unexpected argument 'stray'; every setting is a flag "
        "(--name=value), see --help\n"
    )


@pytest.mark.parametrize(("given", "told"), [((), 1), (("--verbosity=0",), 2)])
def test_libraries_tell_of_their_work_when_asked(given, told):
    body = """
from absl import logging
def main():
    logging.info("of no interest")
    logging.warning("of interest")"""
    result = run_script(body, *given)
    assert result.returncode == 0
    assert len(result.stderr.splitlines()) == told, result.stderr


def test_help_lists_the_flags_of_a_script():
    body = """
import dataclasses
@dataclasses.dataclass(frozen=True)
class Settings:
    depth: int = flags.field("How deep.", 3)
def main(): pass
flags.define(Settings)"""
    result = run_script(body, "--help")
    assert "--depth: How deep.\n    (default: '3')" in result.stdout
