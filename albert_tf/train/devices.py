"""Which devices a run uses, and what its workers agree on: `tf.distribute`."""

import contextlib
import dataclasses
import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from albert_tf import flags
from albert_tf.errors import InputError

if TYPE_CHECKING:
    import keras
    import tensorflow as tf


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistributionSettings(flags.Settings):
    """Devices.

    Raises:
        InputError: two settings contradict each other.
    """

    distribution: Literal["auto", "one_device", "mirrored", "multi_worker", "tpu"] = (
        flags.field(
            "Distribution strategy. auto: the TPU with --use_tpu, several workers with "
            "TF_CONFIG or Slurm, otherwise all GPUs or the CPU. mirrored: all GPUs, or "
            "--cpu_devices.",
            "auto",
        )
    )
    cpu_devices: int = flags.field(
        "Number of logical CPU devices, to try --distribution=mirrored without GPUs.",
        1,
        at_least=1,
    )
    use_tpu: bool = flags.field("Run on a TPU. Alias of --distribution=tpu.", False)
    tpu_name: str | None = flags.field(
        "Name or grpc:// address of the TPU. Default: the TPU of this machine.",
        None,
    )
    tpu_zone: str | None = flags.field("Zone of the TPU.", None)
    gcp_project: str | None = flags.field("Google Cloud project of the TPU.", None)
    master: str | None = flags.field("Alias of --tpu_name.", None)
    num_tpu_cores: int | None = flags.field(
        "Number of cores that the TPU must have. Default: any number.",
        None,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cpu_devices > 1 and self.distribution != "mirrored":
            raise InputError(
                f"--cpu_devices={self.cpu_devices}: expected --distribution=mirrored "
                f"with it"
            )
        if self.use_tpu and self.distribution not in ("auto", "tpu"):
            raise InputError(
                f"--use_tpu and --distribution={self.distribution}: give one of them"
            )
        if not self.takes_tpu:
            for name in (
                *("tpu_name", "tpu_zone", "gcp_project", "master"),
                "num_tpu_cores",
            ):
                if getattr(self, name):
                    raise InputError(
                        f"--{name}={getattr(self, name)}: expected --use_tpu with it"
                    )

    @property
    def takes_tpu(self) -> bool:
        """Whether a TPU is asked for."""
        return self.use_tpu or self.distribution == "tpu"


def create(config: DistributionSettings) -> "tf.distribute.Strategy":
    """Finds the devices. Call it before TensorFlow does anything else.

    Several workers run the same command. They find each other by `TF_CONFIG` (see
    `tf.distribute.cluster_resolver.TFConfigClusterResolver`) or, started by `srun`, by
    Slurm's own variables.

    Returns:
        The strategy: OneDevice, Mirrored, MultiWorkerMirrored or TPU.

    Raises:
        InputError: the TPU cannot be found or has another number of cores.
    """
    import tensorflow as tf

    if config.takes_tpu:
        return _tpu(config)
    if config.cpu_devices > 1:
        [cpu] = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * config.cpu_devices
        )
    kind = config.distribution
    if kind == "multi_worker" or (kind == "auto" and _names_workers()):
        return _multi_worker()
    gpus = tf.config.list_logical_devices("GPU")
    if kind == "mirrored" or (kind == "auto" and len(gpus) > 1):
        devices = gpus or tf.config.list_logical_devices("CPU")
        return tf.distribute.MirroredStrategy([device.name for device in devices])
    return tf.distribute.OneDeviceStrategy("GPU:0" if gpus else "CPU:0")


def is_chief(strategy: "tf.distribute.Strategy") -> bool:
    """Whether this process writes the files of the run."""
    resolver = strategy.cluster_resolver
    if resolver is None or not resolver.task_type:
        return True
    if resolver.task_type == "worker":
        has_chief = "chief" in resolver.cluster_spec().as_dict()
        return resolver.task_id == 0 and not has_chief
    return resolver.task_type == "chief"


def is_multi_worker(strategy: "tf.distribute.Strategy") -> bool:
    """Whether several processes train together."""
    import tensorflow as tf

    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def pad_multiple(strategy: "tf.distribute.Strategy", xla: bool | None) -> int:
    """Returns what batches of like length are padded to a multiple of.

    What is compiled is compiled for each length anew, so there should be few there.
    GELU alone, on a CPU in low precision, takes some 35 ms and asks for none.
    0 stands for one length for all, as on a TPU.

    Args:
        strategy: the devices.
        xla: whether whole steps are compiled; None: on GPUs.
    """
    import tensorflow as tf

    if isinstance(strategy, tf.distribute.TPUStrategy):
        return 0
    if tf.config.list_logical_devices("GPU"):
        return 64
    return 8 if xla else 1


