"""Turns text into ids of a SentencePiece or WordPiece vocabulary, as released.

A piece is an entry of the vocabulary, and its id is its index there. A text becomes a
sequence of pieces, its tokens. Both tokenizers share one interface (`Tokenizer`):
pieces, ids, batches of ids, and the offsets of every piece in the *original* text.

Cleaning applies `CharacterMap`s, tables with a text for each character. `in_graph`
compiles these tables into TensorFlow, so that a graph gives the same ids.

This module does not import TensorFlow, so worker processes that use it start fast.
"""

import abc
import codecs
import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import sentencepiece

from albert_tf import errors
from albert_tf.data import files
from albert_tf.errors import InputError
from albert_tf.text import hf_files

WORD_MARK = "▁"  # SentencePiece writes the space before a word as this character
CONTINUATION = "##"  # WordPiece marks the pieces that do not begin a word
MAX_WORD_CHARS = 200  # longer words are unknown to WordPiece, as released

# The bytes of a UTF-8 character after its first byte.
UTF8_CONTINUATION = range(0x80, 0xC0)

# Punctuation marks that can be inside a word, as in "don't".
APOSTROPHES = ("'", "\u2019")

Span = tuple[int, int]
WordRule = Literal["word_mark", "released"]


class WordStarts(NamedTuple):
    """Marks which pieces begin a word; `Tokenizer.word_starts` has the rules.

    A call looks up the ids of pieces in three tables, one value for each of V ids.

    Attributes:
        begins_word: bool [V], whether a piece begins a word, whichever piece is before
            it.
        begins_after_end: bool [V], whether a piece begins a word after a piece that
            ends a word.
        ends_word: bool [V], whether a piece ends its word.
    """

    begins_word: np.ndarray
    begins_after_end: np.ndarray
    ends_word: np.ndarray

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        """Returns for each piece whether it begins a word.

        Args:
            ids: int [..., T], the ids of texts of T pieces each. The first piece of a
                text comes after no piece, so only `begins_word` applies to it.

        Returns:
            bool [..., T].
        """
        begins = self.begins_word[ids]
        follows_end = self.ends_word[ids[..., :-1]]
        begins[..., 1:] |= self.begins_after_end[ids[..., 1:]] & follows_end
        return begins


class CharacterMap(dict[int, str]):
    """A table for `str.translate`, filled by a function of one character.

    The table calls the function when a character is first used, and keeps the result.
    """

    def __init__(self, function: Callable[[str], str]):
        super().__init__()
        self.function = function

    def __missing__(self, code: int) -> str:
        self[code] = result = self.function(chr(code))
        return result


def _decompose_and_keep_marks(character: str) -> str:
    """Returns the decomposition (NFKD) of a character: "й" -> "и" and the breve."""
    if unicodedata.category(character) == "Cs":
        return "\ufffd"  # half of a surrogate pair, which UTF-8 cannot hold
    return unicodedata.normalize("NFKD", character)


def _decompose(character: str) -> str:
    """Returns the decomposition (NFKD) of a character without combining marks.

    Examples: "é" -> "e", "ﬁ" -> "fi", "각" -> three jamo.
    """
    decomposed = _decompose_and_keep_marks(character)
    return "".join(c for c in decomposed if not unicodedata.combining(c))


# Each of these characters is a word in WordPiece. As in BERT, kana are not among them.
_IDEOGRAPH = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df"
    "\U0002a700-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f]"
)


def _isolate_ideographs(character: str) -> str:
    """Computes the first stage of WordPiece's cleaning for a character.

    White space becomes " ", control characters are removed, and an ideograph gets
    spaces around it.
    """
    category = unicodedata.category(character)
    if character in "\t\n\r" or category == "Zs":
        return " "
    if character == "\ufffd" or category in ("Cc", "Cf", "Cs"):
        return ""
    return f" {character} " if _IDEOGRAPH.fullmatch(character) else character


def _isolate_punctuation(character: str) -> str:
    """Computes the last stage of WordPiece's cleaning if accents stay.

    A punctuation mark gets spaces around it.
    """
    # **As released:** every ASCII symbol is punctuation, such as "$" and "^".
    is_ascii_symbol = "!" <= character <= "~" and not character.isalnum()
    if is_ascii_symbol or unicodedata.category(character).startswith("P"):
        return f" {character} "
    return character


def _strip_accents_and_isolate_punctuation(character: str) -> str:
    """Computes the last stage of WordPiece's cleaning if accents are removed.

    A letter loses its accents, and a punctuation mark gets spaces around it.
    """
    decomposed = unicodedata.normalize("NFD", character)
    bare = (c for c in decomposed if unicodedata.category(c) != "Mn")
    return "".join(map(_isolate_punctuation, bare))


