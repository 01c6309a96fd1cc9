"""The converter and its script."""

import dataclasses

import numpy as np
import pytest
from helpers import slow_except
from sentencepiece import sentencepiece_model_pb2

from albert_tf import commands, weights
from albert_tf.errors import InputError
from albert_tf.model import models
from albert_tf.serve import convert, runtimes
from albert_tf.text import tokenization
from albert_tf.weights import metadata
from albert_tf.weights.folder import ModelFolder


@pytest.fixture
def config(tiny):
    sizes = {"embedding_size": 6, "max_position_embeddings": 9, "type_vocab_size": 2}
    return tiny(**sizes, num_hidden_layers=1, initializer_range=0.02)


def settings(source, output, format, **more):
    return convert.ConversionSettings(
        input=str(source), output=str(output), output_format=format, **more
    )


def test_a_chain_of_conversions_gives_the_first_weights_back(
    tmp_path, capsys, config, settings_of
):
    model = models.AlbertPretrainer(config)
    first = weights.save(model, tmp_path / "first" / "model.ckpt", "tf1")
    flags = [f"--input={first}", f"--output={tmp_path}/two", "--output_format=hf"]
    script = settings_of("convert_checkpoint.py", *flags)
    commands.find_command("convert").main(*script)
    convert.convert(settings(tmp_path / "two", tmp_path / "three.keras", "keras"))
    convert.convert(settings(tmp_path / "three.keras", f"{tmp_path}/four/", "tf1"))
    copy = models.AlbertPretrainer(config)
    weights.load(copy, tmp_path / "four")
    for a, b in zip(model.trainable_variables, copy.trainable_variables, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        f"read     {first} (tf1): AlbertPretrainer, 32 weights, "
        f"{model.count_params():,} parameters, 0 other tensors skipped",
        f"written  {tmp_path / 'two'} (hf)",
        f"skipped  the vocabulary: none in {tmp_path / 'first'}; pass "
        f"--spm_model_file or --vocab_file",
    ]
    assert lines[3].startswith("checked  the written model, read again: largest ")
    assert len(lines) == 4 + 3 + 4  # a file of Keras has no vocabulary


def test_a_run_is_converted_from_its_newest_checkpoint_if_asked(tmp_path, config):
    model = models.AlbertEncoder(config)
    for number, name in enumerate(("best", "9")):
        model.pooler.bias.assign(np.full(12, number, np.float32))
        weights.save(model, tmp_path / f"run/model.ckpt-{name}", "tf1")
    out = f"{tmp_path}/out/"
    convert.convert(settings(tmp_path / "run", out, "tf1", checkpoint="newest"))
    assert (weights.open_source(out).read("bert/pooler/dense/bias") == 1).all()


