import types

import pytest

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


def test_workers_that_no_one_names_are_refused(refuses):
    with refuses(
        "--distribution=multi_worker: needs TF_CONFIG in the environment, or a start "
        "with Slurm's srun"
    ):
        devices.create(DistributionSettings(distribution="multi_worker"))
