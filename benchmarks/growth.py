"""Measures the start, the step and the memory of pretraining as a model grows.

Each point is a run of the whole command in a process of its own, on records of random
tokens, in float32 if nothing else is said. The first step has the building of the graph
in it. A row also has what the run itself estimated of its memory, and the exponent to
which a value has grown with the size since the row before: 1 is linear.

    python benchmarks/growth.py
    python benchmarks/growth.py --axes=layers,length
"""

import argparse
import json
import math
import re
import statistics
import sys
import tempfile
from pathlib import Path

from pretraining_run import write_records
from turns import measured

ROOT = Path(__file__).parents[1]
SMALL = {
    "vocab_size": 8000,
    "embedding_size": 128,
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "max_position_embeddings": 2048,
}
GIB = 1 << 30
BASE = "albert_base_v2"
# Of each axis the points by their size or name: the model, rows, their length, flags.
AXES: dict[str, dict] = {
    "layers": {n: (SMALL | {"num_hidden_layers": n}, 8, 128) for n in (12, 24, 48)},
    "length": {n: (SMALL, 2, n) for n in (512, 1024, 2048)},
    "rows": {n: (SMALL, n, 128) for n in (8, 32, 128)},
    "vocabulary": {
        n: (SMALL | {"vocab_size": n}, 8, 128) for n in (30_000, 100_000, 250_000)
    },
    "base": {
        "8 x 128": (BASE, 8, 128),
        "8 x 128, bfloat16": (BASE, 8, 128, "--precision=bfloat16"),
        "8 x 128, 2 parts": (BASE, 8, 128, "--gradient_accumulation_steps=2"),
        "8 x 512": (BASE, 8, 512),
        "8 x 512, recomputed": (BASE, 8, 512, "--recompute=block"),
    },
}
VALUES = ("first step, s", "step, s", "peak, GiB")


def main():
    """Measures the points of the axes, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--axes", default=",".join(AXES))
    parser.add_argument("--steps", type=int, default=6, help="after the first")
    args = parser.parse_args()
    for axis in args.axes.split(","):
        print(f"{axis:20}{''.join(f'{name:>20}' for name in VALUES)}  estimate")
        earlier: list = []
        for size, settings in AXES[axis].items():
            values, estimate = point(args.steps, *settings)
            cells = [f"{value:.3g}" for value in values]
            if earlier and not isinstance(size, str):
                last, olds = earlier[-1]
                for place, (new, old) in enumerate(zip(values, olds, strict=True)):
                    power = math.log(new / old) / math.log(size / last)
                    cells[place] += f" (^{power:.2f})"
            earlier.append((size, values))
            share = f"{estimate:.1f} GiB, {estimate / values[-1]:.2f} of the peak"
            cells = [f"{cell:>20}" for cell in cells]
            print(f"{size!s:20}{''.join(cells)}  {share}", flush=True)


def point(steps, model, rows, length, *flags):
    """Pretrains for some steps; returns the three values and the estimate in GiB."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if isinstance(model, dict):
            config = folder / "config.json"
            config.write_text(json.dumps(model))
            model = str(config)
        write_records(folder, model, length)
        command = [sys.executable, str(ROOT / "run_pretraining.py")]
        command += [f"--albert_config_file={model}", *flags, "--log_steps=1"]
        command += [
            f"--input_file={folder / 'train.tfrecord'}",
            f"--train_batch_size={rows}",
        ]
        command += [f"--num_train_steps={steps + 1}", f"--output_dir={folder / 'run'}"]
        command += ["--optimizer=adamw", "--num_warmup_steps=0"]
        used = measured(command)
        lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
        trained = [line for line in map(json.loads, lines) if line["kind"] == "train"]
        first, *later = [rows / line["sequences_per_second"] for line in trained]
        [estimate] = re.findall("about ([0-9.]+) GiB in this", " ".join(used.lines))
    return (first, statistics.median(later), used.memory / GIB), float(estimate)


if __name__ == "__main__":
    main()
