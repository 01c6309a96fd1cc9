"""Models that ONNX Runtime or LiteRT run, and folders that hold one with its texts.

An answer from such a folder needs neither TensorFlow nor Keras.
"""

import importlib.util
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from albert_tf.data import cores
from albert_tf.errors import InputError

SUFFIXES = {"litert": ".tflite", "onnx": ".onnx"}
# Of a folder that `convert` writes with the vocabulary and the task beside it.
NAME = "albert"

_Arrays = Mapping[str, np.ndarray]


class Session:
    """A file of `runtimes.save` in its runtime, on the CPU.

    Args:
        path: the file.
        inputs: what it takes, by name.
        outputs: what it gives, by name.
        run: does that.

    Attributes:
        path: as given.
        outputs: as given.
    """

    def __init__(
        self,
        path: Path,
        inputs: list[str],
        outputs: list[str],
        run: Callable[[_Arrays], dict[str, np.ndarray]],
    ):
        self.path = path
        self.outputs = outputs
        self._inputs = inputs
        self._run = run

    def __call__(self, batch: _Arrays) -> dict[str, np.ndarray]:
        """Runs a batch, int arrays by name; what the model does not take is ignored.

        Raises:
            InputError: an input is missing.
        """
        missing = [name for name in self._inputs if name not in batch]
        if missing:
            raise InputError(
                f"{self.path} takes {', '.join(self._inputs)}; missing: "
                f"{', '.join(missing)}"
            )
        return self._run(
            {name: np.asarray(batch[name], np.int32) for name in self._inputs}
        )


def find(path: str | Path) -> Path | None:
    """Returns the file of a folder that answers without TensorFlow.

    Raises:
        InputError: it is such a file itself, which says nothing of texts.
    """
    path = Path(path)
    if path.suffix in SUFFIXES.values() and path.is_file():
        raise InputError(
            f"{path}: a model that takes ids; expected the folder that "
            f"convert_checkpoint.py writes where --output names one"
        )
    files = (path / f"{NAME}{suffix}" for suffix in SUFFIXES.values())
    return next((file for file in files if file.is_file()), None)


def load(
    path: str | Path, num_threads: int | None = None, *, packed: bool = True
) -> Session:
    """Opens a file of `runtimes.save`.

    Args:
        path: a `.tflite` or `.onnx` file.
        num_threads: threads of one run. By default LiteRT has one for each core, and
            ONNX Runtime chooses for itself.
        packed: ONNX Runtime stores copies of the matrices in another order, which take
            half as much memory again and half of the start. With them a batch takes 0.6
            to 0.9 of the time.

    Raises:
        InputError: another file, or the runtime is not installed.
    """
    path = Path(path)
    if path.suffix not in SUFFIXES.values():
        expected = " or ".join(SUFFIXES.values())
        raise InputError(f"{path}: expected a file that ends in {expected}")
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    if path.suffix == SUFFIXES["onnx"]:
        return _open_onnx(path, num_threads, packed)
    return _open_litert(path, num_threads)


def check_installed(*packages: str) -> None:
    """Refuses ONNX without its packages."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise InputError(
                f"ONNX needs the package {package}: pip install 'albert_tf[onnx]'"
            )


def _open_onnx(path: Path, num_threads: int | None, packed: bool) -> Session:
    check_installed("onnxruntime")
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads or 0
    if not packed:
        options.add_session_config_entry("session.disable_prepacking", "1")
    try:
        session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
    except (state.InvalidProtobuf, state.InvalidGraph, state.Fail):
        raise InputError(f"{path}: no ONNX model") from None
    outputs = [tensor.name for tensor in session.get_outputs()]

    def run(inputs: _Arrays) -> dict[str, np.ndarray]:
        return dict(zip(outputs, session.run(outputs, inputs), strict=True))

    return Session(path, [each.name for each in session.get_inputs()], outputs, run)


def _open_litert(path: Path, num_threads: int | None) -> Session:
    from ai_edge_litert.interpreter import Interpreter

    try:
        # By itself it would take a single thread.
        threads = num_threads or cores.available()
        interpreter = Interpreter(str(path), num_threads=threads)
        interpreter.allocate_tensors()
    except (ValueError, RuntimeError):
        raise InputError(f"{path}: no LiteRT model") from None
    # A signature's runner gives its inputs the sizes of what they are given.
    run: Any = interpreter.get_signature_runner()
    lock = threading.Lock()  # An interpreter holds the inputs and outputs of one call.

    def call(inputs: _Arrays) -> dict[str, np.ndarray]:
        with lock:
            return run(**inputs)

    inputs, outputs = list(run.get_input_details()), list(run.get_output_details())
    return Session(path, inputs, outputs, call)
