"""The driver of fine-tuning, tested on a classification of random words."""

import dataclasses
import io
import json
import re
import signal

import keras
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
from helpers import refusal

from albert_tf import AlbertClassifier, AlbertPretrainer, InputError, weights
from albert_tf.data.batches import BucketedExamples
from albert_tf.model import optimizers
from albert_tf.tasks import classification, custom
from albert_tf.tasks.base import Split
from albert_tf.tasks.settings.classification import ClassificationSettings
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings, ModelSettings
from albert_tf.tasks.text_task import Example, TextTask
from albert_tf.train import finetune
from albert_tf.train.settings import DistributionSettings
from albert_tf.train.step import Trainer
from albert_tf.weights import metadata

DECLARED = TextTask(
    name="numbers", files={"train": "x.tsv"}, text=("text",), labels=("0", "1", "2")
)
LENGTHS = np.random.default_rng(2).integers(3, 19, 46)


class Numbers(classification.Classification):
    """Random ids; the first one determines the label."""

    def __init__(self, config, tokenizer, labels=None):
        fields = custom.settings_fields(DECLARED)
        settings = ClassificationSettings(max_seq_length=18, **fields)
        super().__init__(settings, config, tokenizer)
        random = np.random.default_rng(7)
        ids = random.integers(6, 1500, (46, 18), np.int32)
        self.labels = ids[:, 1] % 3 if labels is None else labels  # int32 [46]

        def make_batch(rows, length):
            mask = np.arange(length) < LENGTHS[rows][:, None]
            return {
                "input_ids": (np.resize(ids.T, (length, 46)).T[rows] * mask).astype(
                    "i4"
                ),
                "input_mask": mask.astype(np.int32),
                "segment_ids": np.zeros(mask.shape, np.int32),
                "labels": self.labels[rows],
            }

        self.training = self.evaluation = BucketedExamples(LENGTHS, make_batch, 18, 4)
        examples = [
            Example(str(n), "", None, str(label)) for n, label in enumerate(self.labels)
        ]
        self.evaluation_splits = [Split("dev", examples, range(46))]


@pytest.fixture(scope="module")
def task(tokenizer, tiny):
    sizes = {"vocab_size": 1500, "num_hidden_layers": 1, "max_position_embeddings": 40}
    sizes |= {"embedding_size": 6, "type_vocab_size": 2}
    return Numbers(tiny(**sizes, classifier_dropout_prob=0.0), tokenizer)


DEFAULTS = {
    "do_train": True,
    "do_eval": True,
    "train_batch_size": 8,
    "eval_batch_size": 24,
    "num_train_steps": 4,
    "learning_rate": 1e-3,
    "save_checkpoints_steps": 2,
    "log_steps": 2,
}


@pytest.fixture
def config(tmp_path):
    def make(**settings):
        folder = {"output_dir": str(tmp_path / "run")}
        return FineTuningSettings(**{**DEFAULTS, **folder, **settings})

    return make


@pytest.fixture(scope="module")
def trained(task, tmp_path_factory, module_eagerly):
    """A run with the defaults, for tests that only read it: its folder and outcome."""
    folder = tmp_path_factory.mktemp("trained")
    settings = FineTuningSettings(**DEFAULTS, output_dir=str(folder))
    return folder, run(task, settings)


def job(settings, log=None):
    device = tf.distribute.OneDeviceStrategy("/cpu:0")
    arguments = (settings, ModelSettings(), DistributionSettings(), device)
    return finetune.Job(Numbers, None, *arguments, log or io.StringIO())


def run(task, settings, log=None):
    return finetune.train(job(settings, log), task)


def weights_of(outcome):
    return [keras.ops.convert_to_numpy(w) for w in outcome.trainer.model.weights]


