"""Downloads, from a server that the tests stand for."""

import concurrent.futures
import hashlib
import io
import os
import zipfile

import pytest
from helpers import refusal

from albert_tf.data import download
from albert_tf.errors import InputError

URL = "https://example.org/data/texts.bin"
CONTENTS = bytes(range(256)) * 1000


def fetch(sha256=None, url=URL, arrange=lambda new: new):
    """Makes the folder "home/texts"; returns its files' contents by name."""
    target = download.home() / "texts"
    assert download.make_folder(target, {url: sha256}, arrange) == target
    return {path.name: path.read_bytes() for path in target.iterdir()}


def test_a_file_is_downloaded_once(server, tmp_path):
    server.files[URL] = CONTENTS
    sha256 = hashlib.sha256(CONTENTS).hexdigest()
    for _ in range(2):
        assert fetch(sha256) == {"texts.bin": CONTENTS}
    assert server.requests == [URL]
    assert os.listdir(tmp_path / "home") == ["texts"]


def test_the_folder_is_that_of_the_environment_or_in_the_users_cache(monkeypatch):
    monkeypatch.setenv("ALBERT_TF_HOME", "/disk/albert")
    assert str(download.home()) == "/disk/albert"
    monkeypatch.delenv("ALBERT_TF_HOME")
    assert str(download.home()) == os.path.expanduser("~/.cache/albert_tf")


def test_another_checksum_is_refused(server, tmp_path):
    server.files[URL] = CONTENTS
    with pytest.raises(InputError, match=f"^{URL}: .*{'0' * 64}"):
        fetch("0" * 64)
    assert not list((tmp_path / "home").glob("*"))


def test_without_a_connection_the_message_says_what_to_do(server, tmp_path):
    message = refusal(fetch)
    assert message.startswith(f"{URL}: ") and "Name or service not known" in message
    assert message.endswith(f"or texts.bin put into {tmp_path}/home by hand")
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home/texts.bin").write_bytes(b"by hand")
    assert fetch() == {"texts.bin": b"by hand"}
    assert server.requests == [URL]


def test_what_a_killed_process_left_is_downloaded_again(server, tmp_path):
    (tmp_path / "home/texts.part").mkdir(parents=True)
    (tmp_path / "home/texts.part/texts.bin").write_bytes(CONTENTS[:9])
    server.files[URL] = CONTENTS
    assert fetch() == {"texts.bin": CONTENTS}


@pytest.mark.parametrize("name", ["x.zip", "x.tar.gz"])
def test_what_is_no_archive_is_refused(server, tmp_path, name):
    url = f"https://example.org/{name}"
    server.files[url] = CONTENTS
    with pytest.raises(InputError, match=f"^{url}: "):
        fetch(url=url)
    assert not list((tmp_path / "home").glob("*"))


@pytest.mark.filterwarnings("ignore:Skipping invalid path")
def test_an_archive_stays_inside_its_folder(server, tmp_path):
    url = "https://example.org/x.zip"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("../../../out", "inner/a", "b"):
            file.writestr(name, b"1")
    server.files[url] = archive.getvalue()
    assert fetch(url=url, arrange=lambda new: new / "inner") == {"a": b"1"}
    assert not list(tmp_path.rglob("out*"))


def test_of_several_threads_one_downloads(server):
    server.files[URL] = CONTENTS
    with concurrent.futures.ThreadPoolExecutor() as pool:
        fetched = list(pool.map(lambda _: fetch(), range(3)))
    assert fetched == [{"texts.bin": CONTENTS}] * 3
    assert server.requests == [URL]
