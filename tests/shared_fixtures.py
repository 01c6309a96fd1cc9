"""Fixtures that test files share; `conftest.py` loads them."""

import dataclasses
import gc
import io
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import urllib.response
from multiprocessing import forkserver
from pathlib import Path

import albert_tf  # noqa: F401 (before TensorFlow, as the scripts do)

# Threads of several test processes would wait for each other. TensorFlow reads these
# variables when it is imported, also in the processes that tests start.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
# Most functions that XLA compiles run once, so optimization and fusion cost more time.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false",
)

# isort: split
import helpers
import keras
import numpy as np
import pytest
import tensorflow as tf
from absl import flags as absl_flags
from helpers import DATA
from keras import ops

from albert_tf import commands, flags, weights
from albert_tf.errors import InputError
from albert_tf.tasks import confusion, registry
from albert_tf.tasks.settings.fine_tuning import ModelSettings
from albert_tf.tasks.settings.training import TrainingSettings
from albert_tf.text import tokenization
from albert_tf.train import curves

# A picture of one pixel.
NO_PICTURE = tf.io.encode_png(np.zeros([1, 1, 3], np.uint8)).numpy()


# Shells start background processes with Ctrl-C ignored, and child processes inherit it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """Runs scripts first, then large files, so that all processes end together."""
    items.sort(
        key=lambda item: (item.path.parent.name != "scripts", -item.path.stat().st_size)
    )


def pytest_collection_finish():
    """Saves time: hides imported objects from garbage collection, and calls it less."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def keep_kernels():
    """Sets TensorFlow's seed once; then `tf.random.set_seed` does nothing.

    Each call would delete the kernels that TensorFlow has created. To create them again
    takes a tenth of the time of fine-tuning tests. Keras, NumPy and Python still get
    the seed of `keras.utils.set_random_seed`. The seed of TensorFlow affects only the
    order in which TFRecords are shuffled. It is the default of --seed, so a run in this
    process has the same order as a run in a process of its own.
    """
    tf.random.set_seed(TrainingSettings(output_dir="").seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf.random, "set_seed", lambda seed: None)
        yield


@pytest.fixture(scope="session")
def data():
    """The folder of recorded outputs; its README describes their origin."""
    return DATA


@pytest.fixture(scope="session")
def processes():
    """Starts processes quickly, with the imports of the scripts already done."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["albert_tf.train.finetune", "albert_tf.tasks.pretraining"]
    )
    with pytest.MonkeyPatch.context() as environ:
        # TensorFlow reads it when it is imported. `flags.run_main` sets the same value.
        environ.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
        forkserver.ensure_running()
    return context


@pytest.fixture
def settings_of(monkeypatch):
    """Reads the command line of a script or a command without running it.

    `settings_of("run_race.py", "--data_dir=x")` returns the settings in the order of
    `SETTINGS` of the command `race`. A call without flags returns their classes.
    """
    names = {script: name for name, script in commands.SCRIPTS.items()}

    def read(script, *arguments):
        monkeypatch.setattr(absl_flags, "FLAGS", absl_flags.FlagValues())
        monkeypatch.setattr(flags, "_defined", [])
        name = names.get(script, script)
        for settings in commands.find_command(name).SETTINGS:
            flags.define(settings)
        if arguments:
            absl_flags.FLAGS(flags._expand([script, *arguments]))
            flags._overrule_flagfiles([script, *arguments])
            return [flags.read(settings) for settings in flags._defined]
        return flags._defined

    return read


