"""The base of all estimators: settings, `fit`, answers, `save` and `export`."""

import abc
import contextlib
import difflib
import functools
import inspect
import io
import os
import pickle
import random
import re
import shutil
import signal
import sys
import tempfile
import types
import typing
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import keras
import numpy as np
from sklearn.base import BaseEstimator

from albert_tf import errors, flags, weights
from albert_tf.data import files
from albert_tf.data.stopping import Stopped
from albert_tf.errors import InputError
from albert_tf.estimators import notebooks, rows
from albert_tf.serve import convert, predict
from albert_tf.serve.predict import Ensemble, Predictor
from albert_tf.serve.settings import ConversionSettings
from albert_tf.tasks.base import FineTuningTask
from albert_tf.tasks.settings.answer import AnswerSettings
from albert_tf.tasks.settings.base import matches_type, type_name
from albert_tf.tasks.settings.fine_tuning import FILES, FLAGS, ModelSettings
from albert_tf.tasks.settings.training import TrainingSettings
from albert_tf.train import curves, ensembles, run_file
from albert_tf.train.settings import DistributionSettings
from albert_tf.weights import checkpoints, metadata, released
from albert_tf.weights.folder import ModelFolder
from albert_tf.weights.settings import ModelFileSettings

# Settings that only training uses.
_TRAINING_ONLY = (
    *("num_runs", "export_dir", "threshold_to_export", "early_stopping"),
    *("wandb", "mlflow"),
)
# Attributes that `fit` sets. `_fitted` has the settings of that call, and `_temporary`
# says whether the folder of the run is temporary.
_FITTED_ATTRIBUTES = ("folder_", "metrics_", "members_", "_fitted", "_temporary")


class Model(BaseEstimator, abc.ABC):
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
        estimator = cls(model, **settings)
        _ = ModelFolder(model).source  # raises an error if there are no weights
        return estimator

    @classmethod
    @abc.abstractmethod
    def setting_names(cls) -> list[str]:
        """Lists the settings that the class takes."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Returns `model` and the settings, for scikit-learn."""
        return {"model": self.model, **self._settings}

    def set_params(self, **params: Any) -> Self:
        """Changes settings, for scikit-learn; a new `model` discards results of `fit`.

        Raises:
            InputError: there is no such setting.
        """
        self._check({k: v for k, v in params.items() if k != "model"})
        if "model" in params:
            self.model = params.pop("model")
            for name in _FITTED_ATTRIBUTES:
                self.__dict__.pop(name, None)
        self._settings = {**self._settings, **params}
        self._predictors.clear()
        return self

    def _check(self, settings: Mapping[str, Any]) -> None:
        self._check_names(settings, self.setting_names(), "setting")

    def _check_names(self, given: Iterable[str], names: Sequence[str], what: str):
        """Raises InputError for a given name that is none of `names`.

        Args:
            given: names from the user.
            names: all valid names.
            what: the kind of the names, for the message.
        """
        for name in given:
            if name not in names:
                expected = difflib.get_close_matches(name, names, 1) or names
                raise InputError(
                    f"{type(self).__name__}: no {what} {name!r}; expected "
                    f"{' or '.join(expected)}"
                )

    def _load_predictor(
        self, path: str | Path | Sequence[str], options: Mapping[str, Any]
    ) -> Any:
        """Opens a model for raw text, and caches it by its path and options."""
        option_names = [field.name for field in flags.fields(AnswerSettings)]
        self._check_names(options, option_names, "option")
        key = repr((path, sorted(options.items())))
        if key not in self._predictors:
            with _preserve_global_state():
                has_one_model = isinstance(path, str | Path)
                load: Any = predict.load if has_one_model else predict.load_ensemble
                self._predictors[key] = load(
                    path,
                    _build_settings(AnswerSettings, options),
                    files=_build_settings(ModelFileSettings, self._settings),
                )
        return self._predictors[key]

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state to pickle, without opened models.

        Raises:
            pickle.PicklingError: the run is in a temporary folder.
        """
        if getattr(self, "_temporary", None):
            raise pickle.PicklingError(
                f"{type(self).__name__}: fitted in a temporary folder; use "
                f"fit(output_dir=...), or save(folder) and load(folder)"
            )
        return {**super().__getstate__(), "_predictors": {}}


@contextlib.contextmanager
def _preserve_global_state() -> Iterator[None]:
    """Begins with Keras's policy float32; restores it and random numbers at the end."""
    old_policy = keras.config.dtype_policy()
    python_state, numpy_state = random.getstate(), np.random.get_state()
    keras.config.set_dtype_policy("float32")
    try:
        yield
    finally:
        keras.config.set_dtype_policy(old_policy)
        random.setstate(python_state)
        np.random.set_state(numpy_state)


