import errno
import fcntl
import os
import re
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from albert_tf.data import files
from albert_tf.errors import InputError

ROOT = Path(__file__).parents[2]


def write(path, contents=b"new"):
    with files.atomic(str(path)) as file:
        file.write(contents)


def test_a_link_stays_and_the_file_that_it_names_is_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(Path("folder", "target"))
    before = target.stat().st_ino
    write(link)
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert target.stat().st_ino != before
    assert os.listdir(tmp_path / "folder") == ["target"]


def test_a_link_to_a_file_that_is_not_there_yet_makes_it(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"


def test_a_pipe_is_written_to(tmp_path):
    path, read = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()))
    reader.daemon = True
    reader.start()
    write(path)
    reader.join(10)
    assert read == [b"new"]
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_a_device_is_written_to(tmp_path):
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    write(link)
    assert link.is_symlink()
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_output_to_a_stream_stands_between_what_else_is_printed(tmp_path, name):
    program = (
        "import sys; from albert_tf.data import files\n"
        "print('before', flush=True)\n"
        "with files.atomic(sys.argv[1]) as file: file.write(b'during\\n')\n"
        "print('after')\n"
    )
    with open(tmp_path / "out", "w") as out:
        subprocess.run(
            [sys.executable, "-c", program, name], stdout=out, check=True, cwd=ROOT
        )
    assert (tmp_path / "out").read_text() == "before\nduring\nafter\n"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o755])
def test_a_replaced_file_keeps_its_permissions(tmp_path, mode):
    path = tmp_path / "x"
    path.write_bytes(b"old")
    path.chmod(mode)
    write(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_full_device_is_named(tmp_path):
    link = tmp_path / "full"
    link.symlink_to("/dev/full")
    with pytest.raises(InputError) as error:
        write(link)
    assert str(error.value) == f"{link}: cannot be written: No space left on device"


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(InputError) as error:
        write(tmp_path)
    assert str(error.value) == f"{tmp_path}: cannot be written: Is a directory"


def test_an_error_that_is_not_the_outputs_is_not_blamed_on_it(tmp_path):
    with pytest.raises(TimeoutError) as error, files.atomic(str(tmp_path / "x")):
        raise TimeoutError("the server did not answer")
    assert str(error.value) == "the server did not answer"
    assert os.listdir(tmp_path) == []


def test_of_temporary_folders_only_those_of_dead_processes_are_removed(tmp_path):
    dead = tmp_path / ".writing-dead"
    (dead / files.REPLACED / "export").mkdir(parents=True)
    (dead / files.REPLACED / "other").mkdir()
    (tmp_path / "other").mkdir()
    with files.temporary_in(tmp_path) as first, files.temporary_in(tmp_path) as second:
        assert {*tmp_path.iterdir()} == {
            first,
            second,
            tmp_path / "export",  # killed before another took its place
            tmp_path / "other",
        }
    assert sorted(os.listdir(tmp_path)) == ["export", "other"]


def test_of_leftovers_only_those_of_dead_processes_are_removed(tmp_path):
    target = tmp_path / "x[1].tfrecord"
    of_a_user = [f"x[1].tfrecord.tmp-{end}" for end in ("", "old", "7-a", "7-0123ABCD")]
    of_others = ["x1.tfrecord.tmp-7-89abcdef", *of_a_user]
    for name in [*of_others, "x[1].tfrecord.tmp-7-0123abcd"]:
        (tmp_path / name).write_bytes(b"")
    with files.atomic(str(target)) as file:
        file.write(b"new")
    assert sorted(os.listdir(tmp_path)) == sorted(["x[1].tfrecord", *of_others])


HOLD = """
import sys
from pathlib import Path
from albert_tf.data import files
with files.locked(Path(sys.argv[1])):
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
    with files.locked(folder):
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
    assert os.listdir(folder) == [files.LOCK]  # left, and locks nothing
    assert take(folder) == [files.LOCK]


def test_what_was_there_stays_and_the_lock_goes(tmp_path):
    (tmp_path / "kept").touch()
    with files.locked(tmp_path):
        with files.locked(tmp_path / "."):  # a run within a run
            pass
        assert sorted(os.listdir(tmp_path)) == [files.LOCK, "kept"]
    assert os.listdir(tmp_path) == ["kept"]
    take(tmp_path / "a/b")  # a refused command leaves no empty folder
    assert os.listdir(tmp_path / "a") == []


def test_another_thread_is_refused(tmp_path):
    refused = []

    def second():
        with pytest.raises(InputError, match="another run is at work here"):
            take(tmp_path)
        refused.append(True)

    with files.locked(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert refused


def test_a_lock_file_that_its_holder_removes_meanwhile_is_no_lock(
    tmp_path, monkeypatch
):
    flock, inodes = fcntl.flock, []

    def slow(file, operation):
        if not inodes:
            (tmp_path / files.LOCK).unlink()
        inodes.append(os.fstat(file).st_ino)
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", slow)
    with files.locked(tmp_path):
        assert len(inodes) == 2
        assert (tmp_path / files.LOCK).stat().st_ino == inodes[-1]


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


def test_the_system_begins_to_write_long_files_before_they_end(tmp_path, monkeypatch):
    begun = []
    monkeypatch.setattr(files.os, "posix_fadvise", lambda *a: begun.append(a[1:]))
    part = bytes(3 << 20)
    with files.atomic(str(tmp_path / "x")) as file:
        for _ in range(5):
            file.write(part)
    advice = os.POSIX_FADV_DONTNEED
    assert begun == [(0, 6 << 20, advice), (6 << 20, 6 << 20, advice)]


def test_long_output_goes_into_a_pipe(monkeypatch):
    reader, writer = os.pipe()
    monkeypatch.setattr(files, "_BEGUN_TOGETHER", 1)
    with files.atomic(f"/dev/fd/{writer}") as file:
        file.write(b"text")
    os.close(writer)
    assert os.read(reader, 9) == b"text"
    os.close(reader)
