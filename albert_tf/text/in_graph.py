"""The tokenizers of `tokenization`, and `inputs`, as TensorFlow operations.

A SavedModel that takes text must stand alone, so these run without Python.

TensorFlow's own Unicode operations follow another version of Unicode than Python, lower
by the locale of the machine and have no notion of a combining class. So the cleaning is
not written a second time here: tables are made by running the Python functions on every
character, and the graph looks them up.
"""

import functools
import hashlib
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
from sentencepiece import sentencepiece_model_pb2
from tensorflow_text.python.ops import sentencepiece_tokenizer

from albert_tf.text import tokenization
from albert_tf.text import words as words_of_text
from albert_tf.text.tokenization import WORD_MARK, CharacterMap

# Every other code point is private or unassigned; cleaning leaves those as they are.
_CODE_POINTS = (*range(0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xE1000))
_SPACES = "".join(chr(code) for code in _CODE_POINTS if chr(code).isspace())
_WHITE_SPACE = f"[{_SPACES}]+"

# A piece has at most this many characters, except a run of unknown ones.
_CHARACTERS = 64
_MARGIN = 64

# From each of these code points on, a character has one byte more.
_UTF8_LIMITS = (0x80, 0x800, 0x10000)

_SIGMA, _FINAL_SIGMA = ord("Σ"), ord("ς")
# How a character decides whether a capital sigma beside it ends a word.
_NOT_CASED, _CASED, _IGNORED = range(3)


class GraphTokenizer(tf.Module):
    """Encodes text inside a graph with the ids of a Python tokenizer.

    Give it to a `tf.Module` or Keras layer as an attribute, or save it by itself: a
    SavedModel holds everything it needs, and loads in any program that imports
    tensorflow_text. Bytes that are not UTF-8 count as U+FFFD.
    """

    def __init__(self, tokenizer: tokenization.Tokenizer, most: int | None = None):
        """Compiles a tokenizer, the first of which takes about a second.

        Args:
            tokenizer: a `SentencePieceTokenizer` or `WordPieceTokenizer`.
            most: how many pieces of a text are used, where not all are: of a cleaned
                text so many characters are tokenized as `most` pieces can have.

        Raises:
            TypeError: the tokenizer is of another class.
        """
        super().__init__()
        self._encoder: Any = self._compiled(tokenizer)
        # Of a word without spaces the last pieces may differ where it is cut.
        self._most = most and (most + _MARGIN) * _CHARACTERS

    def _compiled(self, tokenizer: tokenization.Tokenizer) -> tf.Module:
        if isinstance(tokenizer, tokenization.SentencePieceTokenizer):
            return _SentencePiece(tokenizer)
        if isinstance(tokenizer, tokenization.WordPieceTokenizer):
            return _WordPiece(tokenizer)
        raise TypeError(f"no graph form of a {type(tokenizer).__name__}")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Encodes texts.

        Args:
            texts: string [B], UTF-8.

        Returns:
            int32 [B, None], for each text what `tokenizer.encode` returns.
        """
        return self._encoder.encode(self._encoder.codes(texts), self._most)

    def clean(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns string [B], for each text what `tokenizer.clean` returns."""
        return tf.strings.unicode_encode(self._encoder.codes(texts), "UTF-8")


