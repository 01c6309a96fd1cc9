"""Every input that ever broke a reader is read, or refused in one line."""

import contextlib
import io
import shutil
from collections import Counter
from pathlib import Path

import pytest

from albert_tf import commands, flags, weights
from albert_tf.corpus import documents
from albert_tf.data import records, tables
from albert_tf.errors import InputError
from albert_tf.model.config import AlbertConfig
from albert_tf.tasks import registry, squad
from albert_tf.tasks.race import reading as race
from albert_tf.text import tokenization
from albert_tf.weights import loading, metadata
from albert_tf.weights.folder import ModelFolder

INPUTS = sorted(Path(__file__).parent.glob("corpus/*/*"))
MODEL = Path(__file__).parents[1] / "fixtures/earlier_version"
CONFIG = MODEL / "albert_config.json"
COLUMNS = (
    *(tables.Column("id", required=False), tables.Column("label", "gold")),
    tables.Column("text", may_be_empty=True),
)


def read_checkpoint(folder):
    source = weights.open_source(folder)
    weights.load(loading.model_for(source, source.config()), source, warn=False)


def read_config_file(folder):
    flags._read_config(str(folder / "run.json"))


def read_flags(folder):
    command, *arguments = (folder / "command").read_text().split("\0")
    printed = io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stderr(printed),
        pytest.raises(SystemExit) as end,
    ):
        commands.run_command(command, [command, *arguments])
    assert end.value.code == 2
    raise InputError(printed.getvalue().removesuffix("\n"))


def read_folder(folder):
    opened = ModelFolder(folder)
    assert opened.task is not None and opened.tokenizer.encode("one")


def read_race(folder):
    assert race.read_file(folder / "all.txt")


def read_raw_text(folder):
    sizes = documents.find_files([str(folder / "*")])
    for part, _ in documents.divide_files(sizes):
        list(documents.read(part, "strict", Counter()))


def read_records(folder):
    spec = {"ids": records.Feature("int", 5), "label": records.Feature("int", 1)}
    path = str(folder / "a.tfrecord")
    records.locate_error([path], spec)
    records.count(path)
    list(records.dataset([path], spec, batch_size=2))


def read_sentencepiece(folder):
    tokenization.load(str(folder / "vocab.model")).encode_with_offsets("The nö 日本")


def read_squad(folder):
    odds = folder / "odds.json"
    squad.evaluate_files(
        folder / "data.json", folder / "answers.json", null_odds_json=odds
    )


def read_table(folder):
    tables.read(folder / "a.tsv", COLUMNS, tuple, skip_bad_rows=True)


def read_task(folder):
    task = metadata.read_task(folder)
    tokenizer = tokenization.load(str(MODEL / "vocab.model"))
    config, family = (
        AlbertConfig.from_json_file(CONFIG),
        registry.find_task_class(task["kind"]),
    )
    settings_class = registry.find_pipeline_class(task["kind"]).settings_class
    settings = settings_class.from_stored(task, folder / "task.json")
    longest = config.max_position_embeddings
    family(settings.with_defaults(None, longest), config, tokenizer)


@pytest.mark.parametrize("source", INPUTS, ids=lambda path: path.name)
def test_input_that_broke_a_reader(source, tmp_path):
    folder = shutil.copytree(source, tmp_path / "input")
    try:
        globals()[f"read_{source.parent.name}"](folder)
    except InputError as error:
        assert "\n" not in str(error) and str(error).isprintable()
