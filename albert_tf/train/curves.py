"""Draws the curves of a training run from its `metrics.jsonl`."""

import itertools
import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albert_tf import errors
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
# How many steps a line of training averages.
_STEPS = "steps"
# What a drawn loss says already.
_AGAIN = ("perplexity", "MSE")
# How often the most frequent answer comes is a warning, no score.
_NO_SCORES = ("largest_predicted_share",)
# The scripts of SQuAD have one of these, and give all their scores in percent.
_IN_PERCENT = ("exact_match", "exact")
_LABELS = {"train": "training", "eval": "held out"}
_MARKS = 25
# Beyond it, a number is none that can be drawn.
_LARGEST = 1e30


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

    Losses share an axis, scores another; learning rate and gradient norm have a panel
    of their own; a panel without a curve is left out. Scores are fractions: those that
    the scripts of SQuAD give in percent are divided. Curves that coincide are one line
    with the names of both. Not drawn are what is no score, such as counts, thresholds
    and the share of the most frequent answer; perplexity and mean squared error, which
    a loss shows already; and, after a run was resumed, the first point of training
    where it averages a single step and the others several.

    Args:
        metrics_file: see `read`.
        picture: the file to write; its ending says the format (.png, .svg, .pdf).

    Raises:
        InputError: what `read` refuses, or the picture cannot be written.
    """
    # Imported late, and without pyplot: reading needs none of it, and pyplot would
    # choose a backend for the whole program.
    from matplotlib.figure import Figure

    panels = _panels(_drawable(read(metrics_file)))
    kinds = [of for t, c in panels.items() if t != "Optimizer" for of in c.values()]
    subjects = [_subject(name) for of_kind in kinds for name in of_kind]
    subjects = list(dict.fromkeys(subjects))
    figure = Figure(figsize=(5.2 * max(len(panels), 1), 4.6), layout="constrained")
    axes = figure.subplots(1, max(len(panels), 1), squeeze=False)[0]
    for ax, (title, curves) in zip(axes, panels.items(), strict=False):
        ax.set(title=title, xlabel="step")
        ax.grid(alpha=0.25)
        if title == "Optimizer":
            _draw_settings(ax, curves)
        else:
            _draw_scores(ax, curves, subjects)
    with errors.writing(picture):
        figure.savefig(picture, dpi=120)


def _entry(line: str) -> dict[str, Any] | None:
    """Parses a line; None where it is none that a run writes."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    whole = (
        isinstance(entry, dict)
        and isinstance(entry.get("kind"), str)
        and type(entry.get("step")) is int
    )
    return entry if whole else None


def _drawable(curves: Curves) -> Curves:
    """Returns the curves without single steps, in fractions and without numbers."""
    found: Curves = {}
    for kind, of_kind in curves.items():
        percent = any(name in of_kind for name in _IN_PERCENT)
        counts = of_kind.get(_STEPS, {})
        for name, curve in of_kind.items():
            points = {s: v for s, v in curve.items() if abs(v) < _LARGEST}
            if kind == "train":
                points = _without_spikes(points, counts)
            if percent and not name.endswith("loss"):
                points = {step: value / 100 for step, value in points.items()}
            again = name == "eval_loss" and "loss" in of_kind
            if points and name != _STEPS and not again:
                found.setdefault(kind, {})[name] = points
    return found


def _without_spikes(
    points: dict[int, float], counts: Mapping[int, float]
) -> dict[int, float]:
    """Leaves out points of a single step between those of several.

    Args:
        points: of a curve of training.
        counts: how many steps the points average; older runs have not written it, and
            it is what lies between two points there.
    """
    steps = list(points)
    averaged = [counts.get(b, b - a) for a, b in itertools.pairwise(steps)]
    if not averaged or statistics.median(averaged) <= 1:
        return points
    single = {step for step, n in zip(steps[1:], averaged, strict=True) if n == 1}
    return {step: value for step, value in points.items() if step not in single}


