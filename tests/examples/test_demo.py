import runpy
import subprocess

import pytest
from helpers import ROOT


@pytest.fixture
def demo(tmp_path, monkeypatch):
    """The names of demo.py, with an empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return runpy.run_path(str(ROOT / "examples/demo.py"))


def test_steps_follow_from_minutes_less_those_of_the_other_stages(demo):
    rate, other = demo["STEPS_A_MINUTE"], demo["OTHER_MINUTES"]
    assert demo["steps_for"](str(other + 3)) == 3 * rate
    assert demo["steps_for"](f"{other + 0.5}") == round(rate / 2)
    assert demo["steps_for"]("0") == 20
    for minutes in ("ten", "", "inf", "nan"):
        message = f"^DEMO_MINUTES={minutes}: expected a number of minutes$"
        with pytest.raises(SystemExit, match=message):
            demo["steps_for"](minutes)


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
    script.write_text("raise SystemExit(3)")
    with pytest.raises(subprocess.CalledProcessError):
        demo["run"](None, str(script))
