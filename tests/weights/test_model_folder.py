import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from albert_tf import (
    AlbertClassifier,
    AlbertConfig,
    InputError,
    weights,
)
from albert_tf.serve import predict
from albert_tf.text import tokenization
from albert_tf.weights import model_folder

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
    weights.load(AlbertClassifier(CONFIG, 1), moved)


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


# A value of another type for each key, beside the right ones that it may have.
VALUES = [[], [1], {}, "", "x", 0, -3, 2.5, True, None, 10**400, float("nan"), "../x"]
RIGHT = {
    "kind": [],
    "task": ["", "x", "../x"],
    "labels": [None],
    "label_separator": [None, "x", "../x"],
    "texts": [],
    "bounds": [None],
    "max_seq_length": [10**400],
    "max_qa_length": [10**400],
    "doc_stride": [10**400],
    "n_best_size": [10**400],
    "start_n_top": [10**400],
    "choices": [0, 10**400],
    "version": [],
    "head": [],
    "null_score_diff_threshold": [0, -3, 2.5, None],
    "vocabulary": ["x"],
    "do_lower_case": [True],
}


@pytest.mark.parametrize("key", RIGHT)
def test_values_of_other_types_are_refused(folder, key):
    path = folder / "task.json"
    task = json.loads(path.read_text())
    wrong = [v for v in VALUES if repr(v) not in map(repr, RIGHT[key])]
    assert len(wrong) >= 8
    for value in wrong:
        path.write_text(json.dumps({**task, key: value}))
        for use in (model_folder.read, model_folder.task_of):
            with pytest.raises(InputError) as mistake:
                use(folder)
            message = str(mistake.value)
            assert message.startswith((f"{path}: {key}=", f"{path}:")), message
            assert ": expected " in message or "digits" in message, message
            assert "\n" not in message and len(message) < 400


@pytest.mark.parametrize(
    "contents", ["[]", "1", "null", '"x"', "{", "\xff", "[" * 9999]
)
def test_a_file_that_is_no_object_is_refused(folder, contents):
    (folder / "task.json").write_bytes(contents.encode("latin-1"))
    for use in (model_folder.read, model_folder.task_of):
        with pytest.raises(InputError, match=rf"^{folder}/task.json:"):
            use(folder)


def test_the_vocabulary_is_in_the_folder_itself(folder):
    path = folder / "task.json"
    task = json.loads(path.read_text())
    for name in ("../other.model", "/etc/passwd", "a/b.model", ".."):
        path.write_text(json.dumps({**task, "vocabulary": name}))
        with pytest.raises(InputError) as mistake:
            model_folder.copy(folder, folder.parent)
        assert str(mistake.value) == (
            f'{path}: vocabulary="{name}": expected the name of a file in this folder'
        )


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("classification", "labels"),
        ("regression", "bounds"),
        ("multi_label", "texts"),
        ("multiple_choice", "max_qa_length"),
        ("question_answering", "version"),
    ],
)
def test_a_missing_key_is_named_before_the_model_is_built(folder, kind, key):
    others = {
        "labels": ["a", "b"],
        "label_separator": ",",
        "texts": 1,
        "head": "linear",
    }
    task = json.loads((folder / "task.json").read_text())
    noted = {**task, **others, "kind": kind}
    noted.pop(key, None)
    (folder / "task.json").write_text(json.dumps(noted))
    with pytest.raises(InputError) as mistake:
        predict.load(folder)
    assert str(mistake.value) == (
        f"{folder / 'task.json'}: expected the key {key!r}, for {kind}"
    )


def test_a_classifier_has_labels(folder):
    task = {**json.loads((folder / "task.json").read_text()), "kind": "classification"}
    (folder / "task.json").write_text(json.dumps({**task, "texts": 1, "labels": None}))
    with pytest.raises(InputError) as mistake:
        predict.load(folder)
    assert str(mistake.value) == f"{folder}/task.json: labels=null: expected texts"


def test_a_named_vocabulary_has_the_casing_of_the_weights(folder, tmp_path, vocabulary):
    named = str(shutil.copy(vocabulary, tmp_path / "own.model"))

    def casing(*given):
        return model_folder.open_tokenizer(*given).do_lower_case

    assert casing(named, None, [tmp_path / "new", folder], None) is False
    assert casing(named, None, [tmp_path / "new", folder], True) is True
    assert casing(named, None, [tmp_path / "new"], None) is True
    # Without weights the vocabulary's own folder counts.
    assert casing(str(folder / "spm_small.model"), None, [], None) is False