# The tables of `clean_text`, by the value of `keep_accents`.
DECOMPOSITIONS = {
    False: CharacterMap(_decompose),
    True: CharacterMap(_decompose_and_keep_marks),
}
ISOLATED_IDEOGRAPHS = CharacterMap(_isolate_ideographs)
ISOLATED_PUNCTUATION = CharacterMap(_isolate_punctuation)
UNACCENTED_ISOLATED_PUNCTUATION = CharacterMap(_strip_accents_and_isolate_punctuation)


def clean_text(
    text: str, do_lower_case: bool = True, keep_accents: bool = False
) -> str:
    """Cleans a text for SentencePiece.

    Runs of white space become one space, characters are decomposed (NFKD), and letters
    are lower-cased with `do_lower_case`.

    **As released:** combining marks are removed: "й" becomes "и", and Hindi loses
    virama and nukta. With `keep_accents` the marks stay, in Unicode's canonical order.
    SentencePiece then composes letters and marks again, by the normalisation rules in
    the model's file (by default NFKC). So a letter with a mark gives the same pieces
    whether the text has it as one character or as two. This holds in all versions of
    Python, because the rules in the file do not depend on Python's version of Unicode.
    """
    text = " ".join(text.split()).translate(DECOMPOSITIONS[keep_accents])
    if keep_accents:
        # Each character is already decomposed; NFD only sorts the marks.
        text = unicodedata.normalize("NFD", text)
    return text.lower() if do_lower_case else text


