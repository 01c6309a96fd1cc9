"""Data sets by name, from a server that the tests stand for."""

import hashlib
import io
import tarfile
import zipfile

import pytest
from helpers import contents, refusal

import albert_tf
from albert_tf.data import datasets, download
from albert_tf.errors import InputError
from albert_tf.tasks import catalogue, glue
from albert_tf.tasks.race import reading


@pytest.fixture
def publish(server, monkeypatch):
    """Serves files under the addresses of a data set, whose checksums become theirs."""

    def publish(name, *contents):
        dataset = datasets.read_datasets()[name]
        files = {}
        for url, data in zip(dataset.files, contents, strict=True):
            server.files[url] = data
            files[url] = hashlib.sha256(data).hexdigest()
        changed = dataset._replace(files=files)
        monkeypatch.setitem(datasets.read_datasets(), name, changed)
        return server

    return publish


def zipped(folder, *files):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.mkdir(folder.name)
        for path in folder.iterdir():
            file.write(path, f"{folder.name}/{path.name}")
    return archive.getvalue()


def test_every_task_of_glue_has_a_data_set():
    tasks = [task for task in vars(glue).values() if isinstance(task, glue.TextTask)]
    assert len(tasks) == 11
    names = {task.name for task in tasks}
    known = datasets.read_datasets()
    assert names == known.keys() - {"squad_v1", "squad_v2", "race"}
    for dataset in known.values():
        assert dataset.licence
        for url, sha256 in dataset.files.items():
            assert url.startswith("https://")
            assert len(sha256) == 64


@pytest.mark.parametrize("name", ["cola", "sst-2", "qqp", "sts-b", "qnli", "wnli"])
def test_tables_of_glue_are_where_the_task_reads_them(publish, data, name, caplog):
    task = catalogue.get_task(name)
    folder = data / "glue_own" / task.files["train"].partition("/")[0]
    server = publish(name, zipped(folder))
    for _ in range(2):
        root = albert_tf.datasets.fetch(name.upper())
        assert root == download.home() / "data/glue"
    assert len(server.requests) == 1
    [licence] = caplog.messages
    assert licence.startswith(f"{name}: licence: ")
    for split in task.files:
        ours, theirs = (
            task.read(split, folder, skip_bad_rows=True).rows
            for folder in (root, data / "glue_own")
        )
        assert ours == theirs


def test_the_diagnostic_table_comes_with_what_its_task_is_trained_on(publish, data):
    own = data / "glue_own"
    publish("ax", (own / "diagnostic/diagnostic.tsv").read_bytes())
    publish("mnli", zipped(own / "MNLI"))
    root = datasets.fetch("ax")
    for split in glue.AX.files:
        assert glue.AX.read(split, root) == glue.AX.read(split, own)


def test_mrpc_is_divided_as_in_glue(publish):
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
    rows = [f"{n % 2}\t{n}\t{n + 10}\tText {n}.\t\"Ünd {n}'\r\n" for n in range(6)]
    tables = ["".join([header, *rows]).encode(), "".join([header, *rows[:2]]).encode()]
    publish("mrpc", b"1\t11\n4\t14\n", *tables)
    root = datasets.fetch("mrpc")
    read = {split: glue.MRPC.read(split, root).rows for split in glue.MRPC.files}
    dev = [(row.text_a, row.label) for row in read["dev"]]
    assert dev == [("Text 1.", "1"), ("Text 4.", "0")]
    assert [row.text_b for row in read["train"]] == [
        f"\"Ünd {n}'" for n in (0, 2, 3, 5)
    ]
    test = [(row.guid, row.text_a) for row in read["test"]]
    assert test == [("0", "Text 0."), ("1", "Text 1.")]
    names = sorted(path.name for path in (root / "MRPC").iterdir())
    assert names == ["dev.tsv", "test.tsv", "train.tsv"]


def test_squad_is_a_folder_of_its_files(publish):
    publish("squad_v2", b"{}", b"[]")
    files = contents(datasets.fetch("squad_v2"))
    assert files == {"dev-v2.0.json": b"[]", "train-v2.0.json": b"{}"}


def test_race_is_the_folder_that_its_task_reads(publish, data):
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as file:
        file.add(data / "race_own/RACE", "RACE")
    publish("race", archive.getvalue())
    folder = datasets.fetch("race")
    ours = reading.read_split(folder, "dev")
    theirs = reading.read_split(data / "race_own", "dev")
    assert [question.id for question in ours] == [question.id for question in theirs]


def test_another_file_than_the_published_is_refused(publish, monkeypatch):
    known = datasets.read_datasets()
    published = known["rte"]
    publish("rte", b"others")
    monkeypatch.setitem(known, "rte", published)
    with pytest.raises(InputError, match=next(iter(published.files.values()))):
        datasets.fetch("rte")


def test_an_unknown_name_lists_the_names():
    assert refusal(datasets.fetch, "imdb") == (
        f"data set 'imdb': expected one of {', '.join(datasets.read_datasets())}"
    )
