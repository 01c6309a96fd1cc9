"""Pretrains a small ALBERT on this machine and shows what it learned: `make demo`.

Every stage is one of the package's own scripts, so that this file is also an example
of how to use them. Nothing is downloaded: the text is the documentation of Python and
of what is installed (`collect_text.py`). All that is made lies in the folder demo/,
and a stage whose result is there is passed over: a run that was stopped goes on where
it stood, and a further call trains for as many steps again.

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
# How many steps earlier calls have trained for and shown.
FINISHED = FOLDER / "finished_steps"

VOCAB_SIZE = 2000
LENGTH = 32
# What two slow cores manage beside the other stages, which take about a minute.
STEPS_A_MINUTE = 1200
OTHER_MINUTES = 1.0


def main() -> None:
    """Runs the stages and shows the result."""
    begin = time.monotonic()
    for stop in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(stop, signal.default_int_handler)
    # As the scripts do by themselves: TensorFlow's own lines would hide the rest.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    FOLDER.mkdir(exist_ok=True)
    before = int(FINISHED.read_text()) if FINISHED.exists() else 0
    steps = before + steps_for(os.environ.get("DEMO_MINUTES", "6"))
    try:
        prepare()
        train(steps)
    except subprocess.CalledProcessError as error:
        sys.exit(f"\n{Path(error.cmd[1]).name} failed; what it says stands above.")
    except KeyboardInterrupt:
        sys.exit("\nStopped. The next `make demo` goes on from here.")
    title(f"5. What it learned in {steps:,} steps")
    import demo_report  # TensorFlow takes seconds to load, so only now

    # With it the folder is all that predict.py needs.
    shutil.copy(VOCABULARY, MODEL)
    demo_report.show(MODEL, HELD_OUT, LENGTH)
    FINISHED.write_text(str(steps))
    python = os.path.relpath(sys.executable)
    print(
        f"\nTry it on a sentence of your own:\n  {python} predict.py --model={MODEL} "
        f"--task=fill_mask 'The [MASK] of the list.'"
    )
    print(
        f"\nThat took {(time.monotonic() - begin) / 60:.1f} minutes. `make demo` goes "
        f"on from here for as long again,\n`DEMO_MINUTES=60 make demo` for an hour; "
        f"`rm -r {FOLDER}` begins anew."
    )


def steps_for(minutes: str) -> int:
    """Returns how many steps to train: never timed, so that every run is the same."""
    try:
        return max(20, round(STEPS_A_MINUTE * (float(minutes) - OTHER_MINUTES)))
    except (ValueError, OverflowError):
        sys.exit(f"DEMO_MINUTES={minutes}: expected a number of minutes")


def prepare() -> None:
    """Makes text, vocabulary and records."""
    title("1. Text: the documentation of Python and of what is installed")
    files = [f"--output_file={TEXT}", f"--held_out_file={HELD_OUT}"]
    run(TEXT, "examples/collect_text.py", *files)
    title("2. Vocabulary: SentencePiece, as released")
    run(
        VOCABULARY,
        "train_sentencepiece.py",
        f"--input_file={TEXT}",
        f"--model_prefix={VOCABULARY.with_suffix('')}",
        f"--vocab_size={VOCAB_SIZE}",
    )
    title("3. Records: pairs of segments, half of them swapped, words masked")
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
    """Trains up to a number of steps, from the last checkpoint if there is one."""
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
    title(f"4. Pretraining to step {steps:,}")
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
        # Without it the first minutes go into learning which words are frequent.
        "--output_bias_from_data",
        "--do_eval",
        "--eval_every_steps=1000",
        "--save_checkpoints_steps=500",
        "--log_steps=250",
        "--seed=1",
    )


def run(result: Path | None, script: str, *flags: str) -> None:
    """Runs a script of this repository, unless its result is there.

    Raises:
        subprocess.CalledProcessError: the script failed.
    """
    if result is not None and result.exists():
        print(f"{result} is there.")
        return
    command = [sys.executable, str(ROOT / script), *flags]
    # In a group of its own, so that Ctrl-C reaches this program alone. Nothing that a
    # script writes is lost when it is killed.
    with subprocess.Popen(command, process_group=0) as script_run:
        try:
            status = script_run.wait()
        except BaseException:
            os.killpg(script_run.pid, signal.SIGKILL)
            raise
    if status:
        raise subprocess.CalledProcessError(status, command)


def title(text: str) -> None:
    """Prints a line that stands out."""
    print(f"\n=== {text}", flush=True)


if __name__ == "__main__":
    main()