def run_eagerly():
    """Runs functions eagerly, because building a graph takes longer than few steps."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(before)


eagerly = pytest.fixture(run_eagerly)
# For fixtures of a module; it also affects all later tests of the module.
module_eagerly = pytest.fixture(run_eagerly, scope="module")


@pytest.fixture(scope="session", autouse=True)
def draw():
    """Replaces the functions that draw, which take longer than a few training steps.

    The value is a pair of the original functions. They still run in other processes,
    except those of tests/train/test_loop.py, and in tests with the fixture `draws`.
    """
    with pytest.MonkeyPatch.context() as patch:
        originals = curves.draw, confusion.draw
        patch.setattr(curves, "draw", lambda read, picture: Path(picture).touch())
        patch.setattr(confusion, "draw", lambda matrices: NO_PICTURE)
        yield originals


@pytest.fixture
def draws(draw, monkeypatch):
    """Restores the functions that draw, see `draw`."""
    for module, function in zip((curves, confusion), draw, strict=True):
        monkeypatch.setattr(module, "draw", function)


@pytest.fixture(scope="session")
def fine_tune():
    """Fine-tunes a family of tasks with the flags of its script; returns the log."""

    def call(family, run_settings, flags, model, log=None):
        from albert_tf.train import ensembles
        from albert_tf.train.settings import DistributionSettings

        log = log or io.StringIO()
        settings_class = registry.find_pipeline_class(
            family.task_types[0]
        ).settings_class
        names = {item.name for item in dataclasses.fields(settings_class)}
        own = {name: value for name, value in flags.items() if name in names}
        others = {name: value for name, value in flags.items() if name not in names}
        ensembles.fine_tune(
            family,
            settings_class(**own),
            run_settings(**others),
            model,
            DistributionSettings(),
            log,
        )
        return log.getvalue()

    return call


@pytest.fixture(scope="session")
def golden():
    """Reads a recorded file as a dict: `golden("model_small")["out/pooled_output"]`."""

    def read(name):
        if name.endswith(".json"):
            return json.loads((DATA / name).read_text())
        with np.load(DATA / f"{name}.npz") as arrays:
            return dict(arrays)

    return read


@pytest.fixture(scope="session")
def snapshot():
    """Returns {path: bytes} of all files in a folder; None for folders inside."""

    def take(folder):
        paths = sorted(Path(folder).rglob("*"))
        return {path: path.read_bytes() if path.is_file() else None for path in paths}

    return take


@pytest.fixture(scope="session")
def tiny():
    """Makes a config in which no two sizes are equal (D is 4)."""
    return helpers.tiny


@pytest.fixture(scope="session")
def tokenizer(data):
    """A tokenizer with 1,500 tokens, which lower-cases and removes accents."""
    return tokenization.SentencePieceTokenizer(str(data / "spm_small.model"))


@pytest.fixture(scope="session")
def new_model(data, tiny, tmp_path_factory):
    """Makes the settings of a new one-layer model with the tokens of `tokenizer`."""

    def make(**changes):
        sizes = {"vocab_size": 1500, "num_hidden_layers": 1}
        sizes |= {"max_position_embeddings": 40, **changes}
        path = tmp_path_factory.mktemp("model") / "config.json"
        path.write_text(tiny(**sizes).to_json_string())
        return ModelSettings(
            albert_config_file=str(path), spm_model_file=str(data / "spm_small.model")
        )

    return make


@pytest.fixture(scope="session")
def refuses():
    """Expects an InputError with a message: `with refuses("--x=1: must be ..."):`."""

    def expect(message):
        return pytest.raises(InputError, match=rf"^{re.escape(str(message))}\Z")

    return expect


@pytest.fixture(scope="session")
def tokens():
    """Makes inputs of B=2, T=7, P=6 for a tiny model; the second row has padding."""

    def make():
        random = np.random.default_rng(11)
        mask = np.ones((2, 7), "int32")
        mask[1, 4:] = 0
        return {
            "input_ids": random.integers(0, 23, (2, 7), "int32"),
            "input_mask": mask,
            "segment_ids": random.integers(0, 10, (2, 7), "int32"),
            "masked_lm_positions": random.integers(0, 4, (2, 6), "int32"),
        }

    return make


@pytest.fixture(scope="session")
def arrays():
    """Turns the tensors and variables of a nested structure into numpy arrays."""
    return lambda structure: keras.tree.map_structure(ops.convert_to_numpy, structure)


class Server(urllib.request.BaseHandler):
    """Answers requests to any server; `files` has the content of each address."""

    def __init__(self):
        self.files = {}
        self.requests = []

    def https_open(self, request):
        url = request.full_url
        self.requests.append(url)
        if url not in self.files:
            raise urllib.error.URLError("Name or service not known")
        contents = self.files[url]
        headers = {"Content-Length": str(len(contents))}
        return urllib.response.addinfourl(io.BytesIO(contents), headers, url, 200)


@pytest.fixture
def server(monkeypatch, tmp_path):
    """Answers requests to any server; downloads go to `tmp_path / "home"`."""
    server, opener = Server(), urllib.request.OpenerDirector()
    opener.add_handler(server)
    opener.add_handler(urllib.request.FileHandler())
    monkeypatch.setattr(urllib.request, "_opener", opener)
    monkeypatch.setenv("ALBERT_TF_HOME", str(tmp_path / "home"))
    return server


def _tensorflow(function, variables):
    with tf.GradientTape() as tape:
        loss = function()
    return tape.gradient(loss, [variable.value for variable in variables])


def _jax(function, variables):
    import jax

    def loss(values):
        with keras.StatelessScope(list(zip(variables, values, strict=True))):
            return function()

    return jax.jit(jax.grad(loss))([variable.value for variable in variables])


def _torch(function, variables):
    import torch

    values = [variable.value for variable in variables]
    return torch.autograd.grad(function(), values, allow_unused=True)


@pytest.fixture(scope="session")
def differentiate():
    """Returns the gradients of a scalar function of Keras variables, as numpy arrays.

    If the function does not depend on a variable, its gradient is zeros.
    """
    backend = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}

    def gradients(function, variables):
        values = backend[keras.backend.backend()](function, variables)
        return [
            np.zeros(variable.shape, "float32")
            if gradient is None
            else ops.convert_to_numpy(gradient)
            for variable, gradient in zip(variables, values, strict=True)
        ]

    return gradients


# tensorflow_hub needs one function of pkg_resources, an old part of setuptools.
_CLEAN_START = """
import sys, types
sys.modules["albert_tf"] = None  # its import fails
# Keras imports these three if they are installed, which takes seconds.
for name in ("matplotlib", "pandas", "sklearn"):
    sys.modules[name] = None
