"""Answers to rows of text, in order, from folders and files."""

import contextlib
import functools
import io
import json
import os
import re
import shutil
import types
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import refusal

from albert_tf import InputError, weights
from albert_tf.model import models
from albert_tf.serve import predict, runtimes
from albert_tf.tasks import pretrained

SHORT, LONG = "a file", "the value of each object in a list of strings is returned " * 2


pytestmark = pytest.mark.usefixtures("eagerly")


load = predict.load
# By the former name of `PipelineSettings`, which still works.
TWO_AT_ONCE = predict.AnswerSettings(batch_size=2)


@functools.cache
def opened(path, **options):
    """Opens a folder once for all tests."""
    return load(path, predict.PipelineSettings(**options))


def answers(path, rows, **options):
    return list(opened(path, **options)(rows))


def test_answers_come_in_the_order_of_rows(run_of):
    rows = [{"text": text} for text in (LONG, SHORT, LONG[:40], "", "a list", LONG)]
    apart = [answers(run_of("classification"), [row])[0] for row in rows]
    tf.config.run_functions_eagerly(False)  # in its graph
    together = list(load(run_of("classification"), TWO_AT_ONCE)(rows))
    for one, other in zip(together, apart, strict=True):
        assert one["label"] == other["label"]
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-6)
    assert together[0] != together[1]
    found = together[1]
    assert list(found["probabilities"]) == ["no", "yes", "maybe"]
    assert sum(found["probabilities"].values()) == pytest.approx(1, abs=1e-6)
    assert found["probability"] == found["probabilities"][found["label"]]
    assert found["probability"] == max(found["probabilities"].values())


@pytest.fixture
def batches(monkeypatch):
    """Lists the batches that a model runs, as tokens of each input."""
    choose, lengths = runtimes.choose, []

    def noting(*given, **more):
        run = choose(*given, **more)
        return lambda batch: (
            lengths.append(batch["input_mask"].sum(-1).tolist()) or run(batch)
        )

    monkeypatch.setattr(runtimes, "choose", noting)
    return lengths


def test_inputs_of_like_length_share_a_batch(run_of, batches, tokenizer):
    # Equal numbers of characters and different numbers of tokens, and the reverse.
    texts = ["zqxjzqxjzq", "the a list", "zqxj" * 3, "list"]
    tokens = [2 + len(tokenizer.encode(text)) for text in texts]
    assert sorted(range(4), key=tokens.__getitem__) == [3, 1, 0, 2]
    predictor = load(run_of("classification"), TWO_AT_ONCE)
    assert len(list(predictor(texts))) == 4
    assert batches == [[tokens[3], tokens[1]], [tokens[0], tokens[2]]]
    [short, long] = predictor([texts[3], texts[2]])
    assert batches[2:] == [[tokens[3], tokens[2]]]
    assert short != long


def test_many_rows_are_held_some_at_a_time(run_of, monkeypatch):
    monkeypatch.setattr(predict, "_INPUTS_TO_SORT", 4)
    taken = []

    def rows():
        for number in range(10):
            taken.append(number)
            yield {"text": SHORT * (number + 1)}

    found = opened(run_of("classification"))(rows())
    next(found)
    assert len(taken) == 4
    assert len(list(found)) == 9


def test_rows_may_have_different_numbers_of_options(run_of):
    row = {"article": LONG, "question": "What is _ ?"}
    rows = [{**row, "options": list("abcde"[:count])} for count in (4, 2, 5, 2)]
    rows.append({**row, "options": ["a", "b", "", ""]})
    found = answers(run_of("multiple_choice"), rows)
    assert [len(answer["probabilities"]) for answer in found] == [4, 2, 5, 2, 4]
    *two, third, fourth = found[-1]["probabilities"]
    np.testing.assert_allclose(two, found[1]["probabilities"], atol=1e-6)
    assert third == fourth == 0
    assert found[1] == found[3]
    for answer, asked in zip(found, rows, strict=True):
        assert answer["answer"] == asked["options"][answer["choice"]]
        assert answer["choice"] == np.argmax(answer["probabilities"])


def test_answers_stand_in_the_context(run_of):
    rows = [{"question": "Which value?", "context": LONG * 3}]
    (found,) = answers(run_of("question_answering"), rows)
    assert found["answer"] == (LONG * 3)[found["begin"] : found["end"]] != ""
    (none,) = answers(run_of("question_answering"), rows, threshold=-100.0)
    assert none["answer"] == "" and none["null_odds"] == found["null_odds"]


