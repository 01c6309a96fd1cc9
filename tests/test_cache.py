import json

import numpy as np
import pytest

from albert_tf import InputError, cache


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
    "damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"x"]
)
def test_a_damaged_file_is_made_anew(tmp_path, damage):
    path = tmp_path / "train.npz"
    cache.load_or_make(path, {}, arrays)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.load_or_make(path, {}, arrays)[1] is False
    assert cache.load_or_make(path, {}, never)[1] is True


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
