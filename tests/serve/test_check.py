"""`albert-tf check`: every byte that is not what was written is found."""

import random
import shutil
import sys

import numpy as np
import pytest

from albert_tf import InputError, commands
from albert_tf.commands.__main__ import main
from albert_tf.data import cache, checksums
from albert_tf.serve import check


@pytest.fixture
def earlier(data, tmp_path):
    return shutil.copytree(data / "earlier_version", tmp_path / "earlier")


def problems(folder):
    return {str(f.path): f.problem for f in check.folder(folder) if f.problem}


def call(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["albert-tf", "check", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def test_whole_folders_are_ok_and_a_damaged_one_is_not(
    earlier, tmp_path, capsys, monkeypatch
):
    assert "check" in commands.COMMANDS
    assert call(monkeypatch, str(earlier)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"{earlier}/records/ordinary: ok (9 records, as described)" in lines
    assert f"{earlier}/fine_tuned/model.ckpt-best.index: ok (checkpoint)" in lines
    assert f"{earlier}/fine_tuned/custom_dev.npz: ok (cache)" in lines
    description = earlier / "records/ordinary.json"
    description.write_text(description.read_text().replace('rds": 9', 'rds": 8'))
    assert call(monkeypatch, str(earlier)) == 1
    expected = "holds 9 records; expected 8, as in ordinary.json"
    assert f"{earlier}/records/ordinary: {expected}\n" in capsys.readouterr().out
    (tmp_path / "empty").mkdir()
    for arguments, message in (
        ([], "no folder; expected one or more, see --help"),
        ([str(tmp_path / "none")], f"{tmp_path}/none: expected a folder"),
        (
            [str(tmp_path / "empty")],
            f"{tmp_path}/empty: expected a run, records, a cache, an export or a "
            f"checkpoint; nothing in it is one",
        ),
    ):
        assert call(monkeypatch, *arguments) == 2
        assert capsys.readouterr().err == f"error: {message}\n"


def test_every_flipped_bit_is_found(earlier, tmp_path):
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "assets").mkdir()
    (folder / "assets/vocab.txt").write_text("a\nb\n")
    checksums.write(folder)
    arrays = {"ids": np.arange(7)}
    cache.load_or_make(folder / "train.npz", {"length": 5}, lambda: arrays)
    run = earlier / "fine_tuned"
    for name in ("model.ckpt-2.index", "model.ckpt-2.data-00000-of-00001"):
        shutil.copyfile(run / name, folder / name)
    for name in ("ordinary", "ordinary.json"):
        shutil.copyfile(earlier / "records" / name, folder / name)
    assert not problems(folder)
    source = random.Random(3)
    for path in sorted(folder.rglob("*")):
        if path.is_dir() or path.suffix == ".json":
            continue
        whole = path.read_bytes()
        places = {*source.sample(range(len(whole)), min(len(whole), 20))}
        # The last bytes of an index and of a cache are those that readers pass over.
        places |= {*range(max(0, len(whole) - 60), len(whole))}
        for place in (
            places if path.suffix in (".index", ".npz") else sorted(places)[:9]
        ):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << source.randrange(8)
            path.write_bytes(flipped)
            assert len(problems(folder)) == 1, (path.name, place)
        path.write_bytes(whole)


def test_an_export_that_was_changed_is_not_opened(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(b"graph")
    checksums.write(tmp_path)
    (tmp_path / "saved_model.pb").write_bytes(b"Graph")
    with pytest.raises(InputError) as mistake:
        checksums.verify(tmp_path)
    assert str(mistake.value) == (
        f"{tmp_path}/saved_model.pb: differs from its SHA-256 in checksums.json; "
        f"expected the files as they were exported (or none of checksums.json, if they "
        f"were changed on purpose)"
    )
    (tmp_path / "checksums.json").write_text('{"sha256": {"../../x": ""}}')
    with pytest.raises(InputError, match=r"'../../x': expected a file beside it$"):
        checksums.verify(tmp_path)
