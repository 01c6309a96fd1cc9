"""Measures how fast questions become windows, beside Hugging Face, in one go.

    python benchmarks/squad_features.py --input_file=train-v1.1.json --spm_model_file=30k-clean.model

Both take the same questions and contexts to windows of 384 pieces and say for every
piece which characters it is. Ours: `conversion.encode` and every window of `Windows`,
with its ids, the places of its pieces, the pieces with most context, and the targets.
Hugging Face: its fast tokenizer as its example run_qa.py calls it, and what that does
afterwards: targets from the offsets of each window (prepare_train_features). Neither
writes a file. Its stride counts the pieces that two windows share, ours (as released)
those between their beginnings, so we make more windows of a long context; the numbers
are printed.

Each program runs in processes of its own, and they take turns. Hugging Face's second
thread is that of its tokenizer; its own Python part has no second one here (run_qa.py
can have one, through the datasets library). Our time on two processes includes their
start.
"""  # noqa: E501 (--help shows the example as it stands here)

import dataclasses
import io
import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable

import turns

from albert_tf import flags
from albert_tf.errors import InputError
from albert_tf.tasks.squad import conversion, features, reading
from albert_tf.text import tokenization

LENGTHS = features.Lengths()
# Examples of run_qa.py's dataset.map.
_BATCH = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What to measure."""

    input_file: str = flags.field("Questions with answers, SQuAD's JSON.")
    spm_model_file: str = flags.field("SentencePiece model.")
    questions: int = flags.field(
        "Questions to use, in whole paragraphs; SQuAD 1.1 trains on 87,599.", 80_000
    )
    rounds: int = flags.field("Measurements of each.", 5)
    program: str = flags.field("Set by this program.", "")
    num_workers: int = flags.field("Set by this program.", 1)


flags.define(Settings)


def questions_of(settings: Settings) -> reading.Dataset:
    """Reads the first questions of the file, all of them again where it has too few."""
    dataset = reading.read(settings.input_file)
    kept, count = [], 0
    if not any(dataset.questions):
        raise InputError(f"{settings.input_file}: expected questions")
    for paragraph in itertools.cycle(dataset.paragraphs):
        if count >= settings.questions:
            break
        kept.append(paragraph)
        count += len(paragraph.questions)
    return dataclasses.replace(dataset, paragraphs=tuple(kept))


def ours(settings: Settings, dataset: reading.Dataset) -> Callable[[], int]:
    """Returns what makes all windows, and their number."""
    tokenizer = tokenization.SentencePieceTokenizer(settings.spm_model_file)

    def convert():
        pieces = conversion.encode(
            dataset, tokenizer, True, settings.num_workers, io.StringIO()
        )
        windows = features.Windows(dataset, pieces, tokenizer, LENGTHS)
        for window in windows:
            window.targets()
        return len(windows)

    return convert


def huggingface(settings: Settings, dataset: reading.Dataset) -> Callable[[], int]:
    """Returns the same for Hugging Face's tokenizer."""
    import transformers

    tokenizer = transformers.AlbertTokenizer.from_pretrained(
        os.path.dirname(os.path.abspath(settings.spm_model_file)),
        vocab_file=settings.spm_model_file,
    )
    examples = [
        (question.text.lstrip(), paragraph.context, question.answers[0])
        for paragraph in dataset.paragraphs
        for question in paragraph.questions
    ]

    def convert():
        return sum(
            len(_prepared(tokenizer, examples[begin : begin + _BATCH])["input_ids"])
            for begin in range(0, len(examples), _BATCH)
        )

    return convert


def _prepared(tokenizer, examples):
    """Makes windows and targets of a batch of (question, context, answer)."""
    found = tokenizer(
        [question for question, _, _ in examples],
        [context for _, context, _ in examples],
        truncation="only_second",
        max_length=LENGTHS.max_seq_length,
        stride=LENGTHS.doc_stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    starts, ends = [], []
    for window, example in enumerate(found["overflow_to_sample_mapping"]):
        answer = examples[example][2]
        places = _target(
            found["offset_mapping"][window],
            found.sequence_ids(window),
            answer.start,
            answer.start + len(answer.text),
        )
        starts.append(places[0])
        ends.append(places[1])
    return {**found, "start_positions": starts, "end_positions": ends}


def _target(offsets, sequences, begin, end):
    """Returns an answer's first and last piece in a window, or [CLS] twice."""
    first = sequences.index(1)
    last = len(sequences) - 1 - sequences[::-1].index(1)
    if offsets[first][0] > begin or offsets[last][1] < end:
        return 0, 0
    while first < len(offsets) and offsets[first][0] <= begin:
        first += 1
    while offsets[last][1] >= end:
        last -= 1
    return first - 1, last + 1


def _take_part(settings: Settings) -> None:
    """Waits for its turn and measures, over and over."""
    dataset = questions_of(settings)
    convert = {"ours": ours, "huggingface": huggingface}[settings.program](
        settings, dataset
    )
    count = convert()  # fills caches
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        convert()
        print(time.perf_counter() - begin, flush=True)
    print(f"{count:,} windows", file=sys.stderr)


def main() -> None:
    """Prints questions per second, and the ratios of the medians."""
    settings = flags.read(Settings)
    if settings.program:
        _take_part(settings)
        return
    dataset = questions_of(settings)
    asked = sum(len(paragraph.questions) for paragraph in dataset.paragraphs)
    commands = {}
    for program in ("ours", "huggingface"):
        for count in (1, 2):
            threads = [f"RAYON_NUM_THREADS={count}", "TOKENIZERS_PARALLELISM=true"]
            commands[f"{program}, {count}"] = [
                *("env", *threads, sys.executable, *sys.argv),
                *(f"--program={program}", f"--num_workers={count}"),
            ]
    found = turns.take_turns(commands, settings.rounds)
    print(f"{asked:,} questions of {settings.input_file}")
    speeds = {name: asked / statistics.median(found[name]) for name in found}
    for name, seconds in found.items():
        low, high = asked / max(seconds), asked / min(seconds)
        print(f"{name}: {speeds[name]:8,.0f} questions/s ({low:,.0f} to {high:,.0f})")
    for one, other in (
        ("ours, 1", "huggingface, 1"),
        ("ours, 2", "huggingface, 2"),
        ("ours, 2", "ours, 1"),
    ):
        if one in speeds and other in speeds:
            print(f"({one}) / ({other}): {speeds[one] / speeds[other]:.2f}")


if __name__ == "__main__":
    flags.run(main)
