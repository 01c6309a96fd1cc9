"""Runs of run_pretraining.py: stopped, distributed, resumed, with wrong flags.

A run is a process of its own if a test is about devices, signals or exit codes.
"""

import io
import itertools
import json
import os
import re
import shutil
import signal
import socket
import time
import types

import numpy as np
import pytest
import tensorflow as tf
from helpers import ROOT, refusal

from albert_tf import InputError, weights
from albert_tf.data import records
from albert_tf.train import curves, loop
from albert_tf.train.step import Trainer

SCRIPT = ROOT / "run_pretraining.py"
ROWS, T, P = 64, 14, 3
PATIENCE = 300  # seconds
METRICS = {"loss": 1.0, "learning_rate": 0.1, "gradient_norm": 2.0}
METRICS |= {"sequences_per_second": 6.0, "tokens_per_second": 0.5, "waiting_share": 0.5}
SAVE_ALL = ["--save_checkpoints_steps=1", "--keep_checkpoint_max=99"]
# After the first step, all others are one call, which a signal interrupts.
SAVE_ONCE = ["--save_checkpoints_steps=99", "--log_steps=99"]
# Runs in a process that has imported everything, so that it starts at once.
START = """
import os, runpy, sys
os.environ.update({environ!r})
log = os.open({log!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.dup2(log, 1), os.dup2(log, 2)
from albert_tf.train import curves
# Drawing takes longer than 20 steps.
curves.draw = lambda read, picture: None
sys.argv = {argv!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Run:
    """A run of the script in the background."""

    def __init__(self, processes, log, argv, environ):
        self._log = log
        code = START.format(environ=environ, log=str(log), argv=[str(SCRIPT), *argv])
        self._process = processes.Process(target=exec, args=(code,))
        self._process.start()

    def wait_for(self, text):
        end = time.monotonic() + PATIENCE
        while text not in self.text and self._process.is_alive():
            assert time.monotonic() < end, self.text
            time.sleep(0.005)

    def kill(self, number=signal.SIGKILL):
        if self._process.is_alive():
            os.kill(self._process.pid, number)

    def signal_at(self, step, number):
        self.wait_for(f"\nstep {step}/")
        self.kill(number)
        return self

    def kill_at(self, step):
        self.signal_at(step, signal.SIGKILL)
        self._process.join()
        return self

    def wait(self, code=0):
        self._process.join(PATIENCE)
        if self._process.is_alive():
            self._process.kill()
        assert self._process.exitcode == code, self.text
        return self

    @property
    def text(self):
        return self._log.read_text() if self._log.exists() else ""


@pytest.fixture(scope="session")
def files(tmp_path_factory, tiny):
    """Writes a model's configurations and records, and returns their folder."""
    folder = tmp_path_factory.mktemp("files")
    dropout = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2}
    for name, changes in (("config", {}), ("dropout", dropout)):
        config = tiny(num_hidden_layers=1, type_vocab_size=2, **changes)
        (folder / f"{name}.json").write_text(config.to_json_string())
    random = np.random.default_rng(5)
    lengths = random.integers(6, T + 1, (ROWS, 1))
    batch = {
        "input_ids": random.integers(0, 23, (ROWS, T)),
        "input_mask": np.arange(T) < lengths,
        "segment_ids": np.arange(T) > lengths // 2,
        "masked_lm_positions": random.integers(0, 6, (ROWS, P)),
        "masked_lm_ids": random.integers(0, 23, (ROWS, P)),
        # Microbatches have unequal numbers of predictions.
        "masked_lm_weights": np.arange(P) < random.integers(1, P + 1, (ROWS, 1)),
        "next_sentence_labels": random.integers(0, 2, (ROWS, 1)),
    }
    spec = {
        name: records.Feature("float" if "weights" in name else "int", value.shape[1])
        for name, value in batch.items()
    }
    with records.create(str(folder / "train.tfrecord")) as writer:
        writer.write(records.encode(spec, batch))
    return folder


