"""A table and curves of the training, for `fit` in a notebook."""

import base64
import io
import sys
import time
from html import escape
from pathlib import Path

import pandas

from albert_tf import errors
from albert_tf.train import curves

_MAX_ROWS = 20
# Minimum seconds between two pictures. The training waits while one is drawn.
_DRAW_INTERVAL = 10.0


def is_running() -> bool:
    """Whether this process is the kernel of a notebook."""
    # A kernel has already imported IPython. So this function does not import it, which
    # would take time in other processes.
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


class Progress(io.TextIOBase):
    """A log that shows a table and curves instead of lines of progress.

    The log prints all other lines.

    Args:
        folder: the run's folder.
    """

    def __init__(self, folder: Path):
        from IPython import display

        self._folder = folder
        self._html = display.HTML
        self._handle = display.display(display.HTML(""), display_id=True)
        self._line = ""
        self._last_draw_time = -_DRAW_INTERVAL

    def write(self, text: str) -> int:
        for line in filter(None, text.splitlines()):
            if not line.startswith(("step ", "eval at ")):
                print(line)  # to stdout: a notebook shows stderr on a red background
                continue
            self._line = line
            if time.monotonic() - self._last_draw_time >= _DRAW_INTERVAL:
                self.show()
        return len(text)

    def show(self) -> None:
        """Shows the metrics of the run; a failure is logged as a warning."""
        with errors.log_failure("table of progress"):
            # With num_runs, there are several files. The newest is from the current
            # run.
            files = self._folder.glob("**/metrics.jsonl")
            path = max(files, key=lambda file: file.stat().st_mtime, default=None)
            if path is None:
                return  # the run has not written it yet
            picture = io.BytesIO()
            curves.draw(path, picture)
            table = progress_table(curves.read(path))
            source = base64.b64encode(picture.getvalue()).decode()
            image = f'<img alt="curves" src="data:image/png;base64,{source}">'
            html = f"{table}<p>{escape(self._line)}</p>{image}"
            self._handle.update(self._html(html))
            self._last_draw_time = time.monotonic()


def progress_table(metrics: curves.Curves) -> str:
    """Returns an HTML table with a row for each evaluation.

    Without evaluations, it has a row for each line of training metrics.

    Args:
        metrics: the result of `curves.read`.
    """
    # "eval_loss" is the same as "loss".
    evaluations = pandas.DataFrame(metrics.get("eval", {}))
    table = evaluations.drop(columns="eval_loss", errors="ignore")
    loss = pandas.Series(metrics["train"]["loss"], dtype=float)
    if len(table):
        # The last training loss before each evaluation.
        loss = loss.reindex(table.index, method="ffill")
    table.insert(0, "training loss", loss)
    table = table.tail(_MAX_ROWS).reset_index(names="step")
    return table.to_html(index=False, na_rep="", float_format="{:.4g}".format)
