"""Exact match and F1 as the official scripts of SQuAD 1.1 and 2.0 compute them.

Metrics here are percent, as those scripts print them.
"""

import bisect
import collections
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
    """Lower-cases, and drops ASCII punctuation, English articles and extra space."""
    text = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(answer: str, truth: str) -> float:
    """Returns 1 for equal answers, 0 for others."""
    return float(normalize(answer) == normalize(truth))


def f1(answer: str, truth: str, empty_counts: bool = False) -> float:
    """Returns the harmonic mean of precision and recall over words, in [0, 1].

    Args:
        answer: the prediction.
        truth: a right answer.
        empty_counts: whether two answers without words score 1 (SQuAD 2.0), or 0
            (SQuAD 1.1).
    """
    words, true_words = normalize(answer).split(), normalize(truth).split()
    if empty_counts and not (words and true_words):
        return float(words == true_words)
    common = sum(
        (collections.Counter(words) & collections.Counter(true_words)).values()
    )
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
    """Scores a file of predictions; see `evaluate`.

    Args:
        dataset_json: questions and answers; see `reading`.
        predictions_json: {question id: answer}; other ids are ignored. A question
            without one scores 0, and a warning counts them.
        null_odds_json: {question id: score of "no answer"}.
        threshold: see `evaluate`.
        version: the script to follow, "1.1" or "2.0"; None takes the dataset's version.

    Raises:
        InputError: a file cannot be read or holds something else, no id of the
            predictions is in the dataset, or see `evaluate`.
    """
    dataset = read(dataset_json, version)
    answers = _values(predictions_json, str, "answers")
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
    odds = null_odds_json and _values(null_odds_json, (int, float), "numbers")
    return evaluate(dataset, answers, odds or None, threshold)