def _panels(curves: Curves) -> dict[str, Curves]:
    """Divides curves by their kind of quantity; a panel without one is left out."""
    panels: dict[str, Curves] = {"Loss": {}, "Score": {}, "Optimizer": {}}
    for kind, of_kind in curves.items():
        for name, curve in of_kind.items():
            if title := _quantity(name, curve):
                panels[title].setdefault(kind, {})[name] = curve
    scores = {name for of_kind in panels["Score"].values() for name in of_kind}
    if all("accuracy" in name for name in scores):
        panels = {"Accuracy" if t == "Score" else t: c for t, c in panels.items()}
    return {title: found for title, found in panels.items() if found}


def _quantity(name: str, curve: Mapping[int, float]) -> str | None:
    """Returns the panel of a curve; None for what is not drawn."""
    bare = name.rpartition("/")[2]
    if name in _SETTINGS:
        return "Optimizer"
    if bare.endswith("loss"):
        return "Loss"
    is_score = all(-1 <= value <= 1 for value in curve.values())
    if bare in (*_AGAIN, *_NO_SCORES) or bare.endswith(("_thresh", "_threshold")):
        return None
    return "Score" if is_score and not bare.endswith("total") else None


def _draw_scores(ax: "Axes", curves: Curves, subjects: list[str]) -> None:
    """Draws losses or scores: a colour for each subject, training pale."""
    merged = [
        (subjects.index(_subject(names[0])), kind, names, curve)
        for kind, of_kind in curves.items()
        for names, curve in _merged(of_kind)
    ]
    lowest = 0.0
    for subject, kind, names, curve in sorted(merged, key=lambda item: item[0]):
        label = f"{', '.join(map(_title, names))}, {_LABELS.get(kind, kind)}"
        _plot(ax, curve, kind, color=f"C{subject}", label=label)
        lowest = min(lowest, *curve.values())
    if ax.get_title() != "Loss":
        ax.set_ylim(1.1 * lowest - 0.02, 1.02)
    # Below, where it hides no curve.
    ax.legend(
        fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2
    )


def _merged(
    of_kind: Mapping[str, dict[int, float]],
) -> list[tuple[list[str], dict[int, float]]]:
    """Returns the different curves, each with the names that it has."""
    merged: list[tuple[list[str], dict[int, float]]] = []
    for name, curve in of_kind.items():
        names = next((names for names, other in merged if other == curve), None)
        if names is None:
            merged.append(([name], curve))
        else:
            names.append(name)
    return merged


def _draw_settings(ax: "Axes", curves: Curves) -> None:
    """Draws the learning rate, and the gradient norm on a scale of its own."""
    names = [n for n in _SETTINGS if any(n in of_kind for of_kind in curves.values())]
    for number, name in enumerate(names):
        side = ax.twinx() if number else ax
        side.set_ylabel(_title(name), color=f"C{number}")
        for kind, of_kind in curves.items():
            if name in of_kind:
                _plot(side, of_kind[name], kind, color=f"C{number}")
        side.set_ylim(bottom=0)


def _plot(ax: "Axes", curve: dict[int, float], kind: str, **looks) -> None:
    # A single point makes no line; held-out figures have marks, as they are few.
    marked = len(curve) == 1 or kind != "train"
    looks.update({"alpha": 0.55} if kind == "train" else {"linewidth": 2})
    ax.plot(
        list(curve),
        list(curve.values()),
        marker="o" if marked else "",
        markevery=max(1, len(curve) // _MARKS),
        ms=4,
        **looks,
    )


def _title(name: str) -> str:
    # Of released names; the label says that it is held out.
    name = name.removeprefix("eval_").replace("_", " ").replace("/", ": ")
    return name[:1].upper() + name[1:].replace(" lm", " LM")


def _subject(name: str) -> str:
    """What a loss and an accuracy are of: "masked_lm" of both its names."""
    return name.removesuffix("_loss").removesuffix("_accuracy")
