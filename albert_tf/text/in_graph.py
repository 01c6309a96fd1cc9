"""The functions of `tokenization` and `inputs` as TensorFlow operations.

A SavedModel that takes text needs them, because it runs without Python.

TensorFlow's Unicode operations use another version of Unicode than Python, depend on
the machine's locale, and know no combining classes. The graph therefore cleans text
with tables, which contain the results of the Python functions for all characters.

Texts are ragged tensors of code points. A *piece* is an entry of the vocabulary; the
tokens of a text are pieces. A character's *origin* is the index of the original
character from which cleaning made it. Indices count the characters of all texts of a
batch, one text after the other.
"""

import functools
import hashlib
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow.experimental.numpy as tnp
import tensorflow_text as tf_text
from sentencepiece import sentencepiece_model_pb2

from albert_tf.text import inputs, tokenization
from albert_tf.text import words as words_of_text
from albert_tf.text.tokenization import WORD_MARK, CharacterMap

# The code points in the tables. The others need no entry: UTF-8 cannot hold surrogates,
# and cleaning does not change private and unassigned code points.
_CODE_POINTS = (*range(0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xE1000))

# With `max_tokens`, a long text is cut before SentencePiece tokenizes it. The limit
# allows this many characters per token. This is enough for a piece, because by default
# SentencePiece's trainer makes no piece of more than 16 characters. But a run of
# unknown characters is one token and may be longer. A text with such a run can get
# fewer than `max_tokens` tokens.
_MAX_CHARACTERS = 64
# The limit also has the characters of this many more tokens, because a cut inside a
# word can change the last tokens before the cut.
_MARGIN = 64

_SIGMA, _FINAL_SIGMA = ord("Σ"), ord("ς")
# Kinds of characters. A capital sigma at the end of a word has another lower case, and
# the kinds of its neighbours show whether it is at the end.
_NOT_CASED, _CASED, _IGNORED = range(3)


