"""The page of a model: its components for each kind, and its errors."""

import gc
import io
import json
import runpy
import shutil
import urllib.request
from pathlib import Path

import pytest

from albert_tf import InputError, commands, weights
from albert_tf.model import models
from albert_tf.serve import demo_page
from albert_tf.serve.settings import PageSettings
from albert_tf.tasks.settings.pipeline import PipelineSettings

# Gradio does not close sockets and event loops.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def collected():
    """Closes the open files of Gradio while its warnings are ignored."""
    yield
    gc.collect()


PROBABILITIES = {"good": 0.75, "bad": 0.25}


class Stub:
    """Gives one answer, without a model."""

    source = "runs/mine"

    def __init__(self, kind, fields, answer):
        self.task = {"kind": kind}
        self.fields = fields
        self.answer = answer
        self.rows = []

    def answer_located(self, rows):
        for location, row in rows:
            if "" in row.values():
                raise InputError(f"{location}: empty")
            self.rows.append(row)
            yield self.answer


def build(stub):
    pytest.importorskip("gradio", reason="make test-all installs it")
    return demo_page.build(stub)


def marked(text, **entity):
    return {"text": text, "entities": [entity]}


@pytest.mark.parametrize(
    ("kind", "answer", "texts", "component", "shown"),
    [
        ("classification", {"label": "good", "probabilities": PROBABILITIES},
         {"text": "x"}, "label", PROBABILITIES),
        ("multiple_choice",
         {"choice": 1, "answer": "same", "probabilities": [0.4, 0.6]},
         {"article": "a", "question": "q", "options": "same\nsame"}, "label",
         {"1. same": 0.4, "2. same": 0.6}),
        ("question_answering",
         {"answer": "Rome", "begin": 3, "end": 7, "probability": 0.5},
         {"question": "q", "context": "In Rome."}, "highlightedtext",
         marked("In Rome.", start=3, end=7, entity="50.0%")),
        ("question_answering",
         {"answer": "", "begin": -1, "end": -1, "probability": 0.0},
         {"question": "q", "context": "In Rome."}, "highlightedtext",
         {"text": "no answer in this passage", "entities": []}),
        ("token_classification",
         {"spans": [{"type": "PER", "begin": 0, "end": 3, "probability": 0.9}]},
         {"text": "Ann met Bo."}, "highlightedtext",
         marked("Ann met Bo.", start=0, end=3, entity="PER")),
        ("a new kind", {"value": 7}, {"text": "x"}, "json", {"value": 7}),
    ],
)  # fmt: skip
def test_each_kind_has_its_component(kind, answer, texts, component, shown):
    stub = Stub(kind, {name: name == "options" for name in texts}, answer)
    page = build(stub)
    assert [each.get_block_name() for each in page.output_components] == [component]
    assert page.fn(*texts.values()) == shown
    (row,) = stub.rows
    assert row == {n: x.split("\n") if n == "options" else x for n, x in texts.items()}


def test_a_refusal_is_shown_on_the_page():
    gradio = pytest.importorskip("gradio", reason="make test-all installs it")
    with pytest.raises(gradio.Error, match="the text: empty"):
        build(Stub("regression", {"text": False}, {})).fn(None)


def test_the_command_serves_the_page(
    tmp_path, data, tiny, settings_of, monkeypatch, eagerly
):
    gradio = pytest.importorskip("gradio", reason="make test-all installs it")
    shutil.copy(data / "spm_small.model", tmp_path / "spm.model")
    config = tiny(vocab_size=1500, num_hidden_layers=1)
    weights.save(models.AlbertPretrainer(config), tmp_path, "tf1")
    answers = []

    def ask(page):
        address = f"{page.local_api_url}call/answer"
        headers = {"Content-Type": "application/json"}
        question = urllib.request.Request(address, b'{"data": ["a [MASK]"]}', headers)
        try:
            with urllib.request.urlopen(question, timeout=60) as response:
                event = json.load(response)["event_id"]
            with urllib.request.urlopen(f"{address}/{event}", timeout=60) as response:
                answers.append(response.read().decode())
        finally:
            page.close(verbose=False)

    # The page waits for Ctrl-C there.
    monkeypatch.setattr(gradio.Blocks, "block_thread", ask)
    flags = [f"--model={tmp_path}", "--task=fill_mask", "--noopen_browser"]
    settings = settings_of("demo-page", *flags)
    commands.find_command("demo-page").main(*settings)
    [answer] = answers
    assert answer.startswith('event: complete\ndata: [{"gaps": [[{"token": ')


def test_the_example_of_a_service_answers(tmp_path, data, tiny, monkeypatch, eagerly):
    fastapi = pytest.importorskip("fastapi", reason="make test-all installs it")
    shutil.copy(data / "spm_small.model", tmp_path / "spm.model")
    config = tiny(vocab_size=1500, num_hidden_layers=1)
    weights.save(models.AlbertClassifier(config, 2), tmp_path, "tf1")
    task = {"kind": "classification", "labels": ["bad", "good"]}
    (tmp_path / "task.json").write_text(json.dumps(task))
    monkeypatch.setenv("MODEL", str(tmp_path))
    example = Path(__file__).parents[2] / "examples/serve_http.py"
    names = runpy.run_path(str(example))
    assert names["app"].url_path_for("respond") == "/predict"
    [answer] = names["respond"]([{"text": "A fine film."}])
    assert answer["label"] in ("bad", "good")
    with pytest.raises(fastapi.HTTPException, match="text is missing") as refusal:
        names["respond"]([{"texts": "A fine film."}])
    assert refusal.value.status_code == 400


@pytest.mark.parametrize("is_installed", [True, False])
def test_what_prevents_the_page_is_named(is_installed, monkeypatch):
    class Page:
        def launch(self, **settings):
            assert settings["server_name"] == "127.0.0.1"
            raise OSError(f"no empty port: {settings['server_port']}")

    stub = Stub("regression", {"text": False}, {})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: is_installed or None)
    monkeypatch.setattr(demo_page.predict, "load", lambda *a, **k: stub)
    monkeypatch.setattr(demo_page, "build", lambda predictor: Page())
    message = r"^--host=127.0.0.1 --port=7: no empty port: 7$"
    if not is_installed:
        message = r"pip install 'albert_tf\[page\]'$"
    config = PageSettings(model="x", port=7)
    with pytest.raises(InputError, match=message):
        demo_page.serve(config, PipelineSettings(), io.StringIO())
