r"""Loses one of two workers again and again, and compares what the set ends with.

    python tests/faults/workers.py [--losses=20] [--kinds=kill,stop,cut,srun,alone] \
        [--aims=save,evaluation]

A loss comes at a random moment of a random worker: while the workers start, train, save
and evaluate; some wait for a save or an evaluation, with --aims all do. The other must
end within --worker_timeout, with status 75 and a line that names the lost one. Then
both start again and lose one another, until the run is complete: its last checkpoint
must have the bytes of an undisturbed run.

    kill   kill -9
    stop   kill -STOP, and -CONT once the other has ended: then it has to end, too
    cut    the network between them goes down (as root: it needs network namespaces)
    srun   kill -9; the other gets TERM and then KILL; Slurm's environment
    alone  kill -9, and the lost one starts again before the other has ended

Ends with 1 where a worker hangs, ends otherwise, or a byte differs. Where root calls,
the workers run as an unprivileged user.
"""

import argparse
import collections
import contextlib
import ctypes
import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import short_runs

TIMEOUT = 8
# What a process takes to end on a busy machine, and what is a hang without doubt.
SLACK, HANGS = 2.0, 60.0
# The moments of losses, in seconds after the start.
LONGEST = 16.0
STEPS, EVAL_STEPS = 400, 7
NOBODY = 65534
HOSTS = ("10.213.77.1", "10.213.77.2")
SPACES = ("albert-faults-0", "albert-faults-1")


class Worker:
    """One of the processes of a set."""

    def __init__(self, context, index: int, environ, folder: Path, space=None):
        self.index = index
        self.log = folder.parent / f"{folder.name}-{index}-{time.monotonic_ns()}.log"
        arguments = (environ, str(folder), str(self.log), space)
        self.process = context.Process(target=_work, args=arguments)
        self.process.start()

    def send(self, number: int) -> None:
        """Sends a signal if there is still somebody to get it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def end(self, seconds: float = HANGS) -> int | None:
        """Waits for the end; returns the exit status, or None for a hang."""
        self.process.join(seconds)
        code = self.process.exitcode
        if code is None:
            self.process.kill()
            self.process.join()
        return code

    @property
    def text(self) -> str:
        """What it logged."""
        return self.log.read_text() if self.log.exists() else ""


def _work(environ: dict[str, str], folder: str, log: str, space: str | None) -> None:
    """Trains, in a process of its own."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    if space:
        with open(f"/run/netns/{space}") as opened:
            if ctypes.CDLL(None).setns(opened.fileno(), 0):
                raise OSError(f"network namespace {space}")
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(environ, HOME=str(Path(folder).parent))
    from albert_tf import commands

    name, *flags = short_runs.commands_of(Path(folder))["pretrain"]
    flags += [f"--num_train_steps={STEPS}", "--num_warmup_steps=10", "--deterministic"]
    flags += [
        "--save_checkpoints_steps=5",
        f"--eval_every_steps={EVAL_STEPS}",
        "--eval_batch_size=4",
        "--log_steps=1",
        "--distribution=multi_worker",
        f"--worker_timeout={TIMEOUT}",
    ]
    commands.run(name, [name, *flags])