class Tokenizer(abc.ABC):
    """The interface of `SentencePieceTokenizer` and `WordPieceTokenizer`.

    Attributes:
        path: the vocabulary file.
        contents: the bytes of a `.model` or `vocab.txt` with this vocabulary.
        pieces: the vocabulary in the order of ids.
        file_name: the name of the vocabulary file in folders of models: the file's own
            name, or "spiece.model" or "vocab.txt" if it is a `tokenizer.json`.
        do_lower_case: whether text is lower-cased.
        keep_accents: whether combining marks stay, see `clean_text`.
        fingerprint: hexadecimal SHA-256 of `contents`, `do_lower_case` and
            `keep_accents`. Equal fingerprints mean equal ids.
    """

    _file_name: str  # the value of `file_name` for a `tokenizer.json`
    _pad_piece: str
    _unk_piece: str

    def __init__(
        self, path: str, contents: bytes, pieces: list[str], cleaning: dict[str, bool]
    ):
        self.path = str(path)
        self.contents = contents
        self.pieces = tuple(pieces)
        name = Path(path).name
        self.file_name = self._file_name if name.endswith(".json") else name
        self.do_lower_case = cleaning.get("do_lower_case", True)
        self.keep_accents = cleaning.get("keep_accents", False)
        self.fingerprint = digest(contents, self.do_lower_case, self.keep_accents)
        self._ids = {piece: id for id, piece in enumerate(pieces)}

    @abc.abstractmethod
    def clean(self, text: str) -> str:
        """Returns the cleaned text, which is then cut into pieces."""

    def tokenize(self, text: str) -> list[str]:
        """Returns the pieces of a text; an unknown word of WordPiece is [UNK]."""
        return [self.pieces[id] for id in self.encode(text)]

    @abc.abstractmethod
    def encode_batch(
        self, texts: Iterable[str], num_threads: int = 1
    ) -> list[list[int]]:
        """Returns the piece ids of each text; faster than `encode` for each text.

        Args:
            texts: any number of texts.
            num_threads: maximum number of threads.
        """

    def encode_batch_as_released(self, texts: Iterable[str]) -> list[list[int]]:
        """Returns ids from which `word_starts("released")` finds the starts of words.

        **As released:** the text of an unknown piece decides whether the piece begins a
        word. But all unknown pieces have the same id, and `word_starts` sees only ids.
        Therefore an unknown piece that begins no word gets the id of [MASK], which
        never begins a word. All other ids are the ids of `encode_batch`.
        """
        return self.encode_batch(texts)

    @abc.abstractmethod
    def _align(self, text: str, ids: list[int]) -> np.ndarray:
        """Finds the characters from which each of the N pieces of a text is made.

        Returns:
            int [N, 2], [begin, end) in the text; [-1, -1) for a piece without text.
        """

    @abc.abstractmethod
    def _find_text(self, id: int) -> str:
        """Returns a piece without word mark and "##"; "" for a piece without text."""

    @abc.abstractmethod
    def _begins_word(self, id: int, rule: WordRule) -> bool:
        """Whether a piece begins a word, whichever piece is before it."""

    @property
    def vocab_size(self) -> int:
        """Number of pieces, V."""
        return len(self.pieces)

    def id_to_piece(self, id: int) -> str:
        """Returns the piece with an id in [0, V)."""
        return self.pieces[id]

    def piece_to_id(self, piece: str) -> int:
        """Returns the id of a piece, or the unknown id if the vocabulary lacks it."""
        return self._ids.get(piece, self.unk_id)

    def encode(self, text: str) -> list[int]:
        """Returns the piece ids of a text."""
        return self.encode_batch([text])[0]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[Span]]:
        """Returns the ids and the offsets of the pieces of a text.

        Returns:
            ids: equal to `encode(text)`.
            offsets: for each id, [begin, end) in characters of the original text.
                Begins and ends never decrease. A piece begins and ends with a character
                that is not white space; a lone word mark is empty (begin == end). If
                one character gives several pieces ("ﬁ" -> "f", "i"), each piece spans
                the character. Characters that cleaning deletes belong to the piece
                before them in their word, or else to the piece after them. A word of
                only such characters has no piece.
        """
        return next(self.encode_batch_with_offsets([text]))

    def encode_batch_with_offsets(
        self, texts: Sequence[str]
    ) -> Iterator[tuple[list[int], list[Span]]]:
        """Yields `encode_with_offsets` of each text, in time linear in its length."""
        for text, ids in zip(texts, self.encode_batch(texts), strict=True):
            # The two columns of `_align` are the begins and the ends of the pieces.
            begins, ends = attach_deleted(_is_space(text), *self._align(text, ids).T)
            yield ids, list(zip(begins.tolist(), ends.tolist(), strict=True))

    def word_starts(self, rule: WordRule = "word_mark") -> WordStarts:
        """Returns a function that marks the pieces that begin a word.

        With the rule "word_mark", which fits any language, a piece begins a word in
        each of these cases:

        - SentencePiece: it begins with the word mark. WordPiece: it does not begin with
          "##". The other cases are about its text, without word mark and "##".
        - Its first character is a letter of a script written without spaces (Chinese,
          Japanese, Thai, Lao, Khmer, Burmese, Tibetan, ...). Otherwise a sentence would
          be one word. Combining signs and prolongation marks are no letters here: they
          continue the word before them.
        - All its characters are punctuation or symbols, as in "(". A single apostrophe
          is an exception, because it can be inside a word ("don't").
        - The piece before it ends with punctuation or a symbol ("word" in "(word)"), or
          with a letter or sign of a script written without spaces ("python" in
          "用python"). Here an apostrophe at the end is not punctuation. The exceptions
          are a piece that is a single apostrophe, and a piece that begins with a
          combining sign or a prolongation mark.

        Special pieces, `<unk>` and byte pieces belong to the word before them. But
        WordPiece's [UNK] begins a word, because it is a complete word.

        **As released:** with the rule "released", a SentencePiece piece begins a word
        if it begins with the word mark or "<", if it is a single punctuation mark, or
        if it contains a character other than English letters and some punctuation. A
        WordPiece piece begins a word unless it begins with "##".
        """
        ids = range(self.vocab_size)
        begins_word = np.array([self._begins_word(id, rule) for id in ids])
        after_end, ends_word = np.zeros((2, self.vocab_size), bool)
        if rule == "word_mark":
            for id in ids:
                if text := self._find_text(id):
                    after_end[id] = text not in APOSTROPHES and not _is_sign(text[0])
                    ends_word[id] = _is_spaceless(text[-1]) or _is_punctuation(text[-1])
        return WordStarts(begins_word, after_end, ends_word)

    @property
    def pad_id(self) -> int:
        """Id of the padding piece."""
        return self._find_special_id(self._pad_piece)

    @property
    def unk_id(self) -> int:
        """Id of the unknown piece."""
        return self._find_special_id(self._unk_piece)

    @property
    def cls_id(self) -> int:
        """Id of [CLS], the first piece of every input."""
        return self._find_special_id("[CLS]")

    @property
    def sep_id(self) -> int:
        """Id of [SEP], the last piece of every segment."""
        return self._find_special_id("[SEP]")

    @property
    def mask_id(self) -> int:
        """Id of [MASK]."""
        return self._find_special_id("[MASK]")

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids of the padding piece, the unknown piece, [CLS], [SEP] and [MASK].

        Ids of pieces that the vocabulary lacks are left out.
        """
        names = (self._pad_piece, self._unk_piece, "[CLS]", "[SEP]", "[MASK]")
        return frozenset(self._ids[name] for name in names if name in self._ids)

    def _find_special_id(self, piece: str) -> int:
        """Returns the id of a special piece, or raises InputError."""
        if piece not in self._ids:
            raise InputError(f"{self.path}: the vocabulary has no piece {piece!r}")
        return self._ids[piece]


class SentencePieceTokenizer(Tokenizer):
    """SentencePiece with the released cleaning and digit-comma rule.

    The digit-comma rule splits each piece that ends in a digit and a comma. The text
    before the comma is encoded separately, and the comma becomes a piece: "▁1997,"
    becomes "▁1997" and ",".

    **As released:** the text before the comma is encoded as the beginning of a word,
    even if the piece is from the middle of a word. So the pieces "▁a", "5," of the text
    "a5," become "▁a", "▁5", ",". If the vocabulary lacks the comma, the released code
    also splits an unknown piece that ends in a digit and a comma. This class does not.

    Attributes:
        comma_pieces: maps each piece that the digit-comma rule splits to its parts.
        comma_ids: maps the id of each split piece to the ids of its parts.
        byte_values: maps the id of each byte piece, such as "<0xE2>", to its byte.
    """

    _file_name = "spiece.model"

    def __init__(
        self,
        spm_model_file: str,
        do_lower_case: bool | None = None,
        keep_accents: bool | None = None,
    ):
        """Reads a model.

        Args:
            spm_model_file: a `.model` file of SentencePiece, of any model type, or a
                `tokenizer.json` of transformers with a unigram model.
            do_lower_case: whether to lower-case the text first. None for the setting in
                transformers' files in the same folder, or else in the model itself (see
                `add_cleaning`), or else true.
            keep_accents: whether to keep combining marks. None for the setting in
                transformers' files in the same folder, or else in the model itself, or
                else false.

        Raises:
            InputError: the file cannot be read, or is not a SentencePiece model.
        """
        contents = _read(spm_model_file, "Unigram")
        self._processor = processor = sentencepiece.SentencePieceProcessor()
        # A damaged file may contain pieces that are not UTF-8, and settings that are
        # not JSON.
        with errors.wrap_read(spm_model_file, "a SentencePiece model (a .model file)"):
            processor.load_from_serialized_proto(contents)
            pieces = [processor.id_to_piece(i) for i in range(len(processor))]
            cleaning = read_stored_cleaning(contents)
        # SentencePiece accepts a control piece and an ordinary piece of the same name.
        if len({*pieces}) < len(pieces) or processor.unk_id() < 0:
            raise InputError(
                f"{spm_model_file}: has a piece twice, or no unknown piece; expected a "
                f"model of SentencePiece's trainer"
            )
        flags = {"do_lower_case": do_lower_case, "keep_accents": keep_accents}
        cleaning |= hf_files.read_cleaning(spm_model_file, flags, is_wordpiece=False)
        super().__init__(spm_model_file, contents, pieces, cleaning)
        pad_id = processor.pad_id()
        self._pad_piece = pieces[pad_id] if pad_id >= 0 else "<pad>"
        self._unk_piece = pieces[processor.unk_id()]
        # `piece[-2:-1]` is "" for the piece ",".
        self.comma_pieces = {
            piece: [*processor.encode_as_pieces(piece[:-1].replace(WORD_MARK, "")), ","]
            for piece in pieces
            if piece.endswith(",") and piece[-2:-1].isdigit()
        }
        self.byte_values = {
            id: int(piece[3:5], 16)
            for id, piece in enumerate(pieces)
            if processor.is_byte(id)
        }
        # `_lengths` is the number of characters of each piece without its word mark. If
        # pieces are the bytes of a character, the first byte counts as one character,
        # and the other (inner) bytes as none. `_align` gives these pieces one span.
        self._is_inner_byte = np.zeros(len(pieces), bool)
        self._lengths = np.array([len(p.replace(WORD_MARK, "")) for p in pieces])
        for id, byte in self.byte_values.items():
            self._is_inner_byte[id] = byte in UTF8_CONTINUATION
            self._lengths[id] = not self._is_inner_byte[id]
        self.comma_ids = {
            self._ids[piece]: [self.piece_to_id(part) for part in parts]
            for piece, parts in self.comma_pieces.items()
        }

    def clean(self, text: str) -> str:
        """Returns `clean_text` with this tokenizer's settings."""
        return clean_text(text, self.do_lower_case, self.keep_accents)

    def tokenize(self, text: str) -> list[str]:
        """Returns the pieces of a text; an unknown piece has its text, not `<unk>`."""
        pieces = self._processor.encode_as_pieces(self.clean(text))
        return [part for p in pieces for part in self.comma_pieces.get(p, [p])]

    def encode_batch(
        self, texts: Iterable[str], num_threads: int = 1
    ) -> list[list[int]]:
        """Returns the piece ids of each text; see `Tokenizer.encode_batch`."""
        cleaned = [self.clean(text) for text in texts]
        parts = self.comma_ids
        return [
            # `isdisjoint` is faster than a copy, and few texts have a piece to split.
            ids
            if parts.keys().isdisjoint(ids)
            else [part for id in ids for part in parts.get(id, [id])]
            for ids in self._processor.encode(cleaned, num_threads=num_threads)
        ]

    def encode_batch_as_released(self, texts: Iterable[str]) -> list[list[int]]:
        """See `Tokenizer.encode_batch_as_released`."""
        texts = list(texts)
        encoded = self.encode_batch(texts)
        for text, ids in zip(texts, encoded, strict=True):
            if self.unk_id in ids:
                for i, piece in enumerate(self.tokenize(text)):
                    if ids[i] == self.unk_id and not _begins_word_as_released(piece):
                        ids[i] = self.mask_id
        return encoded

    def _align(self, text: str, ids: list[int]) -> np.ndarray:
        # `normal` is the cleaned text after the normalisation rules of the model.
        # `sources` has the index in the cleaned text of each character of `normal`, and
        # one item more for the end.
        normal, sources = self._processor.normalize(self.clean(text), with_offsets=True)
        # Only characters other than word marks are counted, because the digit-comma
        # rule adds word marks that are not in `normal`.
        is_text = np.array([character != WORD_MARK for character in normal], bool)
        origins = self._find_origins(text)[np.array(sources[:-1], int)[is_text]]
        id_array = np.array(ids, int)
        lengths = self._lengths[id_array]
        if self.unk_id in ids:  # an unknown piece is as long as its text
            pieces = self.tokenize(text)
            for i in np.flatnonzero(id_array == self.unk_id):
                lengths[i] = len(pieces[i].replace(WORD_MARK, ""))
        ends = lengths.cumsum()
        spans = np.full((len(ids), 2), -1)
        has_text = lengths > 0
        spans[has_text, 0] = origins[(ends - lengths)[has_text]]
        spans[has_text, 1] = origins[ends[has_text] - 1] + 1
        # An inner byte gets the span of the first byte of its character, which is the
        # last piece before it that is no inner byte.
        first_byte = np.where(self._is_inner_byte[id_array], 0, np.arange(len(ids)))
        return spans[np.maximum.accumulate(first_byte)]

    def _find_origins(self, text: str) -> np.ndarray:
        """Returns the index in `text` of the origin of each cleaned character."""
        is_text = ~_is_space(text)
        # Cleaning keeps the last space of each run, but no space before the first word.
        is_kept = is_text.copy()
        is_kept[:-1] |= is_text[1:]
        is_kept[: is_text.argmax() if len(text) else 0] = False
        # With `keep_accents`, `clean_text` also sorts the marks of a letter. Origins
        # are not sorted: they stay in the order of the text.
        single_spaced = " ".join(text.split())
        characters = DECOMPOSITIONS[self.keep_accents]
        return _translate(single_spaced, np.flatnonzero(is_kept), characters)[1]

    def _find_text(self, id: int) -> str:
        is_special = self._processor.is_control(id) or self._processor.is_unknown(id)
        if is_special or id in self.byte_values:
            return ""
        return self.pieces[id].strip(WORD_MARK)

    def _begins_word(self, id: int, rule: WordRule) -> bool:
        piece = self.pieces[id]
        if rule == "released":
            return _begins_word_as_released(piece)
        return piece.startswith(WORD_MARK) or _begins_word_without_mark(piece)