def test_the_best_of_many(run_of):
    (whole,) = answers(run_of("classification"), [SHORT])
    (best,) = answers(run_of("classification"), [SHORT], top_k=2)
    listed = sorted(whole["probabilities"].items(), key=lambda item: -item[1])[:2]
    assert list(best["probabilities"].items()) == listed
    assert best["label"] == listed[0][0]
    rows = [{"question": "Which value?", "context": LONG * 3}]
    (alone,) = answers(run_of("question_answering"), rows)
    for top_k, count in ((1, 1), (9, 2)):  # two of the six spans are answers
        (found,) = answers(run_of("question_answering"), rows, top_k=top_k)
        listed = found.pop("answers")
        assert found == alone
        assert listed[0] == {key: alone[key] for key in listed[0]}
        assert len(listed) == count
    assert listed[1]["answer"] == (LONG * 3)[listed[1]["begin"] : listed[1]["end"]]
    shares = [each["probability"] for each in listed]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1)


def test_only_targets_are_listed(run_of):
    rows = ["The [MASK] of a list.", "[MASK] [MASK]"]
    some = ("file", "list", "string")
    every = answers(run_of("pretrained"), rows, task="fill_mask", top_k=1500)
    found = answers(run_of("pretrained"), rows, task="fill_mask", targets=some)
    for row, whole in zip(found, every, strict=True):
        for gap, all_of_gap in zip(row["gaps"], whole["gaps"], strict=True):
            wanted = [each for each in all_of_gap if each["token"][1:] in some]
            assert gap == [each for each in wanted if each["token"][0] == "▁"]
            assert len(gap) == 3
    two = answers(run_of("pretrained"), rows, task="fill_mask", targets=some, top_k=2)
    firsts = [[gap[:2] for gap in row["gaps"]] for row in found]
    assert firsts == [row["gaps"] for row in two]


def test_each_token_is_masked_in_turn(run_of, tokenizer, cases):
    model = models.AlbertPretrainer(cases.config)
    weights.load(model, run_of("pretrained"))
    texts = ["the file is a list", "", "object", "the name of the string " * 4]
    options = {"task": "score", "max_seq_length": 12, "batch_size": 3}
    every = answers(run_of("pretrained"), texts, **options)
    for text, found in zip(texts, every, strict=True):
        whole = tokenizer.encode(text)
        ids = [tokenizer.cls_id, *whole[:10], tokenizer.sep_id]
        logs = []
        places = np.arange(1, len(ids) - 1, dtype="int32")[:, None]
        if places.size:
            masked = np.tile(np.array(ids, "int32"), (len(places), 1))
            np.put_along_axis(masked, places, tokenizer.mask_id, 1)
            tokens = {"input_ids": masked, "masked_lm_positions": places}
            chances = keras.ops.log_softmax(model(tokens)["mlm_logits"][:, 0])
            logs = np.asarray(chances)[np.arange(len(places)), ids[1:-1]].tolist()
        assert found["score"] == pytest.approx(sum(logs), abs=1e-4)
        assert found["per_token"] == pytest.approx(sum(logs) / max(1, len(logs)), 1e-5)
        assert found["tokens"] == len(logs)
        assert found.get("beyond_length", 0) == max(0, len(whole) - 10)
    assert found["beyond_length"] > 0


@pytest.mark.parametrize(
    ("text", "pieces", "expected"),
    [
        ("The [MASK] is.", ["▁cat"], "The cat is."),
        ("The [MASK], un [MASK]", ["▁cat", "s"], "The cat, uns"),
        ("[MASK][MASK]", ["▁a", "▁b"], "a b"),
        ("un [MASK] [MASK]", ["##do", None], "undo [MASK]"),
        ("白い[MASK]は [MASK]", ["猫", None], "白い猫は [MASK]"),
    ],
)
def test_a_piece_stands_where_its_word_does(text, pieces, expected):
    marks = int("▁" in str(pieces))
    words = types.SimpleNamespace(piece_to_id=lambda piece: marks, unk_id=0)
    gaps = [[{"token": piece}] if piece else [] for piece in pieces]
    assert pretrained.fill_masks(text, gaps, words) == expected


