"""Downloads, from a server on 127.0.0.1."""

import errno
import functools
import gzip
import hashlib
import io
import itertools
import os
import stat
import subprocess
import sys
import tarfile
import threading
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import pytest

from albert_tf.data import download, files
from albert_tf.data.download import Remote
from albert_tf.errors import InputError

ROOT = Path(__file__).parents[2]
URL = "https://example.org/data/texts.bin"
CONTENTS = bytes(range(256)) * 1000


def fetch(sha256=None, url=URL):
    """Makes the folder "home/texts"; returns the contents of its only file."""
    folder = download.make_folder(
        download.home() / "texts", [Remote(url, sha256)], lambda new: new
    )
    [path] = folder.iterdir()
    return path.read_bytes()


def refusal(**options):
    with pytest.raises(InputError) as mistake:
        fetch(**options)
    text = str(mistake.value)
    assert "\n" not in text
    left = {str(path.name) for path in download.home().rglob("*") if path.is_file()}
    assert left <= {"texts.bin.part", "texts.bin.version"}
    return text


def cut(at):
    return lambda handler, rest: rest[:at]


def status(code, **headers):
    def answer(handler, rest):
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


@pytest.fixture
def served(mirror):
    mirror.path = "/example.org/data/texts.bin"
    mirror.address = mirror.url + mirror.path
    mirror.files[mirror.path] = CONTENTS
    return mirror


def test_a_file_is_downloaded_once(served, tmp_path, caplog):
    sha256 = hashlib.sha256(CONTENTS).hexdigest()
    for _ in range(2):
        assert fetch(sha256=sha256) == CONTENTS
    assert served.requests == [(served.path, None, None)]
    assert os.listdir(tmp_path / "home") == ["texts"]
    assert f"downloading {served.address} to {tmp_path}/home" in caplog.messages


def test_the_folder_is_that_of_the_environment_or_in_the_users_cache(monkeypatch):
    monkeypatch.setenv("ALBERT_TF_HOME", "/disk/albert")
    assert str(download.home()) == "/disk/albert"
    monkeypatch.delenv("ALBERT_TF_HOME")
    assert str(download.home()) == os.path.expanduser("~/.cache/albert_tf")


def test_what_was_cut_off_resumes(served):
    served.faults[served.path] = [cut(100_000), cut(50_000), status(503)]
    assert fetch() == CONTENTS
    assert [request[1:] for request in served.requests] == [
        (None, None),
        ("bytes=100000-", '"1"'),
        *[("bytes=150000-", '"1"')] * 2,
    ]


def test_a_later_process_resumes(served, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "_TRIES", 1)
    served.faults[served.path] = [cut(100_000)]
    with pytest.raises(InputError) as mistake:
        fetch()
    assert str(mistake.value) == (
        f"{served.address}: cannot be downloaded: ended after 100,000 of 256,000 "
        f"bytes; expected a connection, or texts.bin put into {tmp_path}/home by hand"
    )
    assert fetch() == CONTENTS
    assert served.requests[1][1] == "bytes=100000-"


@pytest.mark.parametrize("has_ranges", [True, False])
def test_another_version_of_the_file_starts_afresh(served, monkeypatch, has_ranges):
    monkeypatch.setattr(download, "_TRIES", 1)
    served.faults[served.path] = [cut(100_000)]
    with pytest.raises(InputError):
        fetch()
    served.has_ranges = has_ranges
    served.etag = '"2"'
    served.files[served.path] = CONTENTS[::-1]
    assert fetch() == CONTENTS[::-1]


@pytest.mark.parametrize(
    "change",
    [
        {"has_ranges": False},
        {"etag": 'W/"weak"'},  # names no exact version
        {"etag": '"1"\r\n \0'},  # no header of a request
    ],
)
def test_a_server_that_cannot_resume_sends_all_again(served, change):
    vars(served).update(change)
    served.faults[served.path] = [cut(100_000)]
    assert fetch() == CONTENTS


@pytest.mark.parametrize(
    "answer",
    [
        status(416),
        status(206, Content_Range="bytes 0-9/10"),
        status(206),
    ],
)
def test_a_wrong_answer_to_a_range_starts_afresh(served, answer):
    served.faults[served.path] = [cut(100_000), answer]
    assert fetch() == CONTENTS
    assert [request[1] for request in served.requests] == [
        None,
        "bytes=100000-",
        *[None] * (len(served.requests) - 2),
    ]


def test_what_ends_early_every_time_is_refused(served):
    served.faults[served.path] = [cut(0)] * 5
    assert "ended after 0 of 256,000 bytes; expected" in refusal()


