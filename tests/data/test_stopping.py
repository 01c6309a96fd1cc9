import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from albert_tf.data import stopping

ROOT = Path(__file__).parents[1].parent
# A step that takes seconds and never comes back to Python's own instructions.
WATCH = """
import functools, hashlib
from albert_tf.data import stopping
with stopping.watched(functools.partial(print, flush=True)) as watch:
    print("begun", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", {numbers})
    watch.stop()
"""


@pytest.fixture
def start():
    processes = []

    def call(numbers, before="import signal"):
        code = f"{before}\n{WATCH.format(numbers=numbers)}"
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT
            )
        )
        assert processes[-1].stdout.readline() == b"begun\n"
        return processes[-1]

    yield call
    for process in processes:
        process.kill()
        process.communicate()


FIRST = "{}: stopping after this step; another signal ends the run at once\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_waits_for_the_step_and_the_second_does_not(start, number):
    process = start(2**30)
    for _ in range(2):  # `timeout` sends it twice
        process.send_signal(number)
    line = process.stdout.readline().decode()
    assert line == FIRST.format(signal.Signals(number).name)
    time.sleep(0.1)
    assert process.poll() is None
    time.sleep(1.0)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 143


def test_the_status_is_the_signals(start):
    process = start(10**6)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130


def test_a_signal_that_is_ignored_stays_so(start):
    ignore = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    process = start(10**6, ignore)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 143  # as `stop` says where no signal came
    assert process.stdout.read() == b""


def test_an_interrupted_command_ends_with_a_line_whatever_it_raises():
    code = """
import signal
from albert_tf.data import stopping
with stopping.ending("begin anew"):
    try:
        with stopping.held():
            signal.raise_signal(signal.SIGTERM)
            print("held")
    except BaseException as error:
        raise ImportError from error
"""
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert (run.returncode, run.stdout) == (143, "held\n")
    assert run.stderr == "stopped by SIGTERM; begin anew\n"


@pytest.mark.parametrize(
    "lost",
    [
        "type('', (), {'__del__': lambda _: stop()})()",
        "ctypes.CFUNCTYPE(None)(stop)()",
        "gc.callbacks.append(lambda *_: stop()); gc.collect()",
    ],
)
def test_a_signal_that_python_drops_comes_again_and_waits_for_cleaning(lost):
    code = f"""
import ctypes, gc, signal, time
from albert_tf.data import stopping
def stop():
    signal.raise_signal(signal.SIGINT)
    print("not reached")
with stopping.ending("begin anew"):
    try:
        {lost}
        gc.callbacks.clear()
        time.sleep(20)
        print("not reached")
    finally:
        time.sleep(1.5)
        print("cleaned")
"""
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert (run.returncode, run.stdout) == (130, "cleaned\n")
    assert run.stderr == "stopped by SIGINT; begin anew\n"


def test_handlers_are_put_back():
    before = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)]
    lines = []
    with stopping.watched(lines.append) as watch:
        signal.raise_signal(signal.SIGTERM)
        end = time.monotonic() + 10
        while watch.number is None and time.monotonic() < end:
            time.sleep(0.001)
        assert watch.number == signal.SIGTERM
    assert before == [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)]
    assert signal.set_wakeup_fd(-1) == -1
    assert lines == [FIRST.format("SIGTERM")[:-1]]


def test_another_thread_than_the_main_one_watches_nothing():
    seen = []

    def run():
        with stopping.watched(seen.append) as watch:
            seen.append(watch.number)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [None]


def test_a_second_signal_ends_the_run_where_the_first_cannot_be_logged(monkeypatch):
    def log(line):
        raise BrokenPipeError

    ended = []
    monkeypatch.setattr(stopping.os, "_exit", ended.append)
    monkeypatch.setattr(stopping, "_SECONDS_OF_ONE", -1.0)
    reader, writer = os.pipe()
    os.write(writer, bytes([signal.SIGTERM, signal.SIGTERM]))
    os.close(writer)
    watch = stopping.Watch()
    stopping._listen(reader, [signal.SIGTERM], watch, log)
    os.close(reader)
    assert (watch.number, ended) == (signal.SIGTERM, [143])
