import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from albert_tf.text.tokenization import WordPieceTokenizer

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def demo(tmp_path, monkeypatch):
    """The names of demo.py, with an empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return runpy.run_path(str(EXAMPLES / "demo.py"))


@pytest.fixture(scope="module")
def report():
    return runpy.run_path(str(EXAMPLES / "demo_report.py"))


@pytest.fixture
def tokenizer(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text(
        "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nred\nhouse\nstands\nhere\n"
        "alo\n##ne\nis\nold\n.\n"
    )
    return WordPieceTokenizer(str(path))


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


def test_a_call_that_was_stopped_does_not_count(demo, monkeypatch, capsys):
    monkeypatch.setenv("DEMO_MINUTES", "2")
    once = demo["steps_for"]("2")

    def interrupted(steps):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setitem(demo["main"].__globals__, "prepare", lambda: None)
        patch.setitem(demo["main"].__globals__, "train", interrupted)
        with pytest.raises(SystemExit, match="Stopped"):
            demo["main"]()
    assert calls_of_main(demo, monkeypatch, capsys)[0] == [once]


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


def test_an_interrupt_ends_the_script(demo, tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text("import time; time.sleep(20)")
    started = []
    wait = subprocess.Popen.wait

    def interrupted(self, timeout=None):
        started.append(self)
        if len(started) == 1:
            raise KeyboardInterrupt
        return wait(self, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        demo["run"](None, str(script))
    assert started[0].poll() == -9


def test_the_masked_word_is_one_long_piece_of_the_second_half(report, tokenizer):
    documents = [
        "the red house stands here .\nthe house is old .",
        "the house is alone .",  # "alone" is two pieces
        "stands " * 16,  # too long to show
        "the house is the old red house .",
    ]
    assert list(report["_masked"](documents, tokenizer)) == [
        ("the red house [MASK] here .", "stands"),
        ("the house is the old red [MASK] .", "house"),
    ]


def test_pairs_are_the_first_sentences_where_they_fit(report):
    class Words:
        def encode_batch(self, texts):
            return [text.split() for text in texts]

    documents = ["a b c\nd e f\ng", "a b c d\ne f g\nh", "h\ni"]
    found = list(report["_pairs"](documents, Words(), 9))
    assert found == [("h", "i"), ("a b c", "d e f")]


def test_the_figures_are_those_of_the_best_checkpoint(
    report, tokenizer, tmp_path, capsys
):
    (tmp_path / "model.ckpt-best.json").write_text(
        '{"step": 1200, "masked_lm_accuracy": 0.253, "sentence_order_accuracy": 0.81}'
    )
    documents = ["the house .\nthe red house is old"]  # "the" is 2 of 8 pieces
    report["_show_figures"](tmp_path, documents, tokenizer)
    said = capsys.readouterr().out
    assert "step 1,200" in said
    assert "masked words    25.3%   without learning  25.0%" in said
    assert "sentence order  81.0%   without learning  50.0%" in said