@pytest.mark.parametrize(
    ("kind", "format", "precision", "bound"),
    [
        (models.AlbertPretrainer, "litert", "float32", convert.TOLERANCE),
        (models.AlbertPretrainer, "onnx", "int8", 0.5),
        (models.AlbertConditionalSpanLabeler, "onnx", "float32", convert.TOLERANCE),
        # test_sessions converts this model, too.
        pytest.param(
            *(models.AlbertMultipleChoice, "onnx", "float32", convert.TOLERANCE),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_file_for_another_runtime_is_run_there(
    kind, format, precision, bound, tmp_path, capsys, config
):
    if format == "onnx":
        pytest.importorskip("onnxruntime")
    path = weights.save(kind(config), tmp_path / "a.keras", "keras")
    output = tmp_path / f"b{runtimes.SUFFIXES[format]}"
    convert.convert(settings(path, output, format, precision=precision))
    read, written, checked = capsys.readouterr().out.splitlines()
    size = output.stat().st_size
    assert kind.__name__ in read
    assert written == f"written  {output} ({format}, {precision}, {size:,} bytes)"
    start, numbers = checked.split(f" in {format}: largest difference ")
    assert start == f"checked  {output}"
    words = numbers.replace(",", "").split()
    assert {"mlm_logits", "cls_logits", "logits"} & set(words[::2])
    assert all(float(number) < bound for number in words[1::2])


def test_the_input_is_never_overwritten(tmp_path, config):
    path = weights.save(models.AlbertEncoder(config), tmp_path / "in", "hf")
    with pytest.raises(InputError, match="must be a path other than --input"):
        convert.convert(settings(path, path, "hf"))
    with pytest.raises(InputError, match="--output='': must be a path other"):
        convert.convert(settings(path, "", "hf"))


def test_outputs_that_differ_fail_the_check(refuses):
    ours = {"logits": np.array([[1.0, 2.0]])}
    theirs = {"logits": np.array([[1.0, 2.5]])}
    with refuses("check failed: the copy differs by more than 4e-01"):
        convert._compare("the copy", ours, theirs, np.ones((1, 4)), 0.4)
    convert._compare("the copy", ours, theirs, np.ones((1, 4)), 0.6)
    ours, theirs = ({"states": np.array([[[1.0], [x]]])} for x in (2.0, 9.0))
    convert._compare("padding", ours, theirs, np.array([[1, 0]]), 0.0)


KINDS = [models.AlbertPretrainer, models.AlbertEncoder]
FORMATS = ["tf1", "keras", "hf"]


@pytest.mark.parametrize("kind", slow_except(KINDS[:1], KINDS))
@pytest.mark.parametrize("format", slow_except(FORMATS[:1], FORMATS))
def test_a_model_grows(kind, format, tmp_path, capsys, config):
    model = kind(config)
    weights.save(model, tmp_path / "small", "tf1")
    output = tmp_path / ("large.keras" if format == "keras" else "large")
    sizes = {"vocab_size": 31, "max_position_embeddings": 1024}
    convert.convert(settings(tmp_path / "small", output, format, **sizes))
    source = weights.open_source(output)
    assert source.config() == dataclasses.replace(config, **sizes)
    grown = weights.model_for(source, source.config())
    weights.load(grown, source)
    tokens = convert._sample_tokens(config)
    before, after = model(tokens), grown(tokens)
    for key in ("sequence_output", "pooled_output"):
        np.testing.assert_array_equal(before[key], after[key])
    if kind is models.AlbertPretrainer:
        logits = after["mlm_logits"][..., :23]
        np.testing.assert_allclose(before["mlm_logits"], logits, atol=1e-6)
        grown, model = grown.encoder, model.encoder
    new, old = (np.asarray(m.embeddings.position) for m in (grown, model))
    for row in (0, 8, 9, 17, 1023):
        np.testing.assert_array_equal(new[row], old[row % 9])
    new, old = (np.asarray(m.embeddings.word) for m in (grown, model))
    noise = new[23:] - old.mean(axis=0)
    assert 0.01 < noise.std() < 0.03 and len({*noise.ravel().tolist()}) == 8 * 6
    long = {key: np.ones((1, 1024), np.int32) for key in ("input_ids", "input_mask")}
    outputs = grown({**long, "segment_ids": long["input_ids"]})
    assert np.isfinite(outputs["pooled_output"]).all()
    if format != "keras":
        assert "\nskipped  the vocabulary: " in capsys.readouterr().out


def test_a_model_does_not_shrink(tmp_path, config, refuses):
    weights.save(models.AlbertEncoder(config), tmp_path / "a", "tf1")
    for name, old in (("vocab_size", 23), ("max_position_embeddings", 9)):
        with refuses(f"--{name}=8: must be at least {old}, the old size"):
            convert.convert(settings(tmp_path / "a", tmp_path / "b", "hf", **{name: 8}))


@pytest.mark.parametrize(
    "task",
    [
        {},
        pytest.param(
            {"kind": "classification", "labels": ["a", "b"]}, marks=pytest.mark.slow
        ),
    ],
)
def test_the_vocabulary_goes_along_and_may_grow(task, data, tmp_path, capsys, config):
    small = tokenization.load(str(data / "spm_small.model"), None, False, True)
    config = dataclasses.replace(config, vocab_size=1500)
    folder = tmp_path / "run"
    kind = models.AlbertClassifier(config, 2) if task else models.AlbertEncoder(config)
    metadata.write(folder, small, task)
    weights.save(kind, folder, "tf1")
    for format, name in (("hf", "two"), ("tf1", "three")):
        convert.convert(settings(folder, tmp_path / name, format))
        folder = tmp_path / name
        actual = ModelFolder(folder).tokenizer
        assert (actual.do_lower_case, actual.keep_accents) == (False, True)
        assert actual.encode("É Aula DE Arte") != actual.encode("e aula de arte")
    assert "\nskipped" not in capsys.readouterr().out
    proto = sentencepiece_model_pb2.ModelProto.FromString(small.contents)
    proto.pieces.add(piece="▁aulaarte", score=-1)
    (tmp_path / "more.model").write_bytes(proto.SerializeToString())
    named = {"spm_model_file": str(tmp_path / "more.model"), "keep_accents": True}
    more = {**named, "do_lower_case": False, "vocab_size": 1501}
    convert.convert(settings(folder, tmp_path / "four", "tf1", **more))
    grown = ModelFolder(tmp_path / "four")
    assert grown.tokenizer.encode("aulaarte") == [1500]
    assert grown.config.vocab_size == 1501


def test_a_keras_file_keeps_the_task_json_beside_it(tmp_path, data, capsys, config):
    small = tokenization.load(str(data / "spm_small.model"))
    config = dataclasses.replace(config, vocab_size=1500)
    task = {"kind": "classification", "labels": ["a", "b"]}
    metadata.write(tmp_path / "run", small, task)
    weights.save(models.AlbertClassifier(config, 2), tmp_path / "run", "tf1")
    other = tmp_path / "task.json"
    other.write_text('{"kind": "regression"}')
    convert.convert(settings(tmp_path / "run", tmp_path / "a.keras", "keras"))
    assert other.read_text() == '{"kind": "regression"}'
    assert f"\nkept     {other}: " in capsys.readouterr().out
    convert.convert(settings(tmp_path / "run", tmp_path / "new" / "a.keras", "keras"))
    assert metadata.read_task(tmp_path / "new")["labels"] == ["a", "b"]


def test_weights_without_a_configuration_ask_for_one(tmp_path, config):
    prefix = weights.save(models.AlbertEncoder(config), tmp_path / "ckpt", "tf1")
    (tmp_path / "albert_config.json").unlink()
    with pytest.raises(InputError, match="name the configuration with --albert_config"):
        convert.convert(settings(prefix, tmp_path / "out", "hf"))
