"""Runs the commands that a recipe is made of."""

import contextlib
import shlex
import signal
import subprocess
import sys


def run(*arguments: str, module: str = "albert_tf.commands") -> None:
    """Runs `python -m MODULE ARGUMENTS` to its end; ends with its status unless 0.

    A command that is told to stop saves and says how to go on: SIGTERM is passed on to
    it, and Ctrl-C, which reaches it by itself, waits for it.
    """
    command = [sys.executable, "-m", module, *arguments]
    print(f"=== {shlex.join(['python', *command[1:]])}", file=sys.stderr, flush=True)
    status = None
    with subprocess.Popen(command) as child:
        before = signal.signal(signal.SIGTERM, lambda number, _: child.terminate())
        while status is None:
            with contextlib.suppress(KeyboardInterrupt):
                status = child.wait()
        signal.signal(signal.SIGTERM, before)
    if status:
        sys.exit(status if status > 0 else 128 - status)
