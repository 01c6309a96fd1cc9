import os
import signal
import threading
import time

import pytest

from albert_tf.corpus import workers
from albert_tf.data import stopping
from albert_tf.errors import InputError


@pytest.fixture
def interruptible():
    """Makes Ctrl-C raise `KeyboardInterrupt`, even where a shell had it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("count", [1, 2])
def test_every_job_is_done_and_jobs_are_drawn_as_needed(count):
    with workers.Workers(count) as pool:
        assert sorted(pool.each(divmod, ((i, 3) for i in range(7)))) == [
            divmod(i, 3) for i in range(7)
        ]


def test_a_killed_worker_is_a_clear_line():
    with workers.Workers(2) as pool, pytest.raises(InputError) as error:
        list(pool.each(os._exit, [(9,)]))
    assert str(error.value) == (
        "a worker process was killed, perhaps for want of memory; the same command "
        "resumes from here, with fewer --num_workers if need be"
    )


def test_an_error_ends_the_workers_at_once():
    begin = time.monotonic()
    with pytest.raises(InputError), workers.Workers(2) as pool:
        for _ in pool.each(time.sleep, [(0,), (600,)]):
            raise InputError
    assert time.monotonic() - begin < 60


def test_a_second_ctrl_c_waits_until_the_workers_have_ended(monkeypatch, interruptible):
    events = []
    with pytest.raises(KeyboardInterrupt), workers.Workers(2) as pool:
        shut_down = pool._pool.shutdown

        def impatient(**options):
            signal.raise_signal(signal.SIGINT)
            shut_down(**options)
            events.append("ended")

        monkeypatch.setattr(pool._pool, "shutdown", impatient)
        list(pool.each(divmod, [(7, 3)]))
        raise KeyboardInterrupt
    assert events == ["ended"]


def test_workers_never_see_ctrl_c():
    ask = [(signal.SIG_BLOCK, [])]
    with workers.Workers(2) as pool:
        [held_back] = pool.each(signal.pthread_sigmask, ask)
    assert signal.SIGINT in held_back
    assert signal.SIGINT not in signal.pthread_sigmask(*ask[0])


def test_ctrl_c_waits_until_a_worker_has_its_job(interruptible):
    other_thread = threading.Timer(60, lambda: None)  # may take the signal
    other_thread.start()
    events = []
    with pytest.raises(KeyboardInterrupt), stopping.held():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        events.append("submitted")
    other_thread.cancel()
    assert events == ["submitted"]
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


def test_workers_start_from_any_thread():
    results = []

    def work():
        with workers.Workers(2) as pool:
            results.extend(pool.each(divmod, [(7, 3)]))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert results == [(2, 1)]
