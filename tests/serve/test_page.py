"""The page of a model: what it answers and refuses, and in a real browser."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from albert_tf import AlbertConfig, InputError, weights
from albert_tf.model import models
from albert_tf.serve import page
from albert_tf.serve.settings.page import PageSettings
from albert_tf.tasks.settings.answer import AnswerSettings

CONFIG = AlbertConfig(
    vocab_size=1500,
    embedding_size=8,
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=20,
    max_position_embeddings=64,
)
FILL = AnswerSettings(task="fill_mask")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("pretrained")
    shutil.copy(data / "spm_small.model", path / "spm.model")
    weights.save(models.AlbertPretrainer(CONFIG), path, "tf1")
    return path


class Stub:
    """Answers without a model."""

    def __init__(self, kind, **specs):
        self.task = {"kind": kind}
        self.fields = {name: rank == 2 for name, rank in specs.items()}

    def answer_placed(self, rows):
        for place, row in rows:
            if "options" not in row:
                raise InputError(f"{place}: <refused>")
            shares = [1 / len(row["options"])] * len(row["options"])
            yield {"choice": 0, "answer": row["options"][0], "probabilities": shares}


CHOICE = Stub("multiple_choice", article=1, question=1, options=2)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["", "q", "a\nb"], "Passage: empty; expected a text"),
        (["a", " \n", "a\nb"], "Question: empty; expected a text"),
        (["a" * 1001, "q", "a\nb"], "Passage: 1,001 characters; expected at most 1,00"),
        (["a", "q", "a\n \n"], "Options, one a line: 1 option; expected at least 2"),
    ],
)
def test_what_cannot_be_answered_is_named(texts, message):
    shown = page.answer(CHOICE, texts, 1000)
    assert shown.startswith('<p role="alert"')
    assert message in shown


def test_options_are_lines():
    shown = page.answer(CHOICE, ["a", "q", " one \n\ntwo\n"], 1000)
    assert shown.startswith('<div role="status">')
    assert "1. one" in shown and "2. two" in shown
    assert "50.0%" in page.answer(CHOICE, [*page.example(CHOICE)[:2], "a\nb"], 1000)


def test_the_models_own_refusals_are_escaped():
    shown = page.answer(Stub("classification", text=1), ["x"], 1000)
    assert "the text: &lt;refused&gt;" in shown


def test_a_missing_gradio_is_named(folder, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    config = PageSettings(model=str(folder))
    with pytest.raises(InputError, match=r"pip install 'albert_tf\[page\]'$"):
        page.run(config, FILL, io.StringIO())


@pytest.fixture(scope="module")
def served(folder):
    """The command in a process of its own, as Gradio leaves sockets open; its address.

    Ctrl-C ends it.
    """
    pytest.importorskip("gradio", reason="needs Gradio: make test-page installs it")
    command = [sys.executable, "-m", "albert_tf.commands", "demo-page"]
    flags = [f"--model={folder}", "--task=fill_mask", "--noopen_browser"]
    with subprocess.Popen(
        [*command, *flags, "--max_characters=200"],
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            lines = [process.stderr.readline() for _ in range(2)]
            assert lines[0] == f"Reading {folder}/model.ckpt-best\n"
            match = re.fullmatch(
                r"Fill the mask, (.*): (http:.*) \(Ctrl-.*\n", lines[1]
            )
            assert match[1] == str(folder)
            assert match[2].startswith("http://127.0.0.1:")
            yield match[2]
            process.send_signal(signal.SIGINT)
            assert process.stderr.read() == "Ended.\n"
            assert process.wait() == 0
        finally:
            process.kill()


def test_a_port_that_is_taken_is_named():
    pytest.importorskip("gradio", reason="needs Gradio: make test-page installs it")

    class Blocks:
        def launch(self, **settings):
            assert settings["server_name"] == "127.0.0.1"
            raise OSError(f"no empty port: {settings['server_port']}")

    with pytest.raises(InputError, match=r"^--host=127.0.0.1 --port=7: no empty po"):
        page._launch(Blocks(), PageSettings(model="x", port=7))


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"Host": "attacker.example"}, None, 400),
        ({"Content-Length": "1000001"}, b"x", 413),
    ],
)
def test_other_hosts_and_large_requests_are_refused(served, headers, body, status):
    request = urllib.request.Request(served, data=body, headers=headers)
    with pytest.raises(urllib.error.HTTPError) as refusal:
        urllib.request.urlopen(request)
    assert refusal.value.code == status
    refusal.value.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A headless Chromium that logs what it asks for."""
    reason = "needs Selenium: make test-page installs it"
    webdriver = pytest.importorskip("selenium.webdriver", reason=reason)
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("needs Debian's packages chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in (
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"),
        *("--no-first-run", "--disable-background-networking", "--disable-sync"),
        "--disable-component-update",
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    with webdriver.Chrome(options, service) as driver:
        yield driver


@pytest.fixture
def opened(browser, served):
    """Opens the page; what it returns types keys and waits for the answer."""
    from selenium.webdriver.support.wait import WebDriverWait

    browser.get(served)
    wait = WebDriverWait(browser, 20)
    wait.until(lambda driver: driver.find_elements("id", "answer"))
    wait.until(lambda driver: driver.switch_to.active_element.tag_name == "textarea")

    def press(*keys, expected, role="status"):
        browser.switch_to.active_element.send_keys(*keys)
        found = f"//*[@id='result']//*[@role='{role}'][contains(., '{expected}')]"
        return wait.until(lambda driver: driver.find_element("xpath", found)).text

    return press


def hold(key, other):
    from selenium.webdriver import Keys

    return (key, other, Keys.NULL)


def test_the_page_loads_and_answers_by_the_keyboard_alone(browser, opened, folder):
    from selenium.webdriver import Keys
    from selenium.webdriver.support.wait import WebDriverWait

    assert browser.title == f"Fill the mask, {folder}"
    assert browser.find_element("tag name", "h1").text == "Fill the mask"
    assert f"{folder}/model.ckpt-best" in browser.page_source
    box = browser.switch_to.active_element
    assert box.accessible_name == "Text"
    text = opened(
        "a <b>[MASK]</b> ${1+1} {{x}}", Keys.TAB, Keys.ENTER, expected="Gap 1"
    )
    # Escaped, and no template.
    assert text.startswith("a <b>")
    assert "</b> ${1+1} {{x}}" in text
    assert browser.switch_to.active_element.accessible_name == "Answer"
    opened(Keys.TAB, Keys.ENTER, expected="Gap 1")
    wait = WebDriverWait(browser, 20)
    wait.until(lambda driver: box.get_property("value") == page._MASKED)
    shown = opened(*hold(Keys.CONTROL, Keys.ENTER), expected="capital")
    assert shown.startswith("The capital of France is ")


def test_the_page_refuses_and_then_answers(browser, opened):
    from selenium.webdriver import Keys

    ask = hold(Keys.CONTROL, Keys.ENTER)
    clear = (*hold(Keys.CONTROL, "a"), Keys.DELETE)
    opened(*ask, expected="Text: empty; expected a text", role="alert")
    text = opened("no gap", *ask, expected="no [MASK] in", role="alert")
    assert "Traceback" not in text
    long = "201 characters; expected at most 200"
    opened(*clear, "a" * 201, *ask, expected=long, role="alert")
    opened(*clear, "a [MASK]", *ask, expected="Gap 1")


def test_the_page_asks_no_other_host(browser, opened):
    entries = [
        json.loads(e["message"])["message"] for e in browser.get_log("performance")
    ]
    sent = [e for e in entries if e["method"] == "Network.requestWillBeSent"]
    urls = {e["params"]["request"]["url"] for e in sent}
    assert urls
    own = ("http://127.0.0.1:", "data:", "chrome:")
    assert not [url for url in urls if not url.startswith(own)]
