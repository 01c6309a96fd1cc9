"""Reads sentences with a label for each word.

Files have a token a line, its columns between spaces or tabs, and blank lines between
sentences; `-DOCSTART-` lines and comments, as CoNLL-U has them, are skipped. Or they
are JSON, see `json_values.rows`, each row a sentence, or a text with the characters at
which its entities begin and end:

    {"tokens": ["Anna", "left", "Oslo"], "tags": ["B-PER", "O", "B-LOC"]}
    {"text": "Anna left Oslo", "label": [[0, 4, "PER"], [10, 14, "LOC"]]}

Where all labels are O, B-TYPE and I-TYPE they mark entities (IOB2), else each stands
for itself, as parts of speech do. Other notations of entities become IOB2: `B_TYPE`,
`TYPE-B`, BIOES, BILOU and BMES; and TYPE and O alone.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from albert_tf import errors
from albert_tf.data import files, json_values
from albert_tf.errors import InputError

OUTSIDE, BEGIN, INSIDE = "O", "B-", "I-"
_DOCUMENT = "-DOCSTART-"
# Of CoNLL-U: words written as one, and words that are not written.
_NO_TOKEN = re.compile(r"\d+[-.]\d+")
_CONLL_U = 10
_NOTATION = re.compile("([BIELMSUW])[-_](.+)|(.+)[-_]([BIELMSUW])")
_FIRST_PARTS = "BSUW"
# Names of a text's spans, and of what a span has.
_SPANS = ("label", "labels", "entities", "spans")
_SPAN = (
    ("begin", "start", "start_offset"),
    ("end", "end_offset"),
    ("type", "label", "labels"),
)


class Sentence(NamedTuple):
    """The words of a sentence.

    Attributes:
        words: one or more.
        labels: as many; None where they are not known.
        lines: where each word stands in its file, from 1 on; or its row.
    """

    words: tuple[str, ...]
    labels: tuple[str, ...] | None
    lines: tuple[int | str, ...]


def read_file(
    path: str | Path,
    label_column: str | None = None,
    tag_scheme: str = "iob2",
    *,
    token_column: str | None = None,
    encoding: str = "utf-8",
    log: Callable[[str], None] = lambda line: None,
) -> list[Sentence]:
    """Reads the sentences of a file; `.json` and `.jsonl` are JSON.

    Args:
        path: a file of text, see `files.to_utf8`.
        label_column: number of the column from 1 on, by default the last one; of JSON
            the key, by default "tags". Without another column or the key, the labels
            are not known.
        tag_scheme: "iob2"; or "iob1", where B- only parts neighbours of one type: its
            labels become those of IOB2; or "words", where each label stands for itself.
        token_column: number of the column from 1 on, by default the first one; of JSON
            the key, by default "tokens".
        encoding: of a file without a byte order mark.
        log: gets a line where labels are written otherwise than in the file.

    Raises:
        InputError: the file cannot be read, has no sentence, a line has another number
            of columns than those before, or is no such JSON; the first column numbers
            the tokens, and no column is named; entities are not marked by the scheme.
    """
    text = files.read_text(path, encoding)
    is_json = files.suffix(path) in (".json", ".jsonl")
    read = _of_json if is_json else _of_columns
    sentences = read(path, text, token_column, label_column, log)
    if not sentences:
        raise InputError(f"{path}: no sentence; expected one or more")
    if tag_scheme == "words":
        return sentences
    labels = {label for each in sentences for label in set(each.labels or ())}
    if bio := _bio(labels):
        log(
            f"{path}: labels {', '.join(map(repr, sorted(bio)))} mark entities and "
            f"become those of IOB2; with --tag_scheme=words each stands for itself"
        )
        if not any(label.startswith(BEGIN) for label in bio.values()):
            tag_scheme = "iob1"
    if not bio and not has_entities(labels):
        _check_alike(path, sentences)
    else:
        sentences = [_in_iob2(path, each, tag_scheme, bio) for each in sentences]
    return sentences


Rows = list[tuple[int, list[str]]]


def _of_columns(
    path: Any,
    text: str,
    token_column: str | None,
    label_column: str | None,
    log: Callable[[str], None],
) -> list[Sentence]:
    """Returns the sentences of a file with columns."""
    lines = text.replace("\r\n", "\n").removesuffix("\r").split("\n")
    table = [_cells(line) if line.strip() else [_DOCUMENT] for line in lines]
    given = (
        line for line, cells in zip(lines, table, strict=True) if cells[0] != _DOCUMENT
    )
    first = usual = next(given, "")
    if first.startswith("#"):
        usual = next((line for line in given if line[0] != "#"), first)
    width, has_tabs = len(_cells(usual)), "\t" in usual
    if width == 1 and "," in usual and files.suffix(path) == ".csv":
        raise InputError(
            f"{path}:{lines.index(usual) + 1}: {errors.quote(usual)}: commas between "
            f"columns; expected spaces or tabs, or JSON"
        )
    token = _place(path, "token_column", token_column or "1", width or 1) or 0
    sentences: list[Rows] = [[]]
    for number, (line, cells) in enumerate(zip(lines, table, strict=True), 1):
        if cells[0] == _DOCUMENT:
            sentences.append([])
            continue
        # A comment stands before a sentence, and is no row of it.
        if (
            sentences[-1]
            or line[0] != "#"
            or (len(cells) == width and ("\t" in line) == has_tabs and not token)
        ):
            if len(cells) != width or not cells[token]:
                raise InputError(
                    f"{path}:{number}: {errors.quote(line)}: expected {width} columns, "
                    f"as before, of which number {token + 1} is the token"
                )
            sentences[-1].append((number, cells))
    if width > 1 and token_column != "1" and _are_numbered(sentences):
        if token_column is None or (width == _CONLL_U and label_column is None):
            raise InputError(
                f"{path}: column 1 numbers the tokens; expected --token_column=2, of "
                f"CoNLL-U with --label_column=4; or 1, if the numbers are the words"
            )
        sentences = [
            [row for row in rows if not _NO_TOKEN.fullmatch(row[1][0])]
            for rows in sentences
        ]
    firsts = (cells[0] for rows in sentences for _, cells in rows)
    if width > 1 and token_column is None and first and has_entities(firsts):
        raise InputError(
            f"{path}: column 1 has the labels of entities; expected --token_column=2 "
            f"--label_column=1; or --token_column=1, if they are the words"
        )
    column = _place(path, "label_column", label_column, width, token)
    return [_sentence(rows, token, column) for rows in sentences if rows]


def _cells(line: str) -> list[str]:
    return line.split("\t") if "\t" in line else [*filter(None, line.split(" "))]


def _are_numbered(sentences: list[Rows]) -> bool:
    """Whether the first column counts the tokens, of each sentence or of all."""
    last = 0
    for rows in filter(None, sentences):
        firsts = [cells[0] for _, cells in rows if not _NO_TOKEN.fullmatch(cells[0])]
        for begin in (0, 1, last + 1):
            if firsts == [str(begin + i) for i in range(len(firsts))]:
                last = begin + len(firsts) - 1
                break
        else:
            return False
    return last > 0


def _place(
    path: Any, flag: str, column: str | None, width: int, token: int | None = None
) -> int | None:
    """Returns the place of a column in a row; None where there is none."""
    others = [column for column in range(width) if column != token]
    if column is None or not others:
        return others[-1] if others else None
    if not column.isdecimal() or int(column) - 1 not in others:
        raise InputError(
            f"--{flag}={column}: {path} has {width} columns; expected the number of "
            f"one, from 1 on{'' if token is None else ', but not that of the token'}"
        )
    return int(column) - 1


def _sentence(rows: Rows, token: int, column: int | None) -> Sentence:
    numbers, table = zip(*rows, strict=True)
    columns = list(zip(*table, strict=True))
    return Sentence(
        columns[token], None if column is None else columns[column], numbers
    )


def _of_json(
    path: Any,
    text: str,
    token_column: str | None,
    label_column: str | None,
    log: Callable[[str], None],
) -> list[Sentence]:
    """Returns the sentences of JSON."""
    rows: list[tuple[str, Any, dict[str, Any]]] = []
    for location, row in json_values.objects(text, path):
        if isinstance(row, list) and len(row) == 2 and isinstance(row[1], dict):
            row = {"text": row[0], **row[1]}  # as spaCy has them
        if not isinstance(row, dict):
            raise InputError(
                f"{location}: {errors.quote(row)}; expected an object with tokens"
            )
        key = token_column or ("tokens" if "tokens" in row else "text")
        rows.append((location, row.get(key), row))
    places = iter(_split([words for _, words, _ in rows if isinstance(words, str)]))
    sentences, cut = [], []
    for location, words, row in rows:
        if isinstance(words, str):
            names = (label_column,) if label_column else _SPANS
            spans = next((row[name] for name in names if name in row), None)
            if not isinstance(spans, list | None):
                raise InputError(f"{location}: {errors.quote(spans)}; expected spans")
            whole = next(places)
            sentence = _of_spans(location, words, spans, whole)
            if len(sentence.words) > len(whole):
                cut.append(location)
        else:
            sentence = _of_lists(location, words, row, label_column or "tags")
        line = location.removeprefix(f"{path}:")
        sentences.append(sentence._replace(lines=(line,) * len(sentence.words)))
    if cut:
        log(
            f"Warning: {path}: {len(cut):,} of {len(rows):,} texts have spans that "
            f"begin or end within a word, first {cut[0]}; expected places in characters"
        )
    return sentences


def _of_lists(location: str, words: Any, row: dict[str, Any], key: str) -> Sentence:
    """Returns a sentence whose words and labels are lists."""
    if not _are_words(words) or any(re.search(r"[\t\r\n]", w) for w in words):
        raise InputError(
            f"{location}: tokens is {errors.quote(words)}; expected a list of words "
            f"without tabs and line ends"
        )
    labels = row.get(key)
    if labels is not None and not (_are_words(labels) and len(labels) == len(words)):
        raise InputError(
            f"{location}: {key} is {errors.quote(labels)}; expected a list of "
            f"{len(words)} texts, one for each token"
        )
    return Sentence(tuple(words), None if labels is None else tuple(labels), ())


def _split(texts: list[str]) -> Iterator[list[tuple[int, int]]]:
    """Yields where the words of each text stand, as `predict.py` finds them."""
    if texts:
        from albert_tf.text import in_graph  # other files need no TensorFlow

        _, begins, ends = in_graph.split_words(texts)
        for places in zip(begins.to_list(), ends.to_list(), strict=True):
            yield list(zip(*places, strict=True))


def _of_spans(
    location: str, text: str, spans: Any, places: list[tuple[int, int]]
) -> Sentence:
    """Returns the words of a text, which are cut where a span begins or ends."""
    known = sorted(_span(location, text, span) for span in spans or ())
    for before, after in itertools.pairwise(known):
        if after[0] < before[1]:
            raise InputError(f"{location}: spans {before} and {after} overlap")
    edges = {edge for begin, end, _ in known for edge in (begin, end)}
    cut = [sorted({*word, *(e for e in edges if word[0] < e < word[1])})
           for word in places]  # fmt: skip
    words, labels, found = [], [], set()
    for begin, end in itertools.chain.from_iterable(map(itertools.pairwise, cut)):
        words.append(text[begin:end])
        span = next((s for s in known if s[0] <= begin and end <= s[1]), None)
        label = OUTSIDE if span is None else (INSIDE if span in found else BEGIN)
        labels.append(label + ("" if span is None else span[2]))
        found.add(span)
    if not words or not found.issuperset(known):
        raise InputError(f"{location}: no word in the text, or in one of its spans")
    return Sentence(tuple(words), None if spans is None else tuple(labels), ())


def _span(location: str, text: str, span: Any) -> tuple[int, int, str]:
    """Returns the first character of a span, the one after its last, and its type."""
    values, said = span, None
    if isinstance(span, dict):
        values = [next((span[n] for n in names if n in span), None) for names in _SPAN]
        said = span.get("text")
    if isinstance(values, list) and len(values) == 3:
        begin, end, kind = values
        kind = kind[0] if isinstance(kind, list) and len(kind) == 1 else kind
        if type(begin) is type(end) is int and 0 <= begin < end <= len(text):
            is_said = said in (None, text[begin:end])
            if is_said and kind and isinstance(kind, str):
                return begin, end, kind
    raise InputError(
        f"{location}: span {errors.quote(span)}; expected its first character, the one "
        f"after its last, and its type"
    )


def _are_words(value: Any) -> bool:
    is_list = isinstance(value, list) and bool(value)
    return is_list and all(isinstance(text, str) and text for text in value)


def labelled(sentences: Iterable[Sentence]) -> Iterator[tuple[str, int | str]]:
    """Yields all labels with their lines."""
    for sentence in sentences:
        yield from zip(sentence.labels or (), sentence.lines, strict=False)


def has_entities(labels: Iterable[str]) -> bool:
    """Whether labels mark entities: all of them are O, B-TYPE or I-TYPE."""
    return all(label == OUTSIDE or _is_marked(label) for label in labels)


def _is_marked(label: str) -> bool:
    return label[:2] in (BEGIN, INSIDE)


def _check_alike(path: Any, sentences: Iterable[Sentence]) -> None:
    """Refuses labels of which some mark entities, and others do not."""
    lines: dict[str, int | str] = {}
    for label, line in labelled(sentences):
        lines.setdefault(label, line)
    marked = next(filter(_is_marked, lines), None)
    others = (label for label in lines if label != OUTSIDE and not _is_marked(label))
    if marked and (other := next(others, None)):
        raise InputError(
            f"{path}:{lines[other]}: label {other!r} beside {marked!r}; expected O, "
            f"B-... and I-... alone (IOB2), or labels without B- and I-"
        )


def _bio(labels: set[str]) -> dict[str, str]:
    """Returns labels of entities in another notation, and each with B- or I-."""
    kinds = labels - {OUTSIDE}
    if OUTSIDE not in labels or all(map(_is_marked, kinds)):
        return {}
    marks = [mark for mark in map(_NOTATION.fullmatch, kinds) if mark]
    firsts = [(mark[1] or mark[4]) in _FIRST_PARTS for mark in marks]
    if len(marks) == len(kinds) and any(firsts):
        return {
            mark[0]: (BEGIN if is_first else INSIDE) + (mark[2] or mark[3])
            for mark, is_first in zip(marks, firsts, strict=True)
        }
    # Names of one character are parts of speech, of which O may be one.
    are_types = not any(map(_is_marked, kinds)) and min(map(len, kinds)) > 1
    return {kind: INSIDE + kind for kind in kinds} if are_types else {}


def _in_iob2(
    path: Any, sentence: Sentence, tag_scheme: str, bio: dict[str, str]
) -> Sentence:
    """Returns a sentence that begins each entity with B-."""
    if {*(sentence.labels or ())} <= {OUTSIDE}:
        return sentence
    given = [bio.get(label, label) for label in sentence.labels or ()]
    labels: list[str] = []
    for before, label, line in zip(("", *given), given, sentence.lines, strict=False):
        if label in (BEGIN, INSIDE):
            raise InputError(
                f"{path}:{line}: label {label!r}: expected the type of an entity after "
                f"it, as in '{label}PER'"
            )
        if label.startswith(INSIDE) and before[2:] != label[2:]:
            begun = BEGIN + label[2:]
            if tag_scheme == "iob2":
                position = f"after {before!r}" if before else "at the beginning"
                raise InputError(
                    f"{path}:{line}: label {label!r} {position}; expected {begun!r} "
                    f"(IOB2), or --tag_scheme=iob1"
                )
            label = begun
        labels.append(label)
    return sentence._replace(labels=tuple(labels) or None)


def all_labels(sentences: Iterable[Sentence]) -> tuple[str, ...]:
    """Returns the labels of a model that learns from sentences, O before entities.

    Of each type of entity there are both labels, whether or not sentences have them.
    """
    labels = sorted({label for label, _ in labelled(sentences)})
    if not has_entities(labels):
        return tuple(labels)
    types = sorted({label[2:] for label in labels if label != OUTSIDE})
    return (OUTSIDE, *(p + name for name in types for p in (BEGIN, INSIDE)))


def check_labels(
    path: Any, sentences: Iterable[Sentence], labels: Sequence[str]
) -> None:
    """Refuses labels that a model does not have."""
    named = ", ".join(map(repr, labels))
    for label, line in labelled(sentences):
        if label not in labels:
            raise InputError(
                f"{path}:{line}: label {label!r}; expected one of {named} "
                f"(those of --train_file, of --labels or of the model's folder)"
            )
