"""What a run tells: a table at the start, lines on the way, files, and warnings."""

import json
import os
import resource
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import keras

from albert_tf import errors
from albert_tf.data import cores
from albert_tf.errors import InputError
from albert_tf.train import curves

_GIB = 1 << 30
# The estimate of memory is up to so many times of what is taken.
_CLEARLY = 1.2
# Steps after the warm-up until a flat loss is worth a word.
_PATIENCE = 100
_SHORT = {"masked_lm_": "mlm ", "sentence_order_": "order ", "accuracy": "acc"}


class Reporter:
    """Writes lines of progress, `metrics.jsonl` and `eval_results.txt`.

    Args:
        folder: folder of the run.
        log: where lines go.
        task: what is trained.
        config: a `training.TrainingSettings`.
        enabled: False on workers other than the chief, which say and write nothing.

    Attributes:
        last: the figures of the last line, empty before the first.
    """

    def __init__(self, folder: Path, log: IO[str], task, config, enabled: bool = True):
        self.folder = folder
        self.last: dict[str, float] = {}
        self._log = log
        self._task = task
        self._config = config
        self._enabled = enabled
        self._began = time.time()
        self._first_step: int | None = None
        self._last_step = 0
        self._warned = False

    def _end_last_line(self) -> None:
        """Makes the file of figures, or ends the half line of a run that was killed."""
        with (self.folder / "metrics.jsonl").open("a+b") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")

    def say(self, text: str) -> None:
        """Writes a line."""
        if self._enabled:
            self._log.write(f"{text}\n")
            self._log.flush()

    def started(self, model: keras.Model, strategy: Any, step: int) -> None:
        """Makes the folder; writes the table at the start, and hints about settings.

        Raises:
            InputError: the folder cannot be made or written.
        """
        with errors.writing(f"--output_dir={self.folder}"):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._end_last_line()
        config, task = self._config, self._task
        replicas = strategy.num_replicas_in_sync
        device = strategy.extended.worker_devices[0].split("/")[-1]
        lines = {
            "parameters": f"{model.count_params():,}, each variable once",
            "devices": f"{replicas} x {device.removeprefix('device:')}",
            "precision": config.precision,
        }
        if config.do_train:
            left = max(config.num_train_steps - step, 0)
            examples, tokens = config.train_batch_size, task.tokens_per_example
            pieces = config.gradient_accumulation_steps
            rows = examples // replicas // pieces
            memory = memory_of_step(model, task, config, replicas)
            lines |= {
                "a step": f"{examples:,} x {tokens} tokens; on each device {pieces} x "
                f"{rows}",
                "to come": f"{left:,} steps, {left * examples * tokens:,} tokens, "
                f"{left * examples / len(task.training):,.2f} times the "
                f"{len(task.training):,} examples",
                "memory": f"about {memory / _GIB:.1f} GiB on each device",
            }
        for name, value in lines.items():
            self.say(f"  {name:11}{value}")
        if config.do_train and config.num_warmup_steps >= config.num_train_steps:
            self.say(
                f"Hint: --num_warmup_steps={config.num_warmup_steps} and "
                f"--num_train_steps={config.num_train_steps}: the learning rate never "
                f"gets to {config.learning_rate:g}"
            )
        for hint in task.hints(config.learning_rate, config.train_batch_size):
            self.say(f"Hint: {hint}")

    def trained(self, step: int, figures: Mapping[str, float]) -> None:
        """Writes a line about the steps since the last one, averages of them."""
        if self._first_step is None:
            # The first line is about one step, which includes the building of graphs.
            self._first_step, self._began = step, time.time()
            self._last_step = step - 1
        self.last = dict(figures)
        seconds = time.time() - self._began
        done = step - self._first_step
        total = self._config.num_train_steps
        left = (total - step) * seconds / done if done else None
        steps = step - self._last_step
        self._last_step = step
        self._record("train", step, {"steps": steps, **figures})
        self.say(
            f"step {step:,}/{total:,}  {self._shown(figures)}  "
            f"lr {figures['learning_rate']:.2e}  grad {figures['gradient_norm']:.2f}  "
            f"{figures['sequences_per_second']:.1f} seq/s  "
            f"{figures['tokens_per_second']:,.0f} tok/s  "
            f"wait {figures['waiting_share']:.1%}  {_memory() / _GIB:.1f} GiB  "
            f"left {_duration(left)}"
        )
        self._warn_if_flat(step, figures)

    def lacks_evaluation(self, step: int, between: int) -> bool:
        """Whether an evaluation was due at a step, and none is on record."""
        if not step or step % between:
            return False
        try:
            recorded = curves.read(self.folder / "metrics.jsonl")
        except InputError:  # nothing was written yet
            return True
        return step not in recorded.get("eval", {}).get(self._task.key_metric, {})

    def evaluated(
        self, step: int, figures: Mapping[str, float], better: bool, best: float
    ) -> None:
        """Writes a line about an evaluation, and its block in `eval_results.txt`.

        **As released:** it ends with `best` in fine-tuning, which leaves out the
        evaluation at hand in the release.

        Args:
            step: updates made.
            figures: of the evaluation.
            better: whether it marks a new best checkpoint.
            best: the best key metric so far, of this evaluation or an earlier one.
        """
        if self._config.do_train:
            self._record("eval", step, figures)
        mark = f"  best {self._task.key_metric} so far" if better else ""
        self.say(f"eval at step {step:,}  {self._shown(figures)}{mark}")
        if complaint := self._complaint(step, figures):
            self.say(f"Warning: {complaint}")
        if self._enabled:
            lines = {**figures, "global_step": step}
            if self._config.notes_best:
                lines["best"] = best
            add_results(self.folder, lines)

    def _complaint(self, step: int, figures: Mapping[str, float]) -> str | None:
        """Returns the task's complaint, but not about a model that still warms up."""
        config = self._config
        warmed_up = config.start_warmup_step + config.num_warmup_steps
        if config.do_train and step < warmed_up:
            return None
        return self._task.complaint(figures)

    def finish(self) -> None:
        """Draws the curves."""
        if self._enabled and self.last:
            picture = self.folder / "training_curves.png"
            curves.draw(self.folder / "metrics.jsonl", picture)
            self.say(f"Curves: {picture}")

    def _shown(self, figures: Mapping[str, float]) -> str:
        """Joins losses and accuracies, under names that leave the line readable."""
        parts = []
        for name, value in figures.items():
            if name == "eval_loss":  # the loss again, by its released name
                continue
            if name.endswith(("loss", "accuracy")) or name in self._task.shown:
                for long, short in _SHORT.items():
                    name = name.replace(long, short)
                parts.append(f"{name} {value:.4f}")
        return "  ".join(parts)

    def _record(self, kind: str, step: int, figures: Mapping[str, float]) -> None:
        if not self._enabled:
            return
        entry = {"kind": kind, "step": step, "time": round(time.time(), 3), **figures}
        path = self.folder / "metrics.jsonl"
        with errors.writing(path), path.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def _warn_if_flat(self, step: int, figures: Mapping[str, float]) -> None:
        config = self._config
        warmed_up = config.start_warmup_step + config.num_warmup_steps
        if self._warned or step < warmed_up + _PATIENCE:
            return
        for name, chance in self._task.chance_losses.items():
            if figures[name] > 0.95 * chance:
                self._warned = True
                self.say(
                    f"Warning: after the warm-up {name} is {figures[name]:.2f}, and "
                    f"{chance:.2f} would be guessing: the model learns nothing. Usual "
                    f"causes: a --learning_rate that is too high (or far too low), too "
                    f"short a warm-up, and data whose labels do not go with its inputs"
                )


