"""Fine-tunes ALBERT on RACE or on your own questions with choices.

    python run_race.py --flagfile=recipes/race_v2.flags --data_dir=RACE --init_checkpoint=albert_base_v2 --output_dir=runs/race

docs/race.md explains the data, the flags, the memory and what a run writes.
"""  # noqa: E501 (--help shows the example as it stands here)

from albert_tf import flags, multiple_choice
from albert_tf.distribution import DistributionConfig
from albert_tf.fine_tuning import ModelConfig
from albert_tf.multiple_choice import ChoiceConfig

for settings in (ChoiceConfig, ModelConfig, DistributionConfig):
    flags.define(settings)


def main() -> None:
    """Reads the flags, trains, evaluates, predicts and exports."""
    multiple_choice.run(
        flags.read(ChoiceConfig),
        flags.read(ModelConfig),
        flags.read(DistributionConfig),
    )


if __name__ == "__main__":
    flags.run(main)