def flags_of(files, folder, config):
    return [
        f"--albert_config_file={files / config}",
        f"--input_file={files / 'train.tfrecord'}",
        f"--output_dir={folder}",
        "--train_batch_size=8",
        "--num_train_steps=10",
        "--num_warmup_steps=2",
        "--learning_rate=0.02",
        "--log_steps=1",
    ]


@pytest.fixture
def start(processes, files, tmp_path):
    """Starts the script: `start("folder", "--flag=value")`."""

    def call(folder, *flags, environ=None, config="config.json"):
        argv = [*flags_of(files, tmp_path / folder, config), *flags]
        names = {"TF_CPP_MIN_LOG_LEVEL": "3", **(environ or {})}
        log = tmp_path / f"{folder}-{len(os.listdir(tmp_path))}.log"
        log.touch()  # another process gets another name
        return Run(processes, log, argv, names)

    return call


@pytest.fixture
def run(settings_of, files, tmp_path):
    """Runs the script's function in this process; returns the log."""
    from albert_tf.train import pretrain

    def call(folder, *flags, config="dropout.json"):
        argv = [*flags_of(files, tmp_path / folder, config), *flags]
        log = io.StringIO()
        pretrain.pretrain(*settings_of(SCRIPT.name, *argv), log)
        return log.getvalue()

    return call


@pytest.fixture
def count_steps(monkeypatch):
    """Counts steps in place of training; `count_steps(2)` skips the second call.

    A call whose updates float16 skips does not count as steps.
    """

    def start(*skipped):
        calls = itertools.count(1)

        def train(self, num_steps):
            if next(calls) not in skipped:
                self.optimizer.iterations.assign_add(num_steps)
            return METRICS

        monkeypatch.setattr(Trainer, "train", train)

    return start


@pytest.fixture(scope="session")
def whole(processes, files):
    """The folder of a run of 40 steps with dropout that is never stopped."""
    flags = ["--num_train_steps=40", "--deterministic", *SAVE_ALL]
    argv = [*flags_of(files, files / "whole", "dropout.json"), *flags]
    Run(processes, files / "whole.log", argv, {"TF_CPP_MIN_LOG_LEVEL": "3"}).wait()
    return files / "whole"


def tensors(folder, step):
    """Reads all tensors of a checkpoint, including those under `albert_tf/`."""
    source = weights.open_source(folder / f"model.ckpt-{step}")
    return {name: source.read(name) for name in (*source.shapes, *source.ignored)}


def workers_of_a_cluster():
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("localhost", 0))
            ports.append(free.getsockname()[1])
    cluster = {"worker": [f"localhost:{port}" for port in ports]}
    return [
        {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}
        for task in ({"type": "worker", "index": 0}, {"type": "worker", "index": 1})
    ]


@pytest.mark.usefixtures("eagerly")
def test_devices_and_microbatches_give_weights_of_one_device(start, run, tmp_path):
    steps = "--num_train_steps=3"
    mirrored = start("mirrored", steps, "--distribution=mirrored", "--cpu_devices=2")
    run("one", steps, config="config.json")
    run("microbatches", steps, "--gradient_accumulation_steps=2", config="config.json")
    mirrored.wait()
    for folder in ("microbatches", "mirrored"):
        assert_close(tmp_path / folder, tmp_path / "one", 3)


