"""The functions of `tokenization` and `inputs` as TensorFlow operations.

A SavedModel that takes text needs them, because it runs without Python.

TensorFlow's Unicode operations use another version of Unicode than Python, depend on
the machine's locale, and know no combining classes. The graph therefore cleans text
with tables: they hold the results of the Python functions for all characters.
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

# All other code points are private or unassigned; cleaning does not change them.
_CODE_POINTS = (*range(0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xE1000))

# A token has at most this many characters, except a run of unknown characters.
_MAX_CHARACTERS = 64
# A long text is cut this many tokens after `max_tokens`, because a cut inside a word
# can change the last tokens before the cut.
_MARGIN = 64

_SIGMA, _FINAL_SIGMA = ord("Σ"), ord("ς")
# Kinds of characters next to a capital sigma, which decide whether it ends a word.
_NOT_CASED, _CASED, _IGNORED = range(3)


class GraphTokenizer(tf.Module):
    """Encodes text inside a graph with the ids of a Python tokenizer.

    Assign it to an attribute of a `tf.Module` or Keras layer, or save it directly. The
    SavedModel is complete, and loads in any program that imports tensorflow_text. Bytes
    that are not UTF-8 count as U+FFFD. Call `tf.random.set_seed` only before you create
    or load it: the call invalidates all tokenizers of tensorflow_text.
    """

    def __init__(
        self,
        tokenizer: tokenization.Tokenizer,
        max_tokens: int | None = None,
        *,
        with_offsets: bool = False,
    ):
        """Compiles a tokenizer; the first one of a process takes about a second.

        Args:
            tokenizer: a `SentencePieceTokenizer` or `WordPieceTokenizer`.
            max_tokens: number of tokens of a text that the caller uses. More tokens may
                be returned, but most of the rest is not tokenized. None for all tokens.
            with_offsets: whether to prepare `encode_with_offsets`.
        """
        super().__init__()
        self._max_characters = max_tokens and (max_tokens + _MARGIN) * _MAX_CHARACTERS
        self._encoder: Any
        if isinstance(tokenizer, tokenization.WordPieceTokenizer):
            self._max_characters = None  # a token may have any length
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
        """Encodes texts and finds their pieces; needs `with_offsets`.

        Args:
            texts: string [B], UTF-8.

        Returns:
            ids, begins and ends, int32 [B, None] each: the result of
            `tokenizer.encode_with_offsets` for each text. A character that is not UTF-8
            counts as one U+FFFD.
        """
        # A space at the end of each text separates it from the next text.
        spaced = tf.strings.join([texts, " "])
        codes = tf.strings.unicode_decode(spaced, "UTF-8")
        ids, begins, ends = self._encoder.align(*self._clean(codes))
        is_space = _look_up(str.isspace, codes.values)
        begins, ends = tokenization.attach_deleted(is_space, begins, ends, tnp)
        # The first character of the text of each piece, and the space at its end.
        first = tf.gather(codes.row_starts(), ids.value_rowids())
        last = tf.gather(codes.row_limits(), ids.value_rowids()) - 1
        begins, ends = (
            ids.with_values(tf.cast(tf.minimum(position, last) - first, tf.int32))
            for position in (begins, ends)
        )
        return ids, begins, ends

    def _clean(self, codes: tf.RaggedTensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Cleans texts.

        Args:
            codes: int32 [B, None], the characters.

        Returns:
            The N characters of the cleaned texts, int32 [B, None]; and the index of
            each character's origin in the values of `codes`, int32 [N].
        """
        origins = tf.range(tf.size(codes.values))
        for step in self._encoder.cleaning:
            codes, origins = step(codes, origins)
        return codes, origins


