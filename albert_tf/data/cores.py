"""What the machine lets this process use: cores and memory."""

import contextlib
import os
from pathlib import Path, PurePosixPath

# By the field of /proc/self/cgroup: the second version has no name there.
_MEMORY_OF_GROUPS = {
    "": ("sys/fs/cgroup", "memory.max"),
    "memory": ("sys/fs/cgroup/memory", "memory.limit_in_bytes"),
}


def available() -> int:
    """Returns how many cores this process may use: maybe fewer than there are."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory(root: Path = Path("/")) -> int:
    """Returns the bytes of memory that this process may use, other processes or not.

    They are the machine's, or those of the control group (container, job) that it is
    in, where these are fewer.

    Args:
        root: where the kernel's own file systems are.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with contextlib.suppress(OSError):  # not on macOS
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, names, path = line.split(":", 2)
            for name in _MEMORY_OF_GROUPS.keys() & names.split(","):
                limits += _limits(root, PurePosixPath(path), *_MEMORY_OF_GROUPS[name])
    return min(limits)


def _limits(root: Path, group: PurePosixPath, folder: str, file: str) -> list[int]:
    """Reads the limits of a control group and of those around it."""
    limits = []
    for place in (group, *group.parents):
        # A container does not see the groups around it.
        with contextlib.suppress(OSError, ValueError):  # "max": none
            limits.append(int((root / folder / f".{place}" / file).read_text()))
    return limits