class WordPieceTokenizer(Tokenizer):
    """WordPiece as in BERT, which the released Chinese models use.

    Each ideograph and each punctuation mark is a word. Every other word is cut into
    pieces from its beginning on, always the longest piece of the vocabulary that fits.
    A word is unknown if at some point no piece fits, or if it has more than 200
    characters.

    **As released:** text is lower-cased first, and then decomposed (NFD) and stripped
    of accents. With `do_lower_case=False` or `keep_accents`, accents stay, and the text
    is neither decomposed nor composed, as in BERT. Spacing marks (category Mc) always
    stay. The released NFD sorts neighbouring spacing marks in canonical order. Here
    they stay in the order of the text, because each character is cleaned separately.
    """

    _file_name = "vocab.txt"
    _pad_piece = "[PAD]"
    _unk_piece = "[UNK]"

    def __init__(
        self,
        vocab_file: str,
        do_lower_case: bool | None = None,
        keep_accents: bool | None = None,
    ):
        """Reads a vocabulary.

        Args:
            vocab_file: UTF-8 text with one piece per line, whose first line has id 0. A
                piece ends at the first space of the line; empty lines at the end are
                ignored. Or a `tokenizer.json` of transformers with a WordPiece model.
            do_lower_case: whether to lower-case the text and to strip accents. None for
                the setting in transformers' files in the same folder, or else true.
            keep_accents: whether to keep accents in lower-cased text. None for the
                setting in transformers' files in the same folder, or else false.

        Raises:
            InputError: the file cannot be read, is not UTF-8, repeats a piece, or lacks
                [UNK]; or see `hf_files.read_cleaning`.
        """
        contents = _read(vocab_file, "WordPiece").removeprefix(codecs.BOM_UTF8)
        pieces = _parse_vocabulary(vocab_file, contents)
        flags = {"do_lower_case": do_lower_case, "keep_accents": keep_accents}
        cleaning = hf_files.read_cleaning(vocab_file, flags, is_wordpiece=True)
        super().__init__(vocab_file, contents, pieces, cleaning)
        self._find_special_id(self._unk_piece)  # raises InputError if it is missing
        self._longest = max(map(len, pieces))
        self._word_ids: dict[str, list[int]] = {}

    def clean(self, text: str) -> str:
        """Returns the cleaned words of a text, joined by spaces."""
        text = text.translate(ISOLATED_IDEOGRAPHS)
        text = text.lower() if self.do_lower_case else text
        return " ".join(text.translate(self.last_stage).split())

    @property
    def last_stage(self) -> CharacterMap:
        """The table of the last stage of cleaning, after lower-casing."""
        if self.do_lower_case and not self.keep_accents:
            return UNACCENTED_ISOLATED_PUNCTUATION
        return ISOLATED_PUNCTUATION

    def encode_batch(
        self, texts: Iterable[str], num_threads: int = 1
    ) -> list[list[int]]:
        """Returns the piece ids of each text; uses one thread, as it runs in Python."""
        return [
            [id for word in self.clean(text).split() for id in self._encode_word(word)]
            for text in texts
        ]

    def _encode_word(self, word: str) -> list[int]:
        """Returns the ids of a word, and caches them."""
        ids = self._word_ids.get(word)
        if ids is None:
            if len(self._word_ids) == _MAX_CACHED_WORDS:
                self._word_ids.clear()
            ids = self._word_ids[word] = self._match(word)
        return ids

    def _match(self, word: str) -> list[int]:
        """Returns the ids of a word's pieces, or only the unknown id; no cache."""
        if len(word) > MAX_WORD_CHARS:
            return [self.unk_id]
        ids = []
        begin, mark = 0, ""  # `mark` is "##" for all pieces but the first
        while begin < len(word):
            for end in range(min(len(word), begin + self._longest), begin, -1):
                id = self._ids.get(mark + word[begin:end])
                if id is not None:
                    break
            else:
                return [self.unk_id]
            ids.append(id)
            begin, mark = end, CONTINUATION
        return ids

    def _align(self, text: str, ids: list[int]) -> np.ndarray:
        words, origins = _translate(text, np.arange(len(text)), ISOLATED_IDEOGRAPHS)
        if self.do_lower_case:
            # Only the lower case of "İ" has two characters; both have its origin.
            origins = np.repeat(origins, [len(c.lower()) for c in words])
            words = words.lower()
        words, origins = _translate(words, origins, self.last_stage)
        spans: list[Span] = []
        for match in re.finditer(r"\S+", words):
            begin = match.start()
            for id in self._encode_word(match.group()):
                length = len(self.pieces[id].removeprefix(CONTINUATION))
                end = match.end() if id == self.unk_id else begin + length
                spans.append((origins[begin], origins[end - 1] + 1))
                begin = end
        return np.array(spans, int).reshape(-1, 2)

    def _find_text(self, id: int) -> str:
        if id in self.special_ids:
            return ""
        return self.pieces[id].removeprefix(CONTINUATION)

    def _begins_word(self, id: int, rule: WordRule) -> bool:
        if rule == "word_mark" and id in self.special_ids:
            return id == self.unk_id
        bare = self.pieces[id].removeprefix(CONTINUATION)
        if bare == self.pieces[id] or rule == "released":
            return bare == self.pieces[id]
        return bare != "" and _begins_word_without_mark(bare)


