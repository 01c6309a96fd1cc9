"""Exact match and F1 as in the official scripts of SQuAD 1.1 and 2.0.

Metrics are percentages, as in these scripts.
"""

import bisect
import collections
import itertools
import logging
import re
import string
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from albert_tf.data import json_values
from albert_tf.errors import InputError
from albert_tf.tasks.squad.reading import Dataset, read

_log = logging.getLogger(__name__)
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalize(text: str) -> str:
    """Lower-cases a text; drops ASCII punctuation, articles and extra white space."""
    text = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(answer: str, truth: str) -> float:
    """Returns 1 if both answers are equal after `normalize`, otherwise 0."""
    return float(normalize(answer) == normalize(truth))


def f1(answer: str, truth: str, empty_counts: bool = False) -> float:
    """Returns the harmonic mean of precision and recall over words, in [0, 1].

    Args:
        answer: the prediction.
        truth: a correct answer.
        empty_counts: whether two answers without words score 1 (SQuAD 2.0) or 0 (SQuAD
            1.1).
    """
    words, true_words = normalize(answer).split(), normalize(truth).split()
    if empty_counts and not (words and true_words):
        return float(words == true_words)
    common = (collections.Counter(words) & collections.Counter(true_words)).total()
    if not common:
        return 0.0
    precision, recall = common / len(words), common / len(true_words)
    return 2 * precision * recall / (precision + recall)


def evaluate_files(
    dataset_json: str | Path,
    predictions_json: str | Path,
    *,
    null_odds_json: str | Path | None = None,
    threshold: float | None = None,
    version: str | None = None,
) -> dict[str, float]:
    """Scores a file of predictions, and returns the metrics of `evaluate`.

    Args:
        dataset_json: file of questions and answers, in a format of `reading`.
        predictions_json: file with {question id: answer}. Ids that the dataset lacks
            are ignored. Questions without a prediction score 0, and a warning gives
            their number.
        null_odds_json: file with {question id: null odds}, the scores of "no answer".
        threshold: questions with higher null odds count as not answered; None means no
            threshold.
        version: version of the official script, "1.1" or "2.0"; by default the
            dataset's version.

    Raises:
        InputError: a file cannot be read or has wrong contents, no id of the
            predictions is in the dataset, or `evaluate` raises it.
    """
    dataset = read(dataset_json, version)
    answers = _read_values(predictions_json, str, "answers")
    ids = [question.id for question in dataset.questions]
    missing = [id for id in ids if id not in answers]
    if len(missing) == len(ids):
        first = next(iter(answers), None)
        raise InputError(
            f"{predictions_json}: none of its {len(answers):,} question ids is in "
            f"{dataset_json}; its first is {first!r}, expected one such as {ids[0]!r}"
        )
    if missing:
        _log.warning(
            f"{predictions_json}: no prediction for {len(missing)} of {len(ids)} "
            f"questions, which score 0; the first is {missing[0]!r}"
        )
    odds = null_odds_json and _read_values(null_odds_json, (int, float), "numbers")
    # A file without null odds, as for SQuAD 1.1, counts as no file.
    return evaluate(dataset, answers, odds or None, threshold)


def evaluate(
    dataset: Dataset,
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    threshold: float | None = None,
) -> dict[str, float]:
    """Scores predictions as in the official script of the dataset's version.

    Args:
        dataset: questions and answers.
        predictions: {question id: answer}, "" for no answer. A question without a
            prediction scores 0.
        null_odds: {question id: null odds}, the scores of "no answer", only for SQuAD
            2.0. With null odds, the result has the best thresholds.
        threshold: questions with higher null odds count as not answered; None means no
            threshold.

    Returns:
        Metrics by name: percentages, numbers of questions (`total`) and thresholds
        (`thresh`). SQuAD 1.1 has `exact_match` and `f1`. SQuAD 2.0 has `exact`, `f1`
        and `total`; the same three with the prefix `HasAns_` or `NoAns_` for the
        questions with or without a true answer; and with null odds `best_exact`,
        `best_exact_thresh`, `best_f1` and `best_f1_thresh`.

    Raises:
        InputError: a question has no null odds, or there is a threshold without null
            odds. In SQuAD 1.1: a question has no answer, or there are null odds or a
            threshold.
    """
    is_v1 = dataset.version == "1.1"
    if is_v1 and (null_odds is not None or threshold is not None):
        raise InputError(
            f"{dataset.path}: null odds and thresholds are only for SQuAD 2.0; in "
            f"SQuAD 1.1 every question has an answer"
        )
    if threshold is not None and null_odds is None:
        raise InputError(f"threshold {threshold}: needs null odds to compare with")
    questions = list(dataset.questions)
    # The scores with no threshold, by name and question id.
    raw_scores = _score_answers(dataset, predictions)
    ids = [question.id for question in questions]
    if is_v1:
        means = _average(raw_scores, "", ids)
        return {"exact_match": means["exact"], "f1": means["f1"]}
    answerable = {question.id for question in questions if question.answers}
    scores = {name: {**values} for name, values in raw_scores.items()}
    if null_odds is not None:
        for id in raw_scores["f1"]:
            if id not in null_odds:
                raise InputError(f"{dataset.path}: question {id!r} has no null odds")
            if threshold is not None and null_odds[id] > threshold:
                # The question counts as not answered. It scores 1 if it has no true
                # answer, otherwise 0.
                for values in scores.values():
                    values[id] = float(id not in answerable)
    metrics = _average(scores, "", ids)
    for prefix, has_answer in (("HasAns_", True), ("NoAns_", False)):
        if subset := [id for id in ids if (id in answerable) is has_answer]:
            metrics |= _average(scores, prefix, subset)
    if null_odds is not None:
        for name, values in raw_scores.items():
            best, best_at = find_best_threshold(
                values, predictions, null_odds, answerable, len(ids)
            )
            metrics |= {f"best_{name}": best, f"best_{name}_thresh": best_at}
    return metrics


