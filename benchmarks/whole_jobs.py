r"""Times fine-tuning from the command to the end, beside Hugging Face's own scripts.

Each job is a command in a process of its own, on ALBERT-base with the same random
weights, the same rows, batches and epochs: start, conversion, training, evaluation,
writing. Texts are evaluated after each epoch and the best checkpoint is kept; questions
are answered at the end. Hugging Face's scripts are run_glue.py and run_qa.py of the
examples of transformers; everything that is not given here is as they have it, so every
input is padded to --max_seq_length.

    python benchmarks/whole_jobs.py --spm_model_file=30k-clean.model \
        --run_glue=examples/pytorch/text-classification/run_glue.py \
        --train=MRPC/train.csv --dev=MRPC/dev.csv --text_columns=sentence1,sentence2
    python benchmarks/whole_jobs.py --spm_model_file=30k-clean.model \
        --run_qa=examples/pytorch/question-answering/run_qa.py \
        --train=train-v2.0.json --dev=dev-v2.0.json --rows=500 --epochs=1
"""

import argparse
import csv
import itertools
import json
import math
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


def main():
    """Lets the two commands take turns, and prints what each has used."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spm_model_file", required=True, help="of 30,000 pieces")
    parser.add_argument("--run_glue", help="the path of Hugging Face's script")
    parser.add_argument("--run_qa", help="that of its script for SQuAD")
    parser.add_argument("--python", default=sys.executable, help="with which they run")
    parser.add_argument("--train", required=True, help="CSV, or SQuAD's JSON")
    parser.add_argument("--dev", required=True, help="CSV, or SQuAD's JSON")
    parser.add_argument("--text_columns", default="sentence", help="beside label")
    parser.add_argument("--rows", type=int, default=2000, help="of --train; 0: all")
    parser.add_argument("--dev_rows", type=int, default=0, help="of --dev; 0: all")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--prepare", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if bool(args.run_glue) == bool(args.run_qa):
        parser.error("expected one of --run_glue and --run_qa")
    if args.prepare:
        prepare(Path(args.prepare), args.spm_model_file)
        return
    threads = str(len(os.sched_getaffinity(0)))
    os.environ |= {"OMP_NUM_THREADS": threads, "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.environ["HF_HOME"] = str(folder / "cache")
        # A child counts the memory of its parent as its own, so this process has none.
        own = [sys.executable, *sys.argv, f"--prepare={folder}"]
        subprocess.run(own, check=True, stdout=sys.stderr)
        commands = (squad if args.run_qa else glue)(folder, args)
        turns: dict[str, list[Used]] = {name: [] for name in commands}
        for _ in range(args.rounds):
            for name, command in commands.items():
                shutil.rmtree(folder / "run", ignore_errors=True)
                shutil.rmtree(folder / "cache", ignore_errors=True)
                turns[name].append(measured(command))
                print(name, turns[name][-1].lines[-1:], file=sys.stderr)
    report(turns)


def report(turns):
    """Prints a line for each program, and how many times as long the second took."""
    for name, used in turns.items():
        _, clock, processor, memory = zip(*used, strict=True)
        print(
            f"{name:14}{min(clock):8.1f} {statistics.median(clock):8.1f} "
            f"{max(clock):8.1f} s (least, median, most)   processor "
            f"{min(processor):8.1f} s   {max(memory) / (1 << 30):5.2f} GiB"
        )
    ours, peer = turns.values()
    ratios = [theirs.clock / own.clock for own, theirs in zip(ours, peer, strict=True)]
    print(f"Hugging Face takes {statistics.median(ratios):.2f} times as long")


def prepare(folder, spm_model_file):
    """Writes ALBERT-base as Hugging Face has it, which this package reads, too."""
    from albert_tf import AlbertConfig, weights
    from albert_tf.model import models

    model = models.AlbertPretrainer(AlbertConfig.named(MODEL))
    weights.save(model, folder / "model", "hf")
    shutil.copy(spm_model_file, folder / "model" / "spiece.model")


def glue(folder, args):
    """Returns the commands of a classification of CSV tables."""
    steps = 0
    for name, path, most in (
        ("train", args.train, args.rows),
        ("dev", args.dev, args.dev_rows),
    ):
        with (
            open(path, encoding="utf-8", newline="") as source,
            open(folder / f"{name}.csv", "w", encoding="utf-8", newline="") as output,
        ):
            rows = csv.DictReader(source)
            columns = [*args.text_columns.split(","), "label"]
            writer = csv.DictWriter(output, columns, extrasaction="ignore")
            writer.writeheader()
            kept = list(itertools.islice(rows, most or None))
            writer.writerows(kept)
        if name == "train":
            steps = math.ceil(len(kept) / 32)
    ours = [
        *("--task_name=custom", f"--text_columns={args.text_columns}"),
        *(f"--train_file={folder}/train.csv", f"--dev_file={folder}/dev.csv"),
        *("--max_seq_length=128", "--train_batch_size=32", "--eval_batch_size=32"),
        *("--do_train", "--do_eval", f"--num_train_epochs={args.epochs}"),
        *("--eval_every_epochs=1", f"--save_checkpoints_steps={steps}"),
    ]
    peer = [
        *(f"--train_file={folder}/train.csv", f"--validation_file={folder}/dev.csv"),
        *("--max_seq_length=128", "--per_device_train_batch_size=32"),
        *("--per_device_eval_batch_size=32", "--do_train", "--do_eval"),
        *(f"--num_train_epochs={args.epochs}", "--eval_strategy=epoch"),
        *("--save_strategy=epoch", "--load_best_model_at_end"),
    ]
    return both(folder, args, "run_classifier.py", ours, args.run_glue, peer)


def squad(folder, args):
    """Returns the commands of questions of SQuAD 2.0."""
    for name, path, most in (
        ("train", args.train, args.rows),
        ("dev", args.dev, args.dev_rows),
    ):
        articles = json.loads(Path(path).read_text("utf-8"))["data"]
        kept: list[dict] = []
        flat: list[dict] = []
        for article in articles:
            for paragraph in article["paragraphs"]:
                questions = paragraph["qas"]
                if most:
                    questions = questions[: most - len(flat)]
                if not questions:
                    continue
                one = {"context": paragraph["context"], "qas": questions}
                kept.append({"title": article["title"], "paragraphs": [one]})
                flat += [row_of(article, paragraph, question) for question in questions]
        nested = {"version": "v2.0", "data": kept}
        (folder / f"{name}.json").write_text(json.dumps(nested), "utf-8")
        (folder / f"{name}-rows.json").write_text(json.dumps({"data": flat}), "utf-8")
    ours = [
        *(f"--train_file={folder}/train.json", f"--predict_file={folder}/dev.json"),
        *("--version_2_with_negative", "--head=linear", "--do_train", "--do_predict"),
        *("--max_seq_length=384", "--doc_stride=128", "--train_batch_size=12"),
        *("--predict_batch_size=32", f"--num_train_epochs={args.epochs}"),
    ]
    peer = [
        *(f"--train_file={folder}/train-rows.json", "--version_2_with_negative"),
        *(f"--validation_file={folder}/dev-rows.json", "--do_train", "--do_eval"),
        *("--max_seq_length=384", "--doc_stride=128"),
        *("--per_device_train_batch_size=12", "--per_device_eval_batch_size=32"),
        f"--num_train_epochs={args.epochs}",
    ]
    return both(folder, args, "run_squad.py", ours, args.run_qa, peer)


def row_of(article, paragraph, question):
    """Returns a question as the rows of Hugging Face's data sets have it."""
    answers = question["answers"]
    return {
        "id": question["id"],
        "title": article["title"],
        "context": paragraph["context"],
        "question": question["question"],
        "answers": {
            "text": [answer["text"] for answer in answers],
            "answer_start": [answer["answer_start"] for answer in answers],
        },
    }


def both(folder, args, script, ours, peer_script, peer):
    """Completes the commands of this package and of Hugging Face."""
    return {
        "albert_tf": [
            *(sys.executable, str(ROOT / script), *ours, "--learning_rate=2e-5"),
            *(f"--init_checkpoint={folder}/model", f"--output_dir={folder}/run"),
            f"--spm_model_file={args.spm_model_file}",
        ],
        "Hugging Face": [
            *(args.python, peer_script, *peer, "--learning_rate=2e-5", "--use_cpu"),
            *(f"--model_name_or_path={folder}/model", f"--output_dir={folder}/run"),
            *("--report_to=none", "--disable_tqdm=True"),
        ],
    }


if __name__ == "__main__":
    main()
