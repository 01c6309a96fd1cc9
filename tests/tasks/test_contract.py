"""What every family of tasks does, whatever it asks: each test is of all of them."""

import dataclasses
import json
import re
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import slow_except

from albert_tf import AlbertConfig, InputError, weights
from albert_tf.serve import predict
from albert_tf.tasks import base, registry
from albert_tf.tasks.classification import Classification
from albert_tf.tasks.race.task import MultipleChoice
from albert_tf.tasks.settings.classification import ClassifierRunSettings
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings, ModelSettings
from albert_tf.tasks.settings.squad import SquadRunSettings
from albert_tf.tasks.squad.task import QuestionAnswering
from albert_tf.tasks.tagging.task import Tagging
from albert_tf.train import loop
from albert_tf.weights import metadata

WORDS = ["file", "list", "string", "object", "name"]
# Of all three splits, and of the batches: no multiple of each other.
ROWS, BATCH = 7, 4


def write(folder, rows, *splits):
    """Writes rows as the file of several flags."""
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {f"{split}_file": str(path) for split in splits}


def texts(kind, label):
    def flags(folder):
        rows = [
            {"text": " ".join(WORDS[: n % 4 + 1]), "label": label(n)}
            for n in range(ROWS)
        ]
        files = write(folder, rows, "train", "dev", "test")
        return {"task_name": "custom", "kind": kind, "max_seq_length": 9, **files}

    return flags


def choices(folder):
    row = {"question": "a _ is", "options": WORDS[:3]}
    rows = [
        {**row, "article": " ".join(WORDS[n % 4 :]), "answer": n % 3}
        for n in range(ROWS)
    ]
    files = write(folder, rows, "train", "eval", "predict")
    return {"max_seq_length": 17, "max_qa_length": 7, **files}


def spans(version):
    def flags(folder):
        context, asked = " ".join(WORDS), []
        for n, word in enumerate(WORDS):
            answer = {"text": word, "answer_start": context.find(word)}
            asked.append({"question": f"is {n} a {word}", "answers": [answer]})
        if version == "2.0":
            asked.append({"question": "is none", "answers": [], "is_impossible": True})
        asked = [{"id": str(n), **one} for n, one in enumerate(asked)]
        paragraphs = [{"context": context, "qas": asked}]
        path = folder / "squad.json"
        data = {"version": version, "data": [{"paragraphs": paragraphs}]}
        path.write_text(json.dumps(data))
        lengths = {"max_seq_length": 23, "doc_stride": 3, "max_query_length": 11}
        return {"train_file": str(path), "predict_file": str(path), **lengths}

    return flags


def tags(folder):
    rows = [
        {"tokens": WORDS[: n % 4 + 1], "tags": ["x", "yy", "z", "x"][: n % 4 + 1]}
        for n in range(ROWS)
    ]
    return {"max_seq_length": 5, **write(folder, rows, "train", "eval", "predict")}


ASKED = {"question": "is 1 a list", "context": "file list"}
CHOICE = {"article": "a list", "question": "it is", "options": ["file", "name"]}
LABELS = {
    "classification": lambda n: "yes" if n % 2 else "no",
    "multi_label": lambda n: ["a", "b"][: n % 3],
    "regression": lambda n: n / 2,
}
RUN_SETTINGS = {
    Classification: ClassifierRunSettings,
    QuestionAnswering: SquadRunSettings,
}
# By name: the family, its flags and files, and a row to ask with its fields.
CASES = {
    kind: (Classification, texts(kind, label), "a file")
    for kind, label in LABELS.items()
}
CASES |= {
    "multiple_choice": (MultipleChoice, choices, CHOICE),
    "token_classification": (Tagging, tags, "a file, a list"),
    "squad 1.1": (QuestionAnswering, spans("1.1"), ASKED),
    "squad 2.0": (QuestionAnswering, spans("2.0"), ASKED),
}

# One kind of each family.
FAMILIES = ("classification", "multiple_choice", "token_classification", "squad 2.0")
# The kinds whose runs are killed. Only question answering stores more than weights.
KILLED = slow_except(("squad 2.0",), ("classification", "squad 2.0"))
# The kinds whose runs also export. tests/serve/test_service.py loads SavedModels of the
# other kinds, and of several labels per text instead of one.
EXPORTED = ("regression", "squad 1.1", "squad 2.0")
ENSEMBLES = slow_except(("classification",), FAMILIES)

pytestmark = pytest.mark.usefixtures("eagerly")


def settings_class(family):
    return registry.find_pipeline_class(family.task_types[0]).settings_class


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory, new_model):
    """A family with small files of its own."""

    @dataclasses.dataclass
    class Case:
        kind: str
        family: type[base.FineTuningTask]
        flags: dict
        row: object
        model: ModelSettings
        folder: Path

        def run_settings(self, folder, **flags):
            kind = RUN_SETTINGS.get(self.family, FineTuningSettings)
            fields = {"train_batch_size": BATCH, "num_train_steps": 3, "log_steps": 1}
            fields |= {"output_dir": str(folder), "save_checkpoints_steps": 1}
            return kind(**{**fields, **flags})

    family, flags, row = CASES[request.param]
    folder = tmp_path_factory.mktemp("case")
    model = new_model(hidden_dropout_prob=0.1)
    return Case(request.param, family, flags(folder), row, model, folder)


