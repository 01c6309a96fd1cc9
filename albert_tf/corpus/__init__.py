"""Makes pretraining records from raw text, with bounded memory, on all cores.

    text --read--> documents --tokenize--> groups --draw--> pairs --mask--> records

Modules, in the order of the work: `config` (settings), `text` and `files` (reading),
`store` (tokenized groups of documents), `plan` (who makes what), `pairs` (segments A
and B), `masking` (n-grams of whole words), `examples` (a unit's records), `manifest`
(the description beside the files); `local` and `beam` run them, on `workers` or on
Apache Beam.
"""

from albert_tf.corpus.config import CorpusConfig
from albert_tf.corpus.local import generate

__all__ = ["CorpusConfig", "generate"]
