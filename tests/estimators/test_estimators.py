"""A model in a few lines: as the scripts train, as `predict.py` answers."""

import inspect
import json
import pickle
import random
import shutil

import keras
import numpy as np
import pandas
import pytest
import tensorflow as tf
from helpers import refusal, slow_except
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.utils.validation import check_is_fitted

import albert_tf
from albert_tf import AlbertPretrainer, weights
from albert_tf.serve import predict
from albert_tf.tasks.classification import Classification
from albert_tf.tasks.settings.classification import ClassifierRunSettings
from albert_tf.tasks.settings.fine_tuning import ModelSettings

GOOD, BAD = ["file", "list"], ["object", "name"]
TEXTS = [f"the {word} {n}" for n in range(3) for word in (*GOOD, *BAD)]
STARS = [5 if text.split()[1] in GOOD else 1 for text in TEXTS]
TABLE = [{"review": t, "stars": s} for t, s in zip(TEXTS, STARS, strict=True)]
LEARNS = {"learning_rate": 0.005, "batch_size": 12, "max_seq_length": 11}
LEARNS |= {"epochs": 8.0, "eval_every_epochs": 4.0, "classifier_dropout_prob": 0.0}

pytestmark = pytest.mark.usefixtures("module_eagerly")


@pytest.fixture(scope="module")
def base(tmp_path_factory, data, tiny):
    """The folder of a pretrained model."""
    folder = tmp_path_factory.mktemp("pretrained")
    sizes = {"vocab_size": 1500, "embedding_size": 12, "hidden_size": 24}
    sizes |= {"num_hidden_layers": 1, "intermediate_size": 48, "type_vocab_size": 2}
    sizes |= {"max_position_embeddings": 40, "initializer_range": 0.3}
    keras.utils.set_random_seed(3)
    weights.save(AlbertPretrainer(tiny(**sizes)), folder, "tf1")
    shutil.copy(data / "spm_small.model", folder)
    return folder


@pytest.fixture(scope="module")
def model(base, tmp_path_factory):
    """A classifier that has learned."""
    model = albert_tf.TextClassifier.from_pretrained(base, **LEARNS)
    settings = {"text": "review", "label": "stars", "verbose": False}
    folder = tmp_path_factory.mktemp("runs") / "stars"
    return model.fit(TABLE, validation=TABLE, output_dir=folder, **settings)


def test_it_learns_and_answers_with_the_labels_it_was_given(model):
    np.testing.assert_array_equal(model.classes_, [1, 5])
    labels = model.predict(TEXTS)
    np.testing.assert_array_equal(labels, STARS)
    probabilities = model.predict_proba(TEXTS)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(model.classes_[probabilities.argmax(axis=1)], labels)
    assert model.score(TEXTS, STARS) == 1.0
    assert model.predict("the file").tolist() == [5]
    assert model.predict([{"review": "the name"}]).tolist() == [1]
    assert model(["the name"])[0]["label"] == "1"


def test_an_evaluation_gives_the_metrics_of_the_run(model, snapshot):
    before = snapshot(model.folder_)
    training = {"export_dir": "x", "threshold_to_export": 0.25, "num_runs": 2}
    again = albert_tf.TextClassifier.load(model.folder_, early_stopping=1, **training)
    assert again.evaluate(TEXTS, STARS) == model.evaluate(TEXTS, STARS)
    metrics = again.evaluate(TEXTS, STARS)
    assert metrics["eval_accuracy"] == model.metrics_["eval_accuracy"] == 1.0
    assert metrics["eval_loss"] == pytest.approx(model.metrics_["eval_loss"], abs=1e-6)
    assert snapshot(model.folder_) == before
    evaluated = [line["step"] for line in model.history_ if line["kind"] == "eval"]
    assert evaluated == [4, 8]


