"""Turns text into ids of a SentencePiece or WordPiece vocabulary, as released.

Both tokenizers share one interface (`Tokenizer`): pieces, ids, batches of ids, and the
offsets of every piece in the *original* text. Cleaning consists of `CharacterMap`s.
`in_graph` compiles them into TensorFlow, so that a graph gives the same ids.

The module does not import TensorFlow, because worker processes use it.
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

UTF8_CONTINUATION = range(0x80, 0xC0)

# Characters that are punctuation but can be inside a word, as in "don't".
APOSTROPHES = ("'", "\u2019")

Span = tuple[int, int]
WordRule = Literal["word_mark", "released"]


class WordStarts(NamedTuple):
    """Finds the first pieces of words in piece ids; see `Tokenizer.word_starts`.

    Attributes:
        begins_word: bool [V], whether a piece begins a word after any other piece.
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
            ids: int [..., T]; there is no piece before the first of a row.

        Returns:
            bool [..., T].
        """
        begins = self.begins_word[ids]
        follows_end = self.ends_word[ids[..., :-1]]
        begins[..., 1:] |= self.begins_after_end[ids[..., 1:]] & follows_end
        return begins


class CharacterMap(dict[int, str]):
    """A table for `str.translate`; its function is called once for each character."""

    def __init__(self, function: Callable[[str], str]):
        super().__init__()
        self.function = function

    def __missing__(self, code: int) -> str:
        self[code] = result = self.function(chr(code))
        return result


def _decompose_and_keep_marks(character: str) -> str:
    """Returns the NFKD of a character: "й" -> "и" and the breve."""
    if unicodedata.category(character) == "Cs":
        return "\ufffd"  # half of a surrogate pair, which UTF-8 cannot hold
    return unicodedata.normalize("NFKD", character)


def _decompose(character: str) -> str:
    """Returns the NFKD without combining marks.

    Examples: "é" -> "e", "ﬁ" -> "fi", "각" -> three jamo.
    """
    decomposed = _decompose_and_keep_marks(character)
    return "".join(c for c in decomposed if not unicodedata.combining(c))


# Characters that are words in WordPiece. As in BERT, kana are not such characters.
_IDEOGRAPH = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df"
    "\U0002a700-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f]"
)


def _isolate_ideographs(character: str) -> str:
    """The first stage of cleaning for WordPiece.

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
    """The last stage of cleaning for WordPiece: punctuation gets spaces around it."""
    # **As released:** every ASCII symbol is punctuation, such as "$" and "^".
    is_ascii_symbol = "!" <= character <= "~" and not character.isalnum()
    if is_ascii_symbol or unicodedata.category(character).startswith("P"):
        return f" {character} "
    return character


def _strip_accents_and_isolate_punctuation(character: str) -> str:
    """The last stage of cleaning for WordPiece without accents."""
    decomposed = unicodedata.normalize("NFD", character)
    bare = (c for c in decomposed if unicodedata.category(c) != "Mn")
    return "".join(map(_isolate_punctuation, bare))


