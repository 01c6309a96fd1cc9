"""Reads sentences with a label for each word.

A file has one word per line, columns separated by spaces or tabs, and blank lines
between sentences. `-DOCSTART-` lines and comments, as in CoNLL-U, are skipped. A JSON
file, see `json_values.parse_rows`, has a sentence in each row, or a text with the
indices of the characters at which its entities begin and end (exclusive):

    {"tokens": ["Anna", "left", "Oslo"], "tags": ["B-PER", "O", "B-LOC"]}
    {"text": "Anna left Oslo", "label": [[0, 4, "PER"], [10, 14, "LOC"]]}

If all labels are O, B-TYPE or I-TYPE, they mark entities (IOB2). Some other notations
of entities are converted to IOB2: `B_TYPE`, `TYPE-B`, BIOES, BILOU and BMES; also TYPE,
if O is a label, too. Labels in no such notation are classes of words, such as parts of
speech.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from albert_tf import errors
from albert_tf.data import files, json_values
from albert_tf.errors import InputError
from albert_tf.text.words import split_words

OUTSIDE, BEGIN, INSIDE = "O", "B-", "I-"
# Lines between sentences: blank lines, and the first line of a document of CoNLL-2003.
_BOUNDARY = re.compile(r"\s*$| *-DOCSTART-([ \t]|$)")
# Ids of CoNLL-U for rows that are not tokens: multiword tokens (1-2) and empty nodes
# (1.1).
_NO_TOKEN = re.compile(r"\d+[-.]\d+")
_CONLL_U_COLUMNS = 10
# A label with a mark: one letter for the position of the word in an entity. Groups 1
# and 2 are a mark and the type after it. Groups 3 and 4 are a type and the mark after
# it. The first word of an entity has one of the marks in `_FIRST_MARKS`.
_NOTATION = re.compile("([BIELMSUW])[-_](.+)|(.+)[-_]([BIELMSUW])")
_FIRST_MARKS = "BSUW"
# Possible keys of the list of spans in a row.
_SPAN_LIST_KEYS = ("label", "labels", "entities", "spans")
# Possible keys of the begin, the end and the type of a span that is an object.
_SPAN_KEYS = (
    ("begin", "start", "start_offset"),
    ("end", "end_offset"),
    ("type", "label", "labels"),
)


class _Row(NamedTuple):
    """A line of a file with columns: its number and its cells."""

    number: int
    cells: list[str]


class Sentence(NamedTuple):
    """The words of a sentence.

    Attributes:
        words: one or more words.
        labels: a label for each word; None if the labels are unknown.
        lines: the line number of each word, from 1; in a JSON list, "row" and the
            number of the row.
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
        path: a text file, see `files.to_utf8`.
        label_column: number of the column from 1, by default the last column; in JSON
            the key, by default "tags". If the column or key is missing, the labels are
            unknown.
        tag_scheme: "iob2"; "iob1", in which B- only separates adjacent entities of the
            same type, and which is converted to IOB2; or "words", in which labels are
            not converted.
        token_column: number of the column from 1, by default the first column; in JSON
            the key, by default "tokens".
        encoding: the encoding of a file without a byte order mark.
        log: logs a line if labels are converted, or if spans of JSON cut words.

    Raises:
        InputError: the file cannot be read or has no sentence; lines have different
            numbers of columns; a row of JSON is neither words with labels nor a text
            with spans; the first column numbers the tokens, and `token_column` is
            None; or labels do not fit the scheme.
    """
    text = files.read_text(path, encoding)
    if files.suffix(path) in (".json", ".jsonl"):
        sentences = _read_json(path, text, token_column, label_column, log)
    else:
        sentences = _read_columns(path, text, token_column, label_column)
    if not sentences:
        raise InputError(f"{path}: no sentence; expected one or more")
    if tag_scheme == "words":
        return sentences
    labels = {label for each in sentences for label in set(each.labels or ())}
    if iob_labels := _convert_notation(labels):
        log(
            f"{path}: labels {', '.join(map(repr, sorted(iob_labels)))} mark entities "
            f"and are converted to IOB2; --tag_scheme=words does not convert them"
        )
        # The labels were TYPE and O, and became I-TYPE and O. Entities still lack B-,
        # which `_to_iob2` adds in the same way as for IOB1.
        if not any(label.startswith(BEGIN) for label in iob_labels.values()):
            tag_scheme = "iob1"
    elif not has_entities(labels):
        # If no label has B- or I-, the labels are classes of words. If only some labels
        # have these marks, it is an error.
        entity_label = next(filter(_is_marked, sorted(labels)), None)
        if entity_label is None:
            return sentences
        for label, line in iter_labels(sentences):
            if not has_entities([label]):
                raise InputError(
                    f"{path}:{line}: label {label!r} and label {entity_label!r}: use "
                    f"only O, B-... and I-... (IOB2), or no labels with B- and I-"
                )
    return [_to_iob2(path, each, tag_scheme, iob_labels) for each in sentences]


def _read_columns(
    path: Any, text: str, token_column: str | None, label_column: str | None
) -> list[Sentence]:
    """Returns the sentences of a file with columns."""
    lines = text.replace("\r\n", "\n").removesuffix("\r").split("\n")
    groups = itertools.groupby(
        enumerate(lines, 1), lambda row: _BOUNDARY.match(row[1]) is None
    )
    # The numbers and texts of the lines of each sentence.
    sentences = [list(group) for is_sentence, group in groups if is_sentence]
    if not sentences:
        return []
    # `sample` is a line from which the columns of the file are counted: the first line
    # that does not begin with #, or the first line if all lines begin with #.
    all_lines = itertools.chain.from_iterable(sentences)
    possible_samples = (line for line in all_lines if line[1][0] != "#")
    number, sample = next(possible_samples, sentences[0][0])
    width, has_tabs = len(_split_cells(sample)), "\t" in sample
    if width == 1 and files.suffix(path) == ".csv" and "," in sample:
        raise InputError(
            f"{path}:{number}: {errors.quote(sample)}: commas between columns; use "
            f"spaces or tabs, or JSON"
        )
    # The index of the column of tokens.
    token = _find_column(path, "token_column", token_column or "1", width)

    def is_comment(numbered_line: tuple[int, str]) -> bool:
        _, line = numbered_line
        is_like_sample = len(_split_cells(line)) == width and ("\t" in line) == has_tabs
        # If the tokens are in the first column, a line with the number of columns and
        # the separator of the sample is no comment: its token begins with #.
        return line[0] == "#" and not (is_like_sample and token == 0)

    # Only lines at the beginning of a sentence can be comments.
    sentences = [list(itertools.dropwhile(is_comment, lines)) for lines in sentences]
    tables = [_split_rows(path, each, width, token) for each in sentences if each]
    label_index = None
    if width > 1:
        needs_label = width == _CONLL_U_COLUMNS and label_column is None
        tables = _check_first_column(path, tables, token_column, needs_label)
        label_index = _find_column(path, "label_column", label_column, width, token)
    return [
        Sentence(
            tuple(row.cells[token] for row in table),
            None if label_index is None else tuple(r.cells[label_index] for r in table),
            tuple(row.number for row in table),
        )
        for table in tables
        if table
    ]


def _split_rows(
    path: Any, lines: Iterable[tuple[int, str]], width: int, token: int
) -> list[_Row]:
    """Splits the numbered lines of a sentence into cells.

    Args:
        path: the file, for messages.
        lines: the number and the text of each line.
        width: number of columns.
        token: index of the column of tokens.
    """
    rows = []
    for number, line in lines:
        cells = _split_cells(line)
        if len(cells) != width or not cells[token]:
            raise InputError(
                f"{path}:{number}: {errors.quote(line)}: expected {width} columns, as "
                f"before, with the token in column {token + 1}"
            )
        rows.append(_Row(number, cells))
    return rows


def _check_first_column(
    path: Any,
    tables: list[list[_Row]],
    token_column: str | None,
    needs_label: bool,
) -> list[list[_Row]]:
    """Checks that the first column has words, unless --token_column is given.

    If the column numbers the tokens, rows of CoNLL-U that are not tokens are removed.

    Args:
        path: the file, for messages.
        tables: the rows of each sentence.
        token_column: the value of --token_column.
        needs_label: whether the file is CoNLL-U, which needs --label_column, and the
            flag is not given.
    """
    ids = [[row.cells[0] for row in table] for table in tables]
    if token_column != "1" and _are_numbered(ids):
        if token_column is None or needs_label:
            raise InputError(
                f"{path}: column 1 numbers the tokens; use --token_column=2 (CoNLL-U: "
                f"also --label_column=4); or --token_column=1, if the numbers are words"
            )
        return [
            [row for row in table if not _NO_TOKEN.fullmatch(row.cells[0])]
            for table in tables
        ]
    if token_column is None and has_entities(itertools.chain.from_iterable(ids)):
        raise InputError(
            f"{path}: column 1 has the labels of entities; use --token_column=2 "
            f"--label_column=1; or --token_column=1, if they are the words"
        )
    return tables


def _split_cells(line: str) -> list[str]:
    return line.split("\t") if "\t" in line else [*filter(None, line.split(" "))]


def _are_numbered(columns: Iterable[Sequence[str]]) -> bool:
    """Returns whether the first column numbers the tokens.

    The numbers may start again in each sentence, or continue through the file.

    Args:
        columns: the cells of the first column in each sentence.
    """
    last = 0
    for cells in columns:
        ids = [cell for cell in cells if not _NO_TOKEN.fullmatch(cell)]
        # A sentence begins with 0 or 1, or continues the previous numbers.
        for begin in (0, 1, last + 1):
            if ids == [str(begin + i) for i in range(len(ids))]:
                last = begin + len(ids) - 1
                break
        else:
            return False
    return last > 0  # if all ids are 0, they are words


def _find_column(
    path: Any, flag: str, column: str | None, width: int, token: int | None = None
) -> int:
    """Returns the index of a column, from 0.

    Args:
        path: the file, for messages.
        flag: the flag that names the column.
        column: the value of the flag; None for the last column, or for the last column
            but one if the tokens are in the last one.
        width: number of columns, at least two if `token` is given.
        token: index of the column of tokens, if another column is needed; or None.
    """
    if column is None:
        return width - 2 if token == width - 1 else width - 1
    index = int(column) - 1 if column.isdecimal() else -1
    if index == token or not 0 <= index < width:
        other_than = "" if token is None else f" other than {token + 1}, the token's"
        raise InputError(
            f"--{flag}={column}: {path} has {width} columns; expected the number of a "
            f"column{other_than}"
        )
    return index


def _read_json(
    path: Any,
    text: str,
    token_column: str | None,
    label_column: str | None,
    log: Callable[[str], None],
) -> list[Sentence]:
    """Returns the sentences of a JSON file; logs a warning if spans cut words."""
    sentences: list[Sentence] = []
    cut_locations: list[str] = []  # locations of texts with spans that cut words
    words: Any
    labels: Any
    for location, row in json_values.locate_rows(text, path):
        if isinstance(row, list) and len(row) == 2 and isinstance(row[1], dict):
            row = {"text": row[0], **row[1]}  # the format of spaCy
        if not isinstance(row, dict):
            raise InputError(
                f"{location}: {errors.quote(row)}; expected an object with tokens"
            )
        words = row.get(token_column or ("tokens" if "tokens" in row else "text"))
        if isinstance(words, str):
            names = (label_column,) if label_column else _SPAN_LIST_KEYS
            spans = next((row[name] for name in names if name in row), None)
            words, labels, is_cut = _parse_spans(location, words, spans)
            if is_cut:
                cut_locations.append(location)
        else:
            labels = row.get(label_column or "tags")
            _check_lists(location, words, labels, label_column or "tags")
        line = location.removeprefix(f"{path}:")
        labels = None if labels is None else tuple(labels)
        sentences.append(Sentence(tuple(words), labels, (line,) * len(words)))
    if cut_locations:
        log(
            f"Warning: {path}: {len(cut_locations):,} of {len(sentences):,} texts "
            f"have spans that begin or end within a word, first {cut_locations[0]}; "
            f"expected positions in characters"
        )
    return sentences


def _check_lists(location: str, words: Any, labels: Any, key: str) -> None:
    """Checks that words and labels are lists of texts with equal lengths.

    `key` is the key of the labels, for messages.
    """
    if not _are_words(words) or any(re.search(r"[\t\r\n]", word) for word in words):
        raise InputError(
            f"{location}: tokens is {errors.quote(words)}; expected a list of words "
            f"without tabs and line ends"
        )
    if labels is not None and not (_are_words(labels) and len(labels) == len(words)):
        raise InputError(
            f"{location}: {key} is {errors.quote(labels)}; expected a list of "
            f"{len(words)} texts, one for each token"
        )


def _are_words(value: Any) -> bool:
    """Returns whether a value is a list of one or more texts that are not empty."""
    is_list = isinstance(value, list) and bool(value)
    return is_list and all(isinstance(text, str) and text for text in value)


def _parse_spans(
    location: str, text: str, value: Any
) -> tuple[list[str], list[str] | None, bool]:
    """Returns words, labels, and whether a span begins or ends within a word.

    If a span begins or ends within a word, the word is divided there.

    Args:
        location: the location of the row, for messages.
        text: the text.
        value: the list of spans; None if the row has no list. Then the labels are
            unknown, and the function returns None instead of labels.
    """
    if not isinstance(value, list | None):
        raise InputError(f"{location}: {errors.quote(value)}; expected spans")
    spans = sorted(_parse_span(location, text, span) for span in value or ())
    for before, after in itertools.pairwise(spans):
        if after[0] < before[1]:
            raise InputError(f"{location}: spans {before} and {after} overlap")
    # The words, and their parts between the edges of spans, as [begin, end).
    edges = {edge for begin, end, _ in spans for edge in (begin, end)}
    word_spans = split_words(text)
    parts = [
        part
        for begin, end in word_spans
        for part in itertools.pairwise(
            [begin, *sorted(edge for edge in edges if begin < edge < end), end]
        )
    ]
    # `begun_spans` has the spans of which a part has a label; the next part gets I-.
    labels, begun_spans = [], set()
    for begin, end in parts:
        span = next((s for s in spans if s[0] <= begin and end <= s[1]), None)
        if span is None:
            labels.append(OUTSIDE)
            continue
        labels.append((INSIDE if span in begun_spans else BEGIN) + span[2])
        begun_spans.add(span)
    if not parts or len(begun_spans) < len(spans):
        raise InputError(f"{location}: no word in the text, or in one of its spans")
    words = [text[begin:end] for begin, end in parts]
    return words, None if value is None else labels, len(parts) > len(word_spans)


def _parse_span(location: str, text: str, span: Any) -> tuple[int, int, str]:
    """Returns a span: its first character, the end (exclusive), and its type."""
    values, span_text = span, None
    if isinstance(span, dict):
        values = [
            next((span[k] for k in keys if k in span), None) for keys in _SPAN_KEYS
        ]
        span_text = span.get("text")
    if isinstance(values, list) and len(values) == 3:
        begin, end, label = values
        # Label Studio writes the label as a list.
        label = label[0] if isinstance(label, list) and len(label) == 1 else label
        fits = type(begin) is type(end) is int and 0 <= begin < end <= len(text)
        fits = fits and span_text in (None, text[begin:end])
        if fits and label and isinstance(label, str):
            return begin, end, label
    raise InputError(
        f"{location}: span {errors.quote(span)}; expected the index of its first "
        f"character, the index after its last one, and its type"
    )


def iter_labels(sentences: Iterable[Sentence]) -> Iterator[tuple[str, int | str]]:
    """Yields each label with its line; nothing for a sentence without labels."""
    for sentence in sentences:
        # A sentence without labels has lines, so `strict` is False.
        yield from zip(sentence.labels or (), sentence.lines, strict=False)


def has_entities(labels: Iterable[str]) -> bool:
    """Returns whether labels mark entities: all of them are O, B-TYPE or I-TYPE."""
    return all(label == OUTSIDE or _is_marked(label) for label in labels)


def _is_marked(label: str) -> bool:
    """Returns whether a label begins with B- or I-."""
    return label[:2] in (BEGIN, INSIDE)


def _convert_notation(labels: set[str]) -> dict[str, str]:
    """Returns {label in another notation of entities: label with B- or I-}.

    The dict is empty if all labels are O, B-TYPE or I-TYPE, or do not mark entities.
    """
    others = labels - {OUTSIDE}
    if OUTSIDE not in labels or all(map(_is_marked, others)):
        return {}
    matches = [match for match in map(_NOTATION.fullmatch, others) if match]
    prefixes = [
        BEGIN if (match[1] or match[4]) in _FIRST_MARKS else INSIDE for match in matches
    ]
    if len(matches) == len(others) and BEGIN in prefixes:
        pairs = zip(matches, prefixes, strict=True)
        return {match[0]: prefix + (match[2] or match[3]) for match, prefix in pairs}
    # If labels have no marks, they are types of entities, and O is outside of entities.
    # But if a label other than O has only one character, all labels are parts of
    # speech, including O.
    are_types = not any(map(_is_marked, others)) and min(map(len, others)) > 1
    return {name: INSIDE + name for name in others} if are_types else {}


def _to_iob2(
    path: Any, sentence: Sentence, tag_scheme: str, iob_labels: dict[str, str]
) -> Sentence:
    """Returns a sentence in which each entity begins with B-.

    Args:
        path: the file, for messages.
        sentence: the sentence.
        tag_scheme: "iob1" or "iob2".
        iob_labels: the result of `_convert_notation`.
    """
    if sentence.labels is None or set(sentence.labels) == {OUTSIDE}:
        return sentence
    labels = [iob_labels.get(label, label) for label in sentence.labels]
    iob2_labels: list[str] = []
    # `before` is the label before `label`, or "" for the first label.
    for before, label, line in zip(["", *labels], labels, sentence.lines, strict=False):
        if label in (BEGIN, INSIDE):
            raise InputError(
                f"{path}:{line}: label {label!r}: needs the type of an entity, as in "
                f"'{label}PER'"
            )
        if label.startswith(INSIDE) and before[2:] != label[2:]:  # another type
            begin = BEGIN + label[2:]
            if tag_scheme == "iob2":
                position = f"after {before!r}" if before else "at the beginning"
                raise InputError(
                    f"{path}:{line}: label {label!r} {position}; expected {begin!r} "
                    f"(IOB2), or --tag_scheme=iob1"
                )
            label = begin
        iob2_labels.append(label)
    return sentence._replace(labels=tuple(iob2_labels))


def all_labels(sentences: Iterable[Sentence]) -> tuple[str, ...]:
    """Returns the labels that a model for these sentences needs, in sorted order.

    If the labels mark entities, O is the first one. Each type of entity has two labels,
    with B- and I-, even if the sentences have only one of them.
    """
    labels = sorted({label for label, _ in iter_labels(sentences)})
    if not has_entities(labels):
        return tuple(labels)
    types = sorted({label[2:] for label in labels if label != OUTSIDE})
    return (OUTSIDE, *(mark + name for name in types for mark in (BEGIN, INSIDE)))


def check_labels(
    path: Any, sentences: Iterable[Sentence], labels: Sequence[str]
) -> None:
    """Checks that all labels of the sentences are among the labels of a model."""
    for label, line in iter_labels(sentences):
        if label not in labels:
            raise InputError(
                f"{path}:{line}: label {label!r}; expected one of "
                f"{', '.join(map(repr, labels))} (from --train_file, --labels or the "
                f"model's folder)"
            )
