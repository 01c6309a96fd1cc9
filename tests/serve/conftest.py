"""Small models of all kinds, and rows for them."""

import types

import keras
import pytest
from helpers import tiny

from albert_tf import weights
from albert_tf.model import models
from albert_tf.serve import convert
from albert_tf.weights import metadata

SIZES = {"vocab_size": 1500, "max_position_embeddings": 64, "type_vocab_size": 2}
SIZES |= {"num_attention_heads": 2, "initializer_range": 0.3}
CONFIG = tiny(**SIZES, num_hidden_layers=2)
SHALLOW = tiny(**SIZES, num_hidden_layers=1)
SHORT, LONG = "a file", "the value of each object in a list of strings is returned " * 2
SPANS = {"doc_stride": 16, "max_query_length": 12, "n_best_size": 5}
SPANS |= {"max_answer_length": 9, "start_n_top": 2, "end_n_top": 3}
CONDITIONAL = {**SPANS, "version": "2.0", "head": "conditional"}
LINEAR = {**SPANS, "version": "1.1", "head": "linear", "kind": "question_answering"}
# Spans of a text with repetitions have equal scores.
STORY = "".join(f"line {n} of file {n * n} is at {n + 5}. " for n in range(20))
QUESTION = {"question": SHORT, "context": STORY}
TEXT, PAIR = [{"text": SHORT}, {"text": ""}], [{"text_a": LONG, "text_b": SHORT}]
CHOICE = {"article": LONG, "question": "a _ b", "options": ["list", "tuple"]}
LABELS = {"labels": ["no", "yes", "maybe"], "texts": 1}
GAPS = [{"text": "a [MASK] and [MASK]"}, {"text": LONG * 9 + "[MASK]"}]
# By name: the model, its task.json (None: pretrained) and rows.
CASES = {
    "classification": (lambda: models.AlbertClassifier(CONFIG, 3), LABELS,
                       [{"text": LONG}, *TEXT]),
    "multi_label": (lambda: models.AlbertClassifier(CONFIG, 2),
                    {"labels": ["a", "b"], "texts": 2}, PAIR),
    "regression": (lambda: models.AlbertClassifier(CONFIG, 1),
                   {"bounds": [-1, 1], "texts": 2,
                    "text_columns": ["first", "second"]}, PAIR),
    "multiple_choice": (lambda: models.AlbertMultipleChoice(SHALLOW),
                        {"max_qa_length": 20}, [CHOICE]),
    "question_answering": (lambda: models.AlbertConditionalSpanLabeler(SHALLOW, 2, 3),
                           {**CONDITIONAL, "null_score_diff_threshold": 100.0},
                           [QUESTION, {"question": LONG, "context": ""}]),
    "linear": (lambda: models.AlbertSpanLabeler(SHALLOW),
               {**LINEAR, "null_score_diff_threshold": None}, [QUESTION]),
    "token_classification": (lambda: models.AlbertTokenClassifier(SHALLOW, 3),
                             {"labels": ["O", "B-A", "I-A"]},
                             [{"text": LONG * 3}, {"text": ""}]),
    "fill_mask": (lambda: models.AlbertPretrainer(CONFIG), None, GAPS),
    "score": (lambda: models.AlbertPretrainer(CONFIG), None, TEXT),
    "sentence_order": (lambda: models.AlbertPretrainer(CONFIG), None, PAIR),
}  # fmt: skip


@pytest.fixture(scope="session")
def cases():
    """The models and rows of each kind, and their configuration."""
    return types.SimpleNamespace(config=CONFIG, by_name=CASES)


@pytest.fixture(scope="session")
def run_of(tmp_path_factory, tokenizer):
    """Returns the folder of a case; cases without a task share a folder."""
    keras.utils.set_random_seed(3)
    folders = {}
    for case, (build, task, _) in CASES.items():
        path = tmp_path_factory.mktemp(case)
        if task:
            stored = {"kind": case, "max_seq_length": 40, **task}
            metadata.write(path, tokenizer, stored)
        elif "pretrained" in folders:
            continue
        else:
            case = "pretrained"
            (path / "spm.model").write_bytes(tokenizer.contents)
        folders[case] = path
        weights.save(build(), path, "tf1")
    return lambda case: folders.get(case, folders["pretrained"])


@pytest.fixture(scope="session")
def converted(tmp_path_factory, run_of):
    """Returns the folder of a case, and its conversion for another runtime."""
    pytest.importorskip("onnxruntime")
    done = {}

    def make(case, format):
        run = run_of(case)
        if (run, format) not in done:
            written = done[run, format] = tmp_path_factory.mktemp("written") / "x.y"
            paths = {"input": str(run), "output": str(written)}
            convert.convert(convert.ConversionSettings(**paths, output_format=format))
        return run, done[run, format]

    return make


@pytest.fixture(scope="session")
def assert_alike():
    """Compares nested answers; the tolerance of numbers is 2e-5."""

    def check(found, expected):
        keras.tree.assert_same_structure(found, expected)
        flat = (keras.tree.flatten(each) for each in (found, expected))
        for one, other in zip(*flat, strict=True):
            exact = isinstance(other, str | int)
            assert one == (other if exact else pytest.approx(other, abs=2e-5))

    return check
