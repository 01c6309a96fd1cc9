"""Runs jobs side by side, each on a core of its own."""

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def each_core(jobs: Iterable[Any], do: Callable[[Any, int], None]) -> None:
    """Calls `do(job, core)` for every job, on each core one after the other."""
    left: queue.SimpleQueue = queue.SimpleQueue()
    for job in jobs:
        left.put(job)

    def work(core):
        while True:
            try:
                job = left.get_nowait()
            except queue.Empty:
                return
            try:
                do(job, core)
            except subprocess.CalledProcessError as error:
                print(f"failed: {error}", file=sys.stderr, flush=True)

    threads = [
        threading.Thread(target=work, args=(core,)) for core in os.sched_getaffinity(0)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def run(
    *arguments: str,
    log: Path,
    core: int | None = None,
    module: str = "albert_tf.commands",
) -> None:
    """Runs a module of the package on a core, or on all.

    Args:
        arguments: of its command line.
        log: what it prints is added to this file.
        core: by its number; None: all.
        module: whose `main` is called.

    Raises:
        subprocess.CalledProcessError: it ends with another status than 0.
    """
    pinned = [] if core is None else ["taskset", "--cpu-list", str(core)]
    with open(log, "a", encoding="utf-8") as output:
        subprocess.run(
            [*pinned, sys.executable, "-m", module, *arguments],
            stdout=output,
            stderr=output,
            check=True,
        )
