"""Served models, loaded without this package, give the same answers as Python."""

import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import DATA

from albert_tf import weights
from albert_tf.serve import predict
from albert_tf.tasks import serving
from albert_tf.tasks.squad import reading

TEXTS = ["The river rose.", "A cat sat in 1,995, ﬁne", "", "nobody " * 30, "Σας ÉTÉ"]
SECOND = ["", "the end " * 20, "why?", "a " * 30, "\u200b각"]
ARTICLES = ["The river rose. " * 20, "", "A cat sat.", "It rose.", "a", "b", "c"]
# More blanks in tests/tasks/test_race_reading.py.
ASKED = ["The _ is a _ .", "Who rose?", "", "The ____ .", "a_b_c é_ü 日_本"]
ASKED += ["a_b is __", "un_ , _ed , a__b"]
OPTIONS = [["river", "a_b", "", "x"], ["the cat " * 9, "b", "c", "d"], ["_"] * 4]
OPTIONS += [["cat", "river", "", ""], ["a", "b", "c", ""], ["x_y", *"bcd"], [*"abcd"]]
PARAGRAPHS = reading.read(DATA / "squad_own.json").paragraphs
PAIRS = [(q.text, p.context) for p in PARAGRAPHS for q in p.questions]
PAIRS += [("", ""), ("Who?", ""), ("", "The river rose."), ("a", "\u200b \x01")]

PLAIN, SENTENCES = {"text": TEXTS}, {"text_a": TEXTS, "text_b": SECOND}
CHOICES = {"article": ARTICLES, "question": ASKED, "options": OPTIONS}
QUESTIONS = dict(zip(("question", "context"), zip(*PAIRS, strict=True), strict=True))
# By name: the case of conftest, changes of its task.json, the options and the inputs.
CASES = {
    "labels": ("classification", {}, {}, PLAIN),
    "many": ("multi_label", {}, {"threshold": 0.45}, SENTENCES),
    "two": ("multi_label", {"kind": "classification"}, {"threshold": 0.75}, SENTENCES),
    "value": ("regression", {"bounds": [-2, 2]}, {}, SENTENCES),
    "embeddings": ("regression", {}, {"task": "embedding"}, PLAIN),
    "words": ("token_classification", {}, {}, PLAIN),
    "choice": ("multiple_choice", {}, {}, CHOICES),
    "spans": ("linear", {}, {"top_k": 5}, QUESTIONS),
    "beams": ("question_answering", {}, {"top_k": 5}, QUESTIONS),
    "linear": ("linear", {"version": "2.0"}, {"top_k": 5}, QUESTIONS),
}
# Other kinds use the same functions, or the test of the contract exports them
# (regression and SQuAD 1.1 only in `make test-slow`).
SAVED = ("many", "embeddings", "choice", "words")

LOAD = """
import json, numpy as np, tensorflow as tf, tensorflow_text
results = {}
# After its optimization, a graph gives the same answers.
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})

def plain(tensor):
    value = tensor.numpy()
    if value.dtype == object:
        value = np.array([x.decode() for x in value.flat]).reshape(value.shape)
    return value.tolist()

for name, (folder, given) in json.load(open(sys.argv[1])).items():
    loaded = tf.saved_model.load(folder)
    serve = loaded.signatures["serving_default"]
    given = {key: tf.constant(value) for key, value in given.items()}
    # Batches and texts of any size.
    for part, rows in {"": slice(None), "/one": slice(1, 2), "/none": slice(0)}.items():
        outputs = serve(**{key: value[rows] for key, value in given.items()})
        results[name + part] = {key: plain(value) for key, value in outputs.items()}
json.dump(results, open(sys.argv[2], "w"))
"""


def rows_of(columns):
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def opened(folder, **options):
    """Opens a model with random weights in its head."""
    predictor = predict.load(folder, predict.PipelineSettings(**options, batch_size=64))
    # With the initial range of 0.02, all probabilities would be nearly the same.
    head = getattr(predictor.model, "head", None)
    for variable in head.trainable_variables if head else ():
        variable.assign(keras.random.normal(variable.shape, stddev=0.5, seed=5))
    return predictor


@pytest.fixture(scope="module")
def predictors(run_of, tmp_path_factory, module_eagerly):
    """The predictor of each case."""
    found = {}
    for name, (case, changes, options, columns) in CASES.items():
        folder = tmp_path_factory.mktemp("changed") / name
        shutil.copytree(run_of(case), folder)
        stored = json.loads((folder / "task.json").read_text())
        (folder / "task.json").write_text(json.dumps({**stored, **changes}))
        found[name] = opened(folder, **options)
        if name in ("beams", "linear"):
            # A threshold between two null odds in the middle, which differ most.
            answers = found[name](rows_of(columns))
            odds = sorted(answer["null_odds"] for answer in answers)
            middle = max(range(8, 24), key=lambda i: odds[i + 1] - odds[i])
            threshold = (odds[middle] + odds[middle + 1]) / 2
            if name == "linear":  # in `task.json`, not in the options
                changed = {**changes, "null_score_diff_threshold": threshold}
                (folder / "task.json").write_text(json.dumps({**stored, **changed}))
                found[name] = opened(folder, **options)
            else:
                found[name] = opened(folder, **options, threshold=threshold)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def served(predictors, folder, without_package):
    """The outputs of each case; if it is saved, also of one row and of no row."""
    jobs, results = {}, {}
    for name, predictor in predictors.items():
        columns = CASES[name][3]
        if name in SAVED:
            tf.config.run_functions_eagerly(False)  # as in a program that exports
            predictor.export(folder / name)
            tf.config.run_functions_eagerly(True)
            jobs[name] = (str(folder / name), columns)
            continue
        given = {key: tf.constant(value) for key, value in columns.items()}
        outputs = predictor.serving_fn().answer(**given)
        results[name] = {key: plain(value.numpy()) for key, value in outputs.items()}
    (folder / "jobs.json").write_text(json.dumps(jobs))
    without_package(LOAD, folder / "jobs.json", folder / "out.json")
    for name, outputs in json.loads((folder / "out.json").read_text()).items():
        results[name] = {key: np.array(value) for key, value in outputs.items()}
    return results


