"""Scores of predictions, in plain numpy: fractions in [0, 1], correlations in [-1, 1].

Labels and predictions are arrays of one length n > 0: class numbers, int [n]; or for
several labels per example 0 and 1, int [n, K]; or numbers, float [n]. K is the number
of labels. What a formula leaves undefined (0/0) is 0, so that a model that predicts one
class for everything gets the worst score and not NaN.
"""

import numpy as np

# Columns of `per_label`.
PRECISION, RECALL, F1, SUPPORT = range(4)


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
    labels, predictions = _pair(labels, predictions)
    label_count = _label_count(labels, predictions)
    true, predicted, both = _counts(labels, predictions, label_count)
    occurs = true + predicted > 0
    return (
        float(_ratio(2 * both, true + predicted)[occurs].mean()) if any(occurs) else 0.0
    )


def micro_f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the F1 of all labels' decisions together."""
    labels, predictions = _pair(labels, predictions)
    label_count = _label_count(labels, predictions)
    true, predicted, both = _counts(labels, predictions, label_count)
    return float(_ratio(2 * both.sum(), true.sum() + predicted.sum()))


def matthews(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns Matthews's correlation, for any number of classes.

    0 where all labels or all predictions are one class. Source: Gorodkin 2004, R_K.
    """
    labels, predictions = _pair(labels, predictions)
    matrix = confusion_matrix(labels, predictions, _label_count(labels, predictions))
    matrix = matrix.astype(np.float64)
    true, predicted, total = matrix.sum(axis=1), matrix.sum(axis=0), matrix.sum()
    covariance = np.trace(matrix) * total - true @ predicted
    spread = (total**2 - predicted @ predicted) * (total**2 - true @ true)
    return float(_ratio(covariance, np.sqrt(spread)))


def pearson(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the linear correlation; 0 where one side is constant."""
    labels, predictions = _pair(labels, predictions)
    labels, predictions = (x.astype(np.float64) for x in (labels, predictions))
    # Asked of the values: the mean of equal numbers may differ from them by rounding.
    if np.ptp(labels) == 0 or np.ptp(predictions) == 0:
        return 0.0
    left, right = labels - labels.mean(), predictions - predictions.mean()
    # Each to length 1 before they meet, lest tiny numbers become 0 when squared.
    left, right = left / np.abs(left).max(), right / np.abs(right).max()
    product = left @ right / np.sqrt((left @ left) * (right @ right))
    return float(np.clip(product, -1.0, 1.0))


def spearman(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the correlation of ranks, equal numbers sharing the mean of theirs."""
    labels, predictions = _pair(labels, predictions)
    return pearson(_ranks(labels), _ranks(predictions))


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
    """
    labels, predictions = _pair(labels, predictions)
    if min(labels.min(), predictions.min()) < 0:
        raise ValueError("a negative class number; expected one in [0, K)")
    found = np.zeros((label_count, label_count), np.int64)
    np.add.at(found, (labels, predictions), 1)
    return found


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
    labels, predictions = _pair(labels, predictions)
    true, predicted, both = _counts(labels, predictions, label_count)
    return np.stack(
        [
            _ratio(both, predicted),
            _ratio(both, true),
            _ratio(2 * both, true + predicted),
            true,
        ],
        axis=1,
    )


def _pair(labels, predictions) -> tuple[np.ndarray, np.ndarray]:
    labels, predictions = np.asarray(labels), np.asarray(predictions)
    if labels.shape != predictions.shape or not labels.size:
        raise ValueError(
            f"labels {labels.shape} and predictions {predictions.shape}; "
            f"expected two equal shapes with at least one example"
        )
    return labels, predictions


def _label_count(labels: np.ndarray, predictions: np.ndarray) -> int:
    if labels.ndim > 1:
        return labels.shape[1]
    return int(max(labels.max(), predictions.max())) + 1


def _counts(
    labels: np.ndarray, predictions: np.ndarray, label_count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns how often each label is true, is predicted, and both, float64 [K]."""
    if labels.ndim > 1:
        labels, predictions = labels > 0, predictions > 0
        found = (labels, predictions, labels & predictions)
        return tuple(x.sum(axis=0).astype(np.float64) for x in found)
    matrix = confusion_matrix(labels, predictions, label_count).astype(np.float64)
    return matrix.sum(axis=1), matrix.sum(axis=0), np.diag(matrix)


def _ratio(part, whole) -> np.ndarray:
    """Divides, and makes 0/0 0."""
    part, whole = np.asarray(part, np.float64), np.asarray(whole, np.float64)
    return np.divide(part, whole, out=np.zeros_like(part), where=whole != 0)


def _ranks(values: np.ndarray) -> np.ndarray:
    """Returns the rank of each number from 1 on; equal ones share their mean."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[group]
