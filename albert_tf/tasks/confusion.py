"""Which classes a model takes for which, as counts and as a picture."""

import dataclasses
import io
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from albert_tf.tasks import metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# More classes are joined to one, more than the second have no numbers in their cells,
# and longer names are cut.
_MOST_CLASSES, _MOST_WITH_NUMBERS, _LONGEST_NAME = 30, 12, 24


@dataclasses.dataclass(frozen=True)
class Confusion:
    """A confusion matrix.

    Attributes:
        labels: the names of K classes.
        counts: int [K, K], examples by class (row) and predicted class (column).
    """

    labels: tuple[str, ...]
    counts: np.ndarray

    @classmethod
    def of(
        cls, labels: Sequence[str], targets: np.ndarray, predictions: np.ndarray
    ) -> "Confusion":
        """Counts class numbers, int [n] each."""
        counts = metrics.confusion_matrix(targets, predictions, len(labels))
        return cls(tuple(labels), counts)

    def largest(self, most: int) -> "Confusion":
        """Joins the rarest classes to one, so that there are at most so many."""
        if len(self.labels) <= most:
            return self
        occurs = self.counts.sum(axis=0) + self.counts.sum(axis=1)
        kept = np.sort(np.argsort(-occurs, kind="stable")[: most - 1])
        group = np.full(len(self.labels), most - 1)
        group[kept] = np.arange(most - 1)
        joined = np.zeros((most, most), np.int64)
        np.add.at(joined, (group[:, None], group[None]), self.counts)
        rest = f"{len(self.labels) - len(kept)} others"
        return Confusion((*(self.labels[i] for i in kept), rest), joined)


def draw(matrices: Mapping[str, Confusion]) -> bytes:
    """Draws confusion matrices beside each other; needs no display.

    A cell has its count and its share of the row, which is its colour, too. Of more
    than 30 classes the rarest are joined, and with more than 12 cells have no numbers.

    Args:
        matrices: by their titles, one or more.

    Returns:
        The picture, PNG.
    """
    # Imported late and without pyplot, see `train.curves.draw`.
    from matplotlib.figure import Figure

    reduced = {name: each.largest(_MOST_CLASSES) for name, each in matrices.items()}
    size = 2.4 + 0.62 * min(max(len(m.labels) for m in reduced.values()), 14)
    figure = Figure(figsize=(size * len(reduced), size), layout="constrained")
    axes = figure.subplots(1, len(reduced), squeeze=False)[0]
    for ax, (title, matrix) in zip(axes, reduced.items(), strict=True):
        _draw_one(ax, title, matrix)
    picture = io.BytesIO()
    with warnings.catch_warnings(action="ignore"):  # a script that the font lacks
        figure.savefig(picture, format="png", dpi=100)
    return picture.getvalue()


def _draw_one(ax: "Axes", title: str, matrix: Confusion) -> None:
    counts = matrix.counts
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    ax.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    # A dollar sign would begin a formula.
    names = [_shortened(label).replace("$", r"\$") for label in matrix.labels]
    upright = sum(map(len, names)) > 40
    ax.set_xticks(range(len(names)), names, rotation=90 if upright else 0)
    ax.set_yticks(range(len(names)), names)
    ax.set(title=title.replace("$", r"\$"), xlabel="predicted", ylabel="true")
    if len(names) > _MOST_WITH_NUMBERS:
        return
    for (row, column), count in np.ndenumerate(counts):
        share = shares[row, column]
        color = "white" if share > 0.5 else "black"
        text = f"{count:,}\n{share:.0%}"
        ax.text(column, row, text, color=color, ha="center", va="center", size="small")


def _shortened(label: str) -> str:
    return label if len(label) <= _LONGEST_NAME else f"{label[: _LONGEST_NAME - 1]}…"
