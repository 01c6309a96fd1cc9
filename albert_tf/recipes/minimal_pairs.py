"""Asks a pretrained model which of two sentences is right, paradigm by paradigm.

    python -m albert_tf.recipes.minimal_pairs --model=runs/mine --pairs='blimp/*.jsonl'

A line of a file is `{"sentence_good", "sentence_bad", "linguistics_term", "UID"}`, as
in BLiMP (Warstadt et al. 2020) and Zorro (Huebner et al. 2021). The model is right
where the good sentence has the higher pseudo-log-likelihood (`--task=score`);
a tie counts half. The mean is that over paradigms, and its standard error that of
drawing other pairs of the same paradigms.
"""

import dataclasses
import glob
import json
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from albert_tf import flags
from albert_tf.data import quiet, tables
from albert_tf.data.files import atomic
from albert_tf.errors import InputError
from albert_tf.serve import predict
from albert_tf.tasks.settings.answer import AnswerSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What to measure."""

    model: str = flags.field("A pretraining run, or other weights with their heads.")
    pairs: tuple[str, ...] = flags.field("JSON lines of pairs; patterns are expanded.")
    output_file: str | None = flags.field(
        "Where the figures go as JSON, beside the table that is printed.", None
    )
    batch_size: int = flags.field("Sentences that are scored at once.", 64, at_least=1)


class Pair(NamedTuple):
    """Two sentences that differ in one point of grammar."""

    good: str
    bad: str
    term: str
    paradigm: str


def read(patterns: Iterable[str]) -> list[Pair]:
    """Reads pairs.

    Raises:
        InputError: no file, or a line that is no pair.
    """
    keys = ("sentence_good", "sentence_bad", "linguistics_term", "UID")
    columns = [tables.Column(key) for key in keys]
    pairs: list[Pair] = []
    for pattern in patterns:
        paths = sorted(glob.glob(pattern))
        if not paths:
            raise InputError(f"--pairs: {pattern}: no such file")
        for path in paths:
            pairs += tables.read(path, columns, _pair).rows
    return pairs


def _pair(values):
    if not all(isinstance(value, str) for value in values):
        raise tables.RowError("a list; expected texts")
    return Pair(*values)


def accuracies(pairs: Sequence[Pair], scores: Mapping[str, float]) -> dict[str, Any]:
    """Returns what is right, in shares of pairs.

    Args:
        pairs: of any number of paradigms.
        scores: of each sentence; the higher one wins, and a tie counts half.

    Returns:
        `paradigms`, `terms` (the means of their paradigms), and `mean` with its
        `standard_error`.
    """
    right = defaultdict(list)
    for pair in pairs:
        good, bad = scores[pair.good], scores[pair.bad]
        right[pair.term, pair.paradigm].append(((good > bad) + (good >= bad)) / 2)
    shares = {key: sum(each) / len(each) for key, each in right.items()}
    of_term = defaultdict(list)
    for (term, _), share in shares.items():
        of_term[term].append(share)
    variances = (share * (1 - share) / len(right[key]) for key, share in shares.items())
    return {
        "paradigms": {name: share for (_, name), share in sorted(shares.items())},
        "terms": {
            name: sum(each) / len(each) for name, each in sorted(of_term.items())
        },
        "mean": {
            "accuracy": sum(shares.values()) / len(shares),
            "standard_error": math.sqrt(sum(variances)) / len(shares),
        },
    }


def main(settings: Settings) -> None:
    """Scores every sentence once, and prints a line a paradigm.

    Raises:
        InputError: no pairs, or a model that cannot be opened.
    """
    quiet.tensorflow()
    pairs = read(settings.pairs)
    options = AnswerSettings(task="score", batch_size=settings.batch_size)
    predictor = predict.load(settings.model, options)
    begin = time.perf_counter()
    sentences = list(dict.fromkeys(text for pair in pairs for text in pair[:2]))
    scores = {
        sentence: answer["score"]
        for sentence, answer in zip(sentences, predictor(sentences), strict=True)
    }
    seconds = time.perf_counter() - begin
    results = accuracies(pairs, scores)
    for kind in ("paradigms", "terms"):
        for name, share in results[kind].items():
            print(f"{name:<62} {share:6.1%}")
        print()
    mean = results["mean"]
    print(
        f"{len(pairs):,} pairs of {len(results['paradigms'])} paradigms: "
        f"{mean['accuracy']:.2%}, standard error {mean['standard_error']:.2%}; "
        f"{seconds:,.0f} seconds"
    )
    if settings.output_file:
        results |= {"model": predictor.source, "pairs": len(pairs), "seconds": seconds}
        with atomic(settings.output_file) as file:
            file.write(json.dumps(results, indent=2).encode() + b"\n")


if __name__ == "__main__":
    flags.run(main, (Settings,))
