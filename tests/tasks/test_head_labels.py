"""Heads of other programs: their labels are matched with those of a task by name."""

import io
import json
import re

import keras
import numpy as np
import pytest

from albert_tf import weights
from albert_tf.errors import InputError
from albert_tf.model import models
from albert_tf.serve import predict
from albert_tf.tasks import head_labels
from albert_tf.tasks.classification import Classification
from albert_tf.tasks.settings.classification import ClassifierRunSettings
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings, ModelSettings
from albert_tf.tasks.settings.squad import SquadRunSettings
from albert_tf.tasks.squad.task import QuestionAnswering
from albert_tf.tasks.tagging.task import Tagging

NLI = ("contradiction", "entailment", "neutral")
TAGS = ("O", "B-LOC", "I-LOC")
RUNS = {
    "mnli": (Classification, ClassifierRunSettings),
    "custom": (Classification, ClassifierRunSettings),
    "tagging": (Tagging, FineTuningSettings),
    "squad": (QuestionAnswering, SquadRunSettings),
}
TRAIN = {"do_train": True, "num_train_steps": 1, "train_batch_size": 3, "log_steps": 1}

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.mark.parametrize(
    ("labels", "head", "names", "order"),
    [
        (NLI, ["entailment", "neutral", "contradiction"], (), [2, 0, 1]),
        (NLI, ["Entailment", "NEUTRAL ", "Contradiction"], (), [2, 0, 1]),
        (("entailment", "not_entailment"), ["not entailment", "entails"], (), [1, 0]),
        (("entailment", "not_entailment"), ["Non-Entailment", "ENTAILED"], (), [1, 0]),
        (("0", "1"), ["LABEL_1", "LABEL_0"], ("negative", "positive"), [1, 0]),
        (("0", "1"), ["POSITIVE", "neg"], ("negative", "positive"), [1, 0]),
        (("0", "1"), ["paraphrase", "not_duplicate"], ("not_equivalent", "equivalent"),
         [1, 0]),
        (("0", "1"), ["acceptable", "unacceptable"], ("unacceptable", "acceptable"),
         [1, 0]),
        (TAGS, ["b-loc", "I_LOC", "o"], (), [2, 0, 1]),
        (("a", "A"), ["A", "a"], (), [1, 0]),
        # Of these nothing can be said.
        (("a", "A"), ["A ", "a"], (), None),
        (("-1", "0"), ["1", "0"], (), None),
        (("1", "2"), ["LABEL_0", "LABEL_1"], (), None),
        (NLI, ["LABEL_0", "LABEL_1", "LABEL_2"], (), None),
        (NLI, ["entailment", "neutral"], (), None),
        (("yes", "no"), ["positive", "negative"], (), None),
    ],
)  # fmt: skip
def test_labels_are_matched_by_their_names(labels, head, names, order):
    assert head_labels.match(labels, head, names) == order


@pytest.fixture
def model(tmp_path, tokenizer, tiny):
    """Writes a folder of Hugging Face whose head has its rows in some order."""
    sizes = {"vocab_size": 1500, "max_position_embeddings": 40, "num_hidden_layers": 1}
    config = tiny(**sizes, classifier_dropout_prob=0.0, initializer_range=0.5)

    def make(name, kind, labels, order=None, named=None, **changes):
        keras.utils.set_random_seed(5)
        classes = {
            "token_classification": models.AlbertTokenClassifier,
            "question_answering": lambda config, _: models.AlbertSpanLabeler(config),
        }
        model = classes.get(kind, models.AlbertClassifier)(config, len(labels))
        order = list(range(len(labels)) if order is None else order)
        if kind != "question_answering":
            output = model.head.output_dense
            kernel = np.random.default_rng(7).normal(size=output.kernel.shape)
            output.kernel.assign(kernel[:, order])
            output.bias.assign(np.arange(len(labels))[order])
        named = named or [labels[i] for i in order]
        task = {"kind": kind, "labels": named}
        path = weights.save(
            model, tmp_path / name, "hf", tokenizer=tokenizer, task=task
        )
        values = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**values, **changes}))
        return path

    return make