def test_a_released_wordpiece_folder_is_understood(tmp_path):
    (tmp_path / "vocab_chinese.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    found = model_folder.find_tokenizer([tmp_path], None)
    assert isinstance(found, tokenization.WordPieceTokenizer)


def other_vocabulary(folder, vocabulary):
    """The same pieces in other bytes: another fingerprint."""
    path = folder / "other.model"
    contents = Path(vocabulary).read_bytes()
    path.write_bytes(tokenization.with_cleaning(contents, True, True))
    return str(path)


def test_a_vocabulary_that_is_not_the_folders_is_refused(folder, vocabulary, tmp_path):
    same = model_folder.open_tokenizer(vocabulary, None, [folder], None)
    assert same.do_lower_case is False
    assert model_folder.open_tokenizer(vocabulary, None, [folder], True).do_lower_case
    other = other_vocabulary(tmp_path, vocabulary)
    with pytest.raises(InputError) as mistake:
        model_folder.open_tokenizer(other, None, [tmp_path, folder], None)
    assert str(mistake.value) == (
        f"{other}: 1500 pieces, and not the vocabulary that {folder}/task.json names; "
        f"expected spm_small.model"
    )
    shutil.copy(other, folder / "spm_small.model")
    with pytest.raises(InputError) as mistake:
        model_folder.find_tokenizer([folder])
    assert str(mistake.value) == (
        f"{folder}/spm_small.model: 1500 pieces, and not the vocabulary that "
        f"{folder}/task.json names; expected spm_small.model"
    )


def test_a_folder_without_a_fingerprint_is_used_as_before(folder, vocabulary, tmp_path):
    tokenizer = model_folder.find_tokenizer([folder])
    smaller = dataclasses.replace(CONFIG, vocab_size=1499)
    larger = dataclasses.replace(CONFIG, vocab_size=1537)
    padded = dataclasses.replace(CONFIG, vocab_size=1536)
    model_folder.check_vocabulary(padded, tokenizer, [folder])
    for config in (smaller, larger):
        with pytest.raises(InputError) as mistake:
            model_folder.check_vocabulary(config, tokenizer, [folder])
        assert str(mistake.value) == (
            f"{tokenizer.path}: 1500 pieces, but the model's vocab_size is "
            f"{config.vocab_size}; expected the vocabulary that the model was made "
            f"for, or for a new model an albert_config.json with vocab_size=1500"
        )
    task = json.loads((folder / "task.json").read_text())
    del task["fingerprint"], task["keep_accents"]
    (folder / "task.json").write_text(json.dumps(task))
    other = other_vocabulary(tmp_path, vocabulary)
    assert model_folder.open_tokenizer(other, None, [folder], None).path == other
    model_folder.check_vocabulary(larger, tokenizer, [folder])
    with pytest.raises(InputError, match="vocab_size is 1499"):
        model_folder.check_vocabulary(smaller, tokenizer, [folder])


def test_accents_are_noted_as_casing_is(tmp_path, vocabulary):
    kept = tokenization.load(vocabulary, keep_accents=True)
    model_folder.write(tmp_path, kept, {"kind": "regression"})
    found = model_folder.find_tokenizer([tmp_path])
    assert found.keep_accents
    assert found.fingerprint == kept.fingerprint
    assert not model_folder.find_tokenizer([tmp_path], None, False).keep_accents
    named = model_folder.open_tokenizer(vocabulary, None, [tmp_path], None)
    assert named.keep_accents


@pytest.mark.parametrize("place", ["", "assets"])
def test_folders_without_a_task_note_their_vocabulary(place, tmp_path, vocabulary):
    tokenizer = tokenization.load(vocabulary, do_lower_case=False, keep_accents=True)
    identity = model_folder.identity(tokenizer)
    model_folder.write_vocabulary(tmp_path / place, identity, tokenizer)
    found = model_folder.find_tokenizer([tmp_path / "absent", tmp_path])
    assert found.path == str(tmp_path / place / "spm_small.model")
    assert found.fingerprint == tokenizer.fingerprint
    assert model_folder.fingerprint_of(tmp_path) == tokenizer.fingerprint
    # The file is gone; another is put there by hand.
    (tmp_path / place / "spm_small.model").unlink()
    assert model_folder.find_tokenizer([tmp_path]) is None
    shutil.copy(vocabulary, tmp_path / "mine.model")
    assert model_folder.find_tokenizer([tmp_path]).fingerprint == tokenizer.fingerprint
    other_vocabulary(tmp_path, vocabulary)
    (tmp_path / "mine.model").unlink()
    with pytest.raises(InputError, match=r"other.model: 1500 pieces, and not the voc"):
        model_folder.find_tokenizer([tmp_path])


def test_a_folder_notes_the_cleaning_of_the_file_that_it_names_alone(
    folder, tmp_path, vocabulary
):
    named = str(shutil.copy(vocabulary, tmp_path / "mine.model"))
    note = {"vocabulary": "another.model", "do_lower_case": False}
    (tmp_path / "vocabulary.json").write_text(json.dumps(note))
    assert model_folder.open_tokenizer(named, None, [], None).do_lower_case
    note = {"vocabulary": "mine.model", "do_lower_case": True}
    (tmp_path / "vocabulary.json").write_text(json.dumps(note))
    # The weights' note has the fingerprint of the vocabulary.
    assert not model_folder.open_tokenizer(named, None, [folder], None).do_lower_case


def test_files_of_others_are_not_replaced_by_a_vocabulary(tmp_path, vocabulary):
    tokenizer = tokenization.load(vocabulary)
    shared, run = tmp_path / "shared.model", tmp_path / "run"
    run.mkdir()
    shared.write_bytes(b"of others")
    (run / "spm_small.model").symlink_to(shared)
    with pytest.raises(InputError) as mistake:
        model_folder.write(run, tokenizer, {})
    assert str(mistake.value) == (
        f"{run}/spm_small.model: exists, and is not {vocabulary}; expected another "
        f"name, or another folder"
    )
    # What an earlier run has put there is replaced, but not what a link names.
    note = {"vocabulary": "spm_small.model"}
    (run / "vocabulary.json").write_text(json.dumps(note))
    model_folder.write(run, tokenizer, {})
    assert shared.read_bytes() == b"of others"
    assert (run / "spm_small.model").read_bytes() == Path(vocabulary).read_bytes()
    names = sorted(path.name for path in run.iterdir())
    assert names == ["spm_small.model", "task.json", "vocabulary.json"]