# The key is `keep_accents`.
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
    """Returns the input of SentencePiece.

    Runs of white space become one space, characters are decomposed (NFKD), and letters
    are lower-cased with `do_lower_case`.

    **As released:** combining marks are removed: "й" becomes "и", and Hindi loses
    virama and nukta. With `keep_accents` the marks stay, in canonical order. The
    model's own rules (by default NFKC) then compose letters and marks again. So the
    pieces depend neither on the composition of the text nor on the version of Unicode.
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
        file_name: the name of a copy of the vocabulary file.
        do_lower_case: whether text is lower-cased.
        keep_accents: whether combining marks stay, see `clean_text`.
        fingerprint: hexadecimal SHA-256 of the vocabulary file, the casing and
            `keep_accents`. Equal fingerprints mean equal ids.
    """

    _file_name: str  # the name of the vocabulary file in folders of transformers
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
        """Returns the ids to which `word_starts("released")` applies.

        They are the ids of `encode_batch`, except some of the unknown pieces.

        **As released:** the text of an unknown piece decides whether the piece begins a
        word. If not, the piece gets the id of [MASK], which never begins a word.
        """
        return self.encode_batch(texts)

    @abc.abstractmethod
    def _align(self, text: str, ids: list[int]) -> np.ndarray:
        """Finds the characters from which each of the N pieces of a text is made.

        Returns:
            int [N, 2], [begin, end) in the text; [-1, -1) for a piece without text.
        """

    @abc.abstractmethod
    def _piece_text(self, id: int) -> str:
        """Returns a piece without word mark and "##"; "" for a piece without text."""

    @abc.abstractmethod
    def _begins_word(self, id: int, rule: WordRule) -> bool:
        """Whether a piece always begins a word, after any other piece."""

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
            spans = attach_deleted(_is_space(text), *self._align(text, ids).T)
            yield ids, list(zip(*(each.tolist() for each in spans), strict=True))

    def word_starts(self, rule: WordRule = "word_mark") -> WordStarts:
        """Returns the function that marks the first pieces of words.

        With the rule "word_mark", these pieces begin a word in any language:

        - SentencePiece: pieces with the word mark. WordPiece: pieces without "##".
        - Pieces that begin with a letter of a script written without spaces (Chinese,
          Japanese, Thai, Lao, Khmer, Burmese, Tibetan, ...): otherwise a sentence would
          be one word. But a piece that begins with a combining sign or a prolongation
          mark continues the word before it.
        - Pieces of only punctuation or symbols, but not an apostrophe, which can be
          inside a word ("don't").
        - Any other piece directly after punctuation or such a letter: the "word" of
          "(word)", the "python" of "用python". Apostrophes and pieces that begin with a
          sign are excepted.

        Special pieces, `<unk>` and byte pieces belong to the word before them. But
        WordPiece's [UNK] begins a word, because it is a complete word.

        **As released:** with the rule "released", every SentencePiece piece begins a
        word, except pieces without the word mark that contain only English letters and
        some punctuation. So a piece with any other letter begins a word.
        """
        ids = range(self.vocab_size)
        begins_word = np.array([self._begins_word(id, rule) for id in ids])
        after_end, ends_word = np.zeros((2, self.vocab_size), bool)
        if rule == "word_mark":
            for id in ids:
                if text := self._piece_text(id):
                    after_end[id] = text not in APOSTROPHES and not _is_sign(text[0])
                    ends_word[id] = _is_spaceless(text[-1]) or _is_isolated(text[-1])
        return WordStarts(begins_word, after_end, ends_word)

    @property
    def pad_id(self) -> int:
        """Id of the padding piece."""
        return self._special_id(self._pad_piece)

    @property
    def unk_id(self) -> int:
        """Id of the unknown piece."""
        return self._special_id(self._unk_piece)

    @property
    def cls_id(self) -> int:
        """Id of [CLS], the first piece of every input."""
        return self._special_id("[CLS]")

    @property
    def sep_id(self) -> int:
        """Id of [SEP], the last piece of every segment."""
        return self._special_id("[SEP]")

    @property
    def mask_id(self) -> int:
        """Id of [MASK]."""
        return self._special_id("[MASK]")

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids of the special pieces of the vocabulary, at most five."""
        names = (self._pad_piece, self._unk_piece, "[CLS]", "[SEP]", "[MASK]")
        return frozenset(self._ids[name] for name in names if name in self._ids)

    def _special_id(self, piece: str) -> int:
        """Returns the id of a special piece, or raises InputError."""
        if piece not in self._ids:
            raise InputError(f"{self.path}: the vocabulary has no piece {piece!r}")
        return self._ids[piece]


class SentencePieceTokenizer(Tokenizer):
    """SentencePiece with the released cleaning and digit-comma rule.

    A piece that ends in a digit and a comma is split: its text before the comma is
    encoded separately, and the comma becomes a piece ("▁1997," -> "▁1997", ",").

    **As released:** the text before the comma is encoded as a new word, so a piece from
    the middle of a word gets a word mark ("a5," -> "▁a", "▁5", ","). The
    released code also splits runs of unknown characters. Here only pieces of the
    vocabulary are split; the ids differ only for a vocabulary without a comma.

    Attributes:
        comma_pieces: the parts of each piece that the digit-comma rule splits.
        comma_ids: the ids of the parts, for each id of a split piece.
        byte_values: the byte of each id that is a byte of UTF-8.
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
            do_lower_case: whether to lower-case the text first. None for the setting of
                transformers' files in the folder of the model, or else of the model
                (see `add_cleaning`), or else true.
            keep_accents: whether to keep combining marks. None for the stored setting
                as for `do_lower_case`, or else false.

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
        # SentencePiece accepts a control piece and an ordinary one of the same name.
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
        # Number of characters of each piece. Of the bytes of a character, the first
        # counts as one character; the other bytes count 0, and get the same span.
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
        """Returns the pieces of a text; an unknown piece is given as its text."""
        pieces = self._processor.encode_as_pieces(self.clean(text))
        return [part for p in pieces for part in self.comma_pieces.get(p, [p])]

    def encode_batch(
        self, texts: Iterable[str], num_threads: int = 1
    ) -> list[list[int]]:
        """Returns the piece ids of each text; see `Tokenizer.encode_batch`."""
        cleaned = [self.clean(text) for text in texts]
        parts = self.comma_ids
        return [
            # Few texts contain a piece to split, and the test is faster than a copy.
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
        # The text after cleaning and the model's own rules, and for each character the
        # index of its source in the cleaned text.
        normal, sources = self._processor.normalize(self.clean(text), with_offsets=True)
        # Word marks are not counted, because the digit-comma rule adds marks that
        # `normal` lacks.
        is_text = np.array([character != WORD_MARK for character in normal], bool)
        origins = self._clean_origins(text)[np.array(sources[:-1], int)[is_text]]
        row = np.array(ids, int)
        lengths = self._lengths[row]
        if self.unk_id in ids:
            pieces = self.tokenize(text)
            for i in np.flatnonzero(row == self.unk_id):
                lengths[i] = len(pieces[i].replace(WORD_MARK, ""))
        ends = lengths.cumsum()
        spans = np.full((len(ids), 2), -1)
        has_text = lengths > 0
        spans[has_text, 0] = origins[(ends - lengths)[has_text]]
        spans[has_text, 1] = origins[ends[has_text] - 1] + 1
        # An inner byte has the span of the last piece before it that is no inner byte.
        first_byte = np.where(self._is_inner_byte[row], 0, np.arange(len(ids)))
        return spans[np.maximum.accumulate(first_byte)]

    def _clean_origins(self, text: str) -> np.ndarray:
        """Returns the index in the text of each character of the cleaned text."""
        is_text = ~_is_space(text)
        # The last space of a run is kept, except the spaces before the first word.
        is_kept = is_text.copy()
        is_kept[:-1] |= is_text[1:]
        is_kept[: is_text.argmax() if len(text) else 0] = False
        # Canonical order moves some marks; their origins are not moved.
        single_spaced = " ".join(text.split())
        characters = DECOMPOSITIONS[self.keep_accents]
        return _translate(single_spaced, np.flatnonzero(is_kept), characters)[1]

    def _piece_text(self, id: int) -> str:
        is_special = self._processor.is_control(id) or self._processor.is_unknown(id)
        if is_special or id in self.byte_values:
            return ""
        return self.pieces[id].strip(WORD_MARK)

    def _begins_word(self, id: int, rule: WordRule) -> bool:
        piece = self.pieces[id]
        if rule == "released":
            return _begins_word_as_released(piece)
        return piece.startswith(WORD_MARK) or _is_isolated(piece)


class WordPieceTokenizer(Tokenizer):
    """WordPiece as in BERT, which the released Chinese models use.

    Ideographs and punctuation marks are words. Every other word is cut into the longest
    pieces of the vocabulary from its beginning on. A word is unknown if no piece fits,
    or if the word has more than 200 characters.

    **As released:** text is lower-cased first, and then decomposed (NFD). With
    `do_lower_case=False` or `keep_accents`, accents stay and the text is not decomposed
    or composed, as in BERT. The released code puts two different spacing marks with a
    combining class in canonical order; here they stay in the order of the text.
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
                the setting of transformers' files in the same folder, or else true.
            keep_accents: whether to keep accents in lower-cased text. None for the
                setting of transformers' files, or else false.

        Raises:
            InputError: the file cannot be read, is not UTF-8, repeats a piece, or lacks
                [UNK]; or see `hf_files.read_cleaning`.
        """
        contents = _read(vocab_file, "WordPiece").removeprefix(codecs.BOM_UTF8)
        pieces = _parse_vocabulary(vocab_file, contents)
        flags = {"do_lower_case": do_lower_case, "keep_accents": keep_accents}
        cleaning = hf_files.read_cleaning(vocab_file, flags, is_wordpiece=True)
        super().__init__(vocab_file, contents, pieces, cleaning)
        self._special_id(self._unk_piece)  # raises InputError if it is missing
        self._longest = max(map(len, pieces))
        self._word_ids: dict[str, list[int]] = {}

    def clean(self, text: str) -> str:
        """Returns the words, joined by spaces."""
        text = text.translate(ISOLATED_IDEOGRAPHS)
        text = text.lower() if self.do_lower_case else text
        return " ".join(text.translate(self.last_stage).split())

    @property
    def last_stage(self) -> CharacterMap:
        """The last stage of cleaning, after lower-casing."""
        if self.do_lower_case and not self.keep_accents:
            return UNACCENTED_ISOLATED_PUNCTUATION
        return ISOLATED_PUNCTUATION

    def encode_batch(
        self, texts: Iterable[str], num_threads: int = 1
    ) -> list[list[int]]:
        """Returns the piece ids of each text; Python code, so on one thread."""
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
        """Returns the ids of the longest pieces of a word, or the unknown id."""
        if len(word) > MAX_WORD_CHARS:
            return [self.unk_id]
        ids = []
        begin, mark = 0, ""
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
            # The lower-case form of "İ" has two characters.
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

    def _piece_text(self, id: int) -> str:
        if id in self.special_ids:
            return ""
        return self.pieces[id].removeprefix(CONTINUATION)

    def _begins_word(self, id: int, rule: WordRule) -> bool:
        if rule == "word_mark" and id in self.special_ids:
            return id == self.unk_id
        bare = self.pieces[id].removeprefix(CONTINUATION)
        is_bare = bare == self.pieces[id]
        return is_bare or (rule == "word_mark" and bare != "" and _is_isolated(bare))


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
    """Returns the tokenizer of a vocabulary; of two files, `spm_model_file` is used.

    Args:
        spm_model_file: see `SentencePieceTokenizer`.
        vocab_file: see `WordPieceTokenizer`. Either file may be a `tokenizer.json`; the
            model in it decides the class of the tokenizer.
        do_lower_case: see the classes; None for the stored setting, or else true.
        keep_accents: see the classes; None for the stored setting, or else false.

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


# The tag of a field at the end of the model, which SentencePiece and tensorflow_text
# ignore. The field's number is the paper's arXiv number, in the range for extensions.
_CLEANING_TAG = b"\xb2\xdc\xa2\xd8\x05"  # 190911942 << 3 | 2, in 7 bits per byte
# The whole field: the tag, one byte with the length, and a JSON object.
_CLEANING_FIELD = re.compile(re.escape(_CLEANING_TAG) + rb"[\x02-\x7f](\{[^{}]*\})")


def add_cleaning(model: bytes, do_lower_case: bool, keep_accents: bool) -> bytes:
    """Stores the settings of cleaning in a SentencePiece model, and returns the model.

    A tokenizer with this model uses these settings by default. The model stays
    unchanged if the settings are the released ones.
    """
    if do_lower_case and not keep_accents:
        return model
    stored = {"do_lower_case": do_lower_case, "keep_accents": keep_accents}
    payload = json.dumps(stored).encode()
    return model + _CLEANING_TAG + bytes([len(payload)]) + payload


def read_stored_cleaning(model: bytes) -> dict[str, bool]:
    """Returns the settings that `add_cleaning` stored, or an empty dict."""
    payloads = _CLEANING_FIELD.findall(model)
    stored = json.loads(payloads[-1]) if payloads else {}
    return {key: bool(value) for key, value in stored.items()}


# **As released:** the list lacks the apostrophe and "<=>". Any piece that begins with
# "<" begins a word.
_RELEASED_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~£€')
_MAX_CACHED_WORDS = 1 << 17  # bounds the memory of a WordPiece tokenizer
# First words of the Unicode names of letters in scripts written without spaces. "NEW"
# is the first word of "NEW TAI LUE".
_SPACELESS_SCRIPTS = (
    *("CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "BOPOMOFO", "THAI", "LAO"),
    *("KHMER", "MYANMAR", "TIBETAN", "TAI", "NEW", "JAVANESE", "BALINESE"),
)


def _begins_word_as_released(piece: str) -> bool:
    """Whether a SentencePiece piece begins a word in the released code."""
    if piece.startswith((WORD_MARK, "<")) or piece in _RELEASED_PUNCTUATION:
        return True
    english_characters = _RELEASED_PUNCTUATION | set("abcdefghijklmnopqrstuvwxyz")
    return not all(character.lower() in english_characters for character in piece)


def _is_isolated(piece: str) -> bool:
    """Whether a piece begins a word even without a word mark.

    It begins with a letter of a script without spaces, or has only punctuation.
    """
    if _is_spaceless(piece[0]) and not _is_sign(piece[0]):
        return True
    return piece not in APOSTROPHES and all(
        unicodedata.category(c)[0] in "PS" for c in piece
    )


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

    Args:
        text: any text of N characters.
        origins: int [N], the origin of each character of the text.
        characters: the table.
    """
    translated = text.translate(characters)
    if translated == text:
        return text, origins
    return translated, np.repeat(origins, [len(characters[ord(c)]) for c in text])


def _is_space(text: str) -> np.ndarray:
    """Returns `str.isspace` of each character, bool [characters]."""
    return np.array([character.isspace() for character in text], bool)


def attach_deleted(
    is_space: Any, begins: Any, ends: Any, xp: Any = np
) -> tuple[Any, Any]:
    """Extends spans over deleted characters, and gives a span to pieces without text.

    Args:
        is_space: bool [C], whether each character of the original text is white space.
        begins: int [N], the first character of each piece; -1 for a piece without text.
        ends: int [N], the character after each piece; -1 for a piece without text.
        xp: `numpy`, or `tensorflow.experimental.numpy` if the arguments are tensors.

    Returns:
        The new begins and ends, int [N] each, see `Tokenizer.encode_with_offsets`.
    """
    size = xp.size(is_space)
    # The end of the text counts as a space, and as a piece.
    spaces = xp.append(xp.nonzero(is_space)[0], size)
    # The number of spaces before each character is the index of the next space.
    next_space = xp.append(0, xp.cumsum(xp.where(is_space, 1, 0)))
    has_text = begins >= 0
    begin, end = begins[has_text], ends[has_text]
    # A piece extends to the end of its word, or to the next piece in it.
    word_end = xp.take(spaces, xp.take(next_space, end))
    end = xp.maximum(end, xp.minimum(word_end, xp.append(begin[1:], size)))
    # Item i is the end of the piece before piece i.
    ends_before = xp.append(xp.append(0, end), size)
    # A piece extends to the first character of its word, or to the piece before it.
    word_begins = xp.append(0, spaces + 1)
    word_begin = xp.take(word_begins, xp.take(next_space, begin))
    begin = xp.minimum(begin, xp.maximum(word_begin, ends_before[:-2]))
    # A piece without text is at the beginning of the next piece with text. A word mark
    # between two pieces of one character ("ﷺ") spans the character.
    # `rank` is the number of pieces with text before each piece.
    count = xp.where(has_text, 1, 0)
    rank = xp.cumsum(count) - count
    begin = xp.take(xp.append(begin, size), rank)
    empty_end = xp.maximum(begin, xp.take(ends_before, rank))
    return begin, xp.where(has_text, xp.take(ends_before, rank + 1), empty_end)


def _read(path: str, model_type: hf_files.ModelType) -> bytes:
    """Returns the contents of a vocabulary file; converts a `tokenizer.json`."""
    if str(path).endswith(".json"):
        return hf_files.read_vocabulary(path, model_type)
    with errors.wrap_read(path, "a vocabulary"):
        return Path(path).read_bytes()


def _parse_vocabulary(path: str, contents: bytes) -> list[str]:
    """Returns the pieces of a WordPiece vocabulary in the order of lines."""
    lines = files.to_utf8(contents, path).decode().rstrip("\r\n").split("\n")
    numbers: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        # An empty line is the piece " ", which no word contains.
        piece = (line.split() or [" "])[0]
        if piece in numbers:
            raise InputError(
                f"{path}:{number}: repeats the piece {piece!r} of line {numbers[piece]}"
            )
        numbers[piece] = number
    return list(numbers)