def all_reduce_sum(
    strategy: "tf.distribute.Strategy", own: Sequence[float]
) -> list[float]:
    """Sums float32 numbers over the replicas of all workers, one by one."""
    import tensorflow as tf

    def total():
        replicas = tf.distribute.get_replica_context()
        return replicas.all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(own))

    totals = strategy.run(tf.function(total, autograph=False))
    return strategy.experimental_local_results(totals)[0].numpy().tolist()


def barrier(strategy: "tf.distribute.Strategy") -> None:
    """Returns once every worker has called it."""
    if is_multi_worker(strategy):
        all_reduce_sum(strategy, [0.0])


@contextlib.contextmanager
def worker_errors(strategy: "tf.distribute.Strategy") -> Iterator[None]:
    """Turns the errors that TensorFlow raises for a lost worker into InputError.

    Its coordination service notices a worker that died or hangs, and then fails every
    collective operation of the others.
    """
    import tensorflow as tf

    lost = (
        *(tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.InternalError),
        *(tf.errors.DeadlineExceededError, tf.errors.CancelledError),
    )
    try:
        yield
    except lost as error:
        if not is_multi_worker(strategy):
            raise
        raise InputError(
            "another worker was lost: it ended, see its log, or does not answer; the "
            "same command on all workers resumes"
        ) from error


def fold_in_replica_id(
    strategy: "tf.distribute.Strategy", model: "keras.Model"
) -> None:
    """Lets every replica drop other values; the first keeps the seeds it has.

    The states of the seed generators are equal on all replicas, and each replica counts
    its own on.
    """
    import tensorflow as tf

    if strategy.num_replicas_in_sync == 1:
        return

    def number():
        return tf.distribute.get_replica_context().replica_id_in_sync_group

    numbers = strategy.experimental_local_results(strategy.run(number))
    for variable in model.non_trainable_variables:
        values = strategy.experimental_local_results(variable.value)
        for replica, value in zip(numbers, values, strict=True):
            value.assign(value + tf.constant([int(replica), 0], value.dtype))


def _names_workers() -> bool:
    return "TF_CONFIG" in os.environ or _in_slurm_step()


def _in_slurm_step() -> bool:
    """Whether srun started this process as one of several."""
    return int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1


def _multi_worker() -> "tf.distribute.Strategy":
    import tensorflow as tf

    if not _names_workers():
        raise InputError(
            "--distribution=multi_worker: expected TF_CONFIG in the environment, or a "
            "start by Slurm's srun; got neither"
        )
    where = "TF_CONFIG" if "TF_CONFIG" in os.environ else "Slurm"
    named = tf.distribute.cluster_resolver.TFConfigClusterResolver
    handler = signal.getsignal(signal.SIGTERM)
    try:
        resolver = named() if where == "TF_CONFIG" else _slurm()
        return tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
    except (ValueError, KeyError, RuntimeError, tf.errors.OpError) as error:
        raise InputError(f"the workers that {where} names: {error}") from None
    finally:
        # TensorFlow's own handler would take the signal, and nobody asks it.
        signal.signal(signal.SIGTERM, handler or signal.SIG_DFL)


def _slurm() -> "tf.distribute.cluster_resolver.ClusterResolver":
    """Finds the workers of a Slurm step, and divides each machine's GPUs among its own.

    TensorFlow's resolver cannot do without GPUs: there it is asked for names alone.
    """
    import tensorflow as tf

    resolvers = tf.distribute.cluster_resolver
    if shutil.which("nvidia-smi"):
        return resolvers.SlurmClusterResolver()
    named = resolvers.SlurmClusterResolver(
        gpus_per_node=int(os.environ["SLURM_STEP_NUM_TASKS"]),
        gpus_per_task=1,
        auto_set_gpu=False,
    )
    spec = named.cluster_spec()
    kind, number = named.get_task_info()
    return resolvers.SimpleClusterResolver(
        spec, task_type=kind, task_id=number, rpc_layer="grpc"
    )


def _tpu(config: DistributionSettings) -> "tf.distribute.Strategy":
    import tensorflow as tf

    name = config.tpu_name or config.master or "local"
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=name, zone=config.tpu_zone, project=config.gcp_project
        )
        if name != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, tf.errors.OpError) as error:
        raise InputError(
            f"--use_tpu: no TPU {name!r} can be reached: {error}"
        ) from None
    strategy = tf.distribute.TPUStrategy(resolver)
    cores = strategy.num_replicas_in_sync
    if config.num_tpu_cores not in (None, cores):
        raise InputError(
            f"--num_tpu_cores={config.num_tpu_cores}: the TPU {name!r} has {cores}"
        )
    return strategy
