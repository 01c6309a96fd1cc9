"""Pretrains a small model from text within an hour of two cores.

    python -m albert_tf.recipes.one_hour --input_file=text.txt --output_dir=hour \
        --pairs='blimp/*.jsonl'

Text is as for `albert-tf corpus`: a sentence a line, a blank line between documents.
The first half of the time goes into sentences one by one, whose single tokens are
hidden, and the other half into pairs of segments of 128 tokens, with the released masks
and sentence order. docs/pretraining.md says what each flag does, and a benchmark beside
it what came of it. A second call goes on where the first was stopped.
"""

import dataclasses
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from albert_tf import flags
from albert_tf.data import cores
from albert_tf.data.files import atomic

# Shares no layer: within an hour more parameters learn more than more layers.
MODEL = {
    "embedding_size": 128,
    "hidden_size": 192,
    "num_hidden_layers": 4,
    "num_hidden_groups": 4,
    "num_attention_heads": 3,
    "intermediate_size": 768,
    "max_position_embeddings": 512,
    "initializer_range": 0.05,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
_RECORDS = {
    "sentences": [
        *("--max_seq_length=64", "--objective=none", "--line_by_line"),
        *("--dupe_factor=1", "--masked_lm_prob=0", "--nodo_whole_word_mask"),
    ],
    "pairs": ["--max_seq_length=128", "--dupe_factor=5"],
}
_TRAINING = [
    *("--optimizer=muon", "--weight_decay=0.01", "--precision=bfloat16"),
    *("--num_warmup_steps=100", "--eval_every_steps=1000"),
]
_STAGES = {
    "sentences": [
        *("--train_batch_size=128", "--learning_rate=2e-3", "--group_by_length"),
        *("--dynamic_masking", "--ngram=1"),
        *("--mask_replace_prob=1", "--random_replace_prob=0"),
        *("--word_vectors_from_data", "--attend_nearby", "--output_bias_from_data"),
    ],
    "pairs": ["--train_batch_size=32", "--learning_rate=1e-3", "--group_by_length"],
}
# Of the time that is left for training, the sentences' part.
_SENTENCES = 0.5
# Minutes to start a stage, and to evaluate and save at its end.
_AROUND = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(flags.Settings):
    """What to pretrain on, and for how long."""

    input_file: str = flags.field("Text: files or patterns, comma-separated.")
    output_dir: str = flags.field("Folder for the vocabulary, records and both runs.")
    minutes: float = flags.field("How long all may take.", 60.0, at_least=2)
    vocab_size: int = flags.field("Tokens in the vocabulary.", 8000, at_least=100)
    pairs: str | None = flags.field(
        "JSON lines of minimal pairs, likewise; scored in the end, beyond the time.",
        None,
    )


def main(settings: Settings) -> None:
    """Runs the commands one after the other."""
    began = time.monotonic()
    folder = Path(settings.output_dir)
    vocabulary = folder / "vocab.model"
    if not vocabulary.exists():
        _run(
            *("vocabulary", f"--input_file={settings.input_file}"),
            *(
                f"--model_prefix={folder / 'vocab'}",
                f"--vocab_size={settings.vocab_size}",
            ),
        )
    for name, given in _RECORDS.items():
        _run(
            *("corpus", f"--input_file={settings.input_file}", *given),
            *(f"--spm_model_file={vocabulary}", "--eval_fraction=0.03"),
            f"--output_file={_records(folder, name)}",
        )
    plan = _plan(folder / "one_hour.json", settings, (time.monotonic() - began) / 60)
    model = folder / "albert_config.json"
    with atomic(str(model)) as file:
        file.write(
            json.dumps(MODEL | {"vocab_size": settings.vocab_size}, indent=2).encode()
        )
    start: list[str] = []
    for name, given in _STAGES.items():
        _run(
            *("pretrain", f"--albert_config_file={model}", *_TRAINING, *given, *start),
            *(f"--input_file={_records(folder, name)}", "--do_eval"),
            f"--eval_input_file={_records(folder, f'{name}.eval')}",
            *(f"--output_dir={folder / name}", f"--train_minutes={plan[name]}"),
        )
        start = [f"--init_checkpoint={folder / name}", "--checkpoint=newest"]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = (used.ru_utime + used.ru_stime) / cores.available()
    print(
        f"{folder / 'pairs'}: a model after {(time.monotonic() - began) / 60:.1f} "
        f"minutes; {seconds / 60:.1f} of each of {cores.available()} cores"
    )
    if settings.pairs:
        command = [sys.executable, "-m", "albert_tf.recipes.minimal_pairs"]
        command += [f"--model={folder / 'pairs'}", f"--pairs={settings.pairs}"]
        _wait([*command, f"--output_file={folder / 'minimal_pairs.json'}"])


def _records(folder: Path, name: str) -> Path:
    return folder / "records" / f"{name}.tfrecord"


def _plan(path: Path, settings: Settings, over: float) -> dict[str, float]:
    """Returns the minutes of each stage: of the first call, if this is another."""
    if path.exists():
        return json.loads(path.read_bytes())
    left = max(settings.minutes - over - _AROUND * len(_STAGES), 1.0)
    sentences = round(_SENTENCES * left, 2)
    plan = {"sentences": sentences, "pairs": round(left - sentences, 2)}
    with atomic(str(path)) as file:
        file.write(json.dumps(plan).encode())
    return plan


def _run(*arguments: str) -> None:
    _wait([sys.executable, "-m", "albert_tf.commands", *arguments])


def _wait(command: list[str]) -> None:
    print(f"=== {' '.join(command[2:])}", file=sys.stderr, flush=True)
    if status := subprocess.run(command).returncode:
        sys.exit(status)


if __name__ == "__main__":
    flags.run(main, (Settings,))