def test_a_server_that_does_not_answer_is_refused(served, monkeypatch):
    monkeypatch.setattr(download, "_TIMEOUT", 0.1)
    monkeypatch.setattr(download, "_TRIES", 2)
    done = threading.Event()

    def hang(handler, rest):
        done.wait(20)

    served.faults[served.path] = [hang, hang]
    assert f"{served.address}: cannot be downloaded: timed out; expected" in refusal()
    done.set()
    assert len(served.requests) == 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (status(404), "404 Not Found"),
        (status(403), "403 Forbidden"),
        (
            status(302, Location="file:///etc/passwd"),
            "302 Found - Redirection to url 'file:",
        ),
        (
            status(302, Location="ftp://example.org/x"),
            "redirected to ftp://example.org",
        ),
        (lambda handler, rest: handler.wfile.write(b"HTTP/1.1 2\n" * 9), "HTTP/1.1 2"),
    ],
)
def test_refusals_of_the_server_name_address_and_place(
    served, tmp_path, answer, reason
):
    served.faults[served.path] = [answer] * 5
    text = refusal()
    assert text.startswith(f"{served.address}: cannot be downloaded: {reason}")
    assert text.endswith(f", or texts.bin put into {tmp_path}/home by hand")


def test_moved_files_are_followed_but_not_out_of_https(served):
    served.files["/elsewhere"] = CONTENTS
    served.faults[served.path] = [status(301, Location="/elsewhere")]
    assert fetch() == CONTENTS
    request = urllib.request.Request(URL)
    redirects = download._Redirects()
    with pytest.raises(urllib.error.URLError, match=r"http://x\.org; expected https"):
        redirects.redirect_request(request, io.BytesIO(), 302, "", {}, "http://x.org")
    moved = redirects.redirect_request(request, None, 302, "", {}, "https://x.org")
    assert moved.full_url == "https://x.org"


def test_without_a_connection_one_line_comes_at_once(served, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "_PAUSE", 1e9)
    served.shutdown()
    served.server_close()
    assert refusal() == (
        f"{served.address}: cannot be downloaded: Connection refused; expected a "
        f"connection, or texts.bin put into {tmp_path}/home by hand"
    )
    (tmp_path / "home/texts.bin").write_bytes(CONTENTS)
    assert fetch() == CONTENTS
    assert (tmp_path / "home/texts.bin").exists()


@pytest.mark.parametrize("address", ["mirror.example", "file:///mirror"])
def test_a_mirror_is_an_address(served, monkeypatch, address):
    monkeypatch.setenv("ALBERT_TF_MIRROR", address)
    assert refusal() == (
        f"ALBERT_TF_MIRROR={address}: expected an address with http or https"
    )


def test_a_full_disk_is_one_line(served, tmp_path, monkeypatch):
    def fail(headers):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(download, "_validator", fail)
    assert refusal() == (
        f"{served.address}: {tmp_path}/home/texts.part/texts.bin.part: cannot "
        f"be written: No space left on device"
    )


def test_another_checksum_is_refused_and_downloaded_anew(served, tmp_path):
    sha256 = hashlib.sha256(CONTENTS).hexdigest()
    served.files[served.path] = CONTENTS[:-1] + b"\0"
    actual = hashlib.sha256(served.files[served.path]).hexdigest()
    assert refusal(sha256=sha256) == (
        f"{tmp_path}/home/texts.part/texts.bin: sha256 {actual}; expected {sha256} "
        f"(from {served.address})"
    )
    served.files[served.path] = CONTENTS
    assert fetch(sha256=sha256) == CONTENTS


WAIT = """
from albert_tf.data import download
download.make_folder(download.home() / "texts", [], lambda new: None)
"""


def test_of_two_at_once_one_downloads(served):
    begun, go_on = threading.Event(), threading.Event()

    def slow(handler, rest):
        begun.set()
        go_on.wait(20)
        return rest

    served.faults[served.path] = [slow]
    answers = []
    threads = []
    for _ in range(2):
        threads.append(threading.Thread(target=lambda: answers.append(fetch())))
        threads[-1].start()
        assert begun.wait(20)
    command = [sys.executable, "-c", WAIT]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as it:
        log = it.stderr.readline()
        assert f"texts.part: waiting for process {os.getpid()} on " in log
        go_on.set()
        assert it.wait(20) == 0
    for thread in threads:
        thread.join()
    assert answers == [CONTENTS] * 2
    assert len(served.requests) == 1
    assert os.listdir(download.home()) == ["texts"]


def tar_of(*members):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, contents, changes in members:
            member = tarfile.TarInfo(name)
            member.size = len(contents)
            for key, value in changes.items():
                setattr(member, key, value)
            archive.addfile(member, io.BytesIO(contents))
    return data.getvalue()


def zip_of(*members):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, contents, mode in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, contents)
    return data.getvalue()


def unpack(tmp_path, name, data):
    path = tmp_path / name
    path.write_bytes(data)
    folder = tmp_path / "unpacked"
    folder.mkdir(exist_ok=True)
    download._unpack(path, folder)
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


