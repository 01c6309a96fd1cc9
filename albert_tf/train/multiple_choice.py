"""What `run_race.py` does: RACE, and anybody's own questions with choices."""

import collections
import dataclasses
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from albert_tf.data import cores
from albert_tf.data.files import atomic
from albert_tf.errors import InputError
from albert_tf.model.config import AlbertConfig
from albert_tf.serve import predict
from albert_tf.tasks.race import reading, task
from albert_tf.tasks.race.features import Lengths
from albert_tf.tasks.race.reading import LETTERS, LEVELS, Question
from albert_tf.tasks.race.task import MultipleChoice, Split
from albert_tf.tasks.settings.choice import ChoiceSettings
from albert_tf.tasks.settings.fine_tuning import ModelSettings
from albert_tf.text.tokenization import Tokenizer
from albert_tf.train import finetune, loop
from albert_tf.train.devices import DistributionSettings, is_chief

# For each thing to do: the split of RACE, and the flag of a file instead of it.
_PARTS = {
    "do_train": ("train", "train_file"),
    "do_eval": ("dev", "eval_file"),
    "do_predict": ("test", "predict_file"),
}


Say = Callable[[str], None]


def run(
    config: ChoiceSettings,
    model: ModelSettings,
    devices: DistributionSettings,
    log: IO[str] = sys.stderr,
) -> None:
    """Trains, evaluates, predicts and exports, as far as it is asked for.

    Args:
        config: what to do.
        model: with which model.
        devices: on which devices.
        log: where progress goes.

    Raises:
        InputError: see the flags; questions are broken, or do not fit the model.
    """
    strategy = loop.prepare(config, devices)
    with loop.locked(config, strategy):
        _run(config, model, strategy, log)


def _run(config, model, strategy, log) -> None:
    finetune.check_export(config.export_dir, config.output_dir, strategy)
    writes = is_chief(strategy)

    def say(text: str) -> None:
        if writes:
            print(text, file=log, flush=True)

    unsaved: list[Callable[[], None]] = []
    made, to_predict = _prepare(config, model, strategy, unsaved, say)
    outcome = finetune.run(made, config, strategy, unsaved=unsaved, log=log)
    if to_predict is not None:
        # Every worker has to take part in predictions.
        source = made.source(to_predict, labelled=False)
        found = task.stacked(outcome.trainer.predict(source, config.predict_batch_size))
        if writes:
            _write(config, to_predict, found, say)
    if config.export_dir and writes:
        predict.of_model(
            outcome.trainer.model, made.tokenizer, made.description
        ).service.save(config.export_dir)
        say(f"Written: {config.export_dir}, a SavedModel that takes raw text")


def _prepare(
    config, model, strategy, unsaved, say
) -> tuple[MultipleChoice, Split | None]:
    """Reads questions; returns the task and what to predict."""
    finetune.check_head(config, {"kind": task.KIND}, ("kind",))
    known = finetune.known_task(config)
    questions = {flag: _read(config, flag) for flag in _PARTS if getattr(config, flag)}
    albert, tokenizer = finetune.prepare(config, model)
    lengths = _lengths(config, albert, known)
    splits = {
        flag: _split(config, flag, found, tokenizer, lengths, unsaved, say)
        for flag, found in questions.items()
    }
    counts = (split.features.choices for split in splits.values())
    made = MultipleChoice(
        config.task_name,
        albert,
        tokenizer,
        lengths,
        next(counts, known.get("choices", 0)),
        training=splits.get("do_train"),
        evaluation=splits.get("do_eval"),
        choices_at_once=config.choices_at_once,
        pretrained_without_dropout=_without_dropout(config, model),
        multiple=finetune.pad_multiple(config, strategy),
    )
    return made, splits.get("do_predict")


def _read(config: ChoiceSettings, flag: str) -> list[Question]:
    split, file = _PARTS[flag]
    if path := getattr(config, file):
        return reading.read_file(path)
    if config.data_dir is None:
        raise InputError(
            f"--{flag}: expected --data_dir or --{file} with it, or --no{flag}"
        )
    return reading.read_split(config.data_dir, split, _levels(config))


