r"""Measures how many tokens a second the input alone gives to training, on one core.

Each row is the command as a user calls it, up to its first step; in place of steps the
batches are read and counted for some seconds. Tokens are those of the batches, with and
without padding. The last column is how many accelerators of so many tokens a second
(--accelerator; 450,000 is ALBERT-base on an H100, on paper) a host of 16 such cores
would feed, if its cores do not slow each other down.

    python benchmarks/input_rates.py --input_file=text.txt \
        --spm_model_file=30k-clean.model --table=reviews.csv --questions=dev-v2.0.json
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOST = 16
MODEL = {
    "vocab_size": 30000,
    "embedding_size": 8,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "intermediate_size": 8,
}


def main():
    """Prints a line for each kind of input."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input_file", required=True, help="text to pretrain on")
    parser.add_argument("--spm_model_file", required=True, help="of 30,000 pieces")
    parser.add_argument("--table", required=True, help="CSV with text and label")
    parser.add_argument("--questions", required=True, help="SQuAD's JSON")
    parser.add_argument("--seconds", type=float, default=10, help="of each input")
    parser.add_argument("--accelerator", type=float, default=450_000)
    if sys.argv[1:2] == ["--serve"]:
        serve(float(sys.argv[2]), *sys.argv[3:])
        return
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "config.json").write_text(json.dumps(MODEL))
        for name, share in (("masked", 0.15), ("plain", 0)):
            subprocess.run(
                [
                    *(sys.executable, str(ROOT / "create_pretraining_data.py")),
                    *(f"--input_file={args.input_file}", "--dupe_factor=1"),
                    f"--output_file={folder}/{name}/train.tfrecord@8",
                    f"--spm_model_file={args.spm_model_file}",
                    f"--masked_lm_prob={share}",
                ],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        for name, command in commands_of(folder, args).items():
            measured = subprocess.run(
                [sys.executable, __file__, "--serve", str(args.seconds), *command],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
            every, real = map(float, measured.stdout.splitlines()[-1].split())
            fed = HOST * every / args.accelerator
            print(
                f"{name:38}{every:12,.0f} tokens/s a core, {real:12,.0f} without "
                f"padding {fed:8.1f} accelerators",
                flush=True,
            )


def commands_of(folder, args):
    """Returns a command of training for each kind of input."""
    model = f"--albert_config_file={folder}/config.json"
    pretrain = ["pretrain", model, "--train_batch_size=256"]
    tune = [model, f"--spm_model_file={args.spm_model_file}", "--do_train"]
    tune += ["--train_batch_size=256"]
    table = ["classify", "--task_name=custom", f"--train_file={args.table}"]
    commands = {
        "records, 512": [*pretrain, f"--input_file={folder}/masked/train.tfrecord*"],
        "records, 512, masked while training": [
            *(*pretrain, f"--input_file={folder}/plain/train.tfrecord*"),
            "--dynamic_masking",
        ],
        "a table, 128 at most": [*table, *tune, "--max_seq_length=128"],
        "windows of SQuAD, 384": [
            *("squad", f"--train_file={args.questions}", *tune),
        ],
    }
    return {
        name: [*command, f"--output_dir={folder}/{number}"]
        for number, (name, command) in enumerate(commands.items())
    }


def serve(seconds, name, *given):
    """Runs a command of the package on one core, and reads in place of training."""
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    from albert_tf import commands
    from albert_tf.data import imports

    imports.leave_out()
    from albert_tf.train import step

    def read(self, num_steps):
        batches = iter(self._training())
        next(batches)
        every = real = 0
        begin = time.perf_counter()
        while (passed := time.perf_counter() - begin) < seconds:
            mask = next(batches)["input_mask"].numpy()
            every, real = every + mask.size, real + int(mask.sum())
        print(every / passed, real / passed, flush=True)
        os._exit(0)  # nothing has been trained that could be saved

    setattr(step.Trainer, "train", read)  # noqa: B010 (for mypy)
    commands.run(name, [name, *given])


if __name__ == "__main__":
    main()
