"""What a notebook shows: answers and models as HTML, and `fit` while it trains.

Texts come from anywhere, so all of them are escaped.
"""

import base64
import io
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from albert_tf.errors import InputError
from albert_tf.serve import display
from albert_tf.train import curves

# Rows of answers, lines of a table, and characters around an answer, that are shown.
_MOST_ROWS, _MOST_LINES, _MOST_CHARACTERS = 20, 20, 1000
# The share of the time that goes into drawing curves, at most.
_DRAWING = 0.1
# Numbers of an evaluation that say what another one does.
_LEFT_OUT = ("eval_loss", "largest_predicted_share")
# By kind, the text in which the answer is marked.
_MARKED_IN = {
    "question_answering": "context",
    "token_classification": "text",
    "fill_mask": "text",
}


class Answers(list):
    """Answers in a list, which a notebook shows as HTML.

    Args:
        values: what the list holds.
        kind: of the task.
        rows: what was asked.
        answers: to each row, as `Predictor` gives them; None: `values`.
    """

    def __init__(
        self,
        values: Iterable[Any],
        kind: str,
        rows: Sequence[Mapping[str, Any]],
        answers: Sequence[Mapping[str, Any]] | None = None,
    ):
        super().__init__(values)
        answers = list(self) if answers is None else answers
        self._kind, self._count = kind, len(rows)
        # Those that are shown: a passage is long.
        self._rows, self._answers = rows[:_MOST_ROWS], answers[:_MOST_ROWS]

    def holding(self, values: Iterable[Any]) -> "Answers":
        """Returns other values that are shown in the same way."""
        other = Answers(values, self._kind, self._rows, self._answers)
        other._count = self._count
        return other

    def _repr_html_(self) -> str:
        pairs = zip(self._rows, self._answers, strict=True)
        blocks = [_answered(self._kind, row, answer) for row, answer in pairs]
        if (more := self._count - _MOST_ROWS) > 0:
            blocks.append(f"<p>and {more:,} more</p>")
        return "".join(blocks)


def _answered(kind: str, row: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    """Returns what was asked, and the answer; of a long passage what is around it."""
    inside = _MARKED_IN.get(kind)
    asked = (
        f"<p>{escape(text[:_MOST_CHARACTERS])}</p>"
        for name, text in row.items()
        if name != inside and isinstance(text, str)
    )
    if inside == "context" and len(row[inside]) > _MOST_CHARACTERS:
        begin, end = (max(answer[name], 0) for name in ("begin", "end"))
        first = max(0, begin - _MOST_CHARACTERS // 2)
        last = max(end, first + _MOST_CHARACTERS)
        before, after = ("…" if first else ""), ("…" if last < len(row[inside]) else "")
        row = {**row, inside: f"{before}{row[inside][first:last]}{after}"}
        moved = len(before) - first
        answer = {**answer, "begin": begin + moved, "end": end + moved}
    return "".join(asked) + display.answer_html(kind, row, answer)


def card(title: str, facts: Mapping[str, Any]) -> str:
    """Returns facts under a title."""
    rows = [[escape(name), escape(_shown(value))] for name, value in facts.items()]
    return f"<b>{escape(title)}</b>{_table(rows)}"


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
    evaluations: dict[int, dict[str, Any]] = {}
    training: dict[int, dict[str, Any]] = {}
    loss = None
    for entry in entries:
        step = entry["step"]
        if entry["kind"] == "train":
            loss = entry.get("loss")
            training[step] = {"training loss": loss}
        elif entry["kind"] == "eval":
            scores = {
                name: value
                for name, value in entry.items()
                if isinstance(value, float) and name not in ("time", *_LEFT_OUT)
            }
            evaluations[step] = {"training loss": loss, **scores}
    lines = sorted((evaluations or training).items())[-_MOST_LINES:]
    columns = list(dict.fromkeys(name for _, scores in lines for name in scores))
    rows = [["step", *map(escape, columns)]]
    for step, scores in lines:
        cells = [escape(_shown(scores.get(name))) for name in columns]
        rows.append([f"{step:,}", *cells])
    return _table(rows)


def _table(rows: Sequence[Sequence[str]]) -> str:
    lines = "".join(
        f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table>{lines}</table>"


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        more = ["…"] if len(value) > _MOST_LINES else []
        return ", ".join(map(str, [*value[:_MOST_LINES], *more]))
    return "" if value is None else str(value)
