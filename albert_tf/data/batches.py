"""Makes batches of examples from record files or from memory, with `tf.data`.

A dataset for training is endless and shuffled. A dataset for evaluation has each
example once. The examples of a training batch, and all random draws that prepare them,
depend only on the seed and on the position of the batch in the run. They do not depend
on the number of devices or restarts. So a run that resumes needs only the number of
examples that it has seen so far, and no saved shuffle buffer.

B is the number of rows in the batch of all devices together. A pipeline (of `tf.data`)
reads a part of these rows. A replica (a device) gets `replica_batch_size` of the
pipeline's rows. N is the number of rows that a function gets in one call.
"""

import contextlib
import dataclasses
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf import errors
from albert_tf.data import cores, records
from albert_tf.errors import InputError

Batch = dict[str, tf.Tensor]
# A function that transforms parsed records for the model, see `Records.prepare`.
Prepare = Callable[[Batch, int, tf.Tensor], Batch]
# The context of a run with one input pipeline and one replica.
_ONE_DEVICE = tf.distribute.InputContext()

# The feature of evaluation batches that gives each row the number of its example: the
# example's index in the source, or -1 for padding.
ROW = "row"

# AutoGraph converts Python branches on tensors, and no function here has one. The
# conversion would take longer than building the graphs.
_without_autograph = tf.autograph.experimental.do_not_convert
# Number of records in the shuffle buffer. A small buffer is enough, because pretraining
# files are shuffled already.
_SHUFFLE_BUFFER = 10_000
# Maximum number of record files that are open at the same time.
_PARALLEL_FILES = 16
# Number of prefetched batches, and of parallel calls that parse records.
_PREFETCHED = 8
_PARALLEL_CALLS = 16
# Minimum number of rows in a call of `Records.prepare` in training: each call has a
# fixed cost.
_ROWS_TO_PREPARE = 512
# `BucketedExamples` sorts this many batches (training) or examples (evaluation) by
# length at a time. In `Trainer.predict`, the second number limits the predictions that
# wait in memory for their turn in the original order.
_BATCHES_TO_SORT = 50
_EXAMPLES_TO_SORT = 8192


@contextlib.contextmanager
def translate_errors(source: "Examples", prefix: Callable[[], str]) -> Iterator[None]:
    """Turns TensorFlow's errors in the block into InputError.

    TensorFlow's messages name an operation, not a record. If a record can be the cause,
    `records.locate_error` searches for it and raises an InputError that names it.

    Args:
        source: the examples that the block reads.
        prefix: returns the beginning of the message, such as "after step 3".

    Raises:
        InputError: TensorFlow failed, or an example cannot be used.
    """
    try:
        yield
    except (tf.errors.OpError, UnicodeDecodeError) as error:
        # TensorFlow's message can quote bytes of a record. If they are not text, the
        # error is UnicodeDecodeError.
        code = getattr(error, "error_code", tf.errors.DATA_LOSS)
        is_record_error = code in (tf.errors.DATA_LOSS, tf.errors.INVALID_ARGUMENT)
        if is_record_error and isinstance(source, Records):
            # If this finds the record, it raises an InputError that names it.
            # Otherwise, the error below is raised.
            records.locate_error(source.files, source.spec, source.limits)
        message = errors.summarize(error)
        if code == tf.errors.RESOURCE_EXHAUSTED:
            message += "; expected more memory or smaller batches; in training, also "
            message += "more --gradient_accumulation_steps, or --recompute=block"
        raise InputError(f"{prefix()}: {message}") from error


