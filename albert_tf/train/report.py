"""`Reporter`: lines of progress, `metrics.jsonl`, TensorBoard and curves of a run."""

import json
import resource
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import keras
import tensorflow as tf
from tqdm import tqdm

from albert_tf import errors
from albert_tf.tasks import confusion
from albert_tf.train import curves, run_file
from albert_tf.train.trackers import Trackers

_RESULTS = "eval_results.txt"
# {part of a metric's name: its abbreviation in lines of progress}.
_SHORT_NAMES = {"masked_lm_": "mlm ", "sentence_order_": "order ", "accuracy": "acc"}
_GIB = 1 << 30


class Reporter:
    """Writes lines of progress, `metrics.jsonl`, `eval_results.txt` and summaries.

    The summaries are the files for TensorBoard.

    Args:
        folder: the run's folder.
        stream: receives the lines of progress.
        task: the run's task.
        config: the run's `TrainingSettings`.
        enabled: whether to log and write; only the chief does.

    Attributes:
        folder: the argument.
        enabled: the argument.
    """

    def __init__(
        self, folder: Path, stream: IO[str], task, config, enabled: bool = True
    ):
        self.folder = folder
        self._stream = stream
        self._task = task
        self._config = config
        self.enabled = enabled
        # Step and time of the first progress line, to estimate the remaining time.
        self._first_step, self._first_time = 0, 0.0
        # Step of the last progress line.
        self._logged_step = 0
        self._bar: tqdm | None = None
        # The files for TensorBoard, by kind of metrics: "train" and "eval".
        self._writers: dict[str, tf.summary.SummaryWriter] = {}
        # The loggers to other services, which the first progress line creates.
        self._trackers: Trackers | None = None

    def log(self, text: str) -> None:
        """Writes a line, above the progress bar if there is one."""
        if self.enabled:
            tqdm.write(text, self._stream)
            self._stream.flush()

    def close(self) -> None:
        """Closes the progress bar, and ends the trackers' runs as incomplete.

        After `log_end`, the trackers' runs have already ended as complete.
        """
        if self._trackers is not None:
            self._trackers.end({}, is_complete=False)
        if self._bar is not None:
            self._bar.close()

    def log_start(self, model: keras.Model, strategy: Any, step: int) -> None:
        """Logs the size of the model and of the remaining training."""
        config, replicas = self._config, strategy.num_replicas_in_sync
        device = strategy.extended.worker_devices[0].split("/")[-1]
        self.log(f"  parameters {model.count_params():,} (shared ones count once)")
        self.log(f"  devices    {replicas} x {device.removeprefix('device:')}")
        self.log(f"  precision  {config.precision}")
        if not config.do_train:
            return
        batch, tokens = config.train_batch_size, self._task.tokens_per_example
        steps, total = max(config.num_train_steps - step, 0), len(self._task.training)
        self.log(
            f"  batch      {batch:,} sequences x {tokens} tokens\n"
            f"  training   {steps:,} steps, {steps * batch * tokens:,} tokens, "
            f"{steps * batch / total:,.2f} epochs of {total:,} examples"
        )

    def log_train(self, step: int, metrics: Mapping[str, float]) -> None:
        """Logs the mean metrics of the steps since the last progress line.

        Args:
            step: number of updates.
            metrics: the result of `Trainer.train`.
        """
        if not self.enabled:
            return
        if self._trackers is None:
            # This is the first line of the process. The time of its step includes the
            # tracing of the graph. So only later steps are used to estimate the
            # remaining time.
            self._first_step, self._first_time = step, time.time()
            self._logged_step = step - 1
            # The first line of a new run is for step 1. If this line is for a later
            # step, the process has resumed a run.
            if step > 1:
                self._record("resume", step - 1, {})
            flags = run_file.read_flags(self.folder)
            self._trackers = Trackers(self._config, self.folder, flags, self.log)
        self._record("train", step, {"steps": step - self._logged_step, **metrics})
        self._logged_step = step
        per_second = metrics["sequences_per_second"] / self._config.train_batch_size
        self._summarize("train", step, {**metrics, "steps_per_second": per_second})
        if self._stream.isatty():
            self._show_progress(step, self._format(metrics))
        else:
            self._log_progress(step, metrics)

    def _show_progress(self, step: int, text: str) -> None:
        """Updates the progress bar of a terminal."""
        if self._bar is None:
            self._bar = tqdm(
                total=self._config.num_train_steps,
                initial=step,
                file=self._stream,
                unit=" steps",
                dynamic_ncols=True,
            )
        self._bar.set_postfix_str(text, refresh=False)
        self._bar.update(step - self._bar.n)
        self._bar.refresh()

    def _log_progress(self, step: int, metrics: Mapping[str, float]) -> None:
        """Logs a line of progress, for a file or another program."""
        total, steps = self._config.num_train_steps, step - self._first_step
        remaining = "?"
        if steps:
            seconds = (total - step) * (time.time() - self._first_time) / steps
            remaining = tqdm.format_interval(seconds)
        self.log(
            f"step {step:,}/{total:,}  {self._format(metrics)}  "
            f"lr {metrics['learning_rate']:.2e}  grad {metrics['gradient_norm']:.2f}  "
            f"{metrics['sequences_per_second']:.1f} seq/s  "
            f"{metrics['tokens_per_second']:,.0f} tok/s  "
            f"input wait {metrics['waiting_share']:.1%}  "
            f"{_peak_memory() / _GIB:.1f} GiB  ETA {remaining}"
        )

    def has_evaluation(self, step: int) -> bool:
        """Whether `metrics.jsonl` has an evaluation of a step."""
        path = self.folder / curves.NAME
        return path.exists() and any(
            (entry["kind"], entry["step"]) == ("eval", step)
            for entry in curves.entries(path)
        )

    def log_eval(
        self, step: int, metrics: Mapping[str, float], is_best: bool, best: float
    ) -> None:
        """Logs an evaluation, and appends its metrics to `eval_results.txt`.

        **As released:** in fine-tuning, these metrics end with `best`. In the released
        code, `best` does not include the current evaluation; here it does.

        Args:
            step: number of updates.
            metrics: the evaluation's metrics.
            is_best: whether the key metric is the best so far.
            best: the highest key metric so far, including this evaluation.
        """
        mark = f"  best {self._task.key_metric} so far" if is_best else ""
        self.log(f"eval at step {step:,}  {self._format(metrics)}{mark}")
        if not self.enabled:
            return
        extra = {"best": best} if self._config.log_best_metric else {}
        add_results(self.folder, {**metrics, "global_step": step, **extra})
        self._summarize("eval", step, metrics)
        if self._config.do_train:
            # This line is written last. If the process is killed earlier, a resumed
            # run finds no such line and repeats the evaluation.
            self._record("eval", step, metrics)

    def log_end(self, best: Mapping[str, float]) -> None:
        """Draws the curves, and ends the runs of the trackers.

        Args:
            best: step and metrics of the best checkpoint; empty if there is none.
        """
        if self._trackers is not None:
            self._trackers.end(best)
        self.close()
        if self.enabled:
            picture = self.folder / "training_curves.png"
            with errors.log_failure("curves", self.log):
                curves.draw(self.folder / curves.NAME, picture)
                self.log(f"Curves: {picture}")

    def _format(self, metrics: Mapping[str, float]) -> str:
        """Formats losses, accuracies and `main_metrics`, with short names."""
        main_metrics, parts = self._task.main_metrics, []
        for name, value in metrics.items():
            is_main = name.endswith(("loss", "accuracy")) or name in main_metrics
            if is_main and name != "eval_loss":  # the same as "loss"
                for long, short in _SHORT_NAMES.items():
                    name = name.replace(long, short)
                parts.append(f"{name} {value:.4f}")
        return "  ".join(parts)

    def _record(self, kind: str, step: int, metrics: Mapping[str, float]) -> None:
        """Appends a line to `metrics.jsonl`, and logs to the trackers."""
        if self._trackers is not None:
            self._trackers.log(kind, step, metrics)
        entry = {"kind": kind, "step": step, "time": round(time.time(), 3), **metrics}
        _append(self.folder / curves.NAME, f"{json.dumps(entry)}\n")

    def _summarize(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Writes numbers, and confusion matrices of evaluations, for TensorBoard."""
        is_eval = kind == "eval"
        path = self.folder / ("summaries/eval" if is_eval else "summaries")
        with errors.wrap_write(path):
            if kind not in self._writers:
                self._writers[kind] = tf.summary.create_file_writer(str(path))
            with self._writers[kind].as_default(step):
                for name, value in values.items():
                    tf.summary.scalar(name, value)
                if is_eval and self._task.confusions:
                    picture = tf.io.decode_png(confusion.draw(self._task.confusions))
                    tf.summary.image("confusion_matrix", picture[None])
            self._writers[kind].flush()


def add_results(folder: Path, metrics: Mapping[str, float]) -> None:
    """Appends a block of metrics, sorted by name, to `eval_results.txt`.

    **As released:** `best` is the last metric of the block.

    Raises:
        InputError: the file cannot be written.
    """
    order = sorted(metrics, key=lambda key: (key == "best", key))
    lines = "".join(f"{key} = {metrics[key]}\n" for key in order)
    _append(folder / _RESULTS, f"{lines}{'=' * 50}\n")


def _append(path: Path, text: str) -> None:
    with errors.wrap_write(path), path.open("a", encoding="utf-8") as file:
        file.write(text)


def _peak_memory() -> float:
    """Returns the peak memory of the first GPU, or else of the process, in bytes."""
    if tf.config.list_logical_devices("GPU"):
        return tf.config.experimental.get_memory_info("GPU:0")["peak"]
    # `ru_maxrss` is in bytes on macOS, and in KiB on other systems.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
