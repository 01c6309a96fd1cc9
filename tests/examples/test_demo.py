import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def demo(tmp_path, monkeypatch):
    """The names of demo.py, with an empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return runpy.run_path(str(EXAMPLES / "demo.py"))


def test_steps_follow_from_minutes_less_those_of_the_other_stages(demo):
    rate, other = demo["STEPS_A_MINUTE"], demo["OTHER_MINUTES"]
    assert demo["steps_for"](str(other + 3)) == 3 * rate
    assert demo["steps_for"](f"{other + 0.5}") == round(rate / 2)
    assert demo["steps_for"]("0") == 20


@pytest.mark.parametrize("minutes", ["ten", "", "inf", "nan"])
def test_minutes_that_are_no_number_are_refused(demo, minutes):
    with pytest.raises(SystemExit) as stopped:
        demo["steps_for"](minutes)
    assert stopped.value.code == f"DEMO_MINUTES={minutes}: expected a number of minutes"


def calls_of_main(demo, monkeypatch, capsys):
    """Runs main() with nothing trained; returns the steps asked for and the output."""
    asked = []
    show = type(sys)("demo_report")
    show.show = lambda *args: None
    monkeypatch.setitem(sys.modules, "demo_report", show)
    names = demo["main"].__globals__
    monkeypatch.setitem(names, "prepare", lambda: None)
    monkeypatch.setitem(names, "train", asked.append)
    monkeypatch.setattr(names["shutil"], "copy", lambda *paths: None)
    demo["main"]()
    return asked, capsys.readouterr().out


def test_each_call_trains_for_as_many_steps_again(demo, monkeypatch, capsys):
    monkeypatch.setenv("DEMO_MINUTES", "2")
    once = demo["steps_for"]("2")
    for call in (1, 2, 3):
        asked, said = calls_of_main(demo, monkeypatch, capsys)
        assert asked == [call * once]
        assert f"{call * once:,} steps" in said


def test_a_stage_whose_result_is_there_is_passed_over(demo, tmp_path, capsys):
    script = tmp_path / "script.py"
    script.write_text("import sys; open(sys.argv[1], 'a').write('made ')")
    result = tmp_path / "result"
    demo["run"](result, str(script), str(result))
    demo["run"](result, str(script), str(result))
    assert result.read_text() == "made "
    assert capsys.readouterr().out == f"{result} is there.\n"
    demo["run"](None, str(script), str(result))
    assert result.read_text() == "made made "


def test_a_script_that_fails_is_named(demo, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("raise SystemExit(3)")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        demo["run"](None, str(script))
    assert (failed.value.returncode, failed.value.cmd[1]) == (3, str(script))
