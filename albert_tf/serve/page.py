"""A local page that tries a model, made with Gradio: `albert-tf demo-page`.

It answers through a `Predictor`, as `predict.py` does, one request after another.
"""

import contextlib
import html
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from albert_tf.data import quiet
from albert_tf.data.stopping import Interrupted
from albert_tf.errors import InputError
from albert_tf.serve import display, predict, sessions
from albert_tf.serve.predict import Predictor
from albert_tf.serve.settings.page import PageSettings
from albert_tf.tasks.settings.answer import AnswerSettings

_LOCAL = ("127.0.0.1", "localhost")
# Of a request's body: a text has few characters, and Gradio adds names.
_MOST_BYTES = 1_000_000
# Gradio writes its scripts and styles into the page.
_POLICY = (
    b"default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; "
    b"frame-ancestors 'none'"
)
# Textboxes of several lines keep Enter for themselves.
_KEYS = """<script>addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey))
    document.querySelector("#answer").click();
});</script>"""

_TITLES = {
    "classification": "Text classification",
    "multi_label": "Text classification, several labels",
    "regression": "Text to a number",
    "multiple_choice": "Multiple choice",
    "question_answering": "Question answering",
    "token_classification": "Token classification",
    "fill_mask": "Fill the mask",
    "score": "Score of a text",
    "sentence_order": "Order of sentences",
    "embedding": "Embedding of a text",
}
# Of each field of a row: its label, the lines of its box, and an example.
_PASSAGE = (
    "The Eiffel Tower was built in Paris from 1887 to 1889. Gustave Eiffel's company "
    "designed it for the World's Fair."
)
_FIELDS = {
    "text": ("Text", 4, "A fine film: Audrey Tautou walks through Paris in the rain."),
    "text_a": ("First text", 3, "It rained all night."),
    "text_b": ("Second text", 3, "In the morning the streets were wet."),
    "question": ("Question", 1, "Where was the Eiffel Tower built?"),
    "context": ("Passage", 8, _PASSAGE),
    "article": ("Passage", 8, _PASSAGE),
    "options": ("Options, one a line", 4, "in London\nin Paris\nin Rome\nin Vienna"),
}
_MASKED = "The capital of France is [MASK]."


def run(
    config: PageSettings, options: AnswerSettings, log: IO[str] = sys.stderr
) -> None:
    """Serves the page of a model until it is interrupted.

    Args:
        config: the model, the address and the limits.
        options: how to answer.
        log: where the address is written.

    Raises:
        InputError: see `predict.load`; Gradio is missing, or the port is not free.
    """
    if sessions.find(config.model) is None:
        quiet.tensorflow()
    with served(config, options, log):
        try:
            threading.Event().wait()
        except (KeyboardInterrupt, Interrupted) as error:
            interrupted = error  # kept: one that is gone counts as lost, see `stopping`
    del interrupted
    print("Ended.", file=log)


@contextlib.contextmanager
def served(
    config: PageSettings, options: AnswerSettings, log: IO[str]
) -> Iterator[str]:
    """Serves the page in threads of its own while the block runs; see `run`.

    Yields:
        Its address.
    """
    if importlib.util.find_spec("gradio") is None:
        raise InputError(
            "a page needs the package gradio: pip install 'albert_tf[page]'"
        )
    predictor = predict.load(
        config.model, options, checkpoint=config.checkpoint, files=config
    )
    print(f"Reading {predictor.source}", file=log)
    # Builds the graph, so that the first request need not wait for it.
    answer(predictor, example(predictor), config.max_characters)
    blocks = build(predictor, config)
    address = _launch(blocks, config)
    print(f"{blocks.title}: {address} (Ctrl-C ends it)", file=log, flush=True)
    try:
        yield address
    finally:
        blocks.close(verbose=False)


def answer(predictor: Predictor, texts: Sequence[str], most: int) -> str:
    """Returns the answer to what was typed as HTML, or why there is none.

    Args:
        predictor: whose `fields` the texts are.
        texts: as typed; of options, one a line.
        most: characters of a text.
    """
    try:
        row = _row(predictor, texts, most)
        (result,) = predictor.answer_placed([("the text", row)])
    except InputError as mistake:
        style = "border-left:.3em solid rgb(220,38,38);padding-left:.6em"
        return f'<p role="alert" style="{style}">{html.escape(str(mistake))}</p>'
    shown = display.answer_html(predictor.task["kind"], row, result)
    return f'<div role="status">{shown}</div>'


