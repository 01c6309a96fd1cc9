import os

import pytest

from albert_tf.data import cores

WHOLE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/a/b", {"a/memory.max": "70", "a/b/memory.max": "max"}, 70),
        ("0::/a/b", {"a/memory.max": "70", "a/b/memory.max": "60"}, 60),
        ("0::/", {"memory.max": "50"}, 50),  # in a container
        (
            "4:cpu:/x\n3:memory,pids:/docker/5\n0::/",
            {"memory/memory.limit_in_bytes": "40", "cpu/x/memory.max": "1"},
            40,
        ),
        ("3:memory:/", {"memory/memory.limit_in_bytes": str(2**63 - 4096)}, WHOLE),
        ("0::/../c", {}, WHOLE),
        (None, {}, WHOLE),
    ],
)
def test_the_memory_of_the_machine_or_of_the_control_group(
    tmp_path, groups, files, limit
):
    if groups is not None:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(groups + "\n")
    for name, content in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    assert cores.memory(tmp_path) == limit
