import numpy as np
import pytest
import tensorflow as tf

from albert_tf.tasks import confusion
from albert_tf.tasks.confusion import Confusion

pytestmark = pytest.mark.usefixtures("draws")


def test_counts_stand_in_the_row_of_the_true_class():
    matrix = Confusion.from_predictions(["a", "b", "c"], [0, 0, 1, 2], [0, 2, 1, 2])
    assert matrix.counts.tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize("count", [2, 40])
def test_a_picture_shows_counts_of_few_classes(count, monkeypatch):
    from matplotlib.axes import Axes

    texts = []
    write = Axes.text
    monkeypatch.setattr(
        Axes, "text", lambda self, *a, **k: (texts.append(a[2]), write(self, *a, **k))
    )
    labels = [f"${name}" for name in range(count)]
    matrix = Confusion(tuple(labels), 3 * np.eye(count, dtype=int))
    picture = tf.io.decode_png(confusion.draw({"dev": matrix, "other": matrix}))
    assert picture.shape[1] > picture.shape[0] > 100
    assert texts == (["3", "0", "0", "3"] * 2 if count == 2 else [])
