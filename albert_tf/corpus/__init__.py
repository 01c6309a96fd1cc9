"""Makes pretraining records from raw text, with bounded memory, on all cores.

    ranges --read--> documents --tokenize--> segments --pair--> pairs --mask--> records

A range is a part of an input file. In the code of this package, a segment has the token
ids of one line of text, or of a part of a long line. A and B, the two texts of a pair,
consist of such segments, or of the two parts of a single one. Each pair becomes one
record. In help texts, and in messages about "the second segment", the segments are A
and B, as in BERT.

In reading order:

    config           the settings
    files            local and remote files
    documents        input files -> ranges -> documents -> segments of token ids
    pairs            segments of documents -> pairs of A and B
    masking          chooses the tokens to predict: n-grams of whole words
    shards           ranges of the input -> records, reproducibly
    manifest         the description of the records: settings, counts, statistics
    workers          runs a function in worker processes or on Apache Beam
    generation       the whole run: plan -> make shards -> merge -> describe
    dynamic_masking  masks records during training
    vocabulary       trains a vocabulary
"""

from albert_tf.corpus.config import CorpusSettings, MaskingSettings

__all__ = ["CorpusSettings", "MaskingSettings", "generate"]


def __getattr__(name):
    # Imported on first use: importing NumPy takes longer than the rest of `--help`.
    if name == "generate":
        from albert_tf.corpus import generation

        return generation.generate
    raise AttributeError(f"module 'albert_tf.corpus' has no attribute {name!r}")
