import dataclasses
import os
import subprocess
import sys
from typing import Literal

import pytest
from absl import logging

from albert_tf import errors, flags


@dataclasses.dataclass(frozen=True, kw_only=True)
class Base(flags.Settings):
    """How to go about it.

    Further remarks.

    Args:
        seed: Seed of the base.
        mode: Objective.
        wrap: Wrap.
    """

    seed: int = flags.field(3)
    mode: Literal["sop", "nsp"] = flags.field("sop")
    wrap: bool | None = flags.field(None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Base):
    """What to do.

    Args:
        text: Files.
        rate: Rate.
        seed: Seed, over
            two lines.
        out: Folder.
        extra: More.
    """

    text: tuple[str, ...] = flags.field(("a", "b"))
    rate: float = flags.field(0.5, alias="speed")
    seed: int = flags.field(7)
    out: str = flags.field()
    extra: tuple[str, ...] | None = flags.field(None, may_be_empty=True)


HELP = """Makes things.

What to do:
  --text=TEXT,...
      Files. (default: a,b)
  --rate=NUMBER
      Rate. (default: 0.5; also --speed)
  --out=TEXT
      Folder. (required)
  --extra=TEXT,...
      More.

How to go about it:
  --seed=INTEGER
      Seed, over two lines. (default: 7)
  --mode=sop|nsp
      Objective. (default: sop)
  --[no]wrap
      Wrap.

"""


@pytest.fixture
def call(monkeypatch, capsys):
    """Runs a command; returns its status, its output and its errors."""
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "")  # restored at the end
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL")
    level = logging.get_verbosity()

    def run(*arguments, main=print, settings=(Settings,), **options):
        given = {"text": "Makes things.", "argv": ["script", *arguments], **options}
        with pytest.raises(SystemExit) as end:
            flags.run_main(main, settings, **given)
        return end.value.code or 0, *capsys.readouterr()

    yield run
    logging.set_verbosity(level)


@pytest.fixture
def parse(call):
    """Returns the settings and the positional arguments of a command line."""

    def run(*arguments):
        values = []
        main = {"main": lambda *given: values.extend(given), "takes_arguments": True}
        assert call("--out=x", *arguments, **main) == (0, "", "")
        return values

    return run


@pytest.mark.parametrize("flag", ["--help", "--helpshort", "-h", "-?"])
def test_help_lists_settings_as_declared_under_their_classes(call, flag):
    code, text, errors = call(flag)
    listed, common = text.split("All commands:\n")
    assert (code, errors) == (0, "")
    assert listed == HELP
    assert "\n  --verbosity=INTEGER\n" in common
    assert "absl" not in common.replace("prints absl's", "")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--mode=mlm", "--mode=mlm: must be one of sop, nsp"),
        ("--seed=1.5", "--seed=1.5: must be an integer"),
        ("--rate=a: b", "--rate=a: b: must be a number"),
        ("--wrap=perhaps", "--wrap=perhaps: must be true or false"),
        ("--qq", "Unknown command line flag 'qq'"),
        ("--wrp", "Unknown command line flag 'wrp'. Did you mean: wrap ?"),
        ("--out", "Missing value for flag --out"),
        ("--nowrap=1", "--nowrap=1 does not take an argument"),
        ("--seed=3", "--out: required, see --help"),
        (
            "stray",
            "unexpected argument 'stray'; every setting is a flag (--name=value), see "
            "--help",
        ),
        ("--flagfile=no/file", "--flagfile=no/file: No such file or directory"),
        ("--flagfile=latin-1", "--flagfile: not UTF-8; each line must be a flag"),
    ],
)
def test_a_usage_error_is_one_line_and_ends_with_2(
    call, argument, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "latin-1").write_bytes(b"--seed=\xff")
    assert call(argument) == (2, "", f"error: {message}\n")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--rate=0.25", "--mode=nsp", "--text=a"], {"rate": 0.25, "mode": "nsp"}),
        (["--nowrap", "--speed=2"], {"wrap": False, "rate": 2.0}),
        (["--wrap", "False"], {"wrap": False}),
        (["-wrap", "false", "--rate", "1"], {"wrap": False, "rate": 1.0}),
        (["--wrap", "0", "--seed=3"], {"wrap": False, "seed": 3}),
        (["--nowrap", "--wrap", "TRUE"], {"wrap": True}),
        (["--wrap", "False", "--flagfile=own"], {"wrap": True, "seed": 1}),
        (["--flagfile=own", "--seed", "1"], {"wrap": True, "seed": 1}),
        (["--flagfile=commented"], {"wrap": False, "rate": 0.25}),
        (["--extra", "--wrap=0"], {"wrap": False, "extra": ()}),
        (["--seed=3", "--extra"], {"seed": 3, "extra": ()}),
        (["--extra", "a,b"], {"extra": ("a", "b")}),
    ],
)
def test_values_truth_values_and_flagfiles(
    arguments, expected, parse, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").write_text("\ufeff--seed=1\n\n--wrap\n", "utf-8")
    text = "\ufeff# comment\r\n--wrap False\r\n--rate   0.25\r\n"
    (tmp_path / "commented").write_text(text, "utf-8")
    expected = {"text": ("a",), "out": "x", **expected}
    assert parse("--text=a", *arguments) == [Settings(**expected), []]


def test_a_truth_value_is_an_argument_where_no_switch_is_before_it(parse):
    for argument in ("no", "maybe"):
        assert parse("--wrap", argument)[1] == [argument]
    assert parse("--mode", "sop", "true")[1] == ["true"]


def test_the_cause_of_a_mistake_is_printed_when_asked(call):
    def main():
        with errors.wrap_read("x.txt"):
            {}["lost"]

    line = "error: x.txt: 'lost'; expected a readable file\n"
    assert call(main=main, settings=()) == (2, "", line)
    code, _, text = call("--verbosity=0", main=main, settings=())
    assert code == 2 and text.endswith(f"KeyError: 'lost'\n{line}")
    assert text.startswith("Traceback (most recent call last):")


def test_an_interrupt_ends_with_130(call):
    def main():
        raise KeyboardInterrupt

    assert call(main=main, settings=()) == (130, "", "interrupted\n")


@pytest.mark.parametrize(
    ("arguments", "given", "level"),
    [
        ((), None, "3"),
        ((), "1", "1"),
        (("--verbosity=1",), "3", "0"),
        (("--verbosity=-2",), None, "3"),
    ],
)
def test_tensorflow_logs_as_much_as_is_asked_for(
    call, monkeypatch, arguments, given, level
):
    if given:
        monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", given)
    assert call(*arguments, main=lambda: None, settings=())[0] == 0
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == level


CODE = """
from absl import logging
from albert_tf import flags
def main():
    logging.info("of no interest")
    logging.warning("of interest")
flags.run_main(main)"""


@pytest.mark.parametrize(("given", "told"), [((), 1), (("--verbosity=0",), 2)])
def test_libraries_tell_of_their_work_when_asked(given, told):
    command = [sys.executable, "-c", CODE, *given]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0
    assert len(result.stderr.splitlines()) == told, result.stderr
