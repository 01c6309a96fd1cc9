r"""Measures how time and memory grow with the model, the text and the rows.

Each point is one run of a whole command, in float32, on generated data. The number in
parentheses after a value is the exponent of its growth since the row above; 1 is
linear. The first step includes building the graph.

    python benchmarks/growth.py --axes=layers,length
    python benchmarks/growth.py --axes=text,lines,rows \
        --input_file=corpus.txt --spm_model_file=30k-clean.model
"""

import json
import math
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from common import GIB, ROOT, make_parser, run_command, write_config
from pretraining_run import build_command, write_records

# Keys of the config for the axes of a training step.
SMALL = {
    "vocab_size": 8000,
    "embedding_size": 128,
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "max_position_embeddings": 2048,
}
# Keys of the config for `measure_rows`, in which the text takes most of the time.
TINY = {
    "vocab_size": 30000,
    "embedding_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}


def main():
    """Measures the points of each axis and prints them."""
    parser = make_parser(__doc__)
    parser.add_argument("--axes", default="layers,length,rows_of_a_step,vocabulary")
    parser.add_argument("--max_size", type=float, default=math.inf)
    parser.add_argument("--input_file", help="text, for the axis text")
    parser.add_argument("--spm_model_file", help="30,000 tokens: text, lines and rows")
    args = parser.parse_args()
    for axis in args.axes.split(","):
        if axis not in AXES:
            parser.error(f"--axes: {axis!r} is not one of {', '.join(AXES)}")
        measure, points = AXES[axis]
        print(f"\n{axis}")
        previous_size, previous_values = None, dict[str, float]()
        for size, settings in points.items():
            if size > args.max_size:
                continue
            with tempfile.TemporaryDirectory() as folder:
                values = measure(args, Path(folder), *settings)
            cells = []
            for name, value in values.items():
                cell = f"{name} {value:.4g}"
                if previous_size is not None:
                    growth = math.log(value / previous_values[name])
                    cell += f" (^{growth / math.log(size / previous_size):.2f})"
                cells.append(cell)
            previous_size, previous_values = size, values
            print(f"  {size!s:12}{'   '.join(cells)}", flush=True)


def measure_step(args, folder, model, rows, length):
    """Pretrains for four steps; returns the times of steps and the peak memory."""
    write_records(folder, write_config(folder, model), length)
    command = build_command(folder, rows, "--num_train_steps=4", "--log_steps=1")
    usage = run_command(command)
    lines = map(json.loads, (folder / "run/metrics.jsonl").read_text().splitlines())
    first, *later = [
        rows / line["sequences_per_second"] for line in lines if line["kind"] == "train"
    ]
    return {
        "first step, s": first,
        "step, s": statistics.median(later),
        "peak, GiB": usage.memory / GIB,
    }


def measure_text(args, folder, copies):
    """Makes records from copies of the text, with each document used once."""
    for i in range(copies):
        shutil.copy(args.input_file, folder / f"text-{i:03}.txt")
    command = [
        *(sys.executable, ROOT / "create_pretraining_data.py", "--dupe_factor=1"),
        *(f"--input_file={folder}/text-*.txt", f"--output_file={folder}/t.tfrecord@16"),
        f"--spm_model_file={args.spm_model_file}",
    ]
    return _name_values(run_command(command))


def measure_lines(args, folder, count):
    """Predicts on lines of text with the tiny classifier of `measure_rows`."""
    measure_rows(args, folder, 64)
    with open(folder / "lines.txt", "w") as output:
        output.writelines(f"{text}\n" for text, _ in _make_texts(count))
    command = [sys.executable, ROOT / "predict.py", f"--model={folder}/run"]
    command += [f"--input_file={folder}/lines.txt", f"--output_file={folder}/answers"]
    return _name_values(run_command([*command, "--batch_size=256"]))


def _name_values(usage):
    """Returns the values of a `common.Usage` by the names to print."""
    return {
        "s": usage.seconds,
        "processor, s": usage.processor,
        "peak, GiB": usage.memory / GIB,
    }


def measure_rows(args, folder, count):
    """Trains a tiny classifier for one step, and evaluates it on rows of a table."""
    write_config(folder, TINY)
    for name, size in (("train", 64), ("dev", count)):
        with open(folder / f"{name}.csv", "w") as output:
            output.write("text,label\n")
            output.writelines(f"{text},{label}\n" for text, label in _make_texts(size))
    command = [
        *(sys.executable, ROOT / "run_classifier.py", "--task_name=custom"),
        *(f"--train_file={folder}/train.csv", f"--dev_file={folder}/dev.csv"),
        *("--num_train_steps=1", "--eval_batch_size=256", "--do_train", "--do_eval"),
        *(f"--albert_config_file={folder}/config.json", "--max_seq_length=64"),
        *(f"--output_dir={folder}/run", f"--spm_model_file={args.spm_model_file}"),
    ]
    return _name_values(run_command(command))


def _make_texts(count):
    """Yields `count` pairs of a short text and a label."""
    for i in range(count):
        yield f"Line {i} has about a dozen words that say so", "yn"[i % 2]


# {axis: (the function that measures a point, {size: the function's other arguments})}.
AXES: dict[str, tuple[Callable, dict]] = {
    "layers": (
        measure_step,
        {n: (SMALL | {"num_hidden_layers": n}, 8, 128) for n in (12, 24, 48)},
    ),
    "length": (measure_step, {n: (SMALL, 2, n) for n in (512, 1024, 2048)}),
    "rows_of_a_step": (measure_step, {n: (SMALL, n, 128) for n in (8, 32, 128)}),
    "vocabulary": (
        measure_step,
        {n: (SMALL | {"vocab_size": n}, 8, 128) for n in (30_000, 100_000, 250_000)},
    ),
    "text": (measure_text, {n: (n,) for n in (1, 10, 100)}),
    "rows": (measure_rows, {n: (n,) for n in (100_000, 1_000_000, 10_000_000)}),
    "lines": (measure_lines, {n: (n,) for n in (100_000, 1_000_000, 10_000_000)}),
}


if __name__ == "__main__":
    main()
