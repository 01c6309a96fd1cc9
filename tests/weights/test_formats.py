"""Files of weights that are damaged, or of other models."""

import json
import re

import keras
import numpy as np
import pytest

from albert_tf import weights
from albert_tf.errors import InputError
from albert_tf.weights import names

tf = pytest.importorskip("tensorflow")
h5py = pytest.importorskip("h5py")


def write_tf1(prefix, tensors):
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )


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


def test_a_keras_file_of_another_model_is_not_built(tmp_path):
    path = tmp_path / "model.keras"
    keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]).save(path)
    with pytest.raises(InputError) as refused:
        weights.open_source(path)
    assert str(refused.value) == (
        f"{path}: holds a Sequential, expected one of {', '.join(names.HEADS)}"
    )


@pytest.mark.parametrize("config", [None, {"vocabulary_size": 23}])
def test_an_incomplete_kerashub_configuration_is_named(config, tmp_path):
    with h5py.File(tmp_path / "model.weights.h5", "w") as file:
        file["layers/reversible_embedding/vars/0"] = np.ones((23, 6), np.float32)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"class_name": "AlbertBackbone", "config": config}))
    with pytest.raises(InputError, match=f"^{path}: .*; expected the keys vocabulary"):
        weights.open_source(tmp_path).config()
