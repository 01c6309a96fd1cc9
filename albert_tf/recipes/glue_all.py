r"""Fine-tunes on all tasks of GLUE, and prints a table of their scores on dev.

    python -m albert_tf.recipes.glue_all --data_dir=glue \
        --init_checkpoint=albert_base_v2 --output_dir=runs

Every task gets the given flags of `albert-tf classify`, such as --num_runs=5 or
--precision=bfloat16. Each task has its folder in --output_dir. A second call resumes a
call that was stopped. At the end, --output_dir/submission.zip is ready for the
benchmark's site.
"""

import contextlib
import json
import shlex
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

from albert_tf.tasks.catalogue import TASKS

RECIPES = Path(__file__).resolve().parent
# The tasks in the order of the paper's table of GLUE dev scores: the metric, and the
# paper's score in percent of a single (not ensembled) xxlarge v1 model, or None.
PAPER = {
    "mnli": ("eval_accuracy", 90.8),
    "qnli": ("eval_accuracy", 95.3),
    "qqp": ("eval_accuracy", 92.2),
    "rte": ("eval_accuracy", 89.2),
    "sst-2": ("eval_accuracy", 96.9),
    "mrpc": ("eval_accuracy", 90.9),
    "cola": ("matthew_corr", 71.4),
    "sts-b": ("pearson", 93.0),
    "wnli": ("eval_accuracy", None),
}


def main() -> None:
    """Runs the tasks, gathers the predictions and prints the table."""
    arguments = sys.argv[1:]
    for flag in arguments:
        if not flag.startswith("-"):
            sys.exit(f"{flag}: expected --name=value")
        if _sets(flag, "export_dir"):
            sys.exit(f"{flag}: each task would replace the one before; export one task")
    folders = [arg.partition("=")[2] for arg in arguments if _sets(arg, "output_dir")]
    if len(folders) != 1:
        sys.exit(__doc__)
    folder = Path(folders[0])
    flags = [flag for flag in arguments if not _sets(flag, "output_dir")]
    for task in PAPER:
        recipe, output = RECIPES / f"{task}.flags", folder / task
        run("classify", f"--flagfile={recipe}", *flags, f"--output_dir={output}")
    training_flags = ("num_runs", "init_checkpoint", "albert_hub_module_handle")
    # AX is only a test set for models of MNLI, so its run does not train.
    ax_args = [f for f in flags if not any(_sets(f, name) for name in training_flags)]
    ax_args += [f"--init_checkpoint={folder / 'mnli'}", f"--output_dir={folder / 'ax'}"]
    run("classify", f"--flagfile={RECIPES / 'ax.flags'}", *ax_args)
    _pack(folder)
    print(_table(folder))


def _sets(flag: str, name: str) -> bool:
    """Whether an argument such as "--num_runs=5" sets a flag such as "num_runs"."""
    return flag.lstrip("-").startswith(f"{name}=")


def run(*arguments: str, module: str = "albert_tf.commands") -> None:
    """Runs `python -m MODULE ARGUMENTS`; if that fails, exits with its status.

    A command that gets a signal saves a checkpoint, logs how to resume, and ends. So
    SIGTERM to this process is sent on to the command. Ctrl-C also reaches the command
    directly, from the terminal; this function then only waits for its end.
    """
    command = [sys.executable, "-m", module, *arguments]
    print(f"=== {shlex.join(['python', *command[1:]])}", file=sys.stderr, flush=True)
    status = None
    with subprocess.Popen(command) as child:
        previous = signal.signal(signal.SIGTERM, lambda number, _: child.terminate())
        while status is None:
            with contextlib.suppress(KeyboardInterrupt):
                status = child.wait()
        signal.signal(signal.SIGTERM, previous)
    if status:
        # A child that signal N ended has status -N; shells report 128 + N.
        sys.exit(status if status > 0 else 128 - status)


def _pack(folder: Path) -> None:
    """Writes a zip file of all submission files, for the website of GLUE."""
    names = {name for task in TASKS.values() for name in task.submission.values()}
    with zipfile.ZipFile(folder / "submission.zip", "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(folder.glob("*/*.tsv")):
            if path.name in names:
                file.write(path, path.name)


def _table(folder: Path) -> str:
    """Returns the table of scores, in percent, with a column for each task."""
    rows = [["", *PAPER], ["dev", *(_best(folder / task, task) for task in PAPER)]]
    spreads = [_spread(folder / task) for task in PAPER]
    if any(spreads):
        rows.append(["mean +- spread", *spreads])
    scores = [str(score or "-") for _, score in PAPER.values()]
    rows.append(["paper, xxlarge", *scores])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )


def _best(folder: Path, task: str) -> str:
    """Returns the best checkpoint's percentage; for MNLI "MATCHED/MISMATCHED"."""
    metrics = json.loads((folder / "model.ckpt-best.json").read_text())
    metric, _ = PAPER[task]
    names = [metric, f"dev_mismatched/{metric}"]
    return "/".join(f"{100 * metrics[name]:.1f}" for name in names if name in metrics)


def _spread(folder: Path) -> str:
    """Returns mean and standard deviation of several runs in percent, or ""."""
    try:
        runs = json.loads((folder / "runs.json").read_text())
    except FileNotFoundError:
        return ""
    return f"{100 * runs['mean']:.1f}+-{100 * runs['spread']:.1f}"


if __name__ == "__main__":
    main()