class OffsetTokenizer(GraphTokenizer):
    """A `GraphTokenizer` that also gives where the pieces stand in the text."""

    def _compiled(self, tokenizer: tokenization.Tokenizer) -> tf.Module:
        if isinstance(tokenizer, tokenization.SentencePieceTokenizer):
            return _SentencePieceOffsets(tokenizer)
        if isinstance(tokenizer, tokenization.WordPieceTokenizer):
            return _WordPieceOffsets(tokenizer)
        return super()._compiled(tokenizer)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def encode_with_offsets(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Encodes texts and finds their pieces.

        Args:
            texts: string [B], UTF-8.

        Returns:
            ids, begins and ends, int32 [B, None] each: for each text what
            `tokenizer.encode_with_offsets` returns. A character that is not UTF-8
            counts as one U+FFFD.
        """
        codes = tf.strings.unicode_decode(texts, "UTF-8")
        places = codes.with_values(tf.range(tf.size(codes.values)))
        ids, begins, ends = self._encoder.align(codes, places)
        begins, ends = _adopt_deleted(codes, ids, begins, ends)
        first = tf.gather(tf.cast(codes.row_starts(), tf.int32), ids.value_rowids())
        return ids, ids.with_values(begins - first), ids.with_values(ends - first)


class _SentencePiece(tf.Module):
    def __init__(self, tokenizer: tokenization.SentencePieceTokenizer):
        super().__init__()
        self._decompose: _Decomposition | _Replacement
        if tokenizer.keep_accents:
            self._decompose = _decomposition()
        else:
            self._decompose = _changed(tokenization.DECOMPOSED.function)
        self._lower = _lowered(str) if tokenizer.do_lower_case else None
        self._model = _sentencepiece(tokenizer.model, tf.int32)
        self._split_commas = _Replacement(tokenizer.comma_ids)

    def codes(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the characters of the cleaned texts, int32 [B, None]."""
        texts = _plain_spaces(texts)
        codes = self._decompose(tf.strings.unicode_decode(texts, "UTF-8"))
        return self._lower(codes) if self._lower else codes

    def encode(self, codes: tf.RaggedTensor, most: int | None) -> tf.RaggedTensor:
        """Returns the ids of cleaned texts; `most` characters count, if given."""
        if most:
            codes = codes[:, :most]
        texts = tf.strings.unicode_encode(codes, "UTF-8")
        return self._split_commas(self._model.tokenize(texts))


class _SentencePieceOffsets(_SentencePiece):
    """Follows every character through the cleaning and the model's own rules."""

    def __init__(self, tokenizer: tokenization.SentencePieceTokenizer):
        super().__init__(tokenizer)
        self._pieces = _sentencepiece(tokenizer.model, tf.string)
        model, characters = _byte_model(tokenizer.model)
        self._bytes = _sentencepiece(model, tf.int32)
        self._characters = np.array(characters, np.int32)
        # Of ids that stand for a byte: 1 if it begins a character, else 0.
        self._leads = np.full(tokenizer.vocab_size, -1, np.int32)
        for id, byte in tokenizer.byte_values.items():
            self._leads[id] = byte not in tokenization.UTF8_CONTINUATION
        lengths = {
            tokenizer.piece_to_id(piece): [len(part.strip(WORD_MARK)) for part in parts]
            for piece, parts in tokenizer.comma_pieces.items()
        }
        # In the order of what `_split_commas` puts in place of a piece.
        parts = [lengths[id] for id in sorted(lengths)]
        self._part_lengths = _flat(parts)
        self._part_starts = _flat([np.cumsum([0, *part[:-1]]) for part in parts])

    def align(self, codes: tf.RaggedTensor, places: tf.RaggedTensor):
        """Finds the pieces of texts.

        Args:
            codes: int32 [B, None], the characters.
            places: int32 [B, None], a number for each that grows by 1.

        Returns:
            The ids, int32 [B, None], and those numbers for begin and end of each, int32
            [N]; -1 for a piece without text.
        """
        codes, places = _single_spaces(codes, places)
        codes, places = self._decompose.follow(codes, places)
        if self._lower:
            codes, places = self._lower.follow(codes, places)
        cleaned = tf.strings.unicode_encode(codes, "UTF-8")
        seen = tf.gather(places.values, self._normal_characters(cleaned, codes))
        whole = self._model.tokenize(cleaned)
        begin, length = self._cut(self._pieces.tokenize(cleaned).values, whole.values)
        source, place, count = self._split_commas.spread(whole.values)
        ids = _resplit(whole, count, self._split_commas.values(source, place, whole))
        within = tf.zeros_like(begin)
        begin = tf.gather(begin, source)
        begin += _pick(self._part_starts, source, place, within)
        length = _pick(self._part_lengths, source, place, length)
        has_text = length > 0
        first = tf.gather(seen, tf.where(has_text, begin, 0))
        last = tf.gather(seen, tf.where(has_text, begin + length - 1, 0))
        return ids, tf.where(has_text, first, -1), tf.where(has_text, last + 1, -1)

    def _normal_characters(self, cleaned: tf.Tensor, codes: tf.RaggedTensor):
        """Says which of `codes` each character comes from that the model cuts up.

        Args:
            cleaned: string [B].
            codes: int32 [B, None], its characters.

        Returns:
            int32 [M], the texts one after the other.
        """
        bytes, begins, _ = self._bytes.tokenize_with_offsets(cleaned)
        flat = codes.values
        width = 1 + sum(tf.cast(flat >= limit, tf.int32) for limit in _UTF8_LIMITS)
        starts = tf.concat([[0], tf.cumsum(width)], axis=0)
        text_starts = tf.gather(starts, codes.row_starts())
        at = tf.cast(begins.values, tf.int32)  # within the text
        at += tf.gather(text_starts, begins.value_rowids())
        character = tf.searchsorted(starts[:-1], at, side="right") - 1
        count = tf.gather(self._characters, bytes.values)
        return tf.ragged.range(character, character + count).values

    def _cut(self, pieces: tf.Tensor, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns where pieces begin after their word marks, and how long they are.

        Args:
            pieces: string [N].
            ids: int32 [N].

        Returns:
            Two int32 [N], in characters that the model cuts up.
        """
        count = tf.strings.length(pieces, "UTF8_CHAR")
        unmarked = tf.strings.regex_replace(pieces, f"^{WORD_MARK}+", "")
        marks = count - tf.strings.length(unmarked, "UTF8_CHAR")
        bare = tf.strings.regex_replace(unmarked, f"{WORD_MARK}+$", "")
        length = tf.strings.length(bare, "UTF8_CHAR")
        # The bytes of one character all stand where it does.
        lead = tf.gather(self._leads, ids)
        is_byte = lead >= 0
        count, length = tf.where(is_byte, lead, count), tf.where(is_byte, 1, length)
        marks = tf.where(is_byte, lead - 1, marks)
        return tf.cumsum(count, exclusive=True) + marks, length


class _WordPiece(tf.Module):
    def __init__(self, tokenizer: tokenization.WordPieceTokenizer):
        super().__init__()
        self._isolate = _changed(tokenization.IDEOGRAPHS_ALONE.function)
        finish = tokenizer.finish.function
        self._finish = _lowered(finish) if tokenizer.do_lower_case else _changed(finish)
        self._model = tf_text.FastWordpieceTokenizer(
            vocab=list(tokenizer.pieces),
            max_bytes_per_word=4 * tokenization.MAX_WORD_CHARS,
            token_out_type=tf.int32,
            no_pretokenization=True,
        )

    def codes(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the characters of the cleaned texts, int32 [B, None]."""
        codes = self._isolate(tf.strings.unicode_decode(texts, "UTF-8"))
        codes = self._finish(codes)
        cleaned = _plain_spaces(tf.strings.unicode_encode(codes, "UTF-8"))
        return tf.strings.unicode_decode(cleaned, "UTF-8")

    def encode(self, codes: tf.RaggedTensor, most: int | None) -> tf.RaggedTensor:
        """Returns the ids of whole cleaned texts: a piece may be of any length."""
        texts = tf.strings.unicode_encode(codes, "UTF-8")
        return self._encode_words(texts).merge_dims(1, 2)

    def _encode_words(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns int32 [B, words, pieces]."""
        words = tf.strings.split(texts)  # ragged [B, words]
        lengths = tf.strings.length(words.values, unit="UTF8_CHAR")
        too_long = lengths > tokenization.MAX_WORD_CHARS
        words = words.with_values(tf.where(too_long, "[UNK]", words.values))
        return self._model.tokenize(words)


class _WordPieceOffsets(_WordPiece):
    """Follows every character through the cleaning."""

    def __init__(self, tokenizer: tokenization.WordPieceTokenizer):
        super().__init__(tokenizer)
        mark = tokenization.CONTINUATION
        self._lengths = _flat([[len(p.removeprefix(mark)) for p in tokenizer.pieces]])
        self._unknown = tokenizer.unk_id

    def align(self, codes: tf.RaggedTensor, places: tf.RaggedTensor):
        """Finds the pieces of texts; see `_SentencePieceOffsets.align`."""
        codes, places = self._isolate.follow(codes, places)
        codes, places = self._finish.follow(codes, places)
        cleaned = _plain_spaces(tf.strings.unicode_encode(codes, "UTF-8"))
        pieces = self._encode_words(cleaned)
        ids, of_words = pieces.merge_dims(1, 2), pieces.values
        word = of_words.value_rowids()
        word_starts, word_ends = _words(codes, ~_is_space(codes.values))
        length = tf.where(
            ids.values == self._unknown,
            tf.gather(word_ends - word_starts, word),
            tf.gather(self._lengths, ids.values),
        )
        before = tf.concat([[0], tf.cumsum(length)], axis=0)
        before_word = tf.gather(before, of_words.row_starts())
        begin = before[:-1] + tf.gather(word_starts - before_word, word)
        first = tf.gather(places.values, begin)
        return ids, first, tf.gather(places.values, begin + length - 1) + 1


class _Replacement:
    """Replaces some integers of a ragged tensor by any number of others."""

    def __init__(self, table: Mapping[int, Sequence[int]]):
        keys = sorted(table)
        lengths = np.array([len(table[key]) for key in keys] + [1], np.int32)
        # The last key is above any input, so that every search ends inside.
        self._keys = np.array([*keys, np.iinfo(np.int32).max], np.int32)
        self._lengths = lengths
        self._starts = np.cumsum([0, *lengths[:-1]], dtype=np.int32)
        self._values = _flat([table[key] for key in keys])

    def __call__(self, ragged: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns int32 [B, None] for int32 [B, None]."""
        source, place, count = self.spread(ragged.values)
        return _resplit(ragged, count, self.values(source, place, ragged))

    def follow(
        self, ragged: tf.RaggedTensor, places: tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Replaces, and gives what takes a place the number of that place."""
        source, place, count = self.spread(ragged.values)
        replaced = _resplit(ragged, count, self.values(source, place, ragged))
        return replaced, replaced.with_values(tf.gather(places.values, source))

    def spread(self, flat: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Says what comes from where.

        Args:
            flat: int32 [N].

        Returns:
            For each result the number of the input it comes from, int32 [M], and its
            place in the table, -1 for an input that stays, int32 [M]; for each input
            the number of its results, int32 [N].
        """
        key = tf.searchsorted(self._keys, flat)
        replaced = tf.gather(self._keys, key) == flat
        count = tf.where(replaced, tf.gather(self._lengths, key), 1)
        source = tf.repeat(tf.range(tf.size(flat)), count)
        within = tf.range(tf.size(source)) - tf.gather(
            tf.cumsum(count, exclusive=True), source
        )
        place = tf.gather(tf.gather(self._starts, key), source) + within
        return source, tf.where(tf.gather(replaced, source), place, -1), count

    def values(
        self, source: tf.Tensor, place: tf.Tensor, ragged: tf.RaggedTensor
    ) -> tf.Tensor:
        """Returns the results that `spread` tells of, int32 [M]."""
        return _pick(self._values, source, place, ragged.values)


class _Ranges:
    """Looks up a function of characters that is alike for long runs of them."""

    def __init__(self, function: Callable[[str], int]):
        values = [function(chr(code)) for code in _CODE_POINTS]
        changes = [0, *(np.flatnonzero(np.diff(values)) + 1)]
        self._starts = np.array([_CODE_POINTS[i] for i in changes], np.int32)
        self._values = np.array([values[i] for i in changes], np.int32)

    def __call__(self, codes: tf.Tensor) -> tf.Tensor:
        """Returns int32 [N] for int32 [N]."""
        run = tf.searchsorted(self._starts, codes, side="right") - 1
        return tf.gather(self._values, run)


class _Decomposition:
    """NFKD: decomposes each character, then puts marks in canonical order."""

    def __init__(self) -> None:
        self._replace = _changed(tokenization.DECOMPOSED_WITH_MARKS.function)
        self._classes = _Ranges(unicodedata.combining)

    def __call__(self, codes: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns int32 [B, None] for int32 [B, None]."""
        return self._order(self._replace(codes))

    def follow(
        self, codes: tf.RaggedTensor, places: tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """See `_Replacement.follow`; the places keep their order."""
        codes, places = self._replace.follow(codes, places)
        return self._order(codes), places

    def _order(self, codes: tf.RaggedTensor) -> tf.RaggedTensor:
        flat = codes.values
        classes = tf.cast(self._classes(flat), tf.int64)
        # No mark changes places with one of another text, as of another letter.
        begins = tf.scatter_nd(
            codes.row_starts()[:, None],
            tf.ones_like(codes.row_starts()),
            [tf.size(flat, tf.int64) + 1],
        )[:-1]
        letter = tf.cumsum(tf.cast(classes == 0, tf.int64) + begins)
        key = letter * 256 + classes
        in_order = tf.reduce_all(key[1:] >= key[:-1])
        return codes.with_values(
            tf.cond(
                in_order,
                lambda: flat,
                lambda: tf.gather(flat, tf.argsort(key, stable=True)),
            )
        )


class _Lowering:
    """`str.lower` on code points, then another function of a character.

    The one letter whose lower case depends on its neighbours is the capital sigma: "ς"
    at the end of a word, where characters such as apostrophes are looked through.
    """

    def __init__(self, after: Callable[[str], str]):
        table = CharacterMap(after)
        self._replace = _changed(lambda c: c.lower().translate(table))
        self._kinds = _Ranges(_sigma_kind)

    def __call__(self, codes: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns int32 [B, None] for int32 [B, None]."""
        return self._replace(codes.with_values(self._end_words(codes)))

    def follow(
        self, codes: tf.RaggedTensor, places: tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """See `_Replacement.follow`."""
        return self._replace.follow(codes.with_values(self._end_words(codes)), places)

    def _end_words(self, codes: tf.RaggedTensor) -> tf.Tensor:
        """Returns the code points, int32 [N], with "ς" for each final "Σ"."""
        flat, rows = codes.values, codes.value_rowids()
        kinds = self._kinds(flat)
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


# Going through all characters takes half a second, and the results never change.
@functools.cache
def _changed(function: Callable[[str], str]) -> _Replacement:
    """Returns what a function does with code points."""
    results = ((code, function(chr(code))) for code in _CODE_POINTS)
    return _Replacement(
        {
            code: [ord(c) for c in result]
            for code, result in results
            if result != chr(code)
        }
    )


@functools.cache
def _decomposition() -> _Decomposition:
    return _Decomposition()


@functools.cache
def _lowered(after: Callable[[str], str]) -> _Lowering:
    return _Lowering(after)


def _plain_spaces(texts: tf.Tensor) -> tf.Tensor:
    """Does what `" ".join(text.split())` does in Python."""
    return tf.strings.strip(tf.strings.regex_replace(texts, _WHITE_SPACE, " "))


class _SharedModel(tf.saved_model.experimental.TrackableResource):
    """A SentencePiece model that lasts as long as the process.

    tensorflow_text's own is gone with the kernel that made it, and `tf.random.set_seed`
    drops all kernels: after it, no tokenizer made before could be used.
    """

    def __init__(self, model: bytes, name: str):
        super().__init__()
        self._model = model
        self._name = name
        _ = self.resource_handle  # makes it

    def _create_resource(self) -> tf.Tensor:
        make = sentencepiece_tokenizer.gen_sentencepiece_tokenizer.sentencepiece_op
        return make(model=self._model, shared_name=self._name, name=self._name)


def _sentencepiece(model: bytes, kind: tf.DType) -> tf_text.SentencepieceTokenizer:
    """Loads a model under a name of its own: one of the same name is the same model."""
    name = f"model_{hashlib.sha256(model).hexdigest()[:16]}"
    tokenizer = tf_text.SentencepieceTokenizer(model, kind, name=name)
    tokenizer._model_resource = _SharedModel(model, name)
    return tokenizer


def _flat(rows: Iterable[Iterable[int]]) -> np.ndarray:
    return np.array([value for row in rows for value in row], np.int32)


def _pick(
    table: np.ndarray, source: tf.Tensor, place: tf.Tensor, own: tf.Tensor
) -> tf.Tensor:
    """Returns `table[place]`, or `own[source]` where `place` is -1; int32 [M]."""
    pool = tf.concat([table, own], axis=0)
    return tf.gather(pool, tf.where(place < 0, source + len(table), place))


def _resplit(
    ragged: tf.RaggedTensor, count: tf.Tensor, values: tf.Tensor
) -> tf.RaggedTensor:
    """Returns [B, None] of values [M], `count` of which come from each old value."""
    limits = tf.concat([[0], tf.cumsum(count)], axis=0)
    splits = tf.cast(tf.gather(limits, ragged.row_splits), tf.int64)
    return tf.RaggedTensor.from_row_splits(values, splits, validate=False)


def _is_space(codes: tf.Tensor) -> tf.Tensor:
    spaces = np.array([ord(c) for c in _SPACES] + [np.iinfo(np.int32).max], np.int32)
    return tf.gather(spaces, tf.searchsorted(spaces, codes)) == codes


def _neighbours(codes: tf.RaggedTensor, is_text: tf.Tensor):
    """Says of each character whether the one before and the one after are text.

    Args:
        codes: int32 [B, None].
        is_text: bool [N].

    Returns:
        Two bool [N]; beyond the ends of a text there is none.
    """
    row = codes.value_rowids()
    same = row[1:] == row[:-1]
    count = tf.size(row)
    before = tf.pad(is_text[:-1] & same, [[1, 0]])[:count]
    after = tf.pad(is_text[1:] & same, [[0, 1]])[:count]
    return before, after


def _words(codes: tf.RaggedTensor, is_text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns where runs of text begin and end in all texts, int32 [W] each."""
    before, after = _neighbours(codes, is_text)
    starts, lasts = tf.where(is_text & ~before), tf.where(is_text & ~after)
    return tf.cast(starts[:, 0], tf.int32), tf.cast(lasts[:, 0], tf.int32) + 1


def _single_spaces(
    codes: tf.RaggedTensor, places: tf.RaggedTensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Does what `_plain_spaces` does; a space has the place of the last of its run."""
    is_text = ~_is_space(codes.values)
    _, after = _neighbours(codes, is_text)
    texts = tf.concat([[0], tf.cumsum(tf.cast(is_text, tf.int32))], axis=0)
    row_start = tf.gather(codes.row_starts(), codes.value_rowids())
    inside = after & (texts[:-1] > tf.gather(texts, row_start))
    keep = is_text | inside
    count = tf.cast(keep, tf.int32)
    plain = tf.where(is_text, codes.values, ord(" "))
    kept = _resplit(codes, count, tf.boolean_mask(plain, keep))
    return kept, kept.with_values(tf.boolean_mask(places.values, keep))


def _adopt_deleted(
    codes: tf.RaggedTensor, ids: tf.RaggedTensor, begins: tf.Tensor, ends: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Does what `tokenization` does of this name, for all texts at once.

    Args:
        codes: int32 [B, None], the characters of the texts.
        ids: int32 [B, None], the pieces.
        begins: int32 [N], the character of each piece, counted through all texts; -1
            for a piece without text.
        ends: int32 [N], the character after it.
    """
    row, filled = ids.value_rowids(), begins >= 0
    limits = tf.cast(codes.row_limits(), tf.int32)
    begin, end = tf.boolean_mask(begins, filled), tf.boolean_mask(ends, filled)
    own_row = tf.boolean_mask(row, filled)
    none = tf.constant([-1], row.dtype)
    row_before = tf.concat([none, own_row], axis=0)  # one more than there are filled
    row_after = tf.concat([own_row, none], axis=0)
    end_before = tf.concat([[-1], end], axis=0)[:-1]
    end_before = tf.where(row_before[:-1] == own_row, end_before, -1)
    begin_after = tf.where(
        row_after[1:] == own_row,
        tf.concat([begin, [-1]], axis=0)[1:],
        tf.gather(limits, own_row),
    )
    spaces = tf.cast(tf.where(_is_space(codes.values))[:, 0], tf.int32)
    wide_end = tf.maximum(end, tf.minimum(_space_from(spaces, end), begin_after))
    taken = tf.minimum(_space_from(spaces, end_before), begin)
    free = tf.where(
        end_before < 0,
        tf.gather(tf.cast(codes.row_starts(), tf.int32), own_row),
        tf.maximum(end_before, taken),
    )
    wide_begin = tf.minimum(begin, tf.maximum(_word_of(spaces, begin), free))

    # A piece without text stands where the next one with text begins.
    rank = tf.cumsum(tf.cast(filled, tf.int32), exclusive=True)
    here = tf.where(
        tf.gather(row_after, rank) == row,
        tf.gather(tf.concat([wide_begin, [-1]], axis=0), rank),
        tf.gather(limits, row),
    )
    last_end = tf.where(
        tf.gather(row_before, rank) == row,
        tf.gather(tf.concat([[-1], wide_end], axis=0), rank),
        -1,
    )
    own_end = tf.gather(tf.concat([wide_end, [-1]], axis=0), rank)
    return here, tf.where(filled, own_end, tf.maximum(here, last_end))


def _space_from(spaces: tf.Tensor, at: tf.Tensor) -> tf.Tensor:
    """Returns the first of the sorted `spaces` that is not before `at`."""
    beyond = tf.constant([np.iinfo(np.int32).max])
    return tf.gather(tf.concat([spaces, beyond], 0), tf.searchsorted(spaces, at))


def _word_of(spaces: tf.Tensor, at: tf.Tensor) -> tf.Tensor:
    """Returns the character after the last of the sorted `spaces` before `at`."""
    return tf.gather(tf.concat([[-1], spaces], 0), tf.searchsorted(spaces, at)) + 1


def _byte_model(contents: bytes) -> tuple[bytes, list[int]]:
    """Makes a SentencePiece model that cuts what another sees into bytes.

    So it tells where each character comes from that the model's own normalisation
    gives, which tensorflow_text does not.

    Returns:
        The model, and for each of its ids how many characters begin there.
    """
    kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
    model = sentencepiece_model_pb2.ModelProto.FromString(contents)
    symbols = [piece for piece in model.pieces if piece.type == kinds.USER_DEFINED]
    del model.pieces[:]
    model.pieces.add(piece="<unk>", type=kinds.UNKNOWN)
    for byte in range(256):
        model.pieces.add(piece=f"<0x{byte:02X}>", type=kinds.BYTE)
    model.pieces.extend(symbols)  # normalisation leaves these as they are
    trainer = sentencepiece_model_pb2.TrainerSpec
    model.trainer_spec.Clear()
    model.trainer_spec.model_type = trainer.CHAR
    model.trainer_spec.byte_fallback = True
    bytes = [int(byte not in tokenization.UTF8_CONTINUATION) for byte in range(256)]
    return model.SerializeToString(), [1, *bytes, *(len(s.piece) for s in symbols)]


def without_end_spaces(texts: tf.Tensor) -> tf.Tensor:
    """Does what `str.rstrip` does, for string [N]."""
    return tf.strings.regex_replace(texts, _WHITE_SPACE + "$", "")


def begins_with_space(texts: tf.Tensor) -> tf.Tensor:
    """Says whether texts, string [N], begin with white space: bool [N]."""
    return tf.strings.regex_full_match(texts, f"(?s){_WHITE_SPACE}.*")


# What `inputs` does, for what is exported: the same ids, cut alike.

Part = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


def join(
    first: tf.RaggedTensor,
    second: tf.RaggedTensor | None,
    max_seq_length: int | tf.Tensor,
    cls_id: int,
    sep_id: int,
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Makes `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`, as `inputs.encode` does.

    Args:
        first: int32 [B, None], the tokens of each first text.
        second: int32 [B, None], those of the second; None where there is one text.
        max_seq_length: most tokens of an input.
        cls_id: id of [CLS].
        sep_id: id of [SEP].

    Returns:
        The ids, int32 [B, None], and the tokens of segment 0, int64 [B].
    """
    first_lengths = first.row_lengths()
    if second is None:
        second = tf.RaggedTensor.from_row_lengths(
            tf.zeros([0], tf.int32), tf.zeros_like(first_lengths), validate=False
        )
    second_lengths = second.row_lengths()
    is_pair = tf.cast(second_lengths > 0, tf.int64)
    room = tf.maximum(tf.cast(max_seq_length, tf.int64) - 2 - is_pair, 0)
    first_kept, second_kept = kept_lengths(first_lengths, second_lengths, room)
    one = tf.ones_like(is_pair)
    ids = assemble(
        [
            single(cls_id, one),
            (first.values, first.row_starts(), first_kept),
            single(sep_id, one),
            (second.values, second.row_starts(), second_kept),
            single(sep_id, is_pair),
        ]
    )
    return ids, first_kept + 2


def single(id: int, count: tf.Tensor) -> Part:
    """Returns the part of `assemble` that is one id, where `count`, int64 [B], is 1."""
    return tf.constant([id]), tf.zeros_like(count), count


def assemble(parts: Sequence[Part]) -> tf.RaggedTensor:
    """Puts the parts of each row one after the other.

    `tf.concat` does this with many more operations, among them assertions.

    Args:
        parts: values, int32 [N]; and where in them each row's part begins and how long
            it is, int64 [B] each.

    Returns:
        int32 [B, None].
    """
    sizes = [tf.size(values, tf.int64) for values, _, _ in parts]
    offsets = tf.unstack(tf.cumsum(sizes, exclusive=True), len(parts))
    starts = [
        start + offset for (_, start, _), offset in zip(parts, offsets, strict=True)
    ]
    length = tf.stack([length for _, _, length in parts], axis=1)  # [B, parts]
    flat = tf.reshape(tf.stack(starts, axis=1), [-1])
    places = tf.ragged.range(flat, flat + tf.reshape(length, [-1])).values
    pool = tf.concat([values for values, _, _ in parts], axis=0)
    return tf.RaggedTensor.from_row_lengths(
        tf.gather(pool, places), tf.reduce_sum(length, axis=1), validate=False
    )


def kept_lengths(
    first: tf.Tensor, second: tf.Tensor, room: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Does what `inputs.kept_lengths` does, for int64 [B]."""
    half = room // 2
    return (
        tf.minimum(first, tf.maximum(room - second, room - half)),
        tf.minimum(second, tf.maximum(room - first, half)),
    )


def pad(
    ids: tf.RaggedTensor,
    first_lengths: tf.Tensor,
    pad_id: int,
    length: int | tf.Tensor | None = None,
) -> dict[str, tf.Tensor]:
    """Makes a batch, as `inputs.pad` does.

    Args:
        ids: int32 [B, None].
        first_lengths: int64 [B], tokens of segment 0.
        pad_id: the id after the end of an input.
        length: T; None takes that of the longest input, and 1 where there is none.

    Returns:
        `input_ids`, `input_mask` and `segment_ids`, int32 [B, T] each.
    """
    if length is None:
        # The model takes the first token, of no inputs too.
        length = tf.maximum(tf.cast(ids.bounding_shape(axis=1), tf.int32), 1)
    padded = ids.to_tensor(pad_id, shape=tf.stack([-1, length]))
    mask = tf.sequence_mask(ids.row_lengths(), length, tf.int32)
    first = tf.sequence_mask(first_lengths, length, tf.int32)
    return {"input_ids": padded, "input_mask": mask, "segment_ids": mask - first}


def split_words(
    texts: tf.Tensor,
) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
    """Cuts raw texts into words, see `words`.

    Args:
        texts: string [B], UTF-8.

    Returns:
        The words, string [B, None], and the characters where each begins and ends,
        int32 [B, None] each.
    """
    codes = tf.strings.unicode_decode(texts, "UTF-8")
    classes = codes.with_values(_word_classes()(codes.values))
    classed = tf.strings.regex_replace(
        tf.strings.unicode_encode(classes, "UTF-8"),
        words_of_text.POSSESSIVE,
        words_of_text.MARKED_POSSESSIVE,
    )
    _, begins, ends = tf_text.regex_split_with_offsets(
        classed, f"{words_of_text.WORD}| +", words_of_text.WORD
    )
    begins, ends = tf.cast(begins, tf.int32), tf.cast(ends, tf.int32)
    first = tf.cast(tf.gather(codes.row_starts(), begins.value_rowids()), tf.int32)
    characters = tf.ragged.range(begins.values + first, ends.values + first)
    letters = characters.with_values(tf.gather(codes.values, characters.values))
    words = begins.with_values(tf.strings.unicode_encode(letters, "UTF-8"))
    return words, begins, ends


@functools.cache
def _word_classes() -> _Ranges:
    return _Ranges(lambda character: ord(words_of_text.character_class(character)))