def _build_settings(settings_class: type, values: Mapping[str, Any]) -> Any:
    """Builds settings from a user's values; ignores values without a field.

    Raises:
        InputError: a value has another type than its field.
    """
    converted = {}
    for name, hint in typing.get_type_hints(settings_class).items():
        if name not in values:
            continue
        value = rows.to_json_value(values[name])
        # In the form of flags, a dict is a list of key=value, and one text is a list.
        if isinstance(value, dict):
            value = [f"{key}={item}" for key, item in value.items()]
        elif isinstance(value, str) and typing.get_origin(hint) is tuple:
            value = [value]
        if value is not None and not matches_type(value, hint):
            raise InputError(f"{name}={errors.quote(value)}: must be {type_name(hint)}")
        converted[name] = tuple(value) if isinstance(value, list) else value
    return settings_class(**converted)


class _Warnings(io.TextIOBase):
    """A log that prints only the warnings."""

    def write(self, text: str) -> int:
        for line in text.splitlines():
            if line.startswith("Warning"):
                print(line, file=sys.stderr)
        return len(text)


class Trained(Model):
    """A model that `fit` trains as a script does.

    Settings have the names of the script's flags.

    Attributes:
        folder_: folder of the run, after `fit`.
        metrics_: metrics of the best evaluation; without evaluation, of the last steps.
        history_: the lines of `metrics.jsonl`, a dict each.
    """

    run_settings: ClassVar[type[TrainingSettings]]
    # Short names of settings, with the names of their flags.
    aliases: ClassVar[Mapping[str, str]] = {"batch_size": "train_batch_size"}
    # Flags that are no settings: the methods set them.
    reserved: ClassVar[frozenset[str]] = frozenset()
    # Settings that are no flags, with their defaults.
    extra_settings: ClassVar[Mapping[str, Any]] = {}
    # Defaults that differ from those of the script.
    defaults: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Lists the settings in the signature of `fit`, for `help` and editors."""
        super().__init_subclass__(**arguments)
        if not hasattr(cls, "run_settings"):
            return  # a base class
        plain_fit: Any = inspect.unwrap(cls.fit)

        @functools.wraps(plain_fit)
        def fit(self, *values, **settings):
            return plain_fit(self, *values, **settings)

        groups = cls._settings_classes()
        default_of = {f.name: f.default for g in groups for f in flags.fields(g)}
        default_of |= {**cls.extra_settings, **cls.defaults}
        signature = inspect.signature(plain_fit)
        parameters = [p for p in signature.parameters.values() if p.name != "settings"]
        for name in cls.setting_names():
            default = default_of.get(cls.aliases.get(name, name))
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(name, kind, default=default))
        vars(fit)["__signature__"] = signature.replace(parameters=parameters)
        cls.fit = fit

    @classmethod
    @abc.abstractmethod
    def _settings_classes(cls) -> tuple[type, ...]:
        """Returns the classes of the script's settings."""

    @classmethod
    def setting_names(cls) -> list[str]:
        """Lists the settings that `fit` takes."""
        groups = cls._settings_classes()
        names = {field.name for group in groups for field in flags.fields(group)}
        names |= cls.aliases.keys() | cls.extra_settings.keys()
        return sorted(names - cls.reserved)

    @property
    @abc.abstractmethod
    def folder(self) -> Path:
        """The folder of the trained model."""

    @property
    def history_(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`."""
        return list(curves.entries(self.folder / "metrics.jsonl"))

    def _to_flags(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values of settings under the names of their flags.

        Raises:
            InputError: a flag is given under two names.
        """
        for name, flag in self.aliases.items():
            if name in values and flag in values:
                raise InputError(f"{name} and {flag}: give one of them")
        return {self.aliases.get(name, name): value for name, value in values.items()}

    def _run(self, train: Callable, given: Mapping[str, Any], verbose: bool) -> Any:
        """Builds the script's settings, and runs `train` with them and a log.

        Args:
            train: the function that trains.
            given: values of flags, by name.
            verbose: whether to log progress, not only warnings.

        Returns:
            The result of `train`, the metrics.

        Raises:
            InputError: several workers should train, or see `_build_settings`.
        """
        has_workers = given.get("distribution") == "multi_worker"
        if has_workers or "TF_CONFIG" in os.environ:
            raise InputError(
                f"{type(self).__name__}: runs in one process; use the script "
                f"where several workers train (TF_CONFIG, distribution=multi_worker)"
            )
        settings = [_build_settings(group, given) for group in self._settings_classes()]
        log: Any = sys.stderr if verbose else _Warnings()
        if verbose and notebooks.is_running():
            log = notebooks.Progress(Path(given["output_dir"]))
        try:
            with _preserve_global_state():
                metrics = train(*settings, log)
        except Stopped as stop:
            # A notebook or a shell goes on after a KeyboardInterrupt.
            if stop.signal is signal.SIGINT:
                raise KeyboardInterrupt from None
            raise
        if isinstance(log, notebooks.Progress):
            log.show()
        return metrics


class FineTuned(Trained):
    """A model that is fine-tuned with `fit`.

    `epochs` is `num_train_epochs` and `batch_size` is `train_batch_size`. By default
    `fit` trains three epochs, warms up for a tenth of the steps and evaluates after
    each epoch. All other defaults are those of the script.
    """

    family: ClassVar[type[FineTuningTask]]
    # Task types of the models that it opens; if empty, all types of the family.
    task_types: ClassVar[tuple[str, ...]] = ()
    # The columns of a table; the last one has the labels.
    columns: ClassVar[tuple[str, ...]]
    # The flags for the files of train, dev and test.
    files: ClassVar[Mapping[str, str]] = FILES
    # The columns whose values are lists.
    lists: ClassVar[tuple[str, ...]] = ()
    # The folders of the models of an ensemble; empty for one model.
    members_: tuple[str, ...] = ()
    # Settings that `task.json` stores, with their keys in it.
    saved_settings: ClassVar[Mapping[str, str]] = {}
    aliases = types.MappingProxyType(
        {**Trained.aliases, "epochs": "num_train_epochs", "classes": "labels"}
    )
    reserved = frozenset(
        [
            *("output_dir", "init_checkpoint", "albert_hub_module_handle"),
            *("do_train", "do_eval", "do_predict", "data_dir", "checkpoint"),
            *("train_file", "dev_file", "test_file", "eval_file", "predict_file"),
            *("task_name", "text_columns", "labels", "ensemble", "ensemble_search"),
        ]
    )
    defaults = types.MappingProxyType(
        {
            "num_train_epochs": 3.0,
            "warmup_proportion": 0.1,
            "eval_every_epochs": 1.0,
        }
    )

    @classmethod
    def load(cls, folder: str | Path | Sequence[str | Path], **settings: Any) -> Self:
        """Opens a fine-tuned model, or an ensemble of several.

        Args:
            folder: folder of `save` or of a run. A list of folders or of patterns, such
                as "runs/mrpc/run-*", is an ensemble: it answers with the mean of its
                models, of which one is in memory at a time. `sklearn.base.clone` copies
                only its first model.
            **settings: see the class.

        Raises:
            InputError: there is no such model, or the models of an ensemble do not fit
                together.
        """
        if isinstance(folder, str | Path):
            members = [str(folder)]
        else:
            members = metadata.find_members(list(map(str, folder)), "load")
        model = cls.from_pretrained(members[0], **settings)
        _ = model.folder  # raises an error if the model is not fine-tuned
        if len(members) > 1:
            model.members_ = tuple(members)
        return model

    @classmethod
    def _settings_classes(cls) -> tuple[type, ...]:
        run_classes = (cls.run_settings, ModelSettings, DistributionSettings)
        return cls.family.settings_class, *run_classes

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
            train: the training data, see the class.
            labels: the labels of `train`, if it has none.
            validation: the evaluation data in the form of `train`, or a tuple of that
                data and its labels. With it, the weights of the best evaluation are
                kept.
            output_dir: folder of the run, which a second call resumes. The default is a
                temporary folder, removed with the estimator.
            verbose: whether to log progress, not only warnings. A notebook shows a
                table and curves.
            **settings: for this call, see the class.

        Raises:
            InputError: data, settings and model do not fit together; see the script.
        """
        self._check(settings)
        values = {**self._settings, **settings}
        self._temporary = output_dir is None
        if output_dir is None:
            output_dir = tempfile.mkdtemp(prefix="albert_tf-")
            weakref.finalize(self, shutil.rmtree, output_dir, ignore_errors=True)
        folder = Path(output_dir)
        with files.lock_folder(folder):
            splits = {"train": (train, labels)}
            if validation is not None:
                is_pair = isinstance(validation, tuple) and len(validation) == 2
                splits["dev"] = validation if is_pair else (validation, None)
            flag_values = self._build_flags(values, splits, folder)
            self.metrics_ = self._fine_tune(flag_values, verbose)
        self.folder_, self.members_ = folder, ()
        self.metrics_.pop("step", None)
        self._fitted = settings
        self._predictors.clear()
        return self

    def evaluate(
        self, data: Any, labels: Any = None, **settings: Any
    ) -> dict[str, float]:
        """Returns the metrics of a table with labels.

        Args:
            data: see `fit`.
            labels: the labels of `data`, if it has none.
            **settings: for this call, see the class.

        Raises:
            InputError: the model is not fine-tuned, or the data does not fit it.
        """
        self._check(settings)
        values = {**self._values, **settings}
        splits = {"dev": (data, labels)}
        with tempfile.TemporaryDirectory(prefix="albert_tf-") as folder:
            flag_values = self._build_flags(values, splits, Path(folder))
            flag_values["ensemble"] = self.members_ or None
            return self._fine_tune(flag_values, verbose=False)

    def __call__(self, data: Any, **options: Any) -> list[dict[str, Any]]:
        """Answers raw texts as `predict.py` does, a dict for each row.

        Args:
            data: see `predict`.
            **options: see `AnswerSettings`.

        Raises:
            InputError: the model is not fine-tuned, or see `Predictor`.
        """
        return list(self.predictor(**options)(self._rows(data)))

    def predictor(self, **options: Any) -> Predictor | Ensemble:
        """Opens the model for raw texts; for the options see `AnswerSettings`."""
        return self._load_predictor(self.members_ or self.folder, options)

    def save(self, folder: str | Path) -> None:
        """Writes the model to a folder that `load` and the scripts open.

        Args:
            folder: receives a TF1 checkpoint with the released names of variables, the
                configuration, the vocabulary and `task.json`. An earlier `save` is
                replaced.

        Raises:
            InputError: the folder cannot be written, or holds a run or other weights.
        """
        folder = Path(folder)
        # Runs have `task.json`, too.
        is_saved = (folder / metadata.TASK).exists() and not (
            (folder / run_file.NAME).exists()
        )
        if any(folder.glob("*.index")) and not is_saved:
            raise InputError(
                f"{folder}: has a run or other weights; use another folder"
            )
        self._check_no_ensemble()
        predictor = self._load_predictor(self.folder, {})
        metadata.write(folder, predictor.pipeline.tokenizer, predictor.task)
        weights.save(predictor.model, folder, "tf1")

    def export(
        self,
        path: str | Path,
        format: Literal["saved_model", "hf", "keras", "onnx", "litert"] = "saved_model",
    ) -> Path:
        """Writes the model for other programs, as `convert_checkpoint.py` does.

        Args:
            path: a folder; for onnx and litert also a `.onnx` or `.tflite` file, which
                takes ids; for keras also a `.keras` file.
            format: saved_model takes raw text, hf is for `transformers`, keras is for
                `keras.models.load_model`. A folder of onnx or litert answers texts
                without TensorFlow (`predict.load`, `predict.py`).

        Returns:
            The folder or file.

        Raises:
            InputError: an unknown format, or the path cannot be written.
        """
        self._check_no_ensemble()
        path = Path(path)
        if format == "saved_model":
            self._load_predictor(self.folder, {}).export(path)
            return path
        if format == "keras" and path.suffix != ".keras":
            path = path / "albert_model.keras"
            path.parent.mkdir(parents=True, exist_ok=True)
        given = {"input": self.folder, "output": path, "output_format": format}
        with _preserve_global_state():
            convert.convert(_build_settings(ConversionSettings, given))
        return path

    def _check_no_ensemble(self) -> None:
        if self.members_:
            raise InputError(
                f"{type(self).__name__}: an ensemble has no weights of its own; load "
                f"one of {', '.join(self.members_)}"
            )

    @property
    def folder(self) -> Path:
        """The folder of the fine-tuned model.

        Raises:
            InputError: the model is not fine-tuned, or is fine-tuned for another task.
        """
        folder = getattr(self, "folder_", self.model)
        kind = None if folder is None else ModelFolder(folder).task.get("kind")
        task_types = self.task_types or self.family.task_types
        if folder is None or kind not in task_types:
            what = f"fine-tuned for {kind}" if kind else "not fine-tuned"
            raise InputError(
                f"{folder}: {what}; {type(self).__name__} expects a model for "
                f"{' or '.join(task_types)}, or fit() first"
            )
        return Path(folder)

    def __sklearn_is_fitted__(self) -> bool:
        """Whether the estimator can predict; the check downloads nothing."""
        # A released name is a pretrained model, which `folder` would download.
        if not hasattr(self, "folder_") and released.is_name(self.model or ""):
            return False
        try:
            return bool(self.folder)
        except InputError:
            return False

    @property
    def _values(self) -> dict[str, Any]:
        """The settings of `task.json`, the constructor and `fit`; the last one wins."""
        task = ModelFolder(self.folder).task
        saved = {
            k: task[key] for k, key in self.saved_settings.items() if task.get(key)
        }
        return {**saved, **self._settings, **getattr(self, "_fitted", {})}

    def _build_flags(
        self, values: Mapping[str, Any], splits: Mapping[str, Any], folder: Path
    ) -> dict[str, Any]:
        """Returns the values of the flags of a run, by name.

        Args:
            values: values of settings, by name.
            splits: data and labels under "train", "dev" and "test".
            folder: the run's folder; data that is no file is written there.
        """
        ignored = {*self.extra_settings, *(() if "train" in splits else _TRAINING_ONLY)}
        result = self._to_flags({k: v for k, v in values.items() if k not in ignored})
        fields = {field.name: field for field in flags.fields(self.run_settings)}
        # The user's value of a flag prevents the defaults that exclude that flag.
        for name, value in self.defaults.items():
            excluded = fields[name].metadata.get("excludes", ())
            if not any(result.get(other) is not None for other in excluded):
                result.setdefault(name, value)
        if splits.keys() != {"train", "dev"}:
            result.pop("eval_every_epochs", None)
        for split, (data, labels) in splits.items():
            result |= self._prepare_split(
                split, data, labels, {**self.extra_settings, **values}, folder
            )
        if result.get("labels"):
            result["labels"] = [rows.label_to_text(label) for label in result["labels"]]
        result |= {flag: split in splits for split, flag in FLAGS.items()}
        start = self.model if "train" in splits else self.folder
        result["init_checkpoint"] = None if start is None else str(start)
        return {**result, "output_dir": str(folder)}

    def _read_examples(self, path: str | Path) -> Any:
        """Reads the examples of a file to predict, as the script does."""
        values = self._build_flags(self._values, {"test": (path, None)}, self.folder)
        task, run = (
            _build_settings(group, values) for group in self._settings_classes()[:2]
        )
        stored = type(task).from_stored(ModelFolder(self.folder).task, self.folder)
        _, splits = self.family.read_examples(task, stored, run, lambda line: None)
        return splits["test"][0].examples

    def _fine_tune(self, given: Mapping[str, Any], verbose: bool) -> dict[str, float]:
        """Runs the script with the given values of flags; returns the metrics."""
        try:
            train = functools.partial(ensembles.run, self.family)
            return self._run(train, given, verbose)
        except InputError as mistake:
            # The message names the file of `_write_rows`; the user only knows the row.
            folder = re.escape(given["output_dir"])
            pattern = rf"{folder}.(train|dev)_rows\.jsonl"
            text = re.sub(rf"{pattern}:(\d+)", r"\1, row \2", str(mistake))
            mistake.args = (re.sub(pattern, r"\1", text),)
            raise

    def _prepare_split(
        self, split: str, data: Any, labels: Any, values: Mapping, folder: Path
    ) -> dict[str, Any]:
        """Returns the flags of a split; writes data that is no file to a file.

        Args:
            split: "train", "dev" or "test".
            data: the user's data.
            labels: the user's labels, or None.
            values: the user's settings and the defaults of `extra_settings`.
            folder: the folder for the file.
        """
        if labels is not None or not rows.is_path(data):
            columns, lists = self._columns(values)
            table = rows.read(data, columns, split, lists, labels=labels)
            data = self._write_rows(table, split, folder)
        return {self.files[split]: str(data)}

    def _columns(self, values: Mapping) -> tuple[Sequence[str], Sequence[str]]:
        """Returns the columns of a table, and the columns whose values are lists."""
        return self.columns, self.lists

    def _write_rows(self, table: list[rows.Row], split: str, folder: Path) -> str:
        """Writes rows to the run's folder, in the task's format; returns the path.

        Raises:
            InputError: the file cannot be written, or the folder's run has other rows.
        """
        path = folder / f"{split}_rows.jsonl"
        content = self._format_rows(table, split).encode("utf-8", "surrogatepass")
        has_begun = split == "train" and path.is_file() and checkpoints.steps(folder)
        if has_begun and path.read_bytes() != content:
            raise InputError(
                f"{path}: the run has other rows than those given now; use the "
                f"same, or another output_dir"
            )
        files.write(path, content)
        return str(path)

    def _format_rows(self, table: list[rows.Row], split: str) -> str:
        """Returns rows as the text of a file of the task."""
        return rows.to_json_lines(table, split)

    def _rows(self, data: Any) -> list[dict[str, Any]]:
        """Returns the rows of a file or table in the form that `Predictor` takes."""
        if rows.is_file(data):
            return self._to_rows(self._read_examples(data))
        return self._read([data] if isinstance(data, str) else data)

    @abc.abstractmethod
    def _to_rows(self, examples: Any) -> list[dict[str, Any]]:
        """Returns the examples of a file as rows for `Predictor`."""

    def _read(self, data: Any) -> list[dict[str, Any]]:
        """Returns the rows of a table without the column of labels."""
        return rows.read(data, self.columns[:-1], name="the rows", lists=self.lists)
