"""Base classes of the estimators: settings, `fit`, predictions, `save` and `export`.

Predictions on raw text are dicts, which this package also calls answers.

An underscore at the end of an attribute means, as in scikit-learn, that `fit` or `load`
sets the attribute.
"""

import contextlib
import difflib
import functools
import inspect
import io
import json
import os
import pickle
import random
import shutil
import signal
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_origin, get_type_hints

import keras
import numpy as np
from sklearn.base import BaseEstimator

from albert_tf import errors, flags, weights
from albert_tf.data import files
from albert_tf.data.stopping import Stopped
from albert_tf.errors import InputError
from albert_tf.estimators import notebooks, rows
from albert_tf.serve import convert, predict
from albert_tf.serve.settings import ConversionSettings
from albert_tf.tasks.base import FineTuningTask
from albert_tf.tasks.settings.base import matches_type, type_name
from albert_tf.tasks.settings.fine_tuning import FILES, FLAGS, ModelSettings
from albert_tf.tasks.settings.pipeline import PipelineSettings
from albert_tf.train import curves, ensembles, run_file
from albert_tf.train.settings import DistributionSettings
from albert_tf.weights import checkpoints, metadata
from albert_tf.weights.folder import ModelFolder
from albert_tf.weights.settings import ModelFileSettings

# Values of settings or flags, by name.
Values = Mapping[str, Any]
Metrics = dict[str, float]

# The settings classes that all fine-tuned estimators share.
COMMON_SETTINGS = (ModelSettings, DistributionSettings)
# {short name of a setting: its flag}.
ALIASES = {"batch_size": "train_batch_size", "epochs": "num_train_epochs"}
ALIASES |= {"classes": "labels", "text": "text_columns", "label": "label_column"}
ExportFormat = Literal["saved_model", "hf", "keras", "onnx", "litert"]
# {setting that an evaluation does not use: None}.
_UNUSED = dict.fromkeys(("export_dir", "threshold_to_export", "wandb", "mlflow"))
# The flags in `FineTuned.defaults` count epochs or a fraction of the run. The flags
# below, in the same order, count steps instead. If the user sets one of them, the
# default of its counterpart is not used.
_FLAGS_IN_STEPS = ("num_train_steps", "num_warmup_steps", "eval_every_steps")