def add_results(folder: Path, figures: Mapping[str, float]) -> None:
    """Appends a block to `eval_results.txt` as released: `best` stands at its end.

    Raises:
        InputError: it cannot be written.
    """
    order = sorted(figures, key=lambda key: (key == "best", key))
    path = folder / "eval_results.txt"
    with errors.writing(path), path.open("a") as file:
        file.writelines(f"{key} = {figures[key]}\n" for key in order)
        file.write("=" * 50 + "\n")


def memory_of_step(model: keras.Model, task, config, replicas: int) -> float:
    """Estimates the bytes that a run's steps take on each of its devices.

    Args:
        model: the model.
        task: what is trained.
        config: a `TrainingSettings`.
        replicas: number of devices.
    """
    pieces = config.gradient_accumulation_steps
    return expected_memory(
        model,
        config.train_batch_size // replicas // pieces * task.tokens_at_once,
        task.sequence_length,
        task.outputs_per_token,
        pieces,
    )


def check_memory(model: keras.Model, task, config, strategy: Any) -> None:
    """Refuses steps that do not fit into the memory of this machine's CPU.

    The estimate has to be clearly above: it is a little too high itself. What others
    use is not counted, and a GPU's own memory is left to TensorFlow, which names what
    did not fit.

    Args:
        model: the model.
        task: what is trained.
        config: a `TrainingSettings`.
        strategy: on which devices.

    Raises:
        InputError: they take more than there is, see `cores.memory`.
    """
    devices = strategy.extended.worker_devices
    on_cpu = [device for device in devices if "CPU" in device]
    if not (config.do_train and config.check_memory and on_cpu):
        return
    needed = memory_of_step(model, task, config, strategy.num_replicas_in_sync)
    needed *= len(on_cpu)
    there = cores.memory()
    if needed > _CLEARLY * there:
        raise InputError(
            f"--train_batch_size={config.train_batch_size}: a step needs about "
            f"{needed / _GIB:.1f} GiB of memory, and this process can have "
            f"{there / _GIB:.1f} GiB; expected a smaller batch, more "
            f"--gradient_accumulation_steps or --recompute=block, or --nocheck_memory "
            f"to try"
        )