class _SentencePiece(tf.Module):
    """`tokenization.SentencePieceTokenizer` in a graph.

    The steps are the cleaning, the model's normalisation and the digit-comma rule.
    """

    def __init__(
        self, tokenizer: tokenization.SentencePieceTokenizer, with_offsets: bool
    ):
        super().__init__()
        characters = tokenization.DECOMPOSITIONS[tokenizer.keep_accents].function
        self.cleaning: tuple[Callable, ...] = (_collapse_spaces, _tabulate(characters))
        if tokenizer.keep_accents:
            self.cleaning += (_sort_marks,)
        if tokenizer.do_lower_case:
            self.cleaning += (_lower_case(str),)  # `str` changes no character
        self._model = _make_sentencepiece(tokenizer.contents, tf.int32)
        self._split_commas = _Replacement(tokenizer.comma_ids)
        if with_offsets:
            self._prepare_offsets(tokenizer)

    def _prepare_offsets(self, tokenizer: tokenization.SentencePieceTokenizer) -> None:
        self._pieces = _make_sentencepiece(tokenizer.contents, tf.string)
        model, counts = _make_byte_model(tokenizer.contents)
        self._bytes = _make_sentencepiece(model, tf.int32)
        self._character_counts = np.array(counts, np.int32)
        # For each id: 1 if the piece is a byte that begins a character, 0 if it is
        # another byte, and -1 if it is not a byte.
        self._leads = np.full(tokenizer.vocab_size, -1, np.int32)
        for id, byte in tokenizer.byte_values.items():
            self._leads[id] = byte not in tokenization.UTF8_CONTINUATION
        # The lengths and starts of the parts of all pieces with commas, in characters
        # and in the order of the values of `_split_commas`.
        parts = tokenizer.comma_pieces.values()
        lengths = [[len(part.strip(WORD_MARK)) for part in row] for row in parts]
        self._part_lengths = _flat(lengths)
        self._part_starts = _flat([np.cumsum([0, *row[:-1]]) for row in lengths])

    def encode(self, codes: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns the ids of cleaned texts."""
        pieces = self._model.tokenize(tf.strings.unicode_encode(codes, "UTF-8"))
        return self._split_commas.replace(pieces)[0]

    def align(self, codes: tf.RaggedTensor, origins: tf.Tensor):
        """Finds the pieces of texts.

        Args:
            codes: int32 [B, None], the N characters of the cleaned texts.
            origins: int32 [N], the index of each character's origin.

        Returns:
            The P ids, int32 [B, None]; and the begin and the end of each piece among
            the original characters of all texts, int32 [P] each. Both are -1 for a
            piece without text.
        """
        cleaned = tf.strings.unicode_encode(codes, "UTF-8")
        origins = tf.gather(origins, self._find_origins(cleaned))
        pieces = self._model.tokenize(cleaned)
        texts = self._pieces.tokenize(cleaned).values
        begin, length = self._spans(texts, pieces.values)
        ids, source, index = self._split_commas.replace(pieces)
        # A piece that is not split has one part, which begins at its character 0.
        starts = tf.concat([self._part_starts, tf.zeros_like(begin)], axis=0)
        begin = tf.gather(begin, source) + tf.gather(starts, index)
        length = tf.gather(tf.concat([self._part_lengths, length], axis=0), index)
        has_text = length > 0
        # Indices of the first and the last original character of each piece.
        first = tf.gather(origins, tf.where(has_text, begin, 0))
        last = tf.gather(origins, tf.where(has_text, begin + length - 1, 0))
        return ids, tf.where(has_text, first, -1), tf.where(has_text, last + 1, -1)

    def _find_origins(self, cleaned: tf.Tensor):
        """Returns the origins of the M characters of the normalised texts.

        Args:
            cleaned: string [B].

        Returns:
            int32 [M], indices of characters, counted over all cleaned texts.
        """
        byte_ids, begins, _ = self._bytes.tokenize_with_offsets(cleaned)
        _, starts = tf.strings.unicode_decode_with_offsets(cleaned, "UTF-8")
        sizes = tf.cast(tf.strings.length(cleaned), tf.int64)
        # The index of the first byte of each cleaned character, and of the cleaned byte
        # that each byte piece begins at, counted over all texts.
        character_start, piece_begin = (
            ragged.values
            + tf.gather(tf.cumsum(sizes, exclusive=True), ragged.value_rowids())
            for ragged in (starts, tf.cast(begins, tf.int64))
        )
        character = tf.searchsorted(character_start, piece_begin, side="right") - 1
        count = tf.gather(self._character_counts, byte_ids.values)
        return tf.ragged.range(character, character + count).values

    def _spans(self, pieces: tf.Tensor, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns begins and lengths of pieces without their word marks.

        Args:
            pieces: string [P].
            ids: int32 [P].

        Returns:
            Two int32 [P], in characters of the normalised texts.
        """
        count = tf.strings.length(pieces, "UTF8_CHAR")
        # `unmarked` has no marks at the begin, and `bare` has none at either end.
        unmarked = tf.strings.regex_replace(pieces, f"^{WORD_MARK}+", "")
        marks = count - tf.strings.length(unmarked, "UTF8_CHAR")
        bare = tf.strings.regex_replace(unmarked, f"{WORD_MARK}+$", "")
        length = tf.strings.length(bare, "UTF8_CHAR")
        # All bytes of a character have the span of the character. Its first byte counts
        # as one character. Its other bytes count 0, and `marks` = -1 moves their begin
        # back to the begin of the character.
        lead = tf.gather(self._leads, ids)
        is_byte = lead >= 0
        count, length = tf.where(is_byte, lead, count), tf.where(is_byte, 1, length)
        marks = tf.where(is_byte, lead - 1, marks)
        return tf.cumsum(count, exclusive=True) + marks, length


class _WordPiece(tf.Module):
    """`tokenization.WordPieceTokenizer` in a graph.

    The steps are the cleaning and the search for the longest pieces of each word.
    """

    def __init__(self, tokenizer: tokenization.WordPieceTokenizer):
        super().__init__()
        last_stage = tokenizer.last_stage.function
        self.cleaning = (
            _tabulate(tokenization.ISOLATED_IDEOGRAPHS.function),
            (_lower_case if tokenizer.do_lower_case else _tabulate)(last_stage),
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
        self._lengths = _flat([[len(p.removeprefix(mark)) for p in tokenizer.pieces]])
        self._unknown = tokenizer.unk_id

    def encode(self, codes: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns the ids of cleaned texts."""
        return self._encode_words(codes)[0].merge_dims(1, 2)

    def _encode_words(self, codes: tf.RaggedTensor):
        """Returns the ids of the pieces of W words, and the length of each word.

        The ids are int32 [B, None, None], text by text and word by word. The lengths,
        int32 [W], are numbers of characters.
        """
        words = tf.strings.split(tf.strings.unicode_encode(codes, "UTF-8"))
        lengths = tf.strings.length(words.values, unit="UTF8_CHAR")
        is_too_long = lengths > tokenization.MAX_WORD_CHARS
        words = words.with_values(tf.where(is_too_long, "[UNK]", words.values))
        return self._model.tokenize(words), lengths

    def align(self, codes: tf.RaggedTensor, origins: tf.Tensor):
        """Finds the pieces of texts; see `_SentencePiece.align`."""
        pieces, word_lengths = self._encode_words(codes)
        ids, word_pieces = pieces.merge_dims(1, 2), pieces.values
        length = tf.where(
            ids.values == self._unknown,
            tf.gather(word_lengths, word_pieces.value_rowids()),
            tf.gather(self._lengths, ids.values),
        )
        # The pieces cover all characters except spaces.
        is_space = _look_up(str.isspace, codes.values)
        origins = tf.boolean_mask(origins, ~is_space)
        begin = tf.cumsum(length, exclusive=True)
        first = tf.gather(origins, begin)
        return ids, first, tf.gather(origins, begin + length - 1) + 1


class _Replacement:
    """Replaces the integers of a ragged tensor by their values in a table.

    The value of a key is a list of any number of integers. Integers without a value
    stay.
    """

    def __init__(self, table: Mapping[int, Sequence[int]]):
        keys = sorted(table)
        # The last key is above all inputs, so that each search finds a key.
        self._keys = np.array([*keys, np.iinfo(np.int32).max], np.int32)
        self._lengths = np.array([len(table[key]) for key in keys] + [1], np.int32)
        self._starts = np.cumsum([0, *self._lengths[:-1]], dtype=np.int32)
        self._values = _flat([table[key] for key in keys])

    def __call__(
        self, ragged: tf.RaggedTensor, origins: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Replaces integers, int32 [B, None]; a result has the origin of its input."""
        replaced, source, _ = self.replace(ragged)
        return replaced, tf.gather(origins, source)

    def replace(
        self, ragged: tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Replaces integers.

        Args:
            ragged: the inputs, int32 [B, None].

        Returns:
            The M results, int32 [B, None]; the index of each result's input, int64 [M];
            and the index of each result in a list of all values of the table and then
            all inputs, int32 [M].
        """
        flat = ragged.values
        key = tf.searchsorted(self._keys, flat)
        is_key = tf.gather(self._keys, key) == flat
        input_index = tf.range(tf.size(flat)) + len(self._values)
        start = tf.where(is_key, tf.gather(self._starts, key), input_index)
        count = tf.where(is_key, tf.gather(self._lengths, key), 1)
        index = tf.ragged.range(start, start + count)
        results = tf.gather(tf.concat([self._values, flat], axis=0), index)
        replaced = ragged.with_values(results).merge_dims(1, 2)
        return replaced, index.value_rowids(), index.values


# `_find_ranges` and `_tabulate` are cached, because the pass over all characters takes
# half a second.
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

    The function must be constant over long ranges of characters.
    """
    starts, values = _find_ranges(function)
    return tf.gather(values, tf.searchsorted(starts, codes, side="right") - 1)


@functools.cache
def _tabulate(function: Callable[[str], str]) -> _Replacement:
    """Returns a function of characters as a replacement of code points."""
    table = {code: [*map(ord, function(chr(code)))] for code in _CODE_POINTS}
    return _Replacement({k: codes for k, codes in table.items() if codes != [k]})


def _sort_marks(
    codes: tf.RaggedTensor, origins: tf.Tensor
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Sorts combining marks canonically.

    The origins are not sorted: they stay in the order of the text.
    """
    flat = codes.values
    classes = _look_up(unicodedata.combining, flat)  # int64, below 256
    # Only marks of the same letter in the same text are sorted.
    letter = tf.cumsum(tf.cast(classes == 0, tf.int64)) + codes.value_rowids()
    ordered = tf.gather(flat, tf.argsort(letter * 256 + classes, stable=True))
    return codes.with_values(ordered), origins


@functools.cache
def _lower_case(last_stage: Callable[[str], str]) -> Callable:
    """Returns the step that computes `str.lower`, then `last_stage` by character.

    Only the capital sigma depends on its neighbours: it becomes "ς" at the end of a
    word. Characters such as apostrophes are ignored in the search for that end.

    Args:
        last_stage: a function of one character, applied after lower-casing.
    """
    table = CharacterMap(last_stage)
    replace = _tabulate(lambda c: c.lower().translate(table))

    def lower(codes: tf.RaggedTensor, origins: tf.Tensor):
        flat, rows = codes.values, codes.value_rowids()
        kinds = _look_up(_sigma_kind, flat)
        index = tf.where(kinds != _IGNORED)[:, 0]
        row, is_cased = tf.gather(rows, index), tf.gather(kinds, index) == _CASED
        # Whether the characters at index[i] and index[i + 1] are letters of one text.
        is_pair = (row[1:] == row[:-1]) & is_cased[1:] & is_cased[:-1]
        # Whether each of these characters follows a letter, and precedes a letter.
        follows, precedes = tf.pad(is_pair, [[1, 0]]), tf.pad(is_pair, [[0, 1]])
        is_final = (tf.gather(flat, index) == _SIGMA) & follows & ~precedes
        final_index = tf.boolean_mask(index, is_final)
        sigmas = tf.fill(tf.shape(final_index), _FINAL_SIGMA)
        flat = tf.tensor_scatter_nd_update(flat, final_index[:, None], sigmas)
        return replace(codes.with_values(flat), origins)

    return lower


def _sigma_kind(character: str) -> int:
    """Returns the kind of a character from its effect on `str.lower`."""
    if (character + "Σ").lower().endswith("ς"):
        return _CASED
    return _IGNORED if ("A" + character + "Σ").lower().endswith("ς") else _NOT_CASED


def _collapse_spaces(
    codes: tf.RaggedTensor, origins: tf.Tensor
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Computes `" ".join(text.split())`; keeps the last space of each run as " "."""
    row = codes.value_rowids()
    is_text = ~_look_up(str.isspace, codes.values)
    before_text = tf.pad(is_text[1:] & (row[1:] == row[:-1]), [[0, 1]])[: tf.size(row)]
    # For each character, the number of characters before it that are not spaces, over
    # all texts.
    counts = tf.concat([[0], tf.cumsum(tf.cast(is_text, tf.int32))], axis=0)
    after_text = counts[:-1] > tf.gather(counts, tf.gather(codes.row_starts(), row))
    is_kept = is_text | (before_text & after_text)
    plain = codes.with_values(tf.where(is_text, codes.values, ord(" ")))
    result = tf.ragged.boolean_mask(plain, codes.with_values(is_kept))
    return result, tf.boolean_mask(origins, is_kept)


def _make_sentencepiece(model: bytes, kind: tf.DType) -> tf_text.SentencepieceTokenizer:
    """Returns the tokenizer of a model; `kind` is int32 for ids, string for pieces."""
    # In a SavedModel, two models of the same name would be one.
    name = f"model_{hashlib.sha256(model).hexdigest()[:16]}"
    return tf_text.SentencepieceTokenizer(model, kind, name=name)


def _flat(rows: Iterable[Iterable[int]]) -> np.ndarray:
    """Returns the values of all rows in one array, int32 [N]."""
    return np.array([value for row in rows for value in row], np.int32)


def _make_byte_model(contents: bytes) -> tuple[bytes, list[int]]:
    """Makes a model whose pieces are bytes, with the normalisation of another model.

    The offsets of its pieces show the origin of each normalised character, which
    tensorflow_text does not return.

    Returns:
        The model, and for each id the number of characters that begin in its piece.
    """
    kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
    model = sentencepiece_model_pb2.ModelProto.FromString(contents)
    symbols = [piece for piece in model.pieces if piece.type == kinds.USER_DEFINED]
    del model.pieces[:]
    model.pieces.add(piece="<unk>", type=kinds.UNKNOWN)
    for byte in range(256):
        model.pieces.add(piece=f"<0x{byte:02X}>", type=kinds.BYTE)
    model.pieces.extend(symbols)  # normalisation does not change symbols
    trainer = sentencepiece_model_pb2.TrainerSpec
    settings = trainer(model_type=trainer.CHAR, byte_fallback=True)
    model.trainer_spec.CopyFrom(settings)
    counts = [int(byte not in tokenization.UTF8_CONTINUATION) for byte in range(256)]
    return model.SerializeToString(), [1, *counts, *(len(s.piece) for s in symbols)]


def rstrip(texts: tf.Tensor) -> tf.Tensor:
    """Computes `str.rstrip` of each text, string [N]."""
    spaces = "".join(filter(str.isspace, map(chr, _CODE_POINTS)))
    return tf.strings.regex_replace(texts, f"[{spaces}]+$", "")


# The functions `join` and `pad` do the same as `inputs.join` and `inputs.pad`.

# The values, starts and lengths of a part of each row, see `assemble`.
Part = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


def join(
    first: tf.RaggedTensor,
    second: tf.RaggedTensor | None,
    max_seq_length: int | tf.Tensor,
    cls_id: int,
    sep_id: int,
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Makes `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`, as `inputs.join` does.

    Args:
        first: int32 [B, None], the tokens of each first text.
        second: int32 [B, None], the tokens of each second text; None without pairs.
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
    is_pair = tf.cast(second_lengths > 0, tf.int64)
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


def make_id_part(id: int, count: tf.Tensor) -> Part:
    """Returns a part for `assemble` with one id in some rows.

    Args:
        id: the id.
        count: int64 [B], 1 for rows with the id, 0 for others.
    """
    return tf.constant([id]), tf.zeros_like(count), count


def assemble(parts: Sequence[Part]) -> tf.RaggedTensor:
    """Concatenates the parts of each row.

    A `tf.concat` of ragged tensors needs many more operations, such as assertions.

    Args:
        parts: for each part its values, int32 [N], and the start and the length of each
            row in the values, int64 [B] each.

    Returns:
        int32 [B, None].
    """
    sizes = [tf.size(values, tf.int64) for values, _, _ in parts]
    offsets = tf.unstack(tf.cumsum(sizes, exclusive=True), len(parts))
    starts = [
        start + offset for (_, start, _), offset in zip(parts, offsets, strict=True)
    ]
    length = tf.stack([length for _, _, length in parts], axis=1)  # [B, parts]
    begin = tf.reshape(tf.stack(starts, axis=1), [-1])
    positions = tf.ragged.range(begin, begin + tf.reshape(length, [-1])).values
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
    """Makes a batch, as `inputs.pad` does.

    Args:
        ids: int32 [B, None].
        first_lengths: int64 [B], numbers of tokens of segment 0.
        pad_id: the id of padding.
        length: T; None: the length of the longest input, or 1 without inputs.

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
    """Splits raw texts into words, see the module `words`.

    Args:
        texts: string [B], UTF-8.

    Returns:
        The words, string [B, None]; and the first character of each word and the
        character after the word, as indices in its text, int32 [B, None] each.
    """
    codes = tf.strings.unicode_decode(texts, "UTF-8")
    classes = tf.cast(_look_up(_word_class, codes.values), tf.int32)
    class_texts = tf.strings.regex_replace(
        tf.strings.unicode_encode(codes.with_values(classes), "UTF-8"),
        words_of_text.POSSESSIVE,
        words_of_text.MARKED_POSSESSIVE,
    )
    _, begins, ends = tf_text.regex_split_with_offsets(
        class_texts, f"{words_of_text.WORD}| +", words_of_text.WORD
    )
    begins, ends = tf.cast(begins, tf.int32), tf.cast(ends, tf.int32)
    start = tf.cast(tf.gather(codes.row_starts(), begins.value_rowids()), tf.int32)
    indices = tf.ragged.range(begins.values + start, ends.values + start)
    characters = indices.with_values(tf.gather(codes.values, indices.values))
    words = begins.with_values(tf.strings.unicode_encode(characters, "UTF-8"))
    return words, begins, ends


def _word_class(character: str) -> int:
    """Returns the code point of `words.classify_character`."""
    return ord(words_of_text.classify_character(character))
