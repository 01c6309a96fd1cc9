"""Files made to harm: each is refused in one line, and nothing else is opened or run.

docs/security.md promises it. A secret lies beside what is opened: the kernel tells of
every opening of it, by whatever library, and an audit hook of every process, connection
and unpickling that Python starts.
"""

import contextlib
import ctypes
import gzip
import io
import json
import os
import pickle
import struct
import sys
import zipfile

import numpy as np
import pytest

from albert_tf import flags, weights
from albert_tf.data import cache, records, tables
from albert_tf.errors import InputError
from albert_tf.model import models
from albert_tf.model.config import AlbertConfig
from albert_tf.tasks.race import reading as race
from albert_tf.tasks.squad import reading as squad
from albert_tf.tasks.tagging import reading as tagging
from albert_tf.text import tokenization
from albert_tf.weights import metadata
from albert_tf.weights.folder import ModelFolder

h5py = pytest.importorskip("h5py")

CONFIG = AlbertConfig(
    vocab_size=23,
    embedding_size=6,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=9,
)
# A matrix of KerasHub's files and one of this package's.
WORDS, SHAPE = "layers/reversible_embedding/vars/0", (12, 12)
KERNEL = "blocks/block/attention/key/vars/0"
H5 = "model.weights.h5"
HUGE = 10**12
_IN_ACCESS_OR_OPEN = 0x1 | 0x20
_events: list[str] = []
_WATCHED = ("pickle.find_class", "subprocess.Popen", "socket.connect")


def _note(event, arguments):
    if event in _WATCHED or event.startswith(("os.exec", "os.system", "os.posix")):
        _events.append(f"{event} {arguments}")


class Code:
    """Runs when it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch harmed",)


PICKLE = pickle.dumps(Code())


@pytest.fixture(scope="module")
def audited():
    sys.addaudithook(_note)


@pytest.fixture
def secret(tmp_path):
    """A file that nothing may open, an HDF5 file that weights could be read from."""
    path = tmp_path / "outside" / "secret.h5"
    path.parent.mkdir()
    with h5py.File(path, "w") as file:
        file["0"] = file["layers/0"] = np.ones(SHAPE, np.float32)
    return path


@contextlib.contextmanager
def untouched(path):
    """Fails where a file is opened or read in the block, by the kernel's account."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "inotify_init1"):  # not Linux
        yield
        return
    watch = libc.inotify_init1(os.O_NONBLOCK)
    assert libc.inotify_add_watch(watch, os.fsencode(path), _IN_ACCESS_OR_OPEN) >= 0
    try:
        yield
        with pytest.raises(BlockingIOError):
            os.read(watch, 4096)
    finally:
        os.close(watch)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Returns the parts of a `.keras` file, by name."""
    path = tmp_path_factory.mktemp("saved") / "model.keras"
    models.AlbertEncoder(CONFIG).save(path)
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def zipped(parts):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, part in parts.items():
            file.writestr(name, part)
    return buffer.getvalue()


def hdf5(change, path=WORDS, contents=b""):
    """Returns an HDF5 file, or the contents of one, that a function has changed."""
    buffer = io.BytesIO(contents)
    with h5py.File(buffer, "r+" if contents else "w") as file:
        if contents:
            del file[path]
        change(file, path)
    return buffer.getvalue()


def framed(record, length=None):
    """Returns a TFRecord, whose length may be another."""
    size = struct.pack("<Q", len(record) if length is None else length)
    return (
        size + records.masked_checksum(size) + record + records.masked_checksum(record)
    )


def safetensors(header, size=None, data=bytes(4)):
    text = json.dumps(header).encode() if isinstance(header, dict) else header
    return struct.pack("<Q", len(text) if size is None else size) + text + data


# What of HDF5 leads out of the file.
def external_storage(secret):
    def change(file, path):
        external = [(str(secret), 0, 4 * 12 * 12)]
        file.create_dataset(path, SHAPE, np.float32, external=external)

    return change


def virtual(secret):
    def change(file, path):
        layout = h5py.VirtualLayout(SHAPE, np.float32)
        layout[:] = h5py.VirtualSource(str(secret), "0", SHAPE, np.float32)
        file.create_virtual_dataset(path, layout)

    return change


def external_link(secret):
    def change(file, path):
        file[path] = h5py.ExternalLink(str(secret), "/0")

    return change


def external_group(secret):
    def change(file, path):
        group = path.rpartition("/")[0]
        if group in file:
            del file[group]
        file[group] = h5py.ExternalLink(str(secret), "/layers")

    return change


def cycle(secret):
    def change(file, path):
        file[path] = h5py.SoftLink("/" + path.split("/")[0])

    return change


def large(secret):
    def change(file, path):
        file.create_dataset(path, (10**6, 10**6), np.float32, chunks=(9, 9))

    return change


WAYS = [external_storage, virtual, external_link, external_group, cycle, large]


def opens(name):
    """Opens a file of weights, or the folder that it is in."""
    whole = name.endswith((".bin", "model.weights.h5", "model.safetensors", "point"))
    return lambda path: weights.open_source(path.parent if whole else path)


def reads_vocabulary(path):
    tokenization.load(*((None, path) if path.suffix == ".txt" else (path, None)))


def reads_records(path):
    records.verify([str(path)], {"input_ids": ("int", 4)})


def reads_table(path):
    tables.read(path, [tables.Column("text", 0)], list)


def finds_vocabulary(path):
    ModelFolder(path.parent).find_tokenizer()


def reads_config(path):
    flags._read_config(str(path))


READERS = {
    "pytorch_model.bin": opens("pytorch_model.bin"),
    "model.safetensors": opens("model.safetensors"),
    "model.weights.h5": opens("model.weights.h5"),
    "model.keras": opens("model.keras"),
    "model.ckpt-1.index": opens("model.ckpt-1.index"),
    "checkpoint": opens("checkpoint"),
    "saved_model.pb": lambda path: weights.open_source(path.parent),
    "spiece.model": reads_vocabulary,
    "vocab.txt": reads_vocabulary,
    "albert_config.json": AlbertConfig.from_json_file,
    "task.json": lambda path: metadata.read_task(path.parent),
    "vocabulary.json": finds_vocabulary,
    "cache.npz": lambda path: cache.load_or_make(path, {}, dict),
    "data.tfrecord": reads_records,
    "data.csv": reads_table,
    "data.jsonl": reads_table,
    "squad.json": squad.read,
    "race.txt": race.read_file,
    "tags.conll": tagging.read_file,
    "run.yaml": reads_config,
    "run.json": reads_config,
}


def keras_config(saved, change):
    noted = json.loads(saved["config.json"])
    change(noted)
    return zipped({**saved, "config.json": json.dumps(noted).encode()})


def lambda_layer(noted):
    noted |= {
        "module": "keras.layers",
        "class_name": "Lambda",
        "registered_name": None,
        "config": {"name": "f", "function": {"class_name": "__lambda__", "config": {}}},
    }


def module_of_python(noted):
    noted |= {"module": "os", "class_name": "function", "config": "system"}
    noted["registered_name"] = "function"


CASES = {}


def case(name, file, data):
    """Enters a file, or what makes it of the secret's path and `saved`."""
    CASES[name] = file, data if callable(data) else lambda secret, saved: data