def find_best_threshold(
    scores: Mapping[str, float],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
    answerable: Collection[str],
    total: int,
) -> tuple[float, float]:
    """Returns the highest mean score of any threshold, and this threshold.

    As in the official script, questions are answered one by one, in order of their null
    odds. If the mean score is highest without any answers, the threshold is 0.

    Args:
        scores: {question id: score in [0, 1]} if all questions are answered.
        predictions: the answers, "" for no answer.
        null_odds: {question id: null odds}.
        answerable: ids of the questions that have an answer.
        total: number of questions, including those without a prediction.

    Returns:
        The mean score in percent, and the threshold. A question is answered if its null
        odds are not above the threshold.
    """
    ids = [id for id in sorted(null_odds, key=null_odds.__getitem__) if id in scores]
    # The sum of all scores if no question is answered: each question without a true
    # answer scores 1.
    first_sum = float(sum(id not in answerable for id in scores))
    # How the sum of all scores changes if one more question is answered. A question
    # without a true answer loses its score of 1, unless the answer is "".
    gains = [scores[id] if id in answerable else -bool(predictions[id]) for id in ids]
    sums = list(itertools.accumulate(gains, initial=first_sum))
    count = sums.index(max(sums))  # number of questions to answer
    return 100.0 * sums[count] / total, null_odds[ids[count - 1]] if count else 0.0


def search_threshold(
    dataset: Dataset, predictions: Mapping[str, str], null_odds: Mapping[str, float]
) -> float:
    """Returns the threshold with the highest F1, for use with other questions.

    Args:
        dataset: SQuAD 2.0 questions on which the threshold is fitted.
        predictions: an answer to each question.
        null_odds: {question id: null odds}.

    Raises:
        InputError: no question has an answer, or null odds are missing.
    """
    if not any(question.answers for question in dataset.questions):
        raise InputError(
            f"{dataset.path}: no question has an answer; the search for a threshold "
            f"needs answers"
        )
    return center_threshold(evaluate(dataset, predictions, null_odds), null_odds)


def center_threshold(
    metrics: Mapping[str, float], null_odds: Mapping[str, float]
) -> float:
    """Returns the best threshold for F1, midway between two values of the null odds.

    The threshold of the official script equals the null odds of one question. So the
    rounding of another runtime could change whether that question is answered.

    Args:
        metrics: the result of `evaluate` with null odds.
        null_odds: {question id: null odds}.

    Returns:
        The threshold. If all questions should be answered, it is the highest null odds
        plus 1. If none should be, it is the lowest null odds minus 1.
    """
    odds = sorted(null_odds.values())
    f1_without_answers = 100.0 * metrics.get("NoAns_total", 0) / metrics["total"]
    count = 0  # number of questions to answer
    if metrics["best_f1"] > f1_without_answers:
        count = bisect.bisect_right(odds, metrics["best_f1_thresh"])
    # One value is added at each end, 2 beyond the lowest and the highest null odds. So
    # a threshold at an end is 1 beyond the null odds.
    below, above = [odds[0] - 2.0, *odds, odds[-1] + 2.0][count : count + 2]
    return (below + above) / 2.0


def _score_answers(
    dataset: Dataset, predictions: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    """Returns the scores of each prediction in [0, 1], without a threshold.

    The result is {"exact": {question id: score}, "f1": {question id: score}}.
    """
    is_v1 = dataset.version == "1.1"
    scores: dict[str, dict[str, float]] = {"exact": {}, "f1": {}}
    for question in dataset.questions:
        if is_v1 and not question.answers:
            raise InputError(
                f"{dataset.path}: question {question.id!r} has no answer to compare "
                f"with; in SQuAD 1.1 each needs one or more"
            )
        if (answer := predictions.get(question.id)) is not None:
            # In SQuAD 2.0, a true answer of only punctuation and articles is ignored.
            # If no true answer is left, "" is the correct prediction.
            texts = [each.text for each in question.answers]
            truths = [text for text in texts if is_v1 or normalize(text)] or [""]
            scores["exact"][question.id] = max(exact_match(answer, t) for t in truths)
            scores["f1"][question.id] = max(f1(answer, t, not is_v1) for t in truths)
    return scores


def _average(
    scores: Mapping[str, Mapping[str, float]], prefix: str, ids: Collection[str]
) -> dict[str, float]:
    """Returns the means of scores over ids in percent, and the number of ids.

    An id without a score counts as 0.

    Args:
        scores: for each name of a score, its values by question id.
        prefix: prefix of the names in the result.
        ids: one or more question ids.
    """
    means: dict[str, float] = {}
    for name, values in scores.items():
        total = 0.0
        for id in ids:  # not `sum`, which rounds differently since Python 3.12
            total += values.get(id, 0.0)
        means[f"{prefix}{name}"] = 100.0 * total / len(ids)
    return {**means, f"{prefix}total": len(ids)}


def _read_values(path: str | Path, types: Any, expected: str) -> dict[str, Any]:
    """Reads a JSON object with a value for each question id.

    Args:
        path: the file.
        types: the type of the values, or a tuple of possible types.
        expected: the name of such values in the plural, for messages.
    """
    contents = json_values.read_object(path)
    for id, value in contents.items():
        if not isinstance(value, types) or value != value:  # only NaN differs from NaN
            raise InputError(
                f"{path}: question {id!r} has {value!r}; expected {expected}"
            )
    return contents
