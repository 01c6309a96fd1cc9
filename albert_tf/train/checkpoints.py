"""Checkpoints of a run: released TF1 checkpoints that also hold the run's position.

A folder of a run is a folder of the released code: `model.ckpt-<step>.*` with the
optimizer's slots and `global_step`, `checkpoint`, `albert_config.json`. So either code
resumes a run of the other. Tensors under `albert_tf/` hold what the released code has
no name for: the number of examples seen, a fingerprint of the data, the state of the
dropout seeds, the loss scale.
"""

import contextlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from albert_tf import errors, weights
from albert_tf.data import files
from albert_tf.errors import InputError
from albert_tf.model.config import read_json_object
from albert_tf.weights import checkpoints
from albert_tf.weights.checkpoints import BEST

_EXAMPLES = "albert_tf/examples_seen"
_FINGERPRINT = "albert_tf/examples_fingerprint"
_SUFFIXES = (".data-00000-of-00001", ".index")


class Checkpoints:
    """The checkpoints in one folder.

    Args:
        folder: where they are; it need not exist yet.
        model: whose weights they hold.
        optimizer: whose slots and step they hold.
        keep: how many to keep beside the best; 0 keeps all.
        log: gets a line when one is damaged, or was trained on other examples.
        fingerprint: of the examples to train on, see `batches.Source`; None: unknown.
    """

    def __init__(
        self,
        folder: Path,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        keep: int,
        log: Callable[[str], None] = print,
        fingerprint: int | None = None,
    ):
        self._folder = folder
        self._model = model
        self._optimizer = optimizer
        # By their place: Keras numbers their names by what else the process made.
        self._state = {
            f"albert_tf/seed_{place}": variable
            for place, variable in enumerate(model.non_trainable_variables)
        }
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            self._optimizer = optimizer.inner_optimizer
            self._state["albert_tf/loss_scale"] = optimizer.dynamic_scale
            self._state["albert_tf/loss_scale_steps"] = optimizer.step_counter
        self._keep = keep
        self._log = log
        self._fingerprint = fingerprint

    @property
    def steps(self) -> list[int]:
        """Steps that have a checkpoint, in rising order."""
        return checkpoints.steps(self._folder)

    def prefix(self, step: int) -> Path:
        """Returns the path of a step's checkpoint, without the suffixes."""
        return self._folder / f"model.ckpt-{step}"

    def newest(self) -> Path | None:
        """Returns the newest checkpoint, None where there is none."""
        return self.prefix(self.steps[-1]) if self.steps else None

    def restore(self, prefix: Path, batch_size: int) -> int:
        """Sets the model, the optimizer, the dropout seeds and the loss scale.

        Args:
            prefix: the checkpoint; it may be one of the released code.
            batch_size: examples of a step, for a checkpoint that does not hold how many
                were seen.

        Returns:
            The examples seen so far.

        Raises:
            InputError: it does not fit the model.
        """
        self._load(prefix, optimizer=self._optimizer)
        source = weights.open_source(prefix)
        for name, variable in self._state.items():
            if name in source.ignored:
                variable.assign(source.read(name))
        fingerprint = self._fingerprint
        if _FINGERPRINT in source.ignored:
            fingerprint = int(source.read(_FINGERPRINT))
        if self._fingerprint not in (None, fingerprint):
            self._log(
                f"Warning: {prefix} was trained on other examples than those given "
                f"now; to start anew give another --output_dir"
            )
        if _EXAMPLES in source.ignored:
            return int(source.read(_EXAMPLES))
        return steps_made(self._optimizer) * batch_size

    def _load(self, prefix: Path, **options: Any) -> None:
        """Sets the weights; refuses those of another model in one line.

        Raises:
            InputError: see `weights.load`.
        """
        try:
            weights.load(self._model, prefix, **options)
        except weights.MisfitError as misfit:
            source = weights.open_source(prefix)
            held = type(weights.model_for(source, self._model.config)).__name__
            expected = type(self._model).__name__
            if held == expected:
                difference = str(misfit).splitlines()[1].strip()
                held = f"{held} of another size ({difference})"
            raise InputError(
                f"--output_dir={self._folder}: its {prefix.name} is an {held}, not "
                f"this {expected}; expected another folder"
            ) from misfit

    def remove_unfinished(self) -> None:
        """Removes what a process that was killed while it saved has left."""
        for folder in self._folder.glob(".writing-*"):
            shutil.rmtree(folder, ignore_errors=True)

    def save(self, examples_seen: int) -> Path:
        """Writes a checkpoint of the current step, and deletes what is too old.

        Raises:
            InputError: it cannot be written, or the folder was removed meanwhile.
        """
        step = steps_made(self._optimizer)
        with errors.writing(self.prefix(step)):
            self._folder.stat()  # who removed it wants no new one
        extra = {
            name: keras.ops.convert_to_numpy(value)
            for name, value in self._state.items()
        }
        extra[_EXAMPLES] = np.asarray(examples_seen, np.int64)
        if self._fingerprint is not None:
            extra[_FINGERPRINT] = np.asarray(self._fingerprint, np.int64)
        try:
            weights.save(
                self._model,
                self.prefix(step),
                format="tf1",
                optimizer=self._optimizer,
                extra=extra,
            )
        except InputError:
            self._remove_data_without_index(step)
            raise
        if self._keep:
            # A later one is damaged, or this one would not be the newest.
            steps = [other for other in self.steps if other <= step]
            for old in steps[: -self._keep]:
                # Without its index a checkpoint counts as none: so that goes first.
                for suffix in reversed(_SUFFIXES):
                    with errors.writing(self.prefix(old)):
                        Path(f"{self.prefix(old)}{suffix}").unlink(missing_ok=True)
        return self.prefix(step)

    def _remove_data_without_index(self, step: int) -> None:
        """Removes what a save has left that failed between the two files."""
        data, index = (Path(f"{self.prefix(step)}{suffix}") for suffix in _SUFFIXES)
        if not index.exists():
            with contextlib.suppress(OSError):
                data.unlink(missing_ok=True)

    @property
    def best(self) -> Mapping[str, float]:
        """The step and the metrics of the best checkpoint; empty if there is none."""
        if not (self._folder / f"{BEST}.index").exists():
            return {}  # as after a kill within `mark_best`
        try:
            best = read_json_object(self._folder / f"{BEST}.json")
        except InputError:
            return {}
        numbers = all(type(value) in (int, float) for value in best.values())
        return best if numbers and type(best.get("step")) is int else {}

    def restore_best(self, *, with_step: bool = False) -> bool:
        """Sets the weights to the best checkpoint's, if there is one; perhaps the step.

        Nothing else of the optimizer is set.
        """
        prefix = self._folder / BEST
        if not prefix.with_name(f"{BEST}.index").exists():
            return False
        self._load(prefix)
        if with_step:
            self._optimizer.iterations.assign(self.best.get("step", 0))
        return True

    def mark_best(self, prefix: Path, metrics: Mapping[str, float]) -> None:
        """Copies a checkpoint to `model.ckpt-best`, and its metrics beside it.

        Raises:
            InputError: it cannot be written; the best one before it is kept.
        """
        best = self._folder / BEST
        with errors.writing(best), files.write_together(self._folder) as folder:
            for suffix in _SUFFIXES:
                shutil.copyfile(f"{prefix}{suffix}", folder / f"{BEST}{suffix}")
            notes = json.dumps(metrics, indent=2)
            (folder / f"{BEST}.json").write_text(f"{notes}\n", "utf-8")


def steps_made(optimizer: keras.optimizers.Optimizer) -> int:
    """Returns an optimizer's number of updates, on whatever devices it is."""
    return int(keras.ops.convert_to_numpy(optimizer.iterations))
