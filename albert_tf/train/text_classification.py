"""What `run_classifier.py` does: GLUE, and anybody's own table of text."""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import IO, Any

import numpy as np
import tensorflow as tf

from albert_tf.data import cores
from albert_tf.errors import InputError
from albert_tf.model.config import AlbertConfig
from albert_tf.serve import predict
from albert_tf.tasks import (
    catalogue,
    classification,
    custom,
    score_table,
    submission,
)
from albert_tf.tasks.classification import Classification, Split
from albert_tf.tasks.settings.classification import ClassifierSettings, CustomSettings
from albert_tf.tasks.settings.fine_tuning import ModelSettings
from albert_tf.tasks.text_task import TextTask
from albert_tf.text.tokenization import Tokenizer
from albert_tf.train import finetune, loop
from albert_tf.train.devices import DistributionSettings, is_chief
from albert_tf.train.loop import Outcome

_CUSTOM = "custom"
# As released, where neither the flag nor the model's folder says otherwise.
_MAX_SEQ_LENGTH = 512
# What has to be alike for weights of one task to answer another: AX is MNLI.
_OF_THE_HEAD = ("kind", "labels", "label_separator", "texts")


def run(
    config: ClassifierSettings,
    model: ModelSettings,
    table: CustomSettings,
    devices: DistributionSettings,
    log: IO[str] = sys.stderr,
) -> None:
    """Trains, evaluates, predicts, exports and gathers, as far as it is asked for.

    Args:
        config: what to do.
        model: with which model.
        table: the tables of a custom task.
        devices: on which devices.
        log: where progress goes.

    Raises:
        InputError: see the flags; tables are broken, or do not fit the model.
    """
    writes = True
    if config.needs_model:
        strategy = loop.prepare(config, devices)
        writes = is_chief(strategy)
        with loop.locked(config, strategy):
            _run_model(config, model, table, strategy, log)
    if config.glue_submission and writes:
        _submit(config, config.glue_submission, _printer(log))


def _run_model(config, model, table, strategy, log) -> None:
    """Does what needs the model."""
    writes = is_chief(strategy)
    finetune.check_export(config.export_dir, config.output_dir, strategy)
    say = _printer(log if writes else None)
    unsaved: Unsaved = []
    task, tests = _prepare(config, model, table, strategy, unsaved, say)
    outcome = finetune.run(task, config, strategy, unsaved=unsaved, log=log)
    if best := outcome.best:
        key = task.key_metric
        say(f"Best checkpoint: step {best['step']:,}, {key} {best[key]:.4f}")
    # Every worker has to take part in predictions.
    files = _scores(outcome, task, config, say) | _predictions(
        outcome, task, tests, config
    )
    if writes:
        submission.write(config.output_dir, files)
        for name in files:
            say(f"Written: {config.output_dir}/{name}")
        if config.export_dir:
            predict.of_model(
                outcome.trainer.model,
                task.tokenizer,
                task.description,
                predict.AnswerSettings(threshold=config.threshold),
            ).service.save(config.export_dir)
            say(f"Written: {config.export_dir}, a SavedModel that takes raw text")


Say = Callable[[str], None]
Unsaved = list[Callable[[], None]]


def _printer(log: IO[str] | None) -> Say:
    def say(text: str) -> None:
        if log is not None:
            print(text, file=log, flush=True)

    return say


def _prepare(
    config: ClassifierSettings,
    model: ModelSettings,
    table: CustomSettings,
    strategy: tf.distribute.Strategy,
    unsaved: Unsaved,
    say: Say,
) -> tuple[Classification, list[Split]]:
    """Reads tables; returns the task and the examples to predict."""
    described = finetune.known_task(config)
    declared = _declared(config, table, described)
    _check_threshold(config, declared)
    parts = _parts(config, declared)
    albert, tokenizer = finetune.prepare(config, model)
    length = _length(config, albert, described)
    description = classification.describe(declared, length)
    finetune.check_head(config, description, _OF_THE_HEAD, ("task",))
    found = {
        part: [
            _split(config, declared, n, tokenizer, length, unsaved, say) for n in names
        ]
        for part, names in parts.items()
    }
    task = Classification(
        declared,
        albert,
        tokenizer,
        max_seq_length=length,
        training=next(iter(found["train"]), None),
        evaluation=found["dev"],
        multiple=finetune.pad_multiple(config, strategy),
    )
    return task, found["test"]


def _declared(
    config: ClassifierSettings, table: CustomSettings, described: dict[str, Any]
) -> TextTask:
    if config.task_name is None:
        raise InputError(
            f"--task_name: expected one of {', '.join(catalogue.every())} or {_CUSTOM}"
        )
    if config.task_name == _CUSTOM:
        return custom.declare(
            table, skip_bad_rows=config.skip_bad_rows, known=described
        )
    for item in dataclasses.fields(table):
        if getattr(table, item.name) != item.default:
            raise InputError(
                f"--{item.name}: expected --task_name={_CUSTOM} with it, not "
                f"{config.task_name}"
            )
    task = catalogue.find(config.task_name)
    if config.data_dir is None:
        raise InputError(
            f"--data_dir: expected the folder with {', '.join(task.files.values())}"
        )
    return task


