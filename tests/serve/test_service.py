"""Served models, loaded without this package, give the same answers as Python."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import DATA

from albert_tf import weights
from albert_tf.model import models
from albert_tf.serve import saved_models
from albert_tf.tasks import serving, text_graphs
from albert_tf.tasks.race import features as race
from albert_tf.tasks.race.graph import multiple_choice
from albert_tf.tasks.race.reading import Question, drop_empty
from albert_tf.tasks.settings.race import RaceSettings
from albert_tf.tasks.settings.squad import SquadSettings
from albert_tf.tasks.squad import answers, features, reading
from albert_tf.tasks.squad.graph import question_answering
from albert_tf.tasks.tagging.graph import tag_texts
from albert_tf.text import inputs

LENGTH = 23
TEXTS = ["The river rose.", "A cat sat in 1,995, ﬁne", "", "nobody " * 30, "Σας ÉTÉ"]
SECOND = ["", "the end " * 20, "why?", "a " * 30, "\u200b각"]
FIXED = {"labels": ("yes", "no", "maybe")}
ARTICLES = ["The river rose. " * 20, "", "A cat sat.", "It rose.", "a", "b", "c"]
# More blanks in tests/tasks/test_race_reading.py.
ASKED = ["The _ is a _ .", "Who rose?", "", "The ____ .", "a_b_c é_ü 日_本"]
ASKED += ["a_b is __", "un_ , _ed , a__b"]
OPTIONS = [["river", "a_b", "", "x"], ["the cat " * 9, "b", "c", "d"], ["_"] * 4]
OPTIONS += [["cat", "river", "", ""], ["a", "b", "c", ""], ["x_y", *"bcd"], [*"abcd"]]

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
    for key, value in serve(**given).items():
        results[f"{name}/{key}"] = plain(value)
    # Batches and texts of any size.
    few = {key: value[1:2] for key, value in given.items()}
    for key, value in serve(**few).items():
        results[f"{name}/one/{key}"] = plain(value)
    none = {key: value[:0] for key, value in given.items()}
    for key, value in serve(**none).items():
        results[f"{name}/none/{key}"] = plain(value)
json.dump(results, open(sys.argv[2], "w"))
"""


@pytest.fixture(scope="module")
def built(tiny):
    """One model of each kind."""
    sizes = {"vocab_size": 1503, "num_hidden_layers": 2, "initializer_range": 0.4}
    config = tiny(**sizes, max_position_embeddings=96)

    def made(kind, *arguments):
        keras.utils.set_random_seed(3)
        model = kind(config, *arguments)
        # With the initial range of 0.02, all probabilities would be nearly the same.
        for variable in model.trainable_variables:
            if "output" in variable.path.split("/")[-2]:
                variable.assign(keras.random.normal(variable.shape, stddev=0.5, seed=5))
        return model

    return {
        "labels": made(models.AlbertClassifier, 3),
        "two": made(models.AlbertClassifier, 2),
        "value": made(models.AlbertClassifier, 1),
        "words": made(models.AlbertTokenClassifier, 3),
        "choice": made(models.AlbertMultipleChoice),
        "spans": made(models.AlbertSpanLabeler),
        "beams": made(models.AlbertConditionalSpanLabeler, 4, 6),
    }


SIZES = {"max_seq_length": 40, "doc_stride": 13, "max_query_length": 9}
SQUAD = SquadSettings(version="1.1", n_best_size=7, max_answer_length=11, **SIZES)


@pytest.fixture(scope="module")
def asked():
    """Questions and contexts: different texts, empty ones, a long one."""
    dataset = reading.read(DATA / "squad_own.json")
    pairs = [(q.text, p.context) for p in dataset.paragraphs for q in p.questions]
    pairs += [("", ""), ("Who?", ""), ("", "The river rose."), ("a", "\u200b \x01")]
    return [list(texts) for texts in zip(*pairs, strict=True)]


@pytest.fixture(scope="module")
def null_thresholds(built, tokenizer, asked):
    """Thresholds between two null odds in the middle, which differ most."""
    thresholds = {}
    for kind, model in (("beams", built["beams"]), ("linear", built["spans"])):
        found = expected_answers(model, tokenizer, asked, "2.0")
        odds = sorted(found.null_odds.values())
        middle = max(range(8, 24), key=lambda i: odds[i + 1] - odds[i])
        thresholds[kind] = (odds[middle] + odds[middle + 1]) / 2
    return thresholds