def _row(predictor: Predictor, texts: Sequence[str], most: int) -> dict[str, Any]:
    """Returns what was typed as a row.

    Raises:
        InputError: a text is empty or too long, or there are too few options.
    """
    row: dict[str, Any] = {}
    for (name, is_list), text in zip(predictor.fields.items(), texts, strict=True):
        label = _FIELDS[name][0]
        if not text.strip():
            raise InputError(f"{label}: empty; expected a text")
        if len(text) > most:
            raise InputError(
                f"{label}: {len(text):,} characters; expected at most {most:,}"
            )
        row[name] = text
        if is_list:
            row[name] = [line.strip() for line in text.splitlines() if line.strip()]
            if len(row[name]) < 2:
                raise InputError(f"{label}: 1 option; expected at least 2")
    return row


def example(predictor: Predictor) -> list[str]:
    """Returns a text for each field."""
    if predictor.task["kind"] == "fill_mask":
        return [_MASKED]
    return [_FIELDS[name][2] for name in predictor.fields]


def build(predictor: Predictor, config: PageSettings) -> Any:
    """Makes the page, a `gradio.Blocks`."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    import gradio as gr

    def respond(*texts: str | None) -> str:
        return answer(predictor, [t or "" for t in texts], config.max_characters)

    title = _TITLES[predictor.task["kind"]]
    with gr.Blocks(title=f"{title}, {config.model}", analytics_enabled=False) as blocks:
        gr.HTML(_header(title, predictor))
        with gr.Row():
            with gr.Column():
                boxes = [
                    gr.Textbox(
                        label=_FIELDS[name][0],
                        lines=_FIELDS[name][1],
                        max_lines=20,
                        autofocus=number == 0,
                        elem_id=name,
                    )
                    for number, name in enumerate(predictor.fields)
                ]
                with gr.Row():
                    button = gr.Button("Answer", variant="primary", elem_id="answer")
                    show = gr.Button("Example", elem_id="example")
            with gr.Column():
                result = gr.HTML(
                    "<p>The answer comes here. Ctrl+Enter asks.</p>",
                    label="Answer",
                    show_label=True,
                    container=True,
                    padding=True,
                    elem_id="result",
                )
        gr.on(
            [button.click, *(box.submit for box in boxes)],
            respond,
            boxes,
            result,
            api_name="answer",
        )
        texts = example(predictor)
        show.click(lambda: texts if len(texts) > 1 else texts[0], None, boxes)
    return blocks.queue(max_size=config.max_waiting, default_concurrency_limit=1)


def _header(title: str, predictor: Predictor) -> str:
    lines = [
        f"<h1>{title}</h1>",
        f"<p><code>{html.escape(str(predictor.source))}</code>",
    ]
    if labels := predictor.task.get("labels"):
        lines.append(f"<br>Labels: {html.escape(', '.join(labels))}")
    if length := predictor.task.get("max_seq_length"):
        lines.append(f"<br>Reads {length} tokens at once")
    return "".join([*lines, "</p>"])


def _launch(blocks: Any, config: PageSettings) -> str:
    """Serves a page in threads of its own; returns its address.

    Raises:
        InputError: the port is not free.
    """
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    hosts = [*_LOCAL, config.host] if config.host in _LOCAL else ["*"]
    try:
        _, address, _ = blocks.launch(
            server_name=config.host,
            server_port=config.port or None,
            inbrowser=config.open_browser,
            share=False,
            ssr_mode=False,
            mcp_server=False,
            run_history=False,
            enable_monitoring=False,
            max_file_size=1,
            quiet=True,
            prevent_thread_lock=True,
            footer_links=[],
            head=_KEYS,
            app_kwargs={
                "middleware": [
                    Middleware(TrustedHostMiddleware, allowed_hosts=hosts),
                    Middleware(_Guard),
                ]
            },
        )
    except OSError as error:
        raise InputError(
            f"--host={config.host} --port={config.port}: {error}"
        ) from error
    return address


class _Guard:
    """Refuses large requests, and keeps the page from asking other hosts."""

    def __init__(self, app: Any):
        self._app = app

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        """Answers a request, as ASGI has it."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        length = dict(scope["headers"]).get(b"content-length", b"")
        is_small = length.isdigit() and int(length) <= _MOST_BYTES
        if scope["method"] == "POST" and not is_small:
            await send({"type": "http.response.start", "status": 413, "headers": []})
            return await send({"type": "http.response.body", "body": b"too large"})

        async def send_with_policy(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                policy = (b"content-security-policy", _POLICY)
                message["headers"] = [*message["headers"], policy]
            await send(message)

        await self._app(scope, receive, send_with_policy)
