r"""Pretrains ALBERT on records of create_pretraining_data.py.

    python run_pretraining.py --albert_config_file=albert_config.json \
        --input_file='records/train.tfrecord*' --output_dir=run \
        --train_batch_size=256 --num_train_steps=10000 \
        --num_warmup_steps=500 --learning_rate=4e-4

docs/pretraining.md explains the flags, the devices and the output files.
"""

import functools
import sys
from pathlib import Path

from albert_tf.tasks.settings.pretraining import PretrainingSettings
from albert_tf.tasks.settings.training import TrainingSettings
from albert_tf.train.settings import DistributionSettings

SETTINGS = (PretrainingSettings, TrainingSettings, DistributionSettings)


def main(
    pretraining: PretrainingSettings,
    config: TrainingSettings,
    devices: DistributionSettings,
) -> None:
    """Trains and evaluates."""
    from albert_tf.tasks.pretraining import Pretraining
    from albert_tf.train import loop
    from albert_tf.train.devices import is_chief, pad_multiple
    from albert_tf.train.run_file import RunFile

    strategy = loop.prepare(config, devices)
    run_file = RunFile(Path(config.output_dir), (pretraining, config, devices))
    notes = config.do_train and is_chief(strategy)
    log = functools.partial(print, file=sys.stderr)
    with loop.lock_output_dir(config, strategy):
        if notes:
            run_file.check(log)
        multiple = pad_multiple(strategy, config.xla)
        task = Pretraining(pretraining, config.do_eval, multiple)
        loop.run(task, config, strategy, run_file=run_file)
    if notes:
        run_file.log_end(log, " --task=fill_mask 'The [MASK] is here.'")
