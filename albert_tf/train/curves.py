"""Reads the metrics of a run from `metrics.jsonl`, and draws them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from albert_tf import errors
from albert_tf.errors import InputError

NAME = "metrics.jsonl"
# The metrics of a run. For example, curves["eval"]["loss"] is {step: value}, with steps
# in ascending order.
Curves = dict[str, dict[str, dict[int, float]]]

# Keys of an entry that are not names of metrics.
_PROGRESS_KEYS = ("step", "time", "waiting_share", "sequences_per_second", "steps")
# {title of a panel: endings of the names of the metrics that it shows}.
_PANELS = {
    "Loss": ("loss",),
    "Score": ("accuracy", "f1", "exact", "exact_match", "corr", "pearson", "spearman"),
    "Learning rate": ("learning_rate",),
}


def entries(metrics_file: str | Path) -> Iterator[dict[str, Any]]:
    """Yields the entries of `metrics.jsonl`, one per line; skips incomplete lines.

    Args:
        metrics_file: lines of JSON objects, each with a "kind" ("train", "eval",
            "resume" or another name), a "step" and numbers by name.

    Raises:
        InputError: the file cannot be read.
    """
    with errors.wrap_read(metrics_file):
        text = Path(metrics_file).read_text("utf-8", errors="replace")
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and {"kind", "step"} <= entry.keys():
            yield entry


def read(metrics_file: str | Path) -> Curves:
    """Reads the metrics of a run by kind, name and step.

    A resumed run repeats steps. So a value replaces all earlier values in the file that
    have the same kind and name, and the same step or a later one.

    Args:
        metrics_file: see `entries`.

    Returns:
        {kind: {name: {step: value}}}, steps in ascending order.

    Raises:
        InputError: the file cannot be read, or none of its lines has a metric.
    """
    curves: Curves = {}
    for entry in entries(metrics_file):
        for name, value in entry.items():
            if name in _PROGRESS_KEYS or type(value) not in (int, float):
                continue
            curve = curves.setdefault(entry["kind"], {}).setdefault(name, {})
            # Remove the values of earlier lines for this step and for later steps.
            while curve and next(reversed(curve)) >= entry["step"]:
                curve.popitem()
            curve[entry["step"]] = value
    if not curves:
        raise InputError(
            f'{metrics_file}: no line such as {{"kind": "train", "step": 1, "loss": 2}}'
        )
    return curves


def draw(metrics_file: str | Path, picture: str | Path | IO[bytes]) -> None:
    """Draws losses, scores and the learning rate; works without a display.

    Args:
        metrics_file: see `entries`.
        picture: a path (.png, .svg, .pdf), or an open file, which gets a PNG.

    Raises:
        InputError: see `read`; or the picture cannot be written.
    """
    # pyplot is not used: it would choose a backend for the whole program.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 4.5), layout="constrained")
    axes = figure.subplots(1, len(_PANELS))
    for ax, (title, endings) in zip(axes, _PANELS.items(), strict=True):
        ax.set(title=title, xlabel="step")
        ax.grid(alpha=0.25)
        for kind, curves in read(metrics_file).items():
            for name, curve in curves.items():
                # "eval_loss" is the same number as "loss".
                if name.endswith(endings) and name != "eval_loss":
                    # Evaluations are few, so each gets a marker. A single point of
                    # training also needs one to be visible.
                    marker = "" if kind == "train" and len(curve) > 1 else "o"
                    label = f"{name.replace('_', ' ')}, {kind}"
                    ax.plot([*curve], [*curve.values()], marker=marker, label=label)
        if ax.lines:
            ax.legend(fontsize="small")
    with errors.wrap_write(picture):
        figure.savefig(picture, dpi=100)
