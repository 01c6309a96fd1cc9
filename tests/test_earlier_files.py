"""Files that an earlier version has written: see `tests/fixtures/README.md`."""

import io
import json
import os
import shutil
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf import corpus
from albert_tf.data import records
from albert_tf.serve import convert, predict
from albert_tf.serve.settings.conversion import ConversionSettings
from albert_tf.tasks.classification import Classification
from albert_tf.tasks.pretraining import Pretraining
from albert_tf.tasks.settings.classification import ClassifierRunSettings
from albert_tf.tasks.settings.fine_tuning import ModelSettings
from albert_tf.tasks.settings.pretraining import PretrainingSettings
from albert_tf.tasks.settings.training import TrainingSettings
from albert_tf.train import loop

FOLDER = "earlier_version"


@pytest.fixture(autouse=True)
def folder(data, tmp_path, monkeypatch):
    """Works in a copy, in which the text is as old as it was for that version."""
    shutil.copytree(data / FOLDER, tmp_path / FOLDER)
    monkeypatch.chdir(tmp_path / FOLDER)
    shutil.copy("vocab.model", "fine_tuned")
    with open("records/unfinished.work/settings.json") as file:
        modified = json.load(file)["modified"]["text.txt"]
    for name in ("ordinary", "released"):
        os.utime(f"records/{name}.json", (modified + 9, modified + 9))
    # As after a copy, what is newest is the text's state, not its time.
    time.sleep(0.02)
    os.utime("text.txt", (modified, modified))


def make_records(name):
    log = io.StringIO()
    config = corpus.CorpusSettings(
        input_file=("text.txt",),
        output_file=(f"records/{name}",),
        spm_model_file="vocab.model",
        max_seq_length=16,
        max_predictions_per_seq=2,
        dupe_factor=1,
        num_workers=1,
        released_behaviour=name == "released",
    )
    corpus.generate(config, log)
    return log.getvalue()


@pytest.mark.parametrize("name", ["ordinary", "released"])
def test_records_are_finished(name):
    assert make_records(name) == (
        f"records/{name}.json: nothing to do, its files are complete\n"
    )


def test_unfinished_records_are_made_anew():
    assert make_records("unfinished").startswith(
        "records/unfinished.work: it is from another version, so all is made anew\n"
    )
    assert records.count("records/unfinished") == records.count("records/ordinary")


def test_pretraining_resumes_on_the_records():
    task = Pretraining(
        PretrainingSettings(
            albert_config_file="albert_config.json", input_file=("records/ordinary",)
        )
    )
    config = TrainingSettings(
        output_dir="pretraining",
        num_train_steps=3,
        train_batch_size=2,
        num_warmup_steps=0,
        log_steps=1,
    )
    log = io.StringIO()
    loop.run(task, config, tf.distribute.OneDeviceStrategy("/cpu:0"), log)
    lines = [line for line in log.getvalue().splitlines() if line.startswith("step ")]
    assert len(lines) == 1
    assert lines[0].startswith("step 3/3")
    assert os.path.exists("pretraining/model.ckpt-3.index")


def test_a_fine_tuned_model_gives_the_probabilities_that_it_gave():
    with open("answers.jsonl") as file:
        wanted = [json.loads(line) for line in file]
    answers = list(predict.load("fine_tuned")(["the cat ran", "ten dogs sat"]))
    assert [answer["label"] for answer in answers] == ["yes", "yes"]
    for answer, earlier in zip(answers, wanted, strict=True):
        assert answer["probabilities"] == pytest.approx(
            earlier["probabilities"], abs=1e-5
        )


def test_a_fine_tuning_run_is_evaluated_on_the_examples_that_it_kept(fine_tune):
    os.utime("fine_tuned/custom_dev.npz", (5, 5))
    os.remove("fine_tuned/eval_results.txt")
    flags = {
        "output_dir": "fine_tuned",
        "task_name": "custom",
        "dev_file": "table.tsv",
        "do_train": False,
        "do_eval": True,
    }
    fine_tune(Classification, ClassifierRunSettings, flags, ModelSettings())
    assert os.path.getmtime("fine_tuned/custom_dev.npz") == 5
    with open("fine_tuned/model.ckpt-best.json") as file:
        best = json.load(file)
    with open("fine_tuned/eval_results.txt") as file:
        results = dict(line.split(" = ") for line in file if " = " in line)
    assert float(results["eval_loss"]) == pytest.approx(best["eval_loss"], abs=1e-5)


def test_a_keras_file_loads_and_its_checkpoint_converts():
    convert.convert(
        ConversionSettings(
            input="pretraining", output="converted.keras", output_format="keras"
        )
    )
    earlier, converted = (
        keras.models.load_model(name).get_weights()
        for name in ("model.keras", "converted.keras")
    )
    assert len(earlier) == len(converted) > 20
    for one, other in zip(earlier, converted, strict=True):
        np.testing.assert_array_equal(one, other)
