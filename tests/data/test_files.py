import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import refusal

from albert_tf.data import files

ROOT = Path(__file__).parents[2]


def test_a_link_stays_and_the_file_that_it_names_is_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(Path("folder", "target"))
    before = target.stat().st_ino
    files.write(link, "new")
    assert link.is_symlink() and target.read_bytes() == b"new"
    assert target.stat().st_ino != before
    assert os.listdir(tmp_path / "folder") == ["target"]


def test_folders_and_devices_are_not_replaced(tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe")
    for path in (tmp_path, pipe):
        message = f"{path}: cannot be written: not a regular file"
        assert refusal(files.write, path, b"new") == message
    assert pipe.is_fifo()


def test_an_error_of_the_block_passes_and_leaves_the_old_file(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"old")
    with pytest.raises(KeyError), files.atomic(str(path)) as file:
        file.write(b"half")
        raise KeyError
    assert os.listdir(tmp_path) == ["x"] and path.read_bytes() == b"old"


def test_a_full_disk_is_named_and_leaves_the_old_file(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "x"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", full)
    message = f"{path}: cannot be written: No space left on device"
    assert refusal(files.write, path, b"new") == message
    assert os.listdir(tmp_path) == ["x"] and path.read_bytes() == b"old"


def test_files_move_together_a_checkpoint_index_behind_its_data(tmp_path, monkeypatch):
    moved = []
    replace = Path.replace
    monkeypatch.setattr(
        Path, "replace", lambda self, to: moved.append(to.name) or replace(self, to)
    )
    (tmp_path / "m.index").write_text("old")
    names = ["checkpoint", "m.data-00000-of-00001", "m.index"]
    with pytest.raises(KeyError), files.atomic_folder(tmp_path) as new:
        (new / "m.index").touch()
        raise KeyError
    assert (tmp_path / "m.index").read_text() == "old"
    with files.atomic_folder(tmp_path) as new:
        for name in names:
            (new / name).write_text("new")
    assert moved == [names[1], names[2], names[0]]
    assert sorted(os.listdir(tmp_path)) == names


def test_the_lock_removes_what_killed_processes_left(tmp_path):
    others = ["x.tmp-", "x.tmp-7-0123ABCD", "x.tmp-old"]
    (tmp_path / ".tmp-89abcdef").mkdir()
    for name in ("x.tmp-0123abcd", ".tmp-89abcdef/new", *others):
        (tmp_path / name).touch()
    take(tmp_path)
    assert sorted(os.listdir(tmp_path)) == others


HOLD = """
import sys
from pathlib import Path
from albert_tf.data import files
with files.lock_folder(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds the lock of `tmp_path / "run"` until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.communicate()


def take(folder):
    with files.lock_folder(folder):
        return os.listdir(folder)


def test_the_second_is_refused_until_the_first_is_killed(holder, tmp_path):
    folder = tmp_path / "run"
    assert refusal(take, folder) == (
        f"{folder}: another run uses this folder; choose another folder, or wait "
        f"until that run ends"
    )
    holder.kill()
    holder.wait()
    assert os.listdir(folder) == [files.LOCK]  # left, and locks nothing
    assert take(folder) == [files.LOCK]


def test_what_was_there_stays_and_the_lock_goes(tmp_path):
    (tmp_path / "kept").touch()
    with files.lock_folder(tmp_path):
        with files.lock_folder(tmp_path / "."):  # a run within a run
            pass
        assert sorted(os.listdir(tmp_path)) == [files.LOCK, "kept"]
    assert os.listdir(tmp_path) == ["kept"]
    take(tmp_path / "a/b")  # a refused command leaves no empty folder
    assert os.listdir(tmp_path / "a") == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    path = tmp_path / "file"
    path.touch()
    assert refusal(take, path) == f"{path}: cannot be written: File exists"
