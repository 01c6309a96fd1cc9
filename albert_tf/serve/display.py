"""An answer as HTML, for pages and notebooks: marks in texts, bars of probabilities.

It needs no style sheet, and reads well on light and dark ground.
"""

import html
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from albert_tf.text.inputs import MASK
from albert_tf.text.tokenization import WORD_MARK

# Of the types of spans in turn: a little of each over any ground.
_COLOURS = ("37,99,235", "220,38,38", "5,150,105", "217,119,6", "147,51,234")
# Notebooks and Gradio draw lines around tables and cells.
_TABLE = "border:0;border-collapse:collapse"
_CELL = "border:0;padding:.15em .8em .15em 0;text-align:left;overflow-wrap:anywhere"
# Rows of a table; of more labels the likeliest.
_MOST_ROWS = 10

# A part of a text, and what it is marked as.
Part = tuple[str, str | None]


def answer_html(kind: str, row: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    """Returns an answer of `Predictor` as HTML, with all texts escaped.

    Args:
        kind: of the task.
        row: what was answered, texts by name.
        answer: to it.
    """
    return "".join(_SHOWN[kind](row, answer))


def marked(parts: Iterable[Part]) -> str:
    """Returns a text as a paragraph, with marks and their names.

    Args:
        parts: of the text in order; the colour goes by the first word of a mark.
    """
    result: list[str] = []
    colours: dict[str, int] = {}
    for text, name in parts:
        text = html.escape(text)
        if name is not None:
            number = colours.setdefault(name.split()[0], len(colours))
            colour = _COLOURS[number % len(_COLOURS)]
            text = (
                f'<mark style="background:rgba({colour},.2);color:inherit;'
                f'border-bottom:2px solid rgb({colour});padding:0 .15em">{text}'
                f'<small style="opacity:.8"> {html.escape(name)}</small></mark>'
            )
        result.append(text)
    style = "white-space:pre-wrap;overflow-wrap:anywhere;line-height:1.8"
    return f'<p style="{style}">{"".join(result)}</p>'


def bars(title: str, probabilities: Iterable[tuple[str, float]]) -> str:
    """Returns a table of names with their probabilities, the likeliest first."""
    ordered = sorted(probabilities, key=lambda pair: -pair[1])
    rows = "".join(
        f'<tr style="border:0"><th scope="row" style="{_CELL};font-weight:normal">'
        f'{html.escape(name)}</th><td style="{_CELL};width:40%">'
        f'<div style="height:.7em;border-radius:.2em;background:rgb({_COLOURS[0]});'
        f'width:{100 * share:.1f}%"></div></td>'
        f'<td style="{_CELL};width:4em">{share:.1%}</td></tr>'
        for name, share in ordered[:_MOST_ROWS]
    )
    more = len(ordered) - _MOST_ROWS
    note = f", the likeliest {_MOST_ROWS} of {len(ordered)}" if more > 0 else ""
    return (
        f'<table style="{_TABLE};width:100%"><caption '
        f'style="text-align:left;opacity:.8">{html.escape(title)}{note}</caption>'
        f'<tbody style="border:0">{rows}</tbody></table>'
    )


def _headline(text: str) -> str:
    style = "font-size:1.4em;font-weight:600;overflow-wrap:anywhere"
    return f'<p style="{style}">{html.escape(text)}</p>'


def _classes(row, answer) -> Iterator[str]:
    chosen = answer.get("labels", [answer.get("label")])
    yield _headline(", ".join(chosen) or "no label")
    yield bars("Probability of each label", answer["probabilities"].items())


def _choices(row, answer) -> Iterator[str]:
    yield _headline(answer["answer"])
    options = [f"{n}. {option}" for n, option in enumerate(row["options"], 1)]
    pairs = zip(options, answer["probabilities"], strict=True)
    yield bars("Probability of each option", pairs)


def _span(row, answer) -> Iterator[str]:
    text, begin, end = row["context"], answer["begin"], answer["end"]
    yield _headline(answer["answer"] or "no answer in this passage")
    if "null_odds" in answer:
        yield f"<p>Null odds: {answer['null_odds']:.3g}</p>"
    if answer["answer"]:
        name = f"{answer['probability']:.1%}"
        parts = [(text[:begin], None), (text[begin:end], name), (text[end:], None)]
        yield marked(parts)


def _spans(row, answer) -> Iterator[str]:
    text, spans, last = row["text"], answer["spans"], 0
    parts: list[Part] = []
    for span in spans:
        parts += [(text[last : span["begin"]], None)]
        name = f"{span['type']} {span['probability']:.0%}"
        parts += [(text[span["begin"] : span["end"]], name)]
        last = span["end"]
    yield _headline(f"{len(spans)} span{'' if len(spans) == 1 else 's'}")
    yield marked([*parts, (text[last:], None)])


def _gaps(row, answer) -> Iterator[str]:
    *texts, last = row["text"].split(MASK)
    rest = answer.get("filled")
    parts: list[Part] = []
    for gap, before in zip(answer["gaps"], texts, strict=True):
        piece = _bare(gap[0]["piece"]) if gap else MASK
        name = f"{gap[0]['probability']:.0%}" if gap else "beyond the length"
        if rest:  # has no space before a piece that goes on with a word
            begin = rest.index(piece, len(before.rstrip()))
            before, rest = rest[:begin], rest[begin + len(piece) :]
        parts += [(before, None), (piece, name)]
    yield marked([*parts, (last, None)])
    for number, gap in enumerate(answer["gaps"], 1):
        pairs = ((_bare(p["piece"]), p["probability"]) for p in gap)
        yield bars(f"Gap {number}", pairs)


def _bare(piece: str) -> str:
    """Returns a piece as `pretrained.filled` writes it."""
    if piece.startswith(WORD_MARK):
        return piece.removeprefix(WORD_MARK) or MASK
    return piece.removeprefix("##") or MASK


def _order(row, answer) -> Iterator[str]:
    share = answer["in_order"]
    yield _headline("in order" if share >= 0.5 else "in the other order")
    yield bars("Probability", [("in order", share), ("in the other order", 1 - share)])


def _numbers(row, answer) -> Iterator[str]:
    """Yields a table of an answer's own names: numbers, or many of them."""
    lines = []
    for name, value in answer.items():
        values = value if isinstance(value, list) else [value]
        text = ", ".join(f"{number:.5g}" for number in values)
        lines.append(
            f'<tr style="border:0"><th scope="row" style="{_CELL}">'
            f'{html.escape(name)}</th><td style="{_CELL}">{text}</td></tr>'
        )
    yield f'<table style="{_TABLE}">{"".join(lines)}</table>'


_SHOWN: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Iterator[str]]] = {
    "classification": _classes,
    "multi_label": _classes,
    "regression": _numbers,
    "multiple_choice": _choices,
    "question_answering": _span,
    "token_classification": _spans,
    "fill_mask": _gaps,
    "sentence_order": _order,
    "score": _numbers,
    "embedding": _numbers,
}
