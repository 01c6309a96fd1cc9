r"""Trains a SentencePiece vocabulary on text of any language.

python train_sentencepiece.py --input_file='corpus/*.txt' --model_prefix=vocab/30k \
    --vocab_size=30000
"""

from albert_tf import flags, vocabulary

flags.define(vocabulary.VocabularySettings)


def main() -> None:
    """Trains, and prints what the vocabulary does to its text."""
    settings = flags.read(vocabulary.VocabularySettings)
    print(f"{settings.model_prefix}.model: {vocabulary.train_files(settings)}")


if __name__ == "__main__":
    flags.run(main)
