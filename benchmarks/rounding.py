"""Measures what shorter weights cost: the scores of a fine-tuned model's exports.

    python benchmarks/rounding.py --model=runs/sst-2 --task_name=sst-2 --data_dir=glue

Keras's answers, and those of LiteRT and ONNX Runtime with weights of every precision,
are scored on the labelled rows of a task, in the same batches of like length; "same" is
the share of the rows that get Keras's answer.
"""

import dataclasses
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from keras import ops

from albert_tf import flags, weights
from albert_tf.serve import runtimes
from albert_tf.tasks import catalogue, classification
from albert_tf.text import inputs
from albert_tf.weights import model_folder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What to measure."""

    model: str = flags.field("Folder of a run of run_classifier.py.")
    task_name: str = flags.field("Its task, one of GLUE's.")
    data_dir: str = flags.field("Folder of GLUE's data.")
    split: str = flags.field("Rows to score, dev or train.", "dev")
    batch_size: int = flags.field("Rows of a batch.", 16)


flags.define(Settings)


class Rows:
    """The labelled rows of a task, and the model that answers them in Keras."""

    def __init__(self, settings: Settings, folder: Path):
        opened = model_folder.read(settings.model)
        declared = catalogue.find(settings.task_name)
        split = classification.convert(
            declared,
            settings.split,
            declared.read(settings.split, settings.data_dir),
            opened.tokenizer,
            opened.task["max_seq_length"],
            folder,
        )
        self.task = classification.Classification(
            declared,
            opened.config,
            opened.tokenizer,
            max_seq_length=opened.task["max_seq_length"],
            evaluation=[split],
        )
        self.model = self.task.build_model()
        weights.load(self.model, settings.model)
        order = np.argsort(split.inputs.lengths, kind="stable")
        cuts = range(settings.batch_size, len(order), settings.batch_size)
        self.batches = np.split(order, cuts)
        self._split = split
        self._decided: np.ndarray | None = None  # by the first program

    def scores(self, run: Callable[[Mapping], Mapping]) -> dict[str, float]:
        """Returns the task's scores of a program, by their names, and "same"."""
        found: dict[int, Mapping[str, Any]] = {}
        for rows in self.batches:
            length = int(self._split.inputs.lengths[rows].max())
            batch = inputs.pad(
                self._split.inputs, rows, length, self.task.tokenizer.pad_id
            )
            outputs = self.task.predictions(run(batch), batch)["outputs"]
            for row, output in zip(rows, ops.convert_to_numpy(outputs), strict=True):
                found[row] = {"outputs": output}
        in_order = [found[row] for row in sorted(found)]
        scores = self.task.score(iter(in_order), {"loss": float("nan")})
        outputs = classification.stacked(iter(in_order))
        decided = np.round(self.task.declared.predict(outputs), 3)
        if self._decided is None:
            self._decided = decided
        same = np.isclose(decided, self._decided).reshape(len(decided), -1).all(-1)
        return {name: scores[name] for name in self.task.shown} | {"same": same.mean()}


def main() -> None:
    """Prints the scores of every format and precision."""
    settings = flags.read(Settings)
    with tempfile.TemporaryDirectory() as folder:
        rows = Rows(settings, Path(folder))
        _print("Keras", "float32", rows.scores(rows.model))
        for format, suffix in runtimes.SUFFIXES.items():
            for precision in runtimes.PRECISIONS:
                path = Path(folder, precision).with_suffix(suffix)
                runtimes.save(rows.model, path, format, precision=precision)
                size = f"{precision}, {path.stat().st_size / 1e6:.1f} MB"
                _print(format, size, rows.scores(runtimes.load(path)))


def _print(format: str, size: str, scores: Mapping[str, float]) -> None:
    listed = "  ".join(f"{name} {value:.4f}" for name, value in scores.items())
    print(f"{format:8}{size:20}{listed}", flush=True)


if __name__ == "__main__":
    flags.run(main)
