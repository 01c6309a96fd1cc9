import numpy as np
import pytest
import tensorflow as tf

from albert_tf.tasks import confusion, metrics
from albert_tf.tasks.confusion import Confusion

# Worked by hand. Class 1: 3 true, 4 predicted, 2 both.
LABELS = np.array([1, 0, 1, 0, 0, 1, 0])
PREDICTIONS = np.array([1, 1, 0, 0, 1, 1, 0])


def test_scores_of_two_classes_are_those_worked_by_hand():
    assert metrics.accuracy(LABELS, PREDICTIONS) == pytest.approx(4 / 7)
    assert metrics.f1(LABELS, PREDICTIONS) == pytest.approx(4 / 7)
    # TP 2, TN 2, FP 2, FN 1: (4 - 2) / sqrt(4 * 3 * 4 * 3)
    assert metrics.matthews(LABELS, PREDICTIONS) == pytest.approx(2 / 12)
    report = metrics.label_report(LABELS, PREDICTIONS, ("no", "yes")).split("\n")
    assert report[2].split() == ["no", "0.667", "0.500", "0.571", "4"]
    assert report[3].split() == ["yes", "0.500", "0.667", "0.571", "3"]


def test_scores_of_several_labels_are_those_worked_by_hand():
    labels = np.array([[1, 0, 1, 0], [0, 0, 1, 0], [1, 0, 0, 0]])
    predictions = np.array([[1, 0, 0, 0], [0, 0, 1, 0], [1, 1, 0, 0]])
    assert metrics.accuracy(labels, predictions) == pytest.approx(1 / 3)
    # F1: 1, 0, 2/3; the last label occurs nowhere.
    assert metrics.macro_f1(labels, predictions) == pytest.approx((1 + 2 / 3) / 3)
    assert metrics.micro_f1(labels, predictions) == pytest.approx(6 / 8)
    report = metrics.label_report(labels, predictions, "abcd").split("\n")
    assert report[4].split() == ["c", "1.000", "0.500", "0.667", "2"]
    assert report[5].split() == ["d", "0.000", "0.000", "0.000", "0"]


def test_correlations_are_those_worked_by_hand():
    labels, predictions = np.array([1.0, 2, 3, 4]), np.array([2.0, 1, 4, 4])
    # Deviations (-1.5, -.5, .5, 1.5) and (-.75, -1.75, 1.25, 1.25).
    assert metrics.pearson(labels, predictions) == pytest.approx(
        4.5 / np.sqrt(5 * 6.75)
    )
    # Ranks (2, 1, 3.5, 3.5).
    assert metrics.spearman(labels, predictions) == pytest.approx(
        3.5 / np.sqrt(5 * 4.5)
    )
    assert metrics.mean_squared_error(labels, predictions) == pytest.approx(3 / 4)


def test_a_model_that_predicts_one_thing_scores_zero_and_not_nan():
    ones = np.ones(7, int)
    assert metrics.matthews(LABELS, ones) == 0.0
    assert metrics.matthews(ones, ones) == 0.0
    assert metrics.f1(1 - ones, 1 - ones) == 0.0
    assert metrics.accuracy(1 - ones, 1 - ones) == 1.0
    # Whose mean is not 0.1 in float64.
    constant = np.full(6, 0.1)
    varied = np.array([0.3, 1, 2, 0, 4, 5])
    for correlation in (metrics.pearson, metrics.spearman):
        assert correlation(varied, constant) == correlation(constant, varied) == 0.0


def test_correlations_of_tiny_and_of_proportional_numbers_stay_in_bounds():
    values = np.array([0.1, 0.2, 0.7, 0.3, 0.9])
    assert metrics.pearson(values * 1e-200, -3 * values) == pytest.approx(-1)
    assert metrics.pearson(values, values * 7) <= 1.0


def test_a_single_label_of_several_that_may_be_given():
    labels, predictions = np.array([[1], [0], [1]]), np.array([[1], [1], [0]])
    report = metrics.label_report(labels, predictions, "a").split("\n")
    assert report[2].split() == ["a", "0.500", "0.500", "0.500", "2"]
    assert metrics.macro_f1(labels, predictions) == 0.5
    assert metrics.micro_f1(labels, predictions) == 0.5
    assert metrics.macro_f1(0 * labels, 0 * labels) == 0.0
    assert metrics.micro_f1(0 * labels, 0 * labels) == 0.0


def test_scores_of_three_classes_are_those_worked_by_hand():
    # The class 1 neither occurs nor is predicted: the mean F1 leaves it out.
    labels, predictions = np.array([0, 0, 2, 2, 3]), np.array([0, 2, 2, 2, 0])
    assert metrics.macro_f1(labels, predictions) == pytest.approx((0.5 + 0.8 + 0) / 3)
    # (3 * 5 - (2 * 2 + 2 * 3)) / sqrt((25 - 13) * (25 - 9))
    assert metrics.matthews(labels, predictions) == pytest.approx(5 / np.sqrt(192))


def test_scores_of_entities_are_those_worked_by_hand():
    labels = [
        ["B-PER", "I-PER", "O", "B-LOC", "B-LOC"],
        ["O", "B-ORG", "I-ORG", "O"],
        ["B-PER"],
    ]
    predictions = [
        # One word of the person alone; two neighbours of one type.
        ["B-PER", "O", "O", "B-LOC", "B-LOC"],
        # I- begins an entity, where none of its type is before; the type is wrong.
        ["I-MISC", "B-LOC", "I-LOC", "O"],
        ["I-PER"],
    ]
    scores = metrics.entity_scores(labels, predictions)
    assert list(scores.values()) == pytest.approx([3 / 6, 3 / 5, 6 / 11])
    lines = map(str.split, metrics.entity_report(labels, predictions).splitlines()[2:6])
    assert list(lines) == [
        ["LOC", "0.667", "1.000", "0.800", "2"],
        ["MISC", "0.000", "0.000", "0.000", "0"],
        ["ORG", "0.000", "0.000", "0.000", "1"],
        ["PER", "0.500", "0.500", "0.500", "2"],
    ]
    none = [["O", "O"]]
    assert {*metrics.entity_scores(none, none).values()} == {0}
    assert metrics.entity_report(none, none) == "no entity\n"


@pytest.mark.parametrize("count", [2, 40])
@pytest.mark.usefixtures("draws")
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
