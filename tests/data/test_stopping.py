import concurrent.futures
import signal

import pytest

from albert_tf.data import stopping

BOTH = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture(autouse=True)
def handlers():
    """Expects that a test puts the handlers back."""
    before = [signal.getsignal(number) for number in BOTH]
    yield
    assert [signal.getsignal(number) for number in BOTH] == before


@pytest.mark.parametrize(("number", "status"), [(BOTH[0], 143), (BOTH[1], 130)])
def test_a_signal_sets_the_flag_and_a_second_one_ends_the_process(number, status):
    with pytest.raises(stopping.Stopped) as stopped, stopping.catch_signals() as flag:
        assert flag.signum is None
        signal.raise_signal(number)
        assert flag.signum == number
        assert {signal.getsignal(each) for each in BOTH} == {signal.SIG_DFL}
        flag.stop()
    assert (stopped.value.code, stopped.value.signal) == (status, number)


def test_a_signal_that_is_ignored_stays_so():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    with stopping.catch_signals() as flag:
        signal.raise_signal(signal.SIGINT)
        assert flag.signum is None
        signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    signal.signal(signal.SIGINT, before)


def test_another_thread_than_the_main_one_watches_nothing():
    def run():
        with stopping.catch_signals() as flag:
            return flag.signum

    with concurrent.futures.ThreadPoolExecutor() as pool:
        assert pool.submit(run).result() is None