def _levels(config: ChoiceSettings) -> tuple[str, ...]:
    """Returns the levels of RACE to read."""
    if config.high_only:
        return ("high",)
    return ("middle",) if config.middle_only else LEVELS


def _lengths(
    config: ChoiceSettings, model: AlbertConfig, known: Mapping[str, Any]
) -> Lengths:
    most = model.max_position_embeddings
    length = config.max_seq_length
    if length is None:
        length = min(known.get("max_seq_length", Lengths.max_seq_length), most)
    if length > most:
        raise InputError(
            f"--max_seq_length={length}: the model's max_position_embeddings is {most}"
        )
    asked = config.max_qa_length
    if asked is None:
        asked = known.get("max_qa_length", Lengths.max_qa_length)
    return Lengths(length, asked)


def _split(
    config: ChoiceSettings,
    flag: str,
    questions: list[Question],
    tokenizer: Tokenizer,
    lengths: Lengths,
    unsaved: list[Callable[[], None]],
    say: Say,
) -> Split:
    """Converts questions, and says what they are."""
    name = _PARTS[flag][0]
    split = task.convert(
        config.task_name,
        name,
        questions,
        tokenizer,
        lengths,
        config.cache,
        num_threads=cores.available(),
        unsaved=unsaved,
    )
    levels = collections.Counter(q.level for q in questions if q.level)
    parts = ", ".join(f"{level} {count:,}" for level, count in levels.items())
    found = split.features
    say(
        f"{name}: {len(found):,} questions with {found.choices} choices about "
        f"{len(found.article_bounds) - 1:,} articles" + (f" ({parts})" if parts else "")
    )
    for line in found.describe(lengths):
        say(f"  {line}")
    return split


def _without_dropout(config: ChoiceSettings, model: ModelSettings) -> bool:
    """Whether the model's own file says that it has no dropout."""
    if config.start is None:
        return False
    undropped = dataclasses.replace(model, albert_dropout_prob=None)
    as_filed = finetune.model_config(undropped, config)
    return not (as_filed.hidden_dropout_prob or as_filed.attention_probs_dropout_prob)


def _write(
    config: ChoiceSettings, split: Split, probabilities: np.ndarray, say: Say
) -> None:
    """Writes predictions, and how good they are where answers are known."""
    scores = {"questions": len(split.questions), **_scores(probabilities, split)}
    results = "".join(f"{key} = {scores[key]}\n" for key in sorted(scores))
    lines = (json.dumps(p) + "\n" for p in _described(probabilities, split.questions))
    for name, text in (
        ("predictions.jsonl", "".join(lines)),
        ("predict_results.txt", results),
    ):
        with atomic(str(Path(config.output_dir, name))) as file:
            file.write(text.encode())
        say(f"Written: {config.output_dir}/{name}")
    say(results.rstrip())


def _scores(probabilities: np.ndarray, split: Split) -> dict[str, float]:
    """Returns loss and accuracies of the questions whose answers are known."""
    answers = split.answers
    known = answers >= 0
    if not known.any():
        return {}
    given = probabilities[known, answers[known]]
    questions = [
        question for question in split.questions if question.answer is not None
    ]
    return {
        "answered": len(questions),
        "eval_loss": float(-np.log(np.maximum(given, 1e-30)).mean()),
        **task.accuracies(probabilities[known], questions),
    }


def _described(probabilities, questions) -> Iterator[Mapping[str, Any]]:
    """Yields what `predictions.jsonl` says of each question."""
    for question, row in zip(questions, probabilities, strict=True):
        choice = int(row.argmax())
        line = {
            "id": question.id,
            "choice": choice,
            "letter": LETTERS[choice],
            "probabilities": [float(value) for value in row],
        }
        if question.answer is not None:
            line["answer"] = question.answer
        yield line
