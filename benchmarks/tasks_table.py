"""Fine-tunes several weights on seven tasks, and prints what each of them gives.

CoLA, SST-2, MRPC, RTE and STS-B as GLUE has them, MNLI and QQP from JSON lines of
10,000 rows (as the BabyLM challenge cuts them). Every row of the table has the same
flags and the same seeds; of each run counts the best evaluation on dev. A folder of
weights has its configuration and its vocabulary; random ones take those of a folder,
too. Each core runs jobs of its own, and a second call goes on where one was stopped.

    python benchmarks/tasks_table.py --weights hour=hour/pairs --random=hour/pairs \
        --data_dir=glue --jsonl_dir=glue_babylm --output_dir=table
"""

import argparse
import functools
import itertools
import json
import math
import statistics
import sys
from pathlib import Path

from side_by_side import each_core, run

GLUE = ("cola", "sst-2", "mrpc", "rte", "sts-b")
COLUMNS = {"mnli": "premise,hypothesis", "qqp": "question1,question2"}
FLAGS = [
    *("--do_train", "--do_eval", "--max_seq_length=128", "--max_eval_steps=0"),
    *("--train_batch_size=32", "--eval_batch_size=64", "--eval_every_epochs=1"),
    *("--early_stopping=2", "--warmup_proportion=0.1", "--keep_checkpoint_max=1"),
    "--precision=bfloat16",
]
RANDOM = "random"


def main():
    """Runs all jobs, then prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", nargs="*", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--random", help="a folder whose configuration they have")
    parser.add_argument("--data_dir", required=True, help="of GLUE's tables")
    parser.add_argument(
        "--jsonl_dir", required=True, help="mnli.train.jsonl and others"
    )
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--tasks", nargs="+", default=[*GLUE, *COLUMNS])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--learning_rate", type=float, default=3e-5)
    args = parser.parse_args()
    if args.seeds < 2:
        parser.error(f"--seeds={args.seeds}: expected 2 or more, for a spread")
    rows = dict(each.split("=", 1) for each in args.weights)
    if args.random:
        rows[RANDOM] = args.random
    each_core(itertools.product(args.tasks, rows.items()), functools.partial(one, args))
    report(args, rows)


def one(args, job, core):
    """Fine-tunes one row's weights on one task, once for each seed."""
    task, (name, folder) = job
    output = Path(args.output_dir, name, task)
    output.mkdir(parents=True, exist_ok=True)
    if name == RANDOM:
        [vocabulary] = Path(folder).glob("*.model")
        start = [f"--albert_config_file={folder}/albert_config.json"]
        start.append(f"--spm_model_file={vocabulary}")
    else:
        start = [f"--init_checkpoint={folder}"]
    run(
        *("classify", *FLAGS, *data(args, task), f"--output_dir={output}", *start),
        *(f"--num_runs={args.seeds}", f"--num_train_epochs={args.epochs}"),
        f"--learning_rate={args.learning_rate}",
        log=output / "log",
        core=core,
    )
    print(name, task, "done", file=sys.stderr, flush=True)


def data(args, task):
    """Returns the flags of a task's tables."""
    if task in GLUE:
        return [f"--task_name={task}", f"--data_dir={args.data_dir}"]
    files = {"train": "train", "dev": "valid"}
    return [
        *("--task_name=custom", f"--text_columns={COLUMNS[task]}"),
        *(f"--{k}_file={args.jsonl_dir}/{task}.{v}.jsonl" for k, v in files.items()),
    ]


def report(args, rows):
    """Prints mean and standard deviation of each row, and the means of the tasks."""
    means: dict[str, list[float]] = {name: [] for name in rows}
    for task in args.tasks:
        cells = []
        for name, of_row in means.items():
            path = Path(args.output_dir, name, task, "runs.json")
            if not path.exists():
                cells.append(f"{name} failed")
                of_row.append(math.nan)
                continue
            runs = json.loads(path.read_text())
            of_row.append(100 * runs["mean"])
            cells.append(f"{name} {of_row[-1]:.1f} ({100 * runs['spread']:.1f})")
        print(f"{task:8}", *cells, sep="  ")
    print("mean    ", *(f"{n} {statistics.fmean(v):.1f}" for n, v in means.items()))


if __name__ == "__main__":
    main()
