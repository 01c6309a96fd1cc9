"""Exported folders answer without TensorFlow, like the models of their source."""

import json
import shutil
import subprocess
import sys

import pytest
from helpers import slow_except

from albert_tf import InputError
from albert_tf.serve import convert, predict

ANSWER = """
import json, sys
from albert_tf import predict
answers = []
for folder, task, rows in json.load(sys.stdin):
    options = predict.PipelineSettings(task=task)
    answers.append(list(predict.load(folder, options)(rows)))
print(json.dumps([answers, sorted({name.split(".")[0] for name in sys.modules})]))
"""

FREQUENT = ("classification", "multiple_choice", "linear", "fill_mask")


@pytest.mark.parametrize("frequent", slow_except([True], [True, False]))
def test_they_answer_without_tensorflow_and_alike(
    converted, cases, assert_alike, frequent
):
    names = [case for case in cases.by_name if (case in FREQUENT) == frequent]
    asked = [(case, "onnx") for case in names]
    asked.append(("classification" if frequent else "fill_mask", "litert"))
    given, expected = [], []
    for case, format in asked:
        _, task, rows = cases.by_name[case]
        run, written = converted(case, format)
        name = None if task else case
        given.append((str(written), name, rows))
        options = predict.PipelineSettings(task=name)
        expected.append(list(predict.load(run, options)(rows)))
    result = subprocess.run(
        [sys.executable, "-c", ANSWER],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
    )
    answers, modules = json.loads(result.stdout)
    assert_alike(answers, expected)
    assert "onnxruntime" in modules and "ai_edge_litert" in modules
    heavy = {"tensorflow", "tensorflow_text", "keras", "sklearn", "matplotlib", "onnx"}
    assert not heavy & set(modules)


def refused(path, **options):
    with pytest.raises(InputError) as mistake:
        predictor = predict.load(path, predict.PipelineSettings(**options))
        next(predictor([dict.fromkeys(predictor.fields, "[MASK]")]))
    return str(mistake.value)


def test_what_it_cannot_answer_is_refused(converted, tmp_path):
    run, written = converted("classification", "onnx")
    file = written / "albert.onnx"
    for task in ("sentence_order", "fill_mask", "embedding"):
        assert refused(written, task=task) == (
            f"--task={task}: {file} only has logits; pass the folder that it was "
            f"converted from"
        )
    assert refused(written, runtime="litert") == (
        f"--runtime=litert: {file} only runs in onnx"
    )
    with pytest.raises(InputError, match=r"^--checkpoint=newest: .* is one model$"):
        predict.load(written, checkpoint="newest")
    assert refused(written, layer=1).startswith("--layer=1: classification only takes")
    assert refused(written, max_seq_length=65).startswith("--max_seq_length=65: must")
    assert refused(file) == (
        f"{file}: a model of token ids, not of text; pass a folder that "
        f"convert_checkpoint.py wrote"
    )
    with pytest.raises(InputError, match="cannot export classification; pass"):
        predict.load(written).export(tmp_path / "served")
    paths = {"input": str(run), "output": str(written)}
    again = convert.ConversionSettings(**paths, output_format="litert")
    with pytest.raises(InputError, match=r"albert.onnx: exists; use another folder"):
        convert.convert(again)


def test_labels_that_do_not_fit_are_named(converted, tmp_path, refuses):
    _, written = converted("classification", "onnx")
    copy = shutil.copytree(written, tmp_path / "copy")
    task = copy / "task.json"
    task.write_text(task.read_text().replace('"maybe"', '"maybe", "never"'))
    with refuses(
        "4 labels (no, yes, maybe, never); expected 3, one for each output of the model"
    ):
        list(predict.load(copy)(["a file"]))
