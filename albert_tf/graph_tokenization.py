"""The tokenizers of `tokenization` as TensorFlow operations, for serving.

TensorFlow's own Unicode operations follow another version of Unicode than Python, lower
by the locale of the machine and have no notion of a combining class. So the cleaning is
not written a second time here: tables are made by running the Python functions on every
character, and the graph looks them up.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from albert_tf import tokenization
from albert_tf.tokenization import CharacterMap

# Every other code point is private or unassigned; cleaning leaves those as they are.
_CODE_POINTS = (*range(0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xE1000))
_SPACES = "".join(chr(code) for code in _CODE_POINTS if chr(code).isspace())
_WHITE_SPACE = f"[{_SPACES}]+"

_SIGMA, _FINAL_SIGMA = ord("Σ"), ord("ς")
# How a character decides whether a capital sigma beside it ends a word.
_NOT_CASED, _CASED, _IGNORED = range(3)


class GraphTokenizer(tf.Module):
    """Encodes text inside a graph with the ids of a Python tokenizer.

    Give it to a `tf.Module` or Keras layer as an attribute, or save it by itself: a
    SavedModel holds everything it needs, and loads in any program that imports
    tensorflow_text. Bytes that are not UTF-8 count as U+FFFD.
    """

    def __init__(self, tokenizer: tokenization.Tokenizer):
        """Compiles a tokenizer, which takes about a second.

        Args:
            tokenizer: a `SentencePieceTokenizer` or `WordPieceTokenizer`.

        Raises:
            TypeError: the tokenizer is of another class.
        """
        super().__init__()
        if isinstance(tokenizer, tokenization.SentencePieceTokenizer):
            self._encoder: _SentencePiece | _WordPiece = _SentencePiece(tokenizer)
        elif isinstance(tokenizer, tokenization.WordPieceTokenizer):
            self._encoder = _WordPiece(tokenizer)
        else:
            raise TypeError(f"no graph form of a {type(tokenizer).__name__}")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Encodes texts.

        Args:
            texts: string [B], UTF-8.

        Returns:
            int32 [B, None], for each text what `tokenizer.encode` returns.
        """
        return self._encoder.encode(self._encoder.clean(texts))

    def clean(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns string [B], for each text what `tokenizer.clean` returns."""
        return self._encoder.clean(texts)


class _SentencePiece(tf.Module):
    def __init__(self, tokenizer: tokenization.SentencePieceTokenizer):
        super().__init__()
        self._decompose = _Replacement(_code_points(tokenization.DECOMPOSED))
        self._lower = _Lowering(CharacterMap(str)) if tokenizer.do_lower_case else None
        self._model = tf_text.SentencepieceTokenizer(tokenizer.model, tf.int32)
        self._split_commas = _Replacement(tokenizer.comma_ids)

    def clean(self, texts: tf.Tensor) -> tf.Tensor:
        texts = _plain_spaces(texts)
        codes = self._decompose(tf.strings.unicode_decode(texts, "UTF-8"))
        if self._lower:
            codes = self._lower(codes)
        return tf.strings.unicode_encode(codes, "UTF-8")

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        return self._split_commas(self._model.tokenize(texts))


class _WordPiece(tf.Module):
    def __init__(self, tokenizer: tokenization.WordPieceTokenizer):
        super().__init__()
        self._isolate = _Replacement(_code_points(tokenization.IDEOGRAPHS_ALONE))
        self._finish = (
            _Lowering(tokenization.UNACCENTED_PUNCTUATION_ALONE)
            if tokenizer.do_lower_case
            else _Replacement(_code_points(tokenization.PUNCTUATION_ALONE))
        )
        self._model = tf_text.FastWordpieceTokenizer(
            vocab=list(tokenizer.pieces),
            max_bytes_per_word=4 * tokenization.MAX_WORD_CHARS,
            token_out_type=tf.int32,
            no_pretokenization=True,
        )

    def clean(self, texts: tf.Tensor) -> tf.Tensor:
        codes = self._isolate(tf.strings.unicode_decode(texts, "UTF-8"))
        codes = self._finish(codes)
        return _plain_spaces(tf.strings.unicode_encode(codes, "UTF-8"))

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        words = tf.strings.split(texts)  # ragged [B, words]
        lengths = tf.strings.length(words.values, unit="UTF8_CHAR")
        too_long = lengths > tokenization.MAX_WORD_CHARS
        words = words.with_values(tf.where(too_long, "[UNK]", words.values))
        return self._model.tokenize(words).merge_dims(1, 2)


class _Replacement:
    """Replaces some integers of a ragged tensor by any number of others."""

    def __init__(self, table: Mapping[int, Sequence[int]]):
        keys = sorted(table)
        lengths = np.array([len(table[key]) for key in keys] + [0])
        # The last key is above any input, so that every search ends inside.
        self._keys = np.array([*keys, np.iinfo(np.int32).max], np.int32)
        self._limits = np.cumsum(lengths, dtype=np.int32)
        self._starts = (self._limits - lengths).astype(np.int32)
        self._values = np.array([v for key in keys for v in table[key]], np.int32)

    def __call__(self, ragged: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns int32 [B, None] for int32 [B, None]."""
        flat = ragged.values
        found = tf.searchsorted(self._keys, flat)
        replaced = tf.gather(self._keys, found) == flat
        # What stays is found behind the values, at its own position.
        own = tf.range(tf.size(flat)) + len(self._values)
        start = tf.where(replaced, tf.gather(self._starts, found), own)
        limit = tf.where(replaced, tf.gather(self._limits, found), own + 1)
        pool = tf.concat([self._values, flat], axis=0)
        parts = tf.gather(pool, tf.ragged.range(start, limit))
        return ragged.with_values(parts).merge_dims(1, 2)


class _Lowering:
    """`str.lower` on code points, then a character map.

    The one letter whose lower case depends on its neighbours is the capital sigma: "ς"
    at the end of a word, where characters such as apostrophes are looked through.
    """

    def __init__(self, after: CharacterMap):
        lowered = CharacterMap(lambda c: c.lower().translate(after))
        self._replace = _Replacement(_code_points(lowered))
        kinds = [_sigma_kind(chr(code)) for code in _CODE_POINTS]
        changes = [0, *(np.flatnonzero(np.diff(kinds)) + 1)]
        self._kind_starts = np.array([_CODE_POINTS[i] for i in changes], np.int32)
        self._kinds = np.array([kinds[i] for i in changes], np.int32)

    def __call__(self, codes: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns int32 [B, None] for int32 [B, None]."""
        return self._replace(codes.with_values(self._end_words(codes)))

    def _end_words(self, codes: tf.RaggedTensor) -> tf.Tensor:
        """Returns the code points, int32 [N], with "ς" for each final "Σ"."""
        flat, rows = codes.values, codes.value_rowids()
        run = tf.searchsorted(self._kind_starts, flat, side="right") - 1
        kinds = tf.gather(self._kinds, run)
        seen = tf.where(kinds != _IGNORED)[:, 0]
        text_of, cased = tf.gather(rows, seen), tf.gather(kinds, seen) == _CASED
        same_text = text_of[1:] == text_of[:-1]
        joined = same_text & cased[1:] & cased[:-1]  # letters i and i + 1
        follows, precedes = tf.pad(joined, [[1, 0]]), tf.pad(joined, [[0, 1]])
        is_final = (tf.gather(flat, seen) == _SIGMA) & follows & ~precedes
        places = tf.boolean_mask(seen, is_final)
        sigmas = tf.fill(tf.shape(places), _FINAL_SIGMA)
        return tf.tensor_scatter_nd_update(flat, places[:, None], sigmas)


def _sigma_kind(character: str) -> int:
    """Learns from Python how a character acts beside a capital sigma."""
    if (character + "Σ").lower().endswith("ς"):
        return _CASED
    return _IGNORED if ("A" + character + "Σ").lower().endswith("ς") else _NOT_CASED


def _code_points(characters: CharacterMap) -> dict[int, list[int]]:
    """Returns the characters that a map changes, and to what, as code points."""
    results = ((code, characters.function(chr(code))) for code in _CODE_POINTS)
    return {
        code: [ord(c) for c in result]
        for code, result in results
        if result != chr(code)
    }


def _plain_spaces(texts: tf.Tensor) -> tf.Tensor:
    """Does what `" ".join(text.split())` does in Python."""
    return tf.strings.strip(tf.strings.regex_replace(texts, _WHITE_SPACE, " "))
