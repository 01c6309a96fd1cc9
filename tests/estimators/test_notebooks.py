"""What a notebook shows of a training."""

import json
import re
import sys
import types

import pytest

from albert_tf.estimators import notebooks


def cells(html):
    return re.findall("<t[dh]>([^<]*)", html)


def test_a_table_of_training_has_a_line_for_each_evaluation():
    metrics = {"train": {"loss": {1: 1.0, 4: 0.25}}}
    expected = ["step", "training loss", "1", "1", "4", "0.25"]
    assert cells(notebooks.progress_table(metrics)) == expected
    evaluated = {"loss": {5: 0.5}, "eval_loss": {5: 0.5}, "<f1>": {5: 0.75}}
    assert cells(notebooks.progress_table({**metrics, "eval": evaluated})) == [
        *("step", "training loss", "loss", "&lt;f1&gt;", "5", "0.25", "0.5", "0.75")
    ]


@pytest.mark.usefixtures("draws")
def test_progress_is_shown_in_place_and_other_lines_are_printed(
    tmp_path, monkeypatch, capsys
):
    from IPython import display

    shown = []
    handle = types.SimpleNamespace(update=lambda html: shown.append(html.data))
    monkeypatch.setattr(display, "display", lambda *a, **k: handle)
    progress = notebooks.Progress(tmp_path)
    print("step 1/2", file=progress)  # before the file is there
    assert not shown
    entry = {"kind": "train", "step": 1, "loss": 2.0}
    (tmp_path / "run-1").mkdir()
    (tmp_path / "run-1/metrics.jsonl").write_text(json.dumps(entry) + "\n")
    print("step 1/2  loss <2>", "Warning: so", file=progress, sep="\n")
    print("step 2/2", file=progress)  # too soon for another picture
    progress.show()
    assert capsys.readouterr() == ("Warning: so\n", "")  # stderr is red
    assert len(shown) == 2
    assert all("data:image/png;base64,iVBOR" in html for html in shown)
    assert cells(shown[0])[:4] == ["step", "training loss", "1", "2"]
    assert "loss &lt;2&gt;" in shown[0] and "step 2/2" in shown[1]


def test_only_a_kernel_is_a_notebook(monkeypatch):
    import IPython

    assert not notebooks.is_running()
    for shell, expected in (({}, False), ({"kernel": 1}, True)):
        instance = types.SimpleNamespace(**shell)
        monkeypatch.setattr(IPython, "get_ipython", lambda shell=instance: shell)
        assert notebooks.is_running() == expected
    monkeypatch.delitem(sys.modules, "IPython")
    assert not notebooks.is_running()
