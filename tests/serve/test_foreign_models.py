"""Models of other programs answer raw text; their folders name the task."""

import functools
import json
import shutil

import keras
import numpy as np
import pytest
from helpers import refusal, slow_except

from albert_tf import InputError, weights
from albert_tf.model import models
from albert_tf.serve import convert, predict
from albert_tf.serve.settings import ConversionSettings
from albert_tf.tasks import registry
from albert_tf.weights import metadata
from albert_tf.weights.folder import ModelFolder

SEQUENCE = "AlbertForSequenceClassification"
MODELS = {
    SEQUENCE: models.AlbertClassifier,
    "AlbertForTokenClassification": models.AlbertTokenClassifier,
    "AlbertForQuestionAnswering": lambda config, k: models.AlbertSpanLabeler(config),
    "conditional": lambda config, k: models.AlbertConditionalSpanLabeler(config),
    "AlbertForMultipleChoice": lambda config, k: models.AlbertMultipleChoice(config),
    "AlbertForMaskedLM": lambda config, k: models.AlbertPretrainer(config, False),
}
TEXT, PAIR = {"text": "a file"}, {"text_a": "a file", "text_b": "a list"}
QUESTION = {"question": "what is a file?", "context": "a file is a list of strings"}
CHOICE = {"article": "a file", "question": "is it a list?", "options": ["yes", "no"]}
# For each: the class, changes of config.json, a row, and the keys of its answer.
FOLDERS = {
    "classes": (SEQUENCE, {"id2label": {"2": "c", "0": "a", "1": "b"}}, PAIR,
                {"probabilities": ["a", "b", "c"]}),
    "old": (SEQUENCE, {"id2label": None, "architectures": [SEQUENCE, "x"]}, TEXT,
            {"probabilities": ["LABEL_0", "LABEL_1"]}),
    "several": (SEQUENCE, {"id2label": {"0": "a", "1": "b", "2": "c"},
                           "problem_type": "multi_label_classification"}, TEXT,
                {"labels": None, "probabilities": ["a", "b", "c"]}),
    "number": (SEQUENCE, {"id2label": {"0": "stars"}}, PAIR, {"value": None}),
    "tags": ("AlbertForTokenClassification", {"id2label": {"0": "O", "1": "B-X"}},
             TEXT, {"spans": None}),
    "spans": ("AlbertForQuestionAnswering", {}, QUESTION, {"answer": None}),
    "choice": ("AlbertForMultipleChoice", {}, CHOICE, {"choice": None}),
    "gaps": ("AlbertForMaskedLM", {}, {"text": "a [MASK]"}, {"gaps": None}),
}  # fmt: skip

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture(scope="module")
def make(tiny):
    """Makes a model once for all tests."""

    @functools.cache
    def build(name, labels=2):
        keras.utils.set_random_seed(3)
        sizes = {"vocab_size": 1500, "max_position_embeddings": 140}
        config = tiny(**sizes, num_hidden_layers=1, initializer_range=0.5)
        return MODELS[name](config, labels)

    return build


@pytest.fixture
def folder(tmp_path, tokenizer, make):
    """Writes a folder as transformers writes it; returns its row."""

    def write(name):
        kind, changes, row, expected = FOLDERS[name]
        count = len(changes.get("id2label") or (1, 2))
        path = tmp_path / name
        weights.save(make(kind, count), path, "hf", tokenizer=tokenizer)
        values = json.loads((path / "config.json").read_text())
        for key in ("id2label", "label2id"):
            values.pop(key, None)
        values = {k: v for k, v in {**values, **changes}.items() if v is not None}
        (path / "config.json").write_text(json.dumps(values))
        return path, row, expected

    return write


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_of_hugging_face_answers(folder, name):
    path, row, expected = folder(name)
    (answer,) = predict.load(path)([row])
    for key, names in expected.items():
        assert key in answer
        assert names is None or list(answer[key]) == names


def convert_to(format, path, output):
    paths = {"input": str(path), "output": str(output)}
    convert.convert(ConversionSettings(**paths, output_format=format))


# tests/weights/test_loading.py writes the weights of all heads in all formats.
CONVERTED = [("classes", "tf1"), ("classes", "hf"), ("classes", "keras")]
CONVERTED += [("spans", "hf"), ("spans", "keras"), ("several", "hf"), ("number", "hf")]
CONVERTED += [("tags", "tf1")]
FAST = [("classes", "tf1"), ("several", "hf"), ("spans", "keras")]


@pytest.mark.parametrize("case", slow_except(FAST, CONVERTED), ids=" ".join)
def test_a_converted_folder_answers_alike(folder, tmp_path, case):
    name, format = case
    path, row, _ = folder(name)
    output = str(tmp_path / "new") + ("/a.keras" if format == "keras" else "")
    convert_to(format, path, output)
    (expected,), (actual,) = predict.load(path)([row]), predict.load(output)([row])
    assert expected == actual
    assert (tmp_path / "new/task.json").exists() == (format != "hf")


def test_a_row_is_one_text_or_two_where_no_file_says(folder, tmp_path):
    path, _, _ = folder("classes")
    predictor = predict.load(path)
    rows = [PAIR, "a file", {"text": "a file", "text_b": "a list"}, TEXT]
    both, first, *again = [answer["probabilities"] for answer in predictor(rows)]
    for answer, expected in zip(again, (both, first), strict=True):
        assert answer == pytest.approx(expected, abs=1e-6)
    assert first != pytest.approx(both, abs=1e-3)
    with pytest.raises(InputError, match=r"^row 1: text is missing; expected a text"):
        list(predictor([{"text_b": "a list"}]))
    lines = tmp_path / "lines.tsv"
    lines.write_text("a file\ta list\na file\n")
    files = {"input_file": str(lines), "output_file": str(tmp_path / "answers.jsonl")}
    settings = predict.PredictSettings(model=str(path), **files)
    predict.write_answers(settings, predict.PipelineSettings(runtime="tensorflow"))
    answers = (tmp_path / "answers.jsonl").read_text().splitlines()
    for answer, expected in zip(map(json.loads, answers), (both, first), strict=True):
        assert answer["probabilities"] == pytest.approx(expected, abs=1e-6)


