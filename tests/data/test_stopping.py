import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from albert_tf.data import stopping

ROOT = Path(__file__).parents[2]
# Steps until a signal asks to stop; a second signal does not wait for that.
RUN = """
import signal, sys, time
from albert_tf.data import stopping
{before}
with stopping.catch_signals() as flag:
    print("begun", flush=True)
    while flag.signum is None:
        time.sleep(0.01)
    print("saving", flush=True)
    sys.stdin.readline()
    flag.stop()
"""


@pytest.fixture
def start():
    processes = []

    def call(before=""):
        process = subprocess.Popen(
            [sys.executable, "-c", RUN.format(before=before)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        processes.append(process)
        assert process.stdout.readline() == b"begun\n"
        return process

    yield call
    for process in processes:
        process.kill()
        process.communicate()


def test_a_second_signal_ends_the_process_at_once(start):
    process = start()
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == b"saving\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == -signal.SIGTERM


def test_a_signal_that_is_ignored_stays_so(start):
    process = start("signal.signal(signal.SIGINT, signal.SIG_IGN)")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.communicate(b"\n")
    assert process.returncode == 143


def test_handlers_are_put_back():
    before = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)]
    with pytest.raises(stopping.Stopped) as stopped, stopping.catch_signals() as flag:
        signal.raise_signal(signal.SIGTERM)
        assert flag.signum == signal.SIGTERM
        flag.stop()
    assert (stopped.value.code, stopped.value.signal) == (143, signal.SIGTERM)
    assert before == [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)]


def test_another_thread_than_the_main_one_watches_nothing():
    seen = []

    def run():
        with stopping.catch_signals() as flag:
            seen.append(flag.signum)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [None]
