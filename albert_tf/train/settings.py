"""The flags that choose the devices of a run.

--help prints the first line of the class docstring as a heading, and the entries under
`Args:` as the help of the flags.
"""

import dataclasses
from typing import Literal

from albert_tf import flags
from albert_tf.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistributionSettings(flags.Settings):
    """Devices.

    Args:
        distribution: Distribution strategy. auto: the TPU with --use_tpu, several
            workers with TF_CONFIG or Slurm (with GPUs), otherwise all GPUs or the CPU.
            one_device: the first GPU or the CPU. mirrored: all GPUs, or the devices of
            --cpu_devices. multi_worker: the workers in TF_CONFIG or of Slurm.
        cpu_devices: Number of logical CPU devices, to try --distribution=mirrored
            without GPUs.
        use_tpu: Run on a TPU.
        tpu_name: Name or grpc:// address of the TPU. Default: the TPU of this machine.
        tpu_zone: Zone of the TPU.
        gcp_project: Google Cloud project of the TPU.
        master: Alias of --tpu_name.
        num_tpu_cores: Number of cores that the TPU must have. Default: any number.

    Raises:
        InputError: two settings contradict each other.
    """

    distribution: Literal["auto", "one_device", "mirrored", "multi_worker"] = (
        flags.field("auto")
    )
    cpu_devices: int = flags.field(1, at_least=1)
    use_tpu: bool = flags.field(False, excludes=("distribution",))
    tpu_name: str | None = flags.field(None, requires=("use_tpu",))
    tpu_zone: str | None = flags.field(None, requires=("use_tpu",))
    gcp_project: str | None = flags.field(None, requires=("use_tpu",))
    master: str | None = flags.field(None, requires=("use_tpu",))
    num_tpu_cores: int | None = flags.field(None, requires=("use_tpu",))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cpu_devices > 1 and self.distribution != "mirrored":
            raise InputError(
                f"--cpu_devices={self.cpu_devices}: requires --distribution=mirrored"
            )
