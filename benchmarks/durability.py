r"""Times the generator and pretraining with and without what keeps their files whole.

Both programs run whole commands in turns, in a process each. The one without waits for
no disk, locks nothing, and does not read its checkpoints back (docs/reliability.md).

    python benchmarks/durability.py --input_file=text.txt --spm_model_file=vocab.model
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from turns import Used, measured

MODEL = {
    "vocab_size": 30000,
    "embedding_size": 128,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 512,
    "max_position_embeddings": 512,
}
GENERATOR = ["--max_seq_length=512", "--dupe_factor=20", "--num_workers=1"]
PRETRAINING = ["--train_batch_size=4", "--optimizer=adamw", "--learning_rate=1e-3"]
PROGRAMS = ("with", "without")


def main():
    """Lets the two programs take turns, and prints the ratios of their times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input_file", required=True, help="text to make records of")
    parser.add_argument("--spm_model_file", required=True)
    parser.add_argument("--steps", type=int, default=600, help="of pretraining")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(*args.serve)
        return
    text = [
        f"--input_file={args.input_file}",
        f"--spm_model_file={args.spm_model_file}",
    ]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "config.json").write_text(json.dumps(MODEL))
        compare("generator", folder, args.rounds, ["corpus", *text, *GENERATOR])
        records = folder / "generator-kept" / "train.tfrecord"
        run = ["pretrain", f"--albert_config_file={folder / 'config.json'}"]
        run += [f"--input_file={records}", f"--num_train_steps={args.steps}"]
        compare("pretraining", folder, args.rounds, [*run, *PRETRAINING])


def compare(name, folder, rounds, command):
    """Runs a command in turns; a first round is not counted, and its output kept."""
    output = "--output_dir={}"
    if command[0] == "corpus":
        output = "--output_file={}/train.tfrecord"
    times: dict[str, list[Used]] = {program: [] for program in PROGRAMS}
    for number in range(rounds + 1):
        for program in PROGRAMS[:: 1 if number % 2 else -1]:
            place = folder / f"{name}-{program if number else 'kept'}"
            given = [program, *command, output.format(place)]
            os.sync()  # so that no program waits for what another has written
            used = measured(
                [sys.executable, __file__, *sys.argv[1:], "--serve", *given]
            )
            if number:
                times[program].append(used)
    for kind in ("clock", "processor"):
        seconds = {
            program: [getattr(used, kind) for used in of_one]
            for program, of_one in times.items()
        }
        ratios = [
            without / with_all
            for with_all, without in zip(*seconds.values(), strict=True)
        ]
        medians = {of: statistics.median(each) for of, each in seconds.items()}
        print(
            f"{name}, {kind}: {medians['with']:.1f} s with, "
            f"{medians['without']:.1f} s without; speed with / without "
            f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})",
            flush=True,
        )


def serve(program, name, *given):
    """Removes what a run before has written, and runs a command of the package."""
    import fcntl
    import shutil

    from albert_tf import commands
    from albert_tf.data import files, imports

    place = Path(given[-1].partition("=")[2])
    shutil.rmtree(place.parent if name == "corpus" else place, ignore_errors=True)
    if program == "without":

        def nothing(*args, **kwargs):
            """Stands for a flush, a lock, a hint, and a checkpoint without damage."""

        replaced = [
            *((os, "fsync"), (os, "posix_fadvise"), (fcntl, "flock")),
            # Without locks it would take its own files for those of the dead.
            (files, "_remove_leftovers"),
        ]
        if name == "pretrain":
            imports.leave_out()
            from albert_tf.weights import writing

            replaced.append((writing, "damage"))
        for module, each in replaced:
            setattr(module, each, nothing)
    commands.run(name, [name, *given])


if __name__ == "__main__":
    main()