@pytest.fixture(scope="module")
def every(built, tokenizer, asked, null_thresholds):
    """An answer and its inputs, by name."""
    questions = dict(zip(("question", "context"), asked, strict=True))
    choices = {"article": ARTICLES, "question": ASKED, "options": OPTIONS}
    plain, pairs = {"text": TEXTS}, {"text_a": TEXTS, "text_b": SECOND}
    found = {}

    def add(name, make, model, given, **options):
        found[name] = (make(built[model], tokenizer, **options), given)

    length, classifier = {"max_seq_length": LENGTH}, text_graphs.classifier
    add("labels", classifier, "labels", plain, **FIXED, **length)
    several = {"multi_label": True, "threshold": 0.7, "pairs": True}
    add("many", classifier, "labels", pairs, **FIXED, **length, **several)
    second = {"labels": ("no", "yes"), "threshold": 0.6, "pairs": True}
    add("two", classifier, "two", pairs, **length, **second)
    add("value", text_graphs.regressor, "value", plain, **length, bounds=(-0.4, 0.5))
    add("embeddings", text_graphs.embeddings, "value", plain, **length)
    add("words", tag_texts, "words", plain, **length, labels=("O", "B-X", "I-X"))
    race_settings = RaceSettings(**length, max_qa_length=8)
    add("choice", multiple_choice, "choice", choices, settings=race_settings)
    add("spans", question_answering, "spans", questions, settings=SQUAD)
    version_2 = dataclasses.replace(SQUAD, version="2.0")
    for name, model in (("beams", "beams"), ("linear", "spans")):
        options = {"settings": version_2, "threshold": null_thresholds[name]}
        add(name, question_answering, model, questions, **options)
    return found


# Other kinds use the same functions, or the test of the contract exports them.
SAVED = ("many", "embeddings", "choice", "beams", "words")


@pytest.fixture(scope="module")
def served(every, tmp_path_factory, without_package):
    """The answers of all kinds, by kind and output; and the folder of the models."""
    root = tmp_path_factory.mktemp("served")
    jobs, results = {}, {}
    for name, (kind, given) in every.items():
        if name in SAVED:
            saved_models.export(kind, root / name)
            jobs[name] = (str(root / name), given)
            continue
        for prefix, rows in ((name, slice(None)), (f"{name}/one", slice(1, 2))):
            outputs = kind.answer(**{k: tf.constant(v[rows]) for k, v in given.items()})
            for key, value in outputs.items():
                results[f"{prefix}/{key}"] = plain(value.numpy())
    (root / "jobs.json").write_text(json.dumps(jobs))
    without_package(LOAD, root / "jobs.json", root / "out.json")
    loaded = json.loads((root / "out.json").read_text())
    return results | {key: np.array(value) for key, value in loaded.items()}, root


def plain(array):
    """Decodes the texts of an array."""
    return np.char.decode(array.astype(bytes)) if array.dtype == object else array


def outputs_of(served, name):
    start = f"{name}/"
    return {
        key.removeprefix(start): value
        for key, value in served[0].items()
        if key.startswith(start)
    }


def run(model, tokenizer, first, second=None, **more):
    encoded = inputs.encode(tokenizer, first, second, LENGTH)
    rows = range(len(encoded))
    batch = inputs.pad(encoded, rows, int(encoded.lengths.max()), tokenizer.pad_id)
    return batch, model({**batch, **more})


def close(found, expected, bound=1e-6):
    expected = keras.ops.convert_to_numpy(expected)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max(initial=0) < bound
    return True


def test_classes(served, built, tokenizer):
    _, outputs = run(built["labels"], tokenizer, TEXTS)
    found = outputs_of(served, "labels")
    expected = keras.ops.convert_to_numpy(keras.ops.softmax(outputs["logits"]))
    assert close(found["probabilities"], expected)
    best = expected.argmax(axis=-1)
    assert len(set(best)) > 1
    assert found["label"].tolist() == [FIXED["labels"][k] for k in best]
    assert close(found["probability"], expected.max(axis=-1))
    assert found["labels"].tolist() == [list(FIXED["labels"])] * len(TEXTS)


