"""`Pretrainer`: pretraining from Python."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from albert_tf.errors import InputError
from albert_tf.estimators.base import Metrics, Trained, Values
from albert_tf.tasks.settings.pretraining import PretrainingSettings
from albert_tf.tasks.settings.training import TrainingSettings
from albert_tf.train import pretrain
from albert_tf.train.settings import DistributionSettings
from albert_tf.weights import metadata

Paths = str | Path | Sequence[str | Path]


class Pretrainer(Trained):
    """Pretrains ALBERT on records, with the settings of `run_pretraining.py`.

        corpus.generate(
            corpus.CorpusSettings(
                input_file=("text/*.txt",),
                output_file=("records/train.tfrecord",),
                spm_model_file="vocab/30k.model",
            )
        )
        pretrainer = Pretrainer("albert_small", learning_rate=4e-4, batch_size=256)
        pretrainer.fit(
            "records/train.tfrecord", output_dir="runs/small", num_train_steps=10_000
        )
        FillMask("runs/small").predict("The [MASK] is here.")

    All other estimators take the folder of the run as their `model`.

    Args:
        model: the sizes of the model: a name that `AlbertConfig.named` takes, or the
            path of an `albert_config.json`. The initial weights are random, unless the
            setting `init_checkpoint` names others.
        **settings: values of the settings that `setting_names` lists.
    """

    settings_classes = (PretrainingSettings, TrainingSettings, DistributionSettings)
    reserved: ClassVar[tuple[str, ...]] = ("output_dir", "do_train", "do_eval")
    reserved += ("albert_config_file", "input_file", "eval_input_file")

    @classmethod
    def from_pretrained(cls, model: str | Path, **settings: Any) -> Self:
        """Opens weights to continue their pretraining.

        Args:
            model: the name of a released model, such as "albert_base_v2", or a folder
                with `albert_config.json`, such as the folder of a run.
            **settings: see the class.

        Raises:
            InputError: there is no such setting.
        """
        config = Path(model) / metadata.CONFIG
        size = config if config.exists() else model
        return cls(size, init_checkpoint=str(model), **settings)

    def fit(
        self,
        records: Paths,
        *,
        output_dir: str | Path,
        validation: Paths | None = None,
        verbose: bool = True,
        **settings: Any,
    ) -> Self:
        """Pretrains as the script does.

        Args:
            records: TFRecord files or patterns of `create_pretraining_data.py`.
            output_dir: folder of the run. A second call with the same folder resumes
                the run.
            validation: TFRecord files or patterns to evaluate on.
            verbose: whether to log progress, not only warnings. A notebook shows a
                table and curves.
            **settings: see the class; they override the constructor's settings in this
                call.

        Raises:
            InputError: records, settings and model do not fit together, or see the
                script.
        """
        values: dict[str, Any] = {"input_file": records, "output_dir": output_dir}
        if validation is not None:
            values |= {"do_eval": True, "eval_input_file": validation}
        self.metrics_ = self._pretrain(settings, values, verbose)
        self.folder_ = Path(output_dir)
        return self

    def evaluate(self, records: Paths, **settings: Any) -> Metrics:
        """Returns the metrics of the best checkpoint on other records.

        The checkpoint is from the run of `fit`; without `fit`, it is `init_checkpoint`.

        Args:
            records: TFRecord files or patterns.
            **settings: see the class; they are valid only for this call.

        Raises:
            InputError: there are no weights yet, or records and model do not fit.
        """
        checkpoint = getattr(self, "folder_", self._settings.get("init_checkpoint"))
        if checkpoint is None:
            raise InputError(f"{type(self).__name__}: not trained; call fit() first")
        with tempfile.TemporaryDirectory(prefix="albert_tf-") as folder:
            values = {"do_train": False, "do_eval": True, "output_dir": folder}
            values |= {"input_file": records, "init_checkpoint": checkpoint}
            return self._pretrain(settings, values, verbose=False)

    def _pretrain(self, settings: Values, values: Values, verbose: bool) -> Metrics:
        """Runs the script; returns its metrics.

        Args:
            settings: the user's settings for this call.
            values: {flag: value} for the flags in `reserved`, which the methods set.
            verbose: see `fit`.
        """
        if self.model is None:
            raise InputError("Pretrainer: no model; pass the name of a size")
        flags = self._to_flags(settings) | {**values, "albert_config_file": self.model}
        return self._run(pretrain.pretrain, flags, verbose)
