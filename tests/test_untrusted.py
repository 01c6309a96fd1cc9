"""Files from strangers: no pickle is opened, and no code of a file runs."""

import json
import os
import pickle
import sys
import zipfile

import pytest
from helpers import refusal

from albert_tf import flags, weights
from albert_tf.errors import InputError
from albert_tf.model import models
from albert_tf.tasks.race import reading as race
from albert_tf.tasks.squad import reading as squad
from albert_tf.text import tokenization
from albert_tf.weights import metadata

tf = pytest.importorskip("tensorflow")

_events: list[str] = []


def _note(event, arguments):
    if event in ("pickle.find_class", "subprocess.Popen") or event.startswith("os.sys"):
        _events.append(f"{event} {arguments}")


@pytest.fixture(scope="module", autouse=True)
def audited():
    sys.addaudithook(_note)


class Code:
    """Runs when it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch harmed",)


PICKLE = pickle.dumps(Code())
READERS = {
    "pytorch_model.bin": lambda path: weights.open_source(path.parent),
    "model.safetensors": lambda path: weights.open_source(path.parent),
    "model.weights.h5": lambda path: weights.open_source(path.parent),
    "model.ckpt-1.index": lambda path: weights.open_source(path.parent),
    "model.keras": weights.open_source,
    "spiece.model": tokenization.load,
    "vocab.txt": lambda path: tokenization.load(None, path),
    "task.json": lambda path: metadata.read_task(path.parent),
    "squad.json": squad.read,
    "race.txt": race.read_file,
    "run.json": lambda path: flags._read_config(str(path)),
}
CASES = {f"pickle as {file}": (file, PICKLE) for file in READERS}
CASES |= {
    "checkpoint elsewhere": (
        "model.ckpt-1.index",
        b'model_checkpoint_path: "../outside"\n',
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_file_of_a_stranger_is_refused_and_runs_nothing(case, tmp_path, monkeypatch):
    file, contents = CASES[case]
    monkeypatch.chdir(tmp_path)
    (tmp_path / file).write_bytes(contents)
    _events.clear()
    assert "\n" not in refusal(READERS[file], tmp_path / file)
    assert not _events
    assert not (tmp_path / "harmed").exists()


@pytest.mark.parametrize(
    "change",
    [
        {
            "module": "keras.layers",
            "class_name": "Lambda",
            "registered_name": None,
            "config": {"name": "f", "function": {"class_name": "__lambda__"}},
        },
        {
            "module": "os",
            "class_name": "function",
            "config": "system",
            "registered_name": "function",
        },
    ],
    ids=["Lambda", "os.system"],
)
def test_code_in_a_keras_file_is_refused(change, tiny, tmp_path):
    path = tmp_path / "model.keras"
    models.AlbertEncoder(tiny()).save(path)
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    parts["config.json"] = json.dumps(json.loads(parts["config.json"]) | change)
    with zipfile.ZipFile(path, "w") as file:
        for name, part in parts.items():
            file.writestr(name, part)
    _events.clear()
    assert "\n" not in refusal(weights.open_source, path)
    assert not _events


def test_a_saved_model_is_read_and_not_run(tiny, tmp_path):
    class Harmful(tf.Module):
        @tf.function(input_signature=[])
        def __call__(self):
            tf.io.write_file(str(tmp_path / "harmed"), "")

    tf.saved_model.save(Harmful(), str(tmp_path / "model"))
    source = weights.open_source(tmp_path / "model")
    with pytest.raises(InputError):
        weights.load(models.AlbertEncoder(tiny()), source)
    assert not (tmp_path / "harmed").exists()
