import os
import time

import pytest

from albert_tf.corpus import workers
from albert_tf.errors import InputError


def test_a_killed_worker_is_a_clear_line():
    with pytest.raises(InputError) as error, workers.pool(2) as run:
        list(run(os._exit, [(9,)]))
    assert str(error.value) == (
        "a worker process was killed, perhaps for lack of memory; the same command "
        "resumes from here, if necessary with fewer --num_workers"
    )


def test_an_error_ends_the_workers_at_once():
    begin = time.monotonic()
    with pytest.raises(KeyError), workers.pool(2) as run:
        for _ in run(time.sleep, [(0,), (600,)]):
            raise KeyError
    assert time.monotonic() - begin < 60
