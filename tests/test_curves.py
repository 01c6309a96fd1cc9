import json
import subprocess
import sys

import pytest
from matplotlib.figure import Figure

from albert_tf import curves
from albert_tf.errors import InputError

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


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Draws a file and returns the figure's axes by their title."""
    saved = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *a, **k: (saved.append(self), save(self, *a))
    )

    def draw(path):
        curves.draw(path, tmp_path / "x.png")
        assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
        return {ax.get_title(): ax for ax in saved.pop().axes}

    return draw


def lines(ax):
    return {line.get_label(): list(zip(*line.get_data())) for line in ax.lines}  # noqa: B905


def test_numbers_are_sorted_by_kind_name_and_step(write):
    path = write(
        {**TRAIN, "time": 3.5, "tokens_per_second": 900.0, "note": "x"},
        {**TRAIN, "step": 40, "loss": 5},
        EVAL,
    )
    assert curves.read(path) == {
        "train": {"loss": {20: 5.5, 40: 5}, "masked_lm_loss": {20: 5.0, 40: 5.0}},
        "eval": {"loss": {50: 4.5}, "masked_lm_accuracy": {50: 0.25}},
    }


def test_a_resumed_run_replaces_what_it_had_logged_from_there_on(write):
    steps = [20, 40, 60, 80, 40, 65]
    path = write(
        EVAL, *({**TRAIN, "step": s, "loss": 10 * i + s} for i, s in enumerate(steps))
    )
    found = curves.read(path)
    assert list(found["train"]["loss"].items()) == [(20, 20), (40, 80), (65, 115)]
    assert found["eval"]["loss"] == {50: 4.5}


@pytest.mark.parametrize(
    "damage",
    ['{"kind": "train", "st', "", "[1]", '{"kind": "train", "loss": 1}', "7", "\ufffd"],
)
def test_half_a_line_is_passed_over_wherever_it_stands(write, damage):
    last = {**TRAIN, "step": 30}
    for order in ([TRAIN, last, damage], [TRAIN, damage, last]):
        assert curves.read(write(*order))["train"]["loss"] == {20: 5.5, 30: 5.5}


def test_pretraining_draws_losses_accuracies_and_learning_rate(write, drawn):
    setting = {"learning_rate": 1e-3, "gradient_norm": 2.0}
    more = {"kind": "eval", "step": 90, "loss": 4.0, "perplexity": 77.0}
    panels = drawn(write({**TRAIN, **setting}, {**TRAIN, "step": 40}, EVAL, more))
    # The empty title is the gradient norm's own axis.
    assert list(panels) == ["Loss", "Accuracy", "Optimizer", ""]
    assert lines(panels["Loss"]) == {
        "Loss, training": [(20, 5.5), (40, 5.5)],
        "Loss, held out": [(50, 4.5), (90, 4.0)],
        "Masked LM loss, training": [(20, 5.0), (40, 5.0)],
    }
    assert lines(panels["Accuracy"]) == {"Masked LM accuracy, held out": [(50, 0.25)]}
    assert panels["Optimizer"].get_ylabel() == "Learning rate"
    assert panels[""].lines[0].get_ydata() == [2.0]


def test_unknown_names_and_kinds_find_a_panel(write, drawn):
    panels = drawn(
        write({"kind": "dev", "step": 3, "f1": 0.5, "start_loss": 1.0, "x": True})
    )
    assert {title: lines(ax) for title, ax in panels.items()} == {
        "Loss": {"Start loss, dev": [(3, 1.0)]},
        "Score": {"F1, dev": [(3, 0.5)]},
    }


def test_one_point_can_be_seen(write, drawn):
    [line] = drawn(write({"kind": "train", "step": 1, "loss": 2.0}))["Loss"].lines
    assert line.get_marker() == "o"


def test_loss_and_accuracy_of_one_thing_have_one_colour(write, drawn):
    panels = drawn(write(TRAIN, EVAL))
    masked = [ax.lines[-1].get_color() for ax in panels.values()]
    assert masked == ["C1", "C1"]


def test_matplotlib_is_loaded_to_draw_and_pyplot_never(write, tmp_path):
    code = (
        "import sys; from albert_tf import curves\n"
        f"curves.read({str(write(TRAIN))!r}); assert 'matplotlib' not in sys.modules\n"
        f"curves.draw({str(write(TRAIN))!r}, {str(tmp_path / 'x.svg')!r})\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert b"<svg" in (tmp_path / "x.svg").read_bytes()


def test_mistakes_are_named(write, tmp_path):
    missing = tmp_path / "no.jsonl"
    with pytest.raises(InputError) as error:
        curves.read(missing)
    assert str(error.value) == f"{missing}: cannot be read: No such file or directory"
    empty = write("{}")
    with pytest.raises(InputError) as error:
        curves.draw(empty, tmp_path / "x.png")
    assert str(error.value) == (
        f'{empty}: no line such as {{"kind": "train", "step": 1, "loss": 2}}'
    )
    with pytest.raises(InputError) as error:
        curves.draw(write(TRAIN), tmp_path / "no" / "x.png")
    assert str(error.value) == (
        f"{tmp_path}/no/x.png: cannot be written: No such file or directory"
    )
    with pytest.raises(InputError) as error:
        curves.draw(write(TRAIN), tmp_path / "x.doc")
    assert str(error.value).startswith(f"{tmp_path}/x.doc: cannot be written: Format")
