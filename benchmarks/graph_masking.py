"""Measures how fast records are masked during training, on one core.

python benchmarks/graph_masking.py --record_file=train.tfrecord
"""

import dataclasses
import time

import tensorflow as tf

from albert_tf import flags
from albert_tf.corpus import masking_in_graph
from albert_tf.data import records


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What to measure."""

    record_file: tuple[str, ...] = flags.field("Record files with a description.")
    chunk: int = flags.field("Records that are masked together.", 512)
    chunks: int = flags.field("Chunks to mask in each of five rounds.", 40)


flags.define(Settings)


def main() -> None:
    """Prints the tokens, padding included, that a second of one core masks."""
    settings = flags.read(Settings)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    files = settings.record_file
    mask = masking_in_graph.for_records(files)
    parsed = records.dataset(
        files, mask.spec, batch_size=settings.chunk, drop_remainder=True
    )
    batch = next(iter(parsed))
    numbers = tf.data.Dataset.range(settings.chunks)
    masked = numbers.map(lambda i: mask(batch, tf.stack([0, i])))
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    masked = masked.with_options(options)
    tokens = settings.chunks * tf.size(batch["input_ids"]).numpy()
    for _ in range(5):
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in masked:
            pass
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(
            f"{tokens / cpu / 1e6:.2f} M tokens/s of a core's own time, "
            f"{tokens / wall / 1e6:.2f} M tokens/s by the clock"
        )


if __name__ == "__main__":
    flags.run(main)