def test_several_labels_of_pairs(served, built, tokenizer):
    _, outputs = run(built["labels"], tokenizer, TEXTS, SECOND)
    found = outputs_of(served, "many")
    expected = keras.ops.convert_to_numpy(keras.ops.sigmoid(outputs["logits"]))
    assert close(found["probabilities"], expected)
    assert (found["chosen"] == (expected >= 0.7)).all()
    assert 0 < found["chosen"].sum() < found["chosen"].size
    assert (found["chosen"] != (expected >= 0.5)).any()


def test_a_threshold_for_the_second_of_two_labels(served, built, tokenizer):
    _, outputs = run(built["two"], tokenizer, TEXTS, SECOND)
    expected = keras.ops.convert_to_numpy(keras.ops.softmax(outputs["logits"]))
    found = outputs_of(served, "two")
    assert close(found["probabilities"], expected)
    chosen = (expected[:, 1] >= 0.6).astype(int)
    assert (chosen != expected.argmax(axis=-1)).any()
    assert found["label"].tolist() == [("no", "yes")[k] for k in chosen]
    assert close(found["probability"], expected[np.arange(len(TEXTS)), chosen])


def test_numbers_within_bounds(served, built, tokenizer):
    _, outputs = run(built["value"], tokenizer, TEXTS)
    logits = keras.ops.convert_to_numpy(outputs["logits"])[:, 0]
    assert logits.min() < -0.4 or logits.max() > 0.5
    assert close(outputs_of(served, "value")["value"], np.clip(logits, -0.4, 0.5), 1e-5)


def test_embeddings_of_every_layer(served, built, tokenizer):
    batch, outputs = run(built["value"].encoder, tokenizer, TEXTS)
    found = outputs_of(served, "embeddings")
    assert close(found["pooled"], outputs["pooled_output"], 1e-5)
    for i, layer in enumerate(outputs["encoder_outputs"]):
        rows = keras.ops.convert_to_numpy(layer)
        lengths = batch["input_mask"].sum(axis=1)
        pairs = zip(rows, lengths, strict=True)
        mean = np.stack([row[:length].mean(axis=0) for row, length in pairs])
        assert close(found["mean"][:, i], mean, 1e-5)
        assert close(found["first"][:, i], rows[:, 0], 1e-5)
    assert found["mean"].shape == (len(TEXTS), 2, 12)


def test_words(served, every):
    """tests/tasks/test_tagging_graph.py compares the graph with Python."""
    kind, given = every["words"]
    outputs = kind.answer(text=tf.constant(given["text"]))
    found = outputs_of(served, "words")
    for name in ("types", "texts", "begins", "ends"):
        assert (found[name] == plain(outputs[name].numpy())).all()
    assert close(found["probabilities"], outputs["probabilities"])
    assert (found["begins"] >= 0).any()


def test_choices(served, built, tokenizer):
    questions = [
        Question("", article, text, tuple(drop_empty(options)), None, "", "")
        for article, text, options in zip(ARTICLES, ASKED, OPTIONS, strict=True)
    ]
    lengths = RaceSettings(max_seq_length=LENGTH, max_qa_length=8)
    encoded = race.encode(tokenizer, questions, lengths)
    batch = encoded.batch(range(len(ASKED)), 4, LENGTH, tokenizer)
    expected = keras.ops.convert_to_numpy(
        keras.ops.softmax(built["choice"](batch)["logits"])
    )
    found = outputs_of(served, "choice")
    assert close(found["probabilities"], expected)
    assert [(row == 0).sum() for row in found["probabilities"]] == [0, 0, 0, 2, 1, 0, 0]
    best = expected.argmax(axis=-1)
    assert found["choice"].tolist() == best.tolist()
    assert found["answer"].tolist() == [
        o[k] for o, k in zip(OPTIONS, best, strict=True)
    ]


def windows(tokenizer, questions, contexts):
    """Returns the windows of `tasks.squad`."""
    paragraphs = tuple(
        reading.Paragraph(context, (reading.Question(str(n), question, (), False),))
        for n, (question, context) in enumerate(zip(questions, contexts, strict=True))
    )
    dataset = reading.Dataset("", "2.0", paragraphs)
    return list(features.windows(dataset, tokenizer, SQUAD))