def test_a_gap_beyond_the_length_is_marked(run_of):
    rows = [f"[MASK] {LONG * 2} [MASK] [MASK]", "[MASK]"]
    options = {"task": "fill_mask", "top_k": 2, "max_seq_length": 20}
    found, whole = answers(run_of("pretrained"), rows, **options)
    assert [len(gap) for gap in found["gaps"]] == [2, 0, 0]
    assert found["beyond_length"] == 2
    assert found["filled"].endswith(f"{LONG * 2} [MASK] [MASK]")
    assert [len(gap) for gap in whole["gaps"]] == [2]
    assert whole.keys() == {"gaps", "filled"}


def test_a_text_without_a_gap_is_refused(run_of, tmp_path, refuses):
    rows = [{"text": "a [MASK]"}, {"text": "the [mask] of a list"}]
    with refuses('row 2: no [MASK] in "the [mask] of a list"; expected at least one'):
        answers(run_of("pretrained"), rows, task="fill_mask")
    file = tmp_path / "a.txt"
    file.write_text("a [MASK]\n\n")
    path = str(run_of("pretrained"))
    config = predict.PredictSettings(model=path, input_file=str(file))
    with refuses(f'{file}:2: no [MASK] in ""; expected at least one'):
        predict.write_answers(config, predict.PipelineSettings(task="fill_mask"))


@pytest.mark.parametrize(
    ("row", "given"),
    [("It rains.", '"It rains."'), (["a", "b"], '["a", "b"]'), (None, "null"),
     ("a" * 90, '"' + "a" * 39 + "..."), (b"ab", "\"b'ab'\"")],
)  # fmt: skip
def test_what_is_no_row_is_refused(run_of, row, given, refuses):
    good = {"text_a": "a", "text_b": "b"}
    with refuses(f"row 2: {given}; expected an object with text_a, text_b"):
        answers(run_of("regression"), [good, row])


def test_embeddings_of_any_layer(run_of, tokenizer, cases):
    path = run_of("pretrained")
    model = models.AlbertEncoder(cases.config)
    weights.load(model, path, only="encoder")
    ids = [tokenizer.cls_id, *tokenizer.encode(SHORT), tokenizer.sep_id]
    outputs = model({"input_ids": np.array([ids], np.int32)})
    layers = keras.ops.convert_to_numpy(outputs["encoder_outputs"])[:, 0]  # [L, T, H]
    for options, expected in (
        ({}, layers[-1].mean(0)),
        ({"layer": 1}, layers[0].mean(0)),
        ({"layer": -2, "pooling": "first"}, layers[0, 0]),
        ({"pooling": "pooled"}, outputs["pooled_output"][0]),
    ):
        (found,) = answers(path, [{"text": SHORT}], task="embedding", **options)
        np.testing.assert_allclose(found["embedding"], expected, atol=1e-5)


@pytest.fixture
def run(monkeypatch):
    """Answers as the script does, with a model that is already open."""
    monkeypatch.setattr(predict, "load", lambda path, *_, **__: opened(Path(path)))

    def call(path, arguments=(), **settings):
        config = predict.PredictSettings(model=str(path), **settings)
        log = io.StringIO()
        predict.write_answers(config, predict.PipelineSettings(), arguments, log)
        first, _, rest = log.getvalue().partition("\n")
        assert first == f"Reading {path}/model.ckpt-best"
        return rest

    return call


def test_texts_come_from_arguments_files_and_standard_input(
    run_of, tmp_path, capsys, monkeypatch, run
):
    path = run_of("regression")
    run(path, [f"{SHORT}\t{LONG}"])
    first = json.loads(capsys.readouterr().out)
    lines, table = tmp_path / "rows.jsonl", tmp_path / "rows.tsv"
    lines.write_text(json.dumps({"text_b": LONG, "text_a": SHORT, "id": 7}) + "\n")
    table.write_text(f"{SHORT}\t{LONG}\n")
    named = tmp_path / "rows.csv"  # with the columns of the training data
    named.write_text(f'second,first\n"{LONG}","{SHORT}"\n')
    for file in (lines, table, named):
        output = tmp_path / "answers.jsonl"
        run(path, input_file=str(file), output_file=str(output))
        assert json.loads(output.read_text()) == first
    typed(monkeypatch, f"\ufeff{SHORT}\t{LONG}\r\n".encode())
    run(path)
    assert json.loads(capsys.readouterr().out) == first


