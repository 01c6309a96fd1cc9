"""The settings of `albert-tf score`."""

import dataclasses

from albert_tf import flags


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreSettings(flags.Settings):
    """What to score, against what.

    Raises:
        InputError: a value is refused, see `Settings`.
    """

    data: str = flags.field(
        "What is right: a file of SQuAD, a file or a split's folder of RACE, or a "
        "table of GLUE with labels."
    )
    task: str | None = flags.field(
        "squad, race or a task of GLUE; by default .json is SQuAD, .jsonl is RACE, and "
        "a table is the task of the name that GLUE's site takes.",
        None,
    )
    null_odds_file: str | None = flags.field(
        "null_odds.json of SQuAD 2.0, for the best thresholds.", None
    )
    threshold: float | None = flags.field(
        "Questions with null odds above it count as not answered.",
        None,
        needs=("null_odds_file",),
    )
    output_file: str | None = flags.field("Write the scores here too, as JSON.", None)