def assert_close(folder, other, step):
    actual, expected = tensors(folder, step), tensors(other, step)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        # The bound of a slot is relative to its size. The gradient of key/bias is 0,
        # because the softmax cancels it: its slots are only rounding errors.
        noise = 1e-9 if "key/bias" in name else 1e-10
        relative = max(1e-4 * np.abs(value).max(), noise)
        bound = relative if "adam" in name else 1e-5
        difference = np.abs(actual[name] - value).max()
        if name.endswith("key/bias"):
            # Updates from rounding errors are much smaller than from gradients.
            difference = np.abs(actual[name]).max()
            other = actual[name.replace("key/bias", "query/bias")]
            bound = np.abs(other).max() / 1000
        assert difference <= bound, f"{folder} {name}"


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(
    "flags",
    [
        ("--gradient_accumulation_steps=2",),
        pytest.param(
            ("--distribution=mirrored", "--cpu_devices=2", "--precision=float16"),
            marks=pytest.mark.slow,
        ),
        ("--optimizer=adamw", "--xla"),
    ],
    ids=["microbatches", "mirrored float16", "xla"],
)
def test_what_the_loss_does_not_reach_stays_as_it_is(flags, start, run, tmp_path):
    flags = ["--objective=none", "--num_train_steps=3", *SAVE_ALL, *flags]
    tf.config.run_functions_eagerly("--xla" not in flags)
    if "--cpu_devices=2" in flags:
        start("run", *flags).wait()
    else:
        run("run", *flags)
    first, last = (tensors(tmp_path / "run", step) for step in (1, 3))
    pooler = "bert/pooler/dense/kernel"
    assert np.abs(first[pooler]).min() > 0
    np.testing.assert_array_equal(first[pooler], last[pooler])
    trained = [n for n in first if "adam" not in n and "LayerNorm/beta" in n]
    assert len(trained) > 2
    assert all(np.abs(first[name] - last[name]).max() > 1e-3 for name in trained)


def assert_equal(folder, other, step, note=""):
    actual, expected = tensors(folder, step), tensors(other, step)
    assert actual.keys() == expected.keys()
    assert any("adam_m" in name for name in actual)
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=f"{name} {note}")


def test_a_damaged_checkpoint_is_named(run, count_steps, tmp_path):
    count_steps()
    flags = ["--num_train_steps=2", "--save_checkpoints_steps=1"]
    run("run", *flags)
    changed = tmp_path / "run/model.ckpt-2.data-00000-of-00001"
    content = bytearray(changed.read_bytes())
    content[700] ^= 1
    changed.write_bytes(content)
    with pytest.raises(InputError, match=f"^{tmp_path}/run/model.ckpt-2"):
        run("run", *flags)
    changed.with_name("model.ckpt-2.index").unlink()
    assert f"Resuming from {tmp_path}/run/model.ckpt-1: " in run("run", *flags)


@pytest.mark.usefixtures("eagerly")
def test_evaluation_marks_the_best_and_writes_the_released_file(run, files, tmp_path):
    flags = [
        f"--eval_input_file={files / 'train.tfrecord'}",
        "--num_train_steps=3",
        "--eval_every_steps=1",
        "--eval_batch_size=40",
        "--keep_checkpoint_max=1",
    ]
    text = run("run", *flags)
    lines = [*curves.entries(tmp_path / "run/metrics.jsonl")]
    evaluations = [line for line in lines if line["kind"] == "eval"]
    assert [line["step"] for line in evaluations] == [1, 2, 3]
    best = max(evaluations, key=lambda line: line["masked_lm_accuracy"])
    noted = json.loads((tmp_path / "run/model.ckpt-best.json").read_text())
    assert noted["step"] == best["step"]
    assert noted["perplexity"] == pytest.approx(np.exp(best["masked_lm_loss"]))
    copied = weights.open_source(tmp_path / "run/model.ckpt-best")
    assert copied.read("global_step") == best["step"]
    assert f"eval at step {best['step']}" in text
    blocks = (tmp_path / "run/eval_results.txt").read_text().split("=" * 50 + "\n")
    assert blocks.pop() == ""
    for block, line in zip(blocks, evaluations, strict=True):
        actual = dict(row.split(" = ") for row in block.splitlines())
        assert list(actual) == [
            *("global_step", "loss", "masked_lm_accuracy", "masked_lm_loss"),
            *("perplexity", "sentence_order_accuracy", "sentence_order_loss"),
        ]
        assert float(actual["loss"]) == line["loss"]
    assert (tmp_path / "run/training_curves.png").exists()
    alone = run("run", *flags[:1], "--nodo_train", "--do_eval")
    assert f"loss {best['loss']:.4f}" in alone


