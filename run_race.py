r"""Fine-tunes ALBERT on RACE or on your own questions with choices.

    python run_race.py --flagfile=recipes/race_v2.flags --data_dir=RACE \
        --init_checkpoint=albert_base_v2 --output_dir=runs/race

docs/race.md explains the data, the flags, the memory and what a run writes.
"""

from albert_tf import flags
from albert_tf.tasks.settings.fine_tuning import ModelSettings
from albert_tf.tasks.settings.race import RaceRunSettings, RaceSettings
from albert_tf.train.devices import DistributionSettings

for settings in (RaceSettings, RaceRunSettings, ModelSettings, DistributionSettings):
    flags.define(settings)


def main() -> None:
    """Reads the flags, trains, evaluates, predicts and exports."""
    task = flags.read(RaceSettings)
    run = flags.read(RaceRunSettings)
    model = flags.read(ModelSettings)
    devices = flags.read(DistributionSettings)

    # TensorFlow takes seconds, which --help and mistakes in the flags need not wait.
    from albert_tf.tasks.race.task import MultipleChoice
    from albert_tf.train import finetune

    finetune.run(MultipleChoice, task, run, model, devices)


if __name__ == "__main__":
    flags.run(main)
