import json

import numpy as np
import pytest

from albert_tf import InputError
from albert_tf.data import cache


def arrays():
    return {"ids": np.arange(7, dtype=np.int32), "count": np.array(3)}


def never():
    raise AssertionError("made again")


def test_arrays_are_made_once(tmp_path):
    path = tmp_path / "deep" / "train.npz"
    made, found = cache.load_or_make(path, {"length": 5}, arrays)
    assert not found
    again, found = cache.load_or_make(path, {"length": 5}, never)
    assert found
    assert again.keys() == made.keys()
    np.testing.assert_array_equal(again["ids"], np.arange(7))
    assert again["ids"].dtype == np.int32


def test_another_setting_makes_them_anew(tmp_path):
    path = tmp_path / "train.npz"
    cache.load_or_make(path, {"length": 5, "task": "cola"}, arrays)
    changed = {"ids": np.zeros(2, np.int32)}
    made, found = cache.load_or_make(
        path, {"length": 6, "task": "cola"}, lambda: changed
    )
    assert not found and made["ids"].shape == (2,)
    assert cache.load_or_make(path, {"task": "cola", "length": 6}, never)[1]


@pytest.mark.parametrize(
    "contents",
    [lambda whole: whole[: len(whole) // 2], lambda whole: b"", lambda whole: b"mine"],
    ids=["cut", "empty", "other"],
)
def test_what_is_no_cache_is_named_and_left(tmp_path, contents):
    path = tmp_path / "train.npz"
    cache.load_or_make(path, {}, arrays)
    path.write_bytes(contents(path.read_bytes()))
    before = path.read_bytes()
    with pytest.raises(InputError) as refused:
        cache.load_or_make(path, {}, never)
    assert str(refused.value).startswith(f"{path}: ")
    assert str(refused.value).endswith(
        "expected a cache of encoded examples; delete it, or give another path"
    )
    assert path.read_bytes() == before


def test_arrays_of_another_program_are_no_cache(tmp_path):
    path = tmp_path / "mine.npz"
    np.savez(path, ids=np.arange(3))
    with pytest.raises(InputError, match=f"^{path}: .*expected a cache"):
        cache.load_or_make(path, {}, never)


def test_what_is_made_is_written_when_that_is_asked_for(tmp_path):
    path, unsaved = tmp_path / "deep" / "train.npz", []
    cache.load_or_make(path, {}, arrays, unsaved)
    assert not path.parent.exists()
    for save in unsaved:
        save()
    assert cache.load_or_make(path, {}, never, unsaved)[1] and len(unsaved) == 1


def test_a_changed_file_has_another_fingerprint(tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text("one")
    first = cache.fingerprint(path)
    assert first == cache.fingerprint(str(path))
    path.write_text("four")
    assert cache.fingerprint(path) != first
    json.dumps(first)


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "train.npz"
    with pytest.raises(InputError, match=rf"^{path}: cannot be written: "):
        cache.load_or_make(path, {}, arrays)
