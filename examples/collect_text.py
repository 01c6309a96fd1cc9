"""Collects English text from the documentation of Python and installed packages.

The sources are the language reference in Python's `pydoc_data.topics`, and the
docstrings of the standard library and of packages. Their files are parsed and never
imported. The output is prose, with one sentence per line and a blank line between
documents.

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

# One of this many documents goes into the file of held-out documents.
HELD_OUT = 25
# Packages that the requirements of this package install.
PACKAGES = "numpy,scipy,sklearn,pandas,matplotlib,keras,tensorflow"

# Titles of docstring sections that contain no prose.
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
# The white space between two sentences.
_END = re.compile(r"(?<=[.?!])(?<!e\.g\.)(?<!i\.e\.)(?<!cf\.)(?<!vs\.)\s+(?=[A-Z])")
# A plain word with plain punctuation. Code, paths, formulas, and names such as a.b or
# a_b do not match.
_WORD = re.compile(
    r"""[("']*([A-Za-z]+(['-][A-Za-z]+)*|[0-9]{1,4})[)"']*[,;:]?|--?|[(]?(e\.g|i\.e)\.,?"""
)


def source_files(folder: Path) -> list[Path]:
    """Lists a package's Python files, without tests and other packages."""
    excluded = {"site-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__"}
    files = []
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - excluded)  # folders for `walk` to enter
        files += [Path(root) / name for name in sorted(names) if name.endswith(".py")]
    return files


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

    Code, doctests, tables, titles, and lists of parameters are left out.
    """
    in_excluded_section = False
    for block in re.split(r"\n[ \t]*\n", text.expandtabs()):
        lines = block.strip("\n").split("\n")
        indent = len(lines[0]) - len(lines[0].lstrip())
        has_title = len(lines) > 1 and re.fullmatch(r"\s*([-=~*^#])\1+\s*", lines[1])
        # A section ends at the next title, or at the next text that is not indented.
        if has_title or indent == 0:
            in_excluded_section = bool(_SECTION.fullmatch(lines[0].strip()))
        if has_title:
            lines = lines[2:]
        # A doctest, a directive, a table, a block of code, or columns.
        is_code = re.search(r">>>|\.\. |^\s*[|+]|```|\S {3,}\S", block, re.M)
        if in_excluded_section or is_code:
            continue
        items: list[str] = []
        for line in map(str.strip, lines):
            if not items or _BULLET.match(line):
                items.append(_BULLET.sub("", line, count=1))
            else:
                items[-1] += " " + line
        yield from items


def sentences(paragraph: str) -> Iterator[str]:
    """Yields the sentences that are plain English prose, without markup."""
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
    """Returns the documents with at least two new sentences, always in the same order.

    A sentence is new if no earlier document has it. Many docstrings are copies of
    others.
    """
    topics = sorted(pydoc_data.topics.topics.items())
    sources = [[clean(text) for _, text in topics]]
    files = source_files(Path(sysconfig.get_path("stdlib")))
    for package in packages:
        spec = importlib.util.find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or []:
            files += source_files(Path(folder))
    with multiprocessing.Pool() as pool:
        read_in_order = pool.imap(read, files, chunksize=16)
        sources += tqdm(read_in_order, total=len(files), unit=" files")
    documents: list[str] = []
    known: set[str] = set()
    for document in itertools.chain.from_iterable(sources):
        new = [
            sentence for sentence in dict.fromkeys(document) if sentence not in known
        ]
        known.update(new)
        if len(new) > 1:
            documents.append("\n".join(new) + "\n")
    return documents


def write(path: str, documents: list[str]) -> None:
    """Writes documents, and prints their number."""
    with atomic(path) as file:
        file.write("\n".join(documents).encode())
    count = sum(document.count("\n") for document in documents)
    print(f"{path}: {len(documents):,} documents, {count:,} sentences")


def main() -> None:
    """Reads the flags, and writes the corpus."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output_file", required=True)
    parser.add_argument("--held_out_file", help=f"for every {HELD_OUT}th document")
    parser.add_argument("--packages", default=PACKAGES, help="names, comma-separated")
    args = parser.parse_args()
    documents = collect(args.packages.split(","))
    if args.held_out_file:
        write(args.held_out_file, documents[::HELD_OUT])
        del documents[::HELD_OUT]
    write(args.output_file, documents)


if __name__ == "__main__":
    main()
