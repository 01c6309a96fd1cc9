"""Devices of a run, and communication between its workers, by `tf.distribute`."""

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence

import keras
import tensorflow as tf

from albert_tf.errors import InputError
from albert_tf.train.settings import DistributionSettings


def create(config: DistributionSettings) -> tf.distribute.Strategy:
    """Creates the strategy for the devices of a run.

    Call this function before any other use of TensorFlow, because TensorFlow's devices
    cannot be configured after their first use.

    Several workers run the same command. They find each other by `TF_CONFIG` (see
    `tf.distribute.cluster_resolver.TFConfigClusterResolver`), or by Slurm's variables
    if `srun` has started them.

    Returns:
        The strategy: OneDevice, Mirrored, MultiWorkerMirrored or TPU.

    Raises:
        InputError: the TPU cannot be found or has another number of cores; or the
            workers cannot be found or connected.
    """
    if config.use_tpu:
        return _connect_tpu(config)
    if config.cpu_devices > 1:
        [cpu] = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * config.cpu_devices
        )
    kind = config.distribution
    if kind == "multi_worker" or (kind == "auto" and _has_worker_variables()):
        return _connect_workers()
    gpus = tf.config.list_logical_devices("GPU")
    if kind == "mirrored" or (kind == "auto" and len(gpus) > 1):
        devices = gpus or tf.config.list_logical_devices("CPU")
        return tf.distribute.MirroredStrategy([device.name for device in devices])
    return tf.distribute.OneDeviceStrategy("GPU:0" if gpus else "CPU:0")


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process writes the files of the run."""
    return strategy.extended.should_checkpoint


def is_multi_worker(strategy: tf.distribute.Strategy) -> bool:
    """Whether several processes train together."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def choose_pad_multiple(strategy: tf.distribute.Strategy, xla: bool | None) -> int:
    """Chooses a number of tokens. Batches are padded to a multiple of this number.

    If XLA compiles the forward and backward pass, it compiles again for each length of
    a batch. So there should be few lengths. On a CPU without `xla`, XLA compiles at
    most the GELU function. This takes only 35 ms for each length, so there may be many
    lengths.

    Args:
        strategy: the devices.
        xla: whether XLA compiles the forward and backward pass; None means only on
            GPUs.

    Returns:
        The number of tokens; 0 means to pad all batches to the maximum length.
    """
    if isinstance(strategy, tf.distribute.TPUStrategy):
        return 0
    if tf.config.list_logical_devices("GPU"):
        return 64
    return 8 if xla else 1


def all_reduce_sum(
    strategy: tf.distribute.Strategy, values: Sequence[float]
) -> list[float]:
    """Returns the sum of each of the `values` over the replicas of all workers.

    Each replica adds the `values` of its worker, in float32. The function returns only
    after all workers have called it.
    """

    def add():
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(values))

    sums = strategy.run(tf.function(add, autograph=False))
    return strategy.experimental_local_results(sums)[0].numpy().tolist()


@contextlib.contextmanager
def wrap_lost_worker(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Turns the errors of a lost worker in the `with` block into InputError.

    If a worker dies or hangs, TensorFlow's coordination service makes all collective
    operations of the other workers fail. So with several workers, each error of a type
    in `lost` is taken as the sign of a lost worker.
    """
    lost: tuple = (tf.errors.UnavailableError, tf.errors.DeadlineExceededError)
    lost += (tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.InternalError)
    try:
        yield
    except lost as error:
        if not is_multi_worker(strategy):
            raise
        raise InputError(
            "lost another worker: it ended (see its log) or does not respond; run the "
            "same command on all workers to resume"
        ) from error


def fold_in_replica_id(strategy: tf.distribute.Strategy, model: keras.Model) -> None:
    """Makes the dropout seeds of all replicas different.

    Seed generators start in the same state on all replicas. The first replica keeps
    this state, and each other replica adds its id.
    """
    if strategy.num_replicas_in_sync == 1:
        return

    def get_replica_id():
        return tf.distribute.get_replica_context().replica_id_in_sync_group

    ids = strategy.experimental_local_results(strategy.run(get_replica_id))
    # The only variables that are not trained are the states of seed generators. A state
    # is [seed, counter].
    for variable in model.non_trainable_variables:
        values = strategy.experimental_local_results(variable.value)
        for replica, value in zip(ids, values, strict=True):
            value.assign(value + tf.constant([int(replica), 0], value.dtype))


def _has_worker_variables() -> bool:
    """Whether TF_CONFIG is set, or srun started this process as one of several."""
    in_slurm_step = int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1
    return "TF_CONFIG" in os.environ or in_slurm_step


def _connect_workers() -> tf.distribute.Strategy:
    """Finds and connects the workers."""
    if not _has_worker_variables():
        raise InputError(
            "--distribution=multi_worker: needs TF_CONFIG in the environment, or a "
            "start with Slurm's srun"
        )
    resolvers = tf.distribute.cluster_resolver
    source, resolver_class = "Slurm (needs GPUs)", resolvers.SlurmClusterResolver
    if "TF_CONFIG" in os.environ:
        source, resolver_class = "TF_CONFIG", resolvers.TFConfigClusterResolver
    handler = signal.getsignal(signal.SIGTERM)
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(resolver_class())
    # Slurm's resolver runs `nvidia-smi`. OSError means that there is no such program.
    except (ValueError, KeyError, RuntimeError, OSError, tf.errors.OpError) as error:
        raise InputError(f"{source}: cannot connect the workers: {error}") from None
    finally:
        # The strategy has installed a handler of its own, which hides SIGTERM from the
        # run. Restore the previous handler.
        signal.signal(signal.SIGTERM, handler or signal.SIG_DFL)


def _connect_tpu(config: DistributionSettings) -> tf.distribute.Strategy:
    """Connects to a TPU."""
    name = config.tpu_name or config.master or "local"
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=name, zone=config.tpu_zone, project=config.gcp_project
        )
        if name != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, tf.errors.OpError) as error:
        raise InputError(f"--use_tpu: cannot connect to {name!r}: {error}") from None
    strategy = tf.distribute.TPUStrategy(resolver)
    cores = strategy.num_replicas_in_sync
    if config.num_tpu_cores not in (None, cores):
        raise InputError(
            f"--num_tpu_cores={config.num_tpu_cores}: the TPU {name!r} has {cores}"
        )
    return strategy
