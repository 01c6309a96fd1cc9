import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from albert_tf.recipes import glue_all
from albert_tf.tasks import catalogue
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings

RECIPES = Path(__file__).parents[1] / "albert_tf/recipes"


def flags_of(path):
    lines = path.read_text().splitlines()
    return dict(
        line.removeprefix("--").partition("=")[::2]
        for line in lines
        if line.startswith("--")
    )


# The paper's appendix: rate, batch, dropout, dropout of the classifier, steps, warm-up.
PAPER = """
    cola 1e-5 16 0 0.1 5336 320
    sts-b 2e-5 16 0 0.1 3598 214
    sst-2 1e-5 32 0 0.1 20935 1256
    mnli 3e-5 128 0 0.1 10000 1000
    qnli 1e-5 32 0 0.1 33112 1986
    qqp 5e-5 128 0.1 0.1 14000 1000
    rte 3e-5 32 0.1 0.1 800 200
    mrpc 2e-5 32 0 0.1 800 200
    wnli 2e-5 16 0.1 0.1 2000 250
"""
FLAGS = ("learning_rate", "train_batch_size", "albert_dropout_prob")
FLAGS += ("classifier_dropout_prob", "train_step", "warmup_step")


def test_a_recipe_has_the_papers_settings():
    assert {line.split()[0] for line in PAPER.split("\n") if line} == {*glue_all.PAPER}
    for line in PAPER.strip().splitlines():
        name, *numbers = line.split()
        found = flags_of(RECIPES / f"{name}.flags")
        assert found["task_name"] == name and float(found["max_seq_length"]) == 512
        assert {"do_train", "do_eval", "do_predict"} <= found.keys()
        assert [float(found[flag]) for flag in FLAGS] == list(map(float, numbers))


@pytest.mark.parametrize(
    ("script", "recipe", "given", "steps", "warmup"),
    [
        ("run_classifier", "mrpc", "--num_train_epochs=2", (None, 2.0), (200, None)),
        ("run_race", "race_v2", "--warmup_proportion=0.2", (12000, None), (None, 0.2)),
        ("run_squad", "squad_v2", "--num_train_epochs=4", (None, 4.0), (814, None)),
        ("run_tagging", "conll2003", "--train_step=9", (9, None), (None, None)),
        ("run_squad", "squad_v1", "--train_step=7", (7, None), (365, None)),
    ],
)
def test_flags_overrule_a_recipe(settings_of, script, recipe, given, steps, warmup):
    """Of steps and epochs, and of a warm-up and its share; a flagfile alone counts."""
    flags = [f"--flagfile={RECIPES}/{recipe}.flags", "--output_dir=run", given]
    if script == "run_squad":
        flags += ["--train_file=t", "--predict_file=p"]
    every = settings_of(f"{script}.py", *flags)
    [settings] = (each for each in every if isinstance(each, FineTuningSettings))
    assert (settings.num_train_steps, settings.num_train_epochs) == steps
    assert (settings.num_warmup_steps, settings.warmup_proportion) == warmup


def test_the_table_has_the_papers_order(tmp_path):
    assert list(glue_all.PAPER) == [
        *("mnli", "qnli", "qqp", "rte", "sst-2", "mrpc", "cola", "sts-b", "wnli")
    ]
    for number, (task, (metric, _)) in enumerate(glue_all.PAPER.items()):
        assert metric == catalogue.find(task).key_metric
        folder = tmp_path / task
        folder.mkdir()
        metrics = {metric: 0.5 + number / 100}
        if task == "mnli":
            metrics["dev_mismatched/eval_accuracy"] = 0.4567
        (folder / "model.ckpt-best.json").write_text(json.dumps(metrics))
    header, dev, paper = glue_all._table(tmp_path).splitlines()
    assert header.split() == list(glue_all.PAPER)
    assert dev.split()[:3] == ["dev", "50.0/45.7", "51.0"]
    assert paper.split()[2:] == [
        *("90.8", "95.3", "92.2", "89.2", "96.9", "90.9", "71.4", "93.0", "-")
    ]
    runs = {"mean": 0.612, "spread": 0.0345}
    (tmp_path / "cola/runs.json").write_text(json.dumps(runs))
    assert "61.2+-3.5" in glue_all._table(tmp_path).splitlines()[2]


def test_the_predictions_of_all_tasks_become_one_zip(tmp_path):
    for task in catalogue.TASKS.values():
        (tmp_path / task.name).mkdir()
        for name in ("test_results.tsv", *task.submission.values()):
            if task.name != "mismnli":
                (tmp_path / task.name / name).write_text(name)
    glue_all._pack(tmp_path)
    with zipfile.ZipFile(tmp_path / "submission.zip") as archive:
        assert len(archive.namelist()) == 11
        assert archive.read("CoLA.tsv") == b"CoLA.tsv"


_COMMAND = """
import signal, sys, time
def save(number, _):
    time.sleep(0.2)
    print("saved")
    sys.exit(128 + number)
signal.signal(signal.SIGINT, save)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_recipe_waits_until_its_command_has_saved(tmp_path, number):
    (tmp_path / "command.py").write_text(_COMMAND)
    recipe = "from albert_tf.recipes import glue_all; glue_all.run(module='command')"
    process = subprocess.Popen(
        [sys.executable, "-c", recipe],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{RECIPES.parents[1]}"},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout.readline() == b"ready\n"
    # A terminal sends Ctrl-C to all, and `kill` SIGTERM to the one.
    send = os.killpg if number == signal.SIGINT else os.kill
    send(process.pid, number)
    output, _ = process.communicate(timeout=30)
    assert (output, process.returncode) == (b"saved\n", 128 + number)
