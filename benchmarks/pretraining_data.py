"""Measures speed, scaling and memory of the pretraining data generator.

    python benchmarks/pretraining_data.py \
        --input_file=corpus.txt --spm_model_file=30k-clean.model

Each row of the table is one run, in a process of its own. Flags that are not in the
table have their defaults, such as length 512. Tokens are counted in the records, with
[CLS] and [SEP] and without padding. Memory is the peak of the largest process. Run the
benchmark on an idle machine with 150 bytes of free disk for each byte of text.
"""

import json
import sys
import tempfile
from pathlib import Path

from common import GIB, ROOT, make_parser, run_command


def main():
    """Runs the generator in several settings, and prints a table."""
    parser = make_parser(__doc__)
    parser.add_argument("--input_file", required=True, help="one sentence per line")
    parser.add_argument("--spm_model_file", required=True)
    parser.add_argument("--megabytes", default="10,20,40", help="of the text to use")
    parser.add_argument("--dupe_factors", default="1,10,40")
    parser.add_argument("--workers", type=int, default=2, help="to compare with one")
    args = parser.parse_args()
    sizes, dupes = args.megabytes.split(","), args.dupe_factors.split(",")
    # Each case is the megabytes of text, the dupe factor and the number of workers.
    cases = [(size, dupes[-1], 1) for size in sizes]
    cases += [(sizes[-1], factor, 1) for factor in dupes]
    cases += [(sizes[-1], dupes[-1], args.workers)]
    print("   MB  dupes  workers  seconds    tokens/s  MiB")
    for size, factor, workers in dict.fromkeys(cases):
        with tempfile.TemporaryDirectory() as name:
            text = Path(name) / "text.txt"
            with open(args.input_file, "rb") as file:
                text.write_bytes(file.read(int(float(size) * 1e6)))
            usage = run_command(
                [
                    *(sys.executable, ROOT / "create_pretraining_data.py"),
                    *(f"--input_file={text}", f"--output_file={name}/x.tfrecord"),
                    f"--spm_model_file={args.spm_model_file}",
                    *(f"--dupe_factor={factor}", f"--num_workers={workers}"),
                ]
            )
            description = json.loads((Path(name) / "x.tfrecord.json").read_text())
        rate = description["statistics"]["instance_tokens"] / usage.seconds
        print(
            f"{size:>5}  {factor:>5}  {workers:>7}  {usage.seconds:7.1f}  "
            f"{rate:10,.0f}  {usage.memory / GIB * 1024:3.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
