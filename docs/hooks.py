"""Adds pages from outside docs/: README, notebooks, a reference for each package.

Links stay as GitHub needs them, relative in the checkout. Here they become links of the
site, or of the repository where the site has no such page.
"""

import os
import pkgutil
import re
from pathlib import Path

from mkdocs.plugins import event_priority
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)#\s]+)")


@event_priority(100)  # before mkdocs-jupyter looks for notebooks
def on_files(files, config):
    """Adds the pages."""
    for path in (ROOT / "README.md", *ROOT.glob("notebooks/*.ipynb")):
        name, urls = path.relative_to(ROOT).as_posix(), config.use_directory_urls
        files.append(File(name, str(ROOT), config.site_dir, urls))
    # The names are on the pages of their packages.
    pages = {"albert_tf": "::: albert_tf\n    options: {members: []}"}
    for module in pkgutil.iter_modules([str(ROOT / "albert_tf")]):
        if module.name != "__main__":
            pages[module.name] = f"::: albert_tf.{module.name}"
    for name, text in pages.items():
        content = f"# {name}\n\n{text}\n"
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    return files


def on_page_markdown(markdown, page, config, files):
    """Resolves links to files of the checkout."""
    if page.file.generated_by:
        return markdown
    folder = Path(page.file.abs_src_path).parent
    pages = {file.abs_src_path: file.src_uri for file in files}

    def resolve(match):
        path = Path(os.path.normpath(folder / match[0]))
        name = pages.get(str(path)) or pages.get(str(path / "README.md"))
        if name:
            return os.path.relpath(name, Path(page.file.src_uri).parent)
        if not path.exists():
            return match[0]  # --strict refuses it
        kind = "tree" if path.is_dir() else "blob"
        return f"{config.repo_url}/{kind}/main/{path.relative_to(ROOT).as_posix()}"

    return LINK.sub(resolve, markdown)


def on_page_content(html, page, config, files):
    """Resolves links between notebooks, which mkdocs-jupyter leaves as they are."""
    return re.sub(r'href="(\w+)\.ipynb"', r'href="../\1/"', html)
