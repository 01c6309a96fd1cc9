"""Fine-tunes ALBERT on a task of GLUE or on your own table of texts.

    python run_classifier.py --task_name=mrpc --data_dir=glue --init_checkpoint=albert_base --output_dir=runs/mrpc --do_train --do_eval --do_predict --learning_rate=2e-5 --train_step=800 --warmup_step=200

docs/fine_tuning.md explains the flags, tables of your own and what a run writes.
"""  # noqa: E501 (--help shows the example as it stands here)

from albert_tf import flags, text_classification
from albert_tf.distribution import DistributionConfig
from albert_tf.fine_tuning import ModelConfig
from albert_tf.tasks.custom import CustomConfig
from albert_tf.text_classification import ClassifierConfig

for settings in (ClassifierConfig, ModelConfig, CustomConfig, DistributionConfig):
    flags.define(settings)


def main() -> None:
    """Reads the flags, trains, evaluates and predicts."""
    text_classification.run(
        flags.read(ClassifierConfig),
        flags.read(ModelConfig),
        flags.read(CustomConfig),
        flags.read(DistributionConfig),
    )


if __name__ == "__main__":
    flags.run(main)