def evaluate(
    dataset: Dataset,
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    threshold: float | None = None,
) -> dict[str, float]:
    """Scores predictions as the official script of the dataset's version does.

    Args:
        dataset: questions and answers.
        predictions: {question id: answer}, "" for none. A question that is not in it
            scores 0.
        null_odds: {question id: score of "no answer"}, only for SQuAD 2.0; adds the
            best thresholds.
        threshold: questions with null odds above it count as not answered; None changes
            nothing.

    Returns:
        Percent: `exact_match`, `f1` (1.1); `exact`, `f1`, `total`, the same with
        `HasAns_` and `NoAns_` if there are such questions, and with null odds
        `best_exact`, `best_exact_thresh`, `best_f1`, `best_f1_thresh` (2.0).

    Raises:
        InputError: a question has no answer or score if one is needed.
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
    raw = _score_answers(dataset, predictions)
    ids = [question.id for question in questions]
    if is_v1:
        means = _means(raw, "", ids)
        return {"exact_match": means["exact"], "f1": means["f1"]}
    answerable = {question.id for question in questions if question.answers}
    scores = raw
    if null_odds is not None:
        missing = [id for id in raw["f1"] if id not in null_odds]
        if missing:
            raise InputError(
                f"{dataset.path}: no null odds for {len(missing)} of "
                f"{len(raw['f1'])} questions, the first is {missing[0]!r}; each needs "
                f"its own"
            )
        if threshold is not None:
            scores = {
                name: {
                    id: float(id not in answerable) if null_odds[id] > threshold else x
                    for id, x in values.items()
                }
                for name, values in raw.items()
            }
    metrics = _means(scores, "", ids)
    for prefix, has_answer in (("HasAns_", True), ("NoAns_", False)):
        if part := [id for id in ids if (id in answerable) is has_answer]:
            metrics |= _means(scores, prefix, part)
    if null_odds is not None:
        for name, values in raw.items():
            arguments = values, predictions, null_odds, answerable
            best, best_at = best_threshold(*arguments, len(ids))
            metrics |= {f"best_{name}": best, f"best_{name}_thresh": best_at}
    return metrics


def best_threshold(
    scores: Mapping[str, float],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
    answerable: Collection[str],
    total: int,
) -> tuple[float, float]:
    """Finds the highest total score, and the threshold that gives it.

    As in the official script, questions become answered one by one, with rising null
    odds. If none should be answered, the threshold is 0.

    Args:
        scores: scores in [0, 1] by question id, if all are answered as predicted.
        predictions: the answers; "" is none.
        null_odds: {question id: score of "no answer"}.
        answerable: ids of the questions that have an answer.
        total: number of questions, also those without a prediction.

    Returns:
        The mean score in percent, and the threshold: answer if the null odds are at or
        below it.
    """
    current = best = float(sum(id not in answerable for id in scores))
    threshold = 0.0
    for id in sorted(null_odds, key=lambda id: null_odds[id]):
        if id not in scores:
            continue
        if id in answerable:
            current += scores[id]
        elif predictions[id]:
            current -= 1
        if current > best:
            best, threshold = current, null_odds[id]
    return 100.0 * best / total, threshold


def search_threshold(
    dataset: Dataset, predictions: Mapping[str, str], null_odds: Mapping[str, float]
) -> float:
    """Returns the threshold with the highest F1 for other questions.

    Args:
        dataset: a SQuAD 2.0 dataset; not the one to be scored with the threshold.
        predictions: the answers if every question is answered.
        null_odds: {question id: score of "no answer"}.

    Raises:
        InputError: no question has an answer, or one has no score.
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
    """Returns the middle of the gap in the null odds that gives the best F1.

    The official threshold equals the null odds of a question, so that the rounding of
    another runtime may change its answer.

    Args:
        metrics: the result of `evaluate` with the official threshold.
        null_odds: {question id: score of "no answer"}.

    Returns:
        The threshold; 1 beyond the outermost null odds if all or no questions should be
        answered.
    """
    odds = sorted(null_odds.values())
    silent = 100.0 * metrics.get("NoAns_total", 0) / metrics["total"]
    answered = 0
    if metrics["best_f1"] > silent:
        answered = bisect.bisect_right(odds, metrics["best_f1_thresh"])
    below, above = [odds[0] - 2.0, *odds, odds[-1] + 2.0][answered : answered + 2]
    return (below + above) / 2.0


def _score_answers(
    dataset: Dataset, predictions: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    """Returns the exact match and the F1 of each prediction, whatever the odds."""
    is_v1 = dataset.version == "1.1"
    scores: dict[str, dict[str, float]] = {"exact": {}, "f1": {}}
    for question in dataset.questions:
        if is_v1 and not question.answers:
            raise InputError(
                f"{dataset.path}: question {question.id!r} has no answer to compare "
                f"with; in SQuAD 1.1 each needs one or more"
            )
        if (answer := predictions.get(question.id)) is not None:
            # An answer of only punctuation and articles counts as none in 2.0.
            texts = [each.text for each in question.answers]
            truths = [text for text in texts if is_v1 or normalize(text)] or [""]
            scores["exact"][question.id] = max(exact_match(answer, t) for t in truths)
            scores["f1"][question.id] = max(f1(answer, t, not is_v1) for t in truths)
    return scores


def _means(
    scores: Mapping[str, Mapping[str, float]], prefix: str, ids: Collection[str]
) -> dict[str, float]:
    means: dict[str, float] = {}
    for name, values in scores.items():
        total = 0.0
        for id in ids:  # from Python 3.12 on, `sum` rounds otherwise than the release
            total += values.get(id, 0.0)
        means[f"{prefix}{name}"] = 100.0 * total / len(ids)
    return {**means, f"{prefix}total": len(ids)}


def _values(path: str | Path, kind: Any, expected: str) -> dict[str, Any]:
    contents = json_values.read_object(path)
    for id, value in contents.items():
        if not isinstance(value, kind) or value != value:  # nor NaN
            raise InputError(
                f"{path}: question {id!r} has {value!r}; expected {expected}"
            )
    return contents
