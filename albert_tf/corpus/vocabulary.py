"""Trains a SentencePiece vocabulary with the released settings, for any language."""

import dataclasses
import io
import itertools
import os
import random
import re
import sys
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import sentencepiece
from tqdm import tqdm

from albert_tf import flags
from albert_tf.corpus import documents
from albert_tf.corpus.manifest import MOST_UNKNOWN
from albert_tf.data.files import atomic
from albert_tf.errors import InputError
from albert_tf.text.tokenization import (
    SentencePieceTokenizer,
    clean_text,
    with_cleaning,
)

CONTROL_SYMBOLS = ("[CLS]", "[SEP]", "[MASK]")
_MEASURED_LINES = 10_000
_SPELLED_LINES = 5_000
# In English they are names; a language that writes marks has far more.
_MOST_CHANGED = 0.02
_SHOWN = 3
_AROUND = ".,;:!?\"'()[]«»„“”"
# SentencePiece skips lines of more than 4,192 bytes, and a character has at most four.
_MAX_LINE_CHARS = 1_000
# Characters that SentencePiece keeps for itself: it skips lines that hold them.
_RESERVED = str.maketrans("▅\0", "  ")


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularySettings(flags.Settings):
    """How to train a vocabulary.

    **As released:** ids are <pad> 0, <unk> 1, [CLS] 2, [SEP] 3, [MASK] 4, then the
    user-defined symbols; the model type is unigram, over NFKC text.

    Raises:
        InputError: a value is out of range, or a symbol can never occur in text.
    """

    input_file: tuple[str, ...] = flags.field(
        "Text files or globs, UTF-8, one sentence or paragraph a line, or JSON lines; "
        "may be gzip."
    )
    model_prefix: str = flags.field(
        "Where to write: <model_prefix>.model and <model_prefix>.vocab."
    )
    vocab_size: int = flags.field(
        "Number of pieces, special ones included.", 30_000, at_least=1
    )
    do_lower_case: bool = flags.field(
        "Lower-case the text, wherever the vocabulary is used.", True
    )
    keep_accents: bool = flags.field(
        "Keep combining marks (the breve of й, the virama of Hindi, the tones of "
        "Vietnamese), wherever the vocabulary is used; the release drops them.",
        False,
    )
    character_coverage: float = flags.field(
        "Share of the text's characters, in (0, 1], that get a piece of their own.",
        0.99995,
        above=0,
        at_most=1,
    )
    input_sentence_size: int = flags.field(
        "Train on a random sample of so many lines; 0 trains on all.", 10_000_000
    )
    user_defined_symbols: tuple[str, ...] = flags.field(
        "Strings that are always a piece by themselves.", tuple('()"-.\N{EN DASH}£€')
    )
    byte_fallback: bool = flags.field(
        "Write unknown characters as their UTF-8 bytes, which takes 256 pieces.", False
    )

    replace_invalid_utf8: bool = flags.field(
        "Put U+FFFD in the place of bytes that are not UTF-8, instead of stopping.",
        False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if os.path.basename(self.model_prefix) in ("", ".", ".."):
            raise InputError(
                f"--model_prefix={self.model_prefix}: expected how the files' names "
                f"begin, such as {os.path.join(self.model_prefix, '30k')}, not a folder"
            )
        if self.input_sentence_size != 0 and self.input_sentence_size <= 100:
            raise InputError(
                f"--input_sentence_size={self.input_sentence_size}: expected more than "
                f"100, or 0 for all lines"
            )
        seen = {"<pad>", "<unk>", *CONTROL_SYMBOLS}
        for symbol in self.user_defined_symbols:
            if symbol in seen:
                raise InputError(
                    f"--user_defined_symbols: {symbol!r} is given twice or is special"
                )
            seen.add(symbol)
            cleaned = clean_text(symbol, self.do_lower_case, self.keep_accents)
            if not symbol or cleaned != symbol:
                raise InputError(
                    f"--user_defined_symbols: {symbol!r} never occurs in text that the "
                    f"tokenizer has cleaned; expected {cleaned!r}"
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """What a vocabulary does to a sample of at most 10,000 lines of its text.

    Attributes:
        vocab_size: number of pieces, V.
        lines: number of lines that were read.
        known_characters: share of the characters that are not unknown, in [0, 1].
        unknown_tokens: share of the tokens that are unknown, in [0, 1].
        tokens_per_word: tokens for each run of characters between spaces.
        characters_per_token: characters, without spaces, for each token.
    """

    vocab_size: int
    lines: int
    known_characters: float
    unknown_tokens: float
    tokens_per_word: float
    characters_per_token: float

    def __str__(self) -> str:
        return (
            f"{self.vocab_size:,} pieces from {self.lines:,} lines; "
            f"{self.known_characters:.4%} of characters known; "
            f"{self.tokens_per_word:.3f} tokens per word, "
            f"{self.characters_per_token:.3f} characters per token"
        )

    def warning(self) -> str | None:
        """Returns a warning if more than 1 % of the tokens are unknown."""
        if self.unknown_tokens <= MOST_UNKNOWN:
            return None
        return (
            f"{self.unknown_tokens:.1%} of the tokens are unknown; expected a "
            f"--character_coverage nearer to 1, a larger --vocab_size or "
            f"--byte_fallback"
        )


def train_files(settings: VocabularySettings) -> Summary:
    """Trains on the files that the settings name; see `train`.

    Raises:
        InputError: as `train`, or a file is missing, damaged or not UTF-8.
    """
    errors = "replace" if settings.replace_invalid_utf8 else "strict"
    return train(read_lines(settings.input_file, errors), settings)


def train(lines: Iterable[str], settings: VocabularySettings) -> Summary:
    """Trains a vocabulary and writes `<model_prefix>.model` and `.vocab`.

    The text is cleaned as the tokenizer will clean it. No line is left out for its
    length or its characters: long ones are cut at spaces. The same lines and settings
    give the same bytes, whatever the number of processors. How the text is cleaned is
    stored in the model where it is not as released, see `tokenization.with_cleaning`.

    Args:
        lines: text; blank lines are skipped.
        settings: `input_file` is not looked at.

    Raises:
        InputError: there is no text, the vocabulary is too large or too small for it,
            or the output cannot be written.
    """
    prefix = Path(settings.model_prefix)
    _check_writable(prefix)
    source = _Source(lines, settings)
    model = with_cleaning(
        _train_model(source, settings), settings.do_lower_case, settings.keep_accents
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    vocabulary = "".join(
        f"{processor.id_to_piece(id)}\t{processor.get_score(id):g}\n"
        for id in range(settings.vocab_size)
    )
    with atomic(f"{prefix}.vocab") as file:
        file.write(vocabulary.encode())
    model_file = prefix.with_name(f"{prefix.name}.model")
    with atomic(str(model_file)) as file:
        file.write(model)
    summary = _summarise(SentencePieceTokenizer(str(model_file)), source)
    marks = lost_marks(source.first, source.clean, settings.do_lower_case)
    for warning in (marks, summary.warning()):
        if warning:
            print(f"{model_file}: warning: {warning}", file=sys.stderr)
    return summary


def read_lines(patterns: Sequence[str], errors: str = "strict") -> Iterator[str]:
    """Yields the lines of the files, as the generator reads them.

    Raises:
        InputError: as `documents.find_files` and `documents.read`.
    """
    for path in documents.find_files(patterns):
        part = documents.Range(path, 0, None)
        for document in documents.read(part, errors, Counter()):
            yield from document


def lost_marks(
    lines: Iterable[str], clean: Callable[[str], str], do_lower_case: bool
) -> str | None:
    """Returns a warning where the clean-up takes marks off more than rare names.

    Args:
        lines: text; the first 5,000 lines count.
        clean: what a tokenizer does to text, see `Tokenizer.clean`.
        do_lower_case: whether that lower-cases.
    """
    spellings: dict[str, set[str]] = {}  # of each cleaned word
    for line in itertools.islice(lines, _SPELLED_LINES):
        for word in {w.strip(_AROUND) for w in line[:_MAX_LINE_CHARS].split()}:
            marked = clean_text(word, do_lower_case, keep_accents=True)
            spellings.setdefault(_composed(clean(word)), set()).add(_composed(marked))
    merged = sorted(sorted(words) for words in spellings.values() if len(words) > 1)
    changed = sorted(
        f"{word} -> {cleaned}"
        for cleaned, words in spellings.items()
        for word in words
        if word != cleaned
    )
    count = sum(map(len, spellings.values()))
    if len(changed) < _SHOWN or len(changed) <= _MOST_CHANGED * count:
        return None
    examples = ", ".join(changed[:: len(changed) // _SHOWN][:_SHOWN])
    one = ", ".join("/".join(words[:2]) for words in merged[:_SHOWN])
    return (
        f"{len(changed) / count:.1%} of the words lose their marks ({examples})"
        + (f", and {len(merged):,} groups of words become one ({one})" if one else "")
        + "; a vocabulary trained with --keep_accents keeps the marks"
    )


def _composed(word: str) -> str:
    """Joins marks to their letters, and the words that WordPiece makes of one."""
    return unicodedata.normalize("NFC", "".join(word.split()))


class _Source:
    """Cleans the lines on their way to the trainer and remembers a sample.

    Attributes:
        count: lines so far.
        sample: a random sample of the cleaned lines, the same in every run.
        error: what ended the lines too early. SentencePiece would take it for the end.
        first: the beginnings of the first 5,000 lines, not cleaned.
    """

    def __init__(self, lines: Iterable[str], settings: VocabularySettings):
        self.count = 0
        self.sample: list[str] = []
        self.error: Exception | KeyboardInterrupt | None = None
        self.first: list[str] = []
        self._lines = lines
        self._random = random.Random(0)
        self._settings = settings

    def __iter__(self) -> Iterator[str]:
        try:
            for line in tqdm(self._lines, "reading", unit=" lines", disable=None):
                cleaned = self.clean(line.translate(_RESERVED))
                if cleaned.strip():
                    self._remember(line, cleaned)
                    yield from _cut(cleaned)
        except (Exception, KeyboardInterrupt) as error:
            self.error = error

    def clean(self, text: str) -> str:
        """Cleans text as the tokenizer will."""
        return clean_text(
            text, self._settings.do_lower_case, self._settings.keep_accents
        )

    def _remember(self, line: str, cleaned: str) -> None:
        if self.count < _SPELLED_LINES:
            self.first.append(line[:_MAX_LINE_CHARS])
        self.count += 1
        if len(self.sample) < _MEASURED_LINES:
            self.sample.append(cleaned)
        elif (place := self._random.randrange(self.count)) < _MEASURED_LINES:
            self.sample[place] = cleaned


def _train_model(source: _Source, settings: VocabularySettings) -> bytes:
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(source),
            model_writer=model,
            model_type="unigram",
            vocab_size=settings.vocab_size,
            character_coverage=settings.character_coverage,
            input_sentence_size=settings.input_sentence_size,
            shuffle_input_sentence=True,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            control_symbols=list(CONTROL_SYMBOLS),
            user_defined_symbols=list(settings.user_defined_symbols),
            byte_fallback=settings.byte_fallback,
            # Sums of floats depend on it, so it must not depend on the machine.
            num_threads=16,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise source.error or _explain(str(error), source, settings) from error
    if source.error:
        raise source.error
    return model.getvalue()


def _explain(message: str, source: _Source, settings: VocabularySettings) -> InputError:
    """Returns what a caller can do about an error of the trainer."""
    if not source.count:
        named = ",".join(settings.input_file)
        return InputError(f"--input_file={named}: no text in it")
    if largest := re.search(r"too high .*<= (\d+)", message):
        lines = min(source.count, settings.input_sentence_size or source.count)
        return InputError(
            f"--vocab_size={settings.vocab_size} is too large for {lines:,} lines of "
            f"text: expected at most {largest[1]}"
        )
    if smallest := re.search(r"required_chars.* vs (\d+)", message):
        return InputError(
            f"--vocab_size={settings.vocab_size} is too small for the characters of "
            f"the text: expected at least {smallest[1]}, or a lower "
            f"--character_coverage than {settings.character_coverage}"
        )
    return InputError(f"SentencePiece cannot train a vocabulary: {message}")


def _cut(line: str) -> Iterator[str]:
    """Yields parts of a line that are short enough for the trainer."""
    begin = 0
    while begin < len(line):
        end = begin + _MAX_LINE_CHARS
        if end < len(line):
            space = line.rfind(" ", begin, end)
            end = space if space > begin else end
        yield line[begin:end]
        begin = end


def _summarise(tokenizer: SentencePieceTokenizer, source: _Source) -> Summary:
    texts = list(map(tokenizer.tokenize, source.sample))
    tokens = sum(map(len, texts))
    words = [word for line in source.sample for word in line.split()]
    characters = sum(map(len, words))
    unknown = [
        token
        for text in texts
        for token in text
        if tokenizer.piece_to_id(token) == tokenizer.unk_id
    ]
    return Summary(
        vocab_size=tokenizer.vocab_size,
        lines=source.count,
        known_characters=1 - sum(map(len, unknown)) / characters,
        unknown_tokens=len(unknown) / tokens,
        tokens_per_word=tokens / len(words),
        characters_per_token=characters / tokens,
    )


def _check_writable(prefix: Path) -> None:
    """Fails now, not after hours of training."""
    try:
        prefix.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=prefix.parent):
            pass
    except OSError as error:
        raise InputError(
            f"--model_prefix={prefix}: cannot write there: {error.strerror}"
        ) from error
