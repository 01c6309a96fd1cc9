r"""Fine-tunes ALBERT on SQuAD 1.1, SQuAD 2.0 or questions in the same format.

    python run_squad.py --train_file=train-v2.0.json \
        --predict_file=dev-v2.0.json --init_checkpoint=albert_base_v2 \
        --output_dir=runs/squad2 --do_train --do_predict \
        --learning_rate=3e-5 --train_batch_size=48

docs/squad.md explains the flags, the threshold and what a run writes.
"""

from albert_tf.tasks.settings.fine_tuning import ModelSettings
from albert_tf.tasks.settings.squad import SquadRunSettings, SquadSettings
from albert_tf.train.devices import DistributionSettings

SETTINGS = (SquadSettings, SquadRunSettings, ModelSettings, DistributionSettings)


def main(
    task: SquadSettings,
    run: SquadRunSettings,
    model: ModelSettings,
    devices: DistributionSettings,
) -> None:
    """Trains, evaluates, predicts and exports."""
    task.check(run)

    from albert_tf.tasks.squad.task import QuestionAnswering
    from albert_tf.train import finetune

    finetune.run(QuestionAnswering, task, run, model, devices)
