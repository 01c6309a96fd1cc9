"""What each settings class refuses, a line a mistake."""

import dataclasses

import pytest
from helpers import refusal

from albert_tf import flags
from albert_tf.corpus.config import CorpusSettings
from albert_tf.corpus.vocabulary import VocabularySettings
from albert_tf.serve.settings import ConversionSettings
from albert_tf.tasks.settings.classification import (
    ClassificationSettings,
    ClassifierRunSettings,
)
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings
from albert_tf.tasks.settings.pipeline import PipelineSettings
from albert_tf.tasks.settings.pretraining import PretrainingSettings
from albert_tf.tasks.settings.squad import SquadSettings
from albert_tf.tasks.settings.training import TrainingSettings
from albert_tf.train.settings import DistributionSettings

NAN, INF = float("nan"), float("inf")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ranges(flags.Settings):
    """One field for each kind of check.

    Args:
        count: Count.
        share: Share.
        rate: Rate.
        bounded: Bounded.
        small: Small.
        on: On.
        off: Off.
        names: Names.
    """

    count: int | None = flags.field(None, at_least=1, excludes=("rate",))
    share: float = flags.field(0.5, above=0, at_most=1, requires=("on", "off"))
    rate: float = flags.field(1.0, above=0)
    bounded: int = flags.field(2, at_most=7)
    small: float = flags.field(0.0, below=1)
    on: bool = flags.field(False)
    off: bool = flags.field(False, excludes=("on",))
    names: tuple[str, ...] = flags.field((), requires=("on",))
    inner: tuple = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Narrower(Ranges):
    """Other ranges.

    Args:
        rate: Rate of it.
    """

    count: int | None = flags.field(5)
    rate: float = flags.field(0.1, below=1)


FILES = {"input_file": ("x",), "output_file": ("y",)}
CORPUS = {**FILES, "vocab_file": "v"}
CONVERSION = {"input": "a", "output": "b", "output_format": "tf1"}
PRETRAINING = {"albert_config_file": "c", "input_file": ("x",)}
RUN = {"output_dir": "run", "do_train": True, "do_eval": True}
VOCABULARY = {"input_file": ("x",), "model_prefix": "v/30k"}
NOTHING = "must be given"
TWICE = (
    "--output_file: {} would be written twice; it is given twice, or is this run's "
    "own description (.json) or held-out file (.eval)"
)

