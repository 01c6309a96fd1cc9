"""Kills commands at random moments, and lets the same command finish what they began.

    python tests/faults/kills.py --moments=200 --seed=1 --commands=corpus,pretrain

Of a chain of kills (`kill -9`, SIGTERM, SIGINT, or SIGSTOP, while which a second run
must be refused where there is a lock, and then SIGCONT or `kill -9`) the last run goes
on to its end; its files are compared with those of an undisturbed run. If the system
ended a training run (-15, -2), "early" is before its first line, "done" after its last
file. Ends with 1 if it was between them, a byte differs, a process or a temporary
file is left, a command hangs or shows a traceback. Give it an unprivileged user and a
TMPDIR.
"""

import argparse
import collections
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import short_runs

_PATH = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
_SIGNALS = {"KILL": 8, "TERM": 5, "INT": 4, "STOP": 3}
# A signal that comes before Python has begun, or when all is done, is the system's.
_STATUSES = {0, -9, 130, 143, -2, -15}
_LONGEST_CHAIN = 5
_LIMIT = 120.0
_EARLY = 0.25
_TRAINING = ["--deterministic", "--save_checkpoints_steps=3"]
# What makes a run long enough to be hit.
_MORE = {
    "corpus": [
        f"--input_file={short_runs.FIXTURES}/docs200.txt",
        f"--spm_model_file={short_runs.FIXTURES}/spm_small.model",
        "--max_seq_length=64",
        "--dupe_factor=300",
        "--num_workers=2",
    ],
    "vocabulary": ["--input_file={work}/words.txt", "--vocab_size=2000"],
    "pretrain": [*_TRAINING, "--num_train_steps=60", "--eval_every_steps=20"],
    "classify": [*_TRAINING, "--train_step=40", "--eval_every_steps=10"],
    **{name: [*_TRAINING, "--num_train_steps=8"] for name in ("tag", "squad", "race")},
}