@dataclasses.dataclass(frozen=True)
class Records:
    """Examples in record files.

    Attributes:
        files: TFRecord files, plain or compressed with gzip.
        sizes: number of records in each file.
        spec: the features to read.
        prepare: transforms N parsed examples, {name: [N, ...]}. Its other two arguments
            are the seed, and the positions of the examples in the run, int64 [N].
        limits: {name: exclusive upper limit} of the values of some features. A value
            that is negative or too large is an error. The check slows reading by 5 %.
    """

    files: tuple[str, ...]
    sizes: tuple[int, ...]
    spec: records.Spec
    prepare: Prepare | None = None
    limits: records.Limits = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        """Returns the number of examples."""
        return sum(self.sizes)

    def training(
        self, shard: "InputShard", *, seed: int, start: int = 0
    ) -> tf.data.Dataset:
        """Makes an endless dataset for training; each epoch has another order.

        Args:
            shard: the rows of each batch that this pipeline reads.
            seed: decides the order and all random draws.
            start: the number of examples that the run has already seen, on all devices
                together.

        Returns:
            An endless dataset of {name: int32 or float32 [replica_batch_size, ...]}.
        """
        raw_records = _take_rows(self._read_epochs(seed, start), shard)
        if self.prepare is not None:
            # Several batches are prepared together: `_ROWS_TO_PREPARE` rows or more.
            raw_records = raw_records.batch(-(-_ROWS_TO_PREPARE // shard.rows))
        dataset = self._parse(raw_records, seed)
        dataset = dataset.map(_without_autograph(lambda _, batch: batch))
        return _divide_and_prefetch(dataset, shard)

    def evaluation(
        self, shard: "InputShard", *, max_batches: int | None = None
    ) -> tf.data.Dataset:
        """Makes a dataset for evaluation, which has each example once.

        Copies of an example complete the last batch, as padding. The feature
        `example_weight`, float32 [replica_batch_size], is 1 for an example and 0 for
        padding. `row`, int32 [replica_batch_size], is the index of the example in the
        source, and -1 for padding.

        Args:
            shard: the rows of each batch that this pipeline reads.
            max_batches: maximum number of batches; None reads everything.

        Returns:
            A dataset of {name: int32 or float32 [replica_batch_size, ...]}.
        """
        raw_records = self._read(self._files_to_read())
        count = len(self)
        if max_batches is not None:
            count = min(count, max_batches * shard.batch_size)
            raw_records = raw_records.take(count)
        padding = raw_records.take(1).repeat(-count % shard.batch_size)
        raw_records = raw_records.concatenate(padding).enumerate()

        @_without_autograph
        def add_numbers(positions, batch):
            row = tf.cast(tf.where(positions < count, positions, -1), tf.int32)
            weight = tf.cast(row >= 0, tf.float32)
            return {**batch, ROW: row, "example_weight": weight}

        dataset = self._parse(_take_rows(raw_records, shard), seed=0).map(add_numbers)
        return _divide_and_prefetch(dataset, shard)

    def _read_epochs(self, seed: int, start: int) -> tf.data.Dataset:
        """Reads serialised examples for training, each with its position in the run.

        Args:
            seed: decides the order of the examples.
            start: the position of the first example.
        """

        @_without_autograph
        def read_epoch(epoch):
            files = tf.random.experimental.stateless_shuffle(
                self._files_to_read(), tf.stack([seed, epoch])
            )
            # The shuffle of files has the seed [seed, epoch]. The shuffle of records
            # needs another seed, so here the order is [epoch, seed].
            shuffle_seed = tf.random.stateless_uniform(
                [], tf.stack([epoch, seed]), maxval=2**31 - 1, dtype=tf.int64
            )
            buffer = min(_SHUFFLE_BUFFER, len(self))
            return self._read(files).shuffle(
                buffer, shuffle_seed, reshuffle_each_iteration=False
            )

        first_epoch, skipped = divmod(start, len(self))
        epochs = tf.data.Dataset.counter(first_epoch).flat_map(read_epoch)
        return epochs.skip(skipped).enumerate(start)

    def _files_to_read(self) -> tf.Tensor:
        """Returns string [n, 2]: the path and the compression of each of n files."""
        return tf.constant([(file, records.compression(file)) for file in self.files])

    def _read(self, files: tf.Tensor) -> tf.data.Dataset:
        """Reads serialised examples from several files in turn.

        Args:
            files: string [n, 2], in the form of `_files_to_read`.
        """
        cycle_length = min(_PARALLEL_FILES, len(self.files))
        return tf.data.Dataset.from_tensor_slices(files).interleave(
            _without_autograph(lambda file: tf.data.TFRecordDataset(file[0], file[1])),
            cycle_length=cycle_length,
            num_parallel_calls=min(cores.available(), cycle_length),
            deterministic=True,
        )

    def _parse(self, items: tf.data.Dataset, seed: int) -> tf.data.Dataset:
        """Parses and prepares serialised examples.

        Args:
            items: a dataset of pairs: positions in the run, int64, and serialised
                examples, string. Both are [rows], or [n, rows] for n batches together,
                where `rows` is the number of the pipeline's rows in a batch.
            seed: the seed for `prepare`.

        Returns:
            A dataset of pairs: the positions, int64 [N], and the features of the
            examples, {name: [N, ...]}, where N is rows or n * rows.
        """
        parse = records.parser(self.spec, self.limits)

        @_without_autograph
        def parse_batch(positions, serialised):
            return tf.reshape(positions, [-1]), parse(tf.reshape(serialised, [-1]))

        calls = min(cores.available(), _PARALLEL_CALLS)
        dataset = items.map(parse_batch, num_parallel_calls=calls, deterministic=True)
        if self.prepare is None:
            return dataset
        prepare = self.prepare

        @_without_autograph
        def prepare_batch(positions, batch):
            return positions, prepare(batch, seed, positions)

        return dataset.map(prepare_batch)


@dataclasses.dataclass(frozen=True)
class BucketedExamples:
    """Examples in memory; a batch has examples of similar length, to save padding.

    Training takes a group of examples for several batches, sorts the group by length,
    divides it into batches and shuffles the batches. If a run resumes with another
    batch size, its groups change, so the run continues only at about the same position
    in the data. A dataset holds only a weak reference to this object: the caller must
    keep the object as long as the dataset.

    Attributes:
        lengths: int [n], the number of tokens of each example.
        make_batch: makes the arrays of N examples from their indices, int [N], and a
            length T in tokens; returns {name: int32 or float32 [N, ...]}.
        longest: maximum of the length T.
        pad_multiple: T is the length of the batch's longest example, rounded up to a
            multiple of this number, but at most `longest`. With 0, T is always
            `longest`.
    """

    lengths: np.ndarray
    make_batch: Callable[[np.ndarray, int], Mapping[str, np.ndarray]]
    longest: int
    pad_multiple: int = 8

    def __len__(self) -> int:
        """Returns the number of examples."""
        return len(self.lengths)

    def training(self, shard, *, seed, start=0) -> tf.data.Dataset:
        """Makes an endless dataset, as `Records.training` does."""
        size = shard.batch_size

        # `weak_self` is a weak reference to this object, see `_dataset`.
        def generate(weak_self):
            group_batches = _batches_to_sort(len(weak_self), size)
            # `group` is the first group of this dataset: the group in which the run
            # begins or resumes. The run has already seen its first `skipped` batches.
            group, skipped = divmod(start // size, group_batches)
            while True:
                begin = group * group_batches * size
                yield from weak_self._shuffle_group(begin, seed, size)[skipped:]
                group, skipped = group + 1, 0

        return self._dataset(generate, shard, for_evaluation=False)

    def evaluation(self, shard, *, max_batches=None) -> tf.data.Dataset:
        """Makes a dataset that has each example once, as `Records.evaluation` does.

        About 8,192 examples at a time, here called a group, are sorted by length.
        Only the last group can have too few examples for full batches. Padding then
        fills the beginning of the group's first batch. `unshuffle` restores the order
        of the outputs.
        """
        size = shard.batch_size
        count = len(self)
        if max_batches is not None:
            count = min(count, max_batches * size)

        def generate(weak_self):
            group_examples = max(1, _EXAMPLES_TO_SORT // size) * size
            for begin in range(0, count, group_examples):
                rows = np.arange(begin, min(begin + group_examples, count))
                rows = rows[np.argsort(weak_self.lengths[rows], kind="stable")]
                padding = np.full(-len(rows) % size, -1)
                yield from np.concatenate([padding, rows]).reshape(-1, size)

        return self._dataset(generate, shard, for_evaluation=True)

    def _shuffle_group(self, begin: int, seed: int, size: int) -> np.ndarray:
        """Returns the batches of a training group, in random order.

        Args:
            begin: the position in the run of the first example of the group.
            seed: decides the order.
            size: the batch size.

        Returns:
            int [n, size], the indices of the examples of each of the n batches.
        """
        count = _batches_to_sort(len(self), size) * size
        # The epoch of each example of the group, and its position in that epoch.
        epochs, positions = np.divmod(np.arange(begin, begin + count), len(self))
        rows = np.empty_like(positions)
        for epoch in np.unique(epochs):
            order = np.random.default_rng([seed, epoch]).permutation(len(self))
            rows[epochs == epoch] = order[positions[epochs == epoch]]
        # A group can have the same example from two epochs. Sorting within epochs keeps
        # the two apart; otherwise they would be neighbours.
        rows = rows[np.lexsort((self.lengths[rows], epochs))].reshape(-1, size)
        # The third element, 1, makes this seed differ from the seed [seed, epoch]
        # above.
        return np.random.default_rng([seed, begin, 1]).permutation(rows)

    def _dataset(self, generate, shard, for_evaluation) -> tf.data.Dataset:
        """Makes a dataset from the indices of the examples.

        Args:
            generate: a generator function. It takes a weak reference to this object,
                and yields for each batch the indices of its examples, int [B], with -1
                for padding.
            shard: the rows of each batch that this pipeline reads.
            for_evaluation: whether batches have `row` and `example_weight`.
        """
        # TensorFlow never releases the generator function `pipeline_batches` below. So
        # it gets only a weak reference to this object and its examples.
        weak_self = weakref.proxy(self)

        def make_batch(rows, length, padding_row=0):
            batch = weak_self.make_batch(np.where(rows >= 0, rows, padding_row), length)
            if not for_evaluation:
                return batch
            weight = (rows >= 0).astype(np.float32)
            return {**batch, ROW: rows.astype(np.int32), "example_weight": weight}

        def pipeline_batches():
            for rows in generate(weak_self):
                length = weak_self.longest
                if weak_self.pad_multiple:
                    tokens = int(weak_self.lengths[rows[rows >= 0]].max())
                    length = min(_round_up(tokens, weak_self.pad_multiple), length)
                first = shard.context.input_pipeline_id * shard.rows
                part = rows[first : first + shard.rows]
                # The last row is never padding, so its example can fill padding rows.
                yield make_batch(part, length, padding_row=rows[-1])

        def to_spec(value, other):
            sizes = zip(value.shape[1:], other.shape[1:], strict=True)
            shape = [a if a == b else None for a, b in sizes]
            return tf.TensorSpec([shard.rows, *shape], value.dtype)

        # A spec has None for each size that depends on the batch's length T. To find
        # these sizes, two samples of different lengths are compared. If `pad_multiple`
        # is 0, all batches and both samples have the length `longest`.
        row = np.zeros(1, np.int64)
        lengths = self.longest, self.longest + (1 if self.pad_multiple else 0)
        samples = (make_batch(row, length) for length in lengths)
        dataset = tf.data.Dataset.from_generator(
            pipeline_batches, output_signature=tf.nest.map_structure(to_spec, *samples)
        )
        return _divide_and_prefetch(dataset, shard)


Examples = Records | BucketedExamples


def unshuffle(
    outputs: Iterable[Mapping[str, Any]],
) -> Iterator[dict[str, np.ndarray]]:
    """Yields the outputs of examples in the order of the examples in their source.

    The outputs of an example wait in memory until the outputs of all earlier examples
    have arrived.

    Args:
        outputs: {name: [B, ...]} for each batch. `ROW` has the indices of the examples;
            padding has the index -1, and its outputs are dropped.

    Yields:
        {name: [...]}, the outputs of each example.
    """
    waiting: dict[int, dict[str, np.ndarray]] = {}
    next_row = 0
    for batch in outputs:
        arrays = {name: np.asarray(value) for name, value in batch.items()}
        rows = arrays.pop(ROW)
        for i in np.flatnonzero(rows >= 0):
            waiting[int(rows[i])] = {name: value[i] for name, value in arrays.items()}
        while next_row in waiting:
            yield waiting.pop(next_row)
            next_row += 1


@dataclasses.dataclass(frozen=True)
class InputShard:
    """The rows of each batch that one input pipeline reads for its own replicas.

    Attributes:
        batch_size: B, the number of rows of all pipelines together.
        context: the numbers of pipelines and replicas, and the index of this pipeline;
            by default, one pipeline and one replica.
    """

    batch_size: int
    context: tf.distribute.InputContext = _ONE_DEVICE

    @property
    def rows(self) -> int:
        """Number of rows of each batch that this pipeline reads."""
        return self.batch_size // self.context.num_input_pipelines


def _take_rows(raw_records: tf.data.Dataset, shard: InputShard) -> tf.data.Dataset:
    """Groups single records, `shard.rows` at a time.

    A batch of B rows consists of consecutive groups: the first for pipeline 0, the
    second for pipeline 1, and so on. This function keeps the groups of this pipeline.
    """
    raw_records = raw_records.batch(shard.rows, drop_remainder=True)
    context = shard.context
    return raw_records.shard(context.num_input_pipelines, context.input_pipeline_id)


def _batches_to_sort(examples: int, batch_size: int) -> int:
    """Returns the number of batches in a group of `BucketedExamples`' training."""
    return max(1, min(_BATCHES_TO_SORT, examples // batch_size))


def _round_up(number: Any, multiple: int) -> Any:
    return -(-number // multiple) * multiple


def _divide_and_prefetch(
    dataset: tf.data.Dataset, shard: InputShard
) -> tf.data.Dataset:
    """Divides a pipeline's batches among its replicas, and prefetches some of them.

    The number of prefetched batches is fixed. TensorFlow's autotuning is off, because
    the autotuning thread can delay the deletion of an iterator by up to a minute.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    rows = shard.context.get_per_replica_batch_size(shard.batch_size)
    dataset = dataset.rebatch(rows, drop_remainder=True)
    return dataset.prefetch(_PREFETCHED * shard.rows // rows).with_options(options)
