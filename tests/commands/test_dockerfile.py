"""The Dockerfile copies what is there and what .dockerignore lets through."""

import re
import shlex
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Dockerfile").read_text()


def test_what_is_copied_is_there_and_not_ignored():
    copied = {
        name
        for line in re.findall(r"^COPY (.*)$", TEXT, re.MULTILINE)
        for name in shlex.split(line)[:-1]
    }
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    for name in copied:
        assert (ROOT / name).exists(), name


def test_what_the_package_is_built_of_is_copied():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    files = [project["project"]["readme"], *project["project"]["license-files"]]
    files.append(project["tool"]["setuptools"]["dynamic"]["dependencies"]["file"][0])
    for name in files:
        assert re.search(rf"^COPY .*\b{re.escape(name)}\b", TEXT, re.MULTILINE), name
    [entry] = project["project"]["scripts"]
    assert f'ENTRYPOINT ["{entry}"]' in TEXT
    # The user is no root from here on, whatever runs.
    assert TEXT.index("USER albert") < TEXT.index("ENTRYPOINT")
