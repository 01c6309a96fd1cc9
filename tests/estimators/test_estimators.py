"""A model in a few lines: as the scripts train, as `predict.py` answers."""

import json
import pickle
import random
import shutil

import keras
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

import albert_tf
from albert_tf import AlbertConfig, AlbertPretrainer, InputError, weights
from albert_tf.serve import predict
from albert_tf.tasks.classification import Classification
from albert_tf.tasks.settings.classification import ClassifierRunSettings
from albert_tf.tasks.settings.fine_tuning import ModelSettings
from albert_tf.weights import released

GOOD, BAD = ["file", "list"], ["object", "name"]
TEXTS = [f"the {word} {n}" for n in range(6) for word in (*GOOD, *BAD)]
STARS = [5 if text.split()[1] in GOOD else 1 for text in TEXTS]
TABLE = [{"review": t, "stars": s} for t, s in zip(TEXTS, STARS, strict=True)]
LEARNS = {
    "learning_rate": 0.002,
    "batch_size": 8,
    "max_seq_length": 11,
    "epochs": 6.0,
    "classifier_dropout_prob": 0.0,
}


@pytest.fixture(scope="module")
def base(tmp_path_factory, data):
    """The folder of a pretrained model."""
    folder = tmp_path_factory.mktemp("pretrained")
    config = AlbertConfig(
        vocab_size=1500,
        embedding_size=12,
        hidden_size=24,
        num_hidden_layers=1,
        num_attention_heads=3,
        intermediate_size=48,
        max_position_embeddings=40,
        initializer_range=0.1,
    )
    keras.utils.set_random_seed(3)
    weights.save(AlbertPretrainer(config), folder, "tf1")
    shutil.copy(data / "spm_small.model", folder)
    return folder


@pytest.fixture(scope="module")
def model(base, tmp_path_factory):
    """A classifier that has learned."""
    model = albert_tf.TextClassifier.from_pretrained(base, **LEARNS)
    return model.fit(
        TABLE,
        validation=TABLE,
        text="review",
        label="stars",
        output_dir=tmp_path_factory.mktemp("runs") / "stars",
        verbose=False,
    )


def test_it_learns_and_answers_with_the_labels_it_was_given(model):
    np.testing.assert_array_equal(model.classes_, [1, 5])
    labels = model.predict(TEXTS)
    np.testing.assert_array_equal(labels, STARS)
    np.testing.assert_array_equal(labels.probabilities, model.predict_proba(TEXTS))
    np.testing.assert_allclose(labels.probabilities.sum(axis=1), 1, atol=1e-5)
    assert model.score(TEXTS, STARS) == 1.0
    assert model.predict("the file").tolist() == [5]
    assert model.predict([{"review": "the name"}]).tolist() == [1]
    assert model(["the name"])[0]["label"] == "1"
    for shown in ("eval_accuracy", "1, 5", "classification", str(model.folder_)):
        assert shown in model._repr_html_()


def test_an_evaluation_gives_the_metrics_of_the_run(model, snapshot):
    before = snapshot(model.folder_)
    metrics = model.evaluate(TEXTS, STARS)
    assert metrics["eval_accuracy"] == model.metrics_["eval_accuracy"] == 1.0
    assert metrics["eval_loss"] == pytest.approx(model.metrics_["eval_loss"], abs=1e-6)
    assert snapshot(model.folder_) == before
    evaluated = [line["step"] for line in model.history_ if line["kind"] == "eval"]
    assert evaluated == [3, 6, 9, 12, 15, 18]  # after each of 24 / 8 updates


def test_fit_is_what_the_script_does(model, base, tmp_path, fine_tune, snapshot):
    (tmp_path / "table.jsonl").write_text("".join(json.dumps(r) + "\n" for r in TABLE))
    flags = {
        "task_name": "custom",
        "train_file": str(tmp_path / "table.jsonl"),
        "dev_file": str(tmp_path / "table.jsonl"),
        "text_columns": ("review",),
        "label_column": "stars",
        "max_seq_length": 11,
        "learning_rate": 0.002,
        "train_batch_size": 8,
        "num_train_epochs": 6.0,
        "warmup_proportion": 0.1,
        "eval_every_epochs": 1.0,
        "init_checkpoint": str(base),
        "output_dir": str(tmp_path / "run"),
        "do_train": True,
        "do_eval": True,
    }
    model_settings = ModelSettings(classifier_dropout_prob=0.0)
    fine_tune(Classification, ClassifierRunSettings, flags, model_settings)
    ours, theirs = snapshot(model.folder_), snapshot(tmp_path / "run")
    files = {path.name: content for path, content in ours.items() if content}
    for path, content in theirs.items():
        if path.name.startswith("model.ckpt-") or path.name == "task.json":
            assert files.pop(path.name) == content, path
    assert not any(name.startswith("model.ckpt-") for name in files)
    noted = json.loads((tmp_path / "run/run.json").read_text())
    assert noted["flags"]["learning_rate"] == 0.002
    assert noted["data"] == json.loads(files["run.json"])["data"]
    assert noted["task"] == "classification"