class Set:
    """Two workers that train together in a folder, and what is counted of them.

    Args:
        context: starts processes.
        kind: of the losses.
        folder: where to train.
    """

    def __init__(self, context, kind: str, folder: Path, aims=("",)):
        self._context, self._kind, self._folder = context, kind, folder
        self._aims = aims
        self._spaces = SPACES if kind == "cut" else (None, None)
        hosts = HOSTS if kind == "cut" else ("localhost", "localhost")
        # Below the ports that systems give to those who connect.
        ports = random.sample(range(20000, 32000), 2)
        addresses = [f"{host}:{port}" for host, port in zip(hosts, ports, strict=True)]
        self._environs = []
        for index in range(2):
            task = {"type": "worker", "index": index}
            config = {"cluster": {"worker": addresses}, "task": task}
            environ = {"TF_CONFIG": json.dumps(config)}
            if kind == "srun":
                environ = {
                    "SLURM_STEP_NUM_TASKS": "2",
                    "SLURM_PROCID": str(index),
                    "SLURM_STEP_NODELIST": "localhost",
                    "SLURM_STEP_TASKS_PER_NODE": "2",
                }
            self._environs.append(environ)
        self.workers: dict[int, Worker] = {}
        self.problems: list[str] = []
        self.moments: collections.Counter = collections.Counter()
        self.seconds: list[float] = []

    def start(self) -> None:
        """Starts who is not there, one of them somewhat later."""
        for index in random.sample(range(2), 2):
            if index not in self.workers:
                self._start(index)
                time.sleep(random.choice((0.0, random.uniform(0, 2))))

    def _start(self, index: int) -> None:
        self.workers[index] = Worker(
            self._context,
            index,
            self._environs[index],
            self._folder,
            self._spaces[index],
        )

    def wait(self) -> bool:
        """Waits for both; returns whether the run is complete."""
        both = [self.workers.pop(index) for index in range(2)]
        codes = [each.end(600) for each in both]
        if codes != [0, 0]:
            self._complain(f"{codes} without a loss", *both)
        return codes == [0, 0]

    def lose(self) -> bool:
        """Loses a worker; returns whether there was one to lose, and not the end."""
        aim = random.choice(self._aims)
        begin, after = time.monotonic(), random.uniform(0, LONGEST)
        while time.monotonic() - begin < after or aim not in ("", self._moment()):
            if any(each.process.exitcode is not None for each in self.workers.values()):
                break
            time.sleep(0.002)
        moment = self._moment()
        lost = self.workers.pop(random.randrange(2))
        [other] = self.workers.values()
        self.workers.clear()
        codes = [lost.process.exitcode, other.process.exitcode]
        if any(code is not None for code in codes):
            ended = [lost.end(), other.end()]
            if ended != [0, 0]:
                self._complain(f"{ended} without a loss", lost, other)
            return False
        self.moments[moment] += 1
        getattr(self, f"_{self._kind}")(lost, other)
        return True

    def _moment(self) -> str:
        """What the set does now."""
        text = self.workers[0].text  # the first alone logs the steps
        if "\nstep " not in text:
            return "start"
        if list(self._folder.glob(".writing-*")):
            return "save"
        step = re.search(r"\nstep (\d+)/.*\n$", text)
        if step and int(step[1]) % EVAL_STEPS == 0:
            return "evaluation"
        return "training"

    def _kill(self, lost: Worker, other: Worker) -> None:
        lost.send(signal.SIGKILL)
        self._expect(other, lost)
        lost.end()

    def _stop(self, lost: Worker, other: Worker) -> None:
        lost.send(signal.SIGSTOP)
        self._expect(other, lost)
        lost.send(signal.SIGCONT)
        self._expect(lost, other)

    def _cut(self, lost: Worker, other: Worker) -> None:
        _link(lost.index, "down")
        begin = time.monotonic()
        self._expect(other, lost)
        self._expect(lost, other, begin)
        _link(lost.index, "up")

    def _srun(self, lost: Worker, other: Worker) -> None:
        lost.send(signal.SIGKILL)
        time.sleep(random.uniform(0, 0.5))
        other.send(signal.SIGTERM)
        other.process.join(random.uniform(0, 3))
        other.send(signal.SIGKILL)
        lost.end()
        other.end()

    def _alone(self, lost: Worker, other: Worker) -> None:
        lost.send(signal.SIGKILL)
        lost.end()
        self._start(lost.index)
        self._expect(other, lost)

    def _expect(self, worker: Worker, lost: Worker, begin: float | None = None) -> None:
        """Waits for a worker that should end because another is lost."""
        begin = begin or time.monotonic()
        code = worker.end()
        seconds = time.monotonic() - begin
        if code == 0 and f"\nstep {STEPS:,}/" in worker.text + lost.text:
            return  # it had done its part
        self.seconds.append(seconds)
        named = re.search(
            rf"\nerror: worker {lost.index} \(.+\) is lost: .+; run", f"\n{worker.text}"
        )
        if code != 75 or not named or "Traceback" in worker.text:
            self._complain(f"worker {worker.index} ended with {code}", worker, lost)
        elif seconds > TIMEOUT + SLACK:
            self._complain(f"worker {worker.index} took {seconds:.1f} s", worker, lost)

    def _complain(self, what: str, *workers: Worker) -> None:
        self.problems.append(what)
        print(f"{self._kind}: {what}")
        for each in workers:
            print(f"--- worker {each.index}\n{each.text[-3000:]}", flush=True)

    def newest(self) -> dict[str, bytes]:
        """Returns the files of the last checkpoint."""
        paths = self._folder.glob(f"model.ckpt-{STEPS}.*")
        return {path.name: path.read_bytes() for path in paths}


