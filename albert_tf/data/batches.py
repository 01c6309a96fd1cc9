"""Batches: endless, shuffled and resumable, or once and in order.

Which examples a batch holds depends on the seed and on its place in the run alone:
neither on the number of devices nor on how often the run was stopped. So a run resumes
from a number, the examples seen so far, and no buffer has to be saved. What is drawn to
prepare an example depends on the seed and on its place in the run alone.

B is the batch of all devices together.
"""

import abc
import contextlib
import dataclasses
import functools
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from albert_tf import errors
from albert_tf.data import cores, records
from albert_tf.errors import InputError

if TYPE_CHECKING:
    import tensorflow as tf

    Batch = dict[str, tf.Tensor]
    Prepare = Callable[[Batch, int, tf.Tensor], Batch]

# Records are drawn from as many; the generator's files are shuffled already.
_SHUFFLE_BUFFER = 10_000
_FILES_AT_ONCE = 16
# Batches that are made before they are asked for, and calls that prepare them.
_BATCHES_AHEAD = 8
_CALLS_AT_ONCE = 16
# Rows that are prepared together: preparing has costs for each call.
_ROWS_TO_PREPARE = 512
# Batches of like length are made from the examples of so many batches in training, and
# in evaluation from so many examples, whose outputs wait to be put in order. Records
# are parsed before: training takes no more of them at once, either.
_BATCHES_TO_SORT = 50
_EXAMPLES_TO_SORT = 8192


@contextlib.contextmanager
def translated_errors(source: "Source", where: Callable[[], str]) -> Iterator[None]:
    """Turns TensorFlow's errors into InputError.

    They name an operation and not the record that it met: the source looks for it,
    where it may be a record's fault and not that of the memory or of another worker.

    Args:
        source: what is read in the block.
        where: what the block was at, for the message.

    Raises:
        InputError: TensorFlow failed, or met an example that cannot be used.
    """
    import tensorflow as tf

    kinds = tf.errors
    # UnicodeDecodeError: TensorFlow's message quotes a record that is no text.
    of_records = (kinds.DataLossError, kinds.InvalidArgumentError, UnicodeDecodeError)
    try:
        yield
    except (kinds.OpError, UnicodeDecodeError) as error:
        if isinstance(error, of_records):
            source.locate_error()
        hint = ""
        if isinstance(error, kinds.ResourceExhaustedError):
            hint = "; expected more memory, smaller batches, or for training more "
            hint += "--gradient_accumulation_steps or --recompute=block"
        raise InputError(f"{where()}: {errors.summarize(error)}{hint}") from error