for file in READERS:
    case(f"pickle as {file}", file, PICKLE)
for way in WAYS:
    case(
        f"{way.__name__} in .h5",
        "model.weights.h5",
        lambda secret, saved, way=way: hdf5(way(secret)),
    )
    case(
        f"{way.__name__} in .keras",
        "model.keras",
        lambda secret, saved, way=way: zipped(
            {**saved, H5: hdf5(way(secret), KERNEL, saved[H5])}
        ),
    )
for name, change in (("Lambda", lambda_layer), ("os.system", module_of_python)):
    case(
        f"{name} in .keras",
        "model.keras",
        lambda secret, saved, change=change: keras_config(saved, change),
    )
case("bomb in .keras", "model.keras", zipped({"config.json": bytes(3_000_000)}))
case(
    "names elsewhere in .keras",
    "model.keras",
    lambda secret, saved: zipped({**saved, "assets/../../../outside/new": b"x"}),
)
HEADER = {"w": {"dtype": "F32", "shape": [HUGE], "data_offsets": [0, 4 * HUGE]}}
case("header of 10^12 bytes", "model.safetensors", safetensors(b"{}", HUGE))
case("shape of 10^12", "model.safetensors", safetensors(HEADER))
case("record of 10^12 bytes", "data.tfrecord", framed(b"", HUGE))
case("record of 2^63 bytes", "data.tfrecord", framed(b"", 2**63))
case("bomb as records", "data.tfrecord", gzip.compress(bytes(50_000_000)))
case("checkpoint elsewhere", "checkpoint", b'model_checkpoint_path: "../outside/s"\n')
for key, value in {
    "vocabulary": "../outside/secret.h5",
    "labels": [Code.__name__, 7],
}.items():
    case(f"{key} in task.json", "task.json", json.dumps({key: value}).encode())
case(
    "vocabulary elsewhere",
    "vocabulary.json",
    lambda secret, saved: json.dumps({"vocabulary": str(secret)}).encode(),
)
case("nested JSON", "albert_config.json", b'{"a":' * 200_000)
case("nested SQuAD", "squad.json", b"[" * 200_000)
case("nested row", "data.jsonl", b'{"text":' + b"[" * 200_000 + b"\n")
case("sizes of 10^12", "albert_config.json", b'{"vocab_size": 1000000000000}')
case("number of 10^6 digits", "squad.json", b'{"data": ' + b"1" * 10**6 + b"}")
case("nested YAML", "run.yaml", b"[" * 20_000)
case("code in YAML", "run.yaml", b"!!python/object/apply:os.system ['touch harmed']")
case("flags in YAML", "run.yaml", b"!!python/name:os.system : 1\n")
case("cycle in YAML", "run.yaml", b"&a [*a]")
case("bomb in YAML", "run.yaml", b"a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n")
case("other flagfile", "run.yaml", b"flagfile: ../outside/secret.h5\n")


@pytest.mark.parametrize("name", CASES)
def test_a_file_made_to_harm_is_refused(
    name, audited, saved, secret, tmp_path, monkeypatch
):
    file, make = CASES[name]
    folder = tmp_path / "given"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / file).write_bytes(make(secret, saved))
    if file == "saved_model.pb":
        (folder / "variables").mkdir()
        (folder / "variables/variables.index").write_bytes(PICKLE)
    _events.clear()
    with untouched(secret), pytest.raises(InputError) as refused:
        READERS[file](folder / file)
    assert "\n" not in str(refused.value)
    assert not _events
    assert not (folder / "harmed").exists()


def test_a_slice_of_a_tensor_of_a_trillion_numbers_is_refused(tmp_path):
    tf = pytest.importorskip("tensorflow")
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "model.ckpt-1"),
        tensor_names=["bert/w"],
        shape_and_slices=["1000000 1000000 0,1:0,1"],
        tensors=[np.ones((1, 1), np.float32)],
    )
    with pytest.raises(InputError, match=r"bert/w has shape .1000000, 1000000.; exp"):
        weights.open_source(tmp_path)
