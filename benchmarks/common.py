"""Functions that the benchmarks share.

A benchmark that compares programs runs them alternately. For each run, `run_in_turns`
starts the benchmark's own file in a new process. The hidden flag --program names the
program that this process runs, and --folder the folder with its data.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
GIB = 1 << 30
# {precision: its name in Keras}.
POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
# {name of an input in Hugging Face: its name in this package}.
INPUTS = {
    "input_ids": "input_ids",
    "attention_mask": "input_mask",
    "token_type_ids": "segment_ids",
}


class Usage(NamedTuple):
    """The output of a command, and what the command used."""

    lines: list[str]
    seconds: float
    processor: float  # seconds of all cores
    memory: int  # peak in bytes


def make_parser(text: str | None) -> argparse.ArgumentParser:
    """Returns a parser of the common flags; --help prints the first line of `text`."""
    parser = argparse.ArgumentParser(description=(text or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="turns of each program")
    parser.add_argument(
        "--peer_python",
        default=sys.executable,
        help="the Python that has transformers and torch; by default this one",
    )
    parser.add_argument("--program", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser


def run_command(command: Sequence[Any]) -> Usage:
    """Runs a command to its end; exits if it fails."""
    environment = {
        **{"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "1"},
        **os.environ,
        "PYTHONPATH": str(ROOT),
    }
    begin = time.perf_counter()
    process = subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )
    assert process.stdout
    with process.stdout as output:
        lines = [line.rstrip() for line in output]
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {' '.join(lines[-1:])}")
    kibibytes = used.ru_maxrss  # on Linux
    return Usage(lines, seconds, used.ru_utime + used.ru_stime, kibibytes << 10)


def run_in_turns(
    args: argparse.Namespace, programs: Sequence[str], folder: Path, *flags: str
) -> dict[str, list[float]]:
    """Runs each program of a benchmark once per round, each time in a new process.

    If the name of a program begins with "huggingface", its process is `--peer_python`.
    The last line of the output must be numbers. A program that fails is left out.

    Args:
        args: the flags of the benchmark.
        programs: the names of the programs.
        folder: the folder with the data.
        *flags: flags that replace the same flags of this process.

    Returns:
        {program: the median of each number in the last line}.
    """
    results: dict[str, list[list[float]]] = {name: [] for name in programs}
    for _ in range(args.rounds):
        for name in list(results):
            is_peer = name.startswith("huggingface")
            python = args.peer_python if is_peer else sys.executable
            program_flags = [f"--program={name}", f"--folder={folder}"]
            try:
                usage = run_command([python, *sys.argv, *flags, *program_flags])
            except SystemExit as error:
                print(f"  {name} is left out: {str(error).splitlines()[-1][-200:]}")
                del results[name]
                continue
            results[name].append(list(map(float, usage.lines[-1].split())))
    return {
        name: [statistics.median(column) for column in zip(*rows, strict=True)]
        for name, rows in results.items()
    }


def time_calls(call: Callable[[], Any], count: int) -> float:
    """Returns the median seconds of `count` calls, after two calls without timing."""
    seconds = []
    for i in range(count + 2):
        begin = time.perf_counter()
        call()
        if i >= 2:
            seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def random_batch(config: Mapping[str, Any], rows: int, length: int):
    """Returns a batch of random tokens without padding, with 15 % masked.

    Args:
        config: the model's config as a dict.
        rows: number of sequences.
        length: number of tokens per sequence.
    """
    import numpy as np

    vocab_size, num_masked = config["vocab_size"], round(0.15 * length)
    rng = np.random.default_rng(0)
    positions = [rng.choice(length, num_masked, replace=False) for _ in range(rows)]
    return {
        "input_ids": rng.integers(5, vocab_size, (rows, length), dtype=np.int32),
        "input_mask": np.ones((rows, length), np.int32),
        "segment_ids": np.repeat([[0, 1]] * rows, length // 2, 1).astype("i4"),
        "masked_lm_positions": np.sort(positions).astype(np.int32),
        "masked_lm_ids": rng.integers(5, vocab_size, (rows, num_masked), dtype="i4"),
        "masked_lm_weights": np.ones((rows, num_masked), np.float32),
        "next_sentence_labels": rng.integers(0, 2, (rows, 1), dtype=np.int32),
    }


def write_config(folder: Path, model: str | Mapping[str, Any]) -> dict[str, Any]:
    """Writes the config.json of a model, without dropout; returns its values."""
    from albert_tf import AlbertConfig

    values = AlbertConfig.find(model).to_dict() if isinstance(model, str) else {**model}
    values |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(values))
    return values


def read_config(folder: Path) -> dict[str, Any]:
    """Returns the values that `write_config` wrote."""
    return json.loads((folder / "config.json").read_text())


def huggingface_model(folder: Path, name: str, **changes: Any) -> Any:
    """Returns a Hugging Face model of the class `name`, with the config in a folder."""
    import transformers

    values = read_config(folder) | {"hidden_act": "gelu_new"} | changes
    values["classifier_dropout_prob"] = 0.0
    return getattr(transformers, name)(transformers.AlbertConfig(**values))


def huggingface_columns(batch):
    """Returns a batch with Hugging Face's names, as int64 arrays."""
    import numpy as np

    # -100 is the label of a token that the loss ignores.
    labels = np.full(batch["input_ids"].shape, -100)
    np.put_along_axis(labels, batch["masked_lm_positions"], batch["masked_lm_ids"], 1)
    columns = {name: batch[key] for name, key in INPUTS.items()}
    columns["labels"] = labels
    columns["sentence_order_label"] = batch["next_sentence_labels"][:, 0]
    return {name: column.astype(np.int64) for name, column in columns.items()}


def read_seconds_per_row(run: Path) -> float:
    """Returns the mean seconds per example in a run's log, including checkpoints.

    The first two lines are left out, because the first includes compilation.
    """
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    training = [line for line in lines if line["kind"] == "train"]
    return statistics.mean(1 / line["sequences_per_second"] for line in training[2:])
