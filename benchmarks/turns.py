"""Lets programs take turns, each in a process of its own, on the same machine."""

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import albert_tf  # noqa: F401 (before TensorFlow, for oneDNN in every program)


class Used(NamedTuple):
    """What a command has printed and used: seconds, and bytes at its most."""

    lines: list[str]
    clock: float
    processor: float
    memory: int


_NUMBERS = re.compile(r"[0-9][0-9. ]*")


def take_turns(
    commands: Mapping[str, Sequence[str]], rounds: int
) -> dict[str, list[float]]:
    """Starts every program, then asks each in turn for one measurement, `rounds` times.

    A program prints "ready"; then, for each line that it reads, one number. Programs
    that end before they are ready are left out, with the last line of their errors.

    Returns:
        The numbers of each program.
    """
    turns = take_long_turns(commands, rounds)
    return {name: [number for (number,) in of_one] for name, of_one in turns.items()}


def take_long_turns(
    commands: Mapping[str, Sequence[str]], rounds: int
) -> dict[str, list[list[float]]]:
    """Does the same for programs that print several numbers in a line.

    Returns:
        The numbers of each turn of each program.
    """
    workers = {}
    for name, command in commands.items():
        errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (the worker writes to it)
        worker = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        if _answer(worker) == "ready":
            workers[name] = worker, errors
        else:
            worker.wait()
            print(f"  {name}: could not run here: {_last_line(errors)}")
    numbers: dict[str, list[list[float]]] = {name: [] for name in workers}
    for _ in range(rounds):
        for name, (worker, errors) in workers.items():
            print("go", file=worker.stdin, flush=True)
            answer = _answer(worker)
            if answer is None:
                raise SystemExit(f"{name} ended: {_last_line(errors)}")
            numbers[name].append([float(word) for word in answer.split()])
    for worker, _ in workers.values():
        worker.communicate()
    return numbers


def measured(command: Sequence[str], until: str | None = None) -> Used:
    """Runs a command in a process of its own, and measures it to its end.

    Its memory is at least what the calling process had when it began: import nothing
    large there.

    Args:
        command: the program and its arguments.
        until: the beginning of a line with which the command has done what is
            measured, for those that print one; it is killed then.

    Returns:
        What it has printed and used.
    """
    begin = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    lines, done = [], 0.0
    assert process.stdout
    with process.stdout as output:
        for line in output:
            lines.append(line.rstrip())
            if until is not None and line.startswith(until):
                done = time.perf_counter()
                process.kill()
                break
    _, status, used = os.wait4(process.pid, 0)
    clock = (done or time.perf_counter()) - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode and not done:
        raise SystemExit(f"{' '.join(command)}: {' '.join(lines[-1:])}")
    kibibytes = used.ru_maxrss  # on Linux
    return Used(lines, clock, used.ru_utime + used.ru_stime, kibibytes << 10)


def _last_line(errors):
    errors.seek(0)
    lines = [line.strip() for line in errors if line.strip()]
    return lines[-1] if lines else "no reason given"


def _answer(worker):
    """Returns the worker's next own line: libraries may print others."""
    for line in worker.stdout:
        if line.strip() == "ready" or _NUMBERS.fullmatch(line.strip()):
            return line.strip()
    return None
