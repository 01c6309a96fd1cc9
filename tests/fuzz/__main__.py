"""Gives each reader damaged files until the time is up: `make fuzz MINUTES=60`.

    python tests/fuzz --minutes=60 [--seed=1] [--readers=squad,race]

A child process reads: as the user nobody where root calls, with what it may write and
the memory bounded, in a temporary folder. Where it dies, the input that it died of is a
finding, and another child goes on. Findings are made small and saved in `corpus`.
"""

import argparse
import json
import logging
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
import zlib
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
NOBODY = 65534
MEMORY = 6 << 30  # of addresses, beyond what the libraries have taken
# May read what root may, as Python itself may lie in root's folder, and write nothing.
_UNPRIVILEGED = [
    *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
    *(f"--{kind}=-all,+dac_read_search" for kind in
      ("bounding-set", "inh-caps", "ambient-caps")),
]  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--readers", default="", help="names between commas; all")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.exit(_child(options) if options.child else _parent(options))


def _parent(options):
    end = time.monotonic() + 60 * options.minutes
    counts, taken, findings, seed = Counter(), Counter(), {}, options.seed
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        work = Path(folder)
        work.chmod(0o777)
        while (left := end - time.monotonic()) > 0:
            done = _run_child(options, work, seed, left)
            for line in filter(None, (work / "results").read_text().splitlines()):
                result = json.loads(line)
                counts.update(result.get("counts", {}))
                taken.update(result.get("taken", {}))
                if "finding" in result:
                    findings[result["finding"]] = result["folder"]
            if done == 0:
                break
            if done > 0:
                sys.exit("The fuzzer itself failed: its traceback is above.")
            reader = (work / "reader").read_text()
            findings[f"{reader} crash {done}"] = str(work / "input")
            _save(reader, f"crash-{seed}", work / "input")
            seed += 1_000
        for name, place in findings.items():
            if Path(place) != work / "input":
                _save(name.split()[0], Path(place).name, place)
    for reader, count in counts.items():
        print(f"{reader:14} {count:9,} inputs, {taken[reader]:9,} taken")
    print(f"{'all':14} {sum(counts.values()):9,} inputs, {len(findings)} findings")
    for name in findings:
        print(f"finding: {name}")
    return 1 if findings or not counts else 0


def _run_child(options, work, seed, left):
    """Starts a process that reads, and returns its exit code."""
    (work / "results").touch()
    (work / "results").chmod(0o666)
    command = [sys.executable, "-P", str(HERE), f"--child={work}", f"--seed={seed}"]
    command += [f"--minutes={left / 60}", f"--readers={options.readers}"]
    if os.geteuid() == 0:
        command = _UNPRIVILEGED + command
    environment = {
        "HOME": str(work),
        "TMPDIR": str(work),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1])]),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(command, env=environment, cwd=work).returncode


def _save(reader, name, folder):
    """Keeps an input; those that are kept are replayed by test_corpus.py."""
    target = CORPUS / reader / name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target)


def _child(options):
    os.nice(10)
    os.umask(0)
    if os.geteuid() == 0:
        print("fuzzing needs an unprivileged user", file=sys.stderr)
        return 2
    import hypothesis
    import tensorflow as tf

    warnings.simplefilter("ignore")
    logging.disable()
    from invariants import Broken, check, key
    from readers import READERS

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    work, end = Path(options.child), time.monotonic() + 60 * options.minutes
    names = options.readers.split(",") if options.readers else list(READERS)
    results = open(work / "results", "w", buffering=1)  # noqa: SIM115 (to the end)
    known, warm = set(), set()
    quiet = {
        "database": None,
        "deadline": None,
        "suppress_health_check": list(hypothesis.HealthCheck),
        "print_blob": False,
        "report_multiple_bugs": False,
        "phases": (hypothesis.Phase.generate, hypothesis.Phase.shrink),
    }
    _bound_memory()

    def round_of(name, seed):
        reader, last, seen, taken = READERS[name], {}, Counter(), Counter()

        @hypothesis.seed(seed)
        @hypothesis.settings(max_examples=reader.share, **quiet)
        @hypothesis.given(reader.inputs())
        def read(files):
            if time.monotonic() > end:
                return
            folder = _written(work / "input", files)
            seen[name] += 1
            try:
                taken[name] += check(reader.read, folder)
            except Broken as error:
                finding = f"{name} {key(error)}"
                if finding in known or name not in warm:
                    return
                last.pop(finding, None)
                last[finding] = files, str(error)
                print(f"{finding}: {error}", file=sys.stderr)
                raise

        try:
            read()
        except (Broken, hypothesis.errors.Flaky) as error:
            # Others on the way to the smallest are found again in another round. What
            # was broken once and not again, such as memory that was taken before, too.
            if not last:
                raise
            finding = next(reversed(last))
            if isinstance(error, Broken):
                finding = f"{name} {key(error)}"
            known.add(finding)
            digest = zlib.crc32(finding.encode())
            files, said = last.get(finding) or next(iter(last.values()))
            place = _written(
                work / "found" / f"{finding.split()[1]}-{digest:08x}", files
            )
            line = {"finding": f"{finding}: {said}"[:200], "folder": str(place)}
            results.write(json.dumps(line) + "\n")
        results.write(json.dumps({"counts": seen, "taken": taken}) + "\n")

    number = 0
    while time.monotonic() < end:
        for name in names:
            (work / "reader").write_text(name)
            round_of(name, options.seed + 7919 * number)
            warm.add(name)
        number += 1
    return 0


def _bound_memory():
    """Bounds what a file that claims to be huge can take; other limits are small."""
    [line] = (x for x in open("/proc/self/status") if x.startswith("VmSize"))  # noqa: SIM115
    size = (int(line.split()[1]) << 10) + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 20, 64 << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def _written(folder, files):
    """Writes an input as the only contents of a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


if __name__ == "__main__":
    main()