def test_fit_is_what_the_script_does(model, base, tmp_path, fine_tune, snapshot):
    (tmp_path / "table.jsonl").write_text("".join(json.dumps(r) + "\n" for r in TABLE))
    files = dict.fromkeys(("train_file", "dev_file"), str(tmp_path / "table.jsonl"))
    flags = {"task_name": "custom", "do_train": True, "do_eval": True, **files}
    flags |= {"text_columns": ("review",), "label_column": "stars"}
    flags |= {"max_seq_length": 11, "learning_rate": 0.005, "train_batch_size": 12}
    flags |= {"num_train_epochs": 8.0, "warmup_proportion": 0.1}
    flags |= {"eval_every_epochs": 4.0, "init_checkpoint": str(base)}
    flags["output_dir"] = str(tmp_path / "run")
    model_settings = ModelSettings(classifier_dropout_prob=0.0)
    fine_tune(Classification, ClassifierRunSettings, flags, model_settings)
    ours, theirs = snapshot(model.folder_), snapshot(tmp_path / "run")
    files = {path.name: content for path, content in ours.items() if content}
    for path, content in theirs.items():
        if path.name.startswith("model.ckpt-"):
            assert files.pop(path.name) == content, path
    task = json.loads((tmp_path / "run/task.json").read_text())
    assert json.loads(files["task.json"]) == {**task, "labels_are_json": True}
    assert not any(name.startswith("model.ckpt-") for name in files)
    noted = json.loads((tmp_path / "run/run.json").read_text())
    assert noted["flags"]["learning_rate"] == 0.005
    assert noted["task"] == "classification"


def test_a_second_call_resumes(model):
    again = albert_tf.TextClassifier(model.model, text="review", label="stars")
    again.set_params(**LEARNS)
    probabilities = model.predict_proba(TEXTS)
    again.fit(TABLE, validation=TABLE, output_dir=model.folder_, verbose=False)
    assert again.metrics_ == model.metrics_
    np.testing.assert_array_equal(again.predict_proba(TEXTS), probabilities)


def test_a_run_and_the_weights_of_others_stay_as_they_are(model, base, snapshot):
    again = albert_tf.TextClassifier(model.model, **LEARNS)
    folder = model.folder_
    before = snapshot(folder), snapshot(base)
    message = refusal(again.fit, TEXTS[:8], STARS[:8], output_dir=folder)
    assert message.startswith(f"{folder}/train_rows.jsonl: the run has other rows")
    for each in (base, folder):
        assert "has a run or other weights" in refusal(model.save, each)
    (folder / ".lock").unlink(missing_ok=True)
    assert (snapshot(folder), snapshot(base)) == before


def test_what_is_saved_answers_alike(model, tmp_path):
    for _ in range(2):  # replaces what it wrote
        model.save(tmp_path / "saved")
    message = refusal(albert_tf.TextRegressor.load, tmp_path / "saved")
    assert "TextRegressor expects a model for regression" in message
    assert list(predict.load(tmp_path / "saved")(TEXTS[:1])) == model(TEXTS[:1])


def test_exports_are_where_they_are_said_to_be(model, tmp_path):
    """The README exports a SavedModel; test_convert.py checks all other formats."""
    assert model.export(tmp_path, "keras") == tmp_path / "albert_model.keras"
    exported = predict.load(model.export(tmp_path / "hf", "hf"))
    assert [answer["label"] for answer in exported(TEXTS)] == [*map(str, STARS)]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([10.0, -0.5, 2.5], [-0.5, 2.5, 10.0]),
        pytest.param([1, -1], [-1, 1], marks=pytest.mark.slow),
        pytest.param([False, True], [False, True], marks=pytest.mark.slow),
        pytest.param(["10", "yes", "2"], ["2", "10", "yes"], marks=pytest.mark.slow),
    ],
)
def test_labels_keep_their_types_and_their_order(labels, classes, base, tmp_path):
    labels = np.concatenate([labels] * 4)
    texts = TEXTS[: len(labels)]
    model = albert_tf.TextClassifier(base, **{**LEARNS, "epochs": 1})
    model.fit(texts, labels, validation=(texts, labels), verbose=False)
    model.save(tmp_path / "saved")
    loaded = albert_tf.TextClassifier.load(tmp_path / "saved")
    task = json.loads((tmp_path / "saved/task.json").read_text())
    assert task["labels"] == [c if c is str(c) else json.dumps(c) for c in classes]
    for each in (model, loaded):
        assert each.classes_.tolist() == classes
        assert list(map(type, each.classes_.tolist())) == list(map(type, classes))
        answers = each.predict(texts)
        accuracy = (answers == labels).mean()
        assert accuracy == pytest.approx(model.metrics_["eval_accuracy"])
        if len(classes) == 2:  # threshold is for the second of them, everywhere
            assert set(each.predict(texts, threshold=0.0)) == {classes[1]}
            assert set(each.predict(texts, threshold=1.0)) == {classes[0]}


