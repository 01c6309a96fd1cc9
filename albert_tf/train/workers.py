"""Several workers watch one another: where one is lost, the others end.

A collective that waits for a worker that is gone may wait for ever, in a call that
nothing interrupts. So each worker has a thread and a connection of its own for signs of
life: to the first worker, which hears of all and passes on which of them is lost.
"""

import atexit
import contextlib
import dataclasses
import errno
import os
import select
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from albert_tf.data.stopping import Stopped
from albert_tf.errors import InputError, reason

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
    "unreachable": "it cannot be reached in --worker_timeout={} seconds",
}
# In which the others end as well, where an error is that of all.
_SECONDS_TO_FOLLOW = 5.0
# What a worker greets the first one with: its index.
_GREETING = "albert_tf worker {}\n"
_SECONDS_BETWEEN = 0.2
_CONNECT_SECONDS = 5.0


@contextlib.contextmanager
def watched(strategy: "tf.distribute.Strategy") -> Iterator[None]:
    """Ends this process, with status `LOST` and a line, when another worker is lost.

    That is at once where its process died, and within --worker_timeout where it hangs
    or cannot be reached, whatever the block does: what was saved stays, as in any kill.
    A worker that leaves the block is no longer watched. Where an error ends the block,
    the others end within --worker_timeout.

    Args:
        strategy: of `devices.create`; with one process nothing is watched.
    """
    watch = getattr(strategy, "watch", None)
    if watch is None:
        yield
        return
    try:
        with watch.judging_errors():
            yield
    except Stopped:  # all of them do
        watch.leave()
        raise
    watch.leave()


def meet(
    resolver: "tf.distribute.cluster_resolver.ClusterResolver", timeout: int
) -> "Watch | None":
    """Waits until all workers are there; from then on each is watched.

    TensorFlow waits for them in a call that no signal interrupts, and without an end.
    So they meet before, at the address that the first worker's server takes next.

    Args:
        resolver: of several workers.
        timeout: seconds, after which this process ends with status `LOST`; 0: nothing
            is waited for or watched.

    Returns:
        The watch, or None where there is nobody to watch.

    Raises:
        InputError: an address has no port, or another process uses this worker's.
    """
    spec = resolver.cluster_spec()
    addresses = {
        (job, index): spec.task_address(job, index)
        for job in ("chief", "worker")
        if job in spec.jobs
        for index in spec.task_indices(job)
    }
    own = (resolver.task_type, resolver.task_id)
    if not timeout or len(addresses) < 2 or own not in addresses:
        return None
    index = list(addresses).index(own)
    names = [f"{job} {n} ({address})" for (job, n), address in addresses.items()]
    deadline = time.monotonic() + timeout
    with _listening(addresses[own], deadline) as server:
        if index == 0:
            connections = _gather(server, names, deadline, timeout)
        else:
            first = next(iter(addresses.values()))
            connections = {0: _join(first, index, names[0], deadline, timeout)}
    watch = Watch(index, names, connections, timeout)
    watch.start()
    atexit.register(watch.announce, "failed")  # to no one where it has left
    return watch


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


class Watch(threading.Thread):
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

    @contextlib.contextmanager
    def judging_errors(self) -> Iterator[None]:
        """Ends this process where an error comes from a worker that is lost."""
        try:
            yield
        except Exception as error:
            if not _is_of_others(error):
                self.announce("failed")
                # A sum that made this one refuse may not have come to the others yet.
                self.await_others(min(self._timeout, _SECONDS_TO_FOLLOW))
                raise
            self.announce("broken")
            self.join(self._timeout)  # it ends the process where it knows who is lost
            end("another worker", f"TensorFlow cannot reach it: {reason(error)}")

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
                _send(peer.connection, line)

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
            # One that leaves may send its last sign after its word of it.
            if sender in self._peers and sender not in self._failed:
                self._peers[sender].missed = 0
            return
        if self._own == 0:
            self._send(line, beside=sender)
        if what == _LOST_NOW:
            self._end(index, why[0])
        elif what == _ENDED:
            self._ended.add(index)
            if peer := self._peers.pop(index, None):
                peer.connection.close()
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


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise InputError(f"the address {address!r} of a worker: expected HOST:PORT")
    return host.strip("[]"), int(port)


def _listening(address: str, deadline: float) -> socket.socket:
    """Listens at a worker's own address, where one before it may not have ended yet."""
    _, port = _split(address)
    kind: dict[str, Any] = {}
    if socket.has_dualstack_ipv6():
        kind = {"family": socket.AF_INET6, "dualstack_ipv6": True}
    while True:
        try:
            return socket.create_server(("", port), **kind)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise InputError(
                    f"this worker's address, {address}: {reason(error)}; expected a "
                    f"port that no other process uses"
                ) from None
        time.sleep(_SECONDS_BETWEEN)


def _gather(
    server: socket.socket, names: Sequence[str], deadline: float, timeout: int
) -> dict[int, socket.socket]:
    """Waits on the first worker for all the others."""
    server.settimeout(1.0)
    greetings = {_GREETING.format(n).encode(): n for n in range(1, len(names))}
    connections: dict[socket.socket, int] = {}  # 0: has not spoken
    came: set[int] = set()
    while missing := set(greetings.values()) - set(connections.values()):
        if (left := deadline - time.monotonic()) < 0:
            lost = min(missing - came or missing)
            for connection in connections:
                _send(connection, f"{_LOST_NOW} {lost} absent")
                connection.close()
            end(names[lost], _REASONS["absent"].format(timeout))
        ready, *_ = select.select([server, *connections], [], [], left)
        for connection in ready:
            if connection is server:
                with contextlib.suppress(OSError):
                    connections[server.accept()[0]] = 0
                continue
            number = 0
            if connections.pop(connection, 0) == 0:  # else it has ended
                with contextlib.suppress(OSError):
                    number = greetings.get(connection.recv(100), 0)
            for other, before in list(connections.items()):
                if before == number != 0:  # it came anew
                    del connections[other]
                    other.close()
            if number:
                connections[connection] = number
                came.add(number)
            else:
                connection.close()  # of a stranger
    for connection, number in connections.items():
        if not number:
            connection.close()
    return {number: each for each, number in connections.items() if number}


def _join(
    address: str, own: int, name: str, deadline: float, timeout: int
) -> socket.socket:
    """Waits until the first worker has heard of all."""
    unreachable = _REASONS["unreachable"].format(timeout)
    lost, why = name, unreachable
    while (left := deadline - time.monotonic()) > 0:
        try:
            wait = min(left, _CONNECT_SECONDS)
            with socket.create_connection(_split(address), wait) as connection:
                connection.settimeout(left)
                # A port that nobody has taken may be given to who connects to it.
                if connection.getsockname() != connection.getpeername():
                    connection.sendall(_GREETING.format(own).encode())
                    lost, why = "another worker", _REASONS["absent"].format(timeout)
                    # Left for the watch to read, which both words are meant for.
                    if connection.recv(5, socket.MSG_PEEK) in (b"alive", b"lost "):
                        connection.settimeout(None)
                        return connection.dup()
        except TimeoutError:
            pass
        except OSError as error:
            lost, why = name, f"{unreachable}: {reason(error)}"
        time.sleep(_SECONDS_BETWEEN)
    end(lost, why)


def _send(connection: socket.socket, line: str) -> None:
    # One that does not read is silent, too. Closed: reading shows it.
    with contextlib.suppress(OSError):
        connection.send(f"{line}\n".encode(), socket.MSG_DONTWAIT)
