"""README and guides: their commands, Python, links and picture are true."""

import dataclasses
import importlib
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import tensorflow as tf

from albert_tf import AlbertConfig, AlbertPretrainer, weights

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests/fixtures"
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
RECIPES = sorted((ROOT / "albert_tf/recipes").glob("*.flags"))
STARS = [("Fine", 5), ("Dull", 1)]
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def blocks(page, kind):
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [text for language, text in found if language == kind]


def commands(page):
    """The calls of Python programs in a page's blocks, a recipe's comment, or cells."""
    if page.suffix == ".flags":
        texts = [re.sub(r"^# *", "", page.read_text(), flags=re.MULTILINE)]
    elif page.suffix == ".ipynb":
        cells = json.loads(page.read_text())["cells"]
        texts = ["".join(cell["source"]) for cell in cells]
        # "!" begins a command, "{NAME}" is a variable, and --verbosity a flag of absl.
        pattern = re.compile(r"^ *!| --verbosity=\S+", re.MULTILINE)
        texts = [pattern.sub("", re.sub(r"\{\w+\}", "1", text)) for text in texts]
    else:
        texts = blocks(page, "")
    lines = "\n".join(texts).replace("\\\n", "").splitlines()
    calls = [shlex.split(line) for line in lines if re.match(r"(\S+/)?python ", line)]
    return [call[1:] for call in calls if call[1].endswith(".py")]


@pytest.mark.parametrize(
    "page", [*PAGES, *RECIPES, *NOTEBOOKS], ids=lambda path: str(path.relative_to(ROOT))
)
def test_scripts_take_the_commands_of_a_page(page, settings_of):
    calls = commands(page)
    assert calls or page.suffix != ".flags"
    for script, *arguments in calls:
        assert (ROOT / script).exists(), script
        if "/" not in script:
            settings_of(script, *arguments)
            continue
        text = (ROOT / script).read_text()  # argparse
        for flag in arguments:
            assert f'"{flag.partition("=")[0]}"' in text or "flags.define" in text, flag


@pytest.mark.parametrize("page", [README, ROOT / "docs/python.md"], ids=str)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch, eagerly):
    config = AlbertConfig.from_json_file(str(DATA / "model_small.config.json"))
    sizes = {"vocab_size": 1500, "num_hidden_layers": 1}
    model = AlbertPretrainer(dataclasses.replace(config, **sizes))
    for folder in ("albert_base", "albert_base_v2"):
        weights.save(model, tmp_path / folder, "tf1")
        shutil.copy(DATA / "spm_small.model", tmp_path / folder / "30k-clean.model")
    rows = [f"{word} film {n},{stars}" for n in range(15) for word, stars in STARS]
    (tmp_path / "reviews.csv").write_text("\n".join(["review,stars", *rows]))
    monkeypatch.chdir(tmp_path)
    names = {"texts": [row.split(",")[0] for row in rows[:6]]}
    names["labels"] = [row.split(",")[1] for row in rows[:6]]
    for text in blocks(page, "python"):
        exec(text.replace("200", "20"), names)  # fewer rows
    served = tf.saved_model.load("served").signatures["serving_default"]
    answers = served(text=tf.constant(names["texts"]))["label"].numpy()
    assert [*map(int, answers)] == names["model"].predict(names["texts"]).tolist()
    assert names["model"].classes_.tolist() == [1, 5]
    if page != README:
        shape = names["states"].shape
        assert (shape[0], shape[2]) == (1, config.hidden_size)
        assert (tmp_path / "mine.keras").exists()


@pytest.mark.parametrize(
    "page", [*PAGES, *NOTEBOOKS], ids=lambda path: str(path.relative_to(ROOT))
)
def test_a_page_names_what_is_there(page):
    text = page.read_text(encoding="utf-8")
    for module, names in re.findall(
        r"^[ \"]*from (albert_tf[\w.]*) import ([\w, ]+)", text, re.M
    ):
        for name in names.split(", "):
            member = name.split(" as ")[0]
            if not hasattr(importlib.import_module(module), member):
                importlib.import_module(f"{module}.{member}")
    for path in re.findall(r"`((?:albert_tf|benchmarks|examples)/[\w/.]*\w/?)`", text):
        assert (ROOT / path).exists(), path
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", text):
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file), (target, anchor)


def anchors(page):
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-")
        for title in titles
    }
