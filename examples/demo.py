"""Pretrains a small ALBERT on this machine, and shows the result: `make demo`.

Each stage runs one of the scripts of this repository, so this file is also an example
of their use. The text is the documentation of Python and of installed packages, see
`collect_text.py`. Nothing is downloaded.

All results are in the folder demo/. A stage with an existing result is skipped, so a
second call resumes a stopped call. A call after a finished one trains for more steps.

    python examples/demo.py
    DEMO_MINUTES=60 python examples/demo.py
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path("demo")
TEXT = FOLDER / "text.txt"
HELD_OUT = FOLDER / "held_out.txt"
VOCABULARY = FOLDER / "vocabulary.model"
TRAIN = FOLDER / "train.tfrecord"
EVAL = FOLDER / "held_out.tfrecord"
CONFIG = FOLDER / "albert_config.json"
MODEL = FOLDER / "model"
# Contains the number of training steps of the finished calls.
FINISHED = FOLDER / "finished_steps"

VOCAB_SIZE = 2000
LENGTH = 32  # maximum number of tokens of an input
# The speed of training on two slow cores, and the time of the stages that do not train.
STEPS_PER_MINUTE = 1200
OTHER_MINUTES = 1.0


def main() -> None:
    """Runs the stages and shows the result."""
    begin = time.monotonic()
    # These signals raise KeyboardInterrupt, as Ctrl-C does.
    for stop in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(stop, signal.default_int_handler)
    # TensorFlow's log lines would hide the output. The scripts also set this variable.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    FOLDER.mkdir(exist_ok=True)
    finished_steps = int(FINISHED.read_text()) if FINISHED.exists() else 0
    steps = finished_steps + count_steps(os.environ.get("DEMO_MINUTES", "6"))
    try:
        prepare()
        train(steps)
    except subprocess.CalledProcessError as error:
        sys.exit(f"\n{Path(error.cmd[1]).name} failed; its message is above.")
    except KeyboardInterrupt:
        sys.exit("\nStopped. The next `make demo` resumes from here.")
    print_title(f"5. The model after {steps:,} steps")
    import demo_report  # here, because TensorFlow takes seconds to import

    # predict.py looks for the vocabulary in the model's folder.
    shutil.copy(VOCABULARY, MODEL)
    demo_report.show(MODEL, HELD_OUT, LENGTH)
    FINISHED.write_text(str(steps))
    python = os.path.relpath(sys.executable)
    print(
        f"\nTry it with your own sentence:\n  {python} predict.py --model={MODEL} "
        f"--task=fill_mask 'The [MASK] of the list.'"
    )
    print(
        f"\nThe demo took {(time.monotonic() - begin) / 60:.1f} minutes. `make demo` "
        f"trains this model for the same number\nof steps again, and "
        f"`DEMO_MINUTES=60 make demo` for about an hour. `rm -r {FOLDER}` starts over."
    )


def count_steps(minutes: str) -> int:
    """Returns the number of steps for a time.

    The number depends only on `minutes`, not on a clock, so all runs are equal.
    """
    try:
        return max(20, round(STEPS_PER_MINUTE * (float(minutes) - OTHER_MINUTES)))
    except (ValueError, OverflowError):
        sys.exit(f"DEMO_MINUTES={minutes}: expected a number of minutes")


def prepare() -> None:
    """Makes the text, the vocabulary and the records."""
    print_title("1. Text: the documentation of Python and of installed packages")
    files = [f"--output_file={TEXT}", f"--held_out_file={HELD_OUT}"]
    run(TEXT, "examples/collect_text.py", *files)
    print_title("2. Vocabulary: SentencePiece, as released")
    run(
        VOCABULARY,
        "train_sentencepiece.py",
        f"--input_file={TEXT}",
        f"--model_prefix={VOCABULARY.with_suffix('')}",
        f"--vocab_size={VOCAB_SIZE}",
    )
    print_title("3. Records: pairs of segments, half of them swapped, words masked")
    for text, records, copies in ((TEXT, TRAIN, 10), (HELD_OUT, EVAL, 2)):
        run(
            Path(f"{records}.json"),
            "create_pretraining_data.py",
            f"--input_file={text}",
            f"--output_file={records}",
            f"--spm_model_file={VOCABULARY}",
            f"--max_seq_length={LENGTH}",
            f"--dupe_factor={copies}",
            # Single words: spans of up to three are too hard for a few minutes.
            "--ngram=1",
        )


def train(steps: int) -> None:
    """Pretrains up to a number of steps; resumes from a checkpoint if there is one."""
    from albert_tf import AlbertConfig

    config = AlbertConfig(
        vocab_size=VOCAB_SIZE,
        embedding_size=128,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=LENGTH,
        initializer_range=0.05,
    )
    CONFIG.write_text(config.to_json_string())
    print_title(f"4. Pretraining to step {steps:,}")
    run(
        None,
        "run_pretraining.py",
        f"--albert_config_file={CONFIG}",
        f"--input_file={TRAIN}",
        f"--eval_input_file={EVAL}",
        f"--output_dir={MODEL}",
        f"--max_seq_length={LENGTH}",
        "--train_batch_size=32",
        "--optimizer=adamw",
        "--learning_rate=1e-3",
        f"--num_train_steps={steps}",
        "--num_warmup_steps=200",
        # Otherwise the model spends the first minutes on learning frequent words.
        "--output_bias_from_data",
        "--do_eval",
        "--eval_every_steps=1000",
        "--save_checkpoints_steps=500",
        "--log_steps=250",
        "--seed=1",
    )


def run(result: Path | None, script: str, *flags: str) -> None:
    """Runs a script of this repository.

    Args:
        result: a file that the script writes; if it exists, the script is not run.
        script: the path of the script in the repository.
        *flags: the script's flags.

    Raises:
        subprocess.CalledProcessError: the script failed.
    """
    if result is not None and result.exists():
        print(f"{result} exists.")
        return
    command = [sys.executable, str(ROOT / script), *flags]
    # The script has its own process group, so Ctrl-C reaches only this program, which
    # then kills the script. The files of a killed script remain usable.
    with subprocess.Popen(command, process_group=0) as process:
        try:
            status = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if status:
        raise subprocess.CalledProcessError(status, command)


def print_title(text: str) -> None:
    """Prints the title of a stage."""
    print(f"\n=== {text}", flush=True)


if __name__ == "__main__":
    main()