def _link(index: int, state: str) -> None:
    _ip("-n", SPACES[index], "link", "set", "faults", state)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


@contextlib.contextmanager
def _network():
    """Two network namespaces, joined by a cable."""
    try:
        for space in SPACES:
            _ip("netns", "add", space)
        ends = ("link", "add", "faults", "netns", SPACES[0], "type", "veth")
        _ip(*ends, "peer", "faults", "netns", SPACES[1])
        for space, host in zip(SPACES, HOSTS, strict=True):
            _ip("-n", space, "address", "add", f"{host}/24", "dev", "faults")
            for device in ("lo", "faults"):
                _ip("-n", space, "link", "set", device, "up")
        yield
    finally:
        for space in SPACES:
            subprocess.run(["ip", "netns", "delete", space])


def chains(
    context, kind: str, aims, losses: int, whole: dict[str, bytes], work: Path
) -> int:
    """Loses workers of one run after the other; returns the number of problems."""
    moments: collections.Counter = collections.Counter()
    seconds: list[float] = []
    problems = differences = runs = 0
    while sum(moments.values()) < losses and problems < losses:
        runs += 1
        folder = work / f"{kind}-{runs}"
        each = Set(context, kind, folder, aims)
        for _ in range(losses - sum(moments.values())):
            each.start()
            if not each.lose():
                break
        complete = False
        for _ in range(3):  # after a loss without one, too
            each.start()
            if complete := each.wait():
                break
        differences += not complete or each.newest() != whole
        moments += each.moments
        seconds += each.seconds
        problems += len(each.problems)
    where = ", ".join(f"{moments[name]} {name}" for name in sorted(moments))
    slowest = max(seconds, default=0.0)
    print(
        f"| {kind} | {sum(moments.values())} ({where}) | {slowest:.1f} s | {problems} "
        f"| {differences} of {runs} |",
        flush=True,
    )
    return problems + differences


def main() -> None:
    """Prints a line of a table for each kind."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--losses", type=int, default=20)
    parser.add_argument("--kinds", default="kill,stop,cut,srun,alone")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--aims", default=",save,evaluation")
    given = parser.parse_args()
    aims = given.aims.split(",")
    random.seed(given.seed)
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["albert_tf.train.finetune", "albert_tf.tasks.pretraining", "matplotlib.figure"]
    )
    bad = 0
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        work = Path(name)
        if os.geteuid() == 0:
            os.chown(work, NOBODY, NOBODY)
        undisturbed = Set(context, "kill", work / "whole")
        undisturbed.start()
        undisturbed.wait()
        whole = undisturbed.newest()
        if not whole:
            sys.exit("the undisturbed run failed")
        print(
            "| loss | moments | slowest end | problems | differences |\n|" + 5 * "---|"
        )
        for kind in given.kinds.split(","):
            if kind == "cut":
                if os.geteuid() != 0:
                    print("cut: skipped, only root may cut a network")
                    continue
                stack.enter_context(_network())
            bad += chains(context, kind, aims, given.losses, whole, work)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