def expected_answers(model, tokenizer, asked, version):
    """Returns the answers of `tasks.squad`."""
    read = windows(tokenizer, *asked)
    rows = [window.features(SQUAD.max_seq_length) for window in read]
    outputs = {**model({name: np.stack([r[name] for r in rows]) for name in rows[0]})}
    del outputs["encoder_outputs"]
    found = {name: keras.ops.convert_to_numpy(value) for name, value in outputs.items()}
    head = "conditional" if "cls_logits" in found else "linear"
    settings = dataclasses.replace(SQUAD, head=head, version=version)
    rows = ({name: value[n] for name, value in found.items()} for n in range(len(read)))
    return answers.collect_answers(read, rows, settings)


@pytest.mark.parametrize("kind", ["spans", "beams", "linear"])
def test_questions(kind, served, built, tokenizer, asked, null_thresholds):
    # The graph runs the windows in several parts.
    assert len(windows(tokenizer, *asked)) > serving._MAX_CHUNK
    model = built["spans" if kind == "linear" else kind]
    version = "1.1" if kind == "spans" else "2.0"
    expected = expected_answers(model, tokenizer, asked, version)
    found = outputs_of(served, kind)
    chances = found["n_best_probabilities"]
    texts = found["n_best_answers"]
    threshold = null_thresholds.get(kind)
    withheld = 0
    for row, (id, entries) in enumerate(expected.n_best.items()):
        (text, begin, end), best = next(iter(entries.items()))
        score = best["start_log_prob"] + best["end_log_prob"]
        if begin < 0:  # no valid span; released files have "empty" here
            text, entries = "", {}
        count = len(entries)
        listed = [entry["text"] for entry in entries.values()]
        assert texts[row].tolist() == listed + [""] * (7 - count)
        wanted = [entry["probability"] for entry in entries.values()]
        wanted += [0.0] * (7 - count)
        assert np.abs(chances[row] - wanted).max() < 1e-6
        assert np.isclose(found["score"][row], score, rtol=1e-5, atol=1e-5)
        assert np.abs(found["probability"][row] - wanted[0]) < 1e-6
        if threshold is not None:
            odds = expected.null_odds[id]
            assert np.isclose(found["null_odds"][row], odds, rtol=1e-5, atol=1e-5)
            if odds > threshold:
                text, begin, end = "", -1, -1
                withheld += 1
        assert found["answer"][row] == text
        assert (found["begin"][row], found["end"][row]) == (begin, end)
        if begin >= 0:
            assert asked[1][row][begin:end] == found["answer"][row]
    assert kind == "spans" or 0 < withheld < len(expected.texts)
    no_context = asked[1].index("")
    assert found["answer"][no_context] == "" == texts[no_context, 0]
    assert (found["begin"][no_context], found["end"][no_context]) == (-1, -1)
    assert chances[no_context].tolist() == [0.0] * 7


def test_one_text_is_answered_as_in_a_batch(served):
    for key, one in served[0].items():
        name, _, output = key.partition("/one/")
        if output:
            many = served[0][f"{name}/{output}"][1:2]
            if name == "words":  # padded to the text with the most spans
                many = many[:, : one.shape[1]]
            if one.dtype.kind == "f":
                assert np.abs(one - many).max(initial=0) < 1e-5, key
            else:
                assert (one == many).all(), key


def test_served_models_load_as_weights_again(served, built):
    folder = served[1]
    kinds = {"many": "labels"} | {kind: kind for kind in ("choice", "beams", "words")}
    for name, kind in kinds.items():
        source = weights.open_source(folder / name)
        assert source.config() == built[kind].config
        copy = weights.model_for(source, source.config())
        assert type(copy) is type(built[kind])
        made, original = copy.get_config(), built[kind].get_config()
        assert {**made, "name": ""} == {**original, "name": ""}
        weights.load(copy, folder / name)
        for ours, theirs in zip(copy.weights, built[kind].weights, strict=True):
            if ours.trainable:
                np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


@pytest.mark.parametrize("name", SAVED)
def test_no_rows_have_no_answers(name, served):
    every = outputs_of(served, name)
    nothing = {key for key in every if key.startswith("none/")}
    assert {f"none/{key}" for key in every if "/" not in key} == nothing
    assert all(len(every[key]) == 0 for key in nothing)


# Keras knows the sizes here, unlike in a saved graph.
@pytest.mark.filterwarnings("ignore:You are using a softmax over axis")
def test_no_questions_have_no_answers_of_a_linear_head(every):
    none = tf.constant([], tf.string)
    outputs = every["linear"][0].answer(question=none, context=none)
    assert outputs["answer"].shape == outputs["begin"].shape == (0,)
    assert len(outputs["n_best_answers"]) == 0
