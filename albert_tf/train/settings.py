"""The settings of the devices of a run."""

import dataclasses
from typing import Literal

from albert_tf import flags
from albert_tf.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistributionSettings(flags.Settings):
    """Devices.

    Raises:
        InputError: two settings contradict each other.
    """

    distribution: Literal["auto", "one_device", "mirrored", "multi_worker"] = (
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
    use_tpu: bool = flags.field("Run on a TPU.", False, excludes=("distribution",))
    tpu_name: str | None = flags.field(
        "Name or grpc:// address of the TPU. Default: the TPU of this machine.",
        None,
        requires=("use_tpu",),
    )
    tpu_zone: str | None = flags.field("Zone of the TPU.", None, requires=("use_tpu",))
    gcp_project: str | None = flags.field(
        "Google Cloud project of the TPU.", None, requires=("use_tpu",)
    )
    master: str | None = flags.field(
        "Alias of --tpu_name.", None, requires=("use_tpu",)
    )
    num_tpu_cores: int | None = flags.field(
        "Number of cores that the TPU must have. Default: any number.",
        None,
        requires=("use_tpu",),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cpu_devices > 1 and self.distribution != "mirrored":
            raise InputError(
                f"--cpu_devices={self.cpu_devices}: requires --distribution=mirrored"
            )
