"""Times two workers of one core each against one process with both cores.

Pretraining of ALBERT-base by the whole command, the same batch in all, in turns.
Printed are sequences a second after the first step, by the lines of the run.

    python benchmarks/workers.py
    python benchmarks/workers.py --shape=32x128 --rounds=5
"""

import argparse
import functools
import json
import os
import socket
import statistics
import subprocess
import tempfile
from pathlib import Path

from pretraining_run import command_of, speeds_of, write_records
from pretraining_step import MODEL


def main():
    """Lets one process and two workers take turns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="16x128", help="batch x length")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    batch, length = map(int, args.shape.split("x"))
    cores = sorted(os.sched_getaffinity(0))[:2]
    speeds: dict[str, list[float]] = {"one process": [], "two workers": []}
    with tempfile.TemporaryDirectory() as folder:
        write_records(Path(folder), MODEL, length)
        for turn in range(args.rounds):
            for name, of_one in speeds.items():
                each = [cores] if name == "one process" else [[core] for core in cores]
                run = Path(folder, f"{name} {turn}")
                train(run, folder, batch, args.steps, each)
                of_one.append(statistics.median(speeds_of(run)[1:]))
    for name, of_one in speeds.items():
        print(f"{name}: {statistics.median(of_one):.2f} sequences/s {of_one}")
    ratios = [two / one for one, two in zip(*speeds.values(), strict=True)]
    print(
        f"two workers / one process: {statistics.median(ratios):.3f} "
        f"({min(ratios):.3f} to {max(ratios):.3f})"
    )


def train(run, folder, batch, steps, cores):
    """Runs the command, in one process for each list of cores."""
    flags = [f"--num_train_steps={steps}", "--log_steps=1"]
    flags += ["--worker_timeout=60"]  # so that the other ends, too
    command = command_of(folder, run, MODEL, batch, *flags)
    hosts = [f"localhost:{port}" for port in free_ports(len(cores))]
    processes = []
    for index, own in enumerate(cores):
        environ = dict(os.environ)
        if len(cores) > 1:
            task = {"type": "worker", "index": index}
            cluster = {"cluster": {"worker": hosts}, "task": task}
            environ["TF_CONFIG"] = json.dumps(cluster)
        stay = functools.partial(os.sched_setaffinity, 0, own)
        processes.append(
            subprocess.Popen(
                command,
                env=environ,
                preexec_fn=stay,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    for process in processes:
        output, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"{' '.join(command)}: {output.splitlines()[-1:]}")


def free_ports(count):
    """Returns ports that nothing listens at."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


if __name__ == "__main__":
    main()
