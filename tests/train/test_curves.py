import json
import subprocess
import sys

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
        "train": {
            "loss": {20: 5.5, 40: 5},
            "masked_lm_loss": {20: 5.0, 40: 5.0},
            "tokens_per_second": {20: 900.0},
        },
        "eval": {"loss": {50: 4.5}, "masked_lm_accuracy": {50: 0.25}},
    }


def test_a_resumed_run_replaces_what_it_had_logged_from_there_on(write):
    steps = [20, 40, 60, 80, 40, 65]
    path = write(
        EVAL, *({**TRAIN, "step": s, "loss": 10 * i + s} for i, s in enumerate(steps))
    )
    read = curves.read(path)
    assert list(read["train"]["loss"].items()) == [(20, 20), (40, 80), (65, 115)]
    assert read["eval"]["loss"] == {50: 4.5}


@pytest.mark.parametrize(
    "damage",
    ['{"kind": "train", "st', "", "[1]", '{"kind": "train", "loss": 1}', "7", "\ufffd"],
)
def test_half_a_line_is_skipped_wherever_it_stands(write, damage):
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


SQUAD = {
    **{"exact": 40.0, "f1": 50.0, "total": 6307, "HasAns_exact": 30.0, "best_f1": 50.0},
    **{"best_f1_thresh": -3.5, "null_score_diff_threshold": -3.5, "NoAns_total": 1},
}


def test_scores_of_squad_are_fractions_without_counts_and_thresholds(write, drawn):
    panels = drawn(
        write(
            {**TRAIN, "loss": 250.0},
            {"kind": "eval", "step": 50, **SQUAD},
            {"kind": "eval", "step": 60, **SQUAD, "exact": 0.5},
        )
    )
    assert list(panels) == ["Loss", "Score"]
    assert lines(panels["Score"]) == {
        "Exact, held out": [(50, 0.4), (60, 0.005)],
        "F1, Best f1, held out": [(50, 0.5), (60, 0.5)],
        "HasAns exact, held out": [(50, 0.3), (60, 0.3)],
    }
    assert lines(panels["Loss"])["Loss, training"] == [(20, 250.0)]
    assert panels["Score"].get_ylim() == (-0.02, 1.02)


def test_a_classification_draws_each_quantity_once(write, drawn):
    scores = {"eval_accuracy": 0.75, "matthew_corr": -0.5, "pages": 12}
    again = {"eval_loss": 4.5, "perplexity": 0.9, "MSE": 0.8}
    share = {"largest_predicted_share": 0.9, "dev_b/largest_predicted_share": 0.9}
    panels = drawn(write(TRAIN, {**EVAL, **scores, **again, **share, "total": 1}))
    assert list(lines(panels["Loss"])) == [
        "Loss, training",
        "Loss, held out",
        "Masked LM loss, training",
    ]
    assert lines(panels["Score"]) == {
        "Masked LM accuracy, held out": [(50, 0.25)],
        "Accuracy, held out": [(50, 0.75)],
        "Matthew corr, held out": [(50, -0.5)],
    }
    assert panels["Score"].get_ylim()[0] < -0.5


def test_held_out_curves_have_marks_and_those_of_training_are_pale(write, drawn):
    many = ({**EVAL, "step": step} for step in range(1, 200))
    rest = ({**TRAIN, "step": step} for step in (30, 40))
    ax = drawn(write(TRAIN, *rest, *many))["Loss"]
    training, held_out, _ = ax.lines
    assert (training.get_marker(), training.get_alpha()) == ("", 0.55)
    assert (held_out.get_marker(), held_out.get_alpha()) == ("o", None)
    assert held_out.get_markevery() > 1


def test_points_of_one_step_after_a_resumption_are_left_out(write, drawn):
    # The last of one step: killed after a checkpoint that no line was written of.
    counts = {1: 1, 20: 19, 40: 20, 41: 1, 60: 19, 80: 20, 85: 5, 91: 1, 100: 9}
    setting = {"learning_rate": 0.1, "gradient_norm": 3.0}
    panels = drawn(
        write(*({**TRAIN, **setting, "step": s, "steps": n} for s, n in counts.items()))
    )
    for ax in panels.values():
        for line in ax.lines:
            assert list(line.get_xdata()) == [1, 20, 40, 60, 80, 85, 100]


def test_every_point_is_drawn_where_each_is_of_one_step(write, drawn):
    ax = drawn(write(*({**TRAIN, "step": s, "steps": 1} for s in (1, 2, 3))))["Loss"]
    assert ax.lines[0].get_xdata().tolist() == [1, 2, 3]


def test_what_cannot_be_drawn_is_skipped(write, drawn):
    inf = '{"kind": "train", "step": 21, "loss": Infinity}'
    huge = f'{{"kind": "train", "step": 22, "loss": {"9" * 400}}}'
    nan = '{"kind": "train", "step": 23, "loss": NaN}'
    path = write(TRAIN, inf, huge, nan, "[" * 9999)
    assert lines(drawn(path)["Loss"])["Loss, training"] == [(20, 5.5)]


def test_one_point_can_be_seen(write, drawn):
    [line] = drawn(write({"kind": "train", "step": 1, "loss": 2.0}))["Loss"].lines
    assert line.get_marker() == "o"


def test_loss_and_accuracy_of_one_thing_have_one_colour(write, drawn):
    panels = drawn(write(TRAIN, EVAL))
    masked = [ax.lines[-1].get_color() for ax in panels.values()]
    assert masked == ["C1", "C1"]


def test_matplotlib_is_loaded_to_draw_and_pyplot_never(write, tmp_path):
    code = (
        "import sys; from albert_tf.train import curves\n"
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


def test_speed_has_a_panel_and_a_line_stands_where_the_run_resumed(write, drawn):
    train = {**TRAIN, "learning_rate": 0.1}
    speeds = ({**train, "step": s, "tokens_per_second": float(s)} for s in (1, 20, 40))
    resumed = {"kind": "resume", "step": 20, "time": 3.5}
    panels = drawn(write(*speeds, resumed))
    assert list(panels) == ["Loss", "Optimizer", "Speed"]
    for ax in panels.values():
        assert lines(ax)["Resumed"] == [(20, 0), (20, 1)]
    assert list(lines(panels["Speed"]).values())[1] == [(20, 20.0), (40, 40.0)]
    assert panels["Speed"].get_ylabel() == "Tokens per second"
    assert panels["Loss"].get_xlim()[0] < 2