import packaging.version
parse = types.SimpleNamespace(parse_version=packaging.version.parse)
sys.modules.setdefault("pkg_resources", parse)
"""


@pytest.fixture(scope="session")
def without_package():
    """Runs code in a process that cannot import this package; returns its output."""

    def run(code, *arguments):
        process = subprocess.run(
            [sys.executable, "-c", _CLEAN_START + code, *map(str, arguments)],
            capture_output=True,
            text=True,
        )
        assert process.returncode == 0, process.stderr[-3000:]
        return process.stdout

    return run


@pytest.fixture
def write_checkpoint(tmp_path):
    """Writes the weights of a recording as a TF1 checkpoint; returns its prefix.

    The recordings of heads do not contain the weights of the encoder. These come from
    the recording of the small model.
    """

    def write(recorded, section=""):
        with np.load(DATA / "model_small.npz") as encoder:
            values = {**encoder, **recorded}
        tensors = {
            name: value
            for prefix in ("var/", f"{section}var/")
            for key, value in values.items()
            if (name := key.removeprefix(prefix)) != key
        }
        return helpers.write_tf1(tmp_path / "released.ckpt", tensors)

    return write


@pytest.fixture
def assert_released_gradients(differentiate, tmp_path):
    """Compares gradients of a loss, and their global norm, with a recording.

    The gradients replace the model's weights and are saved as a TF1 checkpoint, because
    its tensors have the released names and layout.
    """

    def check(model, loss, recorded, section="", zeros=(), norm="global_norm_dense"):
        variables = model.trainable_variables
        for variable, gradient in zip(
            variables, differentiate(loss, variables), strict=True
        ):
            variable.assign(gradient)
        ours = helpers.read_tf1(weights.save(model, tmp_path / "gradients", "tf1"))
        start = f"{section}grad/"
        expected = {
            key.removeprefix(start): gradient
            for key, gradient in recorded.items()
            if key.startswith(start)
        }
        assert expected.keys() <= ours.keys()
        for name, gradient in expected.items():
            # A gradient that is 0 in exact arithmetic is noise and has no scale.
            bound = 1e-6 if name.endswith(zeros) else 1e-4 * np.abs(gradient).max()
            assert np.abs(ours[name] - gradient).max() <= bound, name
        total = np.sqrt(sum(np.square(gradient).sum() for gradient in ours.values()))
        assert total == pytest.approx(recorded[f"{section}{norm}"], rel=1e-5)
        return expected.keys()

    return check
