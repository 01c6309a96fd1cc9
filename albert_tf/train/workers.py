"""Several workers watch one another: where one is lost, the others end.

A collective that waits for a worker that is gone may wait for ever, in a call that
nothing interrupts. So each worker has a thread and a connection of its own for signs of
life: to the first worker, which hears of all and passes on which of them is lost.
"""

import contextlib
import dataclasses
import os
import random
import select
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from albert_tf.data.stopping import Stopped
from albert_tf.errors import InputError, reason
from albert_tf.train import devices

if TYPE_CHECKING:
    import tensorflow as tf

# The exit status where another worker is lost: EX_TEMPFAIL, try again.
LOST = 75

# A worker gives this many signs of life in --worker_timeout, and is lost when so many
# of them did not come: the others end before the time is over.
_SIGNS = 10
_MISSED = 8
# What a worker announces, "NAME INDEX", and what it means to the others.
_ALIVE, _ENDED, _LOST_NOW = "alive", "ended", "lost"
_REASONS = {
    "failed": "it ended with an error, which its log names",
    "broken": "it cannot reach the others any more",
    "closed": "its connection was closed",
    "silent": "it gave no sign of life in --worker_timeout={} seconds",
    "absent": "it did not come in --worker_timeout={} seconds",
}
_GREETING_SECONDS = 10.0
# In which the others end as well, where an error is that of all.
_SECONDS_TO_FOLLOW = 5.0


@contextlib.contextmanager
def watched(strategy: "tf.distribute.Strategy", timeout: int) -> Iterator[None]:
    """Ends this process, with status `LOST` and a line, when another worker is lost.

    That is at once where its process died, and within `timeout` where it hangs or
    cannot be reached, whatever the block does: what was saved stays, as in any kill. A
    worker that leaves the block is no longer watched. Where an error ends the block,
    the others end within `timeout`.

    Args:
        strategy: the devices; with one process nothing is watched.
        timeout: seconds; 0: nothing is watched.

    Raises:
        InputError: the first worker cannot be reached.
    """
    workers = _workers(strategy) if devices.is_multi_worker(strategy) else {}
    if not timeout or len(workers) < 2:
        yield
        return
    with meeting(timeout):
        watch = _connect(strategy, workers, timeout)
    watch.start()
    try:
        yield
    except Stopped:  # all of them do
        watch.leave()
        raise
    except Exception as error:
        if not _is_of_others(error):
            watch.announce("failed")
            # A sum that made this one refuse may not have come to the others yet.
            watch.await_others(min(timeout, _SECONDS_TO_FOLLOW))
            raise
        watch.announce("broken")
        watch.join(timeout)  # it ends the process where it knows who is lost
        end("another worker", f"TensorFlow cannot reach it: {reason(error)}")
    watch.leave()


@contextlib.contextmanager
def meeting(timeout: int) -> Iterator[None]:
    """Ends this process where the block, which waits for all workers, takes too long.

    Args:
        timeout: seconds; 0: without an end.
    """
    why = f"not all workers came in --worker_timeout={timeout} seconds"
    timer = threading.Timer(timeout, end, ("another worker", why))
    timer.daemon = True
    if timeout:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _is_of_others(error: BaseException | None) -> bool:
    """Whether an error of TensorFlow may come from another worker."""
    import tensorflow as tf

    while error is not None and not isinstance(error, tf.errors.OpError):
        error = error.__cause__
    own = (
        *(tf.errors.ResourceExhaustedError, tf.errors.InvalidArgumentError),
        *(tf.errors.DataLossError, tf.errors.NotFoundError),
        *(tf.errors.OutOfRangeError, tf.errors.UnimplementedError),
    )
    return error is not None and not isinstance(error, own)


@dataclasses.dataclass
class _Peer:
    """A worker at the other end of a connection."""

    connection: socket.socket
    received: bytes = b""
    missed: int = 0
    failure: str = ""
    is_open: bool = True


