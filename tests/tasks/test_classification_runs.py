"""What run_classifier.py does, on tables of a few rows."""

import json
import re

import numpy as np
import pytest
from helpers import slow_except

from albert_tf.errors import InputError
from albert_tf.tasks import catalogue
from albert_tf.tasks.classification import Classification
from albert_tf.tasks.settings.classification import ClassifierRunSettings
from albert_tf.tasks.settings.fine_tuning import ModelSettings
from albert_tf.tasks.text_task import TextTask

TRAIN = {
    "do_train": True,
    "num_train_steps": 2,
    "train_batch_size": 4,
    "save_checkpoints_steps": 1,
    "log_steps": 1,
}
TEN_ROWS = 10

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture
def run(tmp_path, fine_tune, new_model):
    """Does what the flags say; returns the log."""

    def call(folder="run", *, new=True, table=None, log=None, **flags):
        model = new_model() if new else ModelSettings()
        flags |= {"output_dir": str(tmp_path / folder), **(table or {})}
        flags |= {"eval_batch_size": 32, "predict_batch_size": 32}  # all rows
        return fine_tune(Classification, ClassifierRunSettings, flags, model, log)

    return call


@pytest.fixture
def glue(data):
    return str(data / "glue_own")


@pytest.fixture
def own_table(tmp_path):
    """Writes a table whose label is whether the text has the word "file"."""

    def write(name, count):
        random = np.random.default_rng(len(name))
        lines = ["text\tlabel"]
        for _ in range(count):
            words = random.choice(["file", "list", "string"], random.integers(1, 5))
            lines.append(f"{' '.join(words)}\t{'yes' if 'file' in words else 'no'}")
        path = tmp_path / f"{name}.tsv"
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    return write


def files_of(folder):
    """Returns the predictions in a folder, by name."""
    return {path.name: path.read_text() for path in folder.glob("*.tsv")}


