"""Draws the curves of a training run from its `metrics.jsonl`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albert_tf.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The numbers of a run: curves["eval"]["loss"] is {step: value}, steps rising.
Curves = dict[str, dict[str, dict[int, float]]]

_PROGRESS = {
    *("step", "time", "waiting_share"),
    *("sequences_per_second", "tokens_per_second"),
}
_SETTINGS = ("learning_rate", "gradient_norm")
_LABELS = {"train": "training", "eval": "held out"}


def read(metrics_file: str | Path) -> Curves:
    """Reads the numbers of a run.

    A run that was killed goes on from its last checkpoint, so its file may hold half a
    line, which is passed over, and steps that come again, which replace what was
    logged from there on.

    Args:
        metrics_file: lines of JSON objects, each with a "kind" ("train", "eval" or any
            other name), a "step" and numbers by name. What is no number is passed over.

    Returns:
        {kind: {name: {step: value}}}, steps in rising order.

    Raises:
        InputError: the file cannot be read, or no line of it holds a number.
    """
    try:
        lines = Path(metrics_file).read_text("utf-8", errors="replace").splitlines()
    except OSError as error:
        raise InputError(f"{metrics_file}: cannot be read: {error.strerror}") from None
    curves: Curves = {}
    for entry in filter(None, map(_entry, lines)):
        for name, value in entry.items():
            if name in _PROGRESS or type(value) not in (int, float):
                continue
            curve = curves.setdefault(entry["kind"], {}).setdefault(name, {})
            while curve and next(reversed(curve)) >= entry["step"]:
                curve.popitem()
            curve[entry["step"]] = value
    if not curves:
        raise InputError(
            f'{metrics_file}: no line such as {{"kind": "train", "step": 1, "loss": 2}}'
        )
    return curves


def draw(metrics_file: str | Path, picture: str | Path) -> None:
    """Draws the curves of a run; needs no display.

    The losses share a panel, the accuracies another, all other scores (such as "f1") a
    third, learning rate and gradient norm a fourth; a panel without a curve is left
    out. So is perplexity, the exponential of a loss that is drawn.

    Args:
        metrics_file: see `read`.
        picture: the file to write; its ending says the format (.png, .svg, .pdf).

    Raises:
        InputError: what `read` refuses, or the picture cannot be written.
    """
    # Imported late, and without pyplot: reading needs none of it, and pyplot would
    # choose a backend for the whole program.
    from matplotlib.figure import Figure

    curves = read(metrics_file)
    panels = _panels(curves)
    figure = Figure(figsize=(5.2 * len(panels), 4), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, (title, names) in zip(axes, panels.items(), strict=True):
        ax.set(title=title, xlabel="step")
        ax.grid(alpha=0.25)
        (_draw_settings if title == "Optimizer" else _draw_scores)(ax, curves, names)
    try:
        figure.savefig(picture, dpi=120)
    except OSError as error:
        raise InputError(f"{picture}: cannot be written: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{picture}: cannot be written: {error}") from None


def _entry(line: str) -> dict[str, Any] | None:
    """Parses a line; None where it is none that a run writes."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    whole = (
        isinstance(entry, dict)
        and isinstance(entry.get("kind"), str)
        and type(entry.get("step")) is int
    )
    return entry if whole else None


def _panels(curves: Curves) -> dict[str, list[str]]:
    """Divides the names among titled panels; a panel without a name is left out."""
    names = {name: None for kind in curves.values() for name in kind}  # in file order
    panels: dict[str, list[str]] = {
        "Loss": [],
        "Accuracy": [],
        "Score": [],
        "Optimizer": [],
    }
    for name in names:
        if name in _SETTINGS:
            panels["Optimizer"].append(name)
        elif "loss" in name:
            panels["Loss"].append(name)
        elif "accuracy" in name:
            panels["Accuracy"].append(name)
        elif name != "perplexity":
            panels["Score"].append(name)
    return {title: names for title, names in panels.items() if names}


def _draw_scores(ax: "Axes", curves: Curves, names: list[str]) -> None:
    """Draws the losses or scores: a colour for each subject, training pale."""
    subjects = [_subject(name) for of_kind in curves.values() for name in of_kind]
    subjects = list(dict.fromkeys(subjects))
    for name in names:
        color = f"C{subjects.index(_subject(name))}"
        for kind, of_kind in curves.items():
            if name in of_kind:
                label = f"{_title(name)}, {_LABELS.get(kind, kind)}"
                _plot(ax, of_kind[name], kind, color=color, label=label)
    if all("accuracy" in name for name in names):
        ax.set_ylim(0, 1.02)
    ax.legend(fontsize="small", framealpha=0.7)


def _draw_settings(ax: "Axes", curves: Curves, names: list[str]) -> None:
    """Draws the learning rate, and the gradient norm on a scale of its own."""
    for number, name in enumerate(names):
        side = ax.twinx() if number else ax
        side.set_ylabel(_title(name), color=f"C{number}")
        for kind, of_kind in curves.items():
            if name in of_kind:
                _plot(side, of_kind[name], kind, color=f"C{number}")
        side.set_ylim(bottom=0)


def _plot(ax: "Axes", curve: dict[int, float], kind: str, **looks) -> None:
    looks.update({"alpha": 0.55} if kind == "train" else {"linewidth": 2})
    # A single point makes no line; held-out figures are few enough to be marked.
    marked = len(curve) == 1 or (kind != "train" and len(curve) <= 50)
    ax.plot(
        list(curve), list(curve.values()), marker="o" if marked else "", ms=4, **looks
    )


def _title(name: str) -> str:
    return name.replace("_", " ").capitalize().replace(" lm", " LM")


def _subject(name: str) -> str:
    """What a loss and an accuracy are of: "masked_lm" of both its names."""
    return name.removesuffix("_loss").removesuffix("_accuracy")
