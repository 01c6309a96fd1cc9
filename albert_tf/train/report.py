"""What a run reports: lines of progress, warnings, `metrics.jsonl`, TensorBoard."""

import contextlib
import json
import os
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import keras
import tensorflow as tf
from tqdm import tqdm

from albert_tf import errors
from albert_tf.data import files
from albert_tf.tasks import base, confusion
from albert_tf.train import curves, memory, run_file, trackers

# Steps after the warm-up until a flat loss is warned of.
_PATIENCE = 100
_RESULTS = "eval_results.txt"
_SHORT = {"masked_lm_": "mlm ", "sentence_order_": "order ", "accuracy": "acc"}


class Reporter:
    """Writes lines of progress, `metrics.jsonl`, `eval_results.txt` and summaries.

    Args:
        folder: folder of the run.
        stream: where lines go.
        task: what is trained.
        config: a `TrainingSettings`.
        enabled: False on workers other than the chief, which log and write nothing.
    """

    def __init__(
        self, folder: Path, stream: IO[str], task, config, enabled: bool = True
    ):
        self.folder = folder
        self._stream = stream
        self._task = task
        self._config = config
        self._enabled = enabled
        self._first_step: int | None = None
        self._first_time = 0.0
        self._last_step = 0
        self._is_flat = False
        self._missing: set[str] = set()
        # Of a file, what could not be added to it yet.
        self._waiting: dict[Path, str] = {}
        self._bar: tqdm | None = None
        self._summaries: dict[str, tf.summary.SummaryWriter] = {}
        self._trackers: trackers.Trackers | None = None

    @property
    def _metrics_file(self) -> Path:
        return self.folder / "metrics.jsonl"

    def log(self, text: str) -> None:
        """Writes a line, above the one that shows progress."""
        if not self._enabled:
            return
        if self._bar is not None:
            self._bar.write(text, self._stream)
            return
        self._stream.write(f"{text}\n")
        self._stream.flush()

    @contextlib.contextmanager
    def sparing(self, what: str) -> Iterator[None]:
        """Warns, once, where what only decorates a run fails, see `errors.sparing`."""

        def warn(line: str) -> None:
            if what not in self._missing:
                self.log(line)
            self._missing.add(what)

        with errors.sparing(what, warn):
            yield

    def close(self) -> None:
        """Ends the line that shows progress; what is open now was not finished."""
        if self._trackers is not None:
            self._trackers.end({}, is_complete=False)
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def started(self, model: keras.Model, strategy: Any, step: int) -> None:
        """Makes the folder; logs the size of what is to come, and the task's hints.

        Raises:
            InputError: the folder cannot be made or written.
        """
        with errors.writing(f"--output_dir={self.folder}"):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._end_last_line()
        config = self._config
        replicas = strategy.num_replicas_in_sync
        device = strategy.extended.worker_devices[0].split("/")[-1]
        lines = {
            "parameters": f"{model.count_params():,}, each variable once",
            "devices": f"{replicas} x {device.removeprefix('device:')}",
            "precision": config.precision,
        }
        if config.do_train:
            lines |= self._plan(model, strategy, step)
        for name, value in lines.items():
            self.log(f"  {name:11}{value}")
        if config.do_train and config.num_warmup_steps >= config.num_train_steps:
            self.log(
                f"Hint: --num_warmup_steps={config.num_warmup_steps} and "
                f"--num_train_steps={config.num_train_steps}: the learning rate never "
                f"gets to {config.learning_rate:g}"
            )

    def _begin(self, step: int) -> None:
        """Notes a start after some steps; gives trackers and TensorBoard the settings.

        Not before something is trained: a run that is complete stays so.
        """
        if step:
            self._record("resume", step, {})
        given = run_file.settings(self.folder, self._config)
        self._trackers = trackers.Trackers(self._config, self.folder, self.log)
        self._trackers.start(given)
        with self.sparing("settings in TensorBoard"):
            # Imported late: it imports Keras of its own.
            from tensorboard.plugins.hparams import api

            plain = {name: _plain(value) for name, value in given.items()}
            summary = api.hparams_pb(plain, trial_id=str(self.folder))
            with self._writer("summaries") as writer:
                content = summary.SerializeToString()
                tf.summary.experimental.write_raw_pb(content, step=0)
                writer.flush()

    def _plan(self, model: keras.Model, strategy, step: int) -> dict[str, str]:
        """Returns the size of a step, of the training that is left, and of both."""
        config, task = self._config, self._task
        left = max(config.num_train_steps - step, 0)
        examples, tokens = config.train_batch_size, task.tokens_per_example
        microbatches = config.gradient_accumulation_steps
        rows = examples // strategy.num_replicas_in_sync // microbatches
        needed = memory.run_bytes(model, task, config, strategy) / memory.GIB
        place = "in this process" if memory.cpu_devices(strategy) else "on each device"
        return {
            "a step": f"{examples:,} x {tokens} tokens; on each device "
            f"{microbatches} x {rows}",
            "to come": f"{left:,} steps, {left * examples * tokens:,} tokens, "
            f"{left * examples / len(task.training):,.2f} times the "
            f"{len(task.training):,} examples",
            "memory": f"about {needed:.1f} GiB {place}",
        }

    def _end_last_line(self) -> None:
        """Makes `metrics.jsonl`, or ends the half line of a run that was killed."""
        with self._metrics_file.open("a+b") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")

    def trained(self, step: int, metrics: Mapping[str, float], last_step: int) -> None:
        """Logs the means of the steps since the last line.

        Args:
            step: updates made.
            metrics: what `Trainer.train` returned.
            last_step: where the run ends.
        """
        total, batch_size = last_step, self._config.train_batch_size
        if self._first_step is None:
            if self._enabled:
                self._begin(step - 1)
            # The first line is about one step, which includes the building of graphs.
            self._first_step, self._first_time = step, time.time()
            self._last_step = step - 1
        done = step - self._first_step
        seconds = time.time() - self._first_time
        left = (total - step) * seconds / done if done else None
        self._record("train", step, {"steps": step - self._last_step, **metrics})
        steps_per_second = metrics["sequences_per_second"] / batch_size
        values = {**metrics, "steps_per_second": steps_per_second}
        self._summarize("summaries", step, values)
        self._last_step = step
        if self._enabled and self._stream.isatty():
            self._show_progress(step, total, self._shown(metrics))
        else:
            self._log_progress(step, total, metrics, left)
        self._warn_if_flat(step, metrics)

    def _show_progress(self, step: int, total: int, text: str) -> None:
        """Shows a step in one line of a terminal, which the next replaces."""
        if self._bar is None:
            self._bar = tqdm(
                total=total,
                initial=step,
                file=self._stream,
                unit=" steps",
                dynamic_ncols=True,
            )
        self._bar.total = total
        self._bar.set_postfix_str(text, refresh=False)
        self._bar.update(step - self._bar.n)
        self._bar.refresh()

    def _log_progress(
        self, step: int, total: int, metrics: Mapping[str, float], left: float | None
    ) -> None:
        self.log(
            f"step {step:,}/{total:,}  {self._shown(metrics)}  "
            f"lr {metrics['learning_rate']:.2e}  grad {metrics['gradient_norm']:.2f}  "
            f"{metrics['sequences_per_second']:.1f} seq/s  "
            f"{metrics['tokens_per_second']:,.0f} tok/s  "
            f"wait {metrics['waiting_share']:.1%}  "
            f"{_peak_memory() / memory.GIB:.1f} GiB  left {_duration(left)}"
        )

    def entries(self) -> Iterator[dict[str, Any]]:
        """Yields what `metrics.jsonl` holds."""
        return curves.entries(self._metrics_file)

    def has_evaluation(self, step: int) -> bool:
        """Whether `metrics.jsonl` holds an evaluation of a step."""
        return any(
            (entry["kind"], entry["step"]) == ("eval", step) for entry in self.entries()
        )

    def evaluated(
        self, step: int, metrics: Mapping[str, float], better: bool, best: float
    ) -> None:
        """Logs an evaluation, and adds its block to `eval_results.txt`.

        **As released:** the block ends with `best` in fine-tuning; in the release that
        leaves out the evaluation at hand.

        Args:
            step: updates made.
            metrics: of the evaluation.
            better: whether it marks a new best checkpoint.
            best: the best key metric so far, of this evaluation or an earlier one.
        """
        self._summarize("summaries/eval", step, metrics, self._task.details)
        mark = f"  best {self._task.key_metric} so far" if better else ""
        self.log(f"eval at step {step:,}  {self._shown(metrics)}{mark}")
        config = self._config
        warms_up = step < config.start_warmup_step + config.num_warmup_steps
        complaint = self._task.complaint(metrics)
        if complaint and not (config.do_train and warms_up):
            self.log(f"Warning: {complaint}")
        if self._enabled:
            block = {**metrics, "global_step": step}
            self._append(
                self.folder / _RESULTS,
                _as_block({**block, "best": best} if config.notes_best else block),
            )
            if not config.do_train:
                self._check_results()
        if config.do_train:
            # Last: a run that is killed before it evaluates again.
            self._record("eval", step, metrics)

    def finished(self, best: Mapping[str, float]) -> None:
        """Draws the curves.

        Args:
            best: step and metrics of the best checkpoint; empty if there is none.
        """
        if self._trackers is not None:
            self._trackers.end(best, is_complete=True)
        self.close()
        if self._enabled:
            self._check_results()
            picture = self.folder / "training_curves.png"
            with self.sparing("curves"):
                curves.draw(self._metrics_file, picture)
                self.log(f"Curves: {picture}")

    def _check_results(self) -> None:
        """Refuses to end a run well without its results.

        Raises:
            UnsavedError: some could not be written, nor can they now.
        """
        path = self.folder / _RESULTS
        if path in self._waiting:
            try:
                files.append(path, self._waiting.pop(path))
            except errors.InputError as mistake:
                raise errors.UnsavedError(str(mistake)) from mistake

    def _shown(self, metrics: Mapping[str, float]) -> str:
        """Joins losses and accuracies, under names that leave the line readable."""
        parts = []
        for name, value in metrics.items():
            if name == "eval_loss":  # the loss again, by its released name
                continue
            if name.endswith(("loss", "accuracy")) or name in self._task.shown:
                for long, short in _SHORT.items():
                    name = name.replace(long, short)
                parts.append(f"{name} {value:.4f}")
        return "  ".join(parts)

    def _record(self, kind: str, step: int, metrics: Mapping[str, float]) -> None:
        """Adds a line to `metrics.jsonl`, and tells the trackers."""
        if not self._enabled:
            return
        if self._trackers is not None and metrics:
            self._trackers.log(kind, step, metrics)
        entry = {"kind": kind, "step": step, "time": round(time.time(), 3), **metrics}
        self._append(self._metrics_file, json.dumps(entry) + "\n")

    def _append(self, path: Path, text: str) -> None:
        """Adds text to a file; where it has no place yet, with the next text."""
        self._waiting[path] = self._waiting.get(path, "") + text
        with self.sparing(f"new lines in {path.name} for now"):
            files.append(path, self._waiting[path])
            del self._waiting[path]

    def _summarize(
        self,
        folder: str,
        step: int,
        values: Mapping[str, float],
        details: base.Details | None = None,
    ) -> None:
        """Writes numbers for TensorBoard, and what an evaluation shows beside them."""
        if not self._enabled:
            return
        picture = None
        if details and details.confusions:
            with self.sparing("confusion matrix"):
                picture = tf.io.decode_png(confusion.draw(details.confusions))
        with (
            self.sparing("points in TensorBoard"),
            self._writer(folder, step) as writer,
        ):
            for name, value in values.items():
                tf.summary.scalar(name, value)
            if picture is not None:
                tf.summary.image("confusion_matrix", picture[None])
            writer.flush()

    @contextlib.contextmanager
    def _writer(self, folder: str, step: int = 0) -> Iterator[tf.summary.SummaryWriter]:
        """Makes a writer for TensorBoard the one that is written to."""
        path = self.folder / folder
        with errors.writing(path):
            self.folder.stat()  # or TensorFlow makes anew what was removed
            if folder not in self._summaries:
                self._summaries[folder] = tf.summary.create_file_writer(str(path))
            with self._summaries[folder].as_default(step):
                yield self._summaries[folder]

    def _warn_if_flat(self, step: int, metrics: Mapping[str, float]) -> None:
        config = self._config
        warmed_up = config.start_warmup_step + config.num_warmup_steps
        if self._is_flat or step < warmed_up + _PATIENCE:
            return
        for name, chance in self._task.chance_losses.items():
            if metrics[name] > 0.95 * chance:
                self._is_flat = True
                self.log(
                    f"Warning: after the warm-up {name} is {metrics[name]:.2f}, and "
                    f"{chance:.2f} would be guessing: the model learns nothing. Usual "
                    f"causes: a --learning_rate that is too high (or far too low), too "
                    f"short a warm-up, and data whose labels do not fit its inputs"
                )


def add_results(folder: Path, metrics: Mapping[str, float]) -> None:
    """Appends a block to `eval_results.txt` as released: `best` stands at its end.

    Raises:
        InputError: it cannot be written.
    """
    files.append(folder / _RESULTS, _as_block(metrics))


def _as_block(metrics: Mapping[str, float]) -> str:
    order = sorted(metrics, key=lambda key: (key == "best", key))
    return "".join(f"{key} = {metrics[key]}\n" for key in order) + "=" * 50 + "\n"


def _plain(value: Any) -> bool | int | float | str:
    """Returns a setting as TensorBoard takes it."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    if isinstance(value, bool | int | float):
        return value
    return "" if value is None else str(value)


def _peak_memory() -> float:
    """Returns the most bytes that the process has held, of a GPU if there is one."""
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