class GraphTokenizer(tf.Module):
    """Encodes text inside a graph with the ids of a Python tokenizer.

    Assign it to an attribute of a `tf.Module` or Keras layer, or save it directly. The
    SavedModel is complete, and loads in any program that imports tensorflow_text. Call
    `tf.random.set_seed` only before you create or load a GraphTokenizer: the call
    invalidates all tokenizers of tensorflow_text.

    Bytes that are not UTF-8 become U+FFFD, as in `bytes.decode(errors="replace")`.
    """

    def __init__(
        self,
        tokenizer: tokenization.Tokenizer,
        max_tokens: int | None = None,
        *,
        with_offsets: bool = False,
    ):
        """Compiles a tokenizer, which takes about a second the first time in a process.

        Args:
            tokenizer: a `SentencePieceTokenizer` or `WordPieceTokenizer`.
            max_tokens: the caller uses only this number of tokens from the beginning of
                a text; None for all tokens. With SentencePiece, a long text is cut
                before it is tokenized, but the result may still have more tokens.
            with_offsets: whether to prepare `encode_with_offsets`.
        """
        super().__init__()
        # None if texts are not cut.
        self._max_characters = max_tokens and (max_tokens + _MARGIN) * _MAX_CHARACTERS
        # A `_WordPiece` or a `_SentencePiece`. Both have the functions `encode` and
        # `align`, and `cleaning`, the steps that `_clean` runs.
        self._encoder: Any
        if isinstance(tokenizer, tokenization.WordPieceTokenizer):
            self._max_characters = None  # no cut: a token may have any length
            self._encoder = _WordPiece(tokenizer)
        elif isinstance(tokenizer, tokenization.SentencePieceTokenizer):
            self._encoder = _SentencePiece(tokenizer, with_offsets)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Encodes texts.

        Args:
            texts: string [B], UTF-8.

        Returns:
            int32 [B, None], the result of `tokenizer.encode` for each text.
        """
        codes, _ = self._clean(tf.strings.unicode_decode(texts, "UTF-8"))
        if self._max_characters:
            codes = codes[:, : self._max_characters]
        return self._encoder.encode(codes)

    def clean(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns string [B], the result of `tokenizer.clean` for each text."""
        codes, _ = self._clean(tf.strings.unicode_decode(texts, "UTF-8"))
        return tf.strings.unicode_encode(codes, "UTF-8")

    def encode_with_offsets(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Encodes texts and finds the positions of pieces; needs `with_offsets`.

        Args:
            texts: string [B], UTF-8.

        Returns:
            ids, begins and ends, int32 [B, None] each: the result of
            `tokenizer.encode_with_offsets` for each text, after bytes that are not
            UTF-8 are replaced.
        """
        # `attach_deleted` takes all texts as one text. The space at the end of each
        # text separates it from the next text.
        spaced = tf.strings.join([texts, " "])
        codes = tf.strings.unicode_decode(spaced, "UTF-8")
        ids, begins, ends = self._encoder.align(*self._clean(codes))
        is_space = _look_up(str.isspace, codes.values)
        # Characters that cleaning deleted become part of the pieces next to them.
        begins, ends = tokenization.attach_deleted(is_space, begins, ends, tnp)
        # For each piece: the index of the first character of the text that contains the
        # piece, and of the space after the text. The offsets may not exceed the space.
        # Without this limit, a piece that is only a word mark, at the end of a text,
        # would get offsets in the next text.
        first = tf.gather(codes.row_starts(), ids.value_rowids())
        space = tf.gather(codes.row_limits(), ids.value_rowids()) - 1
        begins, ends = (
            ids.with_values(tf.cast(tf.minimum(index, space) - first, tf.int32))
            for index in (begins, ends)
        )
        return ids, begins, ends

    def _clean(self, codes: tf.RaggedTensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Cleans texts and finds the origins of their characters.

        Args:
            codes: int32 [B, None], the characters.

        Returns:
            The N characters of the cleaned texts, int32 [B, None]; and the origin of
            each, an index into `codes.values`, int32 [N].
        """
        origins = tf.range(tf.size(codes.values))
        for step in self._encoder.cleaning:
            codes, origins = step(codes, origins)
        return codes, origins


class _SentencePiece(tf.Module):
    """The operations of a `tokenization.SentencePieceTokenizer`.

    After the steps in `cleaning`, the model of tensorflow_text normalises and cuts the
    text. Then `_split_commas` applies the digit-comma rule: it splits pieces that end
    in a digit and a comma, such as "7,".
    """

    def __init__(
        self, tokenizer: tokenization.SentencePieceTokenizer, with_offsets: bool
    ):
        super().__init__()
        decompose = tokenization.DECOMPOSITIONS[tokenizer.keep_accents].function
        self.cleaning: tuple[Callable, ...] = (_collapse_spaces, _tabulate(decompose))
        if tokenizer.keep_accents:
            self.cleaning += (_sort_marks,)
        if tokenizer.do_lower_case:
            self.cleaning += (_make_lower_case(str),)  # `str` changes no character
        self._model = _make_sentencepiece(tokenizer.contents, tf.int32)
        self._split_commas = _Replacement(tokenizer.comma_ids)
        if with_offsets:
            self._prepare_offsets(tokenizer)

    def _prepare_offsets(self, tokenizer: tokenization.SentencePieceTokenizer) -> None:
        """Makes the models and tables that `align` needs."""
        self._text_model = _make_sentencepiece(tokenizer.contents, tf.string)
        model, counts = _make_byte_model(tokenizer.contents)
        self._byte_model = _make_sentencepiece(model, tf.int32)
        # The number of characters for each id of the byte model.
        self._character_counts = np.array(counts, np.int32)
        # For each id of the tokenizer: 1 if the piece is a byte that begins a
        # character, 0 if it is another byte, and -1 if it is not a byte.
        self._leads = np.full(tokenizer.vocab_size, -1, np.int32)
        for id, byte in tokenizer.byte_values.items():
            self._leads[id] = byte not in tokenization.UTF8_CONTINUATION
        # The digit-comma rule splits some pieces into parts. `_part_lengths` and
        # `_part_starts` have the length of each part and its start in its piece, both
        # without counting word marks. The parts are in the same order as in
        # `_split_commas`.
        pieces = tokenizer.comma_pieces.values()
        lengths = [[len(part.strip(WORD_MARK)) for part in parts] for parts in pieces]
        self._part_lengths = _ravel(lengths)
        self._part_starts = _ravel([np.cumsum([0, *row[:-1]]) for row in lengths])

    def encode(self, codes: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns the ids of the pieces of cleaned texts, int32 [B, None]."""
        ids = self._model.tokenize(tf.strings.unicode_encode(codes, "UTF-8"))
        return self._split_commas.replace(ids)[0]

    def align(self, codes: tf.RaggedTensor, origins: tf.Tensor):
        """Returns the pieces of cleaned texts and their positions before cleaning.

        Args:
            codes: int32 [B, None], the N characters of the cleaned texts.
            origins: int32 [N], the origin of each of these characters.

        Returns:
            The ids of the P pieces, int32 [B, None]; and the begin and the end of each
            piece among the original characters of all texts, int32 [P] each. Both are
            -1 for a piece without text.
        """
        cleaned = tf.strings.unicode_encode(codes, "UTF-8")
        # The model normalises the cleaned texts. For each normalised character: the
        # index of the original character from which it is made.
        normal_origins = tf.gather(origins, self._find_origins(cleaned))
        whole_ids = self._model.tokenize(cleaned)  # before the digit-comma rule
        whole_texts = self._text_model.tokenize(cleaned).values
        begin, length = self._find_spans(whole_texts, whole_ids.values)
        ids, source, index = self._split_commas.replace(whole_ids)
        # `index` counts the parts in the table first and then all whole pieces. A whole
        # piece starts at 0 and keeps its length.
        starts = tf.concat([self._part_starts, tf.zeros_like(begin)], axis=0)
        begin = tf.gather(begin, source) + tf.gather(starts, index)
        length = tf.gather(tf.concat([self._part_lengths, length], axis=0), index)
        has_text = length > 0
        # Indices of the first and the last original character of each piece.
        first = tf.gather(normal_origins, tf.where(has_text, begin, 0))
        last = tf.gather(normal_origins, tf.where(has_text, begin + length - 1, 0))
        return ids, tf.where(has_text, first, -1), tf.where(has_text, last + 1, -1)

    def _find_origins(self, cleaned: tf.Tensor):
        """Finds the cleaned character from which each normalised character is made.

        Args:
            cleaned: string [B], the cleaned texts.

        Returns:
            int32 [M], for each of the M normalised characters the index of a cleaned
            character, counted over all texts.
        """
        byte_ids, begins, _ = self._byte_model.tokenize_with_offsets(cleaned)
        _, starts = tf.strings.unicode_decode_with_offsets(cleaned, "UTF-8")
        sizes = tf.cast(tf.strings.length(cleaned), tf.int64)
        # Byte positions in the cleaned texts, counted over all texts: where each
        # cleaned character starts, and where each piece of the byte model begins.
        character_start, piece_begin = (
            ragged.values
            + tf.gather(tf.cumsum(sizes, exclusive=True), ragged.value_rowids())
            for ragged in (starts, tf.cast(begins, tf.int64))
        )
        character = tf.searchsorted(character_start, piece_begin, side="right") - 1
        # A piece of the byte model has 1 character, or 0 if it is a continuation byte.
        # A user-defined symbol may have more characters. Normalisation does not change
        # them, so they come from consecutive cleaned characters.
        count = tf.gather(self._character_counts, byte_ids.values)
        return tf.ragged.range(character, character + count).values

    def _find_spans(self, texts: tf.Tensor, ids: tf.Tensor):
        """Returns the begins and the lengths of pieces without their word marks.

        Args:
            texts: string [P], the pieces as text, in the order of the normalised texts.
            ids: int32 [P], the ids of the pieces.

        Returns:
            Two int32 [P], in characters of the normalised texts.
        """
        count = tf.strings.length(texts, "UTF8_CHAR")  # with word marks
        # `unmarked` has no marks at the beginning, and `bare` has none at either end.
        unmarked = tf.strings.regex_replace(texts, f"^{WORD_MARK}+", "")
        bare = tf.strings.regex_replace(unmarked, f"{WORD_MARK}+$", "")
        length = tf.strings.length(bare, "UTF8_CHAR")
        # The distance from the beginning of a piece to the beginning of its text is the
        # number of word marks at the beginning.
        shift = count - tf.strings.length(unmarked, "UTF8_CHAR")
        # If pieces are the bytes of a character, each gets the span of the character.
        # The first byte counts as one character, the other bytes as none. Therefore the
        # other bytes begin after the character, and shift = -1 moves them back to it.
        lead = tf.gather(self._leads, ids)
        is_byte = lead >= 0
        count, length = tf.where(is_byte, lead, count), tf.where(is_byte, 1, length)
        shift = tf.where(is_byte, lead - 1, shift)
        return tf.cumsum(count, exclusive=True) + shift, length


class _WordPiece(tf.Module):
    """The operations of a `tokenization.WordPieceTokenizer`.

    After the steps in `cleaning`, which put spaces between words, the model of
    tensorflow_text cuts each word into pieces.
    """

    def __init__(self, tokenizer: tokenization.WordPieceTokenizer):
        super().__init__()
        make_step = _make_lower_case if tokenizer.do_lower_case else _tabulate
        self.cleaning = (
            _tabulate(tokenization.ISOLATED_IDEOGRAPHS.function),
            make_step(tokenizer.last_stage.function),
            _collapse_spaces,
        )
        self._model = tf_text.FastWordpieceTokenizer(
            vocab=list(tokenizer.pieces),
            # A character has at most 4 bytes.
            max_bytes_per_word=4 * tokenization.MAX_WORD_CHARS,
            token_out_type=tf.int32,
            no_pretokenization=True,
        )
        mark = tokenization.CONTINUATION
        self._lengths = _ravel([[len(p.removeprefix(mark)) for p in tokenizer.pieces]])
        self._unknown = tokenizer.unk_id

    def encode(self, codes: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns the ids of the pieces of cleaned texts, int32 [B, None]."""
        return self._encode_words(codes)[0].merge_dims(1, 2)

    def _encode_words(self, codes: tf.RaggedTensor):
        """Returns the ids of the pieces of each word, and the length of each word.

        Args:
            codes: int32 [B, None], the characters of cleaned texts with W words.

        Returns:
            The ids, int32 [B, None, None]: texts, words, pieces. The lengths of the
            words in characters, int32 [W].
        """
        words = tf.strings.split(tf.strings.unicode_encode(codes, "UTF-8"))
        lengths = tf.strings.length(words.values, unit="UTF8_CHAR")
        is_too_long = lengths > tokenization.MAX_WORD_CHARS
        # A word that is too long becomes the unknown piece, as in Python.
        words = words.with_values(tf.where(is_too_long, "[UNK]", words.values))
        return self._model.tokenize(words), lengths

    def align(self, codes: tf.RaggedTensor, origins: tf.Tensor):
        """Returns pieces and their positions, as `_SentencePiece.align`."""
        word_ids, word_lengths = self._encode_words(codes)
        ids = word_ids.merge_dims(1, 2)
        # The unknown piece has the length of its word.
        length = tf.where(
            ids.values == self._unknown,
            tf.gather(word_lengths, word_ids.values.value_rowids()),
            tf.gather(self._lengths, ids.values),
        )
        # The pieces of a text, one after the other, are its characters without spaces.
        is_space = _look_up(str.isspace, codes.values)
        origins = tf.boolean_mask(origins, ~is_space)
        begin = tf.cumsum(length, exclusive=True)
        first = tf.gather(origins, begin)
        return ids, first, tf.gather(origins, begin + length - 1) + 1


class _Replacement:
    """Replaces integers of a ragged tensor by lists of integers, by a table.

    A key of the table is an integer, its value a list of any length. Integers that are
    no key stay. An instance can be a cleaning step: `GraphTokenizer._clean` calls it.
    """

    def __init__(self, table: Mapping[int, Sequence[int]]):
        keys = sorted(table)
        # `replace` searches for the first key that is not smaller than an input. The
        # last key is larger than all inputs, so there is always such a key.
        self._keys = np.array([*keys, np.iinfo(np.int32).max], np.int32)
        self._lengths = np.array([len(table[key]) for key in keys] + [1], np.int32)
        self._starts = np.cumsum([0, *self._lengths[:-1]], dtype=np.int32)
        self._values = _ravel([table[key] for key in keys])

    def __call__(
        self, ragged: tf.RaggedTensor, origins: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Replaces characters, int32 [B, None]; the new ones keep the old origins."""
        replaced, source, _ = self.replace(ragged)
        return replaced, tf.gather(origins, source)

    def replace(
        self, ragged: tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Replaces integers.

        Args:
            ragged: the inputs, int32 [B, None].

        Returns:
            replaced: the M results, int32 [B, None].
            source: for each result, the index of the input that it is from, int64 [M].
            index: for each result, its index in the concatenation of all lists of the
                table (in the order of the keys) and the inputs, int32 [M].
        """
        flat = ragged.values
        key_index = tf.searchsorted(self._keys, flat)
        is_key = tf.gather(self._keys, key_index) == flat
        input_index = tf.range(tf.size(flat)) + len(self._values)
        start = tf.where(is_key, tf.gather(self._starts, key_index), input_index)
        count = tf.where(is_key, tf.gather(self._lengths, key_index), 1)
        index = tf.ragged.range(start, start + count)
        results = tf.gather(tf.concat([self._values, flat], axis=0), index)
        replaced = ragged.with_values(results).merge_dims(1, 2)
        return replaced, index.value_rowids(), index.values


# `_find_ranges` and `_tabulate` keep their results, because they call the function for
# all characters, which takes half a second.
@functools.cache
def _find_ranges(function: Callable[[str], int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ranges of characters in which a function is constant.

    Returns:
        The first code point of each range, int32, and the value of the function there.
    """
    values = np.array([function(chr(code)) for code in _CODE_POINTS])
    first = np.append(0, np.flatnonzero(np.diff(values)) + 1)
    return np.array(_CODE_POINTS, np.int32)[first], values[first]


def _look_up(function: Callable[[str], int], codes: tf.Tensor) -> tf.Tensor:
    """Returns the value of a function of characters for each code point in `codes`.

    Unlike `_tabulate`, this is for functions that are constant over long ranges.
    """
    starts, values = _find_ranges(function)
    return tf.gather(values, tf.searchsorted(starts, codes, side="right") - 1)


@functools.cache
def _tabulate(function: Callable[[str], str]) -> _Replacement:
    """Makes a step of cleaning: each character becomes `function(character)`."""
    results = ((code, function(chr(code))) for code in _CODE_POINTS)
    return _Replacement({c: [*map(ord, new)] for c, new in results if new != chr(c)})


def _sort_marks(
    codes: tf.RaggedTensor, origins: tf.Tensor
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Sorts the combining marks of each letter by their combining classes, as NFD does.

    The origins are not sorted: they stay in the order of the text.
    """
    flat = codes.values
    classes = _look_up(unicodedata.combining, flat)  # int64, below 256
    # A letter and its marks have the same number, which grows along the texts. The
    # index of the text is added, because a text can begin with a mark.
    letter = tf.cumsum(tf.cast(classes == 0, tf.int64)) + codes.value_rowids()
    ordered = tf.gather(flat, tf.argsort(letter * 256 + classes, stable=True))
    return codes.with_values(ordered), origins


@functools.cache
def _make_lower_case(map_character: Callable[[str], str]) -> Callable:
    """Makes the step of cleaning that computes `str.lower`, then another function.

    Only the lower case of the capital sigma depends on its neighbours: it is "ς" at the
    end of a word. Apostrophes and some other characters are ignored in the search for
    that end.

    Args:
        map_character: the other function, which returns the new text for a character.
    """
    table = CharacterMap(map_character)
    replace = _tabulate(lambda character: character.lower().translate(table))

    def lower(codes: tf.RaggedTensor, origins: tf.Tensor):
        flat, rows = codes.values, codes.value_rowids()
        kinds = _look_up(_classify_for_sigma, flat)
        # The indices of the characters that are not ignored.
        index = tf.where(kinds != _IGNORED)[:, 0]
        row, is_cased = tf.gather(rows, index), tf.gather(kinds, index) == _CASED
        # Whether the characters at index[i] and index[i + 1] are letters of one text.
        is_pair = (row[1:] == row[:-1]) & is_cased[1:] & is_cased[:-1]
        # For the character at index[i]: follows[i] is whether it is a letter after a
        # letter, and precedes[i] whether it is a letter before a letter.
        follows, precedes = tf.pad(is_pair, [[1, 0]]), tf.pad(is_pair, [[0, 1]])
        is_final = (tf.gather(flat, index) == _SIGMA) & follows & ~precedes
        final_index = tf.boolean_mask(index, is_final)
        sigmas = tf.fill(tf.shape(final_index), _FINAL_SIGMA)
        flat = tf.tensor_scatter_nd_update(flat, final_index[:, None], sigmas)
        return replace(codes.with_values(flat), origins)

    return lower


def _classify_for_sigma(character: str) -> int:
    """Returns the kind of a character from its effect on the lower case of a sigma."""
    # In Python, a final sigma becomes "ς" after a letter, even if characters that are
    # ignored come between them.
    if (character + "Σ").lower().endswith("ς"):
        return _CASED
    return _IGNORED if ("A" + character + "Σ").lower().endswith("ς") else _NOT_CASED


def _collapse_spaces(
    codes: tf.RaggedTensor, origins: tf.Tensor
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Computes `" ".join(text.split())` for each text.

    The last space of each run between words stays, and becomes " ".
    """
    row = codes.value_rowids()
    is_text = ~_look_up(str.isspace, codes.values)
    # Whether the next character of the same text is not a space. If there are no
    # characters at all, the slice removes the value of the padding.
    before_text = tf.pad(is_text[1:] & (row[1:] == row[:-1]), [[0, 1]])[: tf.size(row)]
    # For each character, the number of characters before it, in all texts, that are not
    # spaces. After the first word of a text has begun, this number is larger than at
    # the start of the text.
    counts = tf.concat([[0], tf.cumsum(tf.cast(is_text, tf.int32))], axis=0)
    after_text = counts[:-1] > tf.gather(counts, tf.gather(codes.row_starts(), row))
    is_kept = is_text | (before_text & after_text)
    plain = codes.with_values(tf.where(is_text, codes.values, ord(" ")))
    result = tf.ragged.boolean_mask(plain, codes.with_values(is_kept))
    return result, tf.boolean_mask(origins, is_kept)


def _make_sentencepiece(model: bytes, dtype: tf.DType):
    """Returns tensorflow_text's tokenizer of a model.

    The tokenizer returns ids if `dtype` is int32, and the text of pieces if it is
    string.
    """
    # In a SavedModel, all models of the same name become one.
    name = f"model_{hashlib.sha256(model).hexdigest()[:16]}"
    return tf_text.SentencepieceTokenizer(model, dtype, name=name)


def _ravel(rows: Iterable[Iterable[int]]) -> np.ndarray:
    """Returns the values of all rows in one array, int32 [N]."""
    return np.array([value for row in rows for value in row], np.int32)


def _make_byte_model(contents: bytes) -> tuple[bytes, list[int]]:
    """Makes a model whose pieces are bytes, with the normalisation of another model.

    The offsets of its pieces show from which bytes of the input each normalised
    character is made. tensorflow_text has no other function that returns this.

    Args:
        contents: the other model.

    Returns:
        The new model, and for each id the number of characters that begin in its piece.
    """
    kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
    model = sentencepiece_model_pb2.ModelProto.FromString(contents)
    symbols = [piece for piece in model.pieces if piece.type == kinds.USER_DEFINED]
    del model.pieces[:]
    model.pieces.add(piece="<unk>", type=kinds.UNKNOWN)
    for byte in range(256):
        model.pieces.add(piece=f"<0x{byte:02X}>", type=kinds.BYTE)
    # The new model keeps the user-defined pieces, because normalisation does not change
    # them.
    model.pieces.extend(symbols)
    trainer = sentencepiece_model_pb2.TrainerSpec
    settings = trainer(model_type=trainer.CHAR, byte_fallback=True)
    model.trainer_spec.CopyFrom(settings)
    counts = [int(byte not in tokenization.UTF8_CONTINUATION) for byte in range(256)]
    return model.SerializeToString(), [1, *counts, *(len(s.piece) for s in symbols)]


def rstrip(texts: tf.Tensor) -> tf.Tensor:
    """Computes `str.rstrip` of each text, string [N]."""
    spaces = "".join(filter(str.isspace, map(chr, _CODE_POINTS)))
    return tf.strings.regex_replace(texts, f"[{spaces}]+$", "")


# An argument of `assemble`: an array of values, and for each of B rows the start and
# the length of a slice of this array.
Slices = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


def join(
    first: tf.RaggedTensor,
    second: tf.RaggedTensor | None,
    max_seq_length: int | tf.Tensor,
    cls_id: int,
    sep_id: int,
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Makes `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`, as `inputs.join` does.

    Args:
        first: int32 [B, None], the ids of the tokens of each first text.
        second: int32 [B, None], the ids of the tokens of each second text; None if all
            examples are single texts.
        max_seq_length: maximum number of tokens of an input.
        cls_id: id of [CLS].
        sep_id: id of [SEP].

    Returns:
        The ids, int32 [B, None], and the numbers of tokens of segment 0, int64 [B].
    """
    first_lengths = first.row_lengths()
    if second is None:
        second = first[:, :0]
    second_lengths = second.row_lengths()
    is_pair = tf.cast(second_lengths > 0, tf.int64)  # 1 or 0
    # The maximum number of tokens of both texts without [CLS] and one or two [SEP].
    limit = tf.maximum(tf.cast(max_seq_length, tf.int64) - 2 - is_pair, 0)
    first_size, second_size = inputs.truncate_lengths(
        first_lengths, second_lengths, limit, tf.minimum, tf.maximum
    )
    one = tf.ones_like(is_pair)
    ids = assemble(
        [
            make_id_part(cls_id, one),
            (first.values, first.row_starts(), first_size),
            make_id_part(sep_id, one),
            (second.values, second.row_starts(), second_size),
            make_id_part(sep_id, is_pair),
        ]
    )
    return ids, first_size + 2


def make_id_part(id: int, count: tf.Tensor) -> Slices:
    """Returns a part for `assemble` that has one id in some rows, and none in others.

    Args:
        id: the id.
        count: int64 [B], 1 for rows with the id, 0 for others.
    """
    return tf.constant([id]), tf.zeros_like(count), count


def assemble(parts: Sequence[Slices]) -> tf.RaggedTensor:
    """Concatenates the parts of each row.

    `tf.concat` of ragged tensors does the same with many more operations, such as
    assertions.

    Args:
        parts: each part is (values, starts, lengths): int32 [N], int64 [B], int64 [B].
            Row b contains values[starts[b] : starts[b] + lengths[b]] of each part.

    Returns:
        The rows, int32 [B, None].
    """
    sizes = [tf.size(values, tf.int64) for values, _, _ in parts]
    offsets = tf.unstack(tf.cumsum(sizes, exclusive=True), len(parts))
    starts = [
        start + offset for (_, start, _), offset in zip(parts, offsets, strict=True)
    ]
    length = tf.stack([length for _, _, length in parts], axis=1)  # [B, parts]
    begin = tf.reshape(tf.stack(starts, axis=1), [-1])
    positions = tf.ragged.range(begin, begin + tf.reshape(length, [-1])).values
    # The values of all parts, into which `positions` are indices.
    pool = tf.concat([values for values, _, _ in parts], axis=0)
    return tf.RaggedTensor.from_row_lengths(
        tf.gather(pool, positions), tf.reduce_sum(length, axis=1), validate=False
    )


def pad(
    ids: tf.RaggedTensor,
    first_lengths: tf.Tensor,
    pad_id: int,
    length: int | tf.Tensor | None = None,
) -> dict[str, tf.Tensor]:
    """Makes one padded batch of all inputs, with the same keys as `inputs.pad`.

    Args:
        ids: int32 [B, None].
        first_lengths: int64 [B], numbers of tokens of segment 0.
        pad_id: the id of padding.
        length: T, the number of tokens of each row. If it is None, T is the length of
            the longest input, or 1 if there are no inputs.

    Returns:
        `input_ids`, `input_mask` and `segment_ids`, int32 [B, T] each.
    """
    if length is None:
        # The model reads the first token even if there are no inputs.
        length = tf.maximum(tf.cast(ids.bounding_shape(axis=1), tf.int32), 1)
    padded = ids.to_tensor(pad_id, shape=tf.stack([-1, length]))
    mask = tf.sequence_mask(ids.row_lengths(), length, tf.int32)
    first_mask = tf.sequence_mask(first_lengths, length, tf.int32)
    return {"input_ids": padded, "input_mask": mask, "segment_ids": mask - first_mask}


def split_words(
    texts: tf.Tensor,
) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
    """Splits raw texts into words, as `words.split_words` does.

    Args:
        texts: string [B], UTF-8.

    Returns:
        The words, string [B, None]; and the first character of each word and the
        character after the word, as indices in its text, int32 [B, None] each.
    """
    codes = tf.strings.unicode_decode(texts, "UTF-8")
    # Each character is replaced by the ASCII character for its class. So the offsets
    # below, which are in bytes, are also offsets in characters.
    classes = tf.cast(_look_up(_encode_class, codes.values), tf.int32)
    class_texts = tf.strings.regex_replace(
        tf.strings.unicode_encode(codes.with_values(classes), "UTF-8"),
        words_of_text.POSSESSIVE,
        words_of_text.MARKED_POSSESSIVE,
    )
    # Both the words and the spaces between them are delimiters. The function returns
    # only the delimiters that are words.
    _, begins, ends = tf_text.regex_split_with_offsets(
        class_texts, f"{words_of_text.WORD}| +", words_of_text.WORD
    )
    begins, ends = tf.cast(begins, tf.int32), tf.cast(ends, tf.int32)
    start = tf.cast(tf.gather(codes.row_starts(), begins.value_rowids()), tf.int32)
    indices = tf.ragged.range(begins.values + start, ends.values + start)
    characters = indices.with_values(tf.gather(codes.values, indices.values))
    words = begins.with_values(tf.strings.unicode_encode(characters, "UTF-8"))
    return words, begins, ends


def _encode_class(character: str) -> int:
    """Returns the class of a character in `words`, as a code point."""
    return ord(words_of_text.classify_character(character))
