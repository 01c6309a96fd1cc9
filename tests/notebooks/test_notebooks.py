"""Checks the stored notebooks; `make test-slow` runs them."""

import re
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
BADGE = re.compile(
    r"\[!\[Open in Colab\]\(https://colab\.research\.google\.com/assets/"
    r"colab-badge\.svg\)\]\(https://colab\.research\.google\.com/github/"
    r"(?P<repository>[\w-]+/[\w-]+)/blob/main/notebooks/(?P<name>[\w.]+)\)"
)
COMMAND = re.compile(r"^( *)!(?:.*\\\n)*.*$", re.MULTILINE)
NOISE = re.compile(r"\w+Warning|Traceback|^error: |^[IWEF]\d{4} ", re.MULTILINE)
SECONDS_A_CELL = 900

# What the text of a notebook says of its figures; run in it, after its last cell.
CLAIMS = {
    "01_pretrain.ipynb": """
        assert held_out["masked_lm_accuracy"] > 2 * frequent, held_out
        order = known["train"]["sentence_order_accuracy"]
        assert min(list(order.values())[-3:]) > 0.52, order
        foods, places = map(set, zip(*animals.values()))
        tops = [fills[0]["token"] for fills in japanese_fills]
        assert foods.issuperset(tops[:2]) and places.issuperset(tops[2:]), tops
        assert japanese_orders[0] > 0.9 and japanese_orders[1] < 0.1, japanese_orders
        fish, house, garden, meat = japanese_scores
        assert fish > house and garden > meat, japanese_scores
    """,
    "02_finetune_glue.ipynb": """
        assert metrics["eval_accuracy"] > 0.9, metrics
        assert labels[:4].tolist() == ["good", "bad", "bad", "good"], labels
    """,
    "03_question_answering.ipynb": """
        assert answerer.metrics_["exact_match"] > 80, answerer.metrics_
        assert chooser.metrics_["eval_accuracy"] > 0.75, chooser.metrics_
        said = [answer["answer"].strip(".") for answer in answers[:3]]
        assert said == ["Lisbon", "chess", "Coco"], said
        assert all(a["answer"].strip(".") in ("Lisbon", "Oslo") for a in answers[3:])
        chosen = [choice["answer"] for choice in choices]
        assert sum(map(str.__eq__, chosen, quiz.values())) >= 2, chosen
    """,
    "04_convert_and_export.ipynb": """
        equal = [name for name, value in differences.items() if value == 0]
        assert {"TF1", "Hugging Face", "Keras"} <= set(equal), differences
        close = ["TF-Hub", "LiteRT float32", "ONNX float32"]
        assert all(differences[name] < 1e-4 for name in close), differences
        assert 1e-4 < differences["LiteRT int8"], differences
        assert agreement["LiteRT float32"] == agreement["ONNX float32"] == 1
        assert sizes["LiteRT int8"] < sizes["LiteRT float32"] / 2, sizes
        assert sizes["TF1"] < 1.2 * model.count_params() * 4 / 1024
        assert served == {
            "Wake me at six.": "alarm",
            "Snow in two hours?": "weather",
            "Send a note to two friends.": "message",
            "Music for nine hours.": "music",
        }
    """,
}


def read(path):
    return nbformat.read(path, as_version=4)


def code_of(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def pictures(notebook):
    outputs = (output for cell in code_of(notebook) for output in cell.outputs)
    return [output for output in outputs if "image/png" in output.get("data", {})]


def texts(notebook):
    """What the outputs say."""
    for cell in code_of(notebook):
        for output in cell.outputs:
            yield output.get("text", "")
            yield output.get("data", {}).get("text/plain", "")
            yield "\n".join(output.get("traceback", ()))


@pytest.fixture
def checkout(tmp_path):
    """A checkout of links to this one, so that what notebooks make stays outside."""
    folder = tmp_path / "albert_tf"
    (folder / "notebooks").mkdir(parents=True)
    for entry in ROOT.iterdir():
        if entry.name not in ("notebooks", "work"):
            (folder / entry.name).symlink_to(entry)
    return folder


@pytest.mark.slow
# What the kernel and its client say of their own interfaces is not about this package.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_its_figures_hold(path, checkout):
    notebook = read(path)
    for cell in code_of(notebook):
        # A notebook goes on after a command that failed.
        cell.source = COMMAND.sub(r"\g<0>\n\1assert _exit_code == 0", cell.source)
    claims = re.sub(r"^ {8}", "", CLAIMS[path.name], flags=re.MULTILINE)
    notebook.cells.append(nbformat.v4.new_code_cell(claims))
    before = set(checkout.iterdir())
    nbclient.NotebookClient(
        notebook,
        timeout=SECONDS_A_CELL,
        resources={"metadata": {"path": str(checkout / "notebooks")}},
    ).execute()
    assert len(pictures(notebook)) >= 2
    assert not list(filter(NOISE.search, texts(notebook)))
    assert {made.name for made in set(checkout.iterdir()) - before} == {"work"}
    assert not list((checkout / "notebooks").iterdir())


def test_badges_and_first_cells_name_the_same_repository():
    owners, first_cells = set(), set()
    for path in NOTEBOOKS:
        [(owner, name)] = BADGE.findall(path.read_text())
        assert name == path.name
        owners.add(owner)
        first_cells.add(code_of(read(path))[0].source)
    [owner], [first] = owners, first_cells
    assert f'REPOSITORY = "https://github.com/{owner}"' in first


def test_elsewhere_the_first_cell_clones_and_installs(tmp_path, monkeypatch):
    source = code_of(read(NOTEBOOKS[0]))[0].source
    calls = []

    def call(command):
        calls.append(command)
        if command.startswith("git clone"):
            for folder in ("albert_tf", "notebooks"):
                (tmp_path / "albert_tf" / folder).mkdir(parents=True)
            requirements = tmp_path / "albert_tf/requirements.txt"
            requirements.write_text("# A comment.\nno-such-package>=1\n")

    for name in ("PATH", "PYTHONPATH", "TF_CPP_MIN_LOG_LEVEL"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    exec(re.sub(r"^( +)!(.*)$", r"\1call('\2')", source, flags=re.M), {"call": call})
    pip = "{sys.executable} -m pip install --quiet"
    assert calls == [
        "git clone --quiet --depth=1 {REPOSITORY}",
        f"{pip} -c constraints.txt -r requirements.txt",
    ]
    assert Path.cwd() == tmp_path / "albert_tf"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_stored_notebook_is_executed_small_and_of_no_machine(path):
    notebook = read(path)
    assert path.stat().st_size < 400_000
    assert len(pictures(notebook)) >= 2
    counts = [cell.execution_count for cell in code_of(notebook)]
    assert counts == list(range(1, len(counts) + 1))
    for text in texts(notebook):
        assert not NOISE.search(text), text
        assert not re.search(r"/(home|root|tmp|work|content)/", text), text
