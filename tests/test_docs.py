"""The documentation site leaves out no guide and no public name."""

import pkgutil
from pathlib import Path

import pytest
import yaml

import albert_tf

ROOT = Path(__file__).parents[1]


def entries(nav):
    """The pages below a part of the navigation, by their paths on the site."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in entries(part)]


PAGES = entries(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])


def test_guides_and_notebooks_are_in_the_navigation():
    guides = {path.name for path in ROOT.glob("docs/*.md")}
    notebooks = {f"notebooks/{path.name}" for path in ROOT.glob("notebooks/*.ipynb")}
    assert guides | notebooks <= set(PAGES)
    assert len(PAGES) == len(set(PAGES))


def test_every_room_has_a_page():
    modules = pkgutil.iter_modules(albert_tf.__path__)
    rooms = {module.name for module in modules if module.name != "__main__"}
    pages = {Path(page).stem for page in PAGES if page.startswith("reference/")}
    assert pages == rooms | {"albert_tf"}


@pytest.mark.parametrize("name", albert_tf.__all__)
def test_a_public_name_stands_on_its_rooms_page(name):
    value = getattr(albert_tf, name)
    path = getattr(value, "__module__", value.__name__).split(".")
    assert f"reference/{path[1]}.md" in PAGES
    # The reference shows neither private names nor what has no docstring.
    assert not any(part.startswith("_") for part in (*path, name))
    assert vars(value)["__doc__"]
