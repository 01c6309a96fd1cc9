"""The commands that fine-tune: `classify`, `tag`, `squad` and `race`."""

from typing import Any, ClassVar

from albert_tf.tasks import registry
from albert_tf.tasks.settings.classification import (
    ClassificationSettings,
    ClassifierRunSettings,
)
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings, ModelSettings
from albert_tf.tasks.settings.race import RaceRunSettings, RaceSettings
from albert_tf.tasks.settings.squad import SquadRunSettings, SquadSettings
from albert_tf.tasks.settings.tagging import TaggingSettings
from albert_tf.train.settings import DistributionSettings

_MODEL_SETTINGS = (ModelSettings, DistributionSettings)


class FineTuning:
    """Base class of the commands that fine-tune.

    Attributes:
        task_type: a task type in `registry.FINE_TUNED`. It selects the class that
            trains this task type and similar ones.
        SETTINGS: the settings classes of the task, the run, the model and the devices.
    """

    task_type: ClassVar[str]
    SETTINGS: ClassVar[tuple[type, ...]]

    @classmethod
    def main(
        cls,
        task_settings: Any,
        run_settings: Any,
        model: ModelSettings,
        devices: DistributionSettings,
    ) -> None:
        """Trains, evaluates, predicts and exports, as the settings say.

        The arguments are objects of the classes in `SETTINGS`, in their order.
        """
        task_settings.check(run_settings)

        from albert_tf.train import ensembles

        task_class = registry.find_task_class(cls.task_type)
        assert task_class is not None
        ensembles.fine_tune(task_class, task_settings, run_settings, model, devices)


class Classify(FineTuning):
    r"""Fine-tunes ALBERT on a task of GLUE or on your own table of texts.

        python run_classifier.py --task_name=mrpc --data_dir=glue \
            --init_checkpoint=albert_base_v2 --output_dir=runs/mrpc \
            --do_train --do_eval --do_predict \
            --learning_rate=2e-5 --train_step=800 --warmup_step=200

    docs/fine_tuning.md explains the flags, your own tables and the output files.
    """

    task_type = "classification"
    SETTINGS = (ClassificationSettings, ClassifierRunSettings, *_MODEL_SETTINGS)


class Tag(FineTuning):
    r"""Fine-tunes ALBERT to label words with entities or with your own labels.

        python run_tagging.py --flagfile=recipes/conll2003.flags \
            --train_file=conll2003/train.txt --eval_file=conll2003/valid.txt \
            --predict_file=conll2003/test.txt \
            --init_checkpoint=albert_base_v2 --output_dir=runs/conll2003

    docs/tagging.md explains the data, the flags and the output files.
    """

    task_type = "token_classification"
    SETTINGS = (TaggingSettings, FineTuningSettings, *_MODEL_SETTINGS)


class Squad(FineTuning):
    r"""Fine-tunes ALBERT on SQuAD 1.1, SQuAD 2.0 or questions in the same format.

        python run_squad.py --train_file=train-v2.0.json \
            --predict_file=dev-v2.0.json --init_checkpoint=albert_base_v2 \
            --output_dir=runs/squad2 --do_train --do_predict \
            --learning_rate=3e-5 --train_batch_size=48

    docs/squad.md explains the flags, the no-answer threshold and the output files.
    """

    task_type = "question_answering"
    SETTINGS = (SquadSettings, SquadRunSettings, *_MODEL_SETTINGS)


class Race(FineTuning):
    r"""Fine-tunes ALBERT on RACE or on your own multiple-choice questions.

        python run_race.py --flagfile=recipes/race_v2.flags --data_dir=RACE \
            --init_checkpoint=albert_base_v2 --output_dir=runs/race

    docs/race.md explains the data, the flags, memory use and the output files.
    """

    task_type = "multiple_choice"
    SETTINGS = (RaceSettings, RaceRunSettings, *_MODEL_SETTINGS)


COMMANDS = {"classify": Classify, "tag": Tag, "squad": Squad, "race": Race}
