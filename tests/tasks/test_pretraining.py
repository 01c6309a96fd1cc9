import dataclasses
import io
import json
import os
import pathlib
import re
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.corpus import files as corpus_files
from albert_tf.data import batches, records
from albert_tf.errors import InputError
from albert_tf.model import models
from albert_tf.tasks.pretraining import Pretraining, PretrainingSettings
from albert_tf.text import tokenization
from albert_tf.train import checkpoints, loop
from albert_tf.weights.folder import ModelFolder
from albert_tf.weights.settings import ModelFileSettings

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture
def recorded(golden):
    return golden("pretrain_small")


@pytest.fixture
def batch(recorded):
    start = "in/"
    return {k.removeprefix(start): v for k, v in recorded.items() if k[:3] == start}


def write_records(path, *batches):
    """Writes batches that have the features of the first."""
    spec = {
        name: records.Feature("float" if "weights" in name else "int", value.shape[1])
        for name, value in batches[0].items()
    }
    with records.create(path) as writer:
        for each in batches:
            if isinstance(each, list):
                writer.write(list(map(records.frame, each)))
            else:
                writer.write(records.encode(spec, each))


@pytest.fixture
def files(batch, data, tmp_path):
    """Writes the recording's two batches as records; the second is its README's."""
    other = {name: value[::-1] for name, value in batch.items()}
    other["next_sentence_labels"] = np.ones((4, 1), "int32")
    other["masked_lm_weights"] = np.eye(5, dtype="float32")[[0] * 4]
    write_records(str(tmp_path / "both.tfrecord"), batch, other)
    return {
        "albert_config_file": str(data / "model_small.config.json"),
        "input_file": (str(tmp_path / "both.tfrecord"),),
    }


@pytest.fixture
def trainer(files, recorded, write_checkpoint, tmp_path):
    """Makes a trainer of the recorded weights, and its task."""

    def make(learning_rate=1e-3, **settings):
        config = loop.TrainingSettings(
            output_dir=str(tmp_path / "run"),
            do_eval=True,
            train_batch_size=4,
            num_warmup_steps=0,
            learning_rate=learning_rate,
            **settings,
        )
        task = Pretraining(PretrainingSettings(**files), evaluate=True)
        model = task.build_model()
        task.load(model, write_checkpoint(recorded))
        optimizer = loop.build_optimizer(config)
        optimizer.build(model.trainable_variables)
        strategy = tf.distribute.get_strategy()
        return loop.Trainer(task, config, strategy, model, optimizer)

    return make


@pytest.mark.parametrize("batch_size", [8, pytest.param(4, marks=pytest.mark.slow), 3])
def test_evaluation_gives_the_released_metrics(trainer, recorded, batch_size):
    tf.config.run_functions_eagerly(batch_size != 8)
    found = trainer(eval_batch_size=batch_size).evaluate()
    for name in (
        *("masked_lm_loss", "masked_lm_accuracy"),
        *("sentence_order_loss", "sentence_order_accuracy"),
    ):
        assert found[name] == pytest.approx(recorded[f"eval_metrics/{name}"], abs=2e-6)
    assert found["perplexity"] == pytest.approx(np.exp(found["masked_lm_loss"]))
    both = found["masked_lm_loss"] + found["sentence_order_loss"]
    assert found["loss"] == pytest.approx(both)


@pytest.mark.parametrize(
    "microbatches", [1, pytest.param(2, marks=pytest.mark.slow), 4]
)
def test_a_step_has_the_released_loss_and_norm(
    trainer, recorded, batch, microbatches, monkeypatch
):
    ours = trainer(gradient_accumulation_steps=microbatches)
    monkeypatch.delattr(models.AlbertPretrainer, "call")  # it needs all positions
    found = ours._train_step({name: tf.constant(x) for name, x in batch.items()})
    assert found["sums"][0].numpy() == pytest.approx(
        recorded["out/total_loss"], abs=2e-6
    )
    assert tf.norm(found["gradient_norms"]).numpy() == pytest.approx(
        recorded["out/global_norm_dense"], rel=1e-6
    )


