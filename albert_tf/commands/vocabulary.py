r"""Trains a SentencePiece vocabulary on text of any language.

    python train_sentencepiece.py --input_file='corpus/*.txt' \
        --model_prefix=vocab/30k --vocab_size=30000

docs/pretraining_data.md explains the format of the text.
"""

import signal

from albert_tf.corpus import vocabulary

SETTINGS = (vocabulary.VocabularySettings,)


def main(settings: vocabulary.VocabularySettings) -> None:
    """Trains a vocabulary, and prints its path."""
    # Python's handlers do not run while SentencePiece trains. With the system's default
    # handlers, a signal ends the process at once.
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_DFL)
    vocabulary.train_files(settings)
    print(f"{settings.model_prefix}.model")
