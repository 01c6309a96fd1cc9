"""Which devices a run uses, and what its workers agree on: `tf.distribute`."""

import contextlib
import ctypes
import dataclasses
import functools
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from albert_tf import flags
from albert_tf.errors import InputError
from albert_tf.train import workers

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

# More than C's `struct sigaction` has on any system.
_SIGACTION_BYTES = 512
_SECONDS_WITHOUT_HANDLER = 0.002


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistributionSettings(flags.Settings):
    """Where to run.

    Raises:
        InputError: two settings contradict each other.
    """

    distribution: Literal["auto", "one_device", "mirrored", "multi_worker", "tpu"] = (
        flags.field(
            "auto: a TPU with --use_tpu, several workers where TF_CONFIG or Slurm "
            "names them, all GPUs of this machine, or its CPU; mirrored: all GPUs, or "
            "the --cpu_devices.",
            "auto",
            resume="free",
        )
    )
    cpu_devices: int = flags.field(
        "Devices to divide the CPU into, to try --distribution=mirrored without GPUs.",
        1,
        at_least=1,
        resume="free",
    )
    use_tpu: bool = flags.field(
        "Run on a TPU; short for --distribution=tpu.", False, resume="free"
    )
    tpu_name: str | None = flags.field(
        "Name or grpc:// address of the TPU; without it the one of this machine.",
        None,
        resume="free",
    )
    tpu_zone: str | None = flags.field("Zone of the TPU.", None, resume="free")
    gcp_project: str | None = flags.field(
        "Google Cloud project of the TPU.", None, resume="free"
    )
    master: str | None = flags.field(
        "The same as --tpu_name, as released.", None, resume="free"
    )
    num_tpu_cores: int | None = flags.field(
        "Cores that the TPU must have; without it any number.",
        None,
        resume="free",
    )
    worker_timeout: int = flags.field(
        "Seconds in which the other workers end where one is lost: it died, hangs, "
        "cannot be reached or did not come; 0: as TensorFlow does it.",
        300,
        at_least=0,
        resume="free",
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
        return _multi_worker(config.worker_timeout)
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


def add_up(strategy: "tf.distribute.Strategy", own: Sequence[float]) -> list[float]:
    """Adds up float32 numbers over the replicas of all workers, one by one.

    Returns:
        The sums.
    """
    import tensorflow as tf

    def total():
        replicas = tf.distribute.get_replica_context()
        return replicas.all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(own))

    totals = strategy.run(tf.function(total, autograph=False))
    return strategy.experimental_local_results(totals)[0].numpy().tolist()


def wait_for_all(strategy: "tf.distribute.Strategy") -> None:
    """Returns once every worker has called it."""
    if is_multi_worker(strategy):
        add_up(strategy, [0.0])


def together(
    strategy: "tf.distribute.Strategy", folder: str, work: Callable[[], None]
) -> None:
    """Does something on every worker; where one of them refuses, all of them end.

    The others would wait for that one in their next step.

    Args:
        strategy: the devices of all workers.
        folder: the run's, for the message.
        work: what to do on each worker.

    Raises:
        InputError: `work` raised it, here or on another worker.
    """
    if (refusal := refusal_of_any(strategy, folder, work)) is not None:
        raise refusal


def refusal_of_any(
    strategy: "tf.distribute.Strategy", folder: str, work: Callable[[], None]
) -> InputError | None:
    """Does something on every worker; returns why one refused, see `together`."""
    import tensorflow as tf

    refusal = None
    try:
        work()
    except InputError as mistake:
        refusal = mistake
    refused = refusal is not None
    if is_multi_worker(strategy):
        try:
            [refusals] = add_up(strategy, [float(refused)])
            refused = refusals > 0
        except tf.errors.UnavailableError:
            refused = True  # that worker ended before this one got the sum
    if not refused:
        return None
    return refusal or InputError(
        f"--output_dir={folder}: refused by another worker, whose log has the reason"
    )


def spread_seeds(strategy: "tf.distribute.Strategy", model: "keras.Model") -> None:
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


def _multi_worker(timeout: int) -> "tf.distribute.Strategy":
    import tensorflow as tf
    from tensorflow.python.eager import context

    if not _names_workers():
        raise InputError(
            "--distribution=multi_worker: expected TF_CONFIG in the environment, or a "
            "start by Slurm's srun; got neither"
        )
    if timeout:  # else TensorFlow aborts 10 seconds after a worker's last sign of life
        service = context.context()
        service.configure_coordination_service = functools.partial(
            service.configure_coordination_service,
            heartbeat_timeout_in_ms=1000 * timeout,
        )
    where = "TF_CONFIG" if "TF_CONFIG" in os.environ else "Slurm"
    named = tf.distribute.cluster_resolver.TFConfigClusterResolver
    try:
        resolver = named() if where == "TF_CONFIG" else _slurm()
        watch = workers.meet(resolver, timeout)
        judging = watch.judging_errors() if watch else contextlib.nullcontext()
        with judging, _letting_threads_run(), _keeping_handler():
            strategy = tf.distribute.MultiWorkerMirroredStrategy(
                cluster_resolver=resolver
            )
    except (ValueError, KeyError, RuntimeError) as error:
        raise InputError(f"the workers that {where} names: {error}") from None
    strategy.watch = watch
    return strategy


@contextlib.contextmanager
def _keeping_handler() -> Iterator[None]:
    """Puts the handler of SIGTERM back at once where TensorFlow replaces it.

    Its coordination service takes the signal for itself, and nobody asks it; what came
    before the workers are connected, which may take seconds, would be lost.
    """
    sigaction = ctypes.CDLL(None).sigaction
    handler = ctypes.create_string_buffer(_SIGACTION_BYTES)
    sigaction(signal.SIGTERM, None, handler)
    done = threading.Event()

    def keep() -> None:
        while not done.wait(_SECONDS_WITHOUT_HANDLER):
            sigaction(signal.SIGTERM, handler, None)

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        sigaction(signal.SIGTERM, handler, None)


@contextlib.contextmanager
def _letting_threads_run() -> Iterator[None]:
    """Lets Python's other threads run while TensorFlow connects the workers.

    Its own binding keeps the interpreter's lock for so long, which is for ever where
    one of them does not answer. ctypes releases it.
    """
    import tensorflow as tf
    from tensorflow.python.eager import context

    binding = context.pywrap_tfe
    original = binding.TFE_EnableCollectiveOps
    try:
        library = ctypes.CDLL(f"{tf.sysconfig.get_lib()}/libtensorflow_cc.so.2")
        enable_collective_ops = library.TFE_EnableCollectiveOps
    except (OSError, AttributeError):  # not on Linux
        yield
        return
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    enable_collective_ops.argtypes = (pointer, ctypes.c_char_p, size, pointer)
    enable_collective_ops.restype = None
    library.TF_NewStatus.restype = pointer
    library.TF_GetCode.argtypes = library.TF_Message.argtypes = (pointer,)
    library.TF_Message.restype = ctypes.c_char_p
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = pointer, (ctypes.py_object, ctypes.c_char_p)

    def enable(handle, server):
        status = library.TF_NewStatus()
        enable_collective_ops(address(handle, None), server, len(server), status)
        if code := library.TF_GetCode(status):
            message = library.TF_Message(status).decode()
            raise tf.errors.exception_type_from_error_code(code)(None, None, message)

    binding.TFE_EnableCollectiveOps = enable
    try:
        yield
    finally:
        binding.TFE_EnableCollectiveOps = original


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