def test_objectives_leave_out_the_sentence_head(files):
    task = Pretraining(PretrainingSettings(**files, objective="none"))
    assert task.build_model().sentence is None
    batch = {
        "input_ids": np.zeros((2, 24), "int32"),
        "masked_lm_ids": np.array([[5, 6], [7, 8]]),
        "masked_lm_weights": np.array([[1, 0], [1, 1]], "float32"),
        "example_weight": np.array([1, 0], "float32"),
    }
    weights = task.loss_weights(batch)
    assert {k: float(v) for k, v in weights.items()} == {"masked_lm_loss": 1}
    logits = np.zeros((2, 2, 211), "float32")
    logits[0, 0, 5] = 100
    sums = task.loss_sums({"mlm_logits": logits}, batch)
    assert {name: float(value) for name, value in sums.items()} == {"masked_lm_loss": 0}
    [(right, weight)] = task.batch_metrics({"mlm_logits": logits}, batch).values()
    assert float(right) == float(weight) == 1
    # The first of equal logits is predicted.
    logits = np.zeros((2, 2, 211), "float32")
    logits[..., [5, 8]] = 1
    batch |= {"masked_lm_ids": np.array([[5, 8], [8, 8]])}
    batch |= {"masked_lm_weights": np.ones((2, 2), "float32")}
    [(right, weight)] = task.batch_metrics({"mlm_logits": logits}, batch).values()
    assert (float(right), float(weight)) == (1, 2)


def test_sharing_and_recompute_are_flags(files):
    config = PretrainingSettings(**files, parameter_sharing="ffn", recompute="block")
    model = Pretraining(config).build_model()
    assert model.config.recompute == "block"
    assert len({id(block.attention) for block in model.encoder.blocks}) == 3
    assert len({id(block.feed_forward) for block in model.encoder.blocks}) == 1


def test_output_bias_starts_at_the_frequencies_of_the_data(files, batch):
    ids, weights = batch["masked_lm_ids"], batch["masked_lm_weights"]
    shown = [*ids[weights > 0], *ids[::-1, 0]]
    wanted = np.log(1 + np.bincount(shown, minlength=211))
    task = Pretraining(PretrainingSettings(**files, output_bias_from_data=True))
    model = task.build_model()
    assert task.initialize(model) == "the output bias from 8 examples"
    found = keras.ops.convert_to_numpy(model.masked_lm.output_bias)
    np.testing.assert_allclose(found, wanted - wanted.mean(), atol=1e-6)


def test_a_warm_start_keeps_its_output_bias(files, tmp_path):
    task = Pretraining(PretrainingSettings(**files, output_bias_from_data=True))
    with pytest.raises(InputError, match="output_bias_from_data and --init_ch"):
        task.load(task.build_model(), str(tmp_path))


def description(path, **changes):
    def changed(**values):
        return {key: changes.get(key, value) for key, value in values.items()}

    content = {
        "settings": changed(objective="sop"),
        "vocabulary": changed(size=211, fingerprint="f", mask_id=4, special_ids=[2, 3]),
        "files": {
            os.path.basename(path): changed(records=8, bytes=os.path.getsize(path))
        },
    }
    corpus_files.write_json(f"{path}.json", content)


@pytest.mark.parametrize(
    ("changes", "settings", "message"),
    [
        ({"size": 300}, {},
         "{path}: the vocabulary: 300 tokens, but the model's vocab_size is 211; "
         "expected the vocabulary of this model, or for a new model "
         "an albert_config.json with vocab_size=300"),
        ({"objective": "nsp"}, {"objective": "sop"},
         "--objective=sop: {path} was made for nsp"),
        ({"fingerprint": "g"}, {"eval_input_file": ("{other}",)},
         "--input_file: made with vocabulary g, but --eval_input_file with f"),
        ({"objective": "nsp"}, {"input_file": ("{path}", "{other}")},
         "{path}: made with objective nsp, but {other} with sop"),
    ],
)  # fmt: skip
def test_descriptions_are_checked(files, changes, settings, message, refuses):
    [path] = files["input_file"]
    other = shutil.copy(path, path.replace("both", "all"))
    description(path, **changes)
    description(other)
    names = {"path": path, "other": other}
    for flag, value in settings.items():
        if isinstance(value, tuple):
            settings = {**settings, flag: tuple(part.format(**names) for part in value)}
    with refuses(message.format(**names)):
        Pretraining(PretrainingSettings(**{**files, **settings}))


