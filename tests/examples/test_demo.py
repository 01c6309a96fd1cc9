import runpy
import subprocess

import pytest
from helpers import ROOT


@pytest.fixture
def demo(tmp_path, monkeypatch):
    """The names of demo.py, with an empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return runpy.run_path(str(ROOT / "examples/demo.py"))


def test_the_number_of_steps_follows_from_the_minutes_of_training(demo):
    rate, other = demo["STEPS_PER_MINUTE"], demo["OTHER_MINUTES"]
    assert demo["count_steps"](str(other + 3)) == 3 * rate
    assert demo["count_steps"](f"{other + 0.5}") == round(rate / 2)
    assert demo["count_steps"]("0") == 20
    for minutes in ("ten", "", "inf", "nan"):
        message = f"^DEMO_MINUTES={minutes}: expected a number of minutes$"
        with pytest.raises(SystemExit, match=message):
            demo["count_steps"](minutes)


def test_a_stage_with_an_existing_result_is_skipped(demo, tmp_path, capsys):
    script = tmp_path / "script.py"
    script.write_text("import sys; open(sys.argv[1], 'a').write('made ')")
    result = tmp_path / "result"
    demo["run"](result, str(script), str(result))
    demo["run"](result, str(script), str(result))
    assert result.read_text() == "made "
    assert capsys.readouterr().out == f"{result} exists.\n"
    demo["run"](None, str(script), str(result))
    assert result.read_text() == "made made "
    script.write_text("raise SystemExit(3)")
    with pytest.raises(subprocess.CalledProcessError):
        demo["run"](None, str(script))