def expected_memory(
    model: keras.Model,
    tokens: int,
    length: int,
    outputs_per_token: float = 0.0,
    pieces: int = 1,
) -> float:
    """Estimates the bytes that training takes on a device, a little too high.

    Args:
        model: the model.
        tokens: tokens that go through it at once.
        length: tokens of a sequence.
        outputs_per_token: numbers that the heads hold for each.
        pieces: of a batch, one after the other.
    """
    config = model.config
    width = 2 if "16" in model.compute_dtype else 4
    layers = config.num_hidden_layers * config.inner_group_num
    # In float32: weights, gradients and two slots, and as much again in an update. A
    # second piece has gradients of its own beside their sum.
    state = (8 if pieces == 1 else 10) * 4 * model.count_params()
    # The gradients of all layers' kernels are there at once, in the compute dtype; of
    # recomputed blocks they are added as they come, in float32, with copies on the way.
    size = config.hidden_size
    kernels = size * (4 * size + 2 * config.intermediate_size)
    state += kernels * (16 if config.recompute == "block" else layers * width)
    # Per token and layer: what the backward pass of GELU, norms and attention reads.
    scores = config.num_attention_heads * length
    block = 9 * config.hidden_size + 4 * config.intermediate_size + scores
    if config.attention_probs_dropout_prob:
        block += scores
    if config.recompute == "block":
        kept = layers * config.hidden_size + block
    else:
        kept = layers * block
    kept += 2 * scores  # on the way, of one layer at a time
    return state + tokens * (kept * width + outputs_per_token * 4)


def _memory() -> float:
    """Returns the most memory that the process has held, of a GPU if there is one."""
    import tensorflow as tf

    if tf.config.list_logical_devices("GPU"):
        return tf.config.experimental.get_memory_info("GPU:0")["peak"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