class _Watch(threading.Thread):
    """Gives and awaits signs of life.

    Args:
        own: this worker's index in `names`; 0: the first, which all others are
            connected to.
        names: of all workers, for messages.
        connections: by the index of the worker at the other end.
        timeout: seconds.
    """

    def __init__(
        self,
        own: int,
        names: Sequence[str],
        connections: Mapping[int, socket.socket],
        timeout: int,
    ):
        super().__init__(name="workers", daemon=True)
        self._own, self._names, self._timeout = own, names, timeout
        self._peers = {index: _Peer(each) for index, each in connections.items()}
        self._failed: dict[int, str] = {}
        self._ended: set[int] = set()
        self._broken = self._left = False

    def announce(self, what: str) -> None:
        """Lets the others know how this worker fares."""
        self._send(f"{what} {self._own}")
        if what == "broken":
            self._broken = True
            for index, why in self._failed.items():
                self._end(index, why)

    def await_others(self, seconds: float) -> None:
        """Returns once every other worker has failed or ended, or the time is over."""
        end = time.monotonic() + seconds
        others = set(range(len(self._names))) - {self._own}
        while others - self._ended - set(self._failed) and time.monotonic() < end:
            time.sleep(0.05)

    def leave(self) -> None:
        """Ends the watch of this worker, and that of the others over it."""
        self._left = True  # before the first worker hears it, and lets this one go
        self.announce(_ENDED)
        self.join()
        for peer in self._peers.values():
            peer.connection.close()

    def run(self) -> None:
        """Gives signs and awaits them, until `leave` or the loss of a worker."""
        seconds = self._timeout / _SIGNS
        while not self._left:
            self._send(f"{_ALIVE} {self._own}")
            end = time.monotonic() + seconds
            while not self._left and (left := end - time.monotonic()) > 0:
                self._receive(min(left, 0.2))
            # Counted and not timed: a machine that slept blames nobody for it.
            for index, peer in list(self._peers.items()):
                peer.missed += 1
                if peer.missed >= _MISSED:
                    self._lose(index, self._failed.get(index, "silent"))

    def _send(self, line: str, beside: int | None = None) -> None:
        for index, peer in list(self._peers.items()):
            if index != beside and peer.is_open:
                # One that does not read is silent, too. Closed: reading shows it.
                with contextlib.suppress(OSError):
                    peer.connection.send(f"{line}\n".encode(), socket.MSG_DONTWAIT)

    def _receive(self, seconds: float) -> None:
        open_ones = [p.connection for p in self._peers.values() if p.is_open]
        if not open_ones:
            time.sleep(seconds)
            return
        ready, _, _ = select.select(open_ones, [], [], seconds)
        for index, peer in list(self._peers.items()):
            if peer.connection in ready:
                self._read(index, peer)

    def _read(self, index: int, peer: _Peer) -> None:
        try:
            received = peer.connection.recv(4096)
        except OSError:
            received = b""
        *lines, peer.received = (peer.received + received).split(b"\n")
        for line in lines:
            self._hear(line.decode(), index)
        if not received and index in self._peers:
            peer.is_open = False
            if index not in self._failed:
                self._lose(index, "closed")

    def _hear(self, line: str, sender: int) -> None:
        what, number, *why = line.split()
        index = int(number)
        if what == _ALIVE:
            if sender not in self._failed:
                self._peers[sender].missed = 0
            return
        if self._own == 0:
            self._send(line, beside=sender)
        if what == _LOST_NOW:
            self._end(index, why[0])
        elif what == _ENDED:
            self._ended.add(index)
            self._peers.pop(index, None)
        else:
            # It, or in its place the first worker, has the time that is left to end.
            self._failed[index] = what
            if self._broken:
                self._end(index, what)

    def _lose(self, index: int, why: str) -> None:
        if self._left:
            return
        self._send(f"{_LOST_NOW} {index} {why}", beside=index)
        self._end(index, why)

    def _end(self, index: int, why: str) -> NoReturn:
        end(self._names[index], _REASONS[why].format(self._timeout))


def end(worker: str, why: str) -> NoReturn:
    """Ends this process because another worker is lost, wherever its threads are.

    Args:
        worker: which.
        why: what is known of it.
    """
    line = (
        f"error: {worker} is lost: {why}; run the same command on all workers "
        f"again to resume\n"
    )
    os.write(2, line.encode())  # other threads may hold the locks of Python's streams
    os._exit(LOST)


def _workers(strategy: "tf.distribute.Strategy") -> dict[tuple[str, int], str]:
    """Returns the addresses of those who train together, the chief's first."""
    jobs = strategy.cluster_resolver.cluster_spec().as_dict()
    return {
        (job, index): address
        for job in ("chief", "worker")
        for index, address in enumerate(jobs.get(job, ()))
    }


def _connect(
    strategy: "tf.distribute.Strategy",
    workers: Mapping[tuple[str, int], str],
    timeout: int,
) -> _Watch:
    """Connects all workers to the first, whose port goes around as a sum."""
    resolver = strategy.cluster_resolver
    own = list(workers).index((resolver.task_type, resolver.task_id))
    names = [f"{job} {index} ({at})" for (job, index), at in workers.items()]
    numbers = [0.0] * 4
    if own == 0:
        server = _listening()
        secrets = [random.SystemRandom().randrange(2**16) for _ in range(2)]
        numbers = [float(server.getsockname()[1]), *map(float, secrets), 1.0]
    *sums, replicas = devices.add_up(strategy, numbers)
    port, *secrets = (int(number / replicas) for number in sums)
    greeting = " ".join(map(str, secrets))
    connections = {}
    if own == 0:
        with server:
            connections = _greeted(server, greeting, names, timeout)
    else:
        connections[0] = _greet(
            next(iter(workers.values())), port, f"{greeting} {own}\n", timeout
        )
    return _Watch(own, names, connections, timeout)


def _listening() -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", 0), family=socket.AF_INET6, dualstack_ipv6=True
        )
    return socket.create_server(("", 0))


def _greet(address: str, port: int, greeting: str, timeout: int) -> socket.socket:
    host = address.rpartition(":")[0].strip("[]")
    try:
        connection = socket.create_connection((host, port), timeout)
        connection.sendall(greeting.encode())
    except OSError as error:
        raise InputError(
            f"--worker_timeout={timeout}: the first worker, {host}, cannot be reached "
            f"at port {port}: {reason(error)}; expected workers that reach its ports, "
            f"or --worker_timeout=0"
        ) from None
    return connection


def _greeted(
    server: socket.socket, greeting: str, names: Sequence[str], timeout: int
) -> dict[int, socket.socket]:
    """Waits for all other workers."""
    connections: dict[int, socket.socket] = {}
    end_time = time.monotonic() + timeout
    while missing := set(range(1, len(names))) - set(connections):
        server.settimeout(max(end_time - time.monotonic(), 0.01))
        try:
            connection, _ = server.accept()
        except TimeoutError:
            end(names[min(missing)], _REASONS["absent"].format(timeout))
        connection.settimeout(_GREETING_SECONDS)
        with contextlib.suppress(OSError, ValueError):
            *words, number = (
                connection.makefile("r", encoding="ascii").readline(40).split()
            )
            if " ".join(words) == greeting and int(number) in missing:
                connection.settimeout(None)
                connections[int(number)] = connection
                continue
        connection.close()  # of a stranger
    return connections