class Run:
    """A command that is running, in a process group of its own."""

    def __init__(self, title: str, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        arguments = short_runs.commands_of(folder)[title]
        more = [x.format(work=folder.parent) for x in _MORE.get(title, ())]
        self.title, self.folder = title, folder
        self.log = Path(tempfile.mkstemp(dir=folder.parent, suffix=".log")[1])
        self.began = time.monotonic()
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "albert_tf", *arguments, *more],
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": _PATH, "PYTHONUNBUFFERED": "1"},
                cwd=folder.parent,
                start_new_session=True,
                # A shell starts what it runs in the background with INT ignored.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    def seconds(self) -> float:
        """Returns how long it has been running."""
        return time.monotonic() - self.began

    def ended(self) -> bool:
        """Whether it has."""
        return self.process.poll() is not None

    def first_sign(self) -> float:
        """Waits for its first output or its end; returns when that was."""
        while not self.log.stat().st_size and not self.ended():
            time.sleep(0.002)
        return self.seconds()

    def finish(self) -> int:
        """Waits for its end; returns its status, or 999 for one that hangs."""
        try:
            return self.process.wait(_LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            return 999

    def survivors(self) -> bool:
        """Whether processes of the group outlive it, given ten seconds to end."""
        for _ in range(100):
            try:
                os.killpg(self.process.pid, 0)
            except ProcessLookupError:
                return False
            time.sleep(0.1)
        os.killpg(self.process.pid, signal.SIGKILL)
        return True


class Chains:
    """Kills one command until it has had its moments, and counts what came of it."""

    def __init__(self, title: str, work: Path, draw: random.Random):
        self.title, self.work, self.draw = title, work, draw
        self.statuses: dict[str, collections.Counter] = collections.defaultdict(
            collections.Counter
        )
        self.findings: list[str] = []
        self.comparisons = self.refused = 0

    def run(self, moments: int) -> None:
        """Has the undisturbed run, then chains of kills."""
        run = Run(self.title, self.work / "undisturbed")
        self.first = run.first_sign()
        code = run.finish()
        assert code == 0, run.log.read_text()
        self.whole = run.seconds()
        self.expected = short_runs.contents(run.folder)
        names = [name for name, weight in _SIGNALS.items() for _ in range(weight)]
        while sum(codes.total() for codes in self.statuses.values()) < moments:
            folder = self.work / "killed" / "run"
            shutil.rmtree(folder.parent, ignore_errors=True)
            folder.parent.mkdir()
            words = self.work / "words.txt"
            if words.exists():
                shutil.copy(words, folder.parent)
            for _ in range(self.draw.randint(1, _LONGEST_CHAIN)):
                if self._kill(Run(self.title, folder), self.draw.choice(names)):
                    break
            run = Run(self.title, folder)
            code = run.finish()
            self.comparisons += 1
            self._check(run, code)
            if code or (made := short_runs.contents(folder)) != self.expected:
                differing = [] if code else _different(made, self.expected)
                self._note(f"status {code}, differs: {differing}")

    def _kill(self, run: Run, name: str) -> bool:
        """Sends a signal at a random moment; returns whether the run was done."""
        if self.draw.random() < _EARLY:
            moment = self.draw.uniform(0.5, self.whole)
        else:
            rest = max(self.whole - self.first, 0.1)
            moment = run.first_sign() + self.draw.uniform(0.0, rest)
        while run.seconds() < moment and not run.ended():
            time.sleep(0.002)
        if run.ended():
            self._check(run, run.finish())
            return True
        to_all = self.draw.random() < 0.5
        if name == "STOP":
            return self._stop(run)
        number = getattr(signal, f"SIG{name}")
        if to_all and name != "KILL":
            os.killpg(run.process.pid, number)
        else:
            run.process.send_signal(number)
        code = run.finish()
        self._count(name, run, code)
        return code == 0

    def _count(self, name: str, run: Run, code: int) -> None:
        status = str(code)
        if code in (-signal.SIGTERM, -signal.SIGINT):
            if not run.log.stat().st_size:
                status += " early"
            elif short_runs.contents(run.folder) == self.expected:
                status += " done"
            elif self.title not in ("corpus", "vocabulary"):  # which resume from files
                self._note(f"{status} without a line: {run.log.read_text()[-2000:]}")
        self.statuses[name][status] += 1
        self._check(run, code)

    def _stop(self, run: Run) -> bool:
        os.killpg(run.process.pid, signal.SIGSTOP)
        if list(run.folder.rglob(".lock")):
            second = Run(self.title, run.folder)
            code, text = second.finish(), second.log.read_text(errors="replace")
            holder = "another run is at work here"
            self.refused += code == 2 and holder in text
            if code != 2 or holder not in text:
                self._note(f"second run: {code} {text}")
        else:
            time.sleep(1.0)
        os.killpg(run.process.pid, signal.SIGCONT)
        name, is_killed = "STOP, CONT", self.draw.random() < 0.5
        if is_killed:
            name = "STOP, KILL"
            run.process.kill()
        code = run.finish()
        self._count(name, run, code)
        return code == 0

    def _note(self, finding: str) -> None:
        self.findings.append(finding)
        print(f"{self.title}: {finding}", file=sys.stderr, flush=True)

    def _check(self, run: Run, code: int) -> None:
        text = run.log.read_text(errors="replace")
        if code not in _STATUSES or "Traceback" in text:
            where = f"after {run.seconds():.1f} s"
            self._note(f"status {code} {where}: {text[-2000:]}")
        if run.survivors():
            self._note(f"status {code}: processes are left")


def _different(made: dict, expected: dict) -> list[str]:
    names = {*made, *expected}
    return sorted(n for n in names if made.get(n) != expected.get(n))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commands", default=",".join(short_runs.commands_of(Path())))
    options = parser.parse_args()
    titles = options.commands.split(",")
    findings = total = 0
    print("| command | signal | moments | exit statuses |\n|---|---|---|---|")
    for i, title in enumerate(titles):
        draw = random.Random(f"{options.seed} {title}")
        with tempfile.TemporaryDirectory() as work:
            words = ("".join(draw.choices("abcdefghij", k=7)) for _ in range(20_000))
            Path(work, "words.txt").write_text("\n".join(words))
            chains = Chains(title, Path(work), draw)
            begin, end = (options.moments * n // len(titles) for n in (i, i + 1))
            chains.run(end - begin)
        for name, codes in sorted(chains.statuses.items()):
            counts = ", ".join(f"{code} ({n})" for code, n in sorted(codes.items()))
            print(f"| {title} | {name} | {codes.total()} | {counts} |")
            total += codes.total()
        print(
            f"| {title} | {chains.comparisons} compared, {chains.refused} second runs "
            f"refused, {len(chains.findings)} differences | | |",
            flush=True,
        )
        findings += len(chains.findings)
    print(f"{total} moments, {findings} differences")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
