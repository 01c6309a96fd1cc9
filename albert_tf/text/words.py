"""Splits raw text into words, as CoNLL-2003 does in most cases.

White space separates words. Each punctuation mark before or after a word is a separate
word: "(U.S.-based)," is "(", "U.S.-based", ")" and ",". Each ideograph is a separate
word. An "'s" at the end of a word is a separate word: "Anna's" is "Anna" and "'s". As
in WordPiece, all ASCII symbols are punctuation.

`in_graph.split_words` does the same in a TensorFlow graph.
"""

import functools
import re

from albert_tf.text import tokenization

# These regular expressions are for a text in which each character is replaced by its
# class, see `classify_character`. The first finds "'s" at the end of a word.
POSSESSIVE = "([as])'s([.']*)( |i|$)"
# The replacement for a match of `POSSESSIVE`: "'s" becomes "pp", "p" for possessive.
MARKED_POSSESSIVE = r"\1pp\2\3"
# Finds each word, after "'s" is replaced by "pp". A word is one of these: letters, with
# any marks between them; "'s"; a mark; an ideograph.
WORD = "[as](?:[as.']*[as])?|p+|[.']|i"


def split_words(text: str) -> list[tuple[int, int]]:
    """Returns [begin, end) of each word, as indices of characters."""
    classes = "".join(map(classify_character, text))
    classes = re.sub(POSSESSIVE, MARKED_POSSESSIVE, classes)
    return [match.span() for match in re.finditer(WORD, classes)]


@functools.lru_cache(4096)
def classify_character(character: str) -> str:
    """Returns the class of a character for the split into words.

    Returns:
        " " (white space), "'" (apostrophe), "i" (ideograph), "." (other punctuation),
        "s" (the letter "s" or "S") or "a" (any other character).
    """
    if character.isspace():
        return " "
    if character in tokenization.APOSTROPHES:
        return "'"
    # The first function puts spaces around ideographs, the second around punctuation.
    if tokenization.ISOLATED_IDEOGRAPHS.function(character) == f" {character} ":
        return "i"
    if tokenization.ISOLATED_PUNCTUATION.function(character) == f" {character} ":
        return "."
    return "s" if character in "sS" else "a"