def typed(monkeypatch, data):
    """Writes bytes to standard input."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


@pytest.mark.parametrize("place", ["file", "standard input"])
def test_a_row_ends_with_a_line_feed_alone(
    run_of, tmp_path, capsys, monkeypatch, place, run
):
    data, file = b"one\rtwo\n\nthree\r\n\n", tmp_path / "rows.txt"
    file.write_bytes(data)
    typed(monkeypatch, data)
    settings = {"input_file": str(file)} if place == "file" else {}
    path = run_of("classification")
    assert run(path, **settings) == ""
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found == answers(path, ["one\rtwo", "", "three", ""])


def test_blank_lines_between_rows_of_columns_are_skipped_and_counted(
    run_of, tmp_path, capsys, run
):
    table, lines = tmp_path / "rows.tsv", tmp_path / "rows.jsonl"
    table.write_text(f"\n{SHORT}\t{LONG}\n\n\t\n\n")
    rows = [{"text_a": SHORT, "text_b": LONG}, {"text_a": "", "text_b": ""}]
    lines.write_text("\n \n" + "\n".join(map(json.dumps, rows)) + "\n\n")
    for file in (table, lines):
        log = run(run_of("regression"), input_file=str(file))
        assert log == f"{file}: 3 blank lines skipped\n"
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert found == answers(run_of("regression"), rows)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_named(run_of, monkeypatch, run, refuses):
    full = open("/dev/full", "w")  # noqa: SIM115 (its contents cannot be written)
    monkeypatch.setattr("sys.stdout", full)
    with refuses("standard output: cannot be written: No space left on device"):
        run(run_of("classification"), ["a"])
    assert not full.closed  # notebooks need it later
    with contextlib.suppress(OSError):
        full.close()


# Files that are not tables, JSON or UTF-8: see tests/data and test_rows.
@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("tsv", "one\n", ":1: 1 columns; expected 2 (text_a, text_b)"),
        ("jsonl", '{"text_a": "x"}\n',
         ":1: text_b is missing; expected a text (a row h"),
        ("json", '\n{"text_a": "x", "text_b": null}\n', ":2: text_b is null; e"),
        ("jsonl", '{"text_a": 3, "text_b": "x"}\n', ":1: text_a is 3; expected a"),
        ("jsonl", "[1]\n", ":1: [1]; expected an object with text_a, text_b"),
        ("csv", '"one, two",three\n',
         ": no column 'text_a'; its columns are 'one, two'"),
    ],
)  # fmt: skip
def test_bad_rows_are_named(run_of, tmp_path, name, text, message, run):
    path = tmp_path / f"a.{name}"
    path.write_text(text)
    with pytest.raises(InputError, match=re.escape(f"{path}{message}")):
        run(run_of("regression"), input_file=str(path))


def test_mistakes_are_named(run_of, tmp_path, run, refuses):
    rows = [{"article": "", "question": "", "options": "abc"}]
    with pytest.raises(InputError, match=r'options is "abc"; expected a list of texts'):
        answers(run_of("multiple_choice"), rows)
    with pytest.raises(InputError, match=r"has no task.json; pass --task, one of"):
        load(run_of("pretrained"))
    with pytest.raises(InputError, match=r"none: no such file, folder or checkpoint"):
        load(tmp_path / "none")
    with refuses(
        "--task=regression: must be one of fill_mask, score, sentence_order, "
        "embedding, classification"
    ):
        load(run_of("classification"), predict.PipelineSettings(task="regression"))
    with pytest.raises(InputError, match=r"^--layer=3: must be 1 to 2, or -1 for"):
        answers(run_of("pretrained"), [], task="embedding", layer=3)
    with pytest.raises(InputError, match=r"^texts as arguments and --input_file: give"):
        run(tmp_path, ["x"], input_file="y")
    with pytest.raises(InputError, match=r"absent.tsv: No such file or directory; "):
        run(run_of("regression"), input_file=str(tmp_path / "absent.tsv"))


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("regression", {"top_k": 5}, "--top_k=5: regression only takes {}"),
        ("classification", {"targets": ("a",)},
         "--targets=('a',): classification only takes {}, --threshold, --top_k, --lab"),
        ("embedding", {"threshold": 0.5},
         "--threshold=0.5: embedding only takes {}, --layer, --pooling"),
        ("sentence_order", {"top_k": 1}, "--top_k=1: sentence_order only takes {}"),
    ],
)  # fmt: skip
def test_an_option_of_another_task_is_refused(run_of, kind, options, message, cases):
    path, task = run_of(kind), None if cases.by_name.get(kind, [None] * 2)[1] else kind
    mistake = refusal(load, path, predict.PipelineSettings(task=task, **options))
    common = "--max_seq_length, --batch_size, --runtime"
    assert mistake.startswith(message.format(common))


# All kinds in folders for other runtimes: see test_sessions.
@pytest.mark.parametrize(
    ("runtime", "kind", "rows"),
    [
        # test_convert compares the same model in LiteRT.
        pytest.param(
            *("litert", "fill_mask", ["a [MASK] and [MASK]", "[MASK]"]),
            marks=pytest.mark.slow,
        ),
        ("onnx", "classification", [LONG, SHORT]),
        ("onnx", "embedding", [LONG, SHORT]),
    ],
)
def test_other_runtimes_give_the_same_answers(
    run_of, kind, runtime, rows, monkeypatch, assert_alike
):
    if runtime == "onnx":
        pytest.importorskip("onnxruntime")
    path, task = run_of(kind), None if kind == "classification" else kind
    expected = answers(path, rows, task=task)
    predictor = load(path, predict.PipelineSettings(task=task, runtime=runtime))
    assert_alike(list(predictor(rows)), expected)
    monkeypatch.delattr(models.AlbertEncoder, "_encode")  # TensorFlow's layers
    assert_alike(list(predictor(rows[-1:])), expected[-1:])


def test_a_command_of_more_than_a_batch_is_computed_by_onnx_runtime(
    run_of, monkeypatch, assert_alike
):
    pytest.importorskip("onnxruntime")
    rows, log = [{"text": f"{SHORT} {n}"} for n in range(5)], []

    def answered(runtime, count, log=log.append):
        options = predict.PipelineSettings(batch_size=2, runtime=runtime)
        return list(load(run_of("classification"), options, log=log)(rows[:count]))

    expected = answered("tensorflow", 5)
    assert_alike(answered("auto", 5), expected)
    assert log == ["Using ONNX Runtime; see --runtime"]

    def fail(*given):
        raise InputError("no onnx")

    monkeypatch.setattr(runtimes, "open_session", fail)
    assert_alike(answered("auto", 2), expected[:2])
    assert_alike(answered("auto", 5, log=None), expected)
    assert len(log) == 1
    for runtime in ("onnx", "litert"):
        with pytest.raises(InputError, match="no onnx"):
            answered(runtime, 2)
    assert_alike(answered("auto", 5), expected)
    assert log[1] == "Using TensorFlow, not ONNX Runtime: no onnx"


def test_an_output_is_whole_or_as_before(run_of, tmp_path, run):
    rows, output = tmp_path / "rows.tsv", tmp_path / "out.jsonl"
    rows.write_text("\ufeffone\ttwo\nbroken\n", encoding="utf-8")
    output.write_text("before\n")
    with pytest.raises(InputError, match=r"rows.tsv:2: 1 columns"):
        run(run_of("regression"), input_file=str(rows), output_file=str(output))
    assert output.read_text() == "before\n"


def test_a_run_answers_with_its_best_checkpoint_unless_another_is_named(
    run_of, tmp_path, cases
):
    run = shutil.copytree(run_of("classification"), tmp_path / "run")
    model = models.AlbertClassifier(cases.config, 3)
    weights.save(model, run / "model.ckpt-9", "tf1")

    def answer(name, **more):
        config = predict.PredictSettings(
            model=str(run / name), output_file=str(tmp_path / "answers"), **more
        )
        log = io.StringIO()
        predict.write_answers(config, predict.PipelineSettings(), [SHORT], log)
        return (tmp_path / "answers").read_text(), log.getvalue()

    best, newest = answer(""), answer("", checkpoint="newest")
    assert best[1] == f"Reading {run}/model.ckpt-best\n"
    assert newest[1] == f"Reading {run}/model.ckpt-9\n"
    assert best[0] != newest[0]
    assert answer("model.ckpt-best", checkpoint="newest") == best
    assert answer("model.ckpt-9") == newest


def test_half_a_surrogate_pair_is_taken(run_of):
    rows = [{"text": "a \ud800 file"}, {"text": "a \ufffd file"}]
    first, second = answers(run_of("classification"), rows)
    expected = pytest.approx(second["probabilities"], abs=1e-6)
    assert first["probabilities"] == expected


def test_the_casing_can_be_said(run_of, tmp_path, capsys):
    path = run_of("pretrained")
    config = predict.PredictSettings(model=str(path), do_lower_case=False)
    options = predict.PipelineSettings(task="embedding")
    predict.write_answers(config, options, ["A File"], io.StringIO())
    cased = json.loads(capsys.readouterr().out)
    (lower,) = answers(path, [{"text": "A File"}], task="embedding")
    assert cased != lower