def _check_threshold(config: ClassifierSettings, declared: TextTask) -> None:
    labels = len(declared.labels or ())
    decides_each = declared.label_separator is not None
    if config.threshold is not None and labels != 2 and not decides_each:
        raise InputError(
            f"--threshold_to_export={config.threshold}: task {declared.name} has "
            f"{labels or 'no'} labels; expected two, or several per example"
        )


def _parts(config: ClassifierSettings, declared: TextTask) -> dict[str, list[str]]:
    """Returns the names of the tables to train on, to evaluate on and to predict."""
    parts: dict[str, list[str]] = {}
    for flag, part in (
        ("do_train", "train"),
        ("do_eval", "dev"),
        ("do_predict", "test"),
    ):
        names = [name for name in declared.files if name.startswith(part)]
        parts[part] = names if getattr(config, flag) else []
        if getattr(config, flag) and not names:
            raise InputError(
                f"--{flag}: task {declared.name} has no {part} table; it has "
                f"{', '.join(declared.files)}"
            )
    return parts


def _length(
    config: ClassifierSettings, model: AlbertConfig, described: dict[str, Any]
) -> int:
    most = model.max_position_embeddings
    if config.max_seq_length is None:
        return min(described.get("max_seq_length", _MAX_SEQ_LENGTH), most)
    if config.max_seq_length > most:
        raise InputError(
            f"--max_seq_length={config.max_seq_length}: the model's "
            f"max_position_embeddings is {most}"
        )
    return config.max_seq_length


def _split(
    config: ClassifierSettings,
    declared: TextTask,
    name: str,
    tokenizer: Tokenizer,
    length: int,
    unsaved: Unsaved,
    say: Say,
) -> Split:
    """Reads and converts a table, and says what is in it."""
    path = declared.path(name, config.data_dir or "")
    table = declared.read(
        name, config.data_dir or "", skip_bad_rows=config.skip_bad_rows
    )
    for note in table.notes(path):
        say(note)
    split = classification.convert(
        declared,
        name,
        table,
        tokenizer,
        length,
        config.cache,
        num_threads=cores.available(),
        unsaved=unsaved,
    )
    found = split.inputs
    say(
        f"{path}: {len(found):,} examples of {np.mean(found.lengths):.1f} tokens on "
        f"average, {found.lengths.max()} at most"
    )
    if found.truncated:
        say(
            f"  {found.truncated:,} of them shortened to --max_seq_length={length}, by "
            f"{found.truncated_pieces:,} pieces in all"
        )
    return split


def _outputs(
    outcome: Outcome, task: Classification, split: Split, batch_size: int
) -> np.ndarray:
    source = task.source([split], labelled=False)
    return classification.stacked(outcome.trainer.predict(source, batch_size))


def _scores(
    outcome: Outcome, task: Classification, config: ClassifierSettings, say: Say
) -> dict[str, str]:
    """Returns the file with the scores of each label, by name."""
    if task.declared.labels is None or not config.do_eval:
        return {}
    texts = []
    for split in task.evaluated:
        outputs = _outputs(outcome, task, split, config.eval_batch_size)
        text = score_table.describe(
            task.declared,
            task.declared.targets(split.examples),
            task.declared.predict(outputs),
        )
        texts.append(f"{split.name}\n{text}")
    say("\n".join(texts))
    return {"label_scores.txt": "\n".join(texts)}


def _predictions(
    outcome: Outcome,
    task: Classification,
    tests: Sequence[Split],
    config: ClassifierSettings,
) -> dict[str, str]:
    """Returns the files of predictions, by name: the released ones and the site's."""
    files: dict[str, str] = {}
    for split in tests:
        outputs = _outputs(outcome, task, split, config.predict_batch_size)
        released = submission.released_files(task.declared, split.examples, outputs)
        ending = split.name.removeprefix("test")
        for name, text in released.items():
            files[name.replace(".tsv", f"{ending}.tsv")] = text
        if split.name in task.declared.submission:
            name, text = submission.glue_file(
                task.declared, split.name, split.examples, outputs
            )
            files[name] = text
    return files


def _submit(config: ClassifierSettings, path: str, say: Say) -> None:
    """Gathers the predictions of all tasks."""
    folders = config.submission_dirs or (config.output_dir,)
    expected = sorted(
        {
            file
            for task in catalogue.every().values()
            for file in task.submission.values()
        }
    )
    found = submission.gather(folders, expected)
    submission.write_zip(
        path, {name: file.read_text("utf-8") for name, file in found.items()}
    )
    say(f"Written: {path}, of {len(found)} files: {', '.join(found)}")
    missing = [name for name in expected if name not in found]
    if missing:
        say(
            f"Warning: {path} lacks {', '.join(missing)}; the site takes a zip with "
            f"the files of all tasks"
        )
