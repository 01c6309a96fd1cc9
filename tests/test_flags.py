import dataclasses
import os
import subprocess
import sys
from typing import Literal

import pytest
from absl import flags as absl_flags

from albert_tf import flags


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(flags.Settings):
    """What to do.

    Args:
        input_file: Text files.
        steps: Updates.
        rate: Learning rate.
        mode: Objective.
        name: A name.
        lower: Lower-case.
        extra: More.
    """

    input_file: tuple[str, ...] = flags.field()
    steps: int = flags.field(7, alias="train_step")
    rate: float = flags.field(0.5)
    mode: Literal["sop", "nsp"] = flags.field("sop")
    name: str | None = flags.field(None)
    lower: bool = flags.field(True)
    extra: tuple[str, ...] | None = flags.field(None, may_be_empty=True)


@pytest.fixture
def parse(monkeypatch):
    """Returns the settings and the positional arguments of a command line."""
    monkeypatch.setattr(absl_flags, "FLAGS", absl_flags.FlagValues())
    monkeypatch.setattr(flags, "_defined", [])
    flags.define(Settings)

    def call(*arguments):
        given = ["script", "--input_file=a", *arguments]
        _, *rest = absl_flags.FLAGS(flags._expand(given))
        return flags.read(Settings), rest

    return call


def run_script(body, *arguments, **environ):
    code = f"from albert_tf import errors, flags\n{body}\nflags.run(main)"
    inherited = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env=inherited | environ,
    )


@pytest.mark.parametrize("given", [(), ("--verbosity=0",)])
def test_the_cause_of_a_mistake_is_printed_when_asked(given):
    body = """
def main():
    with errors.wrap_read("x.txt"):
        {}["lost"]"""
    result = run_script(body, *given)
    *before, line = result.stderr.splitlines()
    assert line == "error: x.txt: 'lost'; expected a readable file"
    assert before[:1] + before[-1:] == [
        *(["Traceback (most recent call last):", "KeyError: 'lost'"] if given else [])
    ]
    assert result.returncode == 2


def test_an_interrupt_ends_with_130():
    result = run_script("def main(): raise KeyboardInterrupt")
    assert (result.returncode, result.stderr) == (130, "interrupted\n")


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


@pytest.mark.parametrize(
    ("arguments", "environ", "level"),
    [
        ((), {}, "3"),
        ((), {"TF_CPP_MIN_LOG_LEVEL": "1"}, "1"),
        (("--verbosity=1",), {"TF_CPP_MIN_LOG_LEVEL": "3"}, "0"),
        (("--verbosity=-2",), {}, "3"),
    ],
)
def test_tensorflow_logs_as_much_as_is_asked_for(arguments, environ, level):
    body = """
import os
def main(): print(os.environ["TF_CPP_MIN_LOG_LEVEL"])"""
    assert run_script(body, *arguments, **environ).stdout == level + "\n"


SCRIPT = '''
__doc__ = "Makes things."
import dataclasses
from typing import Literal
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
    """
    text: tuple[str, ...] = flags.field(("a", "b"))
    rate: float = flags.field(0.5, alias="speed")
    seed: int = flags.field(7)
    out: str = flags.field()
def main(): print(flags.read(Settings))
flags.define(Settings)'''


HELP = """Makes things.

What to do:
  --text=TEXT,...
      Files. (default: a,b)
  --rate=NUMBER
      Rate. (default: 0.5; also --speed)
  --out=TEXT
      Folder. (required)

How to go about it:
  --seed=INTEGER
      Seed, over two lines. (default: 7)
  --mode=sop|nsp
      Objective. (default: sop)
  --[no]wrap
      Wrap.

"""


@pytest.mark.parametrize("flag", ["--help", "--helpshort", "-h", "-?"])
def test_help_lists_settings_as_declared_under_their_classes(flag):
    result = run_script(SCRIPT, flag)
    listed, common = result.stdout.split("All commands:\n")
    assert (result.returncode, result.stderr) == (0, "")
    assert listed == HELP
    assert "\n  --verbosity=INTEGER\n" in common
    assert "absl" not in common.replace("also absl's", "")


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
    ],
)
def test_a_usage_error_is_one_line_and_ends_with_2(argument, message):
    result = run_script(SCRIPT, argument)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"error: {message}\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["--rate=0.25", "--mode=nsp", "--nolower", "--name=x", "--train_step=9"],
            {"rate": 0.25, "mode": "nsp", "lower": False, "name": "x", "steps": 9},
        ),
        (["--lower", "False"], {"lower": False}),
        (["-lower", "false", "--rate", "1"], {"lower": False, "rate": 1.0}),
        (["--lower", "0", "--steps=3"], {"lower": False, "steps": 3}),
        (["--nolower", "--lower", "TRUE"], {"lower": True}),
        (["--lower", "False", "--flagfile=own"], {"lower": True, "steps": 1}),
        (["--flagfile=own", "--steps", "1"], {"steps": 1}),
        (["--flagfile=commented"], {"lower": False, "rate": 0.25}),
        (["--extra", "--lower=0"], {"lower": False, "extra": ()}),
        (["--steps=3", "--extra"], {"steps": 3, "extra": ()}),
        (["--extra", "a,b"], {"extra": ("a", "b")}),
    ],
)
def test_truth_values_and_flagfiles(arguments, expected, parse, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").write_text("\ufeff--steps=1\n\n--lower\n", "utf-8")
    text = "\ufeff# comment\r\n--lower False\r\n--rate   0.25\r\n"
    (tmp_path / "commented").write_text(text, "utf-8")
    assert parse(*arguments) == (Settings(input_file=("a",), **expected), [])


def test_a_truth_value_is_an_argument_where_no_switch_is_before_it(parse):
    for argument in ("no", "maybe"):
        assert parse("--lower", argument)[1] == [argument]
    assert parse("--name", "false", "true")[1] == ["true"]


def test_a_flagfile_has_to_be_text(tmp_path):
    (tmp_path / "flags").write_bytes(b"--seed=\xff")
    result = run_script(SCRIPT, f"--flagfile={tmp_path / 'flags'}")
    assert (result.returncode, result.stderr) == (
        2,
        "error: --flagfile: not UTF-8; each line must be a flag\n",
    )
