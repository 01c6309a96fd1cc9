"""Which cores the machine lets this process use."""

import os


def available() -> int:
    """Returns how many cores this process may use: maybe fewer than there are."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
