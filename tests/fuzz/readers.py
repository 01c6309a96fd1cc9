"""A harness for each reader of the package's files.

An input is `{name: bytes}`, the files of a folder. `READERS` names the harnesses: each
reads a folder as a program would and compares what came out with what is in the files.
"""

import contextlib
import dataclasses
import functools
import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
from absl import flags as absl_flags
from invariants import Broken, same

from albert_tf import commands, flags
from albert_tf.corpus import documents
from albert_tf.corpus.config import CorpusSettings
from albert_tf.data import records, tables
from albert_tf.data.tables import Column
from albert_tf.errors import InputError
from albert_tf.model.config import AlbertConfig
from albert_tf.tasks import glue, registry, squad
from albert_tf.tasks.race import reading as race
from albert_tf.tasks.squad import locating
from albert_tf.tasks.squad import reading as squad_reading
from albert_tf.tasks.tagging import reading as tagging
from albert_tf.text import tokenization
from albert_tf.weights import metadata

FIXTURES = Path(__file__).parents[1] / "fixtures"
EARLIER = FIXTURES / "earlier_version"


def only(folder):
    """Returns the one file of a folder."""
    [path] = folder.iterdir()
    return path


# --- configuration and task.json


def read_config(folder):
    config = AlbertConfig.from_json_file(only(folder))
    again = AlbertConfig.from_dict(json.loads(config.to_json_string()))
    same("round trip", config, again)


@functools.cache
def _tokenizer():
    return tokenization.load(str(EARLIER / "vocab.model"))


@functools.cache
def _config():
    return AlbertConfig.from_json_file(EARLIER / "albert_config.json")


def read_task(folder):
    task = metadata.read_task(folder)
    kind = task.get("kind")
    families = {kind: registry.task(kind) for kind in registry.FINE_TUNED}
    if kind in families:
        path = folder / "task.json"
        made = families[kind].from_stored(task, _config(), _tokenizer(), path)
        description = json.loads(json.dumps(made.description))
        again = families[kind].from_stored(
            {**task, **description}, _config(), _tokenizer(), path
        )
        same("round trip", made.settings, again.settings)


# --- tables and data sets

_COLUMNS = [
    Column("id", required=False),
    Column("text", may_be_empty=True),
    Column("label", "gold"),
]


def read_table(folder):
    path = only(folder)
    data = path.read_bytes()
    table = tables.read(path, _COLUMNS, tuple, skip_bad_rows=True)
    rows = len(table.rows) + len(table.skipped)
    if path.suffix != ".csv":  # where a quote may take in lines
        header = path.suffix != ".jsonl"
        same("rows", data.count(b"\n") + (not data.endswith(b"\n")),
             rows + table.blank + header)  # fmt: skip
    if len("".join(table.notes(path)).split("\n")) > 1:
        raise Broken(f"message: several lines: {table.notes(path)}")
    if not table.skipped:
        same("round trip", table, tables.read(path, _COLUMNS, tuple))


def read_glue(folder):
    path = only(folder)
    name, _, split = path.stem.partition("+")
    [task] = (t for t in _GLUE if t.files["train"].startswith(f"{name}/"))
    task = dataclasses.replace(task, files={split: path.name})
    data = path.read_bytes()
    table = task.read(split, folder, skip_bad_rows=True)
    rows = len(table.rows) + len(table.skipped) + table.blank
    header = split not in task.headers
    same("rows", data.count(b"\n") + (not data.endswith(b"\n")), rows + header)
    if split != "test":
        targets = task.targets(table.rows)
        same("rows", len(table.rows), len(targets))


_GLUE = (glue.COLA, glue.MRPC, glue.STSB, glue.QQP)


def read_squad(folder):
    path = folder / "data.json"
    dataset = squad_reading.read(path)
    contents = json.loads(path.read_text("utf-8-sig"))
    asked = [q for a in contents["data"] for p in a["paragraphs"] for q in p["qas"]]
    same("rows", len(asked), len(list(dataset.questions)))
    with contextlib.suppress(InputError):
        locating.locate(dataset, _tokenizer())
    answers = folder / "answers.json"
    two = dataset.version == "2.0"
    odds = folder / "odds.json" if two else None
    scores = squad.evaluate_files(path, answers, null_odds_json=odds)
    for name, value in scores.items():
        if math.isnan(value):
            raise Broken(f"round trip: {name} is {value}")


