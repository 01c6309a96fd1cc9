import json
import zipfile

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


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b""])
def test_a_damaged_file_is_made_anew(tmp_path, damage):
    path = tmp_path / "train.npz"
    cache.load_or_make(path, {}, arrays)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.load_or_make(path, {}, arrays)[1] is False
    assert cache.load_or_make(path, {}, never)[1] is True


def test_no_flipped_bit_escapes_or_gives_other_arrays(tmp_path):
    path = tmp_path / "train.npz"
    cache.load_or_make(path, {"length": 5}, arrays)
    whole = path.read_bytes()
    random = np.random.default_rng(3)
    places = random.choice(8 * len(whole), 200, replace=False).tolist()
    # The directory of the zip, where a bit makes most kinds of errors.
    places += (8 * len(whole) - random.choice(2000, 200, replace=False) - 1).tolist()
    anew = 0
    for place in places:
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        made, known = cache.load_or_make(path, {"length": 5}, arrays)
        anew += not known
        assert made.keys() == {"ids", "count"}, place
        np.testing.assert_array_equal(made["ids"], np.arange(7), str(place))
        assert made["ids"].dtype == np.int32 and made["count"] == 3
    assert anew == 400


@pytest.mark.parametrize(
    "write",
    [
        lambda path: np.savez(path, ids=np.arange(3)),
        lambda path: zipfile.ZipFile(path, "w").writestr("notes.txt", "mine"),
        lambda path: path.write_bytes(b"x"),
    ],
    ids=["npz", "zip", "other"],
)
def test_a_file_of_the_users_is_refused_and_left(tmp_path, write):
    path = tmp_path / "mine.npz"
    write(path)
    before = path.read_bytes()
    with pytest.raises(InputError) as refused:
        cache.load_or_make(path, {}, never)
    assert str(refused.value) == (
        f"{path}: not a cache of converted examples (.npz; the TFRecords and pickles "
        f"of the released code are not read); it is left as it is, expected another "
        f"path"
    )
    assert path.read_bytes() == before


def test_a_folder_in_its_place_is_named(tmp_path):
    with pytest.raises(InputError) as refused:
        cache.load_or_make(tmp_path, {}, never)
    assert str(refused.value) == f"{tmp_path}: Is a directory; expected a readable file"


def test_what_is_made_is_written_when_that_is_asked_for(tmp_path):
    path, unsaved = tmp_path / "deep" / "train.npz", []
    cache.load_or_make(path, {}, arrays, unsaved)
    assert not path.parent.exists()
    for save in unsaved:
        save()
    assert cache.load_or_make(path, {}, never, unsaved)[1] and len(unsaved) == 1


def test_a_file_of_an_earlier_version_of_this_package_is_read(tmp_path):
    path = tmp_path / "train.npz"
    made_from = json.dumps({"length": 5, "version": 1}, sort_keys=True)
    np.savez(path, **arrays(), made_from=np.array(made_from))
    assert cache.load_or_make(path, {"length": 5}, never)[1]


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
