"""Times whole pretraining runs: input, steps, log lines and checkpoints.

This package's command and Hugging Face's Trainer run alternately. Both have the same
model, AdamW, and the same records of random tokens. Both write a log line and a
checkpoint after each tenth of the steps. The time before the second log line is not
counted, because it includes compilation.

    python benchmarks/pretraining_run.py
    python benchmarks/pretraining_run.py --shapes=2x512 --precision=bfloat16 --rounds=5
    python benchmarks/pretraining_run.py --model=small.json --steps=400
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path

import common

ROWS = 512  # of the records


def write_records(folder, config, length):
    """Writes records of random tokens, without the file that describes records."""
    from albert_tf.data import records

    batch = common.random_batch(config, ROWS, length)
    spec = {
        name: records.Feature("float" if "weights" in name else "int", rows.shape[1])
        for name, rows in batch.items()
    }
    with records.create(str(folder / "train.tfrecord")) as writer:
        writer.write(records.encode(spec, batch))


def build_command(folder, rows, *flags):
    """Returns a command that pretrains on the records and the config in a folder.

    `write_records` and `common.write_config` write them.
    """
    return [
        *(sys.executable, common.ROOT / "run_pretraining.py", "--optimizer=adamw"),
        *(f"--input_file={folder}/train.tfrecord", f"--train_batch_size={rows}"),
        *(f"--albert_config_file={folder}/config.json", "--num_warmup_steps=0"),
        *(f"--output_dir={folder}/run", *flags),
    ]


def albert_tf(args, rows, length):
    """Returns the seconds per example of this package's command."""
    interval = max(1, args.steps // 10)
    flags = [
        *(f"--num_train_steps={args.steps}", f"--precision={args.precision}"),
        *(f"--log_steps={interval}", f"--save_checkpoints_steps={interval}"),
    ]
    common.run_command(build_command(args.folder, rows, *flags))
    seconds = common.read_seconds_per_row(args.folder / "run")
    shutil.rmtree(args.folder / "run")
    return seconds


def huggingface(args, rows, length):
    """Returns the seconds per example of the Trainer, with its data in memory."""
    import torch
    import transformers

    batch = common.random_batch(common.read_config(args.folder), ROWS, length)
    columns = {k: torch.tensor(v) for k, v in common.huggingface_columns(batch).items()}
    data = [{name: column[i] for name, column in columns.items()} for i in range(ROWS)]
    interval, times = max(1, args.steps // 10), []

    class Callback(transformers.TrainerCallback):
        def on_log(self, args, state, control, **kwargs):
            times.append((state.global_step, time.perf_counter()))

    arguments = transformers.TrainingArguments(
        output_dir=f"{args.folder}/trainer",
        per_device_train_batch_size=rows,
        learning_rate=1e-4,
        weight_decay=0.01,
        max_steps=args.steps,
        bf16=args.precision == "bfloat16",
        use_cpu=True,
        save_steps=interval,
        save_total_limit=5,
        logging_steps=interval,
        report_to=[],
        disable_tqdm=True,
    )
    transformers.Trainer(
        model=common.huggingface_model(args.folder, "AlbertForPreTraining"),
        args=arguments,
        train_dataset=data,
        callbacks=[Callback()],
    ).train()
    # The Trainer logs once more after the run.
    (first_step, begin), (last_step, end) = times[1], times[-2]
    shutil.rmtree(args.folder / "trainer")
    return (end - begin) / (last_step - first_step) / rows


def main():
    """Runs the programs alternately for each shape, and prints their speeds."""
    parser = common.make_parser(__doc__)
    parser.add_argument("--model", default="albert_base_v2", help="a name, or a file")
    parser.add_argument("--shapes", default="8x128,32x128", help="batch x length")
    parser.add_argument("--precision", default="float32", choices=common.POLICIES)
    parser.add_argument("--steps", type=int, default=40, help="in each turn")
    args = parser.parse_args()
    for shape in args.shapes.split(","):
        rows, length = map(int, shape.split("x"))
        if args.program:
            print(globals()[args.program](args, rows, length))
            continue
        with tempfile.TemporaryDirectory() as name:
            config = common.write_config(Path(name), args.model)
            write_records(Path(name), config, length)
            programs, flag = ("albert_tf", "huggingface"), f"--shapes={shape}"
            results = common.run_in_turns(args, programs, Path(name), flag)
        print(f"{args.model}, {shape}, {args.precision}")
        for program, (seconds,) in results.items():
            print(
                f"  {program:12} {length / seconds:6.0f} tokens/s   albert_tf is "
                f"{seconds / results['albert_tf'][0]:4.2f} times as fast"
            )


if __name__ == "__main__":
    main()