def read_race(folder):
    path = only(folder)
    questions = race.read_file(path)
    text, position, count = path.read_text("utf-8-sig"), 0, 0
    while (position := len(text) - len(text[position:].lstrip())) < len(text):
        value, position = json.JSONDecoder().raw_decode(text, position)
        count += len(value["questions"]) if "questions" in value else 1
    same("rows", count, len(questions))
    for question in questions:
        for number in range(len(question.options)):
            question.completed(number)


def read_conll(folder):
    path = only(folder)
    for scheme in ("iob2", "iob1"):
        try:
            sentences = tagging.read_file(path, tag_scheme=scheme)
        except InputError:
            if scheme == "iob1":
                raise
    rows = [row.decode() for row in path.read_bytes().split(b"\n")]
    rows = [row.removeprefix("\ufeff") for row in rows[:1]] + rows[1:]
    rows = [row.removesuffix("\r") for row in rows]
    if path.suffix == ".txt":
        words = 0
        for row in filter(str.strip, rows):
            cells = row.split("\t") if "\t" in row else row.strip(" ").split(" ")
            words += cells[0] != "-DOCSTART-"
        same("rows", words, sum(len(s.words) for s in sentences))
    else:
        same("rows", sum(bool(row.strip()) for row in rows), len(sentences))
    tagging.all_labels(sentences)


# --- records

_SPEC = {
    "ids": records.Feature("int", 5),
    "label": records.Feature("int", 1),
    "weights": records.Feature("float", 2),
}


def read_records(folder):
    import tensorflow as tf

    path = str(only(folder))
    records.features_of(path)
    records.check([path], _SPEC)
    limits = {"ids": 1 << 31, "label": 1 << 31}
    records.locate_error([path], _SPEC, limits)
    number = records.count(path)
    try:
        batches = list(records.dataset([path], _SPEC, batch_size=2))
    except tf.errors.OpError as error:
        raise Broken(
            f"rows: what was verified cannot be read: {error}"[:300]
        ) from error
    arrays = {name: np.concatenate([b[name] for b in batches]) for name in _SPEC}
    same("rows", number, len(arrays["ids"]))
    parsed = records.parser(_SPEC)(tf.constant(records.encode(_SPEC, arrays)))
    for name in _SPEC:
        same("round trip", arrays[name].tobytes(), parsed[name].numpy().tobytes())


# --- vocabularies and raw text

_TEXT = "The nö 日本, 1997, naïve \u0000\u2028 ﷺ 😀  e\u0301"


def _read_vocabulary(tokenizer):
    ids, spans = tokenizer.encode_with_offsets(_TEXT)
    same("rows", len(ids), len(spans))
    for begin, end in spans:
        if not 0 <= begin <= end <= len(_TEXT):
            raise Broken(f"round trip: span {begin}, {end}")
    same("round trip", ids, tokenizer.encode(_TEXT))
    for rule in ("word_mark", "released"):
        tokenizer.word_starts(rule)(np.arange(min(tokenizer.vocab_size, 99)))


def read_wordpiece(folder):
    path = only(folder)
    tokenizer = tokenization.load(vocab_file=str(path))
    lines = path.read_bytes().decode().removesuffix("\n").split("\n")
    same("rows", len(lines), tokenizer.vocab_size)
    _read_vocabulary(tokenizer)


def read_sentencepiece(folder):
    _read_vocabulary(tokenization.load(str(only(folder))))


def read_raw_text(folder):
    path = only(folder)
    config = CorpusSettings(
        input_file=(str(path),), output_file=("x",), spm_model_file="x"
    )
    sizes = documents.find_files([str(path)])
    for errors in ("replace", "strict"):
        counts, made = Counter(), []
        for part, _ in documents.ranges(sizes):
            made += documents.read(part, errors, counts)
        segments = list(documents.tokenize(made, config, _tokenizer(), counts))
        same("rows", len(made), len(segments) + counts["documents_without_tokens"])
    if path.suffix == ".txt":
        text = path.read_bytes().decode()
        rows = [row.strip() for row in text.removeprefix("\ufeff").split("\n")]
        same("rows", [row for row in rows if row], [row for d in made for row in d])


