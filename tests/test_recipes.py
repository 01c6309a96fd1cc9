import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from albert_tf.tasks.catalogue import TASKS
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


# Stands for run_classifier.py: prints its flags, and writes the files for the site.
PROGRAM = """
import json, pathlib, sys
print(*sys.argv[1:])
folder = pathlib.Path(next(f for f in sys.argv if "output_dir" in f).split("=")[1])
folder.mkdir(parents=True)
for name in json.loads(pathlib.Path("names.json").read_text())[folder.name]:
    (folder / name).write_text(name)
"""


def test_the_script_for_glue_runs_all_tasks_and_packs_their_predictions(tmp_path):
    names = {task.name: [*task.submission.values()] for task in TASKS.values()}
    names.pop("mismnli")  # part of mnli
    (tmp_path / "names.json").write_text(json.dumps(names))
    (tmp_path / "run_classifier.py").write_text(PROGRAM)
    (tmp_path / "python").symlink_to(sys.executable)
    process = subprocess.run(
        ["sh", RECIPES.parents[1] / "examples/glue_all.sh", "runs", "--num_runs=5"],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        check=True,
        capture_output=True,
        text=True,
    )
    calls = [line.split() for line in process.stdout.splitlines()]
    folders = [flags[2].removeprefix("--output_dir=runs/") for flags in calls]
    assert folders == [
        *("mnli", "qnli", "qqp", "rte", "sst-2", "mrpc", "cola", "sts-b", "wnli", "ax")
    ]
    for folder, flags in zip(folders, calls, strict=True):
        assert flags[:2] == [f"--flagfile=recipes/{folder}.flags", "--num_runs=5"]
    assert calls[-1][3] == "--init_checkpoint=runs/mnli"
    with zipfile.ZipFile(tmp_path / "runs/submission.zip") as archive:
        files = {name for files in names.values() for name in files}
        assert sorted(archive.namelist()) == sorted(files)
