"""Runs weights in the program that they belong to, in a process of its own.

PyTorch and TensorFlow crash each other where TensorFlow is imported first. So the
process imports no other library of this package's but numpy before the program's own:

    python programs.py PROGRAM PLACE INPUTS.npz OUTPUTS.npz
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from albert_tf.errors import InputError

# Hugging Face's classes for ALBERT; a config.json that names another one is refused.
ARCHITECTURES = (
    "AlbertModel",
    "AlbertForPreTraining",
    "AlbertForMaskedLM",
    "AlbertForQuestionAnswering",
    "AlbertForSequenceClassification",
    "AlbertForTokenClassification",
    "AlbertForMultipleChoice",
)


def obstacle(place: Path, format: str) -> str | None:
    """Returns why weights cannot be run by their own program here; None if they can.

    Args:
        place: file, folder or prefix.
        format: as `weights.open_source` names it.
    """
    program = _PROGRAMS.get(format)
    if program is None:
        return "no program for this format here"
    if not (place / "config.json").is_file():
        return "no folder with config.json"
    missing = [name for name in program[1] if importlib.util.find_spec(name) is None]
    return f"needs {' and '.join(missing)}" if missing else None


def run(
    place: Path, format: str, tokens: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Runs weights that have no `obstacle`.

    Args:
        place: folder.
        format: as `weights.open_source` names it.
        tokens: `input_ids`, `input_mask` and `segment_ids`, int32 [B, T].

    Returns:
        float arrays under our names of outputs.

    Raises:
        InputError: the program failed.
    """
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        inputs, outputs = Path(folder, "inputs.npz"), Path(folder, "outputs.npz")
        np.savez(inputs, **tokens)  # type: ignore[arg-type] # (numpy's annotation)
        # -P: modules in the current folder are none of Python's.
        command = [sys.executable, "-P", __file__, format, place]
        done = subprocess.run(
            [*map(str, command), inputs, outputs],
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
        )
        if done.returncode:
            lines = [f"status {done.returncode}", *done.stderr.strip().splitlines()]
            raise InputError(f"{place}: {format} itself cannot run it: {lines[-1]}")
        with np.load(outputs) as arrays:
            return dict(arrays)


def _run_huggingface(place: Path, tokens: Mapping[str, np.ndarray]):
    import torch  # before anything that may import TensorFlow
    import transformers

    config = json.loads((place / "config.json").read_text(encoding="utf-8"))
    architecture = (config.get("architectures") or ["AlbertModel"])[0]
    if architecture not in ARCHITECTURES:
        sys.exit(
            f"architectures={config['architectures']!r} in config.json; expected one "
            f"of {', '.join(ARCHITECTURES)}"
        )
    model = getattr(transformers, architecture).from_pretrained(
        place, dtype=torch.float32, use_safetensors=True, trust_remote_code=False
    )
    model.eval()
    tensors = {key: torch.tensor(value).long() for key, value in tokens.items()}
    names = {
        "last_hidden_state": "sequence_output",
        "pooler_output": "pooled_output",
        "prediction_logits": "mlm_logits",
        "logits": "mlm_logits" if "MaskedLM" in architecture else "logits",
    }
    if "MultipleChoice" in architecture:
        tensors = {key: value[:, None] for key, value in tensors.items()}
    with torch.no_grad():
        outputs = model(
            input_ids=tensors["input_ids"],
            attention_mask=tensors["input_mask"],
            token_type_ids=tensors["segment_ids"],
        )
    return {names.get(key, key): value.numpy() for key, value in outputs.items()}


def _run_kerashub(place: Path, tokens: Mapping[str, np.ndarray]):
    import keras_hub

    model = keras_hub.models.AlbertBackbone.from_preset(str(place))
    outputs = model(
        {
            "token_ids": tokens["input_ids"],
            "padding_mask": tokens["input_mask"],
            "segment_ids": tokens["segment_ids"],
        }
    )
    return {key: np.asarray(value) for key, value in outputs.items()}


# By format: how it runs, and what has to be installed.
_PROGRAMS = {
    "hf": (_run_huggingface, ("torch", "transformers")),
    "kerashub": (_run_kerashub, ("keras_hub",)),
}


def _main(format: str, place: str, inputs: str, outputs: str) -> None:
    with np.load(inputs) as arrays:
        np.savez(outputs, **_PROGRAMS[format][0](Path(place), dict(arrays)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