@pytest.fixture
def in_graphs():
    """Runs functions in graphs, also after `module_eagerly`."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(False)
    yield
    tf.config.run_functions_eagerly(before)


@pytest.mark.usefixtures("in_graphs")
@pytest.mark.parametrize(
    "settings",
    [
        {"gradient_accumulation_steps": 2},
        pytest.param({"xla": True}, marks=pytest.mark.slow),
    ],
)
def test_batches_of_any_length_in_pieces_make_the_same_steps(
    task, config, trained, settings
):
    _, whole = trained
    parts = run(task, config(**settings))
    for one, two in zip(weights_of(whole), weights_of(parts), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)
    assert whole.metrics["eval_loss"] == pytest.approx(parts.metrics["eval_loss"])


def test_scores_belong_to_their_examples(task, trained):
    _, outcome = trained
    outputs = task.postprocess(
        task.evaluation_splits[0], outcome.trainer.predict(task.evaluation, 5)
    )
    accuracy = np.mean(outputs.argmax(-1) == task.labels)
    assert outcome.best["eval_accuracy"] == pytest.approx(accuracy)
    assert 0 < accuracy < 1
    batch = task.evaluation.make_batch(np.arange(46), 18)
    losses = classification.heads.classification_loss(
        outcome.trainer.model(batch)["logits"], task.labels
    )
    assert outcome.best["eval_loss"] == pytest.approx(np.mean(losses), rel=1e-5)


@pytest.mark.usefixtures("eagerly")
def test_the_chosen_weights_are_in_place_at_the_end_and_later(task, config, tmp_path):
    # A rate this high makes the last step worse than the first.
    flags = {"learning_rate": 0.05, "num_train_steps": 3, "save_checkpoints_steps": 1}
    for choice, file, line in (  # the second choice has nothing left to train
        ("best", "model.ckpt-best", f"Using the best checkpoint of {tmp_path}/run"),
        ("newest", "model.ckpt-3", f"Resuming from {tmp_path}/run/model.ckpt-3: "),
    ):
        flags["checkpoint"] = choice
        trained = run(task, config(**flags))
        assert trained.best["step"] < 3
        chosen = task.build_model()
        weights.load(chosen, tmp_path / "run" / file)
        for one, two in zip(weights_of(trained), chosen.weights, strict=True):
            np.testing.assert_array_equal(one, two)
        log = io.StringIO()
        evaluated = run(task, config(**flags, do_train=False), log)
        assert line in log.getvalue()
        is_best = evaluated.metrics["eval_loss"] == trained.best["eval_loss"]
        assert is_best == (choice == "best")


@pytest.mark.usefixtures("in_graphs")
def test_training_stops_when_it_gets_no_better(config, task):
    labels = np.zeros(46, np.int32)  # the first accuracy is 1, so none is better
    task = Numbers(task.config, task.tokenizer, labels)
    log, metrics_of, traced = io.StringIO(), task.batch_metrics, []
    task.batch_metrics = lambda *args: traced.append(args) or metrics_of(*args)
    settings = config(early_stopping=2, eval_every_steps=1, num_train_steps=40)
    outcome = run(task, settings, log)
    best = outcome.best["step"]
    assert best + 2 < 40
    assert (
        f"Stopped at step {best + 2}: no better eval_accuracy than at step {best} in 2 "
        f"evaluations" in log.getvalue()
    )
    # One graph for training, and one for all evaluations.
    outcome.trainer.evaluate()
    assert len(traced) == 2
    tf.config.run_functions_eagerly(True)
    again = io.StringIO()
    run(task, settings, again)
    assert "Stopped at step" in again.getvalue()


@pytest.mark.usefixtures("eagerly")
def test_several_runs_differ_and_are_compared(task, config, tmp_path):
    log = io.StringIO()
    short = {"num_train_steps": 1, "learning_rate": 0.05}
    settings = config(num_runs=2, seed=15, **short)
    outcome = run(task, settings, log)
    summary = json.loads((tmp_path / "run" / "runs.json").read_text())
    values = [run["eval_accuracy"] for run in summary["runs"]]
    assert values[0] != values[1]
    assert outcome.best["eval_accuracy"] == max(values)
    assert summary["best"] == values.index(max(values)) + 1
    assert summary["mean"] == pytest.approx(np.mean(values))
    assert summary["spread"] == pytest.approx(np.std(values, ddof=1))
    single = config(output_dir=str(tmp_path / "single"), seed=16, **short)
    second = run(task, single)
    assert second.best["eval_accuracy"] == values[1]
    assert metadata.read_task(tmp_path / "run" / "run-2")["kind"] == "classification"


def test_a_head_is_new_unless_the_file_has_one_that_fits(task, trained, caplog):
    folder, first = trained
    path = str(folder / "model.ckpt-best")
    model = task.build_model()
    done = task.load(model, path)
    assert done.endswith("(tf1) and the head (its labels: 0, 1, 2)")
    np.testing.assert_array_equal(model.weights[-1], first.trainer.model.weights[-1])
    other = Numbers(task.config, task.tokenizer)
    other.text_task = dataclasses.replace(DECLARED, labels=("0", "1"))
    two = other.build_model()
    before = keras.ops.convert_to_numpy(two.head.output_dense.kernel)
    assert other.load(two, path).endswith("the file's head does not fit: a new one")
    np.testing.assert_array_equal(two.head.output_dense.kernel, before)
    with pytest.raises(InputError, match=r"does not fit AlbertClassifier"):
        other.load(two, path, strict=True)
    assert not caplog.records


def test_a_folder_with_another_model_is_left_as_it_is(task, config, tmp_path, snapshot):
    folder = tmp_path / "run"
    model = AlbertClassifier(dataclasses.replace(task.config, hidden_size=6), 3)
    optimizer = optimizers.AdamW(1e-3)
    optimizer.build(model.trainable_variables)
    weights.save(model, folder / "model.ckpt-3", format="tf1", optimizer=optimizer)
    before = snapshot(tmp_path)
    start = f"--output_dir={folder}: model.ckpt-3 has another model ("
    for flags in ({}, {"do_train": False}):
        message = refusal(run, task, config(**flags))
        assert message.startswith(start) and message.endswith("); use another folder")
    assert snapshot(tmp_path) == before


def test_a_pooler_that_the_weights_lack_is_a_word_at_the_start(task, tmp_path):
    pretrained = AlbertPretrainer(task.config, sentence_head=False)
    weights.save(pretrained, tmp_path / "hf", "hf")
    path = tmp_path / "hf/model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    left = {name: x for name, x in tensors.items() if "pooler" not in name}
    assert len(left) == len(tensors) - 2
    safetensors.numpy.save_file(left, path)
    model = task.build_model()
    done = task.load(model, str(tmp_path / "hf"))
    assert "weights of the encoder (hf); a new pooler; a new head" in done
    with pytest.raises(InputError, match=r"not in the file: encoder\.pooler\.kernel"):
        task.load(model, str(tmp_path / "hf"), strict=True)


def test_epochs_and_shares_become_steps(task, config):
    epochs = {"num_train_steps": None, "num_train_epochs": 2.5}
    settings = config(**epochs, warmup_proportion=0.3)
    converted = finetune.convert_epochs(task, settings)
    assert converted.num_train_steps == 14  # 46 / 8 x 2.5
    assert converted.num_warmup_steps == 4
    between = config(eval_every_epochs=0.7, do_eval=True)
    assert finetune.convert_epochs(task, between).eval_every_steps == 4
    released = finetune.convert_epochs(task, config(num_train_steps=None))
    assert (released.num_train_steps, released.num_warmup_steps) == (1000, 0)


def test_flags_change_the_config_of_the_weights(config, tmp_path, task):
    metadata.write(tmp_path / "start", task.tokenizer, {"kind": "classification"})
    weights.save(task.build_model(), tmp_path / "start", "tf1")
    settings = config(init_checkpoint=str(tmp_path / "start/model.ckpt-best"))
    opened = finetune.open_folder(settings, ModelSettings(albert_dropout_prob=0.3))
    assert opened.config == dataclasses.replace(
        task.config, hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3
    )
    assert opened.tokenizer.path == str(tmp_path / "start/spm_small.model")


def test_several_runs_do_not_overwrite_a_single_one(config, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model.ckpt-3.index").write_text("")
    assert refusal(finetune.fine_tune, job(config(num_runs=2))) == (
        f"--output_dir={tmp_path}/run: has a single run; pass --num_runs=1 or use "
        f"another folder"
    )


@pytest.mark.usefixtures("eagerly")
def test_a_signal_stops_an_evaluation_between_two_batches(task, config, monkeypatch):
    """The weights are saved, and the resumed run evaluates them."""
    logged, batches = Trainer._log_progress, []

    def interrupt(self, *arguments):
        for batch in logged(self, *arguments):
            batches.append(batch)
            if len(batches) == 3:
                signal.raise_signal(signal.SIGINT)
            yield batch

    steps = {"num_train_steps": 3, "eval_every_steps": 2, "log_steps": 2}
    settings = config(**steps, eval_batch_size=12)
    log = io.StringIO()
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_log_progress", interrupt)
        with pytest.raises(SystemExit) as stopped:
            run(task, settings, log)
    assert (stopped.value.code, len(batches)) == (130, 3)
    assert log.getvalue().endswith(
        "Stopped by SIGINT at step 2: saved; run the same command again to resume\n"
    )
    log = io.StringIO()
    run(task, settings, log)
    assert re.findall(r"(eval at step \d|\nstep \d)", log.getvalue()) == [
        *("eval at step 2", "\nstep 3", "eval at step 3")
    ]


@pytest.mark.usefixtures("eagerly")
def test_a_full_disk_is_one_line_and_keeps_the_checkpoint_before(
    task, config, tmp_path, monkeypatch
):
    prefix, save = f"{tmp_path}/run/model.ckpt", tf.raw_ops.SaveV2

    def fail_later(prefix, **arguments):
        if prefix.endswith("-2"):
            raise tf.errors.ResourceExhaustedError(None, None, "No space left [Op:x]")
        save(prefix=prefix, **arguments)

    settings = config(
        num_train_steps=2, eval_every_steps=2, log_steps=1, save_checkpoints_steps=1
    )
    with monkeypatch.context() as patch, pytest.raises(InputError) as mistake:
        patch.setattr(tf.raw_ops, "SaveV2", fail_later)
        run(task, settings)
    assert str(mistake.value) == f"{prefix}-2: cannot be written: No space left"
    assert not list((tmp_path / "run").glob("*.tmp-*"))
    log = io.StringIO()
    run(task, settings, log)
    assert f"{prefix}-1: " in log.getvalue()


def test_an_export_that_could_not_be_written_is_refused_first(config, tmp_path):
    run = tmp_path / "runs/one"
    (tmp_path / "file").touch()
    own = f"the run writes its own files there (--output_dir={run}); use another folder"
    for folder, message in (
        (tmp_path / "file", "exists and is no SavedModel; use a new folder"),
        (tmp_path / "file/in/it", "cannot be written: Not a directory"),
        *((run, own), (run.parent, own)),
    ):
        settings = config(output_dir=str(run), export_dir=str(folder))
        message = f"--export_dir={folder}: {message}"
        assert refusal(finetune.fine_tune, job(settings)) == message
    assert not list(tmp_path.rglob("*.writing"))
