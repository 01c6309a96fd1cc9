r"""Times whole pretraining runs: reading records, steps, lines, checkpoints.

Three programs take turns, each with the same model, AdamW, and the same records of
random tokens: this package's run, this package's bare step (one batch over and over,
see pretraining_step.py), and Hugging Face's Trainer where it is installed. In each turn
a program makes some steps, and the two runs write a checkpoint.

    python benchmarks/pretraining_run.py
    python benchmarks/pretraining_run.py --shapes=2x512 --precision=bfloat16 --rounds=5
    python benchmarks/pretraining_run.py --model=small.json --shapes=16x128 \
        --tokens=204800
"""

import argparse
import importlib.util
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from pretraining_step import (
    MODEL,
    POLICIES,
    albert_tf_step,
    huggingface_columns,
    huggingface_model,
    random_batch,
)
from turns import take_turns

ROOT = Path(__file__).parents[1]
ROWS = 512


def main():
    """Makes records and lets the programs take turns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=MODEL, help="its name, or a config file")
    parser.add_argument("--shapes", default="8x128,32x128", help="batch x length")
    parser.add_argument("--precision", default="float32", choices=POLICIES)
    parser.add_argument("--tokens", type=int, default=20480, help="in each turn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    for shape in args.shapes.split(","):
        batch, length = map(int, shape.split("x"))
        steps = max(1, args.tokens // (batch * length))
        if args.serve:
            serve = {"run": serve_run, "step": serve_step, "trainer": serve_trainer}
            serve[args.serve](args, batch, length, steps)
        else:
            compare(args, shape, length, steps * batch * length)


def compare(args, shape, length, tokens):
    """Lets the programs take turns with batches of one shape; prints their speeds."""
    programs = ["run", "step"]
    if importlib.util.find_spec("transformers"):
        programs.append("trainer")
    with tempfile.TemporaryDirectory() as folder:
        write_records(Path(folder), args.model, length)
        command = [sys.executable, __file__, *sys.argv[1:], "--folder", folder]
        command += ["--shapes", shape, "--serve"]
        commands = {name: [*command, name] for name in programs}
        seconds = take_turns(commands, args.rounds)
    names = {
        "run": "albert_tf, whole run",
        "step": "albert_tf, bare step",
        "trainer": "Hugging Face Trainer",
    }
    run = statistics.median(seconds["run"])
    print(f"{args.model}, {shape}, {args.precision}")
    for name, times in seconds.items():
        speed = tokens / statistics.median(times)
        ratio = statistics.median(times) / run
        print(
            f"  {names[name]}  {speed:6.0f} tokens/s   the whole run is {ratio:4.2f} "
            f"times as fast"
        )


def write_records(folder, model, length, picks=0.15):
    """Writes records of random tokens, and nothing about them."""
    from albert_tf.data import records

    batch = random_batch(ROWS, length, model, picks)
    batch["next_sentence_labels"] = batch["next_sentence_labels"][:, None]
    spec = {
        name: records.Feature("float" if "weights" in name else "int", rows.shape[1])
        for name, rows in batch.items()
    }
    with records.create(str(folder / "train.tfrecord")) as writer:
        writer.write(records.encode(spec, batch))


def command_of(records, output_dir, model, rows, *flags):
    """Returns the whole command, on what `write_records` has written."""
    return [
        *(sys.executable, str(ROOT / "run_pretraining.py"), *flags),
        *(f"--albert_config_file={model}", "--optimizer=adamw"),
        *(f"--input_file={records}/train.tfrecord", f"--train_batch_size={rows}"),
        *(f"--output_dir={output_dir}", "--num_warmup_steps=0"),
    ]


def speeds_of(output_dir):
    """Returns the sequences a second of each line of training that a run has logged."""
    lines = (Path(output_dir) / "metrics.jsonl").read_text().splitlines()
    return [
        line["sequences_per_second"]
        for line in map(json.loads, lines)
        if line["kind"] == "train"
    ]


class Turns:
    """Called at the end of each turn: says how long it took, waits for the next."""

    def __init__(self):
        self._begin = None

    def __call__(self):
        """Returns whether there is a next turn; the first one is not timed."""
        if self._begin is None:
            print("ready", flush=True)
        else:
            print(time.perf_counter() - self._begin, flush=True)
        goes_on = bool(sys.stdin.readline())
        self._begin = time.perf_counter()
        return goes_on


def serve_step(args, batch, length, steps):
    """The bare step, without input, lines or checkpoints."""
    rows, wait = random_batch(batch, length, args.model), Turns()
    step = albert_tf_step(rows, args.precision, args.model)
    step(), step()
    while wait():
        for _ in range(steps):
            step()


def serve_run(args, batch, length, steps):
    """This package's run, which waits for the next turn after each checkpoint."""
    from albert_tf.tasks.pretraining import Pretraining, PretrainingSettings
    from albert_tf.train import checkpoints, devices, loop

    config = loop.TrainingSettings(
        output_dir=f"{args.folder}/run",
        train_batch_size=batch,
        optimizer="adamw",
        learning_rate=1e-4,
        precision=args.precision,
        num_train_steps=10**6,
        num_warmup_steps=10**4,
        save_checkpoints_steps=steps,
        log_steps=10,
    )
    strategy = loop.prepare(config, devices.DistributionSettings())
    task = Pretraining(
        PretrainingSettings(
            albert_config_file=args.model,
            input_file=(f"{args.folder}/train.tfrecord",),
        )
    )
    save, wait = checkpoints.Checkpoints.save, Turns()

    def save_and_wait(self, examples_seen):
        save(self, examples_seen)
        if not wait():
            raise SystemExit

    setattr(checkpoints.Checkpoints, "save", save_and_wait)  # noqa: B010 (for mypy)
    loop.run(task, config, strategy)


def serve_trainer(args, batch, length, steps):
    """Hugging Face's Trainer, its data in memory as it likes them."""
    import torch
    import transformers

    columns = huggingface_columns(random_batch(ROWS, length, args.model))
    data = [
        {name: torch.tensor(column[i]).long() for name, column in columns.items()}
        for i in range(ROWS)
    ]
    wait = Turns()

    class Callback(transformers.TrainerCallback):
        def on_save(self, args, state, control, **kwargs):
            control.should_training_stop = not wait()

    arguments = transformers.TrainingArguments(
        output_dir=f"{args.folder}/trainer",
        per_device_train_batch_size=batch,
        learning_rate=1e-4,
        weight_decay=0.01,
        warmup_steps=10**4,
        max_steps=10**6,
        bf16=args.precision == "bfloat16",
        use_cpu=True,
        save_steps=steps,
        save_total_limit=5,
        logging_steps=10,
        report_to=[],
        disable_tqdm=True,
    )
    transformers.Trainer(
        model=huggingface_model(args.model),
        args=arguments,
        train_dataset=data,
        callbacks=[Callback()],
    ).train()


if __name__ == "__main__":
    main()