@pytest.fixture
def run(tmp_path, fine_tune, data):
    """Runs a script on a folder; returns the log and all files with answers."""
    answer = {"text": "a list", "answer_start": 10}
    asked = {"id": "1", "question": "what is a file?", "answers": [answer]}
    paragraph = {"context": "a file is a list of strings", "qas": [asked]}
    squad = {"version": "1.1", "data": [{"paragraphs": [paragraph]}]}
    tables = {
        "sentences.txt": "a B-LOC\nfile I-LOC\nis O\n\nlist B-LOC\nof O\n\n",
        "table.tsv": "text\tlabel\na file\tgood\na list\tbad\nstring\tgood\nit\tnone\n",
        "squad.json": json.dumps(squad),
    }
    for name, text in tables.items():
        (tmp_path / name).write_text(text)

    def named_file(name, *flags):
        return {f"{flag}_file": str(tmp_path / name) for flag in flags}

    table = named_file("table.tsv", "train", "dev", "test")
    named = {
        "mnli": {"task_name": "mnli", "data_dir": str(data / "glue_own")},
        "custom": {"task_name": "custom", **table},
        "tagging": named_file("sentences.txt", "train", "eval", "predict"),
        "squad": {
            "max_query_length": 8,
            **named_file("squad.json", "train", "predict"),
        },
    }

    def call(what, start, output, **flags):
        batches = {"eval_batch_size": 32, "predict_batch_size": 32}  # all rows
        flags = {**named[what], **batches, "do_eval": True, **flags}
        flags |= {"init_checkpoint": str(start), "output_dir": str(tmp_path / output)}
        flags = {name: value for name, value in flags.items() if value is not None}
        log = fine_tune(*RUNS[what], flags, ModelSettings(), io.StringIO())
        files = sorted((tmp_path / output).glob("*_results*"))
        files += sorted((tmp_path / output).glob("*predictions*"))
        return log, {path.name: path.read_text() for path in files}

    return call


CASES = {
    "mnli": ("classification", NLI),
    "custom": ("classification", ("bad", "good", "none")),
    "tagging": ("token_classification", TAGS),
}


def numbers(text):
    found = re.findall(r"-?\d+\.\d+(?:e-?\d+)?", text)
    return np.array(found, float)


@pytest.mark.parametrize(
    ("what", "training"),
    [
        *(("mnli", {}), ("custom", TRAIN)),
        *(pytest.param(w, TRAIN, marks=pytest.mark.slow) for w in ("mnli", "tagging")),
    ],
    ids=["evaluation", "custom", "mnli", "tagging"],
)
def test_the_order_of_a_head_changes_nothing(model, run, what, training):
    kind, labels = CASES[what]
    flags = {"do_predict": True, **training}
    log, expected = run(what, model("a", kind, labels), "run-a", **flags)
    assert f"its labels: {', '.join(labels)}" in log
    log, found = run(what, model("b", kind, labels, [2, 0, 1]), "run-b", **flags)
    assert f"its labels: {labels[2]}, {labels[0]}, {labels[1]}" in log
    assert expected.keys() == found.keys() and len(found) > 1
    for name, text in expected.items():
        np.testing.assert_allclose(numbers(found[name]), numbers(text), atol=2e-5)
        if not numbers(text).size:
            assert found[name] == text, name


