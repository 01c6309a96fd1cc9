import dataclasses
import json
import re

import pytest

from albert_tf.errors import InputError
from albert_tf.tasks import catalogue, glue, metrics
from albert_tf.tasks.classification import Classification
from albert_tf.tasks.settings.classification import ClassifierRunSettings
from albert_tf.tasks.settings.fine_tuning import ModelSettings
from albert_tf.tasks.text_task import TextTask

# The documentation's example of a task of one's own.
BOOLQ = TextTask(
    name="boolq",
    files={"train": "BoolQ/train.jsonl", "dev": "BoolQ/val.jsonl"},
    text=("question", "passage"),
    label="label",
    labels=("false", "true"),
    metrics={"eval_accuracy": metrics.accuracy},
    key_metric="eval_accuracy",
)


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("SST-2", glue.SST2),
        ("sst2", glue.SST2),
        ("Sts_B", glue.STSB),
        ("CoLA", glue.COLA),
        ("MNLI-mm", glue.MISMATCHED_MNLI),
        ("mismnli", glue.MISMATCHED_MNLI),
        ("mnli_m", glue.MNLI),
        ("AX", glue.AX),
    ],
)
def test_case_and_dashes_of_a_name_do_not_count(name, task):
    assert catalogue.find(name) is task


def test_an_unknown_name_is_an_error_that_lists_the_known_ones():
    message = (
        "--task_name=glue: must be one of ax, cola, mismnli, mnli, mrpc, "
        "qnli, qqp, rte, sst-2, sts-b, wnli or custom"
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        catalogue.find("glue")


def test_an_added_task_runs_as_those_of_glue_do(
    monkeypatch, data, tmp_path, tiny, fine_tune
):
    files = {**BOOLQ.files, "test": "BoolQ/test.jsonl"}
    task = dataclasses.replace(BOOLQ, files=files)
    monkeypatch.setitem(catalogue.TASKS, "boolq", task)
    assert catalogue.find("Bool_Q") is task
    rows = [{"question": f"is it {n}", "passage": "It is."} for n in range(11)]
    labelled = [{**row, "label": n % 3 == 0} for n, row in enumerate(rows)]
    for name, lines in (("train", labelled), ("val", labelled), ("test", rows)):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / f"{name}.jsonl").write_text(text)
    config = tmp_path / "config.json"
    config.write_text(tiny(vocab_size=1500, num_hidden_layers=1).to_json_string())
    flags = {
        "output_dir": str(tmp_path / "run"),
        "task_name": "boolq",
        "data_dir": str(tmp_path),
        "do_train": True,
        "do_eval": True,
        "do_predict": True,
        "num_train_steps": 2,
        "train_batch_size": 4,
    }
    model = ModelSettings(
        albert_config_file=str(config), spm_model_file=str(data / "spm_small.model")
    )
    fine_tune(Classification, ClassifierRunSettings, flags, model)
    best = json.loads((tmp_path / "run/model.ckpt-best.json").read_text())
    assert best["step"] == 2 and 0 <= best["eval_accuracy"] <= 1
    lines = (tmp_path / "run/submit_results.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines] == ["index", *map(str, range(11))]
    assert {line.split("\t")[1] for line in lines[1:]} <= {"false", "true"}
