"""Kills commands at random moments, and checks that the same command then completes.

    python tests/faults/kills.py --moments=200 --seed=1 --commands=corpus,pretrain

A command is killed several times in a row, with `kill -9`, SIGTERM or SIGINT. Then it
runs to its end, and its files are compared with those of a run without kills. The exit
status is 1 if a byte differs, or if a command hangs, shows a traceback or leaves a
process. Run the program as an unprivileged user, with a TMPDIR.
"""

import argparse
import collections
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests/fixtures"
DATA = FIXTURES / "earlier_version"
SIGNALS = [signal.SIGKILL] * 2 + [signal.SIGTERM, signal.SIGINT]
# -2, -15: the signal came before the handler was set, or after it was removed.
STATUSES = {0, -9, 130, 143, -2, -15}
LIMIT = 300.0  # seconds
CONFIG = f"--albert_config_file={DATA}/albert_config.json"
MODEL = f"{CONFIG} --spm_model_file={DATA}/vocab.model"
TRAINING = (
    "--deterministic --train_batch_size=2 --eval_batch_size=3 --num_warmup_steps=1 "
    "--save_checkpoints_steps=3 --keep_checkpoint_max=1"
)
CONVERT = f"convert --input={DATA}/pretraining --output={{folder}}"
# The arguments of `albert-tf`. Each command writes only to {folder}.
COMMANDS = {
    "corpus": f"corpus --input_file={FIXTURES}/docs200.txt --max_seq_length=64 "
    f"--spm_model_file={FIXTURES}/spm_small.model --dupe_factor=300 --num_workers=2 "
    "--output_file={folder}/train.tfrecord",
    "vocabulary": f"vocabulary --input_file={FIXTURES}/docs200.txt --vocab_size=900 "
    "--model_prefix={folder}/vocab",
    "pretrain": f"pretrain {CONFIG} --input_file={DATA}/records/ordinary "
    f"--eval_input_file={DATA}/records/ordinary {TRAINING} --num_train_steps=60 "
    "--eval_every_steps=20 --output_dir={folder}",
    "classify": f"classify {MODEL} {TRAINING} --task_name=custom --max_seq_length=16 "
    f"--train_file={DATA}/table.tsv --dev_file={DATA}/table.tsv "
    f"--test_file={DATA}/table.tsv --do_train --do_eval --do_predict "
    "--num_train_steps=40 --eval_every_steps=10 --output_dir={folder}",
    "squad": f"squad {MODEL} {TRAINING} --train_file={FIXTURES}/squad_own.json "
    f"--predict_file={FIXTURES}/squad_own.json --version_2_with_negative "
    "--max_query_length=8 --doc_stride=8 --max_seq_length=32 --do_train --do_predict "
    "--num_train_steps=8 --eval_every_steps=2 --output_dir={folder}",
    "convert to hf": f"{CONVERT} --output_format=hf",
    "convert to tf1": f"{CONVERT} --output_format=tf1",
}


def contents(folder):
    """Returns the contents that must be equal after kills.

    Logs contain times, and a step that was repeated has two lines. So only losses are
    taken from `metrics.jsonl`, and distinct blocks from `eval_results.txt`.
    """
    values = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.name == "metrics.jsonl":
            lines = map(json.loads, path.read_text().splitlines())
            values[name] = {
                x["step"]: x.get("loss") for x in lines if x["kind"] == "eval"
            }
        elif path.name == "eval_results.txt":
            values[name] = sorted(set(path.read_text().split("=" * 50 + "\n")))
        elif not (path.is_dir() or path.name == "run.json" or "tfevents" in path.name):
            values[name] = None if path.suffix == ".png" else path.read_bytes()
    return values


def start(command, folder, log):
    folder.mkdir(parents=True, exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "albert_tf", *command.format(folder=folder).split()],
        stdout=log,
        stderr=log,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        start_new_session=True,
        # Shells start background processes with SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait(process, log):
    """Waits until a process and its group end; returns the status and problems."""
    code, is_left = None, True
    try:
        code = process.wait(LIMIT)
        for _ in range(100):
            os.killpg(process.pid, 0)
            time.sleep(0.1)
    except ProcessLookupError:
        is_left = False
    except subprocess.TimeoutExpired:
        pass
    if is_left:
        os.killpg(process.pid, signal.SIGKILL)
    log.seek(0)
    text = log.read()
    log.seek(0)
    log.truncate()
    is_wrong = is_left or code not in STATUSES or "Traceback" in text
    return code, [f"status {code}, processes left: {is_left}: {text}"] * is_wrong


def kill_at_moments(command, work, draw, moments):
    """Kills a command many times; returns the counts of its statuses, and problems."""
    statuses, problems = collections.Counter(), []
    with (work / "log").open("w+", errors="replace") as log:
        began = time.monotonic()
        code, problems = wait(start(command, work / "undisturbed", log), log)
        assert code == 0, problems
        seconds, expected = time.monotonic() - began, contents(work / "undisturbed")
        folder = work / "killed"
        while statuses.total() < moments:
            shutil.rmtree(folder, ignore_errors=True)
            for _ in range(draw.randint(1, 5)):
                process = start(command, folder, log)
                time.sleep(draw.uniform(0.5, seconds))
                send = draw.choice([os.kill, os.killpg])
                if process.poll() is None:
                    send(process.pid, draw.choice(SIGNALS))
                code, new_problems = wait(process, log)
                statuses[code] += 1
                problems += new_problems
            code, new_problems = wait(start(command, folder, log), log)
            problems += new_problems
            values = contents(folder)
            names = {*values, *expected}
            differing = sorted(n for n in names if values.get(n) != expected.get(n))
            if code or differing:
                problems.append(f"status {code}, differs: {differing}")
    return statuses, problems


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commands", default=",".join(COMMANDS))
    options = parser.parse_args()
    titles, count = options.commands.split(","), 0
    for title in titles:
        draw = random.Random(f"{options.seed} {title}")
        with tempfile.TemporaryDirectory() as work:
            moments = -(-options.moments // len(titles))
            statuses, problems = kill_at_moments(
                COMMANDS[title], Path(work), draw, moments
            )
        counts = ", ".join(f"{code} ({n})" for code, n in sorted(statuses.items()))
        print(f"{title}: {counts}; {len(problems)} problems", *problems, sep="\n")
        count += len(problems)
    sys.exit(1 if count else 0)


if __name__ == "__main__":
    main()
