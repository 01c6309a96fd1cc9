r"""Pretrains ALBERT on the records of create_pretraining_data.py.

    python run_pretraining.py --albert_config_file=albert_config.json \
        --input_file='records/train.tfrecord*' --output_dir=run \
        --train_batch_size=256 --num_train_steps=10000 \
        --num_warmup_steps=500 --learning_rate=4e-4

docs/pretraining.md explains the flags, the devices and the output files.
"""

from albert_tf.tasks.settings.pretraining import PretrainingSettings
from albert_tf.tasks.settings.training import TrainingSettings
from albert_tf.train.settings import DistributionSettings

SETTINGS = (PretrainingSettings, TrainingSettings, DistributionSettings)


def main(
    pretraining: PretrainingSettings,
    config: TrainingSettings,
    devices: DistributionSettings,
) -> None:
    """Pretrains and evaluates, as the settings say."""
    from albert_tf.train import pretrain

    pretrain.pretrain(pretraining, config, devices)
