r"""Pretrains ALBERT on records of create_pretraining_data.py.

    python run_pretraining.py --albert_config_file=albert_config.json \
        --input_file='records/train.tfrecord*' --output_dir=run \
        --train_batch_size=256 --num_train_steps=10000 \
        --num_warmup_steps=500 --learning_rate=4e-4

docs/pretraining.md explains the flags, the devices and what a run writes.
"""

from albert_tf import flags
from albert_tf.tasks.settings.pretraining import PretrainingSettings
from albert_tf.tasks.settings.training import TrainingSettings
from albert_tf.train.devices import DistributionSettings

for settings in (PretrainingSettings, TrainingSettings, DistributionSettings):
    flags.define(settings)


def main() -> None:
    """Reads the flags, trains and evaluates."""
    pretraining = flags.read(PretrainingSettings)
    config = flags.read(TrainingSettings)
    devices = flags.read(DistributionSettings)

    # TensorFlow takes seconds, which --help and mistakes in the flags need not wait.
    from albert_tf.tasks.pretraining import Pretraining
    from albert_tf.train import loop
    from albert_tf.weights import model_folder

    strategy = loop.prepare(config, devices)
    folders = model_folder.places(config.output_dir, config.init_checkpoint)
    task = Pretraining(pretraining, evaluate=config.do_eval, folders=folders)
    loop.run(task, config, strategy)


if __name__ == "__main__":
    flags.run(main)
