"""Checkpoints of a run: TF1 checkpoints, with extra tensors for an exact resume.

The folder of a run has the files of the released code: `checkpoint`,
`albert_config.json`, and `model.ckpt-<step>.*` with the optimizer's slots and
`global_step`. So the released code can resume a run of this code, and vice versa. The
extra tensors have names under `albert_tf/`: the number of examples seen, the states
of the dropout seeds, and the loss scale.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from albert_tf import errors, weights
from albert_tf.data import files, json_values
from albert_tf.errors import InputError
from albert_tf.weights import checkpoints, metadata
from albert_tf.weights.checkpoints import BEST

# The name of the tensor with the number of examples seen.
_EXAMPLES = "albert_tf/examples_seen"
_SUFFIXES = (".data-00000-of-00001", ".index")


class Checkpoints:
    """Saves, restores and deletes the checkpoints in the folder of a run.

    Args:
        folder: the folder, which need not exist yet.
        model: the model to save and restore.
        optimizer: the optimizer, whose slots and step are also saved.
        keep: number of newest checkpoints to keep, besides the best; 0 keeps all.
    """

    def __init__(
        self,
        folder: Path,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        keep: int,
    ):
        self._folder = folder
        self._model = model
        self._optimizer = optimizer
        # {name of a tensor: state of a dropout seed or of loss scaling}. The variables
        # that are not trained are the states of the seeds. Seeds are numbered, because
        # the name of a Keras variable depends on the models that the process has built
        # before.
        self._state = {
            f"albert_tf/seed_{number}": variable
            for number, variable in enumerate(model.non_trainable_variables)
        }
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            self._optimizer = optimizer.inner_optimizer
            self._state["albert_tf/loss_scale"] = optimizer.dynamic_scale
            self._state["albert_tf/loss_scale_steps"] = optimizer.step_counter
        self._keep = keep

    def prefix(self, step: int) -> Path:
        """Returns the path of a step's checkpoint, without the suffixes."""
        return self._folder / f"model.ckpt-{step}"

    def newest(self) -> Path | None:
        """Returns the prefix of the newest checkpoint, or None if there is none."""
        steps = checkpoints.list_steps(self._folder)
        return self.prefix(steps[-1]) if steps else None

    def restore(self, prefix: Path, batch_size: int) -> int:
        """Restores the model, the optimizer, the dropout seeds and the loss scale.

        Args:
            prefix: path of a checkpoint of this code or of the released code.
            batch_size: examples per step. A checkpoint of the released code lacks the
                number of examples seen. Then the number is `batch_size` times the step.

        Returns:
            The number of examples seen.

        Raises:
            InputError: the checkpoint is damaged, or does not fit the model.
        """
        self._load(prefix, optimizer=self._optimizer)
        source = weights.open_source(prefix)
        for name, variable in self._state.items():
            # `ignored` has the names of the tensors that are not weights.
            if name in source.ignored:
                variable.assign(source.read(name))
        if _EXAMPLES in source.ignored:
            return int(source.read(_EXAMPLES))
        return count_steps(self._optimizer) * batch_size

    def _load(self, prefix: Path, **options: Any) -> None:
        """Loads weights; if they do not fit the model, the error has one line."""
        try:
            weights.load(self._model, prefix, **options)
        except weights.MisfitError as misfit:
            # The second line of the message has the first difference.
            difference = str(misfit).splitlines()[1].strip()
            raise InputError(
                f"--output_dir={self._folder}: {prefix.name} has another model "
                f"({difference}); use another folder"
            ) from misfit

    def save(self, examples_seen: int) -> None:
        """Writes a checkpoint of the current step, and deletes the oldest ones.

        Raises:
            InputError: the checkpoint cannot be written.
        """
        step = count_steps(self._optimizer)
        extra = {k: keras.ops.convert_to_numpy(v) for k, v in self._state.items()}
        extra[_EXAMPLES] = np.asarray(examples_seen, np.int64)
        prefix, optimizer = self.prefix(step), self._optimizer
        weights.save(self._model, prefix, "tf1", optimizer=optimizer, extra=extra)
        steps = checkpoints.list_steps(self._folder)
        for old_step in steps[: -self._keep] if self._keep else ():
            # The index is deleted first. If the process is killed before it deletes the
            # data, the checkpoint is ignored, because it has no index.
            for suffix in reversed(_SUFFIXES):
                with errors.wrap_write(self.prefix(old_step)):
                    Path(f"{self.prefix(old_step)}{suffix}").unlink(missing_ok=True)

    @property
    def best(self) -> Mapping[str, float]:
        """The step and the metrics of the best checkpoint; empty if there is none."""
        path = self._folder / f"{BEST}.json"
        if not (path.exists() and path.with_suffix(".index").exists()):
            return {}  # no best one, or the process was killed in `mark_best`
        return json_values.read_object(path)

    def restore_best(self) -> bool:
        """Restores the best weights and their step.

        Returns:
            Whether there is a best checkpoint.
        """
        prefix = self._folder / BEST
        if not prefix.with_name(f"{BEST}.index").exists():
            return False
        self._load(prefix)
        self._optimizer.iterations.assign(self.best.get("step", 0))
        return True

    def mark_best(self, step: int, metrics: Mapping[str, float]) -> None:
        """Copies a checkpoint to `model.ckpt-best`, and writes what `best` returns.

        Args:
            step: the step of the checkpoint.
            metrics: the step and the metrics of the evaluation.

        Raises:
            InputError: the copy cannot be written; the previous best checkpoint stays.
        """
        best = self._folder / BEST
        with errors.wrap_write(best), files.atomic_folder(self._folder) as new:
            for suffix in _SUFFIXES:
                shutil.copyfile(f"{self.prefix(step)}{suffix}", new / f"{BEST}{suffix}")
            (new / f"{BEST}.json").write_bytes(metadata.to_json(metrics))


def count_steps(optimizer: keras.optimizers.Optimizer) -> int:
    """Returns the number of updates that an optimizer has made."""
    return int(keras.ops.convert_to_numpy(optimizer.iterations))