def digest(contents: bytes, do_lower_case: bool, keep_accents: bool) -> str:
    """Returns the fingerprint of a vocabulary and its cleaning, see `Tokenizer`."""
    cleaning = b"lower" if do_lower_case else b"cased"
    if keep_accents:
        cleaning += b"accents"
    return hashlib.sha256(contents + cleaning).hexdigest()


def load(
    spm_model_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
    keep_accents: bool | None = None,
) -> Tokenizer:
    """Opens a vocabulary file with the class of tokenizer that it needs.

    Args:
        spm_model_file: a SentencePiece model, see `SentencePieceTokenizer`.
        vocab_file: a `vocab.txt`, see `WordPieceTokenizer`; ignored if there is a
            `spm_model_file`. Either file may be a `tokenizer.json`, whose contents
            decide the class of the tokenizer.
        do_lower_case: whether to lower-case text. None for the setting that is stored
            with the vocabulary, or else true.
        keep_accents: whether to keep accents. None for the setting that is stored with
            the vocabulary, or else false.

    Raises:
        InputError: there is no file, or the file that is used is bad.
    """
    path = spm_model_file or vocab_file
    if not path:
        raise InputError("no vocabulary: expected --spm_model_file or --vocab_file")
    is_wordpiece = not spm_model_file
    if str(path).endswith(".json"):
        is_wordpiece = hf_files.detect_type(hf_files.read(path)) == "WordPiece"
    tokenizer_class = WordPieceTokenizer if is_wordpiece else SentencePieceTokenizer
    return tokenizer_class(path, do_lower_case, keep_accents)


