r"""Scores a file of predictions of SQuAD, RACE or GLUE.

    albert-tf score runs/squad2/predictions.json --data=dev-v2.0.json
    albert-tf score runs/race/predictions.jsonl --data=RACE/dev
    albert-tf score submit_results.tsv --data=glue/MRPC/dev.tsv --task=mrpc

The scores of SQuAD are percent, as its script prints them; others are fractions.
"""

import json

from albert_tf import errors
from albert_tf.data.files import atomic
from albert_tf.tasks.settings.scoring import ScoreSettings

SETTINGS = (ScoreSettings,)
TAKES_ARGUMENTS = True


def main(settings: ScoreSettings, paths: list[str]) -> None:
    """Prints a line for each score."""
    if len(paths) != 1:
        raise errors.InputError(
            f"{len(paths)} files of predictions; expected one, see --help"
        )
    from albert_tf.tasks import scoring

    scores = scoring.score(paths[0], settings)
    for name, value in scores.items():
        print(f"{name} = {value:.6g}")
    if settings.output_file:
        with atomic(settings.output_file) as file:
            file.write(json.dumps(scores, indent=2).encode() + b"\n")
