"""Pretrains a small model from text within an hour of two cores.

    python -m albert_tf.recipes.one_hour --input_file=text.txt --output_dir=hour \
        --pairs='blimp/*.jsonl'

Text is as for `albert-tf corpus`: a sentence a line, a blank line between documents.
The first part of the time goes into sentences one by one and texts of 128 tokens, each
token of which is predicted from those before it; the second into the same, whose single
tokens are hidden; the last into pairs of segments of 128 tokens, with the released
masks and sentence order. docs/pretraining.md says what each flag does and what came of
it. A second call goes on where the first was stopped.
"""

import dataclasses
import glob
import json
import resource
import time
from pathlib import Path
from typing import Any, NamedTuple

from albert_tf import errors, flags
from albert_tf.data import cores, json_values
from albert_tf.data.files import atomic
from albert_tf.errors import InputError
from albert_tf.recipes import steps

# Layers share nothing. Of the sizes that were tried, it had learned most after minutes.
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
_UNMASKED = [
    *("--max_seq_length=128", "--objective=none"),
    *("--dupe_factor=1", "--masked_lm_prob=0", "--nodo_whole_word_mask"),
]
_RECORDS = {
    "sentences": [*_UNMASKED, "--line_by_line"],
    # Without them the positions beyond a sentence would be new to the pairs.
    "texts": _UNMASKED,
    "pairs": ["--max_seq_length=128", "--dupe_factor=5"],
}
_TRAINING = [
    *("--optimizer=muon", "--weight_decay=0.01", "--precision=bfloat16"),
    *("--num_warmup_steps=100", "--eval_every_steps=1000", "--group_by_length"),
]


class _Stage(NamedTuple):
    """One run, from the weights of the one before.

    Attributes:
        records: what it trains on, of `_RECORDS`; it is evaluated on the first.
        share: of the time that is left for training.
        flags: beside those of all stages.
    """

    records: tuple[str, ...]
    share: float
    flags: list[str]


_STAGES = {
    "next_tokens": _Stage(
        ("sentences", "texts"),
        0.25,
        [
            *("--train_batch_size=64", "--learning_rate=2e-3", "--causal_lm"),
            *("--word_vectors_from_data", "--attend_nearby", "--output_bias_from_data"),
        ],
    ),
    "sentences": _Stage(
        ("sentences", "texts"),
        0.35,
        [
            *("--train_batch_size=64", "--learning_rate=2e-3"),
            *("--dynamic_masking", "--ngram=1"),
            *("--mask_replace_prob=1", "--random_replace_prob=0"),
        ],
    ),
    "pairs": _Stage(
        ("pairs",),
        0.4,
        [
            *("--train_batch_size=32", "--learning_rate=1e-3"),
            "--sentence_loss_weight=5",
        ],
    ),
}
# Minutes to start a stage, and to evaluate and save at its end.
_AROUND = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(flags.Settings):
    """What to pretrain on, and for how long."""

    input_file: str = flags.field("Text: files or patterns, comma-separated.")
    output_dir: str = flags.field("Folder for the vocabulary, records and the runs.")
    minutes: float = flags.field("How long all may take.", 60.0, at_least=4)
    vocab_size: int = flags.field("Tokens in the vocabulary.", 8000, at_least=100)
    pairs: tuple[str, ...] = flags.field(
        "JSON lines of minimal pairs to score in the end, beyond the time: files or "
        "patterns, comma-separated.",
        (),
    )


def main(settings: Settings) -> None:
    """Runs the commands one after the other."""
    began = time.monotonic()
    for pattern in settings.pairs:
        if not glob.glob(pattern):
            raise InputError(f"--pairs: {pattern}: no such file")
    folder = Path(settings.output_dir)
    with errors.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    noted = folder / "one_hour.json"
    _check(noted, settings)
    text = f"--input_file={settings.input_file}"

    def of(name: str) -> str:
        return str(folder / "records" / f"{name}.tfrecord")

    vocabulary = folder / "vocab.model"
    if not vocabulary.exists():
        prefix = f"--model_prefix={vocabulary.with_suffix('')}"
        steps.run("vocabulary", text, prefix, f"--vocab_size={settings.vocab_size}")
    for name, given in _RECORDS.items():
        to = (f"--output_file={of(name)}", "--eval_fraction=0.03")
        steps.run("corpus", text, f"--spm_model_file={vocabulary}", *given, *to)
        if not (held_out := Path(of(f"{name}.eval"))).exists():
            raise InputError(
                f"{held_out}: of too few documents none was held out; expected some "
                f"hundred in --input_file, with a blank line between them"
            )
    minutes = _stages(noted, settings, (time.monotonic() - began) / 60)
    model = folder / "albert_config.json"
    _write(model, MODEL | {"vocab_size": settings.vocab_size})
    start: list[str] = []
    for name, stage in _STAGES.items():
        steps.run(
            *("pretrain", f"--albert_config_file={model}", *_TRAINING),
            *(*stage.flags, *start, "--do_eval"),
            f"--input_file={','.join(map(of, stage.records))}",
            f"--eval_input_file={of(f'{stage.records[0]}.eval')}",
            *(f"--output_dir={folder / name}", f"--train_minutes={minutes[name]}"),
        )
        start = [f"--init_checkpoint={folder / name}", "--checkpoint=newest"]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    of_core = (used.ru_utime + used.ru_stime) / cores.available() / 60
    print(
        f"{folder / 'pairs'}: a model; this call took "
        f"{(time.monotonic() - began) / 60:.1f} minutes, and {of_core:.1f} minutes of "
        f"processor time a core of {cores.available()}"
    )
    if settings.pairs:
        steps.run(
            f"--model={folder / 'pairs'}",
            f"--pairs={','.join(settings.pairs)}",
            f"--output_file={folder / 'minimal_pairs.json'}",
            module="albert_tf.recipes.minimal_pairs",
        )


def _check(noted: Path, settings: Settings) -> None:
    """Notes what a folder is made of, or refuses to go on with anything else."""
    given = {name: getattr(settings, name) for name in ("minutes", "vocab_size")}
    if not noted.exists():
        _write(noted, given)
    before = json_values.parse(noted.read_text(), noted)
    for name, value in given.items():
        begun = before.get(name) if isinstance(before, dict) else None
        if begun != value:
            raise InputError(
                f"--{name}={value}: {noted.parent} was begun with {begun}; expected "
                f"this, or another --output_dir"
            )


def _stages(noted: Path, settings: Settings, over: float) -> dict[str, float]:
    """Returns the minutes of each stage, as noted by the call that got there first."""
    before = json_values.parse(noted.read_text(), noted)
    if "stages" not in before:
        left = max(settings.minutes - over - _AROUND * len(_STAGES), 1.0)
        stages = {name: round(stage.share * left, 2) for name, stage in _STAGES.items()}
        _write(noted, before := {**before, "stages": stages})
    if set(before["stages"]) != set(_STAGES):
        raise InputError(
            f"{noted}: begun with the stages {', '.join(before['stages'])}; expected "
            f"{', '.join(_STAGES)}, or another --output_dir"
        )
    return before["stages"]


def _write(path: Path, values: dict[str, Any]) -> None:
    with atomic(str(path)) as file:
        file.write(json.dumps(values, indent=2).encode() + b"\n")


if __name__ == "__main__":
    flags.run(main, (Settings,))