def plain(array):
    """Decodes the texts of an array."""
    return np.char.decode(array.astype(bytes)) if array.dtype == object else array


@pytest.mark.parametrize("name", [name for name in CASES if name != "embeddings"])
def test_answers_are_those_of_python(name, predictors, served):
    for number, answer in enumerate(predictors[name](rows_of(CASES[name][3]))):
        row = {key: value[number] for key, value in served[name].items()}
        if "chosen" in row:
            assert answer.pop("labels") == row["labels"][row["chosen"] > 0].tolist()
        if "answers" in answer:
            listed = answer.pop("answers")
            listed += [{"answer": "", "probability": 0.0}] * (5 - len(listed))
            answer["n_best_answers"] = [each["answer"] for each in listed]
            answer["n_best_probabilities"] = [each["probability"] for each in listed]
        if "spans" in answer:
            spans = answer.pop("spans")
            for key in ("type", "text", "begin", "end", "probability"):
                answer[f"{key}s".replace("ys", "ies")] = [span[key] for span in spans]
            is_span = row["begins"] >= 0
            row = {key: value[is_span] for key, value in row.items()}
        for key, value in answer.items():
            value = list(value.values()) if isinstance(value, dict) else value
            if row[key].dtype.kind == "U":
                assert row[key].tolist() == value, key
            else:
                np.testing.assert_allclose(row[key], value, atol=1e-5, err_msg=key)


def test_the_cases_have_different_answers(served):
    assert len({*served["labels"]["label"]}) > 1
    chosen = served["many"]["chosen"]
    assert 0 < chosen.sum() < chosen.size
    assert (chosen != (served["many"]["probabilities"] >= 0.5)).any()
    likely = served["two"]["probabilities"].argmax(axis=-1)
    assert (served["two"]["label"] != served["two"]["labels"][0][likely]).any()
    values = served["value"]["value"]
    assert values.min() == -2 and values.max() > -1.9
    assert (served["words"]["begins"] >= 0).any()
    zeros = (served["choice"]["probabilities"] == 0).sum(axis=-1)
    assert zeros.tolist() == [0, 0, 0, 2, 1, 0, 0]
    without = PAIRS.index(("", ""))
    for name in ("spans", "beams", "linear"):
        begins = served[name]["begin"]
        assert begins[without] == -1 and not served[name]["answer"][without]
        assert name == "spans" or 5 < (begins < 0).sum() < len(PAIRS) - 5


def test_embeddings_of_every_layer(run_of, served):
    found = served["embeddings"]
    for options, values in (
        ({"pooling": "pooled"}, found["pooled"]),
        ({"layer": 1}, found["mean"][:, 0]),
        ({"layer": 2, "pooling": "first"}, found["first"][:, 1]),
    ):
        settings = predict.PipelineSettings(task="embedding", **options)
        expected = predict.load(run_of("regression"), settings)(TEXTS)
        expected = [answer["embedding"] for answer in expected]
        np.testing.assert_allclose(values, expected, atol=1e-5)


@pytest.mark.parametrize("name", ["spans", "beams", "linear"])
def test_the_score_of_an_answer_is_that_of_its_span(name, predictors, served):
    rows = rows_of(QUESTIONS)
    scores = predictors[name].score(("", row) for row in rows)
    for found, score in zip(scores, served[name]["score"], strict=True):
        [best, *_] = found.n_best[""].values()
        expected = best["start_log_prob"] + best["end_log_prob"]
        assert score == pytest.approx(expected, rel=1e-5, abs=1e-5)
    examples = map(predictors[name].pipeline.preprocess, rows)
    # The graph runs the windows in several parts.
    assert sum(len(each.inputs) for each in examples) > serving._MAX_CHUNK


def test_one_text_is_answered_as_in_a_batch(served):
    for name in SAVED:
        for key, one in served[f"{name}/one"].items():
            many = served[name][key][1:2]
            if name == "words":  # padded to the text with the most spans
                many = many[:, : one.shape[1]]
            if one.dtype.kind == "f":
                np.testing.assert_allclose(one, many, atol=1e-5, err_msg=key)
            else:
                assert (one == many).all(), key


def test_served_models_load_as_weights_again(served, predictors, folder):
    for name in SAVED:
        original, source = predictors[name].model, weights.open_source(folder / name)
        assert source.config() == original.config
        copy = weights.model_for(source, source.config())
        assert type(copy) is type(original)
        assert copy.get_config() == {**original.get_config(), "name": copy.name}
        weights.load(copy, folder / name)
        for ours, theirs in zip(copy.weights, original.weights, strict=True):
            if ours.trainable:
                np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


@pytest.mark.parametrize("name", SAVED)
def test_no_rows_have_no_answers(name, served):
    assert served[f"{name}/none"].keys() == served[name].keys()
    assert all(len(value) == 0 for value in served[f"{name}/none"].values())


# Keras knows the sizes here, unlike in a saved graph.
@pytest.mark.filterwarnings("ignore:You are using a softmax over axis")
@pytest.mark.parametrize("name", ["linear", "beams"])
def test_no_questions_have_no_answers(name, predictors):
    none = tf.constant([], tf.string)
    outputs = predictors[name].serving_fn().answer(question=none, context=none)
    assert outputs["answer"].shape == outputs["begin"].shape == (0,)
    assert len(outputs["n_best_answers"]) == 0
