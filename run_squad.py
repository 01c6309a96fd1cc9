r"""Fine-tunes ALBERT on SQuAD 1.1, SQuAD 2.0 or questions in the same format.

    python run_squad.py --train_file=train-v2.0.json \
        --predict_file=dev-v2.0.json --init_checkpoint=albert_base_v2 \
        --output_dir=runs/squad2 --do_train --do_predict \
        --learning_rate=3e-5 --train_batch_size=48

docs/squad.md explains the flags, the threshold and what a run writes.
"""

from albert_tf import flags
from albert_tf.tasks.settings.fine_tuning import ModelSettings
from albert_tf.tasks.settings.squad import SquadRunSettings, SquadSettings
from albert_tf.train.devices import DistributionSettings

for settings in (SquadSettings, SquadRunSettings, ModelSettings, DistributionSettings):
    flags.define(settings)


def main() -> None:
    """Reads the flags, trains, evaluates, predicts and exports."""
    task = flags.read(SquadSettings)
    run = flags.read(SquadRunSettings)
    model = flags.read(ModelSettings)
    devices = flags.read(DistributionSettings)
    task.check(run)

    # TensorFlow takes seconds, which --help and mistakes in the flags need not wait.
    from albert_tf.tasks.squad.task import QuestionAnswering
    from albert_tf.train import finetune

    finetune.run(QuestionAnswering, task, run, model, devices)


if __name__ == "__main__":
    flags.run(main)
