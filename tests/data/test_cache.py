import json

import numpy as np
import pytest
from helpers import refusal

from albert_tf import InputError
from albert_tf.data import cache


def arrays():
    return {"ids": np.arange(7, dtype=np.int32), "count": np.array(3)}


def never():
    raise AssertionError("the arrays were encoded again")


def test_arrays_are_made_once_for_equal_settings(tmp_path):
    path = tmp_path / "deep" / "train.npz"
    first, is_cached = cache.load_or_make(path, {"length": 5, "task": "cola"}, arrays)
    assert not is_cached
    again, is_cached = cache.load_or_make(path, {"task": "cola", "length": 5}, never)
    assert is_cached
    assert again.keys() == first.keys()
    np.testing.assert_array_equal(again["ids"], np.arange(7))
    assert again["ids"].dtype == np.int32
    changed = {"ids": np.zeros(2, np.int32)}
    other, is_cached = cache.load_or_make(path, {"length": 6}, lambda: changed)
    assert not is_cached and other["ids"].shape == (2,)
    assert cache.load_or_make(path, {"length": 6}, never)[1]


@pytest.mark.parametrize("contents", ["cut", "empty", "other", "arrays"])
def test_a_file_that_is_no_cache_is_named_and_unchanged(tmp_path, contents):
    path = tmp_path / "train.npz"
    cache.load_or_make(path, {}, arrays)
    whole = path.read_bytes()
    if contents == "arrays":
        np.savez(path, ids=np.arange(3))
    else:
        broken = {"cut": whole[: len(whole) // 2], "empty": b"", "other": b"mine"}
        path.write_bytes(broken[contents])
    before = path.read_bytes()
    message = refusal(cache.load_or_make, path, {}, never)
    assert message.startswith(f"{path}: ")
    assert message.endswith(
        "expected a cache of encoded examples; delete it, or give another path"
    )
    assert path.read_bytes() == before


def test_a_changed_file_has_another_fingerprint(tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text("one")
    first = cache.fingerprint(path)
    assert first == cache.fingerprint(str(path))
    path.write_text("four")
    assert cache.fingerprint(path) != first
    json.dumps(first)


def test_a_path_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "train.npz"
    with pytest.raises(InputError, match=rf"^{path}: cannot be written: "):
        cache.load_or_make(path, {}, arrays)
