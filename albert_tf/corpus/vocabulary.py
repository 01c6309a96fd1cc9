"""Trains a SentencePiece vocabulary for any language.

The defaults are as in the released code, Google's TensorFlow 1 code of ALBERT.
"""

import dataclasses
import io
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import sentencepiece
from tqdm import tqdm

from albert_tf import flags
from albert_tf.corpus import documents, files
from albert_tf.data.files import write
from albert_tf.errors import InputError
from albert_tf.text.tokenization import add_cleaning, clean_text

# SentencePiece skips lines of more than 4,192 bytes, and a character has at most four
# bytes. So this pattern divides a line into parts of at most 1,000 characters. If
# possible, it divides before a space.
_PARTS = re.compile(r".{1,1000}\Z|.{1,999}(?= )|.{1000}", re.DOTALL)
# A table for `str.translate` that replaces reserved characters by spaces. SentencePiece
# skips lines with these characters.
_RESERVED = str.maketrans("▅\0", "  ")


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularySettings(flags.Settings):
    """Vocabulary.

    **As released:** ids are <pad> 0, <unk> 1, [CLS] 2, [SEP] 3, [MASK] 4, then the
    user-defined symbols; the model type is unigram, over NFKC text.

    Args:
        input_file: Text files or patterns, comma-separated, plain or gzip, with one
            sentence or paragraph per line, or JSON lines.
        model_prefix: Prefix of the output files: <model_prefix>.model and
            <model_prefix>.vocab.
        vocab_size: Number of tokens, including special tokens.
        do_lower_case: Lower-case the text. The vocabulary stores the setting.
        keep_accents: Keep accents and other combining marks (the breve of й, the virama
            of Hindi, the tones of Vietnamese). The vocabulary stores the setting. The
            released code removes them, which suits English; other languages lose
            letters.
        character_coverage: Fraction of the text's characters, in (0, 1], that the
            vocabulary contains; the rarest characters are left out.
        input_sentence_size: Number of lines to sample for training (0 for all).
        user_defined_symbols: Strings that are always a single token.
        byte_fallback: Encode unknown characters as UTF-8 bytes, which uses 256 tokens.
        encoding: Encoding of the text, such as gbk. A byte order mark has priority.
        replace_invalid_utf8: Replace invalid UTF-8 by U+FFFD instead of raising an
            error.

    Raises:
        InputError: a value is out of range, or a symbol can never occur in text.
    """

    input_file: tuple[str, ...] = flags.field()
    model_prefix: str = flags.field()
    vocab_size: int = flags.field(30_000, at_least=1)
    do_lower_case: bool = flags.field(True)
    keep_accents: bool = flags.field(False)
    character_coverage: float = flags.field(0.99995, above=0, at_most=1)
    input_sentence_size: int = flags.field(10_000_000)
    user_defined_symbols: tuple[str, ...] = flags.field(tuple('()"-.\N{EN DASH}£€'))
    byte_fallback: bool = flags.field(False)
    encoding: str = flags.field("utf-8")
    replace_invalid_utf8: bool = flags.field(False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if os.path.basename(self.model_prefix) in ("", ".", ".."):
            raise InputError(
                f"--model_prefix={self.model_prefix}: expected the start of the files' "
                f"names, such as {os.path.join(self.model_prefix, '30k')}, not a folder"
            )
        for symbol in self.user_defined_symbols:
            cleaned = clean_text(symbol, self.do_lower_case, self.keep_accents)
            if not symbol or cleaned != symbol:
                raise InputError(
                    f"--user_defined_symbols: {symbol!r} never occurs in text that the "
                    f"tokenizer has cleaned; expected {cleaned!r}"
                )


def train_files(settings: VocabularySettings) -> None:
    """Reads the files in `settings.input_file` and calls `train` on their lines.

    Raises:
        InputError: a file is missing, damaged or in another encoding, or `train` raises
            it.
    """
    errors = "replace" if settings.replace_invalid_utf8 else "strict"
    train(read_lines(settings.input_file, errors, settings.encoding), settings)


def train(lines: Iterable[str], settings: VocabularySettings) -> None:
    """Trains a vocabulary and writes `<model_prefix>.model` and `.vocab`.

    The text is cleaned as the tokenizer cleans it. Long lines are cut at spaces, so
    SentencePiece skips no line. The same lines and settings give the same bytes on any
    number of processors. If `do_lower_case` or `keep_accents` differs from the released
    setting, the model file stores both; `tokenization.add_cleaning` writes them.

    Args:
        lines: text; blank lines are skipped.
        settings: the settings; `input_file` is only used in messages.

    Raises:
        InputError: there is no text, the vocabulary is too large or too small for it,
            or the output cannot be written.
    """
    prefix = Path(settings.model_prefix)
    files.check_outputs([f"{prefix}.vocab", f"{prefix}.model"], inputs=())
    model = _train_model(lines, settings)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    vocabulary = "".join(
        f"{processor.id_to_piece(id)}\t{processor.get_score(id):g}\n"
        for id in range(settings.vocab_size)
    )
    write(f"{prefix}.vocab", vocabulary)
    write(f"{prefix}.model", model)


def read_lines(
    patterns: Sequence[str], errors: str = "strict", encoding: str = "utf-8"
) -> Iterator[str]:
    """Yields the lines of files; the code for pretraining data reads the files.

    Args:
        patterns: files or patterns, as in `input_file`.
        errors: the handling of invalid bytes, see `documents.read`.
        encoding: the encoding of files without a byte order mark.

    Raises:
        InputError: a pattern matches no file, two patterns match the same file, or a
            file cannot be read or decoded.
    """
    for path in documents.find_files(patterns):
        part = documents.ByteRange(path, begin=0, end=None)
        for document in documents.read(part, errors, Counter(), encoding):
            yield from document


def _train_model(lines: Iterable[str], settings: VocabularySettings) -> bytes:
    """Trains on lines of text; returns the contents of the model file."""
    model = io.BytesIO()
    count = 0
    cleaning = settings.do_lower_case, settings.keep_accents
    failure: Exception | None = None

    def clean_lines() -> Iterator[str]:
        """Yields the parts of cleaned lines, and counts the lines.

        It stores an error in `failure`, since SentencePiece hides it.
        """
        nonlocal count, failure
        try:
            for line in tqdm(lines, "reading", unit=" lines", disable=None):
                text = clean_text(line.translate(_RESERVED), *cleaning)
                if text.strip():
                    count += 1
                    yield from _PARTS.findall(text)
        except Exception as error:
            failure = error

    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=clean_lines(),
            model_writer=model,
            model_type="unigram",
            vocab_size=settings.vocab_size,
            character_coverage=settings.character_coverage,
            input_sentence_size=settings.input_sentence_size,
            shuffle_input_sentence=True,
            pad_id=0,
            unk_id=1,
            bos_id=-1,  # no such token
            eos_id=-1,  # no such token
            control_symbols=["[CLS]", "[SEP]", "[MASK]"],
            user_defined_symbols=list(settings.user_defined_symbols),
            byte_fallback=settings.byte_fallback,
            # The scores depend on the number of threads, so this number is the same on
            # every machine.
            num_threads=16,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise failure or _explain(str(error), count, settings) from error
    if failure:
        raise failure
    return add_cleaning(model.getvalue(), *cleaning)


def _explain(message: str, count: int, settings: VocabularySettings) -> InputError:
    """Returns an error with advice for a message of SentencePiece's trainer.

    Args:
        message: the trainer's message.
        count: number of lines that are not blank.
        settings: the settings of the training, which the advice quotes.
    """
    if not count:
        paths = ",".join(settings.input_file)
        return InputError(f"--input_file={paths}: no text in it")
    if largest := re.search(r"too high .*<= (\d+)", message):
        lines = min(count, settings.input_sentence_size or count)
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
    return InputError(f"SentencePiece cannot train with these flags: {message}")
