import signal
import types

import pytest
import tensorflow as tf

from albert_tf.errors import InputError
from albert_tf.train import devices
from albert_tf.train.settings import DistributionSettings


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
    with pytest.raises(InputError, match=r"^--use_tpu: cannot connect to 'local': "):
        devices.create(DistributionSettings(use_tpu=True))


def test_the_handler_of_sigterm_is_put_back_once_workers_are_connected(monkeypatch):
    def take(cluster_resolver):  # as the coordination service does
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    monkeypatch.setenv("TF_CONFIG", "{}")
    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", take)
    before = signal.getsignal(signal.SIGTERM)
    devices._multi_worker()
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_loss_of_another_worker_is_one_line(monkeypatch):
    def fail():
        raise tf.errors.UnavailableError(None, None, "from a previous operation")

    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with pytest.raises(tf.errors.UnavailableError), devices.worker_errors(strategy):
        fail()
    monkeypatch.setattr(devices, "is_multi_worker", lambda strategy: True)
    with (
        pytest.raises(InputError, match=r"^lost another worker: "),
        devices.worker_errors(strategy),
    ):
        fail()