# --- flags


@contextlib.contextmanager
def _parsed(command, arguments, folder):
    """Parses a command line as the command does, without running it."""
    old_flags, old_defined = absl_flags.FLAGS, flags._defined
    absl_flags.FLAGS, flags._defined = absl_flags.FlagValues(), []
    absl_flags.FLAGS["verbosity"] = old_flags["verbosity"]
    try:
        for settings in commands.command(command).SETTINGS:
            flags.define(settings)
        with contextlib.chdir(folder):
            rest = flags._parse([command, *arguments], "", {})
            yield [flags.read(settings) for settings in flags._defined], rest
    finally:
        absl_flags.FLAGS, flags._defined = old_flags, old_defined


def read_flags(folder):
    command, *arguments = (folder / "command").read_bytes().decode().split("\0")
    with _parsed(command, arguments, folder) as (groups, rest):
        values = [flags.values(group) for group in groups]
        same("rows", True, isinstance(rest, list))
    # What run.json stores makes the same run again.
    stored = {name: value for group in values for name, value in group.items()}
    _check_again(command, stored, values, folder)


def _check_again(command, stored, values, folder):
    path = folder.parent / "again.json"
    path.write_text(json.dumps({"flags": json.loads(json.dumps(stored))}))
    with _parsed(command, [f"--config={path}"], folder) as (groups, _):
        for before, group in zip(values, groups, strict=True):
            after = flags.values(group)
            for name, value in before.items():
                if value not in (None, ()) and repr(value) != repr(after[name]):
                    raise Broken(f"round trip: {name}={value!r}, {after[name]!r}")


def read_config_file(folder):
    path = only(folder)
    with _parsed("classify", [f"--config={path.name}"], folder) as (groups, _):
        values = [flags.values(group) for group in groups]
    stored = {name: value for group in values for name, value in group.items()}
    _check_again("classify", stored, values, folder)


# --- weights, and what stands beside them


def read_weights(folder):
    from albert_tf import weights
    from albert_tf.weights import loading
    from albert_tf.weights.names import expand

    path = folder / "model.keras" if (folder / "model.keras").exists() else folder
    source = weights.open_source(path)
    model = loading.model_for(source, source.config())
    report = weights.load(model, source, warn=False)
    same("rows", len(source.shapes), len(report.loaded) + len(report.unused))
    saved = weights.save(model, folder.parent / "saved.ckpt", format="tf1")
    again = weights.open_source(saved)
    before = {target.ours: target.value() for target in expand(model, "tf1")}
    weights.load(model, again, warn=False)
    for target in expand(model, "tf1"):
        if before[target.ours].tobytes() != target.value().tobytes():
            raise Broken(f"round trip: {target.ours}")


def read_folder(folder):
    from albert_tf.weights.folder import ModelFolder

    opened = ModelFolder(folder)
    task, tokenizer = opened.task, opened.tokenizer
    tokenizer.encode(_TEXT)
    families = {kind: registry.task(kind) for kind in registry.FINE_TUNED}
    if task.get("kind") in families:
        families[task["kind"]].from_stored(task, opened.config, tokenizer)


def read_description(folder):
    from albert_tf.tasks import pretraining
    from albert_tf.tasks.settings.pretraining import PretrainingSettings

    for dynamic in (False, True):
        settings = PretrainingSettings(
            albert_config_file=str(EARLIER / "albert_config.json"),
            input_file=(str(folder / "ordinary"),),
            dynamic_masking=dynamic,
        )
        made = pretraining._Records(settings, "input_file", _config())
        made.tokenizer()
        made.source.locate_error()
        same("rows", records.count(str(folder / "ordinary")), len(made.source))


READERS = {
    "config": read_config,
    "task": read_task,
    "table": read_table,
    "glue": read_glue,
    "squad": read_squad,
    "race": read_race,
    "conll": read_conll,
    "records": read_records,
    "wordpiece": read_wordpiece,
    "sentencepiece": read_sentencepiece,
    "raw_text": read_raw_text,
    "checkpoint": read_weights,
    "hugging_face": read_weights,
    "keras": read_weights,
    "keras_hub": read_weights,
    "hub": read_weights,
    "folder": read_folder,
    "description": read_description,
    "flags": read_flags,
    "config_file": read_config_file,
}