def test_a_vocabulary_that_is_too_small_is_one_warning(files, caplog):
    [path] = files["input_file"]
    paths = path, shutil.copy(path, path.replace("both", "all"))
    for each in paths:
        description(each, size=100)
    Pretraining(PretrainingSettings(**{**files, "input_file": paths}))
    [message] = caplog.messages
    assert "100 tokens, but the model's vocab_size is 211" in message


def test_objective_is_that_of_the_records(files):
    description(files["input_file"][0], objective="none")
    assert Pretraining(PretrainingSettings(**files)).build_model().sentence is None
    # A description of another file is not believed.
    description(files["input_file"][0], records=100, bytes=1)
    assert len(Pretraining(PretrainingSettings(**files)).training) == 8


@pytest.mark.parametrize(
    ("more", "length", "message"),
    [
        ((), 24,
         "no feature 'masked_lm_positions'; the records have ['input_ids', "
         "'input_mask', 'next_sentence_labels', 'segment_ids']; records without "
         "masks need --dynamic_masking"),
        (("masked_lm_positions",), 24, "no feature 'masked_lm_ids'; the records have "),
        ((), 49, "records of 49 tokens, but the model's max_position_embeddings is 48"),
    ],
)  # fmt: skip
def test_records_that_do_not_fit_are_refused(files, tmp_path, more, length, message):
    path = str(tmp_path / "bare.tfrecord")
    settings = {**files, "input_file": (path,), "dynamic_masking": length != 24}
    names = ("input_ids", "input_mask", "segment_ids", *more)
    rows = {name: np.zeros((2, length), int) for name in names}
    write_records(path, {**rows, "next_sentence_labels": np.zeros((2, 1), int)})
    with pytest.raises(InputError, match=re.escape(f"{path}: {message}")):
        Pretraining(PretrainingSettings(**settings))


def test_warm_start_says_which_heads_are_absent(files, golden, write_checkpoint):
    encoder = {k: v for k, v in golden("model_small").items() if k.startswith("var/")}
    task = Pretraining(PretrainingSettings(**files))
    model = task.build_model()
    before = keras.ops.convert_to_numpy(model.sentence.output_dense.kernel)
    said = task.load(model, write_checkpoint(encoder))
    assert said == "25 weights (tf1); not in the file: masked_lm, sentence"
    after = keras.ops.convert_to_numpy(model.sentence.output_dense.kernel)
    np.testing.assert_array_equal(after, before)


def test_a_run_of_the_released_code_is_gone_on_with(trainer, data, tmp_path):
    folder = tmp_path / "released"
    folder.mkdir()
    for suffix in (".index", ".data-00000-of-00001"):
        released = data / f"pretrain_small_lamb5.ckpt{suffix}"
        shutil.copy(released, folder / f"model.ckpt-5{suffix}")
    ours = trainer()
    found = checkpoints.Checkpoints(folder, ours.model, ours.optimizer, keep=2)
    assert found.newest() == folder / "model.ckpt-5"
    # It does not say how many examples were seen: five steps of four.
    assert found.restore(found.newest(), batch_size=4) == 20
    assert checkpoints.count_steps(ours.optimizer) == 5


@pytest.mark.slow
def test_steps_in_a_loop_on_the_device_are_the_same_steps(trainer):
    """tests/train/test_step.py does the same with a small function."""
    tf.config.run_functions_eagerly(False)
    one, other = trainer(optimizer="adamw"), trainer(optimizer="adamw")
    other._on_tpu = True
    metrics = [each.train(3)["loss"] for each in (one, other)]
    assert metrics[1] == pytest.approx(metrics[0], rel=1e-6)
    for a, b in zip(one.model.weights, other.model.weights, strict=True):
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(a), keras.ops.convert_to_numpy(b), atol=1e-6
        )


@pytest.fixture
def spoiled(files, batch):
    """Writes a file of 1,100 good records and then a bad one; names the last."""
    row = {name: value[:1] for name, value in batch.items()}
    [path] = files["input_file"]

    def make(bad=None, **changes):
        changed = {**row, **{k: np.full_like(row[k], v) for k, v in changes.items()}}
        good = {name: np.repeat(value, 1100, axis=0) for name, value in row.items()}
        write_records(path, good, [bad] if bad else changed)
        return f"^{path}: record 1101: "

    return make


