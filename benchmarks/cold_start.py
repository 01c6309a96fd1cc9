r"""Times what a user waits for first: imports, help, answers, the first training step.

    python benchmarks/cold_start.py --spm_model_file=30k-clean.model
    python benchmarks/cold_start.py --spm_model_file=30k-clean.model --rounds=7

Each command runs in a process of its own, in turns with the others, on ALBERT-base
with random weights, with the bytecode that an installation has. Printed are the least,
median and most seconds of the clock until the answer (until the line of the first
step), the least seconds of the processor, and the most memory; the first turn is not
counted.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from turns import Used, measured

ROOT = Path(__file__).parents[1]
MODEL = "albert_base_v2"
# What to reach, in seconds and MB; None: no goal.
GOALS = {
    "import albert_tf": (0.05, None),
    "predict.py --help": (None, None),
    "answer, ONNX folder": (1.5, 150),
    "answer, ONNX folder, int8": (1.5, 150),
    "answer, LiteRT folder": (1.5, 150),
    "answer, LiteRT folder, int8": (1.5, 150),
    "answer, run folder": (6.0, None),
    "first step, 8 x 128": (12.0, None),
}


def main():
    """Prints a line for each command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spm_model_file", required=True, help="of 30,000 pieces")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prepare", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.prepare:
        prepare(Path(args.prepare), args.spm_model_file)
    else:
        measure(args)


def measure(args):
    """Lets the commands take turns."""
    with tempfile.TemporaryDirectory() as folder:
        # Installations have bytecode; PYTHONDONTWRITEBYTECODE would cost seconds.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ.setdefault("PYTHONPYCACHEPREFIX", f"{folder}/bytecode")
        # A child counts the memory of its parent as its own, so this process has none.
        own = [sys.executable, *sys.argv, f"--prepare={folder}"]
        subprocess.run(own, check=True, stdout=sys.stderr)
        commands = commands_of(Path(folder))
        turns: dict[str, list[Used]] = {name: [] for name in commands}
        for _ in range(args.rounds + 1):
            for name, command in commands.items():
                shutil.rmtree(f"{folder}/pretrained", ignore_errors=True)
                used = measured(command, until="step 1/")
                for line in used.lines:
                    if line.startswith(("Traced", "step 1/")):
                        print(line[:60], file=sys.stderr)
                turns[name].append(used)
    for name, (_, *counted) in turns.items():
        _, clock, processor, memory = zip(*counted, strict=True)
        goal = " / ".join(f"{g:g}" if g else "-" for g in GOALS[name])
        print(
            f"{name:28} goal {goal:>9}   {min(clock):6.2f} "
            f"{statistics.median(clock):6.2f} {max(clock):6.2f} s   "
            f"{min(processor):6.2f} s   {max(memory) / 1e6:6.0f} MB"
        )


def prepare(folder, spm_model_file):
    """Writes the models and the records."""
    from pretraining_run import write_records

    from albert_tf import AlbertConfig, weights
    from albert_tf.model import models
    from albert_tf.text import tokenization
    from albert_tf.weights import metadata

    config = AlbertConfig.named(MODEL)
    tokenizer = tokenization.SentencePieceTokenizer(spm_model_file)
    task = {"kind": "classification", "labels": ["no", "yes"], "texts": 1}
    metadata.write_task(folder / "run", tokenizer, {**task, "max_seq_length": 128})
    weights.save(models.AlbertClassifier(config, 2), folder / "run", "tf1")
    (folder / "config.json").write_text(config.to_json_string())
    write_records(folder, MODEL, 128)
    for format in ("onnx", "litert"):
        for precision in ("float32", "int8"):
            output = folder / f"{format}-{precision}"
            convert(folder / "run", output, format, precision)


def commands_of(folder):
    """Returns the commands by the names of their goals."""
    answers = {
        "answer, ONNX folder": "onnx-float32",
        "answer, ONNX folder, int8": "onnx-int8",
        "answer, LiteRT folder": "litert-float32",
        "answer, LiteRT folder, int8": "litert-int8",
        "answer, run folder": "run",
    }
    script = [sys.executable, str(ROOT / "predict.py")]
    commands = {
        "import albert_tf": [sys.executable, "-c", "import albert_tf"],
        "predict.py --help": [*script, "--help"],
        **{
            name: [*script, f"--model={folder / model}", "A fine film."]
            for name, model in answers.items()
        },
        "first step, 8 x 128": [
            *(sys.executable, str(ROOT / "run_pretraining.py"), "--optimizer=adamw"),
            *(f"--albert_config_file={folder}/config.json", "--train_batch_size=8"),
            *(f"--input_file={folder}/train.tfrecord", "--num_train_steps=1"),
            *("--num_warmup_steps=0", f"--output_dir={folder}/pretrained"),
        ],
    }
    return {name: commands[name] for name in GOALS}


def convert(run, output, format, precision):
    """Converts a run's folder, as the script does."""
    arguments = [f"--input={run}", f"--output={output}", f"--output_format={format}"]
    command = [sys.executable, str(ROOT / "convert_checkpoint.py"), *arguments]
    subprocess.run([*command, f"--precision={precision}"], check=True)


if __name__ == "__main__":
    main()
