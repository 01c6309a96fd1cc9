"""What a notebook shows: answers and models as HTML, and `fit` while it trains.

Texts come from anywhere, so all of them are escaped.
"""

import base64
import io
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from albert_tf.errors import InputError
from albert_tf.train import curves

# Rows of answers, lines of a table, and characters around an answer, that are shown.
_MOST_ROWS, _MOST_LINES, _MOST_CHARACTERS = 20, 20, 1000
# The share of the time that goes into drawing curves, at most.
_DRAWING = 0.1
# Numbers of an evaluation that say what another one does.
_LEFT_OUT = ("eval_loss", "largest_predicted_share")
_MARK = "border-radius:3px;padding:0 3px;color:black;background:hsl({},80%,82%)"


class Answers(list):
    """Answers in a list, which a notebook shows as pictures.

    Args:
        values: what the list holds.
        show: returns the HTML of one of `shown`; a function of a module, for `pickle`.
        shown: the arguments of `show` for each row.
    """

    def __init__(
        self, values: Iterable[Any], show: Callable[..., str], shown: Sequence[tuple]
    ):
        super().__init__(values)
        self._show, self._shown = show, shown

    def _repr_html_(self) -> str:
        blocks = [self._show(*each) for each in self._shown[:_MOST_ROWS]]
        if (more := len(self._shown) - _MOST_ROWS) > 0:
            blocks.append(f"<p>and {more:,} more</p>")
        return "".join(blocks)


def gaps(
    parts: Sequence[tuple[str, int | None]], answered: Sequence[Sequence[Mapping]]
) -> str:
    """Returns a filled text, and the likeliest tokens of each gap.

    Args:
        parts: see `tasks.pretrained.filled`.
        answered: of each gap its tokens with their probabilities.
    """
    text = "".join(
        escape(part) if number is None else _marked(part, 200 + 67 * number)
        for part, number in parts
    )
    rows = [
        [f"gap {number}", *(_with_share(t["piece"], t["probability"]) for t in tokens)]
        for number, tokens in enumerate(answered, 1)
    ]
    return f"<p>{text}</p>{_table(rows)}"


def question(row: Mapping[str, str], answer: Mapping[str, Any]) -> str:
    """Returns a question, and its passage with the answer marked."""
    context, begin, end = row["context"], answer["begin"], answer["end"]
    if begin < 0:
        begin = end = 0
    first = max(0, begin - _MOST_CHARACTERS // 2)
    last = max(end, first + _MOST_CHARACTERS)
    before, after = context[first:begin], context[end:last]
    marked = _marked(context[begin:end], 50) if end > begin else ""
    facts = {"probability": f"{answer['probability']:.1%}"}
    if "null_odds" in answer:
        facts["null odds"] = f"{answer['null_odds']:.2f}"
    answered = answer["answer"] or "(no answer)"
    noted = ", ".join(f"{name} {value}" for name, value in facts.items())
    return (
        f"<p><b>{escape(row['question'])}</b> {escape(answered)} <small>({noted})"
        f"</small></p><blockquote>{'…' if first else ''}{escape(before)}{marked}"
        f"{escape(after)}{'…' if last < len(context) else ''}</blockquote>"
    )


def spans(text: str, labelled: Sequence[Mapping[str, Any]]) -> str:
    """Returns a text with its spans in the colours of their types."""
    parts, place = [], 0
    for span in labelled:
        begin, end = span["begin"], span["end"]
        # Of every type one colour, in each text the same.
        hue = sum(map(ord, span["type"])) * 47 % 360
        label = f"{span['type']} {span['probability']:.0%}"
        parts += [escape(text[place:begin]), _marked(text[begin:end], hue, label)]
        place = end
    return f"<p>{''.join(parts)}{escape(text[place:])}</p>"


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
        from IPython import display

        self._folder = folder
        self._html = display.HTML
        self._handle = display.display(display.HTML(""), display_id=True)
        self._begun = ""
        self._picture = ""
        # Seconds of drawing, and when it may come again.
        self._next = 0.0

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            if line.startswith(("step ", "eval at ")):
                self._show(line, time.monotonic() >= self._next)
            else:
                print(line, file=sys.stderr)
        return len(text)

    def finish(self) -> None:
        """Shows what has come to the files since the last line."""
        self._show("", True)

    def _show(self, line: str, draws: bool) -> None:
        # Of several runs the one at work.
        name = "metrics.jsonl"
        files = [*self._folder.glob(name), *self._folder.glob(f"run-*/{name}")]
        if not files:
            return
        path = max(files, key=lambda file: file.stat().st_mtime)
        if draws:
            self._draw(path)
        html = progress_table(list(curves.entries(path)))
        self._handle.update(self._html(f"{html}<p>{escape(line)}</p>{self._picture}"))

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


def _marked(text: str, hue: int, label: str = "") -> str:
    small = f" <small>{escape(label)}</small>" if label else ""
    style = _MARK.format(hue % 360)
    return f'<mark style="{style}">{escape(text)}{small}</mark>'


def _with_share(text: str, probability: float) -> str:
    """Returns a text above a bar as wide as its probability."""
    return (
        f'{escape(text)} <small>{probability:.1%}</small><div style="height:3px;'
        f'background:hsl(210,60%,50%);width:{probability:.0%}"></div>'
    )


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        more = ["…"] if len(value) > _MOST_LINES else []
        return ", ".join(map(str, [*value[:_MOST_LINES], *more]))
    return "" if value is None else str(value)
