"""What a notebook shows of `fit` while it trains: a table and curves."""

import base64
import io
import sys
import time
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from albert_tf.errors import InputError
from albert_tf.train import curves

# Lines of a table.
_MOST_LINES = 20
# The share of the time that goes into drawing curves, at most.
_DRAWING = 0.1
# Numbers of an evaluation that say what another one does.
_LEFT_OUT = ("time", "eval_loss", "largest_predicted_share")


def is_running() -> bool:
    """Whether this is a notebook's kernel, and neither a terminal nor a program."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return hasattr(get_ipython(), "kernel")


class Progress(io.TextIOBase):
    """Shows a table and curves in place of lines of progress; passes on other lines.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path):
        from IPython.display import HTML
        from IPython.display import display as show

        self._folder = folder
        self._html = HTML
        self._handle = show(HTML(""), display_id=True)
        self._begun = ""
        self._table = self._picture = ""
        # Seconds of drawing, and when it may come again.
        self._next = 0.0

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            if not line.startswith(("step ", "eval at ")) or not self._show(
                line, time.monotonic() >= self._next
            ):
                print(line, file=sys.stderr)
        return len(text)

    def finish(self) -> None:
        """Shows what has come to the files since the last line."""
        self._show("", True)

    def _show(self, line: str, draws: bool) -> bool:
        """Shows a line, and what is drawn; returns False where that fails."""
        try:
            if draws or line.startswith("eval at "):
                self._update(draws)
            if not self._table:
                return True  # nothing to show yet
            content = f"{self._table}<p>{escape(line)}</p>{self._picture}"
            self._handle.update(self._html(content))
        # The run goes on, whatever a notebook or a picture raises.
        except Exception:
            return False
        return True

    def _update(self, draws: bool) -> None:
        # Of several runs the one at work.
        name = "metrics.jsonl"
        files = [*self._folder.glob(name), *self._folder.glob(f"run-*/{name}")]
        if not files:
            return
        path = max(files, key=lambda file: file.stat().st_mtime)
        if draws:
            self._draw(path)
        self._table = progress_table(list(curves.entries(path)))

    def _draw(self, path: Path) -> None:
        begin, picture = time.monotonic(), io.BytesIO()
        try:
            curves.draw(path, picture)
        except InputError:  # no number yet
            return
        content = base64.b64encode(picture.getvalue()).decode()
        source = f"data:image/png;base64,{content}"
        self._picture = f'<img alt="curves" style="max-width:100%" src="{source}">'
        now = time.monotonic()
        self._next = now + (now - begin) / _DRAWING


def progress_table(entries: Sequence[Mapping[str, Any]]) -> str:
    """Returns a line for each evaluation, or where there is none, of training.

    Args:
        entries: of `metrics.jsonl`, see `curves.entries`.
    """
    import pandas

    lines: dict[str, list[dict[str, Any]]] = {"train": [], "eval": []}
    loss = None
    for entry in entries:
        line = {"step": entry["step"], "training loss": loss}
        if entry["kind"] == "train":
            line["training loss"] = loss = entry.get("loss")
        elif entry["kind"] == "eval":
            line |= {
                name: value
                for name, value in entry.items()
                if isinstance(value, float) and name not in _LEFT_OUT
            }
        lines.setdefault(entry["kind"], []).append(line)
    table = pandas.DataFrame(lines["eval"] or lines["train"]).tail(_MOST_LINES)
    return table.to_html(index=False, na_rep="", float_format="{:.4g}".format)