class Source(abc.ABC):
    """Where examples come from."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """Returns the number of examples."""

    def locate_error(self) -> None:  # noqa: B027 (not all sources can tell)
        """Looks for an example that cannot be used, after TensorFlow has failed on one.

        Raises:
            InputError: there is one; the message names it.
        """

    @abc.abstractmethod
    def training(
        self, share: "Share", *, seed: int, start: int = 0
    ) -> "tf.data.Dataset":
        """Reads examples over and over, in another order each time.

        Args:
            share: which rows of each batch are wanted.
            seed: decides the order, and what is drawn.
            start: examples that were seen before, by all pipelines.

        Returns:
            An endless dataset of {name: int32 or float32 [replica_batch_size, ...]}.
        """

    @abc.abstractmethod
    def evaluation(
        self, share: "Share", *, max_batches: int | None = None
    ) -> "tf.data.Dataset":
        """Reads the examples once.

        The last batch is filled up with examples of no weight: `example_weight`,
        float32 [replica_batch_size], is 1 for a true one and 0 for these; `row`, int32
        [replica_batch_size], is the number of the example, and -1.

        Args:
            share: which rows of each batch are wanted.
            max_batches: where to stop; None reads everything.

        Returns:
            A dataset of {name: int32 or float32 [replica_batch_size, ...]}.
        """


@dataclasses.dataclass(frozen=True)
class Records(Source):
    """Examples in record files, which are read in order in evaluation.

    Attributes:
        files: TFRecord files, plain or all compressed with gzip.
        sizes: records in each file.
        spec: the features to read.
        prepare: what is done to a batch of examples, with the seed and int64 [B], the
            place of each in the run; None for nothing.
        limits: what all values of some features are below, see `records.parser`.
        padded: features that are 0 in padding alone, and those that end where they do.
            With some, the rows of a batch in training are alike in the first's length,
            and its features are cut to the longest row. A run then resumes with the
            same batches, but with another batch size at about the same place.
        multiple: of what such features are cut to, see `ByLength`.
        are_trusted: whether the records are this package's own, as they were made, so
            that `limits` need not be checked of each batch, at 5 % of the time.
    """

    files: tuple[str, ...]
    sizes: tuple[int, ...]
    spec: records.Spec
    prepare: "Prepare | None" = None
    limits: records.Limits = dataclasses.field(default_factory=dict)
    padded: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    multiple: int = 8
    are_trusted: bool = False

    def __len__(self) -> int:
        """Returns the number of examples."""
        return sum(self.sizes)

    def locate_error(self):
        records.locate_error(self.files, self.spec, self.limits)

    def training(self, share, *, seed, start=0):
        if self.padded:
            return _by_length(self, share, seed, start)
        lines = self._numbered(seed, start).batch(share.rows, drop_remainder=True)
        lines = lines.shard(share.pipelines, share.pipeline)
        return _parsed(lines, self, share, seed)

    def evaluation(self, share, *, max_batches=None):
        import tensorflow as tf

        lines = _read(tf.constant(self.files), self)
        count = len(self)
        if max_batches is not None:
            count = min(count, max_batches * share.batch_size)
            lines = lines.take(count)
        fillers = -count % share.batch_size
        lines = lines.concatenate(lines.take(1).repeat(fillers)).enumerate()
        lines = lines.batch(share.rows, drop_remainder=True)
        lines = lines.shard(share.pipelines, share.pipeline)
        return _parsed(lines, self, share, 0, count)

    def _numbered(self, seed: int, start: int) -> "tf.data.Dataset":
        """Reads serialised examples for training, each with its place in the run."""
        epoch, skipped = divmod(start, len(self))
        return _epochs(self, seed, epoch).skip(skipped).enumerate(start)


@dataclasses.dataclass(frozen=True)
class ByLength(Source):
    """Examples in memory, in batches of like length, padded no more than they need.

    In training the examples of some batches are sorted, cut, and the batches shuffled.
    So with another batch size a run resumes at about the same place.
    A source has to live as long as its datasets, which do not hold it.

    Attributes:
        lengths: int [n], tokens of each example.
        make: takes numbers of examples, int [B], and a length T; returns
            {name: int32 or float32 [B, ...]}.
        longest: length of no example is above it.
        multiple: batches are padded to a multiple of it, `longest` at most; 0 pads all
            to `longest`.
    """

    lengths: np.ndarray
    make: Callable[[np.ndarray, int], Mapping[str, np.ndarray]]
    longest: int
    multiple: int = 8

    def __len__(self) -> int:
        return len(self.lengths)

    def training(self, share, *, seed, start=0):
        size = share.batch_size

        def batches(source):
            sorted_together = _sorted_together(len(source), size)
            # The next batches begin in the epoch that these end in.
            order = functools.lru_cache(1)(functools.partial(source._order, seed))
            number, skipped = divmod(start // size, sorted_together)
            while True:
                first = number * sorted_together * size
                rows = source._shuffled(first, seed, size, order)
                yield from rows.reshape(sorted_together, size)[skipped:]
                number, skipped = number + 1, 0

        return self._dataset(batches, share, lambda rows, batch: batch)

    def evaluation(self, share, *, max_batches=None):
        # In every 8,192 examples or so the shortest come first; `in_order` undoes it.
        size = share.batch_size
        count = len(self)
        if max_batches is not None:
            count = min(count, max_batches * size)

        def batches(source):
            together = max(1, _EXAMPLES_TO_SORT // size) * size
            for first in range(0, count, together):
                rows = np.arange(first, min(first + together, count))
                rows = rows[np.argsort(source.lengths[rows], kind="stable")]
                fillers = np.full(-len(rows) % size, -1)
                yield from np.concatenate([fillers, rows]).reshape(-1, size)

        return self._dataset(
            batches,
            share,
            lambda rows, batch: {
                **batch,
                "row": rows.astype(np.int32),
                "example_weight": (rows >= 0).astype(np.float32),
            },
        )

    def _order(self, seed: int, epoch: int) -> np.ndarray:
        """Returns the numbers of all examples in the order of an epoch."""
        return np.random.default_rng([seed, epoch]).permutation(len(self))

    def _shuffled(
        self,
        first: int,
        seed: int,
        batch_size: int,
        order: Callable[[int], np.ndarray],
    ) -> np.ndarray:
        """Returns the examples of the batches that are sorted together."""
        count = _sorted_together(len(self), batch_size) * batch_size
        epochs, places = np.divmod(np.arange(first, first + count), len(self))
        rows = np.concatenate(
            [order(epoch)[places[epochs == epoch]] for epoch in np.unique(epochs)]
        )
        # Epochs apart: else the two copies of an example would be neighbours.
        rows = rows[np.lexsort((self.lengths[rows], epochs))].reshape(-1, batch_size)
        return np.random.default_rng([seed, first, 1]).permutation(rows)

    def _padded(self, longest: int) -> int:
        if not self.multiple:
            return self.longest
        return min(_rounded_up(longest, self.multiple), self.longest)

    def _dataset(self, batches, share, finish) -> "tf.data.Dataset":
        import tensorflow as tf

        # TensorFlow never releases the function: it must not hold the examples.
        source = weakref.proxy(self)

        def replica_batches():
            for rows in batches(source):
                length = source._padded(int(source.lengths[rows[rows >= 0]].max()))
                own = rows[share.pipeline * share.rows :][: share.rows]
                for numbers in own.reshape(-1, share.per_replica):
                    # The last one is never a filler.
                    examples = np.where(numbers >= 0, numbers, rows[-1])
                    yield finish(numbers, source.make(examples, length))

        def spec(value, longer):
            sizes = zip(value.shape[1:], longer.shape[1:], strict=True)
            shape = [size if size == other else None for size, other in sizes]
            return tf.TensorSpec([share.per_replica, *shape], value.dtype)

        one = np.zeros(1, np.int64)
        longer = self.longest + 1 if self.multiple else self.longest
        ends = (finish(one, self.make(one, n)) for n in (self.longest, longer))
        dataset = tf.data.Dataset.from_generator(
            replica_batches, output_signature=tf.nest.map_structure(spec, *ends)
        )
        return _ahead(dataset, share)


def in_order(
    outputs: Iterator[tuple[np.ndarray, Mapping[str, np.ndarray]]],
) -> Iterator[Mapping[str, np.ndarray]]:
    """Puts outputs of a source's examples in the examples' order.

    Args:
        outputs: batch by batch, the numbers of its rows, -1 for fillers, and
            {name: [B, ...]}. What cannot be passed on yet is kept in memory.

    Yields:
        {name: [...]} of one example after the other.
    """
    waiting: dict[int, Mapping[str, np.ndarray]] = {}
    following = 0
    for rows, values in outputs:
        for i in np.flatnonzero(rows >= 0):
            waiting[int(rows[i])] = {name: value[i] for name, value in values.items()}
        while following in waiting:
            yield waiting.pop(following)
            following += 1


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

    @property
    def per_replica(self) -> int:
        """Rows of one replica in each batch."""
        return self.replica_batch_size or self.rows


def _epochs(source: Records, seed: int, first: int) -> "tf.data.Dataset":
    """Returns the serialised examples of all epochs from one on, one after another."""
    import tensorflow as tf

    @tf.autograph.experimental.do_not_convert
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


def _read(files: "tf.Tensor", source: Records) -> "tf.data.Dataset":
    import tensorflow as tf

    compression = records.compression(source.files)
    at_once = min(_FILES_AT_ONCE, len(source.files))
    return tf.data.Dataset.from_tensor_slices(files).interleave(
        tf.autograph.experimental.do_not_convert(
            lambda file: tf.data.TFRecordDataset(file, compression)
        ),
        cycle_length=at_once,
        num_parallel_calls=min(cores.available(), at_once),
        deterministic=True,
    )


def _sorted_together(examples: int, batch_size: int) -> int:
    """Returns from how many batches those of like length are made in training."""
    return max(1, min(_BATCHES_TO_SORT, examples // batch_size))


def _rounded_up(number: Any, multiple: int) -> Any:
    return -(-number // multiple) * multiple


def _by_length(
    source: Records, share: Share, seed: int, start: int
) -> "tf.data.Dataset":
    """Makes batches of like length for training.

    As in `ByLength`: the examples of some batches are sorted, cut, and the batches
    shuffled. Every pipeline reads them all and takes its rows of each batch.
    """
    import tensorflow as tf

    size = share.batch_size
    together = _sorted_together(min(len(source), _EXAMPLES_TO_SORT), size)
    group, skipped = divmod(start // size, together)
    lines = source._numbered(seed, group * together * size)
    lines = lines.batch(together * size, drop_remainder=True)
    replicas = share.rows // share.per_replica
    first = next(iter(source.padded))
    as_written = tf.autograph.experimental.do_not_convert

    def grouped(places, batch):
        lengths = {mask: _ends(batch[mask]) for mask in source.padded}
        tokens = lengths[first]
        # Epochs apart: else the two copies of an example would be neighbours.
        epochs = tf.cast(places // len(source), tf.int32)
        order = tf.argsort(epochs * (tf.reduce_max(tokens) + 1) + tokens, stable=True)
        order = tf.random.experimental.stateless_shuffle(
            tf.reshape(order, [together, size]), tf.stack([seed, places[0]])
        )
        longest = {
            mask: tf.repeat(tf.reduce_max(tf.gather(each, order), axis=1), replicas)
            for mask, each in lengths.items()
        }
        own = order[:, share.pipeline * share.rows :][:, : share.rows]
        own = tf.reshape(own, [-1, share.per_replica])
        rows = tf.data.Dataset.from_tensor_slices((own, longest))
        return rows.map(as_written(functools.partial(cut, batch)))

    def cut(batch, rows, longest):
        taken = {name: tf.gather(value, rows) for name, value in batch.items()}
        for mask, others in source.padded.items():
            length = _rounded_up(tf.maximum(longest[mask], 1), source.multiple)
            length = tf.minimum(length, batch[mask].shape[1])
            for name in taken.keys() & {mask, *others}:
                taken[name] = taken[name][:, :length]
        return taken

    # The next group is made while one is trained on.
    groups = _prepared(lines, source, seed, calls=1).prefetch(1)
    dataset = groups.flat_map(as_written(grouped))
    return _ahead(dataset.skip(skipped * replicas), share)


def _ends(values: "tf.Tensor") -> "tf.Tensor":
    """Returns the place behind the last positive number of each row, int32 [B]."""
    import tensorflow as tf

    places = tf.range(1, values.shape[1] + 1)
    return tf.reduce_max(tf.where(values > 0, places, 0), axis=1)


def _prepared(
    lines: "tf.data.Dataset", source: Records, seed: int, calls: int = _CALLS_AT_ONCE
) -> "tf.data.Dataset":
    """Parses batches of numbered lines, so many at once, and prepares them."""
    import tensorflow as tf

    limits = None if source.are_trusted else source.limits
    parse = records.parser(source.spec, limits)
    prepare = source.prepare

    # Nothing here branches on a tensor; to look for it takes longer than the graphs.
    as_written = tf.autograph.experimental.do_not_convert

    def work(places, serialised):
        return tf.reshape(places, [-1]), parse(tf.reshape(serialised, [-1]))

    calls = min(cores.available(), calls)
    dataset = lines.map(as_written(work), num_parallel_calls=calls, deterministic=True)
    if prepare is None:
        return dataset
    return dataset.map(
        as_written(lambda places, batch: (places, prepare(batch, seed, places)))
    )


def _parsed(
    lines: "tf.data.Dataset",
    source: Records,
    share: Share,
    seed: int,
    count: int | None = None,
) -> "tf.data.Dataset":
    """Parses and prepares batches of numbered lines; cuts them for replicas.

    Args:
        lines: batches of (int64 [rows], string [rows]).
        source: what they are of.
        share: how to cut them.
        seed: what is drawn depends on it.
        count: examples from this number on are fillers; None for training.
    """
    import tensorflow as tf

    per_replica = share.per_replica

    def cut(places, batch):
        if count is not None:
            row = tf.where(places < count, places, -1)
            weight = tf.cast(row >= 0, tf.float32)
            row = tf.cast(row, tf.int32)
            batch = {**batch, "row": row, "example_weight": weight}
        return {
            name: tf.reshape(value, [-1, per_replica, *value.shape[1:]])
            for name, value in batch.items()
        }

    if source.prepare is not None and count is None:
        lines = lines.batch(-(-_ROWS_TO_PREPARE // share.rows))
    cut = tf.autograph.experimental.do_not_convert(cut)
    return _ahead(_prepared(lines, source, seed).map(cut).unbatch(), share)


def _ahead(dataset: "tf.data.Dataset", share: Share) -> "tf.data.Dataset":
    """Makes a fixed number of batches ahead: no thread tunes it.

    Such a thread may miss that its iterator ends, and sleeps on for up to a minute; who
    drops the iterator, maybe the garbage collector in the midst of training, waits.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    replicas = share.rows // share.per_replica
    return dataset.prefetch(_BATCHES_AHEAD * replicas).with_options(options)
