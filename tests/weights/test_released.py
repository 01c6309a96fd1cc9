"""Weights by name: archives of a server, and the Hugging Face Hub."""

import io
import json
import os
import re
import shutil
import sys
import tarfile
from pathlib import Path
from unittest import mock

import huggingface_hub
import numpy as np
import pytest
from helpers import refusal

from albert_tf import TextClassifier, commands, weights
from albert_tf.data import download
from albert_tf.model.config import PUBLISHED, AlbertConfig
from albert_tf.model.models import AlbertEncoder
from albert_tf.weights import released
from albert_tf.weights.folder import ModelFolder

NAME = "albert_base_v2"
URL = f"https://storage.googleapis.com/albert_models/{NAME}.tar.gz"


@pytest.fixture
def config(data, monkeypatch):
    """Publishes a small configuration under the name."""
    config = AlbertConfig.from_json_file(data / "model_small.config.json")
    monkeypatch.setitem(PUBLISHED, NAME, config)
    return config


@pytest.fixture
def contents(data, config, write_checkpoint, golden):
    """The files of an archive; the checkpoint also has a head."""
    prefix = Path(write_checkpoint(golden("pretrain_small")))
    files = {
        f"albert_base/model.ckpt-best{path.name.removeprefix(prefix.name)}": path
        for path in prefix.parent.glob(f"{prefix.name}.*")
    }
    files["albert_base/albert_config.json"] = data / "model_small.config.json"
    files["albert_base/30k-clean.model"] = data / "spm_small.model"
    return {name: path.read_bytes() for name, path in files.items()}


@pytest.fixture
def serve(server, contents):
    """Serves an archive of the contents, some of them changed; returns the server."""

    def serve(**changes):
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as file:
            for name, data in {**contents, **changes}.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                file.addfile(member, io.BytesIO(data))
        server.files[URL] = archive.getvalue()
        return server

    return serve


def test_a_name_counts_wherever_a_path_of_weights_does(serve, config, data):
    server = serve()
    model, expected = AlbertEncoder(config), AlbertEncoder(config)
    weights.load(model, NAME, only="encoder")
    weights.load(expected, data / "model_small.ckpt")
    for ours, theirs in zip(model.weights, expected.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    opened = ModelFolder(NAME)
    folder = download.home() / "weights" / NAME
    assert opened.folders == [folder]
    assert opened.config == config
    assert (folder / "30k-clean.model").is_file()
    assert weights.open_source(Path(NAME)).path == str(folder / "model.ckpt-best")
    assert len(server.requests) == 1
    assert os.listdir(folder.parent) == [NAME]


def test_what_exists_counts_before_a_name(server, tmp_path, monkeypatch, config, data):
    monkeypatch.chdir(tmp_path)
    for suffix in (".index", ".data-00000-of-00001"):
        shutil.copy(f"{data}/model_small.ckpt{suffix}", f"{NAME}{suffix}")
    assert released.resolve(NAME) == Path(NAME)
    weights.load(AlbertEncoder(config), NAME)
    Path(f"{NAME}.index").unlink()
    Path(NAME).mkdir()
    assert ModelFolder(NAME).folders == [Path(NAME)]
    assert server.requests == []


def test_an_archive_put_there_by_hand_is_checked_and_taken(serve):
    server = serve()
    folder = download.home() / "weights"
    folder.mkdir(parents=True)
    archive = server.files.pop(URL)
    (folder / f"{NAME}.tar.gz").write_bytes(archive)
    assert ModelFolder(NAME).source.format == "tf1"
    assert server.requests == []
    shutil.rmtree(folder / NAME)
    (folder / f"{NAME}.tar.gz").write_bytes(archive[: len(archive) // 2])
    assert refusal(released.resolve, NAME).startswith(f"{URL}: ")
    assert os.listdir(folder) == [f"{NAME}.tar.gz"]


def test_an_archive_without_a_model_is_refused(server, serve, contents):
    contents.clear()
    serve(**{"albert_base/readme.txt": b""})
    message = refusal(released.resolve, NAME)
    assert re.match(f"{NAME}: .*; expected an archive with one", message)


def test_offline_a_script_ends_with_one_line(server, tmp_path, settings_of):
    (tmp_path / "train.csv").write_text("text,label\nGood.,1\nBad.,0\n")
    settings = settings_of(
        *("classify", "--task_name=custom", f"--train_file={tmp_path}/train.csv"),
        *(f"--output_dir={tmp_path}/run", f"--init_checkpoint={NAME}", "--do_train"),
    )
    message = refusal(commands.find_command("classify").main, *settings)
    assert message.startswith(f"{URL}: ") and "Name or service not known" in message
    assert message.endswith(f"{NAME}.tar.gz put into {tmp_path}/home/weights by hand")
    assert not (tmp_path / "run").exists()


def test_a_run_that_resumes_downloads_nothing(server, tmp_path):
    (tmp_path / "model.ckpt-40.index").touch()
    opened = ModelFolder(NAME, output_dir=tmp_path)
    assert opened.folders == [tmp_path]
    assert server.requests == []


@pytest.mark.parametrize(
    "path", ["albert_base_v3", "runs/a/b", "albert/albert-base", "albert_tiny"]
)
@pytest.mark.parametrize("door", [weights.open_source, TextClassifier.from_pretrained])
def test_a_path_without_weights_lists_the_names(path, door):
    assert refusal(door, path) == (
        f"{path}: no such file, folder or checkpoint prefix, nor one of "
        f"{', '.join(PUBLISHED)}, hf://owner/name"
    )


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Stands for `huggingface_hub.snapshot_download`; returns `tmp_path / "hub"`."""
    (tmp_path / "hub").mkdir()
    hub = mock.create_autospec(huggingface_hub.snapshot_download)
    hub.return_value = str(tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    return hub


@pytest.mark.parametrize(
    ("kind", "revision"), [(str, None), (Path, "main"), (str, "refs/pr/1")]
)
def test_models_of_hugging_face(hub, tmp_path, kind, revision, config):
    weights.save(AlbertEncoder(config), tmp_path / "hub", "hf")
    name = "hf://albert/albert-base-v2" + (f"@{revision}" if revision else "")
    assert ModelFolder(kind(name)).source.format == "hf"
    hub.assert_called_with(
        "albert/albert-base-v2",
        revision=revision,
        allow_patterns=["*.safetensors", "*.json", "spiece.model", "vocab.txt"],
        ignore_patterns=["*/*"],
    )


def test_refusals_of_hugging_face_are_one_line(hub, tmp_path, monkeypatch):
    (tmp_path / "hub/config.json").write_text(json.dumps({}))
    message = "hf://a/b: has no .safetensors; no other format is downloaded"
    assert refusal(weights.open_source, "hf://a/b") == message
    hub.side_effect = OSError("We have no connection.\nAnd so on.")
    assert refusal(weights.open_source, "hf://a/b") == (
        "hf://a/b: We have no connection.; expected hf://owner/name of a model, and a "
        "connection"
    )
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert refusal(weights.open_source, "hf://a/b") == (
        "hf://a/b needs the package huggingface_hub: pip install 'albert_tf[hub]'"
    )
