r"""Scores a file of predictions of SQuAD, as its official scripts do, in percent.

albert-tf score runs/squad2/predictions.json --data=dev-v2.0.json
"""

import json

from albert_tf import errors
from albert_tf.data.files import atomic
from albert_tf.tasks.settings.squad import ScoreSettings

SETTINGS = (ScoreSettings,)
TAKES_ARGUMENTS = True


def main(settings: ScoreSettings, paths: list[str]) -> None:
    """Prints a line for each score."""
    if len(paths) != 1:
        raise errors.InputError(
            f"{len(paths)} files of predictions; expected one, see --help"
        )
    from albert_tf.tasks import squad

    scores = squad.evaluate_files(
        settings.data,
        paths[0],
        null_odds_json=settings.null_odds_file,
        threshold=settings.threshold,
    )
    for name, value in scores.items():
        print(f"{name} = {value:.6g}")
    if settings.output_file:
        with atomic(settings.output_file) as file:
            file.write(json.dumps(scores, indent=2).encode() + b"\n")
