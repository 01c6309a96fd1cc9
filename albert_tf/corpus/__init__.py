"""Makes pretraining records from raw text, with bounded memory, on all cores.

    ranges --read--> documents --tokenize--> segments --pair--> pairs --mask--> records

In reading order:

    config           the settings
    files            local and remote files
    documents        input files -> ranges -> documents -> segments of token ids
    pairs            documents -> segments A and B
    masking          which tokens are predicted: n-grams of whole words
    units            some ranges -> their part of the records, a pure function
    manifest         the description beside the records: settings, counts, statistics
    local, workers   runs the units in worker processes
    beam             runs the units on Apache Beam
    dynamic_masking  masks records while training
    word_vectors     from which tokens stand beside which, vectors for a start
    vocabulary       trains a vocabulary
"""

import sys
from typing import IO

from albert_tf.corpus import beam, local, manifest
from albert_tf.corpus.config import CorpusSettings

__all__ = ["CorpusSettings", "generate"]


def generate(config: CorpusSettings, log: IO[str] = sys.stderr) -> str:
    """Makes the record files that the settings ask for.

    The same settings and input give the same bytes, however many workers there are, on
    Beam or not, and however often the run was killed and started again.

    Args:
        config: the run's settings.
        log: where progress and warnings go.

    Returns:
        The path of the description of the training files, a JSON file beside them.

    Raises:
        InputError: the input, the vocabulary or the output cannot be used, or an
            earlier run with other settings left its files there.
    """
    description = (beam if config.runner else local).generate(config, log)
    # Records may be moved to other machines, and what is trained on them needs it.
    vocabulary = config.spm_model_file or config.vocab_file
    manifest.copy_vocabulary(description, str(vocabulary))
    return description