def test_the_setting_classes_orders_several_labels(base):
    names, data = [7, 5, 6], (TEXTS[:3], [(7, 5), [], [5]])
    short = {**LEARNS, "epochs": 1, "batch_size": 3, "verbose": False}
    model = albert_tf.TextClassifier(base, kind="multi_label", classes=names)
    model.fit(*data, validation=data, **short)
    assert model.classes_.tolist() == names
    assert model.predict(TEXTS[:1], threshold=0.0).tolist() == [names]
    assert model.evaluate(*data) == pytest.approx(model.metrics_, abs=1e-6)


def test_labels_in_a_table_are_those_of_its_column(base):
    frame = pandas.DataFrame({0: TEXTS, 1: STARS})
    short = {**LEARNS, "epochs": 1, "verbose": False}
    model = albert_tf.TextClassifier(base, class_weights="balanced")
    model.fit(frame, validation=(frame[0], frame[[1]]), text=0, label=1, **short)
    assert model.classes_.tolist() == [1, 5]
    assert model.evaluate(frame) == pytest.approx(model.metrics_, abs=1e-6)
    np.testing.assert_array_equal(model.predict(frame), model.predict(TEXTS))


def test_another_model_has_to_be_fitted(model, base):
    missing = base / "none"
    assert "none: no such" in refusal(albert_tf.TextClassifier.from_pretrained, missing)
    other = albert_tf.TextClassifier(base).set_params(model=model.folder_)
    np.testing.assert_array_equal(other.predict(TEXTS), STARS)
    copy = pickle.loads(pickle.dumps(model))
    copy.set_params(model=base)
    assert not hasattr(copy, "metrics_")
    assert "not fine-tuned" in refusal(copy.predict, TEXTS)


def test_a_text_that_is_no_file_is_a_text(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "the").write_text("x")
    for text in ("the file.csv", "the", "the file 3. " * 500):
        np.testing.assert_array_equal(model.predict(text), model.predict([text]))
    (tmp_path / "the file.csv").write_text('review\nthe name\nthe list\n"a, b"\n')
    assert model.predict("the file.csv").shape == (3,)
    assert model.predict_proba(tmp_path / "the file.csv").shape == (3, 2)
    assert "none.csv" in refusal(model.predict, tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("kind", "defaults"),
    [
        (albert_tf.TextClassifier, {"eval_every_epochs": 1.0, "text": ("text",)}),
        (albert_tf.QuestionAnswerer, {"batch_size": 32, "doc_stride": None}),
        (albert_tf.Pretrainer, {"num_train_steps": 125_000, "dynamic_masking": False}),
    ],
)
def test_editors_see_the_settings_of_fit(kind, defaults):
    shown = inspect.signature(kind.fit).parameters
    assert set(kind.setting_names()) < set(shown)
    assert {name: shown[name].default for name in defaults} == defaults
    assert not {"input_file", "train_file", "settings"} & set(shown)


def test_scikit_learn_clones_and_validates_it(base, model):
    new = albert_tf.TextClassifier(base, **{**LEARNS, "epochs": 1})
    assert clone(new).get_params() == new.get_params()
    random.seed(5)
    numbers, policy = random.getstate(), keras.config.dtype_policy()
    scores = cross_val_score(new, TEXTS, STARS, cv=2, params={"verbose": False})
    assert scores.shape == (2,) and scores.min() >= 0 and scores.max() <= 1
    assert random.getstate() == numbers
    assert keras.config.dtype_policy() == policy
    check_is_fitted(albert_tf.TextClassifier.load(model.folder_))
    with pytest.raises(NotFittedError):
        check_is_fitted(new)


def test_a_copy_of_a_temporary_run_is_refused(model, base):
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(TEXTS), model.predict(TEXTS))
    short = albert_tf.TextClassifier(base)
    short._is_temporary = True
    with pytest.raises(pickle.PicklingError, match=r"save\(folder\) and load"):
        pickle.dumps(short)


