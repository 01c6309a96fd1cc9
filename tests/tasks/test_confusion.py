import numpy as np
import pytest
import tensorflow as tf

from albert_tf.tasks import confusion
from albert_tf.tasks.confusion import Confusion

pytestmark = pytest.mark.usefixtures("draws")


def test_counts_stand_in_the_row_of_the_true_class():
    matrix = Confusion.of(["a", "b", "c"], [0, 0, 1, 2], [0, 2, 1, 2])
    assert matrix.counts.tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 1]]
    assert matrix.largest(3) is matrix


def test_the_rarest_classes_are_joined():
    labels = np.array([0, 0, 0, 1, 2, 2, 3, 4])
    matrix = Confusion.of("abcde", labels, np.roll(labels, 1)).largest(3)
    assert matrix.labels == ("a", "c", "3 others")
    assert matrix.counts.tolist() == [[2, 0, 1], [0, 1, 1], [1, 1, 1]]
    assert matrix.counts.sum() == 8


@pytest.mark.parametrize("count", [2, 40])
def test_a_picture_shows_names_counts_and_shares(count, monkeypatch):
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
    assert texts == (["3\n100%", "0\n0%", "0\n0%", "3\n100%"] * 2 if count == 2 else [])
