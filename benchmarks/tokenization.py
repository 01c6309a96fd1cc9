"""Measures how fast text becomes ids, on one core and on several.

python benchmarks/tokenization.py --input_file=text.txt --spm_model_file=30k.model
"""

import dataclasses
import itertools
import time

from albert_tf import flags
from albert_tf.corpus import vocabulary
from albert_tf.text import tokenization


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What to measure."""

    input_file: tuple[str, ...] = flags.field("Text files or globs, UTF-8.")
    spm_model_file: str | None = flags.field("SentencePiece model.", None)
    vocab_file: str | None = flags.field("WordPiece vocabulary.", None)
    num_threads: int = flags.field("Threads of the second measurement.", 2)
    lines: int = flags.field("Lines of the text to use.", 100_000)


flags.define(Settings)


def main() -> None:
    """Prints tokens per second; the first pass, which fills caches, is not timed."""
    settings = flags.read(Settings)
    tokenizer = tokenization.load(settings.spm_model_file, settings.vocab_file)
    lines = vocabulary.read_lines(settings.input_file)
    texts = list(itertools.islice(lines, settings.lines))
    tokenizer.encode_batch(texts)
    for num_threads in (1, settings.num_threads):
        begin = time.perf_counter()
        tokens = sum(map(len, tokenizer.encode_batch(texts, num_threads)))
        seconds = time.perf_counter() - begin
        print(f"threads {num_threads}: {tokens / seconds / 1e6:.2f} M tokens/s")


if __name__ == "__main__":
    flags.run(main)