CONTAINED = {"data/train.tsv": CONTENTS, "data/dev/empty.tsv": b""}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (
            "x.tar.gz",
            tar_of(
                ("./data", b"", {"type": tarfile.DIRTYPE}),
                *((f"./{name}", text, {}) for name, text in CONTAINED.items()),
            ),
        ),
        (
            "x.zip",
            zip_of(
                ("data/", b"", stat.S_IFDIR | 0o755),
                *((name, text, 0o644) for name, text in CONTAINED.items()),
            ),
        ),
    ],
)
def test_archives_are_unpacked_and_every_damage_is_refused(tmp_path, name, data):
    assert unpack(tmp_path, name, data) == CONTAINED
    for at in range(20, len(data), len(data) // 30):
        damaged = [data[:at], data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]]
        for number, contents in enumerate(damaged):
            folder = tmp_path / f"{at}-{number}"
            folder.mkdir()
            with pytest.raises(InputError) as mistake:
                if unpack(folder, name, contents) == CONTAINED:
                    raise InputError(f"{folder}/{name}: only notes are damaged")
            assert str(mistake.value).startswith(str(folder))


ELSEWHERE = "expected plain files below one folder"
LINK = stat.S_IFLNK | 0o777


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("x.tar.gz", tar_of(("../out", b"x", {})), ELSEWHERE),
        ("x.tar.gz", tar_of(("a/../../out", b"x", {})), ELSEWHERE),
        ("x.tar.gz", tar_of(("/tmp/out", b"x", {})), ELSEWHERE),
        *(
            ("x.tar.gz", tar_of(("a", b"", {"type": kind, **more})), ELSEWHERE)
            for kind, more in (
                (tarfile.SYMTYPE, {"linkname": "b"}),
                (tarfile.LNKTYPE, {"linkname": "/etc/passwd"}),
                (tarfile.CHRTYPE, {}),
                (tarfile.BLKTYPE, {}),
                (tarfile.FIFOTYPE, {}),
            )
        ),
        ("x.tar.gz", tar_of(("a", b"", {}), ("a", b"x", {})), "File exists"),
        ("x.tar.gz", tar_of(("a", b"", {}), ("a/b", b"x", {})), "File exists"),
        ("x.tar.gz", tar_of(("a" * 300, b"x", {})), "File name too long"),
        (
            "x.tar.gz",
            tar_of(("a", b"x" * 2_000_000, {"type": tarfile.XHDTYPE})),
            "a header of 2,000,384 bytes",
        ),
        ("x.tar.gz", tar_of(("a", b"x" * 99_999, {})), "more than 50,000 bytes"),
        ("x.tar.gz", tar_of(*[(f"{n}", b"", {}) for n in range(20)]), "more than 50,0"),
        ("x.tar.gz", b"no archive", "expected a whole .tar.gz"),
        ("x.zip", zip_of(("../out", b"x", 0o644)), ELSEWHERE),
        ("x.zip", zip_of(("/tmp/out", b"x", 0o644)), ELSEWHERE),
        ("x.zip", zip_of(("a\\..\\b", b"x", 0o644)), ELSEWHERE),
        ("x.zip", zip_of(("a", b"/etc/passwd", LINK)), ELSEWHERE),
        ("x.zip", zip_of(("a", b"x" * 99_999, 0o644)), "more than 50,000 bytes"),
        ("x.zip", b"no archive", "expected a whole .zip"),
    ],
    ids=itertools.count(),
)
def test_hostile_archives_write_nothing_elsewhere(
    tmp_path, monkeypatch, name, data, message
):
    monkeypatch.setattr(download, "_MOST_UNPACKED", 50_000)
    with pytest.raises(InputError) as mistake:
        unpack(tmp_path, name, data)
    assert message in str(mistake.value)
    assert "\n" not in str(mistake.value)
    assert sorted(os.listdir(tmp_path)) == ["unpacked", name]
    assert set(os.listdir(tmp_path / "unpacked")) <= {"a", *map(str, range(20))}


def test_what_follows_the_end_of_an_archive_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "_MOST_UNPACKED", 50_000)
    data = tar_of(("a", b"x", {})) + gzip.compress(bytes(1_000_000))
    with pytest.raises(InputError, match="more than 50,000 bytes"):
        unpack(tmp_path, "x.tar.gz", data)


def test_an_archive_that_is_refused_is_removed(mirror):
    url = "https://example.org/x.tar.gz"
    mirror.files["/example.org/x.tar.gz"] = tar_of(("../out", b"x", {}))
    assert f"{ELSEWHERE} (from {mirror.url}/example.org/x.tar.gz)" in refusal(url=url)


def test_arranging_picks_the_folder(mirror, tmp_path):
    mirror.files["/example.org/x.zip"] = zip_of(("inner/a", b"1", 0o644))
    make = functools.partial(
        download.make_folder, tmp_path / "a/b", [Remote("https://example.org/x.zip")]
    )

    def refuse(new):
        raise InputError("not this one")

    with pytest.raises(InputError, match="not this one"):
        make(refuse)
    assert make(lambda new: new / "inner") == tmp_path / "a/b"
    assert [path.name for path in (tmp_path / "a/b").iterdir()] == ["a"]
    assert os.listdir(tmp_path / "a") == ["b"]
    assert files.LOCK not in os.listdir(tmp_path / "a/b")