def test_class_weights_and_the_best_labels(base):
    short = {**LEARNS, "epochs": 1, "verbose": False}
    weighted = albert_tf.TextClassifier(base, class_weights={np.int64(5): 2.5})
    weighted.fit(TEXTS, STARS, **short)
    assert weighted(TEXTS[:1], top_k=1)[0]["probabilities"].keys() < {"1", "5"}
    fit = albert_tf.TextClassifier(base).fit
    message = refusal(fit, TEXTS, STARS, class_weights={6: 2}, **short)
    assert message.startswith("--class_weights=6=2: must be balanced,")


CONTEXT = "the file is a list"
ANSWER = {"text": ["list"], "answer_start": [14]}
CHOICE = {"article": "a", "question": "b _", "options": ["c", "d"]}
ASKED = {"question": "a file", "context": "a name"}
LISTS = [{"text": t, "label": [[4], [4, 7], []][n % 3]} for n, t in enumerate(TEXTS)]
NUMBERS = [
    {**row, "more": "a", "label": row["stars"] + n} for n, row in enumerate(TABLE)
]
QUESTIONS = [
    {"question": "what", "context": CONTEXT, "answers": ANSWER},
    {"question": "who", "context": CONTEXT, "answers": []},
    {**ASKED, "answers": None},
]
CHOICES = [{**CHOICE, "answer": "B"}, {**CHOICE, "article": "e f", "answer": 0}]
WORDS = [
    {"tokens": ["the", "file"], "ner": ["O", "B-X"]},
    {"tokens": ["a"], "ner": ["O"]},
]
WINDOWS = {"max_seq_length": 23, "doc_stride": 3, "max_query_length": 11}
LENGTHS = {"max_seq_length": 17, "max_qa_length": 7}
PIPELINES = {
    "labels": (albert_tf.TextClassifier, {"text": "review", "label": "stars"}, TABLE),
    "several labels": (albert_tf.TextClassifier, {"kind": "multi_label"}, LISTS),
    "numbers": (albert_tf.TextRegressor, {"text": ("review", "more")}, NUMBERS),
    "questions": (albert_tf.QuestionAnswerer, WINDOWS, QUESTIONS),
    "choices": (albert_tf.MultipleChoice, LENGTHS, CHOICES),
    "words": (albert_tf.TokenClassifier, {"label_column": "ner"}, WORDS),
}


@pytest.mark.parametrize("name", slow_except(("questions",), PIPELINES))
def test_every_estimator_does_all(name, base, tmp_path):
    kind, settings, rows = PIPELINES[name]
    short = {"max_seq_length": 11, "batch_size": 2, "epochs": 0.5, **settings}
    model = kind(base, **short).fit(rows, validation=rows, verbose=False)
    hidden = ("label", "stars", "answer", "answers")
    asked = [{k: v for k, v in row.items() if k not in hidden} for row in rows]
    if kind is albert_tf.TokenClassifier:
        asked = [" ".join(row["tokens"]) for row in rows]
    answers, predicted = list(model(asked)), model.predict(asked)
    assert len(answers) == len(predicted) == len(rows)
    model.save(tmp_path / "saved")
    loaded = kind.load(tmp_path / "saved")
    assert loaded.evaluate(rows) == pytest.approx(model.metrics_, abs=1e-6)
    file = model._write_rows(rows, tmp_path, "dev")
    for data in (asked, str(file)):
        again = loaded.predict(data)
        assert str(again) == str(predicted)
        assert type(again[0]) is type(predicted[0])
    assert loaded(file) == answers
    two = kind.load([tmp_path / "saved"] * 2)
    assert two.predict(asked)[0] == predicted[0]
    ensemble = two.evaluate(rows)
    key = next(iter(model.metrics_.keys() & ensemble.keys()))
    assert ensemble[key] == pytest.approx(model.metrics_[key], abs=1e-6)
    assert "an ensemble has no weights of its own" in refusal(two.save, "two")


