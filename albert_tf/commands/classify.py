r"""Fine-tunes ALBERT on a task of GLUE or on your own table of texts.

    python run_classifier.py --task_name=mrpc --data_dir=glue \
        --init_checkpoint=albert_base_v2 --output_dir=runs/mrpc \
        --do_train --do_eval --do_predict \
        --learning_rate=2e-5 --train_step=800 --warmup_step=200

docs/fine_tuning.md explains the flags, your own tables and what a run writes.
"""

from albert_tf.tasks.settings.classification import (
    ClassificationSettings,
    ClassifierRunSettings,
)
from albert_tf.tasks.settings.fine_tuning import ModelSettings
from albert_tf.train.devices import DistributionSettings

SETTINGS = (
    ClassificationSettings,
    ClassifierRunSettings,
    ModelSettings,
    DistributionSettings,
)


def main(
    task: ClassificationSettings,
    run: ClassifierRunSettings,
    model: ModelSettings,
    devices: DistributionSettings,
) -> None:
    """Trains, evaluates, predicts and exports."""
    task.check(run)

    from albert_tf.tasks.classification import Classification
    from albert_tf.train import finetune

    finetune.run(Classification, task, run, model, devices)
