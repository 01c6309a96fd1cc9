"""What all estimators share: settings, `fit`, answers, `save` and `export`."""

import contextlib
import dataclasses
import difflib
import io
import shutil
import sys
import tempfile
import types
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import keras
from sklearn.base import BaseEstimator

from albert_tf import weights
from albert_tf.data import files
from albert_tf.errors import InputError
from albert_tf.estimators import rows
from albert_tf.serve import predict, runtimes
from albert_tf.serve.predict import Predictor
from albert_tf.tasks.base import FineTuningTask
from albert_tf.tasks.settings.answer import AnswerSettings
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings, ModelSettings
from albert_tf.train import curves, finetune, loop
from albert_tf.train.devices import DistributionSettings
from albert_tf.weights import metadata
from albert_tf.weights.folder import ModelFolder
from albert_tf.weights.settings import ModelFileSettings

# Shorter names of settings.
_SHORT = {"epochs": "num_train_epochs", "batch_size": "train_batch_size"}
# What `fit` sets itself.
_OWN = {
    *("output_dir", "init_checkpoint", "albert_hub_module_handle", "task_name"),
    *("do_train", "do_eval", "do_predict", "runtime", "data_dir", "checkpoint"),
    *("train_file", "dev_file", "test_file", "eval_file", "predict_file"),
}
# Of a training alone.
_OF_TRAINING = ("num_runs", "export_dir", "early_stopping", "eval_every_epochs")