@pytest.mark.usefixtures("eagerly")
def test_warm_start_takes_weights_and_nothing_of_the_optimizer(run, whole, tmp_path):
    first = tmp_path / "first"
    shutil.copytree(whole, first)
    for suffix in ("index", "data-00000-of-00001"):  # runs start from the best
        path = first / f"model.ckpt-40.{suffix}"
        path.rename(first / f"model.ckpt-best.{suffix}")
    text = run("second", f"--init_checkpoint={first}", "--num_train_steps=1")
    source = f"{first}/model.ckpt-best"
    assert f"Starting from {source}: 32 weights (tf1); fresh optimizer" in text
    begun, ended = tensors(whole, 40), tensors(tmp_path / "second", 1)
    name = "bert/pooler/dense/kernel"
    # The first learning rate of a warmup is 0, so the weights have not changed.
    np.testing.assert_array_equal(ended[name], begun[name])
    assert np.abs(ended[f"{name}/adam_m"] - begun[f"{name}/adam_m"]).max() > 1e-6
    assert ended["global_step"] == 1


@pytest.mark.usefixtures("eagerly")
def test_a_loss_that_is_not_finite_stops_the_run(run, tmp_path):
    flags = ["--learning_rate=1e25", "--optimizer=adamw", "--save_checkpoints_steps=2"]
    pattern = (
        r"^step \d+: the loss is \S+, the norm of the gradient (nan|inf), at a "
        r"learning rate of \d\S+\. No checkpoint was written since"
    )
    with pytest.raises(InputError, match=pattern):
        run("run", *flags, "--num_warmup_steps=3")
    kept = tensors(tmp_path / "run", 2)
    assert all(np.isfinite(value).all() for value in kept.values())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--max_seq_length=128",
         "--max_seq_length=128: the records of {} have 14"),
        ("--max_predictions_per_seq=20",
         "--max_predictions_per_seq=20: the records of {} have 3"),
        ("--train_batch_size=9 --gradient_accumulation_steps=2",
         "--train_batch_size=9: must be a multiple of 2 (1 devices x 2 microbatches)"),
        ("--use_tpu", "--use_tpu: cannot connect to 'local': "),
        ("--distribution=multi_worker",
         "--distribution=multi_worker: needs TF_CONFIG in the environment, or a start "
         "with Slurm's srun"),
    ],
)  # fmt: skip
def test_flags_that_do_not_fit_are_refused(run, files, flags, message):
    records = files / "train.tfrecord"
    assert refusal(run, "run", *flags.split()).startswith(message.format(records))


LOST = "error: lost another worker: it ended (see its log) or does not respond; run "


def test_workers_with_different_checkpoints_are_refused(
    start, run, count_steps, tmp_path
):
    count_steps()
    run("first", "--num_train_steps=1")
    folders = ("first", "second")  # a folder that is not shared
    workers = [
        start(folder, environ=environ)
        for folder, environ in zip(folders, workers_of_a_cluster(), strict=True)
    ]
    # One worker may end before the other has seen the difference.
    assert any(
        f"error: --output_dir={tmp_path / folder}: the workers see different "
        f"checkpoints; use a folder that all workers share" in worker.wait(2).text
        for worker, folder in zip(workers, folders, strict=True)
    )
    for worker in workers:
        worker.wait(2)


