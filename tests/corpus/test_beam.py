import concurrent.futures
import contextlib
import io
import signal
import subprocess
import sys
import time

import pytest
from helpers import contents, refusal

from albert_tf.corpus import documents, files, shards
from albert_tf.errors import InputError


@pytest.fixture
def small_ranges(monkeypatch):
    """Divides the small corpus among several shards."""
    monkeypatch.setattr(documents, "RANGE_BYTES", 9_000)
    monkeypatch.setattr(shards, "SHARD_BYTES", 60_000)


def test_a_mistake_on_beam_is_one_line(make, tmp_path):
    pytest.importorskip("apache_beam")
    (tmp_path / "x").write_bytes(b"one\n\xff\n")
    assert refusal(make, input_file=(f"{tmp_path}/x",), runner="DirectRunner") == (
        f"{tmp_path}/x: line 2, byte 4: not UTF-8 (byte 0xff); give the right "
        f"--encoding, or --replace_invalid_utf8 to put U+FFFD there"
    )


def test_an_unknown_runner_is_one_line(make):
    pytest.importorskip("apache_beam")
    with pytest.raises(InputError, match="--runner: Unexpected pipeline runner: Daks"):
        make(runner="Daks")


def test_without_beam_the_runner_flag_says_what_to_install(make, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    assert refusal(make, runner="DirectRunner") == (
        "--runner or a remote file needs the package apache_beam: pip install "
        "'albert_tf[beam]'"
    )


def test_remote_outputs_are_not_looked_for_on_this_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files.check_outputs(["gs://bucket/x"], ["gs://bucket/y"])
    assert not list(tmp_path.iterdir())
    message = "--output_file: gs://bucket/x is an input file, too"
    assert refusal(files.check_outputs, ["gs://bucket/x"], ["gs://bucket/x"]) == message


@pytest.fixture
def remote(tmp_path, monkeypatch):
    """A file system for fake://, a folder "fake:" of the working directory."""
    pytest.importorskip("apache_beam")
    from apache_beam.io import localfilesystem

    class Fake(localfilesystem.LocalFileSystem):
        @classmethod
        def scheme(cls):
            return "fake"

    monkeypatch.chdir(tmp_path)
    (tmp_path / "fake:/bucket").mkdir(parents=True)
    yield tmp_path / "fake:/bucket"
    Fake.scheme = classmethod(lambda cls: "fake-no-more")


def test_beam_makes_the_files_of_the_local_run(make, remote, tmp_path, small_ranges):
    changes = {"eval_fraction": 0.1, "compress": True}
    local = make("local", output_file=(f"{tmp_path}/local/x@3",), **changes)
    changes |= {"output_file": ("fake://bucket/x@3",), "runner": "DirectRunner"}
    make(**changes)
    assert len(contents(local)) == 7
    assert contents(remote) == contents(local)
    before = {path: path.stat().st_mtime_ns for path in remote.iterdir()}
    make(log=(log := io.StringIO()), **changes)
    line = "fake://bucket/x.json: nothing to do, its files are complete\n"
    assert log.getvalue() == line
    assert {path: path.stat().st_mtime_ns for path in remote.iterdir()} == before
    (remote / "x.eval").unlink()
    make(**changes)
    assert contents(remote) == contents(local)


@pytest.fixture
def cluster(tmp_path):
    """Starts a Dask scheduler in this process, and a worker in a process of its own."""
    pytest.importorskip("apache_beam")  # ignores the warnings of its import
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=0,
        threads_per_worker=1,
        processes=False,
        protocol="tcp://",
        host="127.0.0.1",
        dashboard_address=None,
        memory_limit=0,
        scheduler_kwargs={"scheduler_file": str(tmp_path / "scheduler.json")},
        local_directory=str(tmp_path),
    ) as scheduler:
        flags = ["--no-nanny", "--nthreads=1", "--no-dashboard"]
        flags.append(f"--local-directory={tmp_path}")
        worker = subprocess.Popen(
            [
                *(sys.executable, "-m", "dask", "worker", *flags),
                scheduler.scheduler_address,
            ],
            stderr=subprocess.DEVNULL,
        )
        yield scheduler, worker
        # Beam leaves its clients open. Their attempts to connect again would draw from
        # Python's random numbers, and change the initial weights of later tests.
        with contextlib.suppress(ValueError):  # no client is left
            while True:
                distributed.default_client().close()
        worker.kill()
        worker.wait()


def test_a_dask_cluster_may_lose_a_worker(make, cluster, small_ranges, tmp_path):
    scheduler, worker = cluster
    changes = {"eval_fraction": 0.1, "dupe_factor": 20}
    local = make("local", **changes)
    changes["runner_options"] = (f"--dask_scheduler_file={tmp_path}/scheduler.json",)
    work = tmp_path / "cluster" / "x.tfrecord.work"
    with concurrent.futures.ThreadPoolExecutor() as pool:
        run = pool.submit(make, "cluster", runner="DaskRunner", **changes)
        while worker.poll() is None and not list(work.glob("train-*.json")):
            if run.done():
                break
            time.sleep(0.01)
        worker.kill()
        merged = list(work.glob("merge-*.json"))
        scheduler.scale(1)  # another worker, in this process
        assert contents(run.result(timeout=120)) == contents(local)
    assert worker.wait() == -signal.SIGKILL and not merged
