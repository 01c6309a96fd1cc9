"""Metrics: fractions in [0, 1], correlations in [-1, 1], the mean squared error.

Except for entities, labels and predictions are arrays of the same length n > 0. They
have class numbers, int [n]; 0 and 1 for several labels per example, int [n, K]; or
numbers, float [n]. K is the number of labels. An undefined value (0/0) counts as 0: a
model that predicts one class for all examples gets a low score and not NaN.
"""

# scikit-learn, seqeval and scipy are imported in functions: the imports take a second.
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Score = Callable[[np.ndarray, np.ndarray], float]
# How tables of scores look: the number of decimals, and the value of 0/0.
_TABLE: dict[str, Any] = {"digits": 3, "zero_division": 0}


def accuracy(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the share of correct examples; all labels of an example must match."""
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(labels, predictions))


def f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the F1 of class 1; the only other class is 0."""
    from sklearn.metrics import f1_score

    return float(f1_score(labels, predictions, zero_division=0))


def macro_f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the mean of the F1 of all labels.

    Labels that occur neither in the examples nor in the predictions do not count.
    """
    from sklearn.metrics import f1_score

    if labels.ndim == 1:  # class numbers: scikit-learn uses only labels that occur
        return float(f1_score(labels, predictions, average="macro", zero_division=0))
    indices = np.flatnonzero((labels | predictions).any(axis=0))  # labels that occur
    f1s = [f1(labels[:, k], predictions[:, k]) for k in indices]
    return float(np.mean(f1s)) if f1s else 0.0


def micro_f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the F1 over all labels of all examples."""
    return f1(labels.ravel(), predictions.ravel())


def matthews(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the Matthews correlation, for any number of classes.

    It is 0 if all labels or all predictions are equal. Source: Gorodkin 2004, R_K.
    """
    from sklearn.metrics import matthews_corrcoef

    # scikit-learn also returns 0, but with a warning.
    if np.ptp(labels) == 0 or np.ptp(predictions) == 0:
        return 0.0
    return float(matthews_corrcoef(labels, predictions))


def pearson(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the linear correlation; 0 if all labels or all predictions are equal."""
    from scipy import stats

    if np.ptp(labels) == 0 or np.ptp(predictions) == 0:
        return 0.0
    with warnings.catch_warnings(category=stats.NearConstantInputWarning):
        warnings.simplefilter("ignore", stats.NearConstantInputWarning)
        return float(stats.pearsonr(labels, predictions).statistic)


def spearman(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the rank correlation; equal numbers get their mean rank."""
    from scipy import stats

    return pearson(stats.rankdata(labels), stats.rankdata(predictions))


def mean_squared_error(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the mean of the squared differences."""
    return float(np.square(np.asarray(labels, np.float64) - predictions).mean())


# The metrics of regressions, in the order in which they are reported.
REGRESSION: dict[str, Score] = {
    "pearson": pearson,
    "spearman": spearman,
    "MSE": mean_squared_error,
}


def label_report(
    labels: np.ndarray, predictions: np.ndarray, names: Sequence[str]
) -> str:
    """Returns a table of precision, recall, F1 and number of examples by label.

    Args:
        labels: class numbers, int [n]; or 0 and 1 for several labels, int [n, K].
        predictions: the predictions, in the form of `labels`.
        names: the names of K labels.
    """
    from sklearn.metrics import classification_report

    class_numbers = list(range(len(names)))
    # scikit-learn reads a single column of 0 and 1 as the numbers of two classes. Class
    # 1 means that an example has the only label, so the table shows only class 1.
    if labels.shape[1:] == (1,):
        labels, predictions, class_numbers = labels[:, 0], predictions[:, 0], [1]
    return classification_report(
        labels, predictions, labels=class_numbers, target_names=list(names), **_TABLE
    )


def entity_scores(
    labels: list[list[str]], predictions: list[list[str]]
) -> dict[str, float]:
    """Returns precision, recall and F1 over the named entities of all types.

    An entity is correct if its type and all its words are correct. As in conlleval and
    seqeval, I-TYPE begins an entity if the previous word has another type.

    Args:
        labels: for each sentence, the label of each word: O, B-TYPE or I-TYPE.
        predictions: for each sentence, the predicted label of each word.
    """
    from seqeval.metrics.sequence_labeling import precision_recall_fscore_support

    scores = precision_recall_fscore_support(
        labels, predictions, average="micro", zero_division=0
    )
    names = ("eval_precision", "eval_recall", "eval_f1")
    # The last of the four scores, the number of entities, is left out.
    return {name: float(score) for name, score in zip(names, scores, strict=False)}


def entity_report(labels: list[list[str]], predictions: list[list[str]]) -> str:
    """Returns a table of precision, recall and F1 by type of entity.

    Args:
        labels: see `entity_scores`.
        predictions: see `entity_scores`.
    """
    from seqeval.metrics import classification_report

    try:
        return classification_report(labels, predictions, **_TABLE)
    except ValueError:  # seqeval fails if there is no entity
        return "no entity\n"