TWO_REPLICAS = """
import types
import keras
import numpy as np
import tensorflow as tf
from albert_tf import AlbertConfig, AlbertEncoder
from albert_tf.train import checkpoints, devices, loop

cpus = devices.DistributionSettings(distribution="mirrored", cpu_devices=2)
strategy = devices.create(cpus)

# Dropout

with strategy.scope():
    encoder = AlbertEncoder(AlbertConfig.from_json_file({config!r}))

@tf.function
def encode():
    def on_replica():
        return encoder(dict(input_ids=tf.constant([[1, 2, 3, 4]])), training=True)
    return strategy.run(lambda: on_replica()["pooled_output"])

devices.fold_in_replica_id(strategy, encoder)
seen = []
for _ in range(3):
    seen += [part.numpy() for part in strategy.experimental_local_results(encode())]
different = {{values.tobytes() for values in seen}}
assert len(different) == 6, seen

# An overflow on the second replica

config = loop.TrainingSettings(
    output_dir="", precision="float16", num_warmup_steps=0, train_batch_size=2
)
with strategy.scope():
    model = keras.layers.Dense(3)
    model.build((None, 2))
    optimizer = loop.build_optimizer(config)
    optimizer.build(model.trainable_variables)
task = types.SimpleNamespace(loss_weights=lambda batch: dict(loss=tf.constant(1.0)))
trainer = loop.Trainer(task, config, strategy, model, optimizer)
value = float("inf")

def gradients(batch, weights):
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    each = tf.where(replica == 1, value, 2.0**15)
    return tf.zeros([1]), [tf.fill(v.shape, each) for v in model.trainable_variables]

trainer._compute_gradients, trainer._variables = gradients, model.trainable_variables
before = model.get_weights()
trainer._train_step(tf.zeros([1]))
for a, b in zip(before, model.get_weights(), strict=True):
    np.testing.assert_array_equal(a, b)
inner = optimizer.inner_optimizer
assert checkpoints.count_steps(inner) == 0
assert keras.ops.convert_to_numpy(optimizer.dynamic_scale) == 2.0**14
value = 2.0**15
trainer._train_step(tf.zeros([2]))  # traced anew
assert checkpoints.count_steps(inner) == 1
assert all(np.isfinite(w).all() for w in model.get_weights())
assert (model.get_weights()[0] != before[0]).all()
"""


def test_replicas_drop_different_values_and_skip_steps_together(processes, files):
    code = TWO_REPLICAS.format(config=str(files / "dropout.json"))
    process = processes.Process(target=exec, args=(code, {}))
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == 0


@pytest.mark.usefixtures("eagerly")
def test_an_evaluation_that_a_kill_prevented_comes_first(
    run, count_steps, files, tmp_path
):
    count_steps()
    flags = [f"--eval_input_file={files / 'train.tfrecord'}", "--eval_every_steps=2"]
    flags += ["--eval_batch_size=64"]
    run("run", *flags, "--num_train_steps=2")
    metrics = tmp_path / "run/metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True)
    kept = [line for line in lines if '"eval"' not in line]
    metrics.write_text("".join(kept))
    run("run", *flags, "--num_train_steps=3")
    actual = [json.loads(line) for line in metrics.read_text().splitlines()[2:]]
    steps = [entry["step"] for entry in actual if entry["kind"] == "eval"]
    assert steps == [2, 3]
    assert [e["step"] for e in actual if e["kind"] == "resume"] == [2]


def test_a_run_that_a_kill_and_a_signal_stop_keeps_the_same_bits(
    start, whole, tmp_path
):
    flags = ["--num_train_steps=40", "--deterministic", *SAVE_ALL]
    options = {"config": "dropout.json"}
    at = np.random.default_rng().integers(3, 8)
    start("run", *flags, **options).kill_at(at)
    killed = max(steps_saved(tmp_path / "run"))
    run = start("run", *flags, *SAVE_ONCE, **options)
    text = run.signal_at(killed + 1, signal.SIGINT).wait(130).text
    stopped = step_of_stop(text, "SIGINT")
    assert f"Resuming from {tmp_path / 'run'}/model.ckpt-{killed}: " in text
    assert killed < stopped < 40, f"killed at {at}"
    assert not list((tmp_path / "run").glob("*.tmp-*"))
    # These tensors are all that a run resumes from.
    assert_equal(tmp_path / "run", whole, stopped, f"killed at {at}")


