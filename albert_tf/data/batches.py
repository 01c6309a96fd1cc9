"""Makes batches of examples from record files or from memory, with `tf.data`.

A dataset for training is endless and shuffled. A dataset for evaluation has each
example once. The examples of a training batch, and all random draws that prepare them,
depend only on the seed and on the position in the run, not on the number of devices or
restarts. So a run resumes from the number of examples seen, and saves no buffer.

B is the number of rows in the batch of all devices together.
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
# Prepares parsed records for the model, see `Records.prepare`.
Prepare = Callable[[Batch, int, tf.Tensor], Batch]
# The context of a run with one input pipeline and one replica.
_ONE_DEVICE = tf.distribute.InputContext()

# The name of the number of an example in its source; the number is -1 for padding.
ROW = "row"

# No function here branches on a tensor, so none needs AutoGraph. Converting functions
# with AutoGraph takes longer than building the graphs.
_without_autograph = tf.autograph.experimental.do_not_convert
# Number of records in the shuffle buffer; pretraining files are shuffled already.
_SHUFFLE_BUFFER = 10_000
_PARALLEL_FILES = 16
# Number of prefetched batches, and of parallel calls that parse records.
_PREFETCHED = 8
_PARALLEL_CALLS = 16
# Minimum number of rows in a call of `prepare`, because each call has a fixed cost.
_ROWS_TO_PREPARE = 512
# Training sorts the examples of _BATCHES_TO_SORT batches by length. Evaluation sorts
# _EXAMPLES_TO_SORT at a time, since their outputs wait in memory for the original
# order.
_BATCHES_TO_SORT = 50
_EXAMPLES_TO_SORT = 8192


@contextlib.contextmanager
def translate_errors(source: "Source", location: Callable[[], str]) -> Iterator[None]:
    """Turns TensorFlow's errors into InputError.

    TensorFlow's messages name an operation, not a record. If a record can be the cause
    of an error, `records.locate_error` searches for this record.

    Args:
        source: the source that is read in the block.
        location: returns the beginning of the message, such as the state of the run.

    Raises:
        InputError: TensorFlow failed, or an example cannot be used.
    """
    try:
        yield
    except (tf.errors.OpError, UnicodeDecodeError) as error:
        # UnicodeDecodeError: TensorFlow's message quotes a record that is no text.
        code = getattr(error, "error_code", tf.errors.DATA_LOSS)
        is_record_error = code in (tf.errors.DATA_LOSS, tf.errors.INVALID_ARGUMENT)
        if is_record_error and isinstance(source, Records):
            records.locate_error(source.files, source.spec, source.limits)
        message = errors.summarize(error)
        if code == tf.errors.RESOURCE_EXHAUSTED:
            message += "; expected more memory, smaller batches, or for training more "
            message += "--gradient_accumulation_steps or --recompute=block"
        raise InputError(f"{location()}: {message}") from error


@dataclasses.dataclass(frozen=True)
class Records:
    """Examples in record files.

    Attributes:
        files: TFRecord files, plain or compressed with gzip.
        sizes: number of records in each file.
        spec: the features to read.
        prepare: transforms a batch of examples; also takes the seed, and the positions
            of the examples in the run, int64 [B].
        limits: upper limits of the values of some features, see `records.parser`. The
            check takes 5 % of the time.
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
        """Makes an endless dataset, in which each epoch has another order.

        Args:
            shard: the rows to read of each batch.
            seed: decides the order and all random draws.
            start: number of examples that all pipelines together have read before.

        Returns:
            An endless dataset of {name: int32 or float32 [replica_batch_size, ...]}.
        """
        raw_records = _take_rows(self._read_epochs(seed, start), shard)
        if self.prepare is not None:
            raw_records = raw_records.batch(-(-_ROWS_TO_PREPARE // shard.rows))
        dataset = self._parse(raw_records, seed)
        dataset = dataset.map(_without_autograph(lambda _, batch: batch))
        return _divide_and_prefetch(dataset, shard)

    def evaluation(
        self, shard: "InputShard", *, max_batches: int | None = None
    ) -> tf.data.Dataset:
        """Makes a dataset that has each example once.

        Padding examples complete the last batch of a source or group. The feature
        `example_weight`, float32 [replica_batch_size], is 1 for an example and 0 for
        padding. `row`, int32 [replica_batch_size], is the number of the example in the
        source, and -1 for padding.

        Args:
            shard: the rows to read of each batch.
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
        def read_epoch(number):
            files = tf.random.experimental.stateless_shuffle(
                self._files_to_read(), tf.stack([seed, number])
            )
            # The order of these elements makes this seed differ from the one above.
            shuffle_seed = tf.random.stateless_uniform(
                [], tf.stack([number, seed]), maxval=2**31 - 1, dtype=tf.int64
            )
            buffer = min(_SHUFFLE_BUFFER, len(self))
            return self._read(files).shuffle(
                buffer, shuffle_seed, reshuffle_each_iteration=False
            )

        epoch, skipped = divmod(start, len(self))
        epochs = tf.data.Dataset.counter(epoch).flat_map(read_epoch)
        return epochs.skip(skipped).enumerate(start)

    def _files_to_read(self) -> tf.Tensor:
        """Returns string [n, 2]: the name and the compression of each file."""
        return tf.constant([(file, records.compression(file)) for file in self.files])

    def _read(self, files: tf.Tensor) -> tf.data.Dataset:
        """Reads serialised examples, alternately from up to 16 of the files."""
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
            items: positions in the run and serialised examples, each [N], or [n, N] for
                n batches that are parsed and prepared together.
            seed: the seed for `prepare`.

        Returns:
            A dataset of positions and of the features of their examples.
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
    """Examples in memory, in batches of similar length with little padding.

    Training sorts the examples of a group of batches by length, divides them into
    batches and shuffles these batches. A run with another batch size has other groups,
    so it resumes only at about the same position. A dataset holds no reference to its
    source: the caller must keep the source as long as the dataset.

    Attributes:
        lengths: int [n], number of tokens of each example.
        make: makes a batch from the numbers of its examples, int [B], and a length T;
            returns {name: int32 or float32 [B, ...]}.
        longest: maximum of the length T.
        multiple: batches are padded to a multiple of this number, at most to `longest`.
            With 0, all batches are padded to `longest`.
    """

    lengths: np.ndarray
    make: Callable[[np.ndarray, int], Mapping[str, np.ndarray]]
    longest: int
    multiple: int = 8

    def __len__(self) -> int:
        """Returns the number of examples."""
        return len(self.lengths)

    def training(self, shard, *, seed, start=0) -> tf.data.Dataset:
        """See `Records.training`."""
        size = shard.batch_size

        def generate(source):
            group_batches = _batches_to_sort(len(source), size)
            group, skipped = divmod(start // size, group_batches)
            while True:
                begin = group * group_batches * size
                yield from source._shuffle(begin, seed, size)[skipped:]
                group, skipped = group + 1, 0

        return self._dataset(generate, shard, with_numbers=False)

    def evaluation(self, shard, *, max_batches=None) -> tf.data.Dataset:
        """See `Records.evaluation`.

        About 8,192 examples at a time are sorted by length. `unshuffle` restores the
        order.
        """
        size = shard.batch_size
        count = len(self)
        if max_batches is not None:
            count = min(count, max_batches * size)

        def generate(source):
            group_examples = max(1, _EXAMPLES_TO_SORT // size) * size
            for begin in range(0, count, group_examples):
                rows = np.arange(begin, min(begin + group_examples, count))
                rows = rows[np.argsort(source.lengths[rows], kind="stable")]
                padding = np.full(-len(rows) % size, -1)
                yield from np.concatenate([padding, rows]).reshape(-1, size)

        return self._dataset(generate, shard, with_numbers=True)

    def _shuffle(self, begin: int, seed: int, size: int) -> np.ndarray:
        """Returns the examples of each batch in a training group, in random order.

        Args:
            begin: the position in the run of the first example of the group.
            seed: decides the order.
            size: the batch size.

        Returns:
            int [n, size], the numbers of the examples.
        """
        count = _batches_to_sort(len(self), size) * size
        epochs, positions = np.divmod(np.arange(begin, begin + count), len(self))
        rows = np.concatenate(
            [
                np.random.default_rng([seed, epoch]).permutation(len(self))[
                    positions[epochs == epoch]
                ]
                for epoch in np.unique(epochs)
            ]
        )
        # Sort within epochs: else copies of an example from two epochs are neighbours.
        rows = rows[np.lexsort((self.lengths[rows], epochs))].reshape(-1, size)
        # The 1 makes this seed differ from the seeds of epochs.
        return np.random.default_rng([seed, begin, 1]).permutation(rows)

    def _dataset(self, generate, shard, with_numbers) -> tf.data.Dataset:
        """Makes a dataset from the numbers of the examples.

        Args:
            generate: yields for each batch the numbers of its examples, int [B], with
                -1 for padding; takes this object as an argument.
            shard: the rows to read of each batch.
            with_numbers: whether batches have `row` and `example_weight`.
        """
        # TensorFlow never releases the generator function, so this function must not
        # hold the examples.
        source = weakref.proxy(self)

        def make(rows, length, padding_row=0):
            batch = source.make(np.where(rows >= 0, rows, padding_row), length)
            if not with_numbers:
                return batch
            weight = (rows >= 0).astype(np.float32)
            return {**batch, ROW: rows.astype(np.int32), "example_weight": weight}

        def pipeline_batches():
            for rows in generate(source):
                length = source.longest
                if source.multiple:
                    tokens = int(source.lengths[rows[rows >= 0]].max())
                    length = min(_round_up(tokens, source.multiple), length)
                first = shard.context.input_pipeline_id * shard.rows
                part = rows[first : first + shard.rows]
                # The last row is never padding, so its example can fill padding rows.
                yield make(part, length, padding_row=rows[-1])

        def to_spec(value, other):
            sizes = zip(value.shape[1:], other.shape[1:], strict=True)
            shape = [a if a == b else None for a, b in sizes]
            return tf.TensorSpec([shard.rows, *shape], value.dtype)

        # A spec has None for each size that depends on the length of the batch. Two
        # samples of different lengths show these sizes. If `multiple` is 0, all batches
        # have the same length.
        row = np.zeros(1, np.int64)
        lengths = self.longest, self.longest + (1 if self.multiple else 0)
        samples = (make(row, length) for length in lengths)
        dataset = tf.data.Dataset.from_generator(
            pipeline_batches, output_signature=tf.nest.map_structure(to_spec, *samples)
        )
        return _divide_and_prefetch(dataset, shard)


Source = Records | BucketedExamples


def unshuffle(
    outputs: Iterable[Mapping[str, Any]],
) -> Iterator[dict[str, np.ndarray]]:
    """Puts outputs in the order of a source's examples.

    Args:
        outputs: {name: [B, ...]} for each batch. The numbers of the examples have the
            name `ROW`; padding has the number -1. The outputs of an example wait in
            memory until the outputs of all earlier examples have arrived.

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
        batch_size: number of rows of all pipelines, B.
        context: the pipelines and replicas; by default, there is one of each.
    """

    batch_size: int
    context: tf.distribute.InputContext = _ONE_DEVICE

    @property
    def rows(self) -> int:
        """Number of rows of this pipeline in each batch."""
        return self.batch_size // self.context.num_input_pipelines


def _take_rows(raw_records: tf.data.Dataset, shard: InputShard) -> tf.data.Dataset:
    """Takes the rows that one pipeline reads of each batch, as one batch."""
    raw_records = raw_records.batch(shard.rows, drop_remainder=True)
    context = shard.context
    return raw_records.shard(context.num_input_pipelines, context.input_pipeline_id)


def _batches_to_sort(examples: int, batch_size: int) -> int:
    """Returns the number of batches in a group, which training sorts by length."""
    return max(1, min(_BATCHES_TO_SORT, examples // batch_size))


def _round_up(number: Any, multiple: int) -> Any:
    return -(-number // multiple) * multiple


def _divide_and_prefetch(
    dataset: tf.data.Dataset, shard: InputShard
) -> tf.data.Dataset:
    """Divides batches among replicas, and prefetches a fixed number of them.

    TensorFlow would tune this number in a thread that can delay the deletion of an
    iterator by up to a minute.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    rows = shard.context.get_per_replica_batch_size(shard.batch_size)
    dataset = dataset.rebatch(rows, drop_remainder=True)
    return dataset.prefetch(_PREFETCHED * shard.rows // rows).with_options(options)