def test_a_second_call_resumes(model):
    again = albert_tf.TextClassifier(model.model, text="review", label="stars")
    again.set_params(**LEARNS)
    probabilities = model.predict_proba(TEXTS)
    again.fit(TABLE, validation=TABLE, output_dir=model.folder_, verbose=False)
    assert again.metrics_ == model.metrics_
    np.testing.assert_array_equal(again.predict_proba(TEXTS), probabilities)


def test_other_rows_are_refused_in_the_folder_of_a_run(model, snapshot):
    before = snapshot(model.folder_)
    again = albert_tf.TextClassifier(model.model, **LEARNS)
    with pytest.raises(InputError, match=r"train_rows.jsonl: the run has other rows"):
        again.fit(TEXTS[:8], STARS[:8], output_dir=model.folder_)
    assert {p: c for p, c in snapshot(model.folder_).items() if p.name != ".lock"} == {
        p: c for p, c in before.items() if p.name != ".lock"
    }


def test_weights_of_others_are_not_replaced(model, base, snapshot):
    for folder in (base, model.folder_):
        before = snapshot(folder)
        with pytest.raises(InputError, match=r"holds a run or other weights"):
            model.save(folder)
        assert snapshot(folder) == before


def test_what_is_saved_answers_alike(model, tmp_path):
    for _ in range(2):  # replaces what it wrote
        model.save(tmp_path / "saved")
    probabilities = model.predict_proba(TEXTS)
    loaded = albert_tf.TextClassifier.load(tmp_path / "saved")
    assert loaded.classes_.tolist() == ["1", "5"]
    assert loaded.evaluate(TABLE, text="review", label="stars")["eval_accuracy"] == 1.0
    assert loaded.classes_.tolist() == ["1", "5"]
    with pytest.raises(InputError, match=r"TextRegressor expects a model for regres"):
        albert_tf.TextRegressor.load(tmp_path / "saved")
    np.testing.assert_allclose(loaded.predict_proba(TEXTS), probabilities, atol=1e-6)
    [answer] = predict.load(tmp_path / "saved")(["the file 0"])
    assert answer == model(["the file 0"])[0]


@pytest.mark.parametrize("format", ["hf", "keras", "onnx"])
def test_other_formats_hold_the_same_weights(model, tmp_path, format):
    path = model.export(tmp_path / "out", format)
    if format == "onnx":
        assert path == tmp_path / "out/albert_model.onnx"
        assert path.stat().st_size > 0
        return
    if format == "keras":
        copy = keras.models.load_model(path)
    else:
        assert json.loads((path / "config.json").read_text())["id2label"]["1"] == "5"
        copy = albert_tf.AlbertClassifier(model._model.config, 2)
        weights.load(copy, path)
    for ours, theirs in zip(model._model.weights, copy.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_classes_stand_in_rising_order(model, monkeypatch):
    monkeypatch.setattr(model, "_originals", {"1": 7, "5": -2})
    assert model.classes_.tolist() == [-2, 7]
    swapped = model.predict_proba(TEXTS[:3])
    assert model.predict(TEXTS[:3]).tolist() == [-2, -2, 7]
    monkeypatch.undo()
    np.testing.assert_array_equal(swapped[:, ::-1], model.predict_proba(TEXTS[:3]))


def test_scikit_learn_clones_and_validates_it(base, monkeypatch):
    model = albert_tf.TextClassifier(base, **{**LEARNS, "epochs": 14.0})
    assert clone(model).get_params() == model.get_params()
    random.seed(5)
    numbers, policy = random.getstate(), keras.config.dtype_policy()
    scores = cross_val_score(model, TEXTS, STARS, cv=2, params={"verbose": False})
    np.testing.assert_array_equal(scores, [1, 1])
    assert random.getstate() == numbers
    assert keras.config.dtype_policy() == policy
    monkeypatch.setattr(released, "resolve", None)  # nothing is downloaded
    assert not albert_tf.TextClassifier("albert_base_v2").__sklearn_is_fitted__()


def test_a_copy_of_a_temporary_run_is_refused(model, base):
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(TEXTS), model.predict(TEXTS))
    short = albert_tf.TextClassifier(base)
    short._temporary = True
    with pytest.raises(pickle.PicklingError, match=r"save\(folder\) and load"):
        pickle.dumps(short)


def test_numbers_and_several_labels(base, eagerly):
    short = {**LEARNS, "epochs": 0.5, "verbose": False}
    numbers = albert_tf.TextRegressor(base).fit(TEXTS, STARS, **short)
    assert numbers.predict(TEXTS[:3]).shape == (3,)
    labels = [["a"], ["a", "b"], []] * 8
    several = albert_tf.TextClassifier(base, kind="multi_label")
    pairs = [(text, "a file") for text in TEXTS]
    several.fit(pairs, labels, **short)
    assert several.predict(pairs[:2], threshold=0.0).tolist() == [["a", "b"]] * 2


