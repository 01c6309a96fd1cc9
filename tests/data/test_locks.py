import errno
import fcntl
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from albert_tf.data import locks
from albert_tf.errors import InputError

HOLD = """
import sys
from pathlib import Path
from albert_tf.data import locks
with locks.held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
ROOT = Path(__file__).parents[1].parent


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
    with locks.held(folder):
        return os.listdir(folder)


def test_the_second_is_refused_until_the_first_is_killed(holder, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(InputError) as mistake:
        take(folder)
    assert re.fullmatch(
        rf"{folder}: another run is at work here \(process {holder.pid} on \S+, since "
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\); expected a folder of its own",
        str(mistake.value),
    )
    holder.kill()
    holder.wait()
    assert os.listdir(folder) == [locks.NAME]  # left, and locks nothing
    assert take(folder) == [locks.NAME]


def test_what_was_there_stays_and_the_lock_goes(tmp_path):
    (tmp_path / "kept").touch()
    with locks.held(tmp_path):
        with locks.held(tmp_path / "."):  # a run within a run
            pass
        assert sorted(os.listdir(tmp_path)) == [locks.NAME, "kept"]
    assert os.listdir(tmp_path) == ["kept"]
    take(tmp_path / "a/b")  # a refused command leaves no empty folder
    assert os.listdir(tmp_path / "a") == []


def test_another_thread_is_refused(tmp_path):
    refused = []

    def second():
        with pytest.raises(InputError, match="another run is at work here"):
            take(tmp_path)
        refused.append(True)

    with locks.held(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert refused


def test_a_lock_file_that_its_holder_removes_meanwhile_is_no_lock(
    tmp_path, monkeypatch
):
    flock, files = fcntl.flock, []

    def slow(file, operation):
        if not files:
            (tmp_path / locks.NAME).unlink()
        files.append(os.fstat(file).st_ino)
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", slow)
    with locks.held(tmp_path):
        assert len(files) == 2
        assert (tmp_path / locks.NAME).stat().st_ino == files[-1]


def test_a_file_system_without_locks_is_warned_of(tmp_path, monkeypatch, caplog):
    def fail(file, operation):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", fail)
    take(tmp_path)
    assert caplog.messages == [
        f"{tmp_path}: this file system has no locks (Function not implemented); start "
        f"no second run there"
    ]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError) as mistake:
        take(tmp_path / "file")
    assert str(mistake.value) == f"{tmp_path}/file: cannot be written: File exists"