def test_pretrained_models_answer(base, tmp_path):
    tf.config.run_functions_eagerly(False)  # as in a program that predicts
    filler = albert_tf.FillMask.from_pretrained(base, top_k=2)
    gaps = filler.predict("the [MASK] is")
    for file, text in (
        {"a.txt": "the [MASK] is\n", "a.jsonl": '{"text": "the [MASK] is"}'}
    ).items():
        (tmp_path / file).write_text(text)
        assert filler.predict(str(tmp_path / file)) == gaps
    assert [len(tokens) for tokens in gaps[0]] == [2]
    two = albert_tf.FillMask(base, targets=["file", "list"]).predict("the [MASK] is")
    assert {each["token"] for each in two[0][0]} == {"▁file", "▁list"}
    order = albert_tf.SentenceOrder(base).predict([("a file", "a list")] * 3)
    assert order.shape == (3,)
    assert ((order > 0) & (order < 1)).all()
    scorer = albert_tf.Scorer(base)
    sums, means = scorer.predict(TEXTS[:2]), scorer.predict(TEXTS[:2], per_token=True)
    assert (sums < means).all()
    assert (means < 0).all()
    embedder = albert_tf.Embedder(base, pooling="first")
    vectors = embedder.fit_transform(TEXTS[:3])
    options = predict.PipelineSettings(task="embedding", pooling="first")
    [row] = predict.load(base, options)(TEXTS[:1])
    np.testing.assert_allclose(vectors[0], row["embedding"], atol=1e-6)


# Settings, the arguments of `fit`, and the message. test_rows has more about rows.
DATA, SEVERAL = (TEXTS, STARS), {"kind": "multi_label"}
HOT = [[1, 1, 0], [0, 0, 0], [0, 1, 0]]
REFUSED = [
    ({"epochs": "3"}, DATA, 'num_train_epochs="3": must be float | None'),
    ({"epochs": -1}, DATA, "--num_train_epochs=-1: must be above 0"),
    ({"epochs": 1, "num_train_epochs": 1}, DATA,
     "epochs and num_train_epochs: give one of them"),
    ({"eval_every_steps": 3}, DATA, "=3: no data to evaluate on"),
    ({"distribution": "multi_worker"}, DATA,
     "TextClassifier: runs in one process; use the script where several"),
    ({}, ("t.csv", [1]), 'train: "t.csv"; expected a table: a DataFrame'),
    ({}, ([None, "a"], [1, 2]), "train, row 1: 'text' is missing (None or NaN)"),
    ({}, (["a", "b"], [1, {"c": 2}]),
     """/train_rows.jsonl:2: {"c": 2} under 'label'; expec"""),
    ({}, (["a", "b"], [1, None]), "train, row 2: 'label' is missing"),
    ({}, (["a", "b"], [1, "1"]), "train: labels are texts and numbers"),
    ({}, (TEXTS, ["a"] * 12), "/train_rows.jsonl: 1 different labels"),
    ({}, (TEXTS[:3], HOT),
     "train: labels are rows of 0 and 1; expected names of labels"),
    ({"kind": "regression"}, DATA,
     "TextClassifier: kind='regression'; expected classification or multi_label"),
    (SEVERAL, (TEXTS[:3], HOT),
     "train: labels are rows of 0 and 1; expected names of labels"),
    (SEVERAL, (TEXTS[:3], pandas.DataFrame(HOT)),
     "train: Cannot set a DataFrame with multiple columns to the single column label"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "arguments", "message"), REFUSED)
def test_what_cannot_be_fitted_is_refused(base, settings, arguments, message):
    fit = albert_tf.TextClassifier(base, **settings).fit
    assert message in refusal(fit, *arguments)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("TextClassifier", {"epoch": 3},
         "TextClassifier: no setting 'epoch'; expected epochs"),
        ("TextClassifier", {},
         "not fine-tuned; TextClassifier expects a model for classification or "
         "multi_label, or fit() first"),
        ("FillMask", {"model": None}, "FillMask: no model; pass a path or name"),
        ("FillMask", {"layer": 1}, "--layer=1: fill_mask only takes --max_seq_length"),
    ],
)  # fmt: skip
def test_mistakes_are_refused(base, kind, settings, message):
    def call():
        getattr(albert_tf, kind)(**{"model": base, **settings}).predict(["a"])

    assert message in refusal(call)


def test_answers_of_another_form_are_refused(base):
    fit = albert_tf.QuestionAnswerer(base).fit
    message = refusal(fit, [{**ASKED, "answers": "c"}])
    assert message.startswith('train, row 1: answers is "c"; expected dicts of text')