def check_predictions(task, test, folder, ending=""):
    """Compares the files of a test table with each other; returns the site's words."""
    declared = catalogue.get_task(task)
    results = (folder / f"test_results{ending}.tsv").read_text().splitlines()
    outputs = np.array([line.split("\t") for line in results], float)
    assert outputs.shape == (TEN_ROWS, declared.num_outputs)
    lines = (folder / f"submit_results{ending}.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction"
    words = [line.split("\t")[1] for line in lines[1:]]
    site = (folder / declared.submission[test]).read_text().splitlines()
    if declared.labels is None:
        np.testing.assert_allclose(np.clip(outputs[:, 0], 0, 5), np.float32(words))
        assert site[1:] == [
            f"{line.split(chr(9))[0]}\t{float(word):.3f}"
            for line, word in zip(lines[1:], words, strict=True)
        ]
    else:
        np.testing.assert_allclose(outputs.sum(axis=1), 1, rtol=1e-5)
        assert words == [declared.labels[k] for k in outputs.argmax(axis=1)]
        assert site == lines


# Every kind of table and of head; tests/tasks/test_glue.py reads all tables.
TASKS = ["cola", "qqp", "sts-b", "mnli"]


@pytest.mark.parametrize("task", slow_except(("qqp", "sts-b"), TASKS))
def test_tasks_of_glue_train_evaluate_and_predict(run, glue, tmp_path, task):
    todo = {"do_eval": True, "do_predict": True, "skip_bad_rows": True}
    log = run(task_name=task, data_dir=glue, **todo, **TRAIN)
    declared, folder = catalogue.get_task(task), tmp_path / "run"
    assert "train: 10 sequences, " in log
    assert re.search(r"\n  [1-5] truncated to --max_seq_length=40, by \d+", log)
    skipped = f"{declared.path('train', glue)}: 1 of 11 rows are broken and skipped:"
    assert (skipped in log) == (task == "qqp")
    *blocks, _ = (folder / "eval_results.txt").read_text().split("=" * 50 + "\n")
    last = dict(line.split(" = ") for line in blocks[-1].splitlines())
    assert last["global_step"] == "2" and len(blocks) == 2
    assert last.keys() >= {"best", "eval_loss", "loss", *declared.metrics}
    assert ("dev_mismatched/eval_accuracy" in last) == (task == "mnli")
    best = json.loads((folder / "model.ckpt-best.json").read_text())
    assert float(last["best"]) == best[declared.key_metric]
    check_predictions(task, "test", folder)
    for name in ("label_scores.txt", "confusion_matrix.png"):
        assert (folder / name).exists() == (task != "sts-b")
    if task == "mnli":
        check_predictions(task, "test_mismatched", folder, "_mismatched")
        scores = (folder / "label_scores.txt").read_text()
        assert re.findall("^dev.*", scores, re.M) == ["dev", "dev_mismatched"]


def test_predictions_need_no_more_than_a_finished_folder(run, glue, tmp_path):
    todo = {"task_name": "mnli", "data_dir": glue, "do_predict": True}
    run("mnli", max_seq_length=37, do_eval=True, **todo, **TRAIN)
    wanted = files_of(tmp_path / "mnli")
    described = (tmp_path / "mnli/task.json").read_text()
    for path in (tmp_path / "mnli").glob("*.tsv"):
        path.unlink()
    log = run("mnli", new=False, **todo)
    assert files_of(tmp_path / "mnli") == wanted
    assert "--max_seq_length=37" in log
    start = str(tmp_path / "mnli")
    run("other", new=False, init_checkpoint=start, **todo)
    assert files_of(tmp_path / "other") == wanted
    todo["task_name"] = "ax"
    run("ax", new=False, init_checkpoint=start, **todo)
    check_predictions("ax", "test", tmp_path / "ax")
    assert (tmp_path / "mnli/task.json").read_text() == described
    best = json.loads((tmp_path / "mnli/model.ckpt-best.json").read_text())
    log = run("mnli", new=False, task_name="mnli", data_dir=glue, do_eval=True)
    assert f"eval at step {best['step']} " in log
    assert f"eval_acc {best['eval_accuracy']:.4f}" in log


def test_a_table_of_ones_own_needs_no_labels_to_be_predicted(run, own_table, tmp_path):
    test = tmp_path / "test.jsonl"
    test.write_text('{"text": "list file string"}\n{"text": "list string"}\n')
    tables = {f"{n}_file": own_table(n, 26) for n in ("train", "dev")}
    tables["test_file"] = str(test)
    flags = {"task_name": "custom", "do_predict": True}
    run(table=tables, do_eval=True, **flags, **TRAIN)
    scores = (tmp_path / "run/label_scores.txt").read_text()
    title, header, _, *rows = scores.splitlines()
    assert (title, header.split()[0]) == ("dev", "precision")
    assert [row.split()[0] for row in rows[:2]] == ["no", "yes"]
    wanted = files_of(tmp_path / "run")
    (tmp_path / "run/submit_results.tsv").unlink()
    run(new=False, table={"test_file": str(test)}, **flags)
    assert files_of(tmp_path / "run") == wanted


def test_an_added_task_runs_as_those_of_glue_do(run, tmp_path, monkeypatch):
    # The example of text_task.py.
    boolq = TextTask(
        name="boolq",
        files={n: f"BoolQ/{n}.jsonl" for n in ("train", "dev", "test")},
        text=("question", "passage"),
        labels=("false", "true"),
    )
    monkeypatch.setitem(catalogue.TASKS, "boolq", boolq)
    for name in boolq.files:
        rows = [{"question": f"is it {n}", "passage": "It is."} for n in range(11)]
        if name != "test":
            rows = [{**row, "label": n % 3 == 0} for n, row in enumerate(rows)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(text)
    flags = {"do_eval": True, "do_predict": True, **TRAIN}
    run(task_name="Bool_Q", data_dir=str(tmp_path), **flags)
    results = (tmp_path / "run/submit_results.tsv").read_text().splitlines()
    numbers, words = zip(*(line.split("\t") for line in results), strict=True)
    assert numbers == ("index", *map(str, range(11)))
    assert {*words[1:]} <= {"false", "true"}


def test_broken_rows_are_errors_or_listed(run, own_table):
    path = own_table("train", 20)
    with open(path, "a") as file:
        file.write("".join(f"no label {n}\n" for n in range(7)) + "\n\n")
    flags = {"task_name": "custom", "table": {"train_file": path}, **TRAIN}
    with pytest.raises(InputError, match=re.escape(f"{path}:22: 1 cells; expected 2")):
        run(**flags)
    with pytest.raises(InputError, match="--do_predict: task custom has no test table"):
        run(do_predict=True, skip_bad_rows=True, **flags)
    log = run(skip_bad_rows=True, **flags)
    assert f"{path}: 7 of 27 rows are broken and skipped:\n  {path}:22: 1 cells" in log
    assert "\n  and 2 more\n" in log and f"{path}: 2 blank lines skipped\n" in log


def test_the_folder_of_several_runs_serves_without_them(run, own_table, tmp_path):
    dev = tmp_path / "dev.csv"
    dev.write_text("text,label\n" + "list,no\n" * 7 + "list,yes\n" * 4)
    table = {"train_file": own_table("train", 24), "dev_file": str(dev)}
    flags = {"task_name": "custom", "do_eval": True}
    run(table=table, num_runs=2, **flags, **TRAIN)
    best = json.loads((tmp_path / "run/model.ckpt-best.json").read_text())
    table = {"dev_file": str(dev)}
    log = run(new=False, table=table, **flags)
    assert f"eval at step {best['step']}  loss {best['loss']:.4f}  " in log


SHARE = {"threshold_to_export": 0.3, "export_dir": "x"}
MISTAKES = [
    ({"task_name": None},
     "--task_name=: must be one of ax, cola, mismnli, mnli, mrpc, qnli, qqp, rte, "
     "sst-2, sts-b, wnli or custom"),
    ({"data_dir": None},
     "--data_dir: must be the folder with CoLA/train.tsv, CoLA/dev.tsv, "
     "CoLA/test.tsv"),
    ({"dev_file": "x.tsv"}, "--dev_file: requires --task_name=custom; got cola"),
    ({"max_seq_length": 41},
     "--max_seq_length=41: must be at most 40, the model's max_position_embeddings"),
    ({"task_name": "mnli", **SHARE},
     "--threshold_to_export=0.3: requires two labels, or several labels per text; got "
     "3 labels"),
]  # fmt: skip


@pytest.mark.parametrize(("flags", "message"), MISTAKES)
def test_a_mistake_is_one_line(run, glue, flags, message, refuses):
    with refuses(message):
        run(**{"task_name": "cola", "data_dir": glue, "do_eval": True, **flags})


def test_a_folder_of_another_model_is_refused(run, glue, tmp_path, snapshot, refuses):
    folder = tmp_path / "run"
    run(task_name="rte", data_dir=glue, do_eval=True, **TRAIN)
    before = snapshot(folder)
    with refuses(
        f"{folder}: a model with task 'rte', but this task has 'qnli'; use "
        f"another --output_dir"
    ):
        run(task_name="qnli", data_dir=glue, **TRAIN)
    assert snapshot(folder) == before
    (folder / "runs.json").write_text("{}")
    with refuses(
        f"--output_dir={folder}: has several runs; pass --num_runs or use another "
        f"folder"
    ):
        run(task_name="rte", data_dir=glue, **TRAIN)
