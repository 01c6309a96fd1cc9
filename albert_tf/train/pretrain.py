"""Runs pretraining, for `run_pretraining.py` and `estimators.Pretrainer`."""

import functools
import sys
from pathlib import Path
from typing import IO

from albert_tf.tasks.pretraining import Pretraining
from albert_tf.tasks.settings.pretraining import PretrainingSettings
from albert_tf.tasks.settings.training import TrainingSettings
from albert_tf.train import loop
from albert_tf.train.devices import is_chief
from albert_tf.train.run_file import RunFile
from albert_tf.train.settings import DistributionSettings


def pretrain(
    pretraining: PretrainingSettings,
    config: TrainingSettings,
    devices: DistributionSettings,
    log: IO[str] = sys.stderr,
) -> dict[str, float]:
    """Pretrains and evaluates a model, as the settings say.

    Args:
        pretraining: the settings of model, data and objective.
        config: the run's settings.
        devices: the settings of the devices.
        log: receives the lines of progress.

    Returns:
        Step and metrics of the best checkpoint. If there is none: the metrics of the
        last evaluation, or of the last training steps.

    Raises:
        InputError: see `loop.train`.
        Stopped: see `loop.train`.
    """
    strategy = loop.prepare(config, devices)
    run_file = RunFile(Path(config.output_dir), (pretraining, config, devices))
    with loop.lock_output_dir(config, strategy):
        task = Pretraining(pretraining, evaluate=config.do_eval)
        result = loop.train(task, config, strategy, log, run_file)
    if config.do_train and is_chief(strategy):
        log_line = functools.partial(print, file=log)
        # The log ends with a command to try: `albert-tf predict --model=...`. `options`
        # are further arguments of this command.
        run_file.log_end(log_line, options=" --task=fill_mask 'The [MASK] is here.'")
    return dict(result.best or result.metrics)
