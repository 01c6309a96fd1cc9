"""Lets programs take turns, each in a process of its own, on the same machine."""

import os
import subprocess
from collections.abc import Mapping, Sequence


def take_turns(
    commands: Mapping[str, Sequence[str]], rounds: int
) -> dict[str, list[float]]:
    """Starts every program, then asks each in turn for one measurement, `rounds` times.

    A program prints "ready"; then, for each line that it reads, one number. Programs
    that end before they are ready are left out.

    Returns:
        The numbers of each program.
    """
    workers = {}
    for name, command in commands.items():
        worker = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        if _answer(worker) == "ready":
            workers[name] = worker
        else:
            print(f"  {name}: could not run here")
    numbers: dict[str, list[float]] = {name: [] for name in workers}
    for _ in range(rounds):
        for name, worker in workers.items():
            print("go", file=worker.stdin, flush=True)
            numbers[name].append(float(_answer(worker)))
    for worker in workers.values():
        worker.communicate()
    return numbers


def _answer(worker):
    """Returns the worker's next own line: libraries may print others."""
    for line in worker.stdout:
        if line.strip() == "ready" or line.replace(".", "").strip().isdigit():
            return line.strip()
    return None
