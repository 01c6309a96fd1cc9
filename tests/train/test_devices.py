import pytest

from albert_tf.errors import InputError
from albert_tf.train import devices
from albert_tf.train.settings import DistributionSettings


def test_a_tpu_that_is_not_there_is_named():
    with pytest.raises(InputError, match=r"^--use_tpu: cannot connect to 'local': "):
        devices.create(DistributionSettings(use_tpu=True))


def test_workers_that_no_one_names_are_refused(refuses):
    with refuses(
        "--distribution=multi_worker: needs TF_CONFIG in the environment, or a start "
        "with Slurm's srun"
    ):
        devices.create(DistributionSettings(distribution="multi_worker"))