class Model(BaseEstimator):
    """A model and its settings; opened when it is first used.

    Args:
        model: weights of any format that `weights.load` takes.
        **settings: see the class.

    Raises:
        InputError: there is no such setting.
    """

    def __init__(self, model: str | Path | None = None, **settings: Any):
        self.model = model
        self._settings = settings
        self._predictors: dict[Any, Predictor] = {}
        self._check(settings)

    @classmethod
    def from_pretrained(cls, model: str | Path, **settings: Any) -> Self:
        """Opens a model.

        Args:
            model: the folder of a run, of a released checkpoint, of Hugging Face, of a
                KerasHub preset or of a TF-Hub module; or a file of weights.
            **settings: see the class.

        Raises:
            InputError: there are no weights, or no such setting.
        """
        _ = ModelFolder(model).source
        return cls(model, **settings)

    @classmethod
    def setting_names(cls) -> list[str]:
        """Lists the settings that the class takes."""
        raise NotImplementedError

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Returns the settings, as scikit-learn asks for them."""
        return {"model": self.model, **self._settings}

    def set_params(self, **params: Any) -> Self:
        """Changes settings, as scikit-learn does.

        Raises:
            InputError: there is no such setting.
        """
        self._check({k: v for k, v in params.items() if k != "model"})
        self.model = params.pop("model", self.model)
        self._settings = {**self._settings, **params}
        self._predictors.clear()
        return self

    def _check(self, settings: Mapping[str, Any]) -> None:
        names = self.setting_names()
        for name in settings:
            if name not in names:
                near = difflib.get_close_matches(name, names, 1)
                hint = f"did you mean {near[0]}?" if near else "see the class"
                raise InputError(
                    f"{type(self).__name__}: no setting {name!r}; "
                    f"{hint if near else 'expected one of ' + ', '.join(names)}"
                )

    def _predictor(self, path: str | Path, options: Mapping[str, Any]) -> Predictor:
        """Opens a model for raw text, once for the same options."""
        named = dataclasses.fields(ModelFileSettings)
        given = {f.name: self._settings.get(f.name) for f in named}
        key = (str(path), *sorted(options.items()))
        if key not in self._predictors:
            with _in_float32():
                self._predictors[key] = predict.load(
                    path, AnswerSettings(**options), files=ModelFileSettings(**given)
                )
        return self._predictors[key]


@contextlib.contextmanager
def _in_float32() -> Iterator[None]:
    """Builds a model as `predict.py` does, whatever the precision of a training was."""
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float32")
    try:
        yield
    finally:
        keras.config.set_dtype_policy(policy)


class FineTuned(Model):
    """A model that is fine-tuned with `fit`.

    Settings are named as the flags of its script, with `epochs` for `num_train_epochs`
    and `batch_size` for `train_batch_size`. `fit` trains three epochs with a warm-up of
    a tenth, and evaluates after each, where nothing else is set; all other defaults are
    the script's.

    Attributes:
        folder_: the folder of the run, once it is fitted.
        metrics_: of the best evaluation; of the last steps without validation.
        history_: what `metrics.jsonl` holds, a dict for each line of progress.
    """

    family: ClassVar[type[FineTuningTask]]
    run_settings: ClassVar[type[FineTuningSettings]]
    # The columns of a table, that of the labels last; and the flags of its splits.
    columns: ClassVar[tuple[str, ...]]
    files: ClassVar[Mapping[str, str]] = types.MappingProxyType(
        {"train": "train_file", "dev": "eval_file"}
    )
    # Settings that are no flags, with their defaults.
    own: ClassVar[Mapping[str, Any]] = {}
    defaults: ClassVar[Mapping[str, Any]] = {
        "num_train_epochs": 3.0,
        "warmup_proportion": 0.1,
        "eval_every_epochs": 1.0,
    }

    @classmethod
    def load(cls, folder: str | Path, **settings: Any) -> Self:
        """Opens a fine-tuned model.

        Args:
            folder: of `save`, or of a run.
            **settings: see the class.

        Raises:
            InputError: there is no such model.
        """
        model = cls.from_pretrained(folder, **settings)
        _ = model.folder
        return model

    @classmethod
    def setting_names(cls) -> list[str]:
        """Lists the settings that `fit` takes."""
        fields = (field for group in cls._groups() for field in _flags(group))
        names = {field.name for field in fields}
        return sorted((names - _OWN) | _SHORT.keys() | cls.own.keys())

    @classmethod
    def _groups(cls) -> tuple[type, ...]:
        """The settings classes of its script."""
        return (
            cls.family.settings_class,
            cls.run_settings,
            ModelSettings,
            DistributionSettings,
        )

    def fit(
        self,
        train: Any,
        labels: Any = None,
        *,
        validation: Any = None,
        output_dir: str | Path | None = None,
        verbose: bool = True,
        **settings: Any,
    ) -> Self:
        """Fine-tunes as the script does; a run that was killed resumes.

        Args:
            train: what to train on, see the class.
            labels: of `train`, where they do not stand in it.
            validation: what to evaluate on, in the same form, or a tuple of it and its
                labels; the best weights are kept.
            output_dir: the folder of the run; by default one that is removed with the
                estimator.
            verbose: whether to log progress.
            **settings: for this call, see the class.

        Raises:
            InputError: data, settings and model do not fit; see the script.
        """
        self._check(settings)
        values = {**self._settings, **settings}
        if output_dir is None:
            output_dir = tempfile.mkdtemp(prefix="albert_tf-")
            weakref.finalize(self, shutil.rmtree, output_dir, ignore_errors=True)
        folder = Path(output_dir)
        with files.locked(folder):
            flags = self._flags(values, {"train": (train, labels)}, folder)
            if validation is not None:
                dev = validation if _is_pair(validation, labels) else (validation, None)
                flags |= self._flags(values, {"dev": dev}, folder)
            else:
                flags.pop("eval_every_epochs", None)
            flags["do_train"], flags["do_eval"] = True, validation is not None
            flags["output_dir"] = str(folder)
            flags["init_checkpoint"] = None if self.model is None else str(self.model)
            outcome = self._run(flags, verbose)
        self.folder_ = folder
        self.metrics_ = {**(outcome.best or outcome.metrics)}
        self.metrics_.pop(loop.FINGERPRINT, None)
        self._fitted = values
        self._predictors.clear()
        return self

    def evaluate(
        self, data: Any, labels: Any = None, **settings: Any
    ) -> dict[str, float]:
        """Returns the metrics of a table with labels.

        Args:
            data: as for `fit`.
            labels: of `data`, where they do not stand in it.
            **settings: for this call, see the class.

        Raises:
            InputError: the model is not fine-tuned, or the data does not fit it.
        """
        self._check(settings)
        values = {**self._values, **settings}
        values = {k: v for k, v in values.items() if k not in _OF_TRAINING}
        with tempfile.TemporaryDirectory(prefix="albert_tf-") as folder:
            flags = self._flags(values, {"dev": (data, labels)}, Path(folder))
            flags.pop("eval_every_epochs")
            more = {"init_checkpoint": str(self.folder), "output_dir": folder}
            outcome = self._run({**flags, **more, "do_eval": True}, False)
        return dict(outcome.metrics)

    def __call__(self, data: Any, **options: Any) -> list[dict[str, Any]]:
        """Answers raw texts as `predict.py` does, a dict for each row.

        Args:
            data: see `predict`.
            **options: see `AnswerSettings`.

        Raises:
            InputError: the model is not fine-tuned, or see `Predictor`.
        """
        return list(self.predictor(**options)(self._rows(data)))

    def predictor(self, **options: Any) -> Predictor:
        """Returns what answers raw texts, see `AnswerSettings` for the options."""
        return self._predictor(self.folder, options)

    def save(self, folder: str | Path) -> None:
        """Writes the model to a folder that `load`, the scripts and others' code open.

        Args:
            folder: gets a TF1 checkpoint with the released names, the configuration,
                the vocabulary and `task.json`.

        Raises:
            InputError: the folder cannot be written.
        """
        opened, model = ModelFolder(self.folder), self._model
        weights.save(model, folder, "tf1")
        metadata.write_task(Path(folder), opened.tokenizer, opened.task)

    def export(
        self,
        path: str | Path,
        format: Literal["saved_model", "hf", "keras", "onnx", "litert"] = "saved_model",
    ) -> Path:
        """Writes the model for other programs.

        Args:
            path: a folder; of the last three formats a file, or the folder for it.
            format: saved_model takes raw text, hf is for `transformers`, keras for
                `keras.models.load_model`; onnx and litert take ids.

        Returns:
            The folder or file.

        Raises:
            InputError: an unknown format, or the path cannot be written.
        """
        path, model = Path(path), self._model
        if format == "saved_model":
            self.predictor().service.save(path)
            return path
        if format == "hf":
            opened = ModelFolder(self.folder)
            tokenizer, task = opened.tokenizer, opened.task
            return weights.save(model, path, "hf", tokenizer=tokenizer, task=task)
        suffixes = {"keras": ".keras", **runtimes.SUFFIXES}
        if format not in suffixes:
            raise InputError(
                f"format={format!r}: expected one of saved_model, hf, "
                f"{', '.join(suffixes)}"
            )
        if path.suffix != suffixes[format]:
            path = path / f"albert_model{suffixes[format]}"
            path.parent.mkdir(parents=True, exist_ok=True)
        if format == "keras":
            return weights.save(model, path, "keras")
        return runtimes.save(model, path, format)

    @property
    def folder(self) -> Path:
        """The folder of the fine-tuned model.

        Raises:
            InputError: it is not fine-tuned, or for something else.
        """
        folder = getattr(self, "folder_", self.model)
        kind = None if folder is None else ModelFolder(folder).task.get("kind")
        if folder is None or kind not in self.family.kinds:
            what = f"fine-tuned for {kind}" if kind else "not fine-tuned"
            raise InputError(
                f"{folder}: {what}; {type(self).__name__} expects a model for "
                f"{' or '.join(self.family.kinds)}, or fit() first"
            )
        return Path(folder)

    @property
    def history_(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`."""
        return list(curves.entries(self.folder / "metrics.jsonl"))

    def __sklearn_is_fitted__(self) -> bool:
        """Whether it can predict."""
        try:
            return bool(self.folder)
        except InputError:
            return False

    @property
    def _values(self) -> dict[str, Any]:
        """The settings, those of `fit` too."""
        return {**getattr(self, "_fitted", {}), **self._settings}

    @property
    def _model(self) -> keras.Model:
        return self.predictor().service.answer.model

    def _flags(
        self, values: Mapping[str, Any], splits: Mapping[str, Any], folder: Path
    ) -> dict[str, Any]:
        """Returns settings by the names of flags, with the files of splits."""
        flags = {
            _SHORT.get(name, name): tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
            if name not in self.own
        }
        every = {f.name: f for f in _flags(self.run_settings)}
        for name, value in self.defaults.items():
            others = every[name].metadata.get("instead_of", ())
            if not any(flags.get(other) is not None for other in others):
                flags.setdefault(name, value)
        for split, (data, labels) in splits.items():
            flags |= self._write(split, data, labels, {**self.own, **values}, folder)
        return flags

    def _run(self, flags: Mapping[str, Any], verbose: bool) -> Any:
        made = []
        for group in self._groups():
            names = {field.name for field in _flags(group)}
            made.append(group(**{k: v for k, v in flags.items() if k in names}))
        task, run, model, devices = made
        task.check(run)
        log = sys.stderr if verbose else io.StringIO()
        return finetune.run(self.family, task, run, model, devices, log)

    def _write(
        self, split: str, data: Any, labels: Any, values: Mapping, folder: Path
    ) -> dict[str, Any]:
        """Returns the flags of a split, whose rows it writes unless they are a file.

        Args:
            split: "train" or "dev".
            data: as the user gave it.
            labels: likewise.
            values: settings of the class.
            folder: for files.
        """
        if labels is not None:
            table = rows.read(data, self.columns[:-1], split)
            data = rows.beside(table, self.columns[-1], labels, split)
        if not rows.is_path(data):
            table = rows.read(data, self.columns, split)
            data = self._store(table, folder / f"{split}_rows")
        return {self.files[split]: str(data)}

    def _store(self, table: list[rows.Row], path: Path) -> str:
        """Writes rows in the format of the task; returns the file's name."""
        return rows.write(path.with_suffix(".jsonl"), table)

    def _rows(self, data: Any) -> list[dict[str, Any]]:
        """Returns rows for `Predictor`."""
        return rows.read(data, self.columns[:-1], "the rows")


def _flags(settings: type) -> list[dataclasses.Field]:
    """Returns the fields of a settings class that are flags."""
    return [f for f in dataclasses.fields(settings) if "help" in f.metadata]


def _is_pair(validation: Any, labels: Any) -> bool:
    """Whether validation is a tuple of data and labels."""
    return isinstance(validation, tuple) and len(validation) == 2
