"""Pretrains ALBERT on records of create_pretraining_data.py.

    python run_pretraining.py --albert_config_file=albert_config.json --input_file='records/train.tfrecord*' --output_dir=run --train_batch_size=256 --num_train_steps=10000 --num_warmup_steps=500 --learning_rate=4e-4

docs/pretraining.md explains the flags, the devices and what a run writes.
"""  # noqa: E501 (--help shows the example as it stands here)

from albert_tf import flags
from albert_tf.distribution import DistributionConfig
from albert_tf.tasks.pretraining import Pretraining, PretrainingConfig
from albert_tf.training import TrainingConfig, prepare, run

for settings in (PretrainingConfig, TrainingConfig, DistributionConfig):
    flags.define(settings)


def main() -> None:
    """Reads the flags, trains and evaluates."""
    config = flags.read(TrainingConfig)
    strategy = prepare(config, flags.read(DistributionConfig))
    task = Pretraining(flags.read(PretrainingConfig), evaluate=config.do_eval)
    run(task, config, strategy)


if __name__ == "__main__":
    flags.run(main)
