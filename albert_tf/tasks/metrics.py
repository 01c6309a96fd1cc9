"""Scores of predictions: fractions in [0, 1], correlations in [-1, 1].

Labels and predictions are arrays of one length n > 0: class numbers, int [n]; or for
several labels per example 0 and 1, int [n, K]; or numbers, float [n]. K is the number
of labels. What a formula leaves undefined (0/0) is 0, so that a model that predicts one
class for everything gets the worst score and not NaN.
"""

# scikit-learn and scipy are imported where they are used: they take a second.
import warnings
from collections.abc import Sequence

import numpy as np

# Columns of `per_label`.
PRECISION, RECALL, F1, SUPPORT = range(4)
# The row of `entity_scores` for all types together.
ALL = "micro avg"


def accuracy(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the share of examples that are right; of several labels, all of them."""
    labels, predictions = _pair(labels, predictions)
    right = labels == predictions
    return float(right.reshape(len(right), -1).all(axis=1).mean())


def f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the harmonic mean of precision and recall of class 1, of two classes."""
    return float(per_label(labels, predictions, 2)[1, F1])


def macro_f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the mean of all labels' F1.

    A label that no example has and none is predicted to have is left out.
    """
    from sklearn.metrics import f1_score

    labels, predictions = _pair(labels, predictions)
    if labels.ndim > 1:
        occurs = (labels | predictions).any(axis=0)
        f1s = per_label(labels, predictions, len(occurs))[occurs, F1]
        return float(f1s.mean()) if len(f1s) else 0.0
    return float(f1_score(labels, predictions, average="macro", zero_division=0))


def micro_f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the F1 of all labels' decisions together."""
    from sklearn.metrics import f1_score

    labels, predictions = _pair(labels, predictions)
    if labels.ndim > 1:  # one long row of decisions
        labels, predictions = labels.ravel(), predictions.ravel()
        return float(f1_score(labels, predictions, zero_division=0))
    return float(f1_score(labels, predictions, average="micro", zero_division=0))


def matthews(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns Matthews's correlation, for any number of classes.

    0 where all labels or all predictions are one class. Source: Gorodkin 2004, R_K.
    """
    from sklearn.metrics import matthews_corrcoef

    labels, predictions = _pair(labels, predictions)
    if np.ptp(labels) == 0 or np.ptp(predictions) == 0:
        return 0.0
    return float(matthews_corrcoef(labels, predictions))


def pearson(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the linear correlation; 0 where one side is constant."""
    from scipy import stats

    labels, predictions = _pair(labels, predictions)
    if np.ptp(labels) == 0 or np.ptp(predictions) == 0:
        return 0.0
    with warnings.catch_warnings(category=stats.NearConstantInputWarning):
        warnings.simplefilter("ignore", stats.NearConstantInputWarning)
        return float(stats.pearsonr(labels, predictions).statistic)


def spearman(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the correlation of ranks, equal numbers sharing the mean of theirs."""
    from scipy import stats

    labels, predictions = _pair(labels, predictions)
    return pearson(stats.rankdata(labels), stats.rankdata(predictions))


def mean_squared_error(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the mean of the squared differences."""
    labels, predictions = _pair(labels, predictions)
    return float(np.square(labels.astype(np.float64) - predictions).mean())


def confusion_matrix(
    labels: np.ndarray, predictions: np.ndarray, label_count: int
) -> np.ndarray:
    """Counts examples by class and predicted class.

    Args:
        labels: int [n], each in [0, K).
        predictions: int [n], each in [0, K).
        label_count: K.

    Returns:
        int64 [K, K]; a row for each class, a column for each predicted one.

    Raises:
        ValueError: a class number is not in [0, K).
    """
    from sklearn import metrics

    labels, predictions = _pair(labels, predictions)
    for numbers in (labels, predictions):  # scikit-learn would leave them out
        if numbers.min() < 0 or numbers.max() >= label_count:
            raise ValueError(f"class numbers: expected 0 to {label_count - 1}")
    return metrics.confusion_matrix(labels, predictions, labels=range(label_count))


def per_label(
    labels: np.ndarray, predictions: np.ndarray, label_count: int
) -> np.ndarray:
    """Scores each label.

    Args:
        labels: int [n], each in [0, K), or int [n, K] of 0 and 1.
        predictions: the same.
        label_count: K.

    Returns:
        float64 [K, 4]: precision, recall, F1, and the number of examples that have the
        label.
    """
    from sklearn.metrics import precision_recall_fscore_support

    labels, predictions = _pair(labels, predictions)
    numbers = list(range(label_count))
    if labels.ndim > 1 and label_count == 1:
        labels, predictions, numbers = labels[:, 0], predictions[:, 0], [1]
    scores = precision_recall_fscore_support(
        labels, predictions, labels=numbers, zero_division=0
    )
    return np.stack(scores, axis=1)


def entity_scores(
    labels: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]
) -> dict[str, tuple[float, ...]]:
    """Scores named entities: one is right if its type and all its words are.

    As in conlleval and seqeval, an I-TYPE that follows no word of its type begins an
    entity.

    Args:
        labels: O, B-TYPE or I-TYPE of each word, of each sentence.
        predictions: as many.

    Returns:
        What `per_label` returns, of each type that occurs, sorted, and of all entities
        together (`ALL`).
    """
    from seqeval.metrics import classification_report
    from seqeval.metrics.sequence_labeling import get_entities

    sides = [[list(sentence) for sentence in side] for side in (labels, predictions)]
    names = {entity[0] for side in sides for entity in get_entities(side)}
    report: dict[str, dict[str, float]] = {}
    if names:  # seqeval fails without an entity
        report = classification_report(*sides, output_dict=True, zero_division=0)
    none = dict.fromkeys(("precision", "recall", "f1-score", "support"), 0.0)
    rows = {name: report[name] for name in sorted(names)}
    rows[ALL] = report.get("micro avg", none)
    return {name: tuple(map(float, row.values())) for name, row in rows.items()}


def _pair(labels, predictions) -> tuple[np.ndarray, np.ndarray]:
    labels, predictions = np.asarray(labels), np.asarray(predictions)
    if labels.shape != predictions.shape or not labels.size:
        raise ValueError(
            f"labels {labels.shape} and predictions {predictions.shape}; "
            f"expected two equal shapes with at least one example"
        )
    return labels, predictions
