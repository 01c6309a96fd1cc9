"""Reads `metrics.jsonl`, the metrics of a run, and draws them."""

import json
import re
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from albert_tf import errors
from albert_tf.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The numbers of a run: curves["eval"]["loss"] is {step: value}, steps rising.
Curves = dict[str, dict[str, dict[int, float]]]
# The lines of a panel: {(kind, names that share the line): {step: value}}.
_Lines = dict[tuple[str, tuple[str, ...]], dict[int, float]]

_PROGRESS = {
    *("step", "time", "waiting_share", "sequences_per_second"),
    *("seconds", "seconds_per_step"),
}
_SPEED = "tokens_per_second"
_SETTINGS = ("learning_rate", "gradient_norm")
# Counts and thresholds, what a drawn loss shows already, and the share of the most
# frequent prediction, which only warns.
_NOT_DRAWN = re.compile(
    r"steps|perplexity|MSE|largest_predicted_share|.*(_thresh|_threshold|total)"
)
# The scripts of SQuAD have one of these, and give all their scores in percent.
_IN_PERCENT = {"exact_match", "exact"}
_LABELS = {"train": "training", "eval": "held out"}
_MARKS = 25
# A larger number cannot be drawn.
_LARGEST = 1e30


def entries(metrics_file: str | Path) -> Iterator[dict[str, Any]]:
    """Reads the lines of a run.

    A run that was killed resumes from its last checkpoint, so the file may hold half a
    line, and lines of steps that come again. What is no entry of a run is skipped.

    Args:
        metrics_file: lines of JSON objects, each with a "kind" ("train", "eval" or any
            other name), a "step" and numbers by name; those of "resume", where a run
            went on, have none.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        lines = Path(metrics_file).read_text("utf-8", errors="replace").splitlines()
    except OSError as error:
        raise InputError(f"{metrics_file}: cannot be read: {error.strerror}") from None
    for line in lines:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if (
            isinstance(entry, dict)
            and isinstance(entry.get("kind"), str)
            and type(entry.get("step")) is int
        ):
            yield entry


def read(metrics_file: str | Path) -> Curves:
    """Reads the numbers of a run; of steps that come again, the last ones.

    Args:
        metrics_file: see `entries`.

    Returns:
        {kind: {name: {step: value}}}, steps in rising order.

    Raises:
        InputError: the file cannot be read, or no line of it holds a number.
    """
    curves: Curves = {}
    for entry in entries(metrics_file):
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


def draw(metrics_file: str | Path, picture: str | Path | IO[bytes]) -> None:
    """Draws the curves of a run; needs no display.

    Losses share an axis, scores another, as fractions; learning rate and gradient norm
    have a panel of their own, and so has the speed; a panel without a curve is left
    out. Curves that coincide are one line. Left out are counts and thresholds, numbers
    that a loss shows already, and the points of training that average a single step
    where others average several. A dotted line stands where the run resumed.

    Args:
        metrics_file: see `entries`.
        picture: the file to write, in the format of its ending (.png, .svg, .pdf); of
            an open file PNG.

    Raises:
        InputError: what `read` refuses, or the picture cannot be written.
    """
    # Imported late, and without pyplot: reading needs none of it, and pyplot would
    # choose a backend for the whole program.
    from matplotlib.figure import Figure

    panels = _panels(read(metrics_file))
    resumed = sorted(
        {entry["step"] for entry in entries(metrics_file) if entry["kind"] == "resume"}
    )
    names = (n for t in ("Loss", "Score") for _, ns in panels[t] for n in ns)
    subjects = list(dict.fromkeys(map(_subject, names)))
    titles = [title for title, lines in panels.items() if lines]
    figure = Figure(figsize=(5.2 * max(len(titles), 1), 4.6), layout="constrained")
    axes = figure.subplots(1, max(len(titles), 1), squeeze=False)[0]
    for ax, title in zip(axes, titles, strict=False):
        ax.set(title=title, xlabel="step")
        ax.grid(alpha=0.25)
        for step in resumed:
            label = "Resumed" if step == resumed[0] else None
            ax.axvline(step, color="0.5", linewidth=1, linestyle=":", label=label)
        if title == "Optimizer":
            _draw_optimizer(ax, panels[title])
        elif title == "Speed":
            _draw_speed(ax, panels[title])
        else:
            _draw_subjects(ax, panels[title], subjects)
    with errors.writing(picture):
        figure.savefig(picture, dpi=120)


def _panels(curves: Curves) -> dict[str, _Lines]:
    """Divides curves by their kind of quantity, and joins those that coincide."""
    panels: dict[str, _Lines] = {"Loss": {}, "Score": {}, "Optimizer": {}, "Speed": {}}
    for kind, of_kind in curves.items():
        unit = 100 if _IN_PERCENT & of_kind.keys() else 1
        skipped = _single_steps(of_kind) if kind == "train" else set()
        joined: dict[tuple[str, tuple], list[str]] = {}
        for name, curve in of_kind.items():
            points = [
                (step, value)
                for step, value in curve.items()
                if abs(value) < _LARGEST and step not in skipped
            ]
            bare = name.rpartition("/")[2]
            panel = "Optimizer" if name in _SETTINGS else "Score"
            if name == _SPEED:
                panel = "Speed"
                if len(points) > 1:  # the first has the building of graphs in it
                    points = points[1:]
            if bare.endswith("loss"):
                panel = "Loss"
            elif panel == "Score":
                points = [(step, value / unit) for step, value in points]
            too_large = panel == "Score" and any(abs(value) > 1 for _, value in points)
            again = name == "eval_loss" and "loss" in of_kind
            if points and not (too_large or again or _NOT_DRAWN.fullmatch(bare)):
                joined.setdefault((panel, tuple(points)), []).append(name)
        for (panel, shared), names in joined.items():
            panels[panel][kind, tuple(names)] = dict(shared)
    return panels


def _single_steps(of_kind: Mapping[str, Mapping[int, float]]) -> set[int]:
    """Returns the steps whose line averages that one alone, if most average several."""
    counts = of_kind.get("steps", {})
    if not counts or statistics.median(counts.values()) <= 1:
        return set()
    first = min(counts)
    return {step for step, count in counts.items() if count == 1 and step != first}


def _draw_subjects(ax: "Axes", lines: _Lines, subjects: list[str]) -> None:
    """Draws losses or scores: a colour for each subject, training pale."""
    ordered = sorted(
        lines.items(), key=lambda line: subjects.index(_subject(line[0][1][0]))
    )
    for (kind, names), curve in ordered:
        label = f"{', '.join(map(_title, names))}, {_LABELS.get(kind, kind)}"
        color = f"C{subjects.index(_subject(names[0]))}"
        _plot(ax, curve, kind, color=color, label=label)
    if ax.get_title() != "Loss":
        if all("accuracy" in name for _, names in lines for name in names):
            ax.set_title("Accuracy")
        lowest = min(0.0, *(min(curve.values()) for curve in lines.values()))
        ax.set_ylim(1.1 * lowest - 0.02, 1.02)
    # Below, where it hides no curve.
    ax.legend(
        fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2
    )


def _draw_optimizer(ax: "Axes", lines: _Lines) -> None:
    """Draws the learning rate, and the gradient norm on a scale of its own."""
    present = {name for _, names in lines for name in names}
    for number, name in enumerate(name for name in _SETTINGS if name in present):
        side = ax.twinx() if number else ax
        side.set_ylabel(_title(name), color=f"C{number}")
        for (kind, names), curve in lines.items():
            if name in names:
                _plot(side, curve, kind, color=f"C{number}")
        side.set_ylim(bottom=0)


def _draw_speed(ax: "Axes", lines: _Lines) -> None:
    """Draws the tokens of a second."""
    ax.set_ylabel(_title(_SPEED))
    for (kind, _), curve in lines.items():
        _plot(ax, curve, kind, color="C0")
    ax.set_ylim(bottom=0)


def _plot(ax: "Axes", curve: dict[int, float], kind: str, **style) -> None:
    # A single point makes no line; held-out metrics have marks, as they are few.
    marked = len(curve) == 1 or kind != "train"
    style.update({"alpha": 0.55} if kind == "train" else {"linewidth": 2})
    ax.plot(
        list(curve),
        list(curve.values()),
        marker="o" if marked else "",
        markevery=max(1, len(curve) // _MARKS),
        ms=4,
        **style,
    )


def _title(name: str) -> str:
    # Without the prefix of released names: the label has it.
    name = name.removeprefix("eval_").replace("_", " ").replace("/", ": ")
    return name[:1].upper() + name[1:].replace(" lm", " LM")


def _subject(name: str) -> str:
    """Returns what a loss and an accuracy share: "masked_lm" of both its names."""
    return name.removesuffix("_loss").removesuffix("_accuracy")
