"""Files of weights that are damaged, or made to read or fill what they should not."""

import dataclasses
import json
import re
import zipfile

import keras
import numpy as np
import pytest

from albert_tf import weights
from albert_tf.errors import InputError
from albert_tf.model import models
from albert_tf.model.config import AlbertConfig
from albert_tf.weights import names

tf = pytest.importorskip("tensorflow")
h5py = pytest.importorskip("h5py")

CONFIG = AlbertConfig(
    vocab_size=23,
    embedding_size=6,
    hidden_size=12,
    num_hidden_layers=4,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=9,
)
WORDS = "layers/reversible_embedding/vars/0"
SHAPE = (23, 6)


def write_tf1(prefix, tensors):
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("storage", f"/{WORDS} is external storage"),
        ("virtual", f"/{WORDS} is a virtual dataset"),
        ("link", f"'{WORDS}' is a link to {{secret}}: /0"),
        ("soft", f"'{WORDS}' is a link to {{path}}: /other"),
        ("group", "'layers' is a link to {secret}: /layers"),
        ("task", "'layers' is a link to {secret}: /layers"),
    ],
)
def test_hdf5_that_leads_to_other_files_is_refused(way, message, tmp_path):
    path, secret = tmp_path / "model.weights.h5", tmp_path / "secret"
    secret.write_bytes(b"another file's bytes" * 100)
    if way == "task":
        with h5py.File(path, "w") as file:
            file[WORDS] = np.ones(SHAPE, np.float32)
        path = tmp_path / "task.weights.h5"
    with h5py.File(path, "w") as file:
        if way == "storage":
            external = [(str(secret), 0, 4 * 23 * 6)]
            file.create_dataset(WORDS, SHAPE, np.float32, external=external)
        elif way == "virtual":
            layout = h5py.VirtualLayout(SHAPE, np.float32)
            layout[:] = h5py.VirtualSource(str(secret), "0", SHAPE, np.float32)
            file.create_virtual_dataset(WORDS, layout)
        elif way == "link":
            file[WORDS] = h5py.ExternalLink(str(secret), "/0")
        elif way == "soft":
            file[WORDS] = h5py.SoftLink("/other")
        else:
            file["layers"] = h5py.ExternalLink(str(secret), "/layers")
    with pytest.raises(InputError) as refused:
        weights.open_source(tmp_path / "model.weights.h5")
    filled = message.format(secret=secret, path=path)
    assert (
        str(refused.value) == f"{path}: {filled}; expected weights in the file itself"
    )


def test_a_dataset_that_is_larger_than_its_file(tmp_path):
    path = tmp_path / "model.weights.h5"
    with h5py.File(path, "w") as file:
        file[WORDS] = np.ones(SHAPE, np.float32)
        file.create_dataset("layers/large", (10**6, 10**6), np.float32, chunks=(9, 9))
    with pytest.raises(InputError) as refused:
        weights.open_source(path)
    assert str(refused.value) == (
        f"{path}: /layers/large has shape [1000000, 1000000]; expected at most "
        f"{path.stat().st_size:,} elements, as the file has so many bytes"
    )


def test_tensors_of_eight_bits_are_refused_in_one_line(tmp_path):
    noted = {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}
    header = json.dumps({"w": noted}).encode()
    data = len(header).to_bytes(8, "little") + header + bytes(4)
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(InputError) as refused:
        weights.open_source(tmp_path).read("w")
    expected = rf"{tmp_path}: w: .*; expected a tensor of floating point numbers"
    assert re.fullmatch(expected, str(refused.value))


@pytest.mark.parametrize(
    "graph",
    # A node whose child has number 127; no protocol buffer; no node at all.
    [b"\x0a\x06\x0a\x04\x08\x7f\x12\x00", b"\xff\xff", b""],
)
def test_a_damaged_object_graph_is_refused_in_one_line(graph, tmp_path):
    write_tf1(tmp_path / "ckpt", {"_CHECKPOINTABLE_OBJECT_GRAPH": np.array(graph)})
    with pytest.raises(InputError) as refused:
        weights.open_source(tmp_path / "ckpt")
    expected = "expected a checkpoint with a readable object graph"
    assert re.fullmatch(rf"{tmp_path}/ckpt: .*; {expected}", str(refused.value))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"vocab_size": 10**12},
            "vocab_size=1000000000000: expected at most 10,000,000",
        ),
    ],
)
def test_a_keras_file_of_a_model_that_it_does_not_hold(change, message, tmp_path):
    path = tmp_path / "model.keras"
    models.AlbertEncoder(CONFIG).save(path)
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    noted = json.loads(parts["config.json"])
    noted["config"]["config"] |= change
    parts["config.json"] = json.dumps(noted).encode()
    with zipfile.ZipFile(path, "w") as file:
        for name, part in parts.items():
            file.writestr(name, part)
    with pytest.raises(InputError) as refused:
        weights.open_source(path)
    filled = message.format(size=path.stat().st_size)
    assert str(refused.value) == f"{path}: {filled}"


def test_a_keras_file_that_unpacks_to_more_than_it_should(tmp_path):
    path = tmp_path / "model.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("config.json", bytes(1_000_000))
    with pytest.raises(InputError) as refused:
        weights.open_source(path)
    assert str(refused.value) == (
        f"{path}: config.json has 1,000,000 bytes; expected at most 100 times as many "
        f"as the file"
    )


def test_a_keras_file_of_another_model_is_not_built(tmp_path):
    path = tmp_path / "model.keras"
    keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]).save(path)
    with pytest.raises(InputError) as refused:
        weights.open_source(path)
    assert str(refused.value) == (
        f"{path}: holds a Sequential, expected one of {', '.join(names.HEADS)}"
    )


def test_a_configuration_of_more_blocks_than_tensors_builds_no_model(tmp_path):
    weights.save(models.AlbertEncoder(CONFIG), tmp_path, "tf1")
    source = weights.open_source(tmp_path)
    deep = dataclasses.replace(CONFIG, inner_group_num=100)
    blocks = 100 * CONFIG.num_attentions
    with pytest.raises(InputError) as refused:
        weights.model_for(source, deep)
    assert str(refused.value) == (
        f"{source.path}: holds {len(source.shapes)} tensors; expected at least one for "
        f"each of the configuration's {blocks} blocks, which share none"
    )


def test_a_model_that_cannot_be_built_is_no_mistake_of_a_user(tmp_path, monkeypatch):
    from albert_tf.serve import saved_models

    def build(config, num_labels):
        raise AttributeError("a mistake of ours")

    model = models.AlbertClassifier(CONFIG, 5)
    saved_models.save(tf.train.Checkpoint(), tmp_path / "out", model=model)
    source = weights.open_source(tmp_path / "out")
    monkeypatch.setattr(models, "AlbertClassifier", build)
    with pytest.raises(AttributeError, match="a mistake of ours"):
        source.fresh_model()
