r"""Trains a SentencePiece vocabulary on text of any language.

    python train_sentencepiece.py --input_file='corpus/*.txt' \
        --model_prefix=vocab/30k --vocab_size=30000

docs/pretraining_data.md explains the input.
"""

from albert_tf.corpus import vocabulary
from albert_tf.corpus.workers import Workers

SETTINGS = (vocabulary.VocabularySettings,)


def main(settings: vocabulary.VocabularySettings) -> None:
    """Trains, and prints what the vocabulary does to its text."""
    # SentencePiece keeps Python from seeing signals until it is done: not here.
    advice = "a smaller --input_sentence_size needs less"
    with Workers(2, advice) as workers:
        for summary in workers.each(vocabulary.train_files, [(settings,)]):
            print(f"{settings.model_prefix}.model: {summary}")
