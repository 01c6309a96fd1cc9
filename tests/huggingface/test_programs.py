"""Hugging Face's programs answer as this package does (`make test-all`).

TensorFlow and PyTorch crash each other where TensorFlow is imported first, so one
process without TensorFlow answers for the whole file.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from helpers import ROOT, SMALL_MODEL, tiny

from albert_tf import weights
from albert_tf.model import models
from albert_tf.serve import predict
from albert_tf.text import tokenization
from albert_tf.weights import metadata

missing = [n for n in ("torch", "transformers") if not importlib.util.find_spec(n)]
if missing:
    reason = f"needs {' and '.join(missing)} (make test-all)"
    pytest.skip(reason, allow_module_level=True)

CONFIG = tiny(vocab_size=1500, num_hidden_layers=1, max_position_embeddings=64)
ONE_LAYER = tiny(num_hidden_layers=1)
GROUPED = tiny(num_hidden_layers=2, num_hidden_groups=2, inner_group_num=2)
MODELS = {
    "encoder": models.AlbertEncoder,
    "pretrainer": models.AlbertPretrainer,
    "bare_masked_lm": lambda config: models.AlbertPretrainer(config, False),
    "classifier": lambda config: models.AlbertClassifier(config, 5),
    "choice": models.AlbertMultipleChoice,
    "tokens": lambda config: models.AlbertTokenClassifier(config, 5),
    "span": models.AlbertSpanLabeler,
}
LONG = "the value of each object in a list of strings is returned " * 9
ROWS = ["a file", "Größe and größe (1998) - café", "😀 ok", "", "in 1,000", LONG]
ROWS = [{"text": text} for text in ROWS]
PAIRS = [{"text_a": "a file", "text_b": "A List."}, {"text_a": "x", "text_b": LONG}]
RUNS = {
    "classification": (["größe", "no", "yes"], ROWS),
    "multi_label": (["a", "b"], PAIRS),
    "regression": (None, PAIRS),
}
GAPS = ["The [MASK] of a [MASK].", "[MASK] is a list, [MASK]."]
SCORED = ["a file", "The value of each object in a list.", "Größe", "😀 ok", ""]
TEXTS = ["`quoted' text", "ΩΣ", "각 한국어", "tab\there", *(r["text"] for r in ROWS)]


def write_runs(folder, tokenizer):
    """Exports runs of all kinds; returns what predict answers."""
    answers = {}
    for kind, (labels, rows) in RUNS.items():
        keras.utils.set_random_seed(3)
        model = models.AlbertClassifier(CONFIG, len(labels or "1"))
        task = {"kind": kind, "labels": labels, "max_seq_length": 40}
        task |= {"texts": 2 if rows is PAIRS else 1, "bounds": None}
        run = folder / f"run_{kind}"
        metadata.write(run, tokenizer, task)
        weights.save(model, run, "tf1")
        answers[kind] = list(predict.load(run)(rows))
        weights.save(model, folder / kind, "hf", tokenizer=tokenizer, task=task)
    return answers


@pytest.fixture(scope="module")
def both(module_eagerly, tokens, arrays, tmp_path_factory):
    """What this package makes of everything, and what transformers does."""
    folder = tmp_path_factory.mktemp("both")
    tokenizer = tokenization.SentencePieceTokenizer(SMALL_MODEL)
    batch = {key: x for key, x in tokens().items() if key != "masked_lm_positions"}
    ours = {}
    for name, make in MODELS.items():
        model = make(GROUPED if name == "encoder" else ONE_LAYER)
        weights.save(model, folder / name, "hf")
        choice = isinstance(model, models.AlbertMultipleChoice)
        inputs = {key: x[:, None] for key, x in batch.items()} if choice else batch
        ours[name] = arrays(model(inputs))
    ours |= write_runs(folder, tokenizer)
    keras.utils.set_random_seed(4)
    pretrained = folder / "pretrained"
    pretrained.mkdir()
    (pretrained / "spm.model").write_bytes(tokenizer.contents)
    model = models.AlbertPretrainer(CONFIG, sentence_head=False)
    weights.save(model, pretrained, "tf1")
    weights.save(model, folder / "masked_lm", "hf", tokenizer=tokenizer)
    fill = predict.load(pretrained, predict.PipelineSettings(task="fill_mask", top_k=3))
    ours["gaps"] = [
        gap for row in fill({"text": t} for t in GAPS) for gap in row["gaps"]
    ]
    ours["ids"] = tokenizer.encode_batch(TEXTS)
    score = predict.load(pretrained, predict.PipelineSettings(task="score"))
    ours["scores"] = list(score(SCORED))

    plan = {"models": [*MODELS], "classify": [*RUNS], "gaps": GAPS, "texts": TEXTS}
    plan["scored"] = SCORED
    plan |= {kind: (kind, rows) for kind, (_, rows) in RUNS.items()}
    (folder / "plan.json").write_text(json.dumps(plan))
    np.savez(folder / "inputs.npz", **batch)
    environ = {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    environ["OMP_NUM_THREADS"] = "1"  # threads that wait for work use the processor
    done = subprocess.run(
        [sys.executable, "-P", Path(__file__).with_name("programs.py"), folder],
        capture_output=True,
        text=True,
        env=os.environ | environ,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    with np.load(folder / "outputs.npz") as outputs:
        theirs = dict(outputs)
    return ours, theirs | json.loads((folder / "answers.json").read_text()), folder


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("encoder", ("sequence_output", "pooled_output")),
        ("pretrainer", ("mlm_logits", "sop_logits")),
        ("bare_masked_lm", ("mlm_logits",)),
        ("classifier", ("logits",)),
        ("choice", ("logits",)),
        ("tokens", ("logits",)),
        ("span", ("start_logits", "end_logits")),
    ],
)
def test_outputs_are_the_same(name, keys, both, tokens):
    ours, theirs, _ = both
    for key in keys:
        a, b = ours[name][key], theirs[f"{name}/{key}"]
        if a.ndim > 1 and a.shape[:2] == (2, 7):  # leave padding out
            real = tokens()["input_mask"] > 0
            a, b = a[real], b[real]
        np.testing.assert_allclose(b.reshape(a.shape), a, rtol=0, atol=2e-5)


@pytest.mark.parametrize("kind", ["classification", "multi_label"])
def test_a_pipeline_answers_as_predict_does(both, kind):
    ours, theirs, _ = both
    for a, b in zip(ours[kind], theirs[kind], strict=True):
        assert kind == "multi_label" or b[0]["label"] == a["label"]
        scores = {found["label"]: found["score"] for found in b}
        assert scores == pytest.approx(a["probabilities"], abs=1e-5)


def test_numbers_are_the_same(both):
    ours, theirs, _ = both
    for a, b in zip(ours["regression"], theirs["regression"], strict=True):
        ((found),) = b
        assert found["score"] == pytest.approx(a["value"], abs=1e-5)


def test_gaps_are_filled_alike(both):
    ours, theirs, _ = both
    assert len(ours["gaps"]) == 4
    for a, b in zip(ours["gaps"], theirs["gaps"], strict=True):
        # A piece that no text has ends in a space there.
        assert [x["piece"].strip() for x in b] == [x["piece"] for x in a]
        chances = [x["probability"] for x in a]
        assert [x["probability"] for x in b] == pytest.approx(chances, abs=1e-5)


def test_scores_are_those_of_a_loop_over_masked_tokens(both):
    ours, theirs, _ = both
    assert len(ours["scores"]) == len(SCORED)
    for a, b in zip(ours["scores"], theirs["scores"], strict=True):
        assert a["tokens"] == len(b)
        assert a["score"] == pytest.approx(sum(b), abs=1e-4)


def test_ids_are_the_same(both):
    ours, theirs, _ = both
    assert theirs["ids"] == ours["ids"]
    assert theirs["modules"] == []  # no TensorFlow
