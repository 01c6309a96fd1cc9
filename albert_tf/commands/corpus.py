r"""Makes pretraining records from raw text.

    python create_pretraining_data.py --input_file='corpus/*.txt' \
        --output_file=records/train.tfrecord@16 \
        --spm_model_file=30k-clean.model

docs/pretraining_data.md explains the input, the flags and the statistics.
"""

from albert_tf import corpus

SETTINGS = (corpus.CorpusSettings,)


def main(settings: corpus.CorpusSettings) -> None:
    """Makes the records, and prints the path of their description."""
    print(corpus.generate(settings))
