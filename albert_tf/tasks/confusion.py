"""Confusion matrices, as counts and as a picture."""

import dataclasses
import io
import warnings
from collections.abc import Mapping, Sequence

import numpy as np

# A picture shows the counts in the cells only up to this number of classes.
_MAX_CLASSES_WITH_NUMBERS = 12


@dataclasses.dataclass(frozen=True)
class Confusion:
    """A confusion matrix.

    Attributes:
        labels: the names of K classes.
        counts: int [K, K], the number of examples for each true class (row) and
            predicted class (column).
    """

    labels: tuple[str, ...]
    counts: np.ndarray

    @classmethod
    def from_predictions(
        cls, labels: Sequence[str], targets: np.ndarray, predictions: np.ndarray
    ) -> "Confusion":
        """Counts the examples for each true class and predicted class.

        Args:
            labels: the names of the classes.
            targets: the number of the true class of each example, int [n].
            predictions: the number of the predicted class of each example, int [n].
        """
        from sklearn.metrics import confusion_matrix

        counts = confusion_matrix(targets, predictions, labels=range(len(labels)))
        return cls(tuple(labels), counts)


def draw(matrices: Mapping[str, Confusion]) -> bytes:
    """Draws confusion matrices in one row of a picture; needs no display.

    Args:
        matrices: one or more matrices by their titles.

    Returns:
        The contents of a PNG file.
    """
    # Imported here, because few programs draw, and the imports take a second. pyplot is
    # not used: it would choose a backend for the whole program.
    from matplotlib.figure import Figure
    from sklearn.metrics import ConfusionMatrixDisplay

    # Width and height of one matrix, in inches. They grow with the number of classes,
    # up to 14 classes.
    size = 2.4 + 0.62 * min(max(len(m.labels) for m in matrices.values()), 14)
    figure = Figure(figsize=(size * len(matrices), size), layout="constrained")
    axes = figure.subplots(1, len(matrices), squeeze=False)[0]
    for ax, (title, matrix) in zip(axes, matrices.items(), strict=True):
        # Matplotlib reads a dollar sign as the start of a formula.
        names = [label.replace("$", r"\$") for label in matrix.labels]
        # Names of more than 40 characters in total would overlap below the matrix. So
        # they are written vertically.
        ConfusionMatrixDisplay(matrix.counts, display_labels=names).plot(
            ax=ax,
            cmap="Blues",
            colorbar=False,
            include_values=len(names) <= _MAX_CLASSES_WITH_NUMBERS,
            values_format="d",
            xticks_rotation="vertical" if sum(map(len, names)) > 40 else "horizontal",
        )
        ax.set_title(title.replace("$", r"\$"))
    picture = io.BytesIO()
    # Matplotlib warns if its font lacks a character of a label. It then draws a box.
    with warnings.catch_warnings(action="ignore"):
        figure.savefig(picture, format="png", dpi=100)
    return picture.getvalue()