def test_questions_choices_and_words(base, eagerly):
    short = {"epochs": 1, "batch_size": 2, "verbose": False}
    context = "the file is a list"
    known = {"text": ["list"], "answer_start": [14]}
    rows = [
        {"question": "what", "context": context, "answers": known},
        {"question": "who", "context": context, "answers": {"text": []}},
        {"question": "where", "context": context, "answers": []},
    ]
    rows[1]["answers"]["answer_start"] = []
    lengths = {"max_seq_length": 23, "doc_stride": 3, "max_query_length": 11}
    answerer = albert_tf.QuestionAnswerer(base, **lengths).fit(
        rows, validation=rows, **short
    )
    assert "best_f1" in answerer.metrics_ or "f1" in answerer.metrics_
    answers = answerer.predict([("what", context)])
    assert answers[0] in context
    assert "<p>what</p>" in answers._repr_html_()
    choice = {"article": "a", "question": "b _", "options": ["c", "d"], "answer": "d"}
    chooser = albert_tf.MultipleChoice(base, max_seq_length=17, max_qa_length=7)
    assert chooser.fit([choice] * 4, **short).predict([choice]) in (0, 1)
    tags = {"tokens": ["the", "file"], "tags": ["O", "B-X"]}
    tagger = albert_tf.TokenClassifier(base, max_seq_length=7).fit([tags] * 4, **short)
    spans = tagger.predict(["the file"])
    assert spans._repr_html_().startswith("<p")
    for span in spans[0]:
        assert span["text"] == "the file"[span["begin"] : span["end"]]


def test_pretrained_models_answer(base):
    gaps = albert_tf.FillMask.from_pretrained(base, top_k=2).predict("the [MASK] is")
    assert [len(tokens) for tokens in gaps[0]] == [2]
    assert "the <mark" in gaps._repr_html_()
    order = albert_tf.SentenceOrder(base).predict([("a file", "a list")] * 3)
    assert order.shape == (3,)
    assert ((order > 0) & (order < 1)).all()
    scorer = albert_tf.Scorer(base)
    sums, means = scorer.predict(TEXTS[:2]), scorer.predict(TEXTS[:2], per_token=True)
    assert (sums < means).all()
    assert (means < 0).all()
    embedder = albert_tf.Embedder(base, pooling="first")
    vectors = embedder.fit_transform(TEXTS[:3])
    options = predict.AnswerSettings(task="embedding", pooling="first")
    [row] = predict.load(base, options)(TEXTS[:1])
    np.testing.assert_allclose(vectors[0], row["embedding"], atol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda base: albert_tf.TextClassifier(base, epoch=3),
            "TextClassifier: no setting 'epoch'; did you mean epochs?",
        ),
        (
            lambda base: albert_tf.TextClassifier(base).predict(["a"]),
            "not fine-tuned; TextClassifier expects a model for classification or "
            "multi_label, or fit() first",
        ),
        (
            lambda base: albert_tf.TextClassifier.from_pretrained(base / "none"),
            "none: no such file",
        ),
        (
            lambda base: albert_tf.TextClassifier(base).fit("t.csv", [1]),
            "train: a path with labels apart; expected a table that holds them",
        ),
        (
            lambda base: albert_tf.QuestionAnswerer(base).fit(
                [{"question": "a", "context": "b", "answers": "c"}]
            ),
            'train, row 1: answers is "c"; expected dicts of text and answer_start',
        ),
        (
            lambda base: albert_tf.TextClassifier(base, kind="regression"),
            "TextClassifier: kind='regression'; expected classification or multi_label",
        ),
        (
            lambda base: albert_tf.TextClassifier(base).fit(TEXTS, STARS, epochs="3"),
            'num_train_epochs="3": expected a number',
        ),
        (
            lambda base: albert_tf.TextClassifier(
                base, epochs=1, num_train_epochs=1
            ).fit(TEXTS, STARS),
            "epochs and num_train_epochs: give one of them",
        ),
        (
            lambda base: albert_tf.TextClassifier(base).fit(
                TEXTS, STARS, distribution="multi_worker"
            ),
            "TextClassifier: runs in one process; expected the script where several",
        ),
        (
            lambda base: albert_tf.FillMask().predict("a [MASK]"),
            "FillMask: no model; expected a folder or a name",
        ),
        (
            lambda base: albert_tf.TextClassifier(base).fit(TEXTS, STARS, epochs=-1),
            "--num_train_epochs=-1: expected a number above 0",
        ),
    ],
)
def test_mistakes_are_refused(base, call, message):
    with pytest.raises(InputError) as refused:
        call(base)
    assert message in str(refused.value)
