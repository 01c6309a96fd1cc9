import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

from albert_tf.errors import InputError
from albert_tf.recipes import glue_all, one_hour
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


def test_a_recipe_has_the_papers_settings():
    named = {"hidden_dropout_prob": "albert_dropout_prob"}
    for name in glue_all.PAPER:
        found = flags_of(RECIPES / f"{name}.flags")
        recommended = dataclasses.asdict(catalogue.find(name).recommended)
        assert found["task_name"] == name
        assert {"do_train", "do_eval", "do_predict"} <= found.keys()
        for key, value in recommended.items():
            assert float(found[named.get(key, key)]) == value, (name, key)
        text = (RECIPES / f"{name}.flags").read_text()
        assert f"--flagfile=recipes/{name}.flags" in text
        steps, size = recommended["train_step"], recommended["train_batch_size"]
        assert f"# Cost: {steps:,} steps of {size} examples" in text
        _, score = glue_all.PAPER[name]
        assert score is None or re.search(rf"\b{score}\b", text)


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
def test_the_command_line_overrules_a_recipe(
    settings_of, script, recipe, given, steps, warmup
):
    """Of steps and epochs, and of a warm-up and its share; a flagfile alone counts."""
    flags = [f"--flagfile={RECIPES}/{recipe}.flags", "--output_dir=run", given]
    if script == "run_squad":
        flags += ["--train_file=t", "--predict_file=p"]
    every = settings_of(f"{script}.py", *flags)
    [settings] = (each for each in every if isinstance(each, FineTuningSettings))
    assert (settings.num_train_steps, settings.num_train_epochs) == steps
    assert (settings.num_warmup_steps, settings.warmup_proportion) == warmup


def test_the_command_line_overrules_what_a_file_predicts(settings_of, tmp_path):
    masked = ["--dynamic_masking", "--ngram=1", "--masked_lm_prob=0.3"]
    others = ["--albert_config_file=c", "--input_file=r", "--output_dir=run"]
    for name, given in {"masked": masked, "causal": ["--causal_lm"]}.items():
        (tmp_path / name).write_text("\n".join([*others, *given]))
    for name, flag in {"masked": "--causal_lm", "causal": "--dynamic_masking"}.items():
        file = f"--flagfile={tmp_path / name}"
        settings, *_ = settings_of("run_pretraining.py", file, flag)
        assert settings.causal_lm == (name == "masked")
        assert settings.dynamic_masking == (name == "causal")
        assert (settings.ngram, settings.masked_lm_prob) == (3, 0.15)


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
    runs = {"mean_of_sound": 0.612, "spread_of_sound": 0.0345, "failed": [2]}
    (tmp_path / "cola/runs.json").write_text(json.dumps(runs))
    assert "61.2+-3.5 (1 failed)" in glue_all._table(tmp_path).splitlines()[2]


def test_an_hour_is_commands_that_are_valid_and_the_same_again(
    settings_of, tmp_path, monkeypatch
):
    called, minutes = [], iter(range(100))
    folder = tmp_path / "hour"

    def run(*arguments, module="albert_tf.commands"):
        called.append((module, *arguments))

    monkeypatch.setattr(one_hour.steps, "run", run)
    clock = types.SimpleNamespace(monotonic=lambda: 60.0 * next(minutes))
    monkeypatch.setattr(one_hour, "time", clock)
    (tmp_path / "pairs.jsonl").touch()
    given = {
        **{"input_file": "text.txt", "output_dir": str(folder), "minutes": 20.0},
        "pairs": (f"{tmp_path}/*.jsonl",),
    }
    settings = one_hour.Settings(**given)
    for name in ("sentences", "texts", "pairs"):
        with pytest.raises(InputError, match=f"{name}.eval.tfrecord: of too few docum"):
            one_hour.main(settings)
        (folder / "records").mkdir(exist_ok=True)
        (folder / f"records/{name}.eval.tfrecord").touch()
    minutes, called[:] = iter(range(100)), []
    one_hour.main(settings)
    names = [arguments[1] for arguments in called[:-1]]
    assert names == ["vocabulary", *["corpus"] * 3, *["pretrain"] * 3]
    for _, name, *flags in called[:-1]:
        settings_of(name, *flags)
    trained = [
        flag.partition("=")[2]
        for arguments in called
        for flag in arguments
        if flag.startswith("--train_minutes=")
    ]
    # A minute went into records, and one and a half is to start and to end stages.
    shares = [stage.share for stage in one_hour._STAGES.values()]
    assert sum(shares) == pytest.approx(1)
    assert trained == [str(round(17.5 * share, 2)) for share in shares]
    for before, command in zip(
        (None, "next_tokens", "sentences"), called[4:7], strict=True
    ):
        start = [f"--init_checkpoint={folder / str(before)}", "--checkpoint=newest"]
        assert set(start) & set(command) == (set(start) if before else set())
    assert called[7][0] == "albert_tf.recipes.minimal_pairs"
    assert f"--model={folder / 'pairs'}" in called[7]
    (folder / "vocab.model").touch()
    first, called[:] = list(called), []
    one_hour.main(settings)
    assert called == first[1:]
    for changes, message in (
        (
            {"minutes": 30.0},
            f"--minutes=30.0: {folder} was begun with 20.0; expected ",
        ),
        ({"pairs": ("no*.jsonl",)}, "--pairs: no*.jsonl: no such file"),
    ):
        with pytest.raises(InputError) as mistake:
            one_hour.main(one_hour.Settings(**given | changes))
        assert str(mistake.value).startswith(message)
    noted = folder / "one_hour.json"
    earlier = {**json.loads(noted.read_text()), "stages": {"pairs": 9.0}}
    noted.write_text(json.dumps(earlier))
    with pytest.raises(InputError, match="begun with the stages pairs; expected next_"):
        one_hour.main(settings)


_COMMAND = """
import signal, sys, time
def save(number, _):
    time.sleep(0.6)
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
    recipe = "from albert_tf.recipes import steps; steps.run(module='command')"
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
