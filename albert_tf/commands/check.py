"""Verifies the files of folders: runs, records, caches, exports, released checkpoints.

    albert-tf check runs/mine
    albert-tf check records export albert_base_v2

Prints a line for each thing and ends with exit status 0 if all are whole, 1 if not.
"""

import sys
from pathlib import Path

from albert_tf.errors import InputError

SETTINGS = ()
TAKES_ARGUMENTS = True


def main(paths: list[str]) -> None:
    """Prints a line for each thing that is verified."""
    if not paths:
        raise InputError("no folder; expected one or more, see --help")
    from albert_tf.serve import check

    damaged = 0
    for path in paths:
        for finding in check.folder(Path(path)):
            print(f"{finding.path}: {finding.problem or f'ok ({finding.what})'}")
            damaged += finding.problem is not None
    sys.exit(1 if damaged else 0)
