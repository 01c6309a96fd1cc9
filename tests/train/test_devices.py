import signal
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


def test_a_handler_that_is_not_pythons_is_put_back_as_the_default(monkeypatch):
    set_to, strategy = [], types.SimpleNamespace()
    monkeypatch.setenv("TF_CONFIG", "{}")
    monkeypatch.setattr(
        "tensorflow.distribute.MultiWorkerMirroredStrategy", lambda **_: strategy
    )
    monkeypatch.setattr(signal, "getsignal", lambda number: None)
    monkeypatch.setattr(signal, "signal", lambda *given: set_to.append(given))
    assert devices._multi_worker(300) is strategy
    assert set_to == [(signal.SIGTERM, signal.SIG_DFL)]


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
