"""Workers that are lost: what the others hear of it, and how they end."""

import contextlib
import socket
import subprocess
import sys
import threading
import time
import types

import pytest

from albert_tf.train import workers

NAMES = ("worker 0 (a:1)", "worker 1 (b:1)", "worker 2 (c:1)")


class EndedError(Exception):
    """Stands for the end of the process."""


class Watch(workers.Watch):
    """Notes how it would end its process."""

    ended = None

    def run(self):
        try:
            super().run()
        except EndedError as end:
            self.ended = end.args


@pytest.fixture
def connect(monkeypatch):
    """Starts the watches of three workers, two of them connected to the first."""

    def end(*why):
        raise EndedError(*why)

    monkeypatch.setattr(workers, "end", end)
    pairs = {1: socket.socketpair(), 2: socket.socketpair()}
    started = []

    def start(*indices, timeout=1):
        links = {n: {0: theirs} for n, (_, theirs) in pairs.items()}
        links[0] = {n: own for n, (own, _) in pairs.items()}
        watches = {n: Watch(n, NAMES, links[n], timeout) for n in indices}
        for watch in watches.values():
            watch.start()
        started.extend(watches.values())
        return watches

    yield pairs, start
    for watch in started:
        watch._left = True
        watch.join()
    for pair in pairs.values():
        for connection in pair:
            connection.close()


def ends(watches):
    for watch in watches.values():
        watch.join(10)
    return {n: watch.ended for n, watch in watches.items()}


def test_a_worker_without_signs_of_life_ends_the_others(connect):
    _, start = connect
    lost = (NAMES[2], "it gave no sign of life in --worker_timeout=1 seconds")
    begin = time.monotonic()
    assert ends(start(0, 1)) == {0: lost, 1: lost}
    assert time.monotonic() - begin >= 0.7  # no sooner than signs are missed


def test_a_closed_connection_ends_the_others_at_once(connect):
    pairs, start = connect
    watches = start(0, 1, timeout=1000)
    pairs[2][1].close()
    lost = (NAMES[2], "its connection was closed")
    assert ends(watches) == {0: lost, 1: lost}


def test_the_first_worker_is_missed_by_all(connect):
    pairs, start = connect
    watches = start(1, 2, timeout=1000)
    for own, _ in pairs.values():
        own.close()
    lost = (NAMES[0], "its connection was closed")
    assert ends(watches) == {1: lost, 2: lost}


def test_a_worker_that_ends_is_not_missed(connect):
    _, start = connect
    watches = start(0, 1, 2)
    announce = watches[2].announce
    watches[2].announce = lambda what: (announce(what), announce("alive"))
    watches[2].leave()
    time.sleep(1.5)
    assert watches[0].is_alive() and watches[1].is_alive()
    watches[1].leave()
    watches[0].leave()
    assert ends(watches) == {0: None, 1: None, 2: None}


def test_the_first_worker_may_let_one_go_before_that_one_has_gone(connect):
    pairs, start = connect
    [watch] = start(1).values()
    pairs[1][0].recv(100)  # a sign of life: it waits for the next
    announce = watch.announce

    def announced(what):
        announce(what)
        pairs[1][0].close()
        time.sleep(0.5)

    watch.announce = announced
    watch.leave()
    assert ends({1: watch}) == {1: None}


def test_an_error_of_another_worker_is_named_by_who_cannot_reach_it(connect):
    _, start = connect
    watches = start(0, 1, 2, timeout=1000)
    watches[2].announce("failed")
    time.sleep(0.5)
    assert watches[0].is_alive()
    with pytest.raises(EndedError, match="it ended with an error, which its log names"):
        watches[0].announce("broken")
    watches[0]._left = True  # its process would be gone
    watches[1].leave()
    watches[2].leave()


def test_an_error_of_all_is_awaited(connect):
    _, start = connect
    watches = start(0, 1, 2, timeout=1000)
    watches[1].announce("failed")
    is_announced = threading.Event()

    def announce():
        is_announced.set()
        watches[2].announce("failed")

    threading.Timer(0.3, announce).start()
    for watch in (watches[0], watches[1]):
        begin = time.monotonic()
        watch.announce("failed")
        watch.await_others(60)
        assert time.monotonic() - begin < 60
        assert is_announced.is_set()
    watches[0].await_others(0)


@pytest.fixture
def meet(monkeypatch):
    """Lets some of three workers meet; returns what came of each, and the addresses."""

    def end(*why):
        raise EndedError(*why)

    monkeypatch.setattr(workers, "end", end)
    monkeypatch.setattr(workers, "Watch", Watch)
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    addresses = [f"localhost:{port}", "localhost:0", "localhost:0"]
    spec = types.SimpleNamespace(
        jobs=["worker"],
        task_indices=lambda job: range(3),
        task_address=lambda job, index: addresses[index],
    )

    def call(*indices, timeout=1):
        came = {}

        def work(index):
            resolver = types.SimpleNamespace(
                task_type="worker", task_id=index, cluster_spec=lambda: spec
            )
            try:
                came[index] = workers.meet(resolver, timeout)
            except EndedError as error:
                came[index] = error.args

        threads = [threading.Thread(target=work, args=(index,)) for index in indices]
        for thread in threads[1:]:
            thread.start()
        threads[0].start()
        for thread in threads:
            thread.join(20)
        return came, [f"worker {n} ({at})" for n, at in enumerate(addresses)]

    return call


def test_workers_meet_after_others_have_come_and_gone(meet, monkeypatch):
    joined, lines = workers._join, iter([b"PRI * HTTP/2.0\r\n", b"", b"albert_tf 7\n"])

    def join(address, *arguments):
        for line in lines:
            with (
                contextlib.suppress(ConnectionRefusedError),
                socket.create_connection(workers._split(address)) as stranger,
            ):
                stranger.sendall(line)
        return joined(address, *arguments)

    monkeypatch.setattr(workers, "_join", join)
    watches, _ = meet(0, 1, 2, timeout=100)
    time.sleep(0.3)
    assert all(watch.is_alive() for watch in watches.values())
    for index in (2, 1, 0):
        watches[index].leave()
    assert ends(watches) == {0: None, 1: None, 2: None}


def test_a_worker_that_never_comes_ends_the_others(meet):
    came, names = meet(0, 1)
    lost = (names[2], "it did not come in --worker_timeout=1 seconds")
    assert came[0] == lost
    if isinstance(came[1], Watch):
        assert ends({1: came[1]}) == {1: lost}
        came[1].leave()
    else:  # it began sooner than the first
        assert came[1][1] == lost[1]


def test_a_first_worker_that_never_comes_ends_the_others(meet):
    came, names = meet(1)
    lost, why = came[1]
    assert lost == names[0]
    assert why == (
        "it cannot be reached in --worker_timeout=1 seconds: Connection refused"
    )


def test_a_process_ends_in_one_line_with_a_status_of_its_own():
    code = "from albert_tf.train import workers; workers.end('worker 1', 'it hangs')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == workers.LOST == 75
    assert done.stderr == (
        "error: worker 1 is lost: it hangs; run the same command on all workers again "
        "to resume\n"
    )
