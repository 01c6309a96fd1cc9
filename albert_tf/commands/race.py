r"""Fine-tunes ALBERT on RACE or on your own questions with choices.

    python run_race.py --flagfile=recipes/race_v2.flags --data_dir=RACE \
        --init_checkpoint=albert_base_v2 --output_dir=runs/race

docs/race.md explains the data, the flags, the memory and what a run writes.
"""

from albert_tf.tasks.settings.fine_tuning import ModelSettings
from albert_tf.tasks.settings.race import RaceRunSettings, RaceSettings
from albert_tf.train.devices import DistributionSettings

SETTINGS = (RaceSettings, RaceRunSettings, ModelSettings, DistributionSettings)


def main(
    task: RaceSettings,
    run: RaceRunSettings,
    model: ModelSettings,
    devices: DistributionSettings,
) -> None:
    """Trains, evaluates, predicts and exports."""
    from albert_tf.tasks.race.task import MultipleChoice
    from albert_tf.train import finetune

    finetune.run(MultipleChoice, task, run, model, devices)