def step_of_stop(text, name):
    [step] = re.findall(
        rf"Stopped by {name} at step (\d+): saved; run the same c", text
    )
    return int(step)


def start_workers(start, folder, steps, config, saving=SAVE_ALL):
    flags = [f"--num_train_steps={steps}", f"--log_steps={steps}", "--deterministic"]
    return [
        start(folder, *flags, *saving, environ=environ, config=config)
        for environ in workers_of_a_cluster()
    ]


def stop_workers(start, folder, steps, number, meanwhile, config):
    """Stops a run by the loss of a worker, then by SIGTERM; returns its last step.

    `meanwhile` is called while the other worker waits for the lost one.
    """
    chief, other = start_workers(start, folder.name, steps, config)
    chief.wait_for("\nstep 1/")
    other.kill(number)
    meanwhile()
    assert LOST in chief.wait(2).text
    other.kill()
    lost = max(steps_saved(folder))
    chief, other = start_workers(start, folder.name, steps, config, SAVE_ONCE)
    chief.wait_for(f"\nstep {lost + 1}/")
    other.kill(signal.SIGTERM)
    for worker in (chief, other):
        worker.wait(143)
    assert f"Resuming from {folder}/model.ckpt-{lost}: " in chief.text
    stopped = step_of_stop(chief.text, "SIGTERM")
    assert lost < stopped < steps
    return stopped


def test_workers_stop_together_and_give_weights_of_one_device(start, run, tmp_path):
    steps, config = 40, "config.json"

    def meanwhile():
        run("one", f"--num_train_steps={steps}", *SAVE_ALL, config=config)

    stopped = stop_workers(
        start, tmp_path / "run", steps, signal.SIGKILL, meanwhile, config
    )
    assert_close(tmp_path / "run", tmp_path / "one", stopped)


@pytest.mark.slow
def test_workers_resume_with_the_same_bits(start, tmp_path):
    steps, config = 40, "dropout.json"

    def meanwhile():
        for worker in start_workers(start, "whole", steps, config):
            worker.wait()

    stopped = stop_workers(
        start, tmp_path / "run", steps, signal.SIGSTOP, meanwhile, config
    )
    assert_equal(tmp_path / "run", tmp_path / "whole", stopped)


@pytest.mark.usefixtures("eagerly")
def test_events_come_at_their_steps(run, count_steps, files, tmp_path):
    count_steps(1, 3)
    flags = [f"--eval_input_file={files / 'train.tfrecord'}", "--eval_every_steps=3"]
    flags += [
        "--eval_batch_size=64",
        "--log_steps=4",
        "--save_checkpoints_steps=5",
        "--keep_checkpoint_max=9",
    ]
    run("run", *flags)
    lines = [*curves.entries(tmp_path / "run/metrics.jsonl")]
    expected = {"train": [1, 4, 8, 10], "eval": [3, 6, 9, 10]}
    steps = {kind: [x["step"] for x in lines if x["kind"] == kind] for kind in expected}
    assert steps == expected
    # After an evaluation only a new best checkpoint is saved.
    assert {5, 10} <= steps_saved(tmp_path / "run") <= {3, 5, 6, 9, 10}


def steps_saved(folder):
    names = [path.stem for path in folder.glob("model.ckpt-*.index")]
    return {int(n.partition("-")[2]) for n in names if not n.endswith("best")}


def test_checkpoints_come_by_the_clock_too(run, count_steps, tmp_path, monkeypatch):
    now = itertools.count(0, 100)  # seconds, between two calls
    clock = types.SimpleNamespace(monotonic=lambda: next(now))
    monkeypatch.setattr(loop, "time", clock)
    count_steps()
    flags = ("--num_train_steps=7", "--save_checkpoints_steps=99")
    run("run", "--save_checkpoints_minutes=4", *flags)
    assert steps_saved(tmp_path / "run") == {3, 6, 7}
