"""Opens models in ONNX Runtime or LiteRT, which need neither TensorFlow nor Keras."""

import dataclasses
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from albert_tf import errors
from albert_tf.data import cores
from albert_tf.errors import InputError

SUFFIXES = {"litert": ".tflite", "onnx": ".onnx"}
# The name, without suffix, of the model file in a folder that `convert_checkpoint.py`
# writes. This folder also has the vocabulary and `task.json`.
NAME = "albert"

_Arrays = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Session:
    """A file of `runtimes.save`, opened in its runtime on the CPU.

    Attributes:
        path: the file.
        inputs: the names of the model's inputs.
        outputs: the names of the model's outputs.
        forward: a function that computes the outputs from int32 inputs, both by name.
    """

    path: Path
    inputs: list[str]
    outputs: list[str]
    forward: Callable[[_Arrays], dict[str, np.ndarray]]

    def __call__(self, batch: _Arrays) -> dict[str, np.ndarray]:
        """Runs the model on a batch of int arrays by name.

        Arrays whose names are not in `inputs` are ignored.

        Raises:
            InputError: an input is missing.
        """
        missing = [name for name in self.inputs if name not in batch]
        if missing:
            raise InputError(
                f"{self.path} takes {', '.join(self.inputs)}; missing: "
                f"{', '.join(missing)}"
            )
        return self.forward({n: np.asarray(batch[n], np.int32) for n in self.inputs})


def find(path: str | Path) -> Path | None:
    """Returns the LiteRT or ONNX file in a folder; None if there is none.

    The file has the name albert.tflite or albert.onnx, as in the folders that
    `convert_checkpoint.py` writes.

    Raises:
        InputError: the path is a LiteRT or ONNX file, not a folder with a vocabulary.
    """
    path = Path(path)
    if path.suffix in SUFFIXES.values() and path.is_file():
        raise InputError(
            f"{path}: a model of token ids, not of text; pass a folder that "
            f"convert_checkpoint.py wrote"
        )
    files = (path / f"{NAME}{suffix}" for suffix in SUFFIXES.values())
    return next((file for file in files if file.is_file()), None)


def load(path: str | Path, num_threads: int | None = None) -> Session:
    """Opens a file of `runtimes.save`.

    Args:
        path: a `.tflite` or `.onnx` file.
        num_threads: number of threads of one run. By default, a LiteRT model gets one
            thread for each available core, and ONNX Runtime chooses the number.

    Raises:
        InputError: the path is not an existing `.tflite` or `.onnx` file, the file is
            not a valid model, or ONNX Runtime is required and not installed.
    """
    path = Path(path)
    if path.suffix not in SUFFIXES.values():
        raise InputError(f"{path}: must end in {' or '.join(SUFFIXES.values())}")
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    open_file = _open_onnx if path.suffix == SUFFIXES["onnx"] else _open_litert
    return open_file(path, num_threads)


def _open_onnx(path: Path, num_threads: int | None) -> Session:
    errors.check_installed("ONNX", "onnxruntime", extra="onnx")
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as failures

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads or 0  # 0: ONNX Runtime chooses
    try:
        session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
    except (failures.InvalidProtobuf, failures.InvalidGraph, failures.Fail):
        raise InputError(f"{path}: not an ONNX model") from None
    outputs = [tensor.name for tensor in session.get_outputs()]

    def forward(inputs: _Arrays) -> dict[str, np.ndarray]:
        return dict(zip(outputs, session.run(outputs, inputs), strict=True))

    names = [tensor.name for tensor in session.get_inputs()]
    return Session(path, inputs=names, outputs=outputs, forward=forward)


def _open_litert(path: Path, num_threads: int | None) -> Session:
    from ai_edge_litert.interpreter import Interpreter

    try:
        # LiteRT's own default is a single thread.
        threads = num_threads or cores.available()
        interpreter = Interpreter(str(path), num_threads=threads)
        interpreter.allocate_tensors()
    except (ValueError, RuntimeError):
        raise InputError(f"{path}: not a LiteRT model") from None
    # A signature runner resizes the input tensors to the size of each batch.
    runner: Any = interpreter.get_signature_runner()
    lock = threading.Lock()  # without it, threads overwrite each other's tensors

    def forward(inputs: _Arrays) -> dict[str, np.ndarray]:
        with lock:
            return runner(**inputs)

    names = list(runner.get_input_details())
    outputs = list(runner.get_output_details())
    return Session(path, inputs=names, outputs=outputs, forward=forward)
