"""Folders of weights: configuration, vocabulary, casing and `task.json`."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from helpers import SMALL_MODEL, contents, refusal, tiny

from albert_tf import AlbertClassifier, weights
from albert_tf.serve import predict
from albert_tf.text import tokenization
from albert_tf.weights import metadata
from albert_tf.weights.folder import ModelFolder
from albert_tf.weights.settings import ModelFileSettings

CONFIG = tiny(vocab_size=1500, num_hidden_layers=1, max_position_embeddings=512)


@pytest.fixture(scope="module")
def model():
    """A model that tests save and load; its values may be any."""
    return AlbertClassifier(CONFIG, 1)


@pytest.fixture
def folder(model, tmp_path):
    """Makes the folder of a run that kept case."""
    path = tmp_path / "run"
    tokenizer = tokenization.SentencePieceTokenizer(SMALL_MODEL, do_lower_case=False)
    metadata.write(path, tokenizer, {"kind": "regression", "max_seq_length": 31})
    weights.save(model, path, "tf1")
    return path


@pytest.fixture
def other(tmp_path):
    """Makes a vocabulary of the same tokens in other bytes: another fingerprint."""
    path = tmp_path / "others" / "other.model"
    path.parent.mkdir()
    contents = Path(SMALL_MODEL).read_bytes()
    path.write_bytes(tokenization.add_cleaning(contents, True, True))
    return str(path)


@pytest.fixture
def tokenizer_of(tmp_path_factory):
    """Opens the vocabulary of the weights at a path."""

    def call(path=None, output_dir=None, vocab_size=1500, **files):
        config = tmp_path_factory.mktemp("config") / "config.json"
        sized = dataclasses.replace(CONFIG, vocab_size=vocab_size)
        config.write_text(sized.to_json_string())
        settings = ModelFileSettings(albert_config_file=str(config), **files)
        return ModelFolder(path, output_dir=output_dir, files=settings).find_tokenizer()

    return call


def edit(path, remove=(), **values):
    contents = {**json.loads(path.read_text()), **values}
    path.write_text(json.dumps({k: v for k, v in contents.items() if k not in remove}))


def test_a_folder_needs_nothing_else(folder, model, tmp_path):
    moved = shutil.move(folder, tmp_path / "elsewhere")
    opened = ModelFolder(moved)
    assert opened.config == CONFIG
    assert opened.task["kind"] == "regression" and opened.task["max_seq_length"] == 31
    assert opened.tokenizer.do_lower_case is False
    assert opened.tokenizer.path.startswith(str(moved))
    weights.load(model, opened.source)
    # Writing again keeps the vocabulary.
    metadata.write(moved, opened.tokenizer, {"kind": "classification"})
    again = ModelFolder(moved)
    assert again.task["kind"] == "classification"
    assert again.tokenizer.fingerprint == opened.tokenizer.fingerprint


@pytest.mark.parametrize("subfolder", ["", "assets"])
def test_released_folders_and_modules_are_complete(tmp_path, subfolder, tokenizer_of):
    (tmp_path / subfolder).mkdir(exist_ok=True)
    shutil.copy(SMALL_MODEL, tmp_path / subfolder / "30k-clean.model")
    (tmp_path / subfolder / "albert_config.json").write_text(CONFIG.to_json_string())
    opened = ModelFolder(tmp_path, output_dir=tmp_path / "absent")
    assert opened.config == CONFIG
    assert opened.tokenizer.do_lower_case is True
    assert tokenizer_of(tmp_path, do_lower_case=False).do_lower_case is False
    absent = ModelFolder(output_dir=tmp_path / "absent")
    assert refusal(lambda: absent.config) == (
        f"--albert_config_file: required, as --output_dir={tmp_path}/absent has no "
        f"albert_config.json and there is no --init_checkpoint"
    )
    named = ModelFileSettings(albert_config_file="albert_base_v2")
    absent = ModelFolder(output_dir=tmp_path / "absent", files=named)
    assert refusal(lambda: absent.tokenizer) == (
        f"no vocabulary in {tmp_path}/absent: expected --spm_model_file or --vocab_file"
    )


def test_the_config_is_the_named_one_else_of_run_or_weights(folder, tmp_path):
    other = dataclasses.replace(CONFIG, hidden_size=15)
    keras_file = tmp_path / "keras" / "model.keras"
    weights.save(AlbertClassifier(other, 1), keras_file, "keras")
    shutil.copy(folder / "albert_config.json", keras_file.parent)
    assert ModelFolder(keras_file).config == other
    assert ModelFolder(keras_file, output_dir=folder).config == CONFIG
    named = ModelFileSettings(albert_config_file="albert_base_v2")
    assert ModelFolder(keras_file, files=named).config.hidden_size == 768


def test_a_released_wordpiece_folder_is_understood(tmp_path, tokenizer_of):
    (tmp_path / "vocab_chinese.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    tokenizer = tokenizer_of(tmp_path, vocab_size=5)
    assert isinstance(tokenizer, tokenization.WordPieceTokenizer)
    (tmp_path / "a.model").write_text("")
    assert refusal(tokenizer_of, tmp_path) == (
        f"{tmp_path}: 2 vocabularies (a.model, vocab_chinese.txt); expected "
        f"--spm_model_file or --vocab_file"
    )


@pytest.mark.parametrize(
    ("path", "named", "flag", "expected"),
    [
        ("run", None, None, False),
        ("run", None, True, True),
        ("run", "own.model", None, False),
        ("run", "own.model", True, True),
        ("new", "own.model", None, True),
        # The folder of the weights decides, not the folder of the vocabulary.
        ("new", "noted/mine.model", None, True),
        ("run", "lower/mine.model", None, False),
    ],
)
def test_vocabulary_case(folder, tmp_path, path, named, flag, expected, tokenizer_of):
    for name, lower in (("noted", False), ("lower", True)):
        (tmp_path / name).mkdir()
        note = {"vocabulary": "mine.model", "do_lower_case": lower}
        (tmp_path / name / "vocabulary.json").write_text(json.dumps(note))
        shutil.copy(SMALL_MODEL, tmp_path / name / "mine.model")
    shutil.copy(SMALL_MODEL, tmp_path / "own.model")
    file = None if named is None else str(tmp_path / named)
    (tmp_path / "new").mkdir()
    tokenizer = tokenizer_of(tmp_path / path, spm_model_file=file, do_lower_case=flag)
    assert tokenizer.do_lower_case is expected


def test_transformers_5_keeps_the_vocabulary_in_one_file(model, tmp_path, tokenizer_of):
    tokenizer = tokenization.load(SMALL_MODEL, do_lower_case=False, keep_accents=True)
    saved = tmp_path / "saved"
    weights.save(model, saved, "hf", tokenizer=tokenizer)
    (saved / "spiece.model").unlink()
    opened = ModelFolder(saved)
    assert opened.tokenizer.encode("é E a") == tokenizer.encode("é E a")
    # A run keeps it as the file that every program reads.
    metadata.write(tmp_path / "run", opened.tokenizer, {"kind": "regression"})
    assert list(contents(tmp_path / "run")) == ["spiece.model", "task.json"]
    again = tokenizer_of(tmp_path / "run")
    assert again.fingerprint == opened.tokenizer.fingerprint
    (saved / "tokenizer.json").unlink()
    assert ModelFolder(saved).find_tokenizer() is None
    (saved / "tokenizer.json").write_text('{"class_name": "AlbertTokenizer"}')
    assert ModelFolder(saved).find_tokenizer() is None


def test_another_vocabulary_is_refused(folder, other, tmp_path, tokenizer_of):
    expected = (
        f"1500 pieces, and not the vocabulary that {folder}/task.json names; expected "
        f"spm_small.model"
    )
    new = tmp_path / "new"
    assert refusal(tokenizer_of, folder, new, spm_model_file=other) == (
        f"{other}: {expected}"
    )
    shutil.copy(other, folder / "spm_small.model")
    assert refusal(tokenizer_of, folder) == f"{folder}/spm_small.model: {expected}"


def test_a_vocabulary_may_be_smaller_than_its_model(folder, tokenizer_of):
    for size in (1536, 1537):  # 1536 is a multiple of 128
        assert tokenizer_of(folder, vocab_size=size).vocab_size == 1500
    assert refusal(tokenizer_of, folder, vocab_size=1499) == (
        f"{folder}/spm_small.model: 1500 tokens, but the model's vocab_size is 1499; "
        f"expected the vocabulary of this model, or for a new model an "
        f"albert_config.json with vocab_size=1500"
    )


@pytest.mark.parametrize("subfolder", ["", "assets"])
def test_folders_without_task_name_a_vocabulary(
    subfolder, tmp_path, other, tokenizer_of
):
    tokenizer = tokenization.load(SMALL_MODEL, do_lower_case=False, keep_accents=True)
    metadata.write(tmp_path / subfolder, tokenizer, {})
    opened = tokenizer_of(tmp_path, tmp_path / "absent")
    assert opened.path == str(tmp_path / subfolder / "spm_small.model")
    assert opened.fingerprint == tokenizer.fingerprint
    assert metadata.find_fingerprint(tmp_path) == tokenizer.fingerprint
    # The file is gone; the user puts another one there.
    (tmp_path / subfolder / "spm_small.model").unlink()
    assert tokenizer_of(tmp_path) is None
    shutil.copy(SMALL_MODEL, tmp_path / "mine.model")
    assert tokenizer_of(tmp_path).fingerprint == tokenizer.fingerprint
    shutil.move(other, tmp_path / "mine.model")
    assert "mine.model: 1500 pieces, and not the voc" in refusal(tokenizer_of, tmp_path)


def test_files_of_others_are_not_replaced_by_a_vocabulary(tmp_path):
    tokenizer = tokenization.load(SMALL_MODEL)
    (tmp_path / "spm_small.model").write_bytes(b"of others")
    assert refusal(metadata.write, tmp_path, tokenizer, {}) == (
        f"{tmp_path}/spm_small.model: exists, and differs from {SMALL_MODEL}; expected "
        f"another name, or another folder"
    )
    assert (tmp_path / "spm_small.model").read_bytes() == b"of others"


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("kind", [[], {}, 0, True, None]),
        ("labels", ["x", {"a": 1}, 3, [1], ["a", None]]),
        ("vocabulary", [[], 1, None, "../x", "/x"]),
        ("do_lower_case", ["", "x", 0, None, [True]]),
    ],
)
def test_values_of_other_types_are_refused(folder, key, wrong, tokenizer_of):
    path = folder / "task.json"
    for value in wrong:
        edit(path, **{key: value})
        for read in (metadata.read_task, tokenizer_of):
            message = refusal(read, folder)
            assert message.startswith(f"{path}: ") and key in message, message
            assert "expected " in message and "\n" not in message


@pytest.mark.parametrize(
    ("kind", "values", "mistake"),
    [
        ("classification", ["labels"], "requires the key 'labels' for classification"),
        ("classification", {"labels": None}, "labels=null: must be a list of texts"),
        ("regression", ["bounds"], "requires the key 'bounds' for regression"),
        ("multi_label", ["texts"], "requires the key 'texts' for multi_label"),
        ("multiple_choice", [], "requires the key 'max_qa_length' for multiple_ch"),
        ("question_answering", [], "requires the key 'version' for question_answ"),
        ("x", [], 'kind="x": expected one of classification, multi_label'),
    ],
)
def test_what_is_missing_is_named_before_it_is_built(folder, kind, values, mistake):
    complete = {"labels": ["a", "b"], "label_separator": ",", "texts": 1}
    complete |= {"bounds": None, "head": "linear", "kind": kind}
    removed = values if isinstance(values, list) else ()
    complete |= values if isinstance(values, dict) else {}
    edit(folder / "task.json", removed, **complete)
    assert refusal(predict.load, folder).startswith(f"{folder}/task.json: {mistake}")