WORK = {"do_train": True, "do_eval": True, "do_predict": True}


@pytest.fixture(scope="module")
def read(case, tokenizer):
    """Returns the task, its encoded splits and a model."""
    run = case.run_settings(case.folder / "run", **WORK)
    settings = settings_class(case.family)(**case.flags)
    settings, splits = case.family.read_examples(settings, None, run, print)
    config = AlbertConfig.from_json_file(case.model.albert_config_file)
    settings = settings.with_defaults(None, config.max_position_embeddings)
    task = case.family(settings, config, tokenizer)
    encoded = {
        use: [task.encode_split(s) for s in parts] for use, parts in splits.items()
    }
    task.set_splits(encoded)
    keras.utils.set_random_seed(5)
    return task, encoded, task.build_model()


@pytest.fixture
def fit(case, tmp_path, fine_tune):
    def call(name="run", **flags):
        run = case.run_settings(tmp_path / name, **flags)
        fields = dataclasses.fields(run)
        given = {f.name: getattr(run, f.name) for f in fields if f.init}
        log = fine_tune(case.family, type(run), {**case.flags, **given}, case.model)
        return tmp_path / name, log

    return call


@pytest.fixture
def whole(case, fit):
    """The folder of a run that did all work: one run for all tests of a family."""
    folder = case.folder / "whole"
    if not folder.exists():
        served = str(case.folder / "served") if case.kind in EXPORTED else None
        fit(folder, **WORK, export_dir=served)
    return folder


def test_every_family_is_tried():
    kinds = {kind for family, _, _ in CASES.values() for kind in family.task_types}
    assert kinds == registry.FINE_TUNED.keys()


def test_examples_are_read_and_encoded_the_same_each_time(read):
    task, splits, _ = read
    assert {"train", "dev", "test"} <= splits.keys()
    for split in splits["train"]:
        assert len(split.features) > BATCH
        one, two = task.encode(split), task.encode(split)
        assert one.keys() == two.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], two[name])
        assert json.loads(json.dumps(task.cache_key(split))) == task.cache_key(split)
        assert task.summary(split)
        assert task.settings.cache_file(split.name).endswith(".npz")


@pytest.mark.parametrize("case", slow_except(FAMILIES, CASES), indirect=True)
def test_the_loss_of_one_batch_falls(read):
    task, _, model = read
    rows = np.arange(BATCH)
    length = task.settings.max_seq_length
    batch = task.training.make_batch(rows, length)

    def step():
        with tf.GradientTape() as tape:
            outputs = task.run_model(model, batch, training=False)
            loss = task.compute_loss(
                task.loss_sums(outputs, batch), task.loss_weights(batch)
            )
        variables = model.trainable_variables
        gradients = tape.gradient(loss, [v.value for v in variables])
        for gradient, variable in zip(gradients, variables, strict=True):
            if gradient is not None:  # no loss of spans reads the pooler
                variable.assign_sub(0.02 * tf.sign(gradient))
        return float(loss)

    first = step()
    assert any(step() < 0.9 * first for _ in range(11))


def test_predictions_become_answers_metrics_and_files(read):
    task, splits, model = read
    split = splits["test"][-1]

    def predictions(split):
        rows = np.arange(len(split.features))
        source = task.dataset([split], with_labels=False)
        batch = source.make_batch(rows, task.settings.max_seq_length)
        outputs = task.run_model(model, batch, training=False)
        kept = task.prediction_outputs(outputs, batch)
        arrays = {k: keras.ops.convert_to_numpy(v) for k, v in kept.items()}
        return ({k: value[row] for k, value in arrays.items()} for row in rows)

    answers = task.postprocess(split, predictions(split))
    files = task.prediction_files(split, answers)
    assert files and all(isinstance(f, str | bytes) and f for f in files.values())
    [judged] = splits["dev"]
    answers = task.postprocess(judged, predictions(judged))
    metrics = task.compute_metrics(judged, answers)
    assert task.key_metric in metrics
    assert all(isinstance(value, int | float) for value in metrics.values())
    scores = task.evaluate_predictions(predictions(judged), {"loss": 0.25})
    assert scores == {**metrics, "eval_loss": 0.25}


def restore(task, stored, location="task.json"):
    settings = settings_class(type(task)).from_stored(stored, location)
    settings = settings.with_defaults(None, task.config.max_position_embeddings)
    return type(task)(settings, task.config, task.tokenizer)


def test_what_is_stored_makes_the_same_task(read):
    task, _, model = read
    stored = json.loads(json.dumps(task.description))
    assert registry.find_task_class(stored["kind"]) is type(task)
    again = restore(task, stored)
    assert json.loads(json.dumps(again.description)) == stored
    shapes = [w.shape for w in model.weights]
    assert [w.shape for w in again.build_model().weights] == shapes


WRONG = [[], {}, "x", -3, True, float("nan")]