def test_names_that_do_not_match_are_refused_unless_a_flag_says_the_order(
    model, run, refuses
):
    order = ["entailment", "neutral", "contradiction"]
    right, _ = run("mnli", model("a", "classification", NLI), "run-a")
    unnamed = [f"LABEL_{i}" for i in range(3)]
    start = model("b", "classification", NLI, [1, 2, 0], unnamed)
    with refuses(
        f"{start}: the labels of the head are LABEL_0, LABEL_1, LABEL_2, but the "
        f"labels of the task are contradiction, entailment, neutral; expected --labels "
        f"with the task's labels in the order of the head"
    ):
        run("mnli", start, "run-b")
    log, _ = run("mnli", start, "run-c", labels=tuple(order))
    assert "its labels: entailment, neutral, contradiction" in log
    metrics = re.compile(r"eval_acc\S* \d\S+")
    assert metrics.findall(log) == metrics.findall(right) != []
    # A flag counts more than names.
    start = model("d", "classification", NLI, [1, 2, 0], NLI)
    log, _ = run("mnli", start, "run-d", labels=tuple(order))
    assert metrics.findall(log) == metrics.findall(right)
    # To be trained, the task gets a head of its own.
    log, _ = run("mnli", model("e", "classification", NLI, None, unnamed), "e", **TRAIN)
    assert "a new head, as the labels of the head are LABEL_0, LABEL_1, LABEL_2" in log
    with pytest.raises(InputError, match=r"^--labels=a,b,c: must be the labels of mnl"):
        run("mnli", start, "run-f", labels=("a", "b", "c"))
    # The head of another kind does not fit, either.
    start = model("g", "token_classification", NLI)
    with pytest.raises(InputError, match="g: its head is for token_classification, no"):
        run("mnli", start, "run-g")
    log, _ = run("mnli", start, "run-g", **TRAIN)
    assert "a new head, as its head is for token_classification, not for" in log


def test_own_tables_and_sentences_take_labels_from_the_head(model, run):
    start = model("a", "classification", ("none", "bad", "good"))
    log, _ = run("custom", start, "run-a", train_file=None, test_file=None)
    assert "its labels: none, bad, good" in log
    more = ("I-PER", "I-LOC", "B-PER", "B-LOC", "O")
    start = model("b", "token_classification", more)
    for flags in ({"train_file": None}, TRAIN):
        log, _ = run("tagging", start, f"run-{len(flags)}", **flags)
        assert f"its labels: {', '.join(more)}" in log
    start = model("c", "token_classification", more, None, ["a", "b", "c", "d", "e"])
    log, _ = run("tagging", start, "run-c", train_file=None, labels=more)
    assert f"its labels: {', '.join(more)}" in log


SLOW_TRAIN = pytest.param(TRAIN, marks=pytest.mark.slow)
ASKED = {"question": "what is a file?", "context": "a file is a list"}


# Of each: the kind of the head, its labels, a row to answer, and a key of the answer.
@pytest.mark.parametrize("flags", [{}, SLOW_TRAIN], ids=["predicts", "trains"])
@pytest.mark.parametrize(
    ("what", "kind", "labels", "row", "key"),
    [
        ("squad", "question_answering", (), ASKED, "null_odds"),
        ("tagging", "token_classification", TAGS, "a file is a list", "spans"),
    ],
)
def test_a_run_leaves_a_folder_that_answers(
    model, run, tmp_path, what, kind, labels, row, key, flags
):
    start, is_squad = model("a", kind, labels), what == "squad"
    flags = {"do_predict": True, "do_eval": not is_squad, **flags}
    if is_squad:
        flags["version_2_with_negative"] = True
    log, _ = run(what, start, "run", **flags)
    assert "and the head" in log or "do_train" not in flags
    answer = predict.load(tmp_path / "run")
    (found,) = answer([row])
    assert key in found
    assert answer.task.get("head") == ("linear" if is_squad else None)
    if "do_train" not in flags:
        options = predict.PipelineSettings(threshold=0.0 if is_squad else None)
        assert list(predict.load(start, options)([row])) == [found]
        run(what, start, "run", **flags)  # again
        with pytest.raises(InputError, match=f"has the model '{start}', not "):
            run(what, model("b", kind, labels), "run", **flags)
