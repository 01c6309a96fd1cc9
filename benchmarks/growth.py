r"""Measures how time, memory and disk grow with the model, the text and the rows.

Each point is a run of a whole command in a process of its own, in float32 on made-up
rows if nothing else is said. After a value stands the exponent to which it has grown
with the size since the row before: 1 is linear. The first step has the building of the
graph in it; "estimate" is what the run itself printed of its memory before that step.

    python benchmarks/growth.py --axes=layers,length
    python benchmarks/growth.py --axes=text,shards,processes,lines,rows,questions \
        --input_file=corpus.txt --spm_model_file=30k-clean.model
"""

import argparse
import contextlib
import json
import math
import os
import re
import shutil
import statistics
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from pretraining_run import command_of, speeds_of, write_records
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
TINY = {
    "vocab_size": 30000,
    "embedding_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
GIB = 1 << 30
BASE, XLARGE, XXLARGE = "albert_base_v2", "albert_xlarge_v2", "albert_xxlarge_v2"
UNSHARED = SMALL | {"num_hidden_layers": 4, "parameter_sharing": "none"}
BFLOAT16, RECOMPUTED = "--precision=bfloat16", "--recompute=block"
PARTS = "--gradient_accumulation_steps={}"
DEVICES = "--distribution=mirrored", "--cpu_devices=2"


def main():
    """Measures the points of the axes, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--axes", default="layers,length,rows_of_a_step,vocabulary")
    parser.add_argument("--most", type=float, default=math.inf, help="size to measure")
    parser.add_argument("--input_file", help="text, for what reads any")
    parser.add_argument("--spm_model_file", help="of 30,000 pieces, likewise")
    args = parser.parse_args()
    for axis in args.axes.split(","):
        if axis not in AXES:
            parser.error(f"--axes: {axis!r} is not one of {', '.join(AXES)}")
        measure, points = AXES[axis]
        print(f"\n{axis}")
        last, olds = None, dict[str, float]()
        for size, settings in points.items():
            if not isinstance(size, str) and size > args.most:
                continue
            with tempfile.TemporaryDirectory() as folder:
                values = measure(args, Path(folder), *settings)
            cells = []
            for name, value in values.items():
                cell = f"{name} {value:.4g}"
                if last is not None and not isinstance(size, str):
                    power = math.log(value / olds[name]) / math.log(size / last)
                    cell += f" (^{power:.2f})"
                cells.append(cell)
            last, olds = size, values
            print(f"  {size!s:26}{'   '.join(cells)}", flush=True)


def step(args, folder, model, rows, length, *flags, picks=0.15):
    """Pretrains for four steps."""
    write_records(folder, _model(folder, model), length, picks)
    flags = (*flags, "--num_train_steps=4", "--log_steps=1")
    run = folder / "run"
    used = measured(command_of(folder, run, _model(folder, model), rows, *flags))
    first, *later = [rows / speed for speed in speeds_of(run)]
    [estimate] = re.findall("about ([0-9.]+) GiB", " ".join(used.lines))
    return {
        "first step, s": first,
        "step, s": statistics.median(later),
        "peak, GiB": used.memory / GIB,
        "estimate, GiB": float(estimate),
        "estimate / peak": float(estimate) * GIB / used.memory,
    }


def steps_made(args, folder, count):
    """Pretrains a tiny model for so many steps."""
    model = _model(folder, TINY)
    write_records(folder, model, 16)
    flags = [f"--num_train_steps={count}", "--log_steps=1000"]
    return _used(measured(command_of(folder, folder / "run", model, 4, *flags)))


def step_of_picks(args, folder, count):
    """Pretrains with so many predictions in each of 8 rows of 512 tokens."""
    return step(args, folder, SMALL, 8, 512, picks=count / 512)


def evaluated_rows(args, folder, count):
    """Trains a tiny classifier for a step and evaluates so many rows of a table."""
    _table(folder / "train.csv", 64)
    _table(folder / "dev.csv", count)
    return _used(measured(_classifier(args, folder, "--do_eval")))


def answered_lines(args, folder, count):
    """Answers so many lines with a tiny classifier."""
    _table(folder / "train.csv", 64)
    measured(_classifier(args, folder))
    with open(folder / "lines.txt", "w") as output:
        output.writelines(f"{text}\n" for text, _ in _texts(count))
    command = [sys.executable, str(ROOT / "predict.py"), f"--model={folder}/run"]
    command += [f"--input_file={folder}/lines.txt", f"--output_file={folder}/answers"]
    return _used(measured([*command, "--batch_size=256"]))


def answered_questions(args, folder, count):
    """Trains a tiny model for a step and answers so many questions."""
    for name, number in (("train", 16), ("dev", count)):
        paragraphs = [
            {
                "context": f"{text} in the town of {i}.",
                "qas": [
                    {
                        "id": f"{i}",
                        "question": "Which town?",
                        "answers": [{"text": text[:1], "answer_start": 0}],
                    }
                ],
            }
            for i, (text, _) in enumerate(_texts(number))
        ]
        data = {"version": "1.1", "data": [{"title": "", "paragraphs": paragraphs}]}
        (folder / f"{name}.json").write_text(json.dumps(data))
    command = [sys.executable, str(ROOT / "run_squad.py"), "--num_train_steps=1"]
    command += [f"--train_file={folder}/train.json", "--do_train", "--do_predict"]
    command += [f"--predict_file={folder}/dev.json", "--predict_batch_size=256"]
    command += ["--max_query_length=16"]
    return _used(measured([*command, *_tiny(args, folder)]))


def generator(args, folder, copies, *flags):
    """Makes records of so many copies of the text, each used once."""
    if not (args.input_file and args.spm_model_file):
        raise SystemExit("expected --input_file and --spm_model_file")
    text = Path(args.input_file)
    for i in range(copies):
        shutil.copy(text, folder / f"text-{i:03}.txt")
    (folder / "records").mkdir()
    command = [sys.executable, str(ROOT / "create_pretraining_data.py")]
    command += [f"--input_file={folder}/text-*.txt", "--dupe_factor=1", *flags]
    command += [f"--spm_model_file={args.spm_model_file}"]
    if not any(flag.startswith("--output_file") for flag in flags):
        command += [f"--output_file={folder}/records/train.tfrecord@16"]
    command = [word.replace("FOLDER", str(folder)) for word in command]
    with _most_on_disk(folder / "records") as disk:
        used = measured(command)
    kept = sum(path.stat().st_size for path in (folder / "records").rglob("*"))
    return {
        **_used(used),
        "MB of text a second": text.stat().st_size * copies / 1e6 / used.clock,
        "records, GB": kept / 1e9,
        "most on disk, GB": disk[0] / 1e9,
    }


def _used(used):
    return {
        "s": used.clock,
        "processor, s": used.processor,
        "peak, GiB": used.memory / GIB,
    }


def _model(folder, model):
    """Returns a model's name, or the file of its values."""
    if isinstance(model, str):
        return model
    (folder / "config.json").write_text(json.dumps(model))
    return str(folder / "config.json")


def _classifier(args, folder, *flags):
    return [
        *(sys.executable, str(ROOT / "run_classifier.py"), "--task_name=custom"),
        *(f"--train_file={folder}/train.csv", f"--dev_file={folder}/dev.csv"),
        *("--num_train_steps=1", "--eval_batch_size=256", "--do_train", *flags),
        *_tiny(args, folder),
    ]


def _tiny(args, folder):
    if not args.spm_model_file:
        raise SystemExit("expected --spm_model_file")
    return [
        *(f"--albert_config_file={_model(folder, TINY)}", f"--output_dir={folder}/run"),
        *(f"--spm_model_file={args.spm_model_file}", "--max_seq_length=64"),
    ]


def _table(path, count):
    with open(path, "w") as output:
        output.write("text,label\n")
        output.writelines(f"{text},{label}\n" for text, label in _texts(count))


def _texts(count):
    """Yields short texts and labels."""
    for i in range(count):
        yield f"Line {i} has about a dozen words that say so", "yn"[i % 2]


@contextlib.contextmanager
def _most_on_disk(folder):
    """Yields a list of one number: the most bytes that the folder has had."""
    most, ended = [0], threading.Event()

    def look():
        stop = False
        while not stop:
            stop = ended.wait(0.5)
            total = 0
            for path in folder.rglob("*"):
                with contextlib.suppress(FileNotFoundError):
                    total += path.stat().st_size
            most[0] = max(most[0], total)

    watching = threading.Thread(target=look)
    watching.start()
    try:
        yield most
    finally:
        ended.set()
        watching.join()


CORES = sorted({1, len(os.sched_getaffinity(0))})
# Of each axis what measures it, and its points by their size or name.
AXES: dict[str, tuple[Callable, dict]] = {
    "layers": (
        step,
        {n: (SMALL | {"num_hidden_layers": n}, 8, 128) for n in (12, 24, 48)},
    ),
    "length": (step, {n: (SMALL, 2, n) for n in (512, 1024, 2048)}),
    "rows_of_a_step": (step, {n: (SMALL, n, 128) for n in (8, 32, 128)}),
    "vocabulary": (
        step,
        {n: (SMALL | {"vocab_size": n}, 8, 128) for n in (30_000, 100_000, 250_000)},
    ),
    "predictions": (step_of_picks, {n: (n,) for n in (19, 77, 307)}),
    "steps": (steps_made, {n: (n,) for n in (2000, 20_000, 200_000)}),
    "memory": (
        step,
        {
            "base 8 x 128": (BASE, 8, 128),
            "base 8 x 128, bfloat16": (BASE, 8, 128, BFLOAT16),
            "base 8 x 128, 2 parts": (BASE, 8, 128, PARTS.format(2)),
            "base 8 x 128, recomputed": (BASE, 8, 128, RECOMPUTED),
            "base v1 8 x 128": ("albert_base_v1", 8, 128),
            "base 32 x 128": (BASE, 32, 128),
            "base 8 x 512": (BASE, 8, 512),
            "base 8 x 512, bfloat16": (BASE, 8, 512, BFLOAT16),
            "base 8 x 512, 4 parts": (BASE, 8, 512, PARTS.format(4)),
            "base 8 x 512, recomputed": (BASE, 8, 512, RECOMPUTED),
            "base 8 x 128, 2 devices": (BASE, 8, 128, *DEVICES),
            "xlarge 2 x 512": (XLARGE, 2, 512),
            "xlarge 2 x 512, bfloat16": (XLARGE, 2, 512, BFLOAT16),
            "xlarge 2 x 512, recomputed": (XLARGE, 2, 512, RECOMPUTED),
            "xxlarge 1 x 64": (XXLARGE, 1, 64),
            "xxlarge 1 x 64, recomputed": (XXLARGE, 1, 64, RECOMPUTED),
            "unshared 16 x 128": (UNSHARED, 16, 128),
            "unshared 64 x 128": (UNSHARED, 64, 128),
        },
    ),
    "text": (generator, {n: (n,) for n in (1, 10, 100)}),
    "shards": (
        generator,
        {n: (1, f"--output_file=FOLDER/records/t@{n}") for n in (1, 32, 1024)},
    ),
    "processes": (generator, {n: (1, f"--num_workers={n}") for n in CORES}),
    "rows": (evaluated_rows, {n: (n,) for n in (100_000, 1_000_000, 10_000_000)}),
    "lines": (answered_lines, {n: (n,) for n in (100_000, 1_000_000, 10_000_000)}),
    "questions": (answered_questions, {n: (n,) for n in (10_000, 100_000, 1_000_000)}),
}


if __name__ == "__main__":
    main()