BAD = [
    ({"input_ids": 9000}, ".*a number outside its range: input_ids 0 to 210"),
    ({"next_sentence_labels": 2}, ".*next_sentence_labels 0 to 1"),
    ({"bad": b"\xff\xff\xff"}, ".*expected a whole record with the features of t"),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_a_record_that_cannot_be_used_is_named(spoiled, files, changes, message):
    place = spoiled(**changes)
    source = Pretraining(PretrainingSettings(**files), evaluate=True).evaluation
    with (
        pytest.raises(InputError, match=place + message),
        batches.translate_errors(source, lambda: ""),
    ):
        list(source.evaluation(batches.InputShard(1101)))


def test_a_damaged_record_is_named(spoiled, trainer, files):
    place, trained = spoiled(), trainer(eval_batch_size=1101)
    path = pathlib.Path(*files["input_file"])
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    for call in (lambda: trained.train(1), trained.evaluate):
        with pytest.raises(InputError, match=f"{place}corrupted record at "):
            call()


def test_a_run_keeps_to_its_vocabulary(files, data, tmp_path, refuses):
    [path] = files["input_file"]
    vocabulary = tokenization.load(str(data / "spm_small.model"), keep_accents=True)
    shutil.copy(vocabulary.path, os.path.dirname(path))
    description(path, fingerprint=vocabulary.fingerprint)
    with open(f"{path}.json") as file:
        content = json.load(file)
    content["settings"] |= {"do_lower_case": True, "keep_accents": True}
    # An absolute path is that of another machine: the file beside the records counts.
    content["vocabulary_file"] = "/elsewhere/spm_small.model"
    corpus_files.write_json(f"{path}.json", content)
    task = Pretraining(PretrainingSettings(**files))
    sizes = {"train_batch_size": 4, "num_train_steps": 1, "num_warmup_steps": 0}
    config = loop.TrainingSettings(output_dir=str(tmp_path / "run"), **sizes)
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    loop.train(task, config, strategy, io.StringIO())
    # The model of this test has fewer ids than the vocabulary.
    values = json.loads((tmp_path / "run/albert_config.json").read_text())
    large = tmp_path / "large.json"
    large.write_text(json.dumps({**values, "vocab_size": 1500}))
    files_of_model = ModelFileSettings(albert_config_file=str(large))
    found = ModelFolder(tmp_path / "run", files=files_of_model).tokenizer
    assert found.path == str(tmp_path / "run" / "spm_small.model")
    assert found.fingerprint == vocabulary.fingerprint

    description(path, fingerprint="0123456789abcdef")
    other = Pretraining(PretrainingSettings(**files))
    message = (
        f"{path}: made with another vocabulary (0123456789ab) than {tmp_path}/run was "
        f"trained with ({vocabulary.fingerprint[:12]}); use records of that vocabulary"
        f", or another folder"
    )
    fresh = {"output_dir": str(tmp_path / "other")}
    for changes in ({}, {**fresh, "init_checkpoint": str(tmp_path / "run")}):
        changed = dataclasses.replace(config, **changes)
        with refuses(message):
            loop.train(other, changed, strategy, io.StringIO())
    assert not (tmp_path / "other").exists()
    # Records without a description, as the release makes them, are used as before.
    os.remove(f"{path}.json")
    Pretraining(PretrainingSettings(**files)).check_folder(tmp_path / "run")


def test_a_vocabulary_that_is_gone_is_noted_without_its_file(files, tmp_path):
    [path] = files["input_file"]
    description(path, fingerprint="0123456789abcdef")
    Pretraining(PretrainingSettings(**files)).save_assets(tmp_path / "run")
    assert os.listdir(tmp_path / "run") == ["vocabulary.json"]
    assert json.loads((tmp_path / "run" / "vocabulary.json").read_text()) == {
        "do_lower_case": True,
        "keep_accents": False,
        "fingerprint": "0123456789abcdef",
    }
    assert ModelFolder(tmp_path / "run").find_tokenizer() is None
