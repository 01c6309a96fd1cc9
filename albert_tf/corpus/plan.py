"""Decides which unit of work makes which instances, and which file they go to.

The duplicates of all groups are put in one random order and dealt out to units. A unit
shuffles its instances once more, so that together the shuffle is global while memory
holds one unit. Nothing here depends on the number of workers.
"""

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.corpus.config import CorpusSettings, Subset
from albert_tf.corpus.text import TextError

UNIT_TOKENS = 1 << 22
MOST_UNKNOWN = 0.01  # share of the tokens from which on there is a warning
_MAX_FILES_PER_UNIT = 64
# Seeds are told apart by their second number; `store` uses 0.
_UNIT_SEEDS = {"train": 1, "eval": 2}
_ORDER_SEEDS = {"train": 3, "eval": 4}


class Group(NamedTuple):
    """Where a group of tokenized documents is.

    Attributes:
        subset: "train" or "eval".
        split: number of the split that it comes from.
        offset: first byte in that split's file.
        size: number of bytes.
        padded_tokens: tokens of its instances with padding, about.
    """

    subset: Subset
    split: int
    offset: int
    size: int
    padded_tokens: int


class Unit(NamedTuple):
    """One unit of work.

    Attributes:
        subset: "train" or "eval".
        number: its place in the plan.
        groups: number of each group to use, and where it is, in order.
        files: numbers of the files that its instances are dealt out to.
    """

    subset: Subset
    number: int
    groups: list[tuple[int, Group]]
    files: list[int]

    @property
    def seed(self) -> tuple[int, int]:
        """Numbers that no other unit has."""
        return _UNIT_SEEDS[self.subset], self.number


@dataclasses.dataclass(frozen=True)
class Plan:
    """The second pass for one subset.

    Attributes:
        subset: "train" or "eval".
        groups: its groups, in the order of the input.
        duplicates: how often each group is used.
        files: number of files to make.
        random_seed: seed of the order.
    """

    subset: Subset
    groups: Sequence[Group]
    duplicates: int
    files: int
    random_seed: int

    @functools.cached_property
    def unit_count(self) -> int:
        """Number of units; equally many for each file where there are enough."""
        tokens = self.duplicates * sum(group.padded_tokens for group in self.groups)
        count = max(-(-tokens // UNIT_TOKENS), -(-self.files // _MAX_FILES_PER_UNIT))
        if count > self.files:
            count = -(-count // self.files) * self.files
        return min(count, len(self.groups) * self.duplicates)

    def files_of(self, unit: int) -> list[int]:
        """Returns the numbers of the files that a unit writes to.

        With more units than files, several units share a file; else each has its own.
        """
        return list(range(unit % self.files, self.files, self.unit_count))

    def units_of(self, file: int) -> list[int]:
        """Returns the numbers of the units that write to a file, in order."""
        return list(range(file % self.unit_count, self.unit_count, self.files))

    def units(self) -> Iterator[Unit]:
        """Yields the units, in order."""
        rng = np.random.default_rng([self.random_seed, _ORDER_SEEDS[self.subset]])
        order = rng.permutation(len(self.groups) * self.duplicates) % len(self.groups)
        count = self.unit_count
        for number in range(count):
            mine = order[number::count].tolist()
            groups = [(i, self.groups[i]) for i in mine]
            yield Unit(self.subset, number, groups, self.files_of(number))


def make(groups: Iterable[Group], config: CorpusSettings) -> list[Plan]:
    """Plans the second pass.

    Args:
        groups: all groups that the first pass made, in any order.
        config: the run's settings.

    Returns:
        The plan of each subset that has documents; held-out documents are used once.
    """
    ordered = sorted(groups, key=lambda group: (group.split, group.offset))
    plans = []
    uses: dict[Subset, int] = {"eval": 1, "train": config.dupe_factor}
    for subset, duplicates in uses.items():
        mine = [group for group in ordered if group.subset == subset]
        files = len(config.files_of(subset))
        if mine:
            plans.append(Plan(subset, mine, duplicates, files, config.random_seed))
    return plans


def check_input(read: Counter, config: CorpusSettings) -> list[str]:
    """Judges what the first pass has read.

    Args:
        read: the counters that it raised.
        config: the run's settings.

    Returns:
        Warnings about what is odd but can be used.

    Raises:
        TextError: there is no text to train on, or too few documents.
    """
    named = ",".join(config.input_file)
    documents = read["train_documents"] + read["eval_documents"]
    if not documents:
        raise TextError(f"--input_file={named}: no text in it")
    if not read["train_documents"]:
        raise TextError(
            f"--eval_fraction={config.eval_fraction}: no document is left to train on; "
            f"the input has {documents}"
        )
    if config.takes_other_documents and read["train_documents"] < 2:
        raise TextError(
            f"--input_file={named}: one document, and the second segment must come "
            f"from another; expected a blank line between documents"
        )
    if config.takes_other_documents and read["eval_documents"] == 1:
        raise TextError(
            f"--eval_fraction={config.eval_fraction}: one document of {documents} is "
            f"held out, and the second segment must come from another; expected a "
            f"larger share, or 0"
        )
    unknown = read["train_unknown_tokens"] / max(read["train_tokens"], 1)
    warnings = {
        f"{read['empty_files']} input files are empty": read["empty_files"],
        f"the input is one document of {read['lines']:,} lines: no blank line parts "
        f"documents": documents == 1 and read["lines"] > 1,
        f"{read['divided_documents']} documents were divided because they are very "
        f"long: are blank lines between documents missing?": read["divided_documents"],
        f"{read['undecodable_lines']} lines held bytes that are not UTF-8": read[
            "undecodable_lines"
        ],
        f"{read['lines_without_tokens']} lines gave no token and were left out": read[
            "lines_without_tokens"
        ],
        f"no document was held out: --eval_fraction={config.eval_fraction} of "
        f"{documents}": config.eval_fraction and not read["eval_documents"],
        f"{unknown:.1%} of the tokens are unknown: the vocabulary is not made for this "
        f"text": unknown > MOST_UNKNOWN,
    }
    return [message for message, applies in warnings.items() if applies]