class Model(BaseEstimator):
    """A model and its settings. The model is opened when it is first used.

    Args:
        model: path or name of weights, in any format that `weights.load` takes.
        **settings: values of the settings that `setting_names` lists.

    Raises:
        InputError: there is no such setting.
    """

    # The settings classes. In estimators with `fit`, these are the script's classes:
    # first the task's, then the training's, then others.
    settings_classes: ClassVar[tuple[Any, ...]] = ()
    # Flags that the methods set. They are not settings of the estimator.
    reserved: ClassVar[Sequence[str]] = ()
    # {flag: a default that differs from the default of the script}.
    defaults: ClassVar[Values] = {}

    def __init__(self, model: str | Path | None = None, **settings: Any):
        self._check_names(settings, self.setting_names())
        self.model = model
        self._settings = settings
        # {arguments of `predict.load`: its result}.
        self._predictors: dict[Any, Any] = {}

    @classmethod
    def from_pretrained(cls, model: str | Path, **settings: Any) -> Self:
        """Opens a model.

        Args:
            model: the folder of a run, of a released checkpoint, of Hugging Face, of a
                KerasHub preset or of a TF-Hub module; a file of weights; or a name to
                download, such as "albert_base_v2".
            **settings: see the class.

        Raises:
            InputError: there are no weights, or no such setting.
        """
        estimator = cls(model, **settings)
        _ = ModelFolder(model).source  # raises an error if there are no weights
        return estimator

    @classmethod
    def default_settings(cls) -> dict[str, Any]:
        """Returns the settings that the class takes, with their defaults.

        A setting with a short name in `ALIASES` is present under both names.
        """
        items = [item for group in cls.settings_classes for item in flags.fields(group)]
        values = {item.name: item.default for item in items} | {**cls.defaults}
        values |= {key: values[flag] for key, flag in ALIASES.items() if flag in values}
        return {name: values[name] for name in sorted(values.keys() - {*cls.reserved})}

    @classmethod
    def setting_names(cls) -> list[str]:
        """Returns the names of the settings that the class takes."""
        return list(cls.default_settings())

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Returns `model` and the settings, for scikit-learn; ignores `deep`."""
        return {"model": self.model, **self._settings}

    def set_params(self, **params: Any) -> Self:
        """Changes `model` or settings, for scikit-learn.

        A new `model` discards the results of `fit`.

        Raises:
            InputError: there is no such setting.
        """
        changed = type(self)(**{**self.get_params(), **params})
        if "model" in params:
            self.__dict__.clear()  # also the attributes that `fit` has set
        self.__dict__.update(changed.__dict__)
        return self

    def _check_names(self, names: Iterable[str], valid: Sequence[str]) -> None:
        """Raises InputError for a name of a setting that is not in `valid`."""
        class_name = type(self).__name__
        for name in set(names).difference(valid):
            expected = " or ".join(difflib.get_close_matches(name, valid, 1) or valid)
            raise InputError(f"{class_name}: no setting {name!r}; expected {expected}")

    def _load_predictor(self, path: str | Path | tuple, options: Values) -> Any:
        """Opens and caches a model for raw text.

        Args:
            path: the path of the model, or a tuple of the paths of an ensemble.
            options: values of `PipelineSettings`, by name.
        """
        arguments = path, _build_settings(PipelineSettings, options)
        if arguments not in self._predictors:
            is_ensemble = isinstance(path, tuple)
            load: Any = predict.load_ensemble if is_ensemble else predict.load
            model_files = _build_settings(ModelFileSettings, self._settings)
            with _preserve_global_state():
                self._predictors[arguments] = load(*arguments, files=model_files)
        return self._predictors[arguments]

    def _read(self, data: Any, fields: Values, choices: Any = ()) -> list[rows.Row]:
        """Converts a text or a table to the rows that `Predictor` takes.

        Args:
            data: one text, or a table as `rows.read` takes it.
            fields: {key of a row: True for a list, False for a text, None for an
                optional text}, see `Predictor.fields`.
            choices: lists of columns. The first list whose columns the table has is
                used. The names of the fields are the last choice.
        """
        data = [data] if isinstance(data, str) else data
        lists = [name for name, is_list in fields.items() if is_list]
        table = rows.read(data, [*choices, tuple(fields)], "texts", lists)
        # The columns are in the order of the fields. The last fields may be missing.
        return [dict(zip(fields, row.values(), strict=False)) for row in table]

    def __getstate__(self) -> dict[str, Any]:
        """Returns the attributes to pickle, without the opened models.

        Raises:
            pickle.PicklingError: the folder of the run is temporary.
        """
        if getattr(self, "_is_temporary", None):
            raise pickle.PicklingError(
                f"{type(self).__name__}: fitted in a temporary folder; use "
                f"fit(output_dir=...), or save(folder) and load(folder)"
            )
        return {**super().__getstate__(), "_predictors": {}}


@contextlib.contextmanager
def _preserve_global_state() -> Iterator[None]:
    """Preserves the dtype policy and the random states of the user's program.

    The block begins with Keras's dtype policy float32, so the user's policy does not
    affect the model. After the block, the user's policy and the random states of Python
    and NumPy are restored.
    """
    old_policy = keras.config.dtype_policy()
    python_state, numpy_state = random.getstate(), np.random.get_state()
    keras.config.set_dtype_policy("float32")
    try:
        yield
    finally:
        keras.config.set_dtype_policy(old_policy)
        random.setstate(python_state)
        np.random.set_state(numpy_state)


def _build_settings(settings_class: type, values: Values) -> Any:
    """Builds a settings object from the values that a user passes in Python.

    Args:
        settings_class: the class of the object.
        values: values by name; names that are not a field of the class are ignored.

    Raises:
        InputError: a value does not have the type of its field.
    """
    converted = {}
    for name, hint in get_type_hints(settings_class).items():
        if name not in values:
            continue
        value = values[name]
        # No field is a dict, so a dict becomes a list of "key=value". For a field that
        # is a list, a single text or path is also valid.
        if isinstance(value, Mapping):
            value = [f"{rows.label_to_text(k)}={item}" for k, item in value.items()]
        elif rows.is_path(value) and get_origin(hint) is tuple:
            value = [value]
        with errors.wrap_read(name, type_name(hint)):
            value = rows.to_json_value(value)
        if value is not None and not matches_type(value, hint):
            raise InputError(f"{name}={errors.quote(value)}: must be {type_name(hint)}")
        converted[name] = tuple(value) if isinstance(value, list) else value
    return settings_class(**converted)


class _Warnings(io.TextIOBase):
    """A log that prints only warnings, to stderr, and drops other lines."""

    def write(self, text: str) -> int:
        if text.startswith("Warning"):
            print(text, file=sys.stderr)
        return len(text)


class Trained(Model):
    """A model that `fit` trains as a script does. Settings are the script's flags.

    Attributes:
        folder_: folder of the run, after `fit`.
        metrics_: metrics of the best evaluation; without evaluation, of the last steps.
        history_: the lines of `metrics.jsonl`, each as a dict.
    """

    folder_: Path

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Adds the settings to the signature of `fit`, for `help` and editors."""
        super().__init_subclass__(**arguments)
        # In a class that inherits `fit`, `cls.fit` is the wrapper of the base class.
        # `unwrap` returns the function inside.
        plain_fit: Any = inspect.unwrap(cls.fit)

        @functools.wraps(plain_fit)
        def fit(self, *values, **settings):
            return plain_fit(self, *values, **settings)

        signature = inspect.signature(plain_fit)
        *parameters, _ = signature.parameters.values()  # without **settings
        for name, default in cls.default_settings().items():
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(name, kind, default=default))
        vars(fit)["__signature__"] = signature.replace(parameters=parameters)
        cls.fit = fit

    @property
    def history_(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`, each as a dict."""
        return list(curves.entries(self.folder_ / curves.NAME))

    def _to_flags(self, settings: Values) -> dict[str, Any]:
        """Returns {flag: value} for all settings.

        Args:
            settings: settings of this call. They override the settings of `fit`, which
                override the settings of the constructor.

        Raises:
            InputError: there is no such setting, or a setting is given under two names.
        """
        self._check_names(settings, self.setting_names())
        values = {**self._settings, **getattr(self, "_fit_settings", {}), **settings}
        for name, flag in ALIASES.items():
            if name in values and flag in values:
                raise InputError(f"{name} and {flag}: give one of them")
        return {ALIASES.get(name, name): value for name, value in values.items()}

    def _run(self, script: Callable, values: Values, verbose: bool) -> Metrics:
        """Builds the script's settings, and runs the script.

        Args:
            script: the function of the script. It takes an object of each settings
                class, and a log, and returns metrics.
            values: {flag: value}.
            verbose: whether to log progress, not only warnings.

        Returns:
            The metrics of the script, without the step.

        Raises:
            InputError: several workers should train, or see `_build_settings`.
        """
        if values.get("distribution") == "multi_worker" or "TF_CONFIG" in os.environ:
            raise InputError(
                f"{type(self).__name__}: runs in one process; use the script "
                f"where several workers train (TF_CONFIG, distribution=multi_worker)"
            )
        settings = [_build_settings(group, values) for group in self.settings_classes]
        log: Any = sys.stderr if verbose else _Warnings()
        if verbose and notebooks.is_running():
            log = notebooks.Progress(Path(values["output_dir"]))
        try:
            with _preserve_global_state():
                metrics = script(*settings, log)
        except Stopped as stop:
            # `Stopped` is a SystemExit and would end a Python shell. After a
            # KeyboardInterrupt, a shell or a notebook continues.
            if stop.signal is signal.SIGINT:
                raise KeyboardInterrupt from None
            raise
        if isinstance(log, notebooks.Progress):
            log.show()
        return {name: value for name, value in metrics.items() if name != "step"}


class FineTuned(Trained):
    """A model that is fine-tuned with `fit`.

    The setting `epochs` is the flag `num_train_epochs`, and `batch_size` is
    `train_batch_size`. By default, `fit` trains three epochs, warms up for a tenth of
    the steps and evaluates after each epoch. All other defaults are those of the
    script.
    """

    # The class of the task.
    family: ClassVar[type[FineTuningTask]]
    # The types of task whose models the class opens; () means all types of `family`.
    task_types: ClassVar[tuple[str, ...]] = ()
    # The columns of a table with labels; the last one has the labels.
    columns: ClassVar[tuple[str, ...]]
    # {split: the flag for its file}.
    files: ClassVar[Mapping[str, str]] = FILES
    # The columns whose values are lists.
    lists: ClassVar[tuple[str, ...]] = ()
    # Converts examples, as the task class reads them from a file, to rows for
    # `__call__`. A row is a tuple with a value for each field, or a text if there is
    # only one field.
    _to_inputs: Callable[[Any], list[Any]]
    # The folders of the models of an ensemble; empty for one model.
    members_: tuple[str, ...] = ()
    reserved: ClassVar[tuple[str, ...]] = (*FLAGS.values(), *FILES.values())
    reserved += ("output_dir", "init_checkpoint", "albert_hub_module_handle", "labels")
    reserved += ("checkpoint", "ensemble", "ensemble_search", "task_name", "data_dir")
    reserved += ("dev_file", "test_file")
    defaults: ClassVar[Values] = {
        "num_train_epochs": 3.0,
        "warmup_proportion": 0.1,
        "eval_every_epochs": 1.0,
    }

    @classmethod
    def load(cls, folder: str | Path | Sequence[str | Path], **settings: Any) -> Self:
        """Opens a fine-tuned model, or an ensemble of several.

        Args:
            folder: the folder that `save` or a run has written. A list of folders or of
                patterns, such as "runs/mrpc/run-*", is an ensemble. It decides its
                predictions from the mean scores of its models; only one model is in
                memory at a time. `sklearn.base.clone` copies only the first model of an
                ensemble.
            **settings: see the class.

        Raises:
            InputError: there is no such model, or the models of an ensemble do not fit
                together.
        """
        members: tuple[str, ...] = ()
        if not isinstance(folder, str | Path):
            members = tuple(metadata.find_members([*map(str, folder)], "load"))
            folder = members[0]
        model = cls.from_pretrained(folder, **settings)
        # One model is no ensemble: then `members_` is empty.
        model.folder_, model.members_ = model.folder, members[1:] and members
        return model

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
        """Fine-tunes as the script does.

        Args:
            train: the training data, see the class.
            labels: the labels, if `train` does not contain them.
            validation: the evaluation data in the form of `train`, or a tuple of that
                data and its labels. With evaluation data, the model gets the weights of
                the best evaluation.
            output_dir: folder of the run. A second call with the same folder resumes
                the run. By default, the folder is temporary and is removed with the
                estimator.
            verbose: whether to log progress, not only warnings. A notebook shows a
                table and curves.
            **settings: see the class; they override the constructor's settings in this
                call and in later calls of `evaluate`.

        Raises:
            InputError: data, settings and model do not fit together, or see the script.
        """
        self._fit_settings, self._is_temporary = dict[str, Any](), output_dir is None
        folder = Path(output_dir or tempfile.mkdtemp(prefix="albert_tf-"))
        if self._is_temporary:
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        with files.lock_folder(folder):
            splits = {"train": (train, labels)}
            if validation is not None:
                is_pair = isinstance(validation, tuple) and len(validation) == 2
                splits["dev"] = validation if is_pair else (validation, None)
            values = self._build_flags(settings, splits, folder)
            script = functools.partial(ensembles.fine_tune, self.family)
            self.metrics_ = self._run(script, values, verbose)
        self.folder_, self.members_, self._fit_settings = folder, (), settings
        self._predictors.clear()
        return self

    def evaluate(self, data: Any, labels: Any = None, **settings: Any) -> Metrics:
        """Evaluates the model on data with labels, and returns the metrics.

        Args:
            data: the data, in the form of `train` in `fit`.
            labels: the labels, if `data` does not contain them.
            **settings: see the class; they are valid only for this call.

        Raises:
            InputError: the model is not fine-tuned, or the data does not fit it.
        """
        with tempfile.TemporaryDirectory(prefix="albert_tf-") as folder:
            values = self._build_flags(settings, {"dev": (data, labels)}, folder)
            script = functools.partial(ensembles.fine_tune, self.family)
            return self._run(script, values, verbose=False)

    def __call__(self, data: Any, **options: Any) -> list[dict[str, Any]]:
        """Predicts on raw texts as `predict.py` does; returns a dict for each row.

        Args:
            data: the texts, see `predict`.
            **options: see `PipelineSettings`.

        Raises:
            InputError: the model is not fine-tuned, or see `Predictor`.
        """
        predictor = self.predictor(**options)
        data = self._read_file(data) if rows.is_file(data) else data
        return list(predictor(self._read(data, predictor.fields)))

    def predictor(self, **options: Any) -> predict.Predictor | predict.Ensemble:
        """Opens the model for raw texts; takes the options of `PipelineSettings`."""
        self._check_names(options, [f.name for f in flags.fields(PipelineSettings)])
        return self._load_predictor(self.members_ or self.folder, options)

    def save(self, folder: str | Path) -> None:
        """Writes the model to a folder that `load` and the scripts open.

        Args:
            folder: the folder for a TF1 checkpoint with the released names of
                variables, the configuration, the vocabulary and `task.json`. A model
                that `save` has written there is replaced.

        Raises:
            InputError: the folder cannot be written, or holds a run or other weights.
        """
        folder = Path(folder)
        # `save` and runs write `task.json`, but only runs also write `run.json`.
        is_run = (folder / run_file.NAME).exists()
        is_earlier_save = (folder / metadata.TASK).exists() and not is_run
        if any(folder.glob("*.index")) and not is_earlier_save:
            raise InputError(
                f"{folder}: has a run or other weights; use another folder"
            )
        self._check_no_ensemble()
        predictor = self._load_predictor(self.folder, {})
        metadata.write(folder, predictor.pipeline.tokenizer, predictor.task)
        weights.save(predictor.model, folder, "tf1")

    def export(self, path: str | Path, format: ExportFormat = "saved_model") -> Path:
        """Writes the model for other programs, as `convert_checkpoint.py` does.

        Args:
            path: the folder to write. For onnx and litert, it can instead be a `.onnx`
                or `.tflite` file, whose model takes token ids. For keras, it can be a
                `.keras` file.
            format: saved_model takes raw text, hf is for `transformers`, keras is for
                `keras.models.load_model`. With a folder of onnx or litert,
                `predict.load` and `predict.py` predict on texts without TensorFlow.

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
        values = {"input": self.folder, "output": path, "output_format": format}
        with _preserve_global_state():
            convert.convert(_build_settings(ConversionSettings, values))
        return path

    def _check_no_ensemble(self) -> None:
        """Checks that the estimator is one model, not an ensemble."""
        if self.members_:
            folders = ", ".join(self.members_)
            raise InputError(f"{folders}: an ensemble has no weights of its own")

    @property
    def folder(self) -> Path:
        """The folder of the fine-tuned model.

        Raises:
            InputError: the model is not fine-tuned, or is fine-tuned for another task.
        """
        folder: Any = getattr(self, "folder_", self.model)
        kind = ModelFolder(folder).task.get("kind")
        task_types = self.task_types or self.family.task_types
        if kind not in task_types:
            state = f"fine-tuned for {kind}" if kind else "not fine-tuned"
            raise InputError(
                f"{folder}: {state}; {type(self).__name__} expects a model for "
                f"{' or '.join(task_types)}, or fit() first"
            )
        return Path(folder)

    @property
    def _saved_settings(self) -> Any:
        """The settings of the task in the model's `task.json`."""
        task = ModelFolder(self.folder).task
        return self.settings_classes[0].from_stored(task, self.folder)

    def _build_flags(self, settings: Values, splits: Values, folder: Any) -> Values:
        """Returns {flag: value} for a run of the script.

        Args:
            settings: settings of this call, see `_to_flags`.
            splits: {split: (data, labels)}; a split is "train", "dev" or "test".
            folder: the run's folder. Data from memory is written to files in it.
        """
        values = self._to_flags(settings)
        if "train" in splits:
            init_checkpoint = self.model
            for flag_in_steps, name in zip(_FLAGS_IN_STEPS, self.defaults, strict=True):
                if values.get(flag_in_steps) is None:
                    values.setdefault(name, self.defaults[name])
        else:
            init_checkpoint = self.folder
            # The user's values override those that the model was trained with.
            saved = flags.values(self._saved_settings)
            values = {key: value for key, value in saved.items() if value} | values
            values |= {**_UNUSED, "num_runs": 1, "ensemble": self.members_ or None}
        if "dev" not in splits:
            values.pop("eval_every_epochs", None)
        # `FLAGS` has do_train, do_eval and do_predict, by split.
        values |= {flag: split in splits for split, flag in FLAGS.items()}
        values |= {"init_checkpoint": init_checkpoint, "output_dir": folder}
        for split, (data, labels) in splits.items():
            values |= self._prepare_split(split, data, labels, values)
        if values.get("labels"):
            values["labels"] = [*map(rows.label_to_text, values["labels"])]
        return values

    def _prepare_split(self, split: str, data: Any, labels: Any, values: Any) -> Values:
        """Returns {flag: value} for a split; writes data from memory to a file.

        Args:
            split: "train", "dev" or "test".
            data: the user's data.
            labels: the user's labels; None if `data` contains the labels, or if there
                are none.
            values: {flag: value} for the other flags of the run.
        """
        if labels is not None or not rows.is_path(data):
            columns, lists = self._find_columns(values)
            table = rows.read(data, [columns], split, lists, labels)
            data = self._write_rows(table, values["output_dir"], split)
        return {self.files[split]: data}

    def _find_columns(self, values: Values) -> tuple[Sequence[str], Sequence[str]]:
        """Returns all columns of a table, and the columns whose values are lists.

        Args:
            values: {flag: value}; flags may name the columns.
        """
        return self.columns, self.lists

    def _write_rows(self, table: list[rows.Row], folder: Any, split: str) -> Path:
        """Writes rows to the run's folder, in the task's format; returns the path.

        Raises:
            InputError: the file cannot be written, or an earlier run in the folder has
                trained on other rows.
        """
        path = Path(folder, f"{split}_rows.jsonl")
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in table)
        content = "".join(lines).encode("utf-8", "surrogatepass")
        has_begun = (
            split == "train" and path.is_file() and checkpoints.list_steps(path.parent)
        )
        if has_begun and path.read_bytes() != content:
            raise InputError(f"{path}: the run has other rows; use another output_dir")
        files.write(path, content)
        return path

    def _read_file(self, path: str | Path) -> list[Any]:
        """Reads a file as the script does; returns the rows for `__call__`."""
        values = self._build_flags({}, {"test": (path, None)}, self.folder)
        task, run, *_ = (_build_settings(c, values) for c in self.settings_classes)
        saved = self._saved_settings
        _, splits = self.family.read_examples(task, saved, run, lambda line: None)
        return self._to_inputs(splits["test"][0].examples)
