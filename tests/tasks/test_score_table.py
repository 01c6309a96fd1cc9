import dataclasses

import numpy as np
import pytest

from albert_tf.tasks import glue
from albert_tf.tasks.score_table import describe


def test_scores_of_labels_and_the_matrix_are_those_worked_by_hand():
    targets = np.array([0, 0, 0, 1, 1, 2])
    predictions = np.array([0, 1, 1, 1, 1, 0])
    assert describe(glue.MNLI, targets, predictions) == (
        "label          precision  recall    f1  examples\n"
        "contradiction       50.0    33.3  40.0         3\n"
        "entailment          50.0   100.0  66.7         2\n"
        "neutral              0.0     0.0   0.0         1\n"
        "\n"
        "true \\ predicted  contradiction  entailment  neutral\n"
        "contradiction                 1           2        0\n"
        "entailment                    0           2        0\n"
        "neutral                       1           0        0\n"
    )


def test_several_labels_per_example_have_no_matrix():
    task = dataclasses.replace(glue.RTE, labels=("sea", "sun"), label_separator=",")
    found = describe(task, np.array([[1, 1], [0, 1]]), np.array([[1, 0], [1, 1]]))
    assert found == (
        "label  precision  recall    f1  examples\n"
        "sea         50.0   100.0  66.7         1\n"
        "sun        100.0    50.0  66.7         2\n"
    )


def test_many_labels_have_no_matrix():
    task = dataclasses.replace(glue.RTE, labels=tuple(map(str, range(13))))
    assert len(describe(task, np.arange(13), np.arange(13)).splitlines()) == 14


def test_a_regression_has_no_labels():
    with pytest.raises(ValueError, match="task sts-b: a regression has no labels"):
        describe(glue.STSB, np.zeros(2), np.zeros(2))