def test_stored_values_of_other_types_are_refused(read):
    task, _, _ = read
    stored = json.loads(json.dumps(task.description))
    for key in stored.keys() - {"kind", "task"}:
        refused = 0
        for value in WRONG:
            try:
                restore(task, {**stored, key: value}, "t")
            except InputError as mistake:
                refused += 1
                assert re.match(rf"t: {key}=.*: must be ", str(mistake)), mistake
        assert refused >= len(WRONG) - 2, key


@pytest.mark.parametrize("case", KILLED, indirect=True)
def test_a_run_that_is_killed_ends_as_one_that_is_not(whole, fit, monkeypatch):
    evaluate, made = loop.Trainer.evaluate, []

    def killed(*arguments):
        made.append(1)
        if len(made) == 2:
            raise KeyboardInterrupt
        return evaluate(*arguments)

    monkeypatch.setattr(loop.Trainer, "evaluate", killed)
    with pytest.raises(KeyboardInterrupt):
        fit("parts", **WORK)
    parts, log = fit("parts", **WORK)
    names = sorted(p.name for p in whole.iterdir())
    assert names == sorted(p.name for p in parts.iterdir())
    for name in names:
        if name.startswith("model.ckpt-3") or name.endswith((".tsv", "tions.json")):
            assert (whole / name).read_bytes() == (parts / name).read_bytes(), name
    assert "Best checkpoint: step " in log


@pytest.mark.parametrize("case", slow_except(("squad 2.0",), EXPORTED), indirect=True)
def test_the_export_answers_as_predict_does(case, whole):
    [answer] = predict.load(whole)([case.row])
    row = {"text": case.row} if isinstance(case.row, str) else case.row
    if case.family is QuestionAnswering:
        assert (case.folder / "served/albert_model.tflite").stat().st_size > 1000
    served = tf.saved_model.load(str(case.folder / "served"))
    outputs = served.signatures["serving_default"](
        **{name: tf.constant([value]) for name, value in row.items()}
    )
    arrays = {name: value.numpy()[0] for name, value in outputs.items()}
    shared = answer.keys() & arrays.keys()
    assert shared
    for name in shared:
        value = answer[name]
        if isinstance(value, str):
            assert arrays[name].decode() == value
        else:
            value = list(value.values()) if isinstance(value, dict) else value
            np.testing.assert_allclose(arrays[name], value, atol=1e-6)


@pytest.mark.parametrize("case", FAMILIES, indirect=True)
def test_a_folder_of_another_kind_is_refused(case, read, fit, tmp_path):
    task, _, model = read
    weights.save(model, tmp_path / "run", "tf1")
    other = "regression" if case.family is not Classification else "multiple_choice"
    description = {**task.description, "kind": other}
    metadata.write(tmp_path / "run", task.tokenizer, description)
    with pytest.raises(InputError, match=rf"a model with kind '{other}', but this ta"):
        fit("run", do_train=True)


NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
EVALUATE = {"do_eval": True, "do_predict": True}


def numbers(text):
    return [float(number) for number in NUMBER.findall(text)]


def results(folder):
    """The files of numbers that a run has written."""
    ends = (".tsv", ".txt", "tions.json", "odds.json", ".jsonl")
    return {p.name: p for p in folder.iterdir() if p.name.endswith(ends)}


@pytest.mark.parametrize("case", ENSEMBLES, indirect=True)
def test_an_ensemble_of_equal_models_answers_texts_as_one(whole, case):
    [one] = predict.load(whole)([case.row])
    [three] = predict.load_ensemble([str(whole)] * 3)([case.row])
    one, three = (json.dumps(answer, sort_keys=True) for answer in (one, three))
    assert NUMBER.sub("#", three) == NUMBER.sub("#", one)
    assert numbers(three) == pytest.approx(numbers(one), abs=1e-6)


@pytest.mark.parametrize("case", ENSEMBLES, indirect=True)
def test_an_ensemble_of_equal_models_is_one_of_them(whole, fit):
    alone, _ = fit("alone", init_checkpoint=str(whole), **EVALUATE)
    one, _ = fit("one", ensemble=(str(whole),), **EVALUATE)
    assert results(one).keys() == results(alone).keys()
    for name, path in results(one).items():
        if name != "metrics.jsonl":  # which has times
            assert path.read_bytes() == (alone / name).read_bytes()
    three, _ = fit("three", ensemble=(str(whole),) * 3, **EVALUATE)
    assert {"ensemble.json", "eval_results.txt"} <= {p.name for p in three.iterdir()}
    for name, path in results(three).items():
        if name != "eval_results.txt":  # that of one model has losses, too
            text, expected = path.read_text(), (alone / name).read_text()
            assert NUMBER.sub("#", text) == NUMBER.sub("#", expected)
            np.testing.assert_allclose(
                numbers(text), numbers(expected), rtol=1e-6, atol=1e-6, err_msg=name
            )
    table = json.loads((three / "ensemble.json").read_text())
    assert len(table["members"]) == 3
    for member in table["members"]:
        assert member.pop("folder") == str(whole)
        assert member == pytest.approx(table["ensemble"], abs=1e-6)
