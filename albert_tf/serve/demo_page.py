"""A local Gradio page to try a model: `albert-tf demo-page`.

The page answers one request after another.
"""

import os
import sys
from collections.abc import Mapping
from typing import IO, Any

from albert_tf import errors
from albert_tf.errors import InputError
from albert_tf.serve import predict
from albert_tf.serve.predict import Predictor
from albert_tf.serve.settings import PageSettings
from albert_tf.tasks.settings.pipeline import PipelineSettings

Values = Mapping[str, Any]

_LABEL_TYPES = ("classification", "multi_label", "multiple_choice", "sentence_order")
_SPAN_TYPES = ("question_answering", "token_classification")
# {task type: name of the Gradio component that shows its answers}; "JSON" for others.
_COMPONENTS = {
    **dict.fromkeys(_LABEL_TYPES, "Label"),
    **dict.fromkeys(_SPAN_TYPES, "HighlightedText"),
}


def serve(
    settings: PageSettings, options: PipelineSettings, log: IO[str] = sys.stderr
) -> None:
    """Serves the page of a model until Ctrl-C.

    Args:
        settings: the model and the address.
        options: settings of the answers.
        log: receives progress.

    Raises:
        InputError: see `predict.load`; Gradio is missing, or the port is not free.
    """
    errors.check_installed("the page", "gradio", extra="page")
    predictor = predict.load(
        settings.model, options, checkpoint=settings.checkpoint, files=settings
    )
    page = build(predictor)
    print(f"Reading {predictor.source}; Ctrl-C ends the page", file=log, flush=True)
    try:
        page.launch(
            server_name=settings.host,
            server_port=settings.port or None,
            inbrowser=settings.open_browser,
            share=False,
        )
    except OSError as error:
        raise InputError(
            f"--host={settings.host} --port={settings.port}: {error}"
        ) from error


def build(predictor: Predictor) -> Any:
    """Returns the page, a `gradio.Interface`."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    import gradio as gr

    component = _COMPONENTS.get(predictor.task["kind"], "JSON")

    # `is_list` is a value of `rows.Fields`: None means that the text is optional.
    def answer(*boxes: str | None) -> Any:
        row: dict[str, Any] = {}
        for (name, is_list), box in zip(predictor.fields.items(), boxes, strict=True):
            text = box or ""
            if text or is_list is not None:
                row[name] = text.splitlines() if is_list else text
        try:
            result = next(predictor.answer_located([("the text", row)]))
        except InputError as error:
            raise gr.Error(str(error)) from error
        return result if component == "JSON" else _render(row, result)

    inputs = []
    for name, is_list in predictor.fields.items():
        label = name.replace("_", " ").capitalize()
        label += ", one per line" if is_list else ""
        inputs.append(gr.Textbox(label=label, lines=4))
    return gr.Interface(
        answer,
        inputs,
        getattr(gr, component)(label="Answer"),
        title=predictor.task["kind"].replace("_", " ").capitalize(),
        description=f"`{predictor.source}`",
        flagging_mode="never",
        api_name="answer",
    ).queue(default_concurrency_limit=1)


def _render(row: Values, answer: Values) -> Any:
    """Returns an answer as the value of its Gradio component.

    The keys of the answer tell the task type.
    """
    if "spans" in answer:  # token classification
        return _highlight(row["text"], answer["spans"])
    if "begin" in answer:  # question answering
        if not answer["answer"]:
            return {"text": "no answer in this passage", "entities": []}
        span = {**answer, "type": f"{answer['probability']:.1%}"}
        return _highlight(row["context"], [span])
    if "in_order" in answer:  # sentence order
        probability = answer["in_order"]
        return {"in order": probability, "in the other order": 1 - probability}
    if "choice" in answer:  # multiple choice
        options = [f"{n}. {option}" for n, option in enumerate(row["options"], 1)]
        return dict(zip(options, answer["probabilities"], strict=True))
    return answer["probabilities"]  # {label: probability}


def _highlight(text: str, spans: list[dict[str, Any]]) -> Values:
    """Returns the value of a `HighlightedText` that marks `spans` in a text."""
    # {key in Gradio: key of a span}.
    keys = {"start": "begin", "end": "end", "entity": "type"}
    entities = [{key: span[name] for key, name in keys.items()} for span in spans]
    return {"text": text, "entities": entities}