# A SentencePiece model is a protocol buffer. `add_cleaning` appends a field, which
# SentencePiece and tensorflow_text ignore. The number of the field is 190911942, from
# the arXiv number of ALBERT (1909.11942); SentencePiece reserves numbers from 200 on
# for extensions.
# The tag, which begins the field, is 190911942 << 3 | 2, in 7 bits per byte.
_CLEANING_TAG = b"\xb2\xdc\xa2\xd8\x05"
# The whole field: the tag, one byte with the length of the rest, and a JSON object.
_CLEANING_FIELD = re.compile(re.escape(_CLEANING_TAG) + rb"[\x02-\x7f](\{[^{}]*\})")


def add_cleaning(model: bytes, do_lower_case: bool, keep_accents: bool) -> bytes:
    """Returns a SentencePiece model in which the settings of cleaning are stored.

    A tokenizer with this model uses the stored settings by default. The released
    settings (lower case, no accents) are not stored, because they are the default of
    every model.
    """
    if do_lower_case and not keep_accents:
        return model
    stored = {"do_lower_case": do_lower_case, "keep_accents": keep_accents}
    payload = json.dumps(stored).encode()
    return model + _CLEANING_TAG + bytes([len(payload)]) + payload


def read_stored_cleaning(model: bytes) -> dict[str, bool]:
    """Returns the settings that `add_cleaning` stored last, or an empty dict."""
    payloads = _CLEANING_FIELD.findall(model)
    stored = json.loads(payloads[-1]) if payloads else {}
    return {key: bool(value) for key, value in stored.items()}


