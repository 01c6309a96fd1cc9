"""Makes the n-th write, flush or rename of a command fail, for every n of a short run.

    python tests/faults/disks.py

Afterwards the command runs again without faults, and its files are compared with those
of an undisturbed run. Ends with 1 where a byte differs, or something was not refused in
one line. Give it an unprivileged user and a TMPDIR.
"""

import contextlib
import errno
import itertools
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import short_runs

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"


@contextlib.contextmanager
def failing(kind: str, number: int):
    """Makes one call fail; yields a list that is empty if it never came to it."""
    from albert_tf.data import files

    owner = files._Output if kind == "write" else os
    original, calls, failed = getattr(owner, kind), itertools.count(1), []

    def call_or_fail(*arguments, **keywords):
        if next(calls) == number:
            failed.append(kind)
            code = errno.ENOSPC if number % 2 else errno.EIO
            error = OSError(code, os.strerror(code))
            if kind == "write":
                with files.errors.writing(arguments[0]._path):
                    raise error
            raise error
        return original(*arguments, **keywords)

    with mock.patch.object(owner, kind, call_or_fail):
        yield failed


def main() -> None:
    from albert_tf.commands import vocabulary
    from albert_tf.corpus.workers import Workers
    from albert_tf.train import loop

    loop._SECONDS_BETWEEN = 0.0
    # The faults are in this process alone.
    vocabulary.Workers = lambda count, advice: Workers(1, advice)
    total = differences = 0
    only, end = sys.argv[2:], time.monotonic() + float((sys.argv[1:] or [3600])[0])
    with tempfile.TemporaryDirectory() as work:
        for name in only or short_runs.commands_of(Path(work)):
            whole = Path(work, name)
            whole.mkdir()
            code, text = short_runs.call(name, whole)
            assert code == 0, text
            expected = short_runs.contents(whole)
            for kind in ("replace", "rename", "fsync", "write"):
                tried, codes = 0, []
                for number in itertools.count(1):
                    if time.monotonic() > end:
                        print("out of time")
                        break
                    folder = Path(work, "broken")
                    shutil.rmtree(folder, ignore_errors=True)
                    folder.mkdir()
                    with failing(kind, number) as failed:
                        code, text = short_runs.call(name, folder)
                    if not failed:
                        break
                    codes.append(code)
                    tried += 1
                    again, more = short_runs.call(name, folder)
                    same = again == 0 and short_runs.contents(folder) == expected
                    if not same or code not in (0, 2, 74) or "Traceback" in text:
                        differences += 1
                        print(name, kind, number, code, again, text, more)
                counts = {code: codes.count(code) for code in sorted(set(codes))}
                print(f"{name} {kind}: {tried} faults, statuses {counts}", flush=True)
                total += tried
    print(f"{total} faults, {differences} differences")
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
