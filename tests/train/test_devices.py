import ctypes
import signal
import time
import types

import pytest
import tensorflow as tf

from albert_tf.errors import InputError
from albert_tf.train import devices
from albert_tf.train.devices import DistributionSettings


def cluster(task_type, task_id, jobs):
    resolver = types.SimpleNamespace(
        task_type=task_type,
        task_id=task_id,
        cluster_spec=lambda: types.SimpleNamespace(as_dict=lambda: jobs),
    )
    return types.SimpleNamespace(cluster_resolver=resolver)


WORKERS = {"worker": ["a:1", "b:1"]}
WITH_CHIEF = {"chief": ["c:1"], "worker": ["a:1", "b:1"]}


@pytest.mark.parametrize(
    ("strategy", "chief"),
    [
        (types.SimpleNamespace(cluster_resolver=None), True),
        (cluster(None, None, {}), True),
        (cluster("worker", 0, WORKERS), True),
        (cluster("worker", 1, WORKERS), False),
        (cluster("worker", 0, WITH_CHIEF), False),
        (cluster("chief", 0, WITH_CHIEF), True),
        (cluster("evaluator", 0, WORKERS), False),
    ],
)
def test_one_worker_writes_the_files(strategy, chief):
    assert devices.is_chief(strategy) is chief


def test_a_tpu_that_is_not_there_is_named():
    with pytest.raises(
        InputError, match=r"^--use_tpu: no TPU 'local' can be reached: "
    ):
        devices.create(DistributionSettings(use_tpu=True))


def test_sigterm_is_not_lost_while_workers_connect(monkeypatch):
    class Taking:
        def __init__(self, cluster_resolver):
            # As the coordination service does, past Python.
            ctypes.CDLL(None).signal(signal.SIGTERM, ctypes.c_void_p(1))  # ignored
            time.sleep(0.5)
            signal.raise_signal(signal.SIGTERM)

    came = []
    monkeypatch.setenv("TF_CONFIG", "{}")
    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", Taking)
    before = signal.signal(signal.SIGTERM, lambda *_: came.append(True))
    try:
        devices._multi_worker(0)
        assert len(came) == 1
        signal.raise_signal(signal.SIGTERM)
        assert len(came) == 2
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_worker_that_ended_before_the_others_knew_was_refused(monkeypatch):
    class Ended:
        def run(self, function):
            raise tf.errors.UnavailableError(None, None, "Connection reset by peer")

    def refuse():
        raise InputError("its own")

    monkeypatch.setattr(devices, "is_multi_worker", lambda strategy: True)
    with pytest.raises(InputError, match=r"^--output_dir=run: refused by another wor"):
        devices.together(Ended(), "run", lambda: None)
    with pytest.raises(InputError, match=r"^its own$"):
        devices.together(Ended(), "run", refuse)