# By class, and what is given in any case: (what is given, the message).
REFUSED = {
    (Ranges, ()): [
        ({"count": 0}, "--count=0: must be at least 1"),
        ({"share": 0.0}, "--share=0.0: must be above 0 and at most 1"),
        ({"share": NAN}, "--share=nan: must be finite and above 0 and at most 1"),
        ({"rate": 0}, "--rate=0: must be above 0"),
        ({"rate": INF}, "--rate=inf: must be finite and above 0"),
        ({"bounded": 8}, "--bounded=8: must be at most 7"),
        ({"small": 1.0}, "--small=1.0: must be below 1"),
        ({"count": 3, "rate": 2.0}, "--count=3 and --rate=2.0: give one of them"),
        ({"on": True, "off": True}, "--off and --on: give one of them"),
        ({"share": 0.25}, "--share=0.25: requires --on or --off"),
        ({"names": ("a", "b")}, "--names=a,b: requires --on"),
    ],
    (Narrower, ()): [
        ({"count": 0}, "--count=0: must be at least 1"),
        ({"rate": 1.0}, "--rate=1.0: must be above 0 and below 1"),
        ({"count": 3, "rate": 0.2}, "--count=3 and --rate=0.2: give one of them"),
    ],
    (TrainingSettings, (("output_dir", "run"),)): [
        ({"do_train": False}, f"--do_train or --do_eval {NOTHING}"),
        (
            {"output_dir": "gs://bucket/run"},
            "--output_dir=gs://bucket/run: must be a folder of this machine's file "
            "systems; mount a bucket to write there",
        ),
    ],
    (FineTuningSettings, tuple(RUN.items())): [
        (
            {"do_train": False, "do_eval": False},
            f"--do_train or --do_eval or --do_predict or --export_dir {NOTHING}",
        ),
        (
            {"num_runs": 3, "do_eval": False},
            "--num_runs=3: requires --do_train and --do_eval, to compare the runs",
        ),
    ],
    (ClassifierRunSettings, tuple(RUN.items())): [
        (
            {"threshold_to_export": 0.3},
            "--threshold_to_export=0.3: must be in [0, 1], and requires --export_dir",
        )
    ],
    (ClassificationSettings, ()): [
        (
            {"text_columns": ("a", "b", "c")},
            "--text_columns=a,b,c: must be one or two columns",
        ),
        (
            {"text_columns": ("a", "label")},
            "--text_columns, --label_column, --index_column: 'label' is given twice",
        ),
        (
            {"kind": "regression", "labels": ("a", "b")},
            "--labels=a,b: regression has no labels",
        ),
        ({"labels": ("a", "b", "a")}, "--labels=a,b,a: a label is given twice"),
        ({"label_separator": ""}, "--label_separator: must not be empty"),
    ],
    (PretrainingSettings, tuple(PRETRAINING.items())): [
        ({"ngram": 2}, "--ngram=2: requires --dynamic_masking")
    ],
    (DistributionSettings, ()): [
        ({"cpu_devices": 2}, "--cpu_devices=2: requires --distribution=mirrored")
    ],
    (CorpusSettings, tuple(CORPUS.items())): [
        (
            {"mask_replace_prob": 0.95},
            "--mask_replace_prob=0.95 and --random_replace_prob=0.1: expected a sum of "
            "at most 1",
        ),
        ({"output_file": ("",)}, "--output_file: expected at least one file, got none"),
        ({"output_file": ("y", "y")}, TWICE.format("y")),
        ({"output_file": ("y", "./y")}, TWICE.format("y")),
        ({"output_file": ("a", "a.json")}, TWICE.format("a.json")),
        (
            {"output_file": ("a", "b@2", "a.eval"), "eval_fraction": 0.1},
            TWICE.format("a.eval"),
        ),
        (
            {"output_file": ("a", "a.eval.json"), "eval_fraction": 0.1},
            TWICE.format("a.eval.json"),
        ),
        (
            {"output_file": ("y@0",)},
            "--output_file=y@0: expected 1 to 99999 files after the @",
        ),
        (
            {"objective": "none", "random_next_sentence": True},
            "--random_next_sentence and --objective=none: give one",
        ),
    ],
    (VocabularySettings, tuple(VOCABULARY.items())): [
        (
            {"model_prefix": "v/"},
            "--model_prefix=v/: expected the start of the files' names, such as v/30k, "
            "not a folder",
        ),
        (
            {"user_defined_symbols": ("<URL>",)},
            "--user_defined_symbols: '<URL>' never occurs in text that the tokenizer "
            "has cleaned; expected '<url>'",
        ),
    ],
    (PipelineSettings, ()): [
        (
            {"pooling": "pooled", "layer": 2},
            "--layer=2: requires --pooling=mean or first; the pooler's output "
            "is of the last layer",
        )
    ],
    (ConversionSettings, tuple(CONVERSION.items())): [
        (
            {name: value, "output": "x.onnx"},
            f"--{name} with --output='x.onnx': only for an output folder, because a "
            f"file has no vocabulary",
        )
        for name, value in {
            **{"spm_model_file": "x", "vocab_file": "x"},
            **{"do_lower_case": False, "keep_accents": False},
        }.items()
    ]
    + [
        (
            {"precision": "int8"},
            "--precision=int8: only for --output_format=litert or onnx",
        )
    ],
}


@pytest.mark.parametrize(
    ("settings", "values", "message"),
    [
        pytest.param(
            settings, {**dict(always), **changes}, message, id=settings.__name__
        )
        for (settings, always), rows in REFUSED.items()
        for changes, message in rows
    ],
)
def test_a_mistake_is_named(settings, values, message):
    assert refusal(settings, **values) == message


@pytest.mark.parametrize(
    ("settings", "run", "message"),
    [
        (
            SquadSettings(predict_file="x"),
            {"do_train": True},
            "--do_train: requires --train_file",
        ),
        (
            SquadSettings(),
            {"do_predict": True},
            "--do_predict: requires --predict_file",
        ),
        (
            SquadSettings(fit_threshold=True),
            {"export_dir": "x"},
            "--fit_threshold: requires --do_eval or --do_predict",
        ),
        (
            ClassificationSettings(task_name="rte", kind="regression"),
            {"export_dir": "x"},
            "--kind: requires --task_name=custom; got rte",
        ),
    ],
)
def test_what_a_run_lacks_is_named(settings, run, message):
    run = FineTuningSettings(output_dir="run", **run)
    assert refusal(settings.check, run) == message


@pytest.mark.parametrize(
    "values",
    [
        {"count": 1, "share": 1.0, "on": True, "bounded": -(10**9), "small": -0.5},
        {"off": True, "share": 0.1, "inner": (1,)},
    ],
)
def test_values_within_their_bounds_pass(values):
    settings = Ranges(**values)
    assert {name: getattr(settings, name) for name in values} == values


def test_not_a_number_stands_for_no_threshold():
    settings = ClassifierRunSettings(**RUN, threshold_to_export=NAN)
    assert settings.threshold is None


def test_a_setting_has_a_description():
    with pytest.raises(TypeError, match=r"^Silent must describe size under Args:$"):

        class Silent(flags.Settings):
            """Nothing.

            Args:
                sizes: Another one.
            """

            size: int = flags.field(3)
