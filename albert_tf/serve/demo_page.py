"""A local page that tries a model, made with Gradio: `albert-tf demo-page`.

It answers through a `Predictor`, as `predict.py` does, one request after another.
"""

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from typing import IO, Any

from albert_tf.errors import InputError
from albert_tf.serve import predict
from albert_tf.serve.predict import Predictor
from albert_tf.serve.settings.page import PageSettings
from albert_tf.tasks.settings.answer import AnswerSettings
from albert_tf.text.inputs import MASK

_PASSAGE = (
    "The Eiffel Tower was built in Paris from 1887 to 1889. Gustave Eiffel's company "
    "designed it for the World's Fair."
)
# The label, number of lines and example of each field of a row.
_FIELDS = {
    "text": ("Text", 4, f"The Eiffel Tower stands in {MASK}."),
    "text_a": ("First text", 3, "It rained all night."),
    "text_b": ("Second text", 3, "In the morning the streets were wet."),
    "question": ("Question", 1, "Where was the Eiffel Tower built?"),
    "context": ("Passage", 8, _PASSAGE),
    "article": ("Passage", 8, _PASSAGE),
    "options": ("Options, one a line", 4, "in London\nin Paris\nin Rome\nin Vienna"),
}

Values = Mapping[str, Any]


def run(
    config: PageSettings, options: AnswerSettings, log: IO[str] = sys.stderr
) -> None:
    """Serves the page of a model until Ctrl-C.

    Args:
        config: the model and the address.
        options: how to answer.
        log: receives the address.

    Raises:
        InputError: see `predict.load`; Gradio is missing, or the port is not free.
    """
    if importlib.util.find_spec("gradio") is None:
        raise InputError(
            "the page needs the package gradio: pip install 'albert_tf[page]'"
        )
    predictor = predict.load(
        config.model, options, checkpoint=config.checkpoint, files=config
    )
    page = build(predictor, config)
    print(f"Reading {predictor.source}; Ctrl-C ends the page", file=log, flush=True)
    try:
        page.launch(
            server_name=config.host,
            server_port=config.port or None,
            inbrowser=config.open_browser,
            share=False,
        )
    except OSError as error:
        raise InputError(
            f"--host={config.host} --port={config.port}: {error}"
        ) from error


def build(predictor: Predictor, config: PageSettings) -> Any:
    """Returns the page, a `gradio.Interface`."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    import gradio as gr

    component, render = _RENDERERS.get(predictor.task["kind"], ("JSON", _as_is))

    def answer(*texts: str | None) -> Any:
        row: dict[str, Any] = {}
        for (name, is_list), text in zip(predictor.fields.items(), texts, strict=True):
            if text or is_list is not None:  # None: the text may be absent
                row[name] = (text or "").splitlines() if is_list else text or ""
        try:
            (result,) = predictor.answer_placed([("the text", row)])
        except InputError as error:
            raise gr.Error(str(error)) from error
        return render(row, result)

    fields = [_FIELDS[name] for name in predictor.fields]
    needed = [is_list is not None for is_list in predictor.fields.values()]
    return gr.Interface(
        answer,
        [
            gr.Textbox(label=label, lines=lines, max_length=config.max_characters)
            for label, lines, _ in fields
        ],
        getattr(gr, component)(label="Answer"),
        examples=[[f[2] if n else "" for f, n in zip(fields, needed, strict=True)]],
        title=predictor.task["kind"].replace("_", " ").capitalize(),
        description=f"`{predictor.source}`",
        flagging_mode="never",
        api_name="answer",
    ).queue(max_size=config.max_waiting, default_concurrency_limit=1)


def _as_is(row: Values, answer: Values) -> Values:
    return answer


def _label_probabilities(row: Values, answer: Values) -> Values:
    return answer["probabilities"]


def _option_probabilities(row: Values, answer: Values) -> Values:
    options = [f"{n}. {option}" for n, option in enumerate(row["options"], 1)]
    return dict(zip(options, answer["probabilities"], strict=True))


def _order_probabilities(row: Values, answer: Values) -> Values:
    share = answer["in_order"]
    return {"in order": share, "in the other order": 1 - share}


def _highlighted_answer(row: Values, answer: Values) -> Values:
    if not answer["answer"]:
        return {"text": "no answer in this passage", "entities": []}
    span = (answer["begin"], answer["end"], f"{answer['probability']:.1%}")
    return _highlighted(row["context"], [span])


def _highlighted_spans(row: Values, answer: Values) -> Values:
    spans = [(span["begin"], span["end"], span["type"]) for span in answer["spans"]]
    return _highlighted(row["text"], spans)


def _highlighted(text: str, spans: list[tuple[int, int, str]]) -> Values:
    entities = [{"start": begin, "end": end, "entity": e} for begin, end, e in spans]
    return {"text": text, "entities": entities}


# The Gradio component of each kind of task and what it is given; JSON for others.
_RENDERERS: dict[str, tuple[str, Callable[[Values, Values], Values]]] = {
    "classification": ("Label", _label_probabilities),
    "multi_label": ("Label", _label_probabilities),
    "multiple_choice": ("Label", _option_probabilities),
    "sentence_order": ("Label", _order_probabilities),
    "question_answering": ("HighlightedText", _highlighted_answer),
    "token_classification": ("HighlightedText", _highlighted_spans),
}
