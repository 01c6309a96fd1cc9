"""Times fine-tuning and serving by this package, Hugging Face and KerasHub.

The programs, in benchmarks/table_to_server, take turns. Each reads a table, keeps 200
rows for validation, trains three epochs with a warm-up, evaluates after each, keeps the
best weights, resumes after a kill, and answers from what it has saved. Printed are the
lines of each and the seconds of the whole command.

    pip install 'albert_tf[hf,kerashub]' datasets
    python benchmarks/table_to_server.py --table=reviews.csv --pretrained=albert_base_hf
"""

import argparse
import ast
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAMS = {
    "with_albert_tf": "albert_tf",
    "with_huggingface": "Hugging Face",
    "with_keras_hub": "KerasHub",
}


def main():
    """Prints a line for each program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", required=True, help="CSV with text and label")
    parser.add_argument("--pretrained", required=True, help="Hugging Face's folder")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=[*PROGRAMS])
    args = parser.parse_args()
    folder = Path(__file__).with_suffix("")
    seconds = {name: [] for name in args.programs}
    for _ in range(args.rounds):
        for name, times in seconds.items():
            program = [sys.executable, str(folder / f"{name}.py")]
            times.append(timed([*program, args.table, args.pretrained]))
    for name, times in seconds.items():
        if None not in times:
            print(
                f"{PROGRAMS[name]:14}{lines(folder / f'{name}.py'):4} lines   "
                f"{min(times):6.0f} {statistics.median(times):6.0f} {max(times):6.0f} "
                f"s (least, median, most)"
            )


def timed(command):
    """Returns the seconds of a command that is given a new folder, or None."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        ended = subprocess.run(
            [*command, f"{folder}/run"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        seconds = time.monotonic() - begin
    if ended.returncode:
        print(f"{command[1]}: {ended.stderr.strip().splitlines()[-1:]}")
        return None
    return seconds


def lines(program):
    """Counts lines of code: without the docstring and blank lines."""
    text = program.read_text("utf-8")
    docstring = ast.parse(text).body[0].end_lineno
    return sum(bool(line.strip()) for line in text.splitlines()[docstring:])


if __name__ == "__main__":
    main()
