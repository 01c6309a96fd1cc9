r"""Makes pretraining records from raw text.

    python create_pretraining_data.py --input_file='corpus/*.txt' \
        --output_file=records/train.tfrecord@16 \
        --spm_model_file=30k-clean.model

docs/pretraining_data.md explains the input, the flags and the statistics.
"""

from albert_tf import corpus, flags

flags.define(corpus.CorpusSettings)


def main() -> None:
    """Reads the flags and makes the files."""
    print(corpus.generate(flags.read(corpus.CorpusSettings)))


if __name__ == "__main__":
    flags.run(main)
