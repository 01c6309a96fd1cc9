import json

import pytest
from matplotlib.figure import Figure

from albert_tf.errors import InputError
from albert_tf.train import curves

pytestmark = pytest.mark.usefixtures("draws")

TRAIN = {"kind": "train", "step": 20, "loss": 5.5, "masked_lm_loss": 5.0}
EVAL = {"kind": "eval", "step": 50, "loss": 4.5, "masked_lm_accuracy": 0.25}


@pytest.fixture
def write(tmp_path):
    def write(*lines):
        path = tmp_path / "metrics.jsonl"
        texts = [x if isinstance(x, str) else json.dumps(x) for x in lines]
        path.write_text("\n".join(texts) + "\n")
        return path

    return write


def test_a_resumed_run_replaces_what_it_had_logged_from_there_on(write):
    steps = [20, 40, 60, 80, 40, 65]
    lines = [{**TRAIN, "step": s, "loss": 10 * i + s} for i, s in enumerate(steps)]
    read = curves.read(write(EVAL, *lines))
    assert list(read["train"]["loss"].items()) == [(20, 20), (40, 80), (65, 115)]
    assert read["eval"]["loss"] == {50: 4.5}


@pytest.mark.parametrize("damage", ['{"kind": "train", "st', "", "[1]", "7", "\ufffd"])
def test_half_a_line_is_skipped_wherever_it_stands(write, damage):
    last = {**TRAIN, "step": 30}
    for order in ([TRAIN, last, damage], [TRAIN, damage, last]):
        assert curves.read(write(*order))["train"]["loss"] == {20: 5.5, 30: 5.5}


def test_losses_scores_and_the_rate_are_drawn(write, monkeypatch, tmp_path):
    saved, save = [], Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *a, **k: (saved.append(self), save(self, *a))
    )
    first = {**TRAIN, "learning_rate": 1e-3, "time": 3.5, "note": "x"}
    path = write(first, {**TRAIN, "step": 40}, EVAL)
    curves.draw(path, tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    assert {
        ax.get_title(): {line.get_label(): list(line.get_ydata()) for line in ax.lines}
        for ax in saved.pop().axes
    } == {
        "Loss": {
            "loss, train": [5.5, 5.5],
            "masked lm loss, train": [5.0, 5.0],
            "loss, eval": [4.5],
        },
        "Score": {"masked lm accuracy, eval": [0.25]},
        "Learning rate": {"learning rate, train": [1e-3]},
    }


def test_what_cannot_be_read_or_written_is_named(write, tmp_path):
    for path in (tmp_path / "none.jsonl", write("{}")):
        with pytest.raises(InputError, match=f"^{path}: "):
            curves.read(path)
    with pytest.raises(InputError, match=f"^{tmp_path}/no/x.png: cannot be written"):
        curves.draw(write(TRAIN), tmp_path / "no/x.png")