# **As released:** the list lacks the apostrophe and the signs "<", "=" and ">".
_RELEASED_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~£€')
_MAX_CACHED_WORDS = 1 << 17  # bounds the memory of a WordPiece tokenizer
# The Unicode name of a letter begins with its script. These are the first words of the
# names in scripts written without spaces; "NEW" is from "NEW TAI LUE".
_SPACELESS_SCRIPTS = ["CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "BOPOMOFO", "THAI"]
_SPACELESS_SCRIPTS += ["LAO", "KHMER", "MYANMAR", "TIBETAN", "TAI", "NEW"]
_SPACELESS_SCRIPTS += ["JAVANESE", "BALINESE"]


def _begins_word_as_released(piece: str) -> bool:
    """Whether a SentencePiece piece begins a word in the released code."""
    if piece.startswith((WORD_MARK, "<")) or piece in _RELEASED_PUNCTUATION:
        return True
    english_characters = _RELEASED_PUNCTUATION | set("abcdefghijklmnopqrstuvwxyz")
    return not all(character.lower() in english_characters for character in piece)


def _begins_word_without_mark(text: str) -> bool:
    """Whether the text of a piece begins a word even without a word mark.

    Such a text begins with a letter of a script written without spaces, or has only
    punctuation and symbols.
    """
    return (_is_spaceless(text[0]) and not _is_sign(text[0])) or _is_punctuation(text)


def _is_punctuation(text: str) -> bool:
    """Whether a text has only punctuation and symbols, and is not an apostrophe."""
    kinds = {unicodedata.category(character)[0] for character in text}
    return kinds <= {"P", "S"} and text not in APOSTROPHES


def _is_spaceless(character: str) -> bool:
    """Whether a character is a letter or sign of a script written without spaces."""
    script = unicodedata.name(character, "").replace("-", " ").split(" ")[0]
    return script in _SPACELESS_SCRIPTS and unicodedata.category(character)[0] in "LM"


def _is_sign(character: str) -> bool:
    """Whether a character is a combining sign or prolongs the letter before it."""
    return unicodedata.category(character) in ("Mn", "Mc", "Me", "Lm")


def _translate(
    text: str, origins: np.ndarray, characters: CharacterMap
) -> tuple[str, np.ndarray]:
    """Returns `text.translate(characters)`, and the origin of each new character.

    An origin is the index of a character in the text before cleaning.

    Args:
        text: any text of N characters.
        origins: int [N], the origin of each character of `text`.
        characters: the table of new texts for characters.
    """
    translated = text.translate(characters)
    if translated == text:
        return text, origins
    return translated, np.repeat(origins, [len(characters[ord(c)]) for c in text])


def _is_space(text: str) -> np.ndarray:
    """Returns for each character whether it is white space, bool [C]."""
    return np.array([character.isspace() for character in text], bool)


def attach_deleted(
    is_space: Any, begins: Any, ends: Any, xp: Any = np
) -> tuple[Any, Any]:
    """Extends the spans of pieces over the characters that cleaning deleted.

    A piece without text, such as a lone word mark, also gets a span.

    Args:
        is_space: bool [C], whether each character of the original text is white space.
        begins: int [N], the index of the first character of each piece; -1 for a piece
            without text.
        ends: int [N], the index after the last character; -1 for a piece without text.
        xp: `numpy`, or `tensorflow.experimental.numpy` if the arguments are tensors.

    Returns:
        The new begins and ends, int [N] each, see `Tokenizer.encode_with_offsets`.
    """
    size = xp.size(is_space)
    # The indices of all spaces. The end of the text counts as a space.
    spaces = xp.append(xp.nonzero(is_space)[0], size)
    # The number of spaces before each character. So the first space at or after
    # character i is spaces[spaces_before[i]].
    spaces_before = xp.append(0, xp.cumsum(xp.where(is_space, 1, 0)))
    has_text = begins >= 0
    # The spans of the pieces with text.
    begin, end = begins[has_text], ends[has_text]
    # A piece extends to the next piece in its word, or else to the end of the word. The
    # end of the text counts as the piece after the last piece.
    word_end = xp.take(spaces, xp.take(spaces_before, end))
    end = xp.maximum(end, xp.minimum(word_end, xp.append(begin[1:], size)))
    # Item i is the end of the piece before piece i, or 0 for the first piece. The last
    # item is no end: `rank + 1` below can be its index, but then its value is not used.
    ends_before = xp.append(xp.append(0, end), size)
    # The first piece of a word extends back to the first character of the word. Other
    # pieces already begin where the piece before them ends.
    word_begins = xp.append(0, spaces + 1)
    word_begin = xp.take(word_begins, xp.take(spaces_before, begin))
    begin = xp.minimum(begin, xp.maximum(word_begin, ends_before[:-2]))
    # A piece without text gets an empty span at the beginning of the next piece with
    # text. But one character can give several words, such as "ﷺ". A word mark between
    # these words gets the span of the character, as the pieces of the words do.
    # `rank` is the number of pieces with text before each piece.
    count = xp.where(has_text, 1, 0)
    rank = xp.cumsum(count) - count
    begin = xp.take(xp.append(begin, size), rank)
    empty_end = xp.maximum(begin, xp.take(ends_before, rank))
    return begin, xp.where(has_text, xp.take(ends_before, rank + 1), empty_end)


def _read(path: str, model_type: hf_files.ModelType) -> bytes:
    """Reads a vocabulary file; turns a `tokenizer.json` into a model or `vocab.txt`."""
    if str(path).endswith(".json"):
        return hf_files.read_vocabulary(path, model_type)
    with errors.wrap_read(path, "a vocabulary"):
        return Path(path).read_bytes()


def _parse_vocabulary(path: str, contents: bytes) -> list[str]:
    """Returns the pieces of a WordPiece vocabulary file, one for each line."""
    lines = files.to_utf8(contents, path).decode().rstrip("\r\n").split("\n")
    rows: dict[str, int] = {}  # the number of the line of each piece
    for row, line in enumerate(lines, start=1):
        # An empty line has an id too. Its piece is " ", which matches no word.
        piece = (line.split() or [" "])[0]
        if piece in rows:
            raise InputError(
                f"{path}:{row}: repeats the piece {piece!r} of line {rows[piece]}"
            )
        rows[piece] = row
    return list(rows)
