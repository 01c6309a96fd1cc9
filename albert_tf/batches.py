"""Batches from record files: endless, shuffled and resumable, or once and in order.

Which examples a batch holds depends on the seed and on its place in the run alone:
neither on the number of devices nor on how often the run was stopped. So a run goes on
from a number, the examples seen so far, and no buffer has to be saved. What a source
draws while it prepares examples also depends on the number of input pipelines.

B is the batch of all devices together.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from albert_tf import records

if TYPE_CHECKING:
    import tensorflow as tf

    Batch = Mapping[str, tf.Tensor]
    Prepare = Callable[[Batch, tf.Tensor], Batch]

# Records are drawn from as many; the generator's files are shuffled already.
_SHUFFLE_BUFFER = 10_000
_FILES_AT_ONCE = 16
# Rows that are prepared together: preparing has costs for each call.
_ROWS_TO_PREPARE = 512


@dataclasses.dataclass(frozen=True)
class Source:
    """Where examples come from.

    Attributes:
        files: TFRecord files, plain or all compressed with gzip.
        sizes: records in each file.
        spec: the features to read.
        prepare: what is done to a batch of examples, with a seed int32 [2] of its own;
            None for nothing.
    """

    files: tuple[str, ...]
    sizes: tuple[int, ...]
    spec: records.Spec
    prepare: "Prepare | None" = None

    def __len__(self) -> int:
        """Returns the number of examples."""
        return sum(self.sizes)


@dataclasses.dataclass(frozen=True)
class Share:
    """The rows of each batch that one input pipeline reads, for some replicas.

    Attributes:
        batch_size: rows of all pipelines, B; `pipelines` divides it.
        pipelines: input pipelines, one on each worker.
        pipeline: number of this one.
        replica_batch_size: rows of one replica.
    """

    batch_size: int
    pipelines: int = 1
    pipeline: int = 0
    replica_batch_size: int | None = None

    @classmethod
    def of(cls, context: "tf.distribute.InputContext", batch_size: int) -> "Share":
        """Returns the share that `tf.distribute` asks a pipeline for."""
        return cls(
            batch_size,
            context.num_input_pipelines,
            context.input_pipeline_id,
            context.get_per_replica_batch_size(batch_size),
        )

    @property
    def rows(self) -> int:
        """Rows of this pipeline in each batch."""
        return self.batch_size // self.pipelines


def training(
    source: Source, share: Share, *, seed: int, start: int = 0
) -> "tf.data.Dataset":
    """Reads examples over and over, in another order each time.

    Args:
        source: the examples.
        share: which rows of each batch are wanted.
        seed: decides the order, and what `source.prepare` draws.
        start: examples that were seen before, by all pipelines.

    Returns:
        An endless dataset of {name: int32 or float32 [replica_batch_size, ...]}.
    """
    together = _batches_together(source, share)
    step = start // share.batch_size
    # Prepared together are always the same batches, so begin where these begin.
    begin = start - step % together * share.batch_size
    epoch, skipped = divmod(begin, len(source))
    lines = _epochs(source, seed, epoch).skip(skipped)
    lines = lines.batch(share.batch_size // share.pipelines, drop_remainder=True)
    lines = lines.shard(share.pipelines, share.pipeline)
    done = step % together * share.rows // _per_replica(share)
    found = _parsed(lines, source, share, together, seed, step // together)
    return found.skip(done) if done else found


def evaluation(
    source: Source, share: Share, *, max_batches: int | None = None
) -> "tf.data.Dataset":
    """Reads the examples once, in order.

    The last batch is filled up with examples of no weight: the feature
    `example_weight`, float32 [replica_batch_size], is 1 for a true one and 0 for these.

    Args:
        source: the examples.
        share: which rows of each batch are wanted.
        max_batches: where to stop; None reads everything.

    Returns:
        A dataset of {name: int32 or float32 [replica_batch_size, ...]}.
    """
    import tensorflow as tf

    lines = _read(tf.constant(source.files), source)
    count = len(source)
    if max_batches is not None:
        count = min(count, max_batches * share.batch_size)
        lines = lines.take(count)
    fillers = -count % share.batch_size
    lines = lines.concatenate(lines.take(1).repeat(fillers))
    lines = lines.batch(share.rows, drop_remainder=True)
    lines = lines.shard(share.pipelines, share.pipeline)
    weights = tf.data.Dataset.range(count + fillers).map(
        lambda number: tf.cast(number < count, tf.float32)
    )
    weights = weights.batch(share.rows).shard(share.pipelines, share.pipeline)
    weights = weights.rebatch(_per_replica(share))
    found = _parsed(lines, source, share, 1, 0, 0)
    return tf.data.Dataset.zip(found, weights).map(
        lambda batch, weight: {**batch, "example_weight": weight}
    )


def _per_replica(share: Share) -> int:
    return share.replica_batch_size or share.rows


def _batches_together(source: Source, share: Share) -> int:
    if source.prepare is None:
        return 1
    return -(-_ROWS_TO_PREPARE // share.rows)


def _epochs(source: Source, seed: int, first: int) -> "tf.data.Dataset":
    """Returns the serialised examples of all epochs from one on, one after another."""
    import tensorflow as tf

    def epoch(number):
        files = tf.random.experimental.stateless_shuffle(
            tf.constant(source.files), tf.stack([seed, number])
        )
        draw = tf.random.stateless_uniform(
            [], tf.stack([number, seed]), maxval=2**31 - 1, dtype=tf.int64
        )
        return _read(files, source).shuffle(
            min(_SHUFFLE_BUFFER, len(source)), draw, reshuffle_each_iteration=False
        )

    return tf.data.Dataset.counter(first).flat_map(epoch)


def _read(files: "tf.Tensor", source: Source) -> "tf.data.Dataset":
    import tensorflow as tf

    compression = records.compression(source.files)
    return tf.data.Dataset.from_tensor_slices(files).interleave(
        lambda file: tf.data.TFRecordDataset(file, compression),
        cycle_length=min(_FILES_AT_ONCE, len(source.files)),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )


def _parsed(
    lines: "tf.data.Dataset",
    source: Source,
    share: Share,
    together: int,
    seed: int,
    first: int,
) -> "tf.data.Dataset":
    """Parses and prepares batches of lines, some together; cuts them for replicas."""
    import tensorflow as tf

    parse = records.parser(source.spec)
    per_replica = _per_replica(share)

    def work(number, serialised):
        batch: Batch = parse(tf.reshape(serialised, [-1]))
        if source.prepare is not None:
            place = tf.stack([tf.cast(number, tf.int32), share.pipeline])
            batch = source.prepare(
                batch, tf.random.experimental.stateless_fold_in(place, seed)
            )
        return {
            name: tf.reshape(value, [-1, per_replica, *value.shape[1:]])
            for name, value in batch.items()
        }

    lines = lines.batch(together).enumerate(first)
    found = lines.map(work, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    return found.unbatch().prefetch(tf.data.AUTOTUNE)
