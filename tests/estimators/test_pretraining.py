"""Pretraining from Python: what the script does, with its settings."""

import io
import json

import numpy as np
import pytest
from helpers import DATA, refusal

import albert_tf
from albert_tf import Pretrainer, corpus
from albert_tf.tasks.settings.pretraining import PretrainingSettings
from albert_tf.tasks.settings.training import TrainingSettings
from albert_tf.train import pretrain
from albert_tf.train.settings import DistributionSettings

STEPS = {"num_train_steps": 3, "num_warmup_steps": 1, "learning_rate": 0.02}
MORE = {"save_checkpoints_steps": 2}
MASKING = {"dynamic_masking": True}
BIAS = {"output_bias_from_data": True}


@pytest.fixture(scope="module")
def files(tmp_path_factory, tiny):
    """The files of a vocabulary's records, without masks, and of a size."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "text.txt").write_text(
        "\n".join(
            f"the file {n} is a list.\nthe name {n} is an object.\n" for n in range(9)
        )
    )
    records, size = folder / "train.tfrecord", folder / "size.json"
    config = corpus.CorpusSettings(
        input_file=(str(folder / "text.txt"),),
        output_file=(str(records),),
        spm_model_file=str(DATA / "spm_small.model"),
        max_seq_length=17,
        masked_lm_prob=0.0,
        dupe_factor=1,
    )
    corpus.generate(config)
    sizes = {"vocab_size": 1500, "max_position_embeddings": 17, "type_vocab_size": 2}
    sizes["num_hidden_layers"] = 1
    size.write_text(tiny(**sizes).to_json_string())
    return {"records": records, "size": size}


@pytest.fixture(scope="module")
def trained(files, tmp_path_factory, module_eagerly):
    folder = tmp_path_factory.mktemp("runs") / "python"
    model = Pretrainer(files["size"], batch_size=5, **MORE, **MASKING)
    data = {"validation": [files["records"]], "verbose": False}
    return model.fit(files["records"], output_dir=folder, **data, **STEPS, **BIAS)


def test_it_does_what_the_script_does(trained, files, tmp_path, snapshot):
    records, folder = (str(files["records"]),), tmp_path / "script"
    settings = PretrainingSettings(
        albert_config_file=str(files["size"]),
        input_file=records,
        eval_input_file=records,
        **MASKING,
        **BIAS,
    )
    flags = {"output_dir": str(folder), "do_eval": True, "train_batch_size": 5}
    run = TrainingSettings(**flags, **STEPS, **MORE)
    log = io.StringIO()
    pretrain.pretrain(settings, run, DistributionSettings(), log)
    assert "the output bias from " in log.getvalue()
    ours, theirs = snapshot(trained.folder_), snapshot(folder)
    names = {path.name for path in theirs if path.name.startswith("model.ckpt-")}
    assert {"model.ckpt-3.index", "model.ckpt-best.index"} < names
    different = {n for n in names if ours[trained.folder_ / n] != theirs[folder / n]}
    assert not different


def test_its_metrics_are_those_of_the_best_checkpoint(trained, files):
    best = json.loads((trained.folder_ / "model.ckpt-best.json").read_text())
    del best["step"]
    assert trained.metrics_ == best
    [*_, last] = trained.history_
    assert last["kind"] == "eval" and last["step"] == 3
    assert trained.evaluate(files["records"]) == pytest.approx(best, abs=1e-6)
    again = Pretrainer.from_pretrained(trained.folder_, **MASKING)
    assert again.evaluate([files["records"]]) == pytest.approx(best, abs=1e-6)


def test_its_folder_is_a_model_of_the_other_classes(trained, files, tmp_path):
    [gaps] = albert_tf.FillMask(trained.folder_, top_k=3).predict("the [MASK] is")
    assert len(gaps[0]) == 3
    flags = {"batch_size": 5, **STEPS, **MASKING}
    more = Pretrainer.from_pretrained(trained.folder_, **flags)
    more.fit(files["records"], output_dir=tmp_path / "more", verbose=False)
    loss = more.metrics_["loss"]
    fresh = next(line["loss"] for line in trained.history_ if line["kind"] == "train")
    assert np.isfinite(loss) and loss < fresh


def test_mistakes_are_refused(files, tmp_path):
    model = Pretrainer(files["size"])
    run = {"output_dir": tmp_path / "run", "verbose": False}
    assert refusal(model.fit, tmp_path / "none*", **run) == (
        f"--input_file={tmp_path}/none*: no such file"
    )
    assert "no setting 'steps'" in refusal(model.fit, files["records"], steps=3, **run)
    twice = {"batch_size": 2, "train_batch_size": 2}
    assert refusal(model.fit, files["records"], **twice, **run) == (
        "batch_size and train_batch_size: give one of them"
    )
    assert refusal(model.evaluate, files["records"]) == (
        "Pretrainer: not trained; call fit() first"
    )
    assert refusal(Pretrainer().fit, files["records"], **run) == (
        "Pretrainer: no model; pass the name of a size"
    )
