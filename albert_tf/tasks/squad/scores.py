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

from albert_tf.errors import InputError
from albert_tf.model.config import read_json_object
from albert_tf.tasks.squad.reading import Dataset, Question, read

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
        answer: what was predicted.
        truth: what is right.
        empty_counts: two answers without words agree, which is 1 (SQuAD 2.0); else
            they have no word in common, which is 0 (SQuAD 1.1).
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
        version: which script to follow, "1.1" or "2.0"; None takes the dataset's.

    Raises:
        InputError: a file cannot be read or holds something else, no id of the
            predictions is in the dataset, or see `evaluate`.
    """
    dataset = read(dataset_json, version)
    answers = _values(predictions_json, str, "answers")
    asked = [question.id for question in dataset.questions]
    missing = [id for id in asked if id not in answers]
    if len(missing) == len(asked):
        first = next(iter(answers), None)
        raise InputError(
            f"{predictions_json}: none of its {len(answers):,} question ids is in "
            f"{dataset_json}; its first is {first!r}, expected one such as {asked[0]!r}"
        )
    if missing:
        _log.warning(
            "%s: no prediction for %d of %d questions, which score 0; the first is %r",
            predictions_json,
            len(missing),
            len(asked),
            missing[0],
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
        null_odds: {question id: score of "no answer"}, of SQuAD 2.0; then the best
            thresholds are given too.
        threshold: questions with null odds above it count as not answered; None counts
            all as they are.

    Returns:
        Percent: `exact_match`, `f1` (1.1); `exact`, `f1`, `total`, the same with
        `HasAns_` and `NoAns_` where there are such questions, and with null odds
        `best_exact`, `best_exact_thresh`, `best_f1`, `best_f1_thresh` (2.0).

    Raises:
        InputError: a question has no answer or score if one is needed.
    """
    if dataset.version == "1.1":
        if null_odds is not None or threshold is not None:
            raise InputError(
                f"{dataset.path}: null odds or a threshold for SQuAD 1.1, where every "
                f"question has an answer; expected neither"
            )
        return _evaluate_v1(dataset, predictions)
    if threshold is not None and null_odds is None:
        raise InputError(f"threshold {threshold} without null odds to compare with")
    return _evaluate_v2(dataset, predictions, null_odds, threshold)


def best_threshold(
    scores: Mapping[str, float],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
    answerable: Collection[str],
    total: int,
) -> tuple[float, float]:
    """Finds the highest total score, and the threshold that gives it.

    As the official script: questions become answered one by one, with rising null
    odds. Where none should be answered, the threshold is 0.

    Args:
        scores: in [0, 1], by question id, if all are answered as predicted.
        predictions: the answers; "" is none.
        null_odds: {question id: score of "no answer"}.
        answerable: ids of the questions that have an answer.
        total: number of questions, also those without a prediction.

    Returns:
        The mean score in percent, and the threshold: answer where the null odds are at
        or below it.
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
        dataset: of SQuAD 2.0; not the one to be judged with the threshold.
        predictions: the answers when every question is answered.
        null_odds: {question id: score of "no answer"}.

    Raises:
        InputError: no question has an answer, or one has no score.
    """
    if not any(question.answers for question in dataset.questions):
        raise InputError(
            f"{dataset.path}: no question has an answer; expected answers to search a "
            f"threshold with"
        )
    return center_threshold(evaluate(dataset, predictions, null_odds), null_odds)


def center_threshold(
    metrics: Mapping[str, float], null_odds: Mapping[str, float]
) -> float:
    """Returns the middle of the gap in the null odds that gives the best F1.

    The official threshold is the null odds of a question itself, which the rounding of
    another runtime may put on its other side.

    Args:
        metrics: of `evaluate`, with the official threshold.
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


def _evaluate_v1(dataset: Dataset, predictions: Mapping[str, str]) -> dict[str, float]:
    totals = {"exact_match": 0.0, "f1": 0.0}
    count = 0
    for question in dataset.questions:
        if not question.answers:
            raise InputError(
                f"{dataset.path}: question {question.id!r} has no answer to compare "
                f"with; expected one or more in SQuAD 1.1"
            )
        count += 1
        answer = predictions.get(question.id)
        if answer is not None:
            truths = [truth.text for truth in question.answers]
            totals["exact_match"] += max(exact_match(answer, t) for t in truths)
            totals["f1"] += max(f1(answer, t) for t in truths)
    return {name: 100.0 * total / count for name, total in totals.items()}


def _evaluate_v2(
    dataset: Dataset,
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None,
    threshold: float | None,
) -> dict[str, float]:
    every = [question.id for question in dataset.questions]
    answerable = {question.id for question in dataset.questions if question.answers}
    questions = [q for q in dataset.questions if q.id in predictions]
    raw: dict[str, dict[str, float]] = {"exact": {}, "f1": {}}
    for q in questions:
        answer = predictions[q.id]
        # Answers of punctuation and articles alone count as none.
        truths = [a.text for a in q.answers if normalize(a.text)] or [""]
        raw["exact"][q.id] = max(exact_match(answer, t) for t in truths)
        raw["f1"][q.id] = max(f1(answer, t, empty_counts=True) for t in truths)
    kept = raw
    if null_odds is not None:
        _require_odds(dataset, questions, null_odds)
        if threshold is not None:
            kept = {
                name: {
                    id: float(id not in answerable) if null_odds[id] > threshold else s
                    for id, s in scores.items()
                }
                for name, scores in raw.items()
            }
    metrics = _means(kept, "", every)
    for prefix, has_answer in (("HasAns_", True), ("NoAns_", False)):
        if ids := [id for id in every if (id in answerable) is has_answer]:
            metrics |= _means(kept, prefix, ids)
    if null_odds is not None:
        for name, scores in raw.items():
            given = scores, predictions, null_odds, answerable
            best, at = best_threshold(*given, len(every))
            metrics |= {f"best_{name}": best, f"best_{name}_thresh": at}
    return metrics


def _means(
    scores: Mapping[str, Mapping[str, float]], prefix: str, ids: Collection[str]
) -> dict[str, float]:
    means = {
        f"{prefix}{name}": 100.0 * sum(values.get(id, 0.0) for id in ids) / len(ids)
        for name, values in scores.items()
    }
    return {**means, f"{prefix}total": len(ids)}


def _require_odds(
    dataset: Dataset, questions: list[Question], null_odds: Mapping[str, float]
) -> None:
    missing = [question.id for question in questions if question.id not in null_odds]
    if missing:
        raise InputError(
            f"{dataset.path}: no null odds for {len(missing)} of {len(questions)} "
            f"questions, the first is {missing[0]!r}; expected one for each"
        )


def _values(path: str | Path, kind: Any, expected: str) -> dict[str, Any]:
    contents = read_json_object(path)
    for id, value in contents.items():
        if not isinstance(value, kind) or value != value:  # nor NaN
            raise InputError(
                f"{path}: question {id!r} has {value!r}; expected {expected}"
            )
    return contents
