"""Warns of what the released clean-up does to letters with marks."""

import itertools
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

from albert_tf.corpus import text
from albert_tf.text.tokenization import clean_text

_LINES = 5_000
_MAX_LINE_CHARS = 1_000
# In English they are names; a language that writes marks has far more.
_MOST_CHANGED = 0.02
_EXAMPLES = 3
_AROUND = ".,;:!?\"'()[]«»„“”"


class Spellings:
    """The spellings of a text's first words, by what the clean-up makes of them.

    Args:
        clean: what a tokenizer does to text, see `Tokenizer.clean`.
        do_lower_case: whether that lower-cases.
    """

    def __init__(self, clean: Callable[[str], str], do_lower_case: bool):
        self._clean = clean
        self._do_lower_case = do_lower_case
        self._by_cleaned: dict[str, set[str]] = {}
        self._lines = 0

    def add(self, line: str) -> None:
        """Notes the words at the beginning of a line."""
        if self._lines == _LINES:
            return
        self._lines += 1
        for word in {w.strip(_AROUND) for w in line[:_MAX_LINE_CHARS].split()}:
            marked = clean_text(word, self._do_lower_case, keep_accents=True)
            cleaned = _composed(self._clean(word))
            self._by_cleaned.setdefault(cleaned, set()).add(_composed(marked))

    def warning(self) -> str | None:
        """Returns a warning if words lose marks that are more than rare names'."""
        merged = [
            sorted(words) for words in self._by_cleaned.values() if len(words) > 1
        ]
        changed = sorted(
            f"{word} -> {cleaned}"
            for cleaned, words in self._by_cleaned.items()
            for word in words
            if word != cleaned
        )
        count = sum(map(len, self._by_cleaned.values()))
        if len(changed) < _EXAMPLES or len(changed) <= _MOST_CHANGED * count:
            return None
        examples = ", ".join(changed[:: len(changed) // _EXAMPLES][:_EXAMPLES])
        one = ", ".join("/".join(words[:2]) for words in sorted(merged)[:_EXAMPLES])
        return (
            f"{len(changed) / count:.1%} of the words lose their marks ({examples})"
            + (
                f", and {len(merged):,} groups of words become one ({one})"
                if one
                else ""
            )
            + "; a vocabulary trained with --keep_accents keeps the marks"
        )


def _composed(word: str) -> str:
    """Joins marks to their letters, and the words that WordPiece makes of one."""
    return unicodedata.normalize("NFC", "".join(word.split()))


def check(
    patterns: Sequence[str],
    errors: str,
    clean: Callable[[str], str],
    do_lower_case: bool,
) -> str | None:
    """Returns the warning about the beginning of some files, see `Spellings`.

    Raises:
        InputError: see `text.documents`.
    """
    spellings = Spellings(clean, do_lower_case)
    documents = itertools.chain.from_iterable(
        text.documents(text.Range(path, 0, None), errors, Counter())
        for path in text.find_files(patterns)
    )
    for line in itertools.islice(itertools.chain.from_iterable(documents), _LINES):
        spellings.add(line)
    return spellings.warning()
