"""Splits raw text into words, as CoNLL-2003 does in most cases.

Words are separated by white space. Each punctuation mark before or after a word is a
separate word: "(U.S.-based)," is "(", "U.S.-based", ")" and ",". Each ideograph is a
separate word. A final "'s" is a separate word: "Anna's" is "Anna" and "'s". As in
WordPiece, all ASCII symbols are punctuation.

`in_graph.split_words` does the same in a TensorFlow graph.
"""

import functools
import re

from albert_tf.text import tokenization

# Patterns for a string that has the class of each character of a text, see
# `classify_character`. `MARKED_POSSESSIVE` gives "'s" its own class, "p".
POSSESSIVE = "([as])'s([.']*)( |i|$)"
MARKED_POSSESSIVE = r"\1pp\2\3"
WORD = "[as](?:[as.']*[as])?|p+|[.']|i"


def split_words(text: str) -> list[tuple[int, int]]:
    """Returns [begin, end) of each word, as indices of characters."""
    classes = "".join(map(classify_character, text))
    classes = re.sub(POSSESSIVE, MARKED_POSSESSIVE, classes)
    return [match.span() for match in re.finditer(WORD, classes)]


@functools.lru_cache(4096)
def classify_character(character: str) -> str:
    """Returns the class of a character.

    Returns:
        " " (white space), "i" (ideograph), "'" (apostrophe), "." (other punctuation),
        "s" (the letter, in both cases) or "a" (any other character).
    """
    if character.isspace():
        return " "
    if character in tokenization.APOSTROPHES:
        return "'"
    if tokenization.ISOLATED_IDEOGRAPHS.function(character) == f" {character} ":
        return "i"
    if tokenization.ISOLATED_PUNCTUATION.function(character) != character:
        return "."
    return "s" if character in "sS" else "a"
