"""Collects English text from what is installed beside this package.

The language reference inside Python's `pydoc_data.topics`, and the docstrings of the
standard library and of installed packages, which are read and never imported. What is
left after cleaning is prose: one sentence a line, a blank line between documents.

    python examples/collect_text.py --output_file=text.txt
"""

import argparse
import ast
import importlib.util
import itertools
import multiprocessing
import os
import pydoc_data.topics
import re
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

from albert_tf.data.files import atomic

HELD_OUT = 25
# What the requirements of this package bring along.
PACKAGES = "numpy,scipy,sklearn,pandas,matplotlib,keras,tensorflow"

# A line that opens a list of names, and whose indented or underlined text is no prose.
_SECTION = re.compile(
    r"(args|arguments|attributes|call arguments|examples?|input shape|inputs|keyword "
    r"arguments|methods|output shape|outputs|(other )?parameters|raises|references?|"
    r"returns?|see also|usage|warns|yields):?",
    re.IGNORECASE,
)
_BULLET = re.compile(r"^([*+-]|\(?[0-9a-z][.)])\s+")
_MARKUP = (
    (re.compile(r"`([^`<]+?)\s*<[^>]*>`_+"), r"\1"),  # `text <target>`_
    (re.compile(r"\[([^\]]+)\]\([^)]*\)"), r"\1"),  # [text](target)
    (re.compile(r":[a-z:]+:`~?([^`]*)`"), r"\1"),  # :role:`text`
    (re.compile(r"`+([^`]*)`+_*"), r"\1"),
    (re.compile(r"(?<!\w)(\*\*?|_)(\w[^*]*?)\1(?!\w)"), r"\2"),  # *text*, **text**
    (re.compile(r"\s*\[[0-9]+\]_?"), ""),  # references to footnotes
    (re.compile("[\u2018\u2019]"), "'"),
    (re.compile("[\u201c\u201d]"), '"'),
    (re.compile(r"\s+"), " "),
)
_END = re.compile(r"(?<=[.?!])(?<!e\.g\.)(?<!i\.e\.)(?<!cf\.)(?<!vs\.)\s+(?=[A-Z])")
# Plain words with plain punctuation: code, paths, formulas and names such as a.b or a_b
# are none.
_WORD = re.compile(
    r"""[("']*([A-Za-z]+(['-][A-Za-z]+)*|[0-9]{1,4})[)"']*[,;:]?|--?|[(]?(e\.g|i\.e)\.,?"""
)


def source_files(folder: Path) -> list[Path]:
    """Lists a package's Python files; tests and other people's packages left out."""
    skipped = {"site-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__"}
    found = []
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - skipped)
        found += [Path(root) / n for n in sorted(names) if n.endswith(".py")]
    return found


def docstrings(path: Path) -> Iterator[str]:
    """Yields the docstrings of a file, without importing it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(
            node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        ):
            text = ast.get_docstring(node)
            if text:
                yield text


def paragraphs(text: str) -> Iterator[str]:
    """Yields the paragraphs and list items of a docstring, each on one line.

    Code, doctests, tables, headings, and lists of parameters are left out.
    """
    skipping = False
    for block in re.split(r"\n[ \t]*\n", text.expandtabs()):
        lines = block.strip("\n").split("\n")
        indent = len(lines[0]) - len(lines[0].lstrip())
        underlined = len(lines) > 1 and re.fullmatch(r"\s*([-=~*^#])\1+\s*", lines[1])
        if underlined or indent == 0:
            skipping = bool(_SECTION.fullmatch(lines[0].strip()))
        if underlined:
            lines = lines[2:]
        if skipping or re.search(r">>>|\.\. |^\s*[|+]|```|\S {3,}\S", block, re.M):
            continue
        items: list[str] = []
        for line in map(str.strip, lines):
            if not items or _BULLET.match(line):
                items.append(_BULLET.sub("", line, count=1))
            else:
                items[-1] += " " + line
        yield from items


def sentences(paragraph: str) -> Iterator[str]:
    """Yields the sentences that are plain English prose, their markup taken off."""
    for pattern, replacement in _MARKUP:
        paragraph = pattern.sub(replacement, paragraph)
    for sentence in _END.split(paragraph.strip()):
        words = sentence[:-1].split()
        if (
            4 <= len(words) <= 60
            and re.match("[A-Z]", sentence)
            and sentence[-1] in ".?!"
            and all(map(_WORD.fullmatch, words))
            and sum(word.islower() for word in words) >= 0.6 * len(words)
        ):
            yield sentence


def clean(text: str) -> list[str]:
    """Returns the sentences of a text."""
    return [s for paragraph in paragraphs(text) for s in sentences(paragraph)]


def read(path: Path) -> list[list[str]]:
    """Returns the sentences of every docstring of a file."""
    return [clean(text) for text in docstrings(path)]


def collect(packages: list[str]) -> list[str]:
    """Returns documents of two sentences or more, in an order that repeats.

    A sentence that was seen before, and most docstrings are copied somewhere, is left
    out.
    """
    found = [[clean(text) for _, text in sorted(pydoc_data.topics.topics.items())]]
    files = source_files(Path(sysconfig.get_path("stdlib")))
    for package in packages:
        spec = importlib.util.find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or []:
            files += source_files(Path(folder))
    with multiprocessing.Pool() as pool:
        read_in_order = pool.imap(read, files, chunksize=16)
        found += tqdm(read_in_order, total=len(files), unit=" files")
    kept: list[str] = []
    seen: set[str] = set()
    for document in itertools.chain.from_iterable(found):
        new = [s for s in dict.fromkeys(document) if s not in seen]
        seen.update(new)
        if len(new) > 1:
            kept.append("\n".join(new) + "\n")
    return kept


def write(path: str, kept: list[str]) -> None:
    """Writes documents, and prints how many."""
    with atomic(path) as file:
        file.write("\n".join(kept).encode())
    count = sum(document.count("\n") for document in kept)
    print(f"{path}: {len(kept):,} documents, {count:,} sentences")


def main() -> None:
    """Reads the flags, and writes the corpus."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output_file", required=True)
    parser.add_argument("--held_out_file", help=f"gets every {HELD_OUT}th document")
    parser.add_argument("--packages", default=PACKAGES, help="names, comma-separated")
    args = parser.parse_args()
    kept = collect(args.packages.split(","))
    if args.held_out_file:
        write(args.held_out_file, kept[::HELD_OUT])
        del kept[::HELD_OUT]
    write(args.output_file, kept)


if __name__ == "__main__":
    main()
