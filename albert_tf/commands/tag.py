r"""Fine-tunes ALBERT to label words: CoNLL-2003's entities, or labels of your own.

    python run_tagging.py --flagfile=recipes/conll2003.flags \
        --train_file=conll2003/train.txt --eval_file=conll2003/valid.txt \
        --predict_file=conll2003/test.txt \
        --init_checkpoint=albert_base_v2 --output_dir=runs/conll2003

docs/tagging.md explains the data, the flags, and what a run writes.
"""

from albert_tf.tasks.settings.fine_tuning import FineTuningSettings, ModelSettings
from albert_tf.tasks.settings.tagging import TaggingSettings
from albert_tf.train.devices import DistributionSettings

SETTINGS = (
    TaggingSettings,
    FineTuningSettings,
    ModelSettings,
    DistributionSettings,
)


def main(
    task: TaggingSettings,
    run: FineTuningSettings,
    model: ModelSettings,
    devices: DistributionSettings,
) -> None:
    """Trains, evaluates, predicts and exports."""
    from albert_tf.tasks.tagging.task import Tagging
    from albert_tf.train import finetune

    finetune.run(Tagging, task, run, model, devices)
