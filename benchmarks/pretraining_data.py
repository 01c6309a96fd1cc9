"""Measures the pretraining data generator: speed, scaling, memory.

    python benchmarks/pretraining_data.py \
        --input_file=corpus.txt --spm_model_file=30k-clean.model

Every run is a process of its own with the generator's default settings (length 512, 40
duplicates) unless the table says otherwise. Tokens are those of the records, [CLS] and
[SEP] counted, padding not. Memory is the peak of the largest process. Run it on a quiet
machine with 150 bytes of free disk for each byte of text.
"""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from albert_tf import flags
from albert_tf.errors import InputError

ROOT = Path(__file__).parents[1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What to measure."""

    input_file: str = flags.field("One plain text file, a sentence a line.")
    spm_model_file: str = flags.field("SentencePiece vocabulary (.model).")
    work_dir: str | None = flags.field("Where to put the files; removed again.", None)
    megabytes: tuple[str, ...] = flags.field(
        "Sizes of the input to compare, in MB.", ("10", "20", "40")
    )
    dupe_factors: tuple[str, ...] = flags.field(
        "Duplicates to compare.", ("1", "10", "40")
    )
    workers: int = flags.field("Processes to compare with one.", 2)


@dataclasses.dataclass(frozen=True)
class Result:
    """One run: seconds, tokens of the records, peak memory in MiB."""

    seconds: float
    tokens: int
    memory: int

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


def run(text_file: Path, settings: Settings, dupe_factor: str, workers: int) -> Result:
    """Runs the script once."""
    folder = text_file.parent / "records"
    command = [
        sys.executable,
        str(ROOT / "create_pretraining_data.py"),
        f"--input_file={text_file}",
        f"--output_file={folder}/x.tfrecord",
        f"--spm_model_file={settings.spm_model_file}",
        f"--dupe_factor={dupe_factor}",
        f"--num_workers={workers}",
    ]
    start = time.monotonic()
    process = subprocess.Popen(
        command,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - start
    if status:
        raise InputError(f"the run failed: {' '.join(command)}")
    description = json.loads((folder / "x.tfrecord.json").read_text())
    shutil.rmtree(folder)
    tokens = description["statistics"]["instance_tokens"]
    return Result(seconds, tokens, usage.ru_maxrss >> 10)


def cut(text_file: str, megabytes: str, folder: Path) -> Path:
    """Copies the beginning of a text."""
    path = folder / f"{megabytes}.txt"
    with open(text_file, "rb") as file:
        path.write_bytes(file.read(int(float(megabytes) * 1e6)))
    return path


def main() -> None:
    """Prints a table of runs."""
    settings = flags.read(Settings)
    folder = Path(tempfile.mkdtemp(dir=settings.work_dir))
    try:
        print("   MB  dupes  workers  seconds    tokens/s  MiB")
        sizes = {
            size: cut(settings.input_file, size, folder) for size in settings.megabytes
        }
        largest = settings.megabytes[-1]
        cases = [(size, "40", 1) for size in settings.megabytes]
        cases += [(largest, dupes, 1) for dupes in settings.dupe_factors]
        cases += [(largest, "40", settings.workers)]
        results = {}
        for case in dict.fromkeys(cases):
            size, dupes, workers = case
            results[case] = result = run(sizes[size], settings, dupes, workers)
            print(
                f"{size:>5}  {dupes:>5}  {workers:>7}  {result.seconds:7.1f}"
                f"  {result.rate:10,.0f}  {result.memory:3}",
                flush=True,
            )
        one, many = results[largest, "40", 1], results[largest, "40", settings.workers]
        print(
            f"{one.rate:,.0f} tokens/s on one core; {settings.workers} workers are "
            f"{one.seconds / many.seconds:.2f} times as fast"
        )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    flags.define(Settings)
    flags.run(main)
