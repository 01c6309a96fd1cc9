r"""Trains a SentencePiece vocabulary on text of any language.

    python train_sentencepiece.py --input_file='corpus/*.txt' \
        --model_prefix=vocab/30k --vocab_size=30000

docs/pretraining_data.md explains the input.
"""

import signal

from albert_tf.corpus import vocabulary

SETTINGS = (vocabulary.VocabularySettings,)


def main(settings: vocabulary.VocabularySettings) -> None:
    """Trains, and prints what the vocabulary does to its text."""
    # SentencePiece trains without a look at what Python would do about Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    print(f"{settings.model_prefix}.model: {vocabulary.train_files(settings)}")
