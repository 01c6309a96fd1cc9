import json
import shutil

import pytest

from albert_tf import (
    AlbertClassifier,
    AlbertConfig,
    InputError,
    model_folder,
    tokenization,
    weights,
)

CONFIG = AlbertConfig(
    vocab_size=1500,
    embedding_size=6,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=12,
)


@pytest.fixture
def vocabulary(data):
    return str(data / "spm_small.model")


@pytest.fixture
def folder(tmp_path, vocabulary):
    made = tmp_path / "run"
    tokenizer = tokenization.SentencePieceTokenizer(vocabulary, do_lower_case=False)
    model_folder.write(made, tokenizer, {"kind": "regression", "max_seq_length": 31})
    weights.save(AlbertClassifier(CONFIG, 1), made, "tf1")
    return made


def test_a_folder_needs_nothing_else(folder, tmp_path):
    moved = shutil.move(folder, tmp_path / "elsewhere")
    found = model_folder.read(moved)
    assert found.config == CONFIG
    assert found.task["kind"] == "regression"
    assert found.task["max_seq_length"] == 31
    assert found.tokenizer.do_lower_case is False
    assert found.tokenizer.path.startswith(str(moved))
    weights.load(AlbertClassifier(CONFIG, 1), found.weights)


def test_writing_again_keeps_the_vocabulary(folder):
    tokenizer = model_folder.read(folder).tokenizer
    model_folder.write(folder, tokenizer, {"kind": "classification"})
    found = model_folder.read(folder)
    assert found.task["kind"] == "classification"
    assert found.tokenizer.fingerprint == tokenizer.fingerprint


@pytest.mark.parametrize("place", ["", "assets"])
def test_released_folders_and_modules_have_config_and_vocabulary(
    tmp_path, vocabulary, place
):
    (tmp_path / place).mkdir(exist_ok=True)
    shutil.copy(vocabulary, tmp_path / place / "30k-clean.model")
    (tmp_path / place / "albert_config.json").write_text(CONFIG.to_json_string())
    folders = [tmp_path / "absent", tmp_path]
    assert model_folder.find_config(folders) == CONFIG
    found = model_folder.find_tokenizer(folders, None)
    assert found.do_lower_case is True
    assert model_folder.find_tokenizer(folders, False).do_lower_case is False
    assert model_folder.find_config(folders[:1]) is None
    assert model_folder.find_tokenizer(folders[:1], None) is None


def test_the_casing_of_a_run_can_be_overruled(folder):
    assert model_folder.find_tokenizer([folder], None).do_lower_case is False
    assert model_folder.find_tokenizer([folder], True).do_lower_case is True


def test_several_vocabularies_are_not_guessed_from(tmp_path):
    for name in ("a.model", "vocab_chinese.txt"):
        (tmp_path / name).write_text("")
    with pytest.raises(InputError) as mistake:
        model_folder.find_tokenizer([tmp_path], None)
    assert str(mistake.value) == (
        f"{tmp_path}: 2 vocabularies (a.model, vocab_chinese.txt); expected "
        f"--spm_model_file or --vocab_file"
    )


def test_mistakes_are_named(tmp_path, folder):
    with pytest.raises(InputError, match=r"no task.json; expected the output_dir of"):
        model_folder.read(tmp_path)
    task = json.loads((folder / "task.json").read_text())
    del task["vocabulary"]
    (folder / "task.json").write_text(json.dumps(task))
    with pytest.raises(InputError, match=r"task.json: expected the key 'vocabulary'"):
        model_folder.read(folder)


def test_a_released_wordpiece_folder_is_understood(tmp_path):
    (tmp_path / "vocab_chinese.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    found = model_folder.find_tokenizer([tmp_path], None)
    assert isinstance(found, tokenization.WordPieceTokenizer)