RELEASED = {
    "classification": (SEQUENCE, PAIR, "label"),
    "multi_label": (SEQUENCE, TEXT, "labels"),
    "token_classification": ("AlbertForTokenClassification", TEXT, "spans"),
    "multiple_choice": ("AlbertForMultipleChoice", CHOICE, "choice"),
    "regression": ("AlbertForMultipleChoice", TEXT, "value"),  # also one output
    "question_answering": ("AlbertForQuestionAnswering", QUESTION, "answer"),
}


@pytest.fixture
def released(tmp_path, tokenizer, make):
    """Writes a checkpoint as the released code writes it."""

    def write(name, labels=2):
        path = tmp_path / name
        weights.save(make(name, labels), path, "tf1")
        (path / "30k-clean.model").write_bytes(tokenizer.contents)
        return path

    return write


# Folders of Hugging Face have the other two tasks.
@pytest.mark.parametrize(
    "task",
    slow_except(RELEASED.keys() - {"multi_label", "token_classification"}, RELEASED),
)
def test_a_released_checkpoint_answers_with_its_task(released, task):
    name, row, key = RELEASED[task]
    path = released(name)
    labels = (
        ("x", "y")
        if "labels" in registry.find_pipeline_class(task).option_names
        else None
    )
    options = predict.PipelineSettings(task=task, labels=labels)
    (answer,) = predict.load(path, options)([row])
    assert key in answer
    if "probabilities" in answer and labels:
        assert list(answer["probabilities"]) == ["x", "y"]
    if labels:
        with pytest.raises(InputError, match=rf"^--task={task}: needs --labels"):
            predict.load(path, predict.PipelineSettings(task=task))
    # The same with a task.json.
    written = {"kind": task, "labels": labels}
    (path / "task.json").write_text(json.dumps(written))
    (actual,) = predict.load(path)([row])
    assert actual == answer


@pytest.mark.parametrize(
    ("name", "options", "keys"),
    [
        ("AlbertForQuestionAnswering", {}, set()),
        ("AlbertForQuestionAnswering", {"threshold": 0.0}, {"null_odds"}),
        ("conditional", {}, {"null_odds"}),
    ],
)
def test_heads_of_squad_are_known_by_their_names(released, name, options, keys):
    predictor = predict.load(released(name), predict.PipelineSettings(**options))
    (answer,) = predictor([QUESTION])
    assert answer.keys() - {"answer", "begin", "end", "probability"} == keys


def test_labels_replace_those_of_a_folder(folder):
    path, row, _ = folder("classes")
    options = predict.PipelineSettings(labels=("x", "y", "z"))
    (answer,) = predict.load(path, options)([row])
    assert list(answer["probabilities"]) == ["x", "y", "z"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"architectures": ["AlbertModel"]}, None),
        ({"architectures": []}, None),
        ({"problem_type": "regression"}, None),  # several numbers
        ({"problem_type": "other"}, None),
        ({"id2label": {"0": "a", "2": "b"}}, "id2label="),
        ({"id2label": ["a", "b"]}, "'id2label' is a list; expected an object"),
        ({"id2label": {"0": 1, "1": 2}}, "id2label="),
    ],
)
def test_what_a_configuration_does_not_say(tmp_path, changes, expected):
    values = {"architectures": [SEQUENCE]}
    (tmp_path / "config.json").write_text(json.dumps({**values, **changes}))
    if expected is None:
        assert metadata.find_task(tmp_path) == {}
        return
    message = refusal(metadata.find_task, tmp_path)
    assert message.startswith(f"{tmp_path}/config.json: {expected}")


def test_a_preset_of_kerashub_answers(tmp_path, data):
    keras_hub = pytest.importorskip("keras_hub")
    sizes = {"vocabulary_size": 1500, "max_sequence_length": 32, "embedding_dim": 4}
    sizes |= {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12}
    backbone = keras_hub.models.AlbertBackbone(**sizes)
    vocabulary = (data / "spm_small.model").read_bytes()
    preprocessor = keras_hub.models.AlbertTextClassifierPreprocessor(
        keras_hub.tokenizers.AlbertTokenizer(vocabulary), 16
    )
    model = keras_hub.models.AlbertTextClassifier(backbone, 3, preprocessor)
    path = tmp_path / "preset"
    model.save_to_preset(str(path))
    assert ModelFolder(path).task == {}
    options = predict.PipelineSettings(task="classification", labels=("a", "b", "c"))
    (answer,) = predict.load(path, options)([TEXT])
    logits = model(preprocessor(["a file"]))[0]
    expected = np.exp(logits) / np.exp(logits).sum()
    actual = list(answer["probabilities"].values())
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_a_folder_without_a_vocabulary_keeps_its_labels(folder, tmp_path, data):
    path, row, _ = folder("classes")
    for name in ("spiece.model", "tokenizer.json", "tokenizer_config.json"):
        (path / name).unlink()
    output = tmp_path / "new"
    convert_to("tf1", path, output)
    shutil.copy(data / "spm_small.model", output)
    (answer,) = predict.load(output)([row])
    assert list(answer["probabilities"]) == ["a", "b", "c"]
