"""Exported folders answer without TensorFlow, and as what they were made from."""

import io
import json
import shutil
import subprocess
import sys

import keras
import pytest

from albert_tf import AlbertConfig, InputError, weights
from albert_tf.model import models
from albert_tf.serve import convert, predict, sessions
from albert_tf.tasks import base, pretrained, row_answers
from albert_tf.text import tokenization
from albert_tf.weights import metadata

CONFIG = AlbertConfig(
    vocab_size=1500,
    embedding_size=8,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=20,
    max_position_embeddings=64,
    initializer_range=0.3,
)
SHORT, LONG = "a file", "the value of each object in a list of strings is returned " * 2
SPANS = {
    "doc_stride": 16,
    "max_query_length": 12,
    "n_best_size": 5,
    "max_answer_length": 9,
    "start_n_top": 2,
    "end_n_top": 3,
    "null_score_diff_threshold": None,
}
# Of a text that repeats itself, spans are as good as each other.
STORY = "".join(f"line {n} of file {n * n} is at {n + 5}. " for n in range(20))
QUESTION = {"question": SHORT, "context": STORY}
CASES = {
    "classification": (
        lambda: models.AlbertClassifier(CONFIG, 3),
        {"labels": ["no", "yes", "maybe"], "texts": 1},
        [{"text": LONG}, {"text": SHORT}, {"text": ""}],
    ),
    "multi_label": (
        lambda: models.AlbertClassifier(CONFIG, 2),
        {"labels": ["a", "b"], "texts": 2},
        [{"text_a": LONG, "text_b": SHORT}],
    ),
    "regression": (
        lambda: models.AlbertClassifier(CONFIG, 1),
        {"bounds": [-1, 1], "texts": 2},
        [{"text_a": LONG, "text_b": SHORT}],
    ),
    "multiple_choice": (
        lambda: models.AlbertMultipleChoice(CONFIG),
        {"max_qa_length": 20},
        [{"article": LONG, "question": "a _ b", "options": ["list", "tuple"]}],
    ),
    "question_answering": (
        lambda: models.AlbertConditionalSpanLabeler(CONFIG, 2, 3),
        {**SPANS, "version": "2.0", "head": "conditional"},
        [QUESTION, {"question": LONG, "context": ""}],
    ),
    "linear": (
        lambda: models.AlbertSpanLabeler(CONFIG),
        {**SPANS, "kind": "question_answering", "version": "1.1", "head": "linear"},
        [QUESTION],
    ),
    "fill_mask": (
        lambda: models.AlbertPretrainer(CONFIG),
        None,
        [{"text": "a [MASK] and [MASK]"}, {"text": LONG * 9 + "[MASK]"}],
    ),
    "sentence_order": (
        lambda: models.AlbertPretrainer(CONFIG),
        None,
        [{"text_a": SHORT, "text_b": LONG}],
    ),
}
ANSWER = """
import json, sys
from albert_tf import predict
answers = []
for folder, task, rows in json.load(sys.stdin):
    options = predict.AnswerSettings(task=task)
    answers.append(list(predict.load(folder, options)(rows)))
print(json.dumps([answers, sorted({name.split(".")[0] for name in sys.modules})]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, data):
    """Returns the folder of a run, and what was converted from it."""
    pytest.importorskip("onnxruntime")
    keras.utils.set_random_seed(3)
    tokenizer = tokenization.SentencePieceTokenizer(str(data / "spm_small.model"))
    done = {}

    def make(case, format):
        build, task, _ = CASES[case]
        # Those without a task are answered by the same model.
        key = case if task else "pretrained"
        if key not in done:
            path = done[key] = tmp_path_factory.mktemp(key)
            if task:
                stored = {"kind": case, "max_seq_length": 40, **task}
                metadata.write_task(path, tokenizer, stored)
            else:
                (path / "spm.model").write_bytes(tokenizer.model)
            weights.save(build(), path, "tf1")
        if (key, format) not in done:
            written = done[key, format] = tmp_path_factory.mktemp("written") / "x.y"
            convert.convert(
                convert.ConversionSettings(
                    input=str(done[key]), output=str(written), output_format=format
                )
            )
        return done[key], done[key, format]

    return make


def test_they_answer_without_tensorflow_and_alike(folder):
    asked = [(case, "onnx") for case in CASES]
    asked += [("classification", "litert"), ("fill_mask", "litert")]
    given, expected = [], []
    for case, format in asked:
        _, task, rows = CASES[case]
        run, written = folder(case, format)
        name = None if task else case
        given.append((str(written), name, rows))
        options = predict.AnswerSettings(task=name)
        expected.append(list(predict.load(run, options)(rows)))
    result = subprocess.run(
        [sys.executable, "-c", ANSWER],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
    )
    answers, modules = json.loads(result.stdout)
    for (case, format), ours, theirs in zip(asked, answers, expected, strict=True):
        flat = [keras.tree.flatten(each) for each in (ours, theirs)]
        for one, other in zip(*flat, strict=True):
            exact = isinstance(other, str | int)
            right = other if exact else pytest.approx(other, abs=2e-5)
            assert one == right, (case, format, ours, theirs)
    assert "onnxruntime" in modules and "ai_edge_litert" in modules
    heavy = {"tensorflow", "tensorflow_text", "keras", "sklearn", "matplotlib", "onnx"}
    assert not heavy & set(modules)


@pytest.mark.parametrize("change", [None, "another model", "no model", "removed"])
def test_the_first_batch_comes_soon_and_others_faster(
    change, folder, tmp_path, monkeypatch
):
    path = tmp_path / "albert.onnx"
    shutil.copy(folder("classification", "onnx")[1] / path.name, path)
    real, opened, ran = sessions._onnx_session, [], []

    class Recording:
        def __init__(self, *given):
            self._session, self.packed = real(*given), given[-1]
            self.get_inputs = self._session.get_inputs
            self.get_outputs = self._session.get_outputs

        def run(self, *given):
            ran.append(self.packed)
            return self._session.run(*given)

    def open_session(path, num_threads, packed):
        opened.append((num_threads, packed))
        return Recording(path, num_threads, packed)

    monkeypatch.setattr(sessions, "_onnx_session", open_session)
    batch = {key: [[1, 1, 1]] for key in ("input_ids", "input_mask", "segment_ids")}
    session = sessions.load(path, 1, soon=True)
    [first] = session(batch)["logits"]
    assert opened == [(1, False)]
    if change:
        path.unlink()
    if change == "another model":
        shutil.copy(folder("multi_label", "onnx")[1] / path.name, path)
    if change == "no model":
        path.write_text("another file")
    for _ in range(2):
        [other] = session(batch)["logits"]
        assert other == pytest.approx(first, abs=2e-5)
    assert opened == [(1, False), (1, True)]
    assert ran == [False] + 2 * [change is None]
    sessions.load(folder("classification", "onnx")[1] / path.name)
    assert opened[2:] == [(None, True)]


def test_the_folder_holds_what_an_answer_needs(folder):
    run, written = folder("classification", "onnx")
    assert sorted(path.name for path in written.iterdir()) == [
        "albert.onnx",
        "albert_config.json",
        "spm_small.model",
        "task.json",
    ]
    assert metadata.read_task(written) == metadata.read_task(run)
    _, written = folder("fill_mask", "onnx")
    assert "vocabulary.json" in {path.name for path in written.iterdir()}


def refused(path, **options):
    with pytest.raises(InputError) as mistake:
        predict.load(path, predict.AnswerSettings(**options))
    return str(mistake.value)


def test_what_it_cannot_answer_is_refused(folder, tmp_path):
    run, written = folder("classification", "onnx")
    file = written / "albert.onnx"
    source = "the folder that it was converted from"
    for task in ("sentence_order", "fill_mask", "embedding"):
        message = f"--task={task}: {file} gives logits; expected {source}"
        assert refused(written, task=task) == message
    assert refused(written, runtime="litert") == (
        f"--runtime=litert: {file} runs in onnx; expected that"
    )
    with pytest.raises(InputError, match=r"^--checkpoint=newest: .* is one model$"):
        predict.load(written, checkpoint="newest")
    assert refused(written, layer=1).startswith("--layer=1: only for embedding;")
    assert refused(written, max_seq_length=65).startswith("--max_seq_length=65: expec")
    assert refused(file) == (
        f"{file}: a model that takes ids; expected the folder that "
        f"convert_checkpoint.py writes where --output names one"
    )
    with pytest.raises(InputError, match=f"another runtime computes.*{source}"):
        predict.load(written).service.save(tmp_path / "served")
    with pytest.raises(InputError, match=r"albert.onnx: exists; expected another fold"):
        convert.convert(
            convert.ConversionSettings(
                input=str(run), output=str(written), output_format="litert"
            )
        )


def test_kinds_have_the_names_of_their_families():
    assert tuple(pretrained.FAMILIES) == row_answers.PRETRAINED
    assert row_answers.OPTIONS.keys() <= {*base.families(), *pretrained.FAMILIES}


def test_damage_is_named(folder, tmp_path):
    _, written = folder("classification", "onnx")
    copy = shutil.copytree(written, tmp_path / "copy")
    file, task = copy / "albert.onnx", copy / "task.json"
    contents = file.read_bytes()
    file.write_bytes(contents[: len(contents) // 2])
    assert refused(copy) == f"{file}: no ONNX model"
    file.write_bytes(contents)
    task.write_text(task.read_text().replace('"maybe"', '"maybe", "never"'))
    with pytest.raises(InputError) as mistake:
        list(predict.load(copy)([SHORT]))
    assert str(mistake.value) == (
        f"{task}: 4 labels; expected 3, one for each output of the model"
    )


def test_the_command_names_the_file(folder):
    _, written = folder("classification", "onnx")
    log = io.StringIO()
    config = predict.PredictSettings(model=str(written))
    predict.run(config, predict.AnswerSettings(), [SHORT], log)
    assert log.getvalue() == f"Reading {written}/albert.onnx\n"
    assert sessions.find(written) == written / "albert.onnx"
