"""The settings of `export_to_tfhub.py`."""

import dataclasses

from albert_tf import flags
from albert_tf.weights.settings import CheckpointSettings, ModelFileSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class HubSettings(CheckpointSettings, ModelFileSettings):
    """Input and output.

    Raises:
        InputError: the checkpoint is named twice.
    """

    albert_directory: str = flags.field(
        "Folder with weights in any format that convert_checkpoint.py reads, "
        "albert_config.json and the vocabulary; or a name to download, such as "
        "albert_base_v2."
    )
    checkpoint_name: str | None = flags.field(
        "Name of the weights in that folder, such as model.ckpt-40. Default: chosen "
        "by --checkpoint.",
        None,
        excludes=("checkpoint",),
    )
    use_einsum: bool = flags.field(
        "Unused; kept for compatibility. The export has no Einsum operations.",
        True,
    )
    export_path: str = flags.field("Output folder of the encoder; it is created.")
    preprocess_export_path: str | None = flags.field(
        "Output folder of the preprocessing model. Default: --export_path with the "
        "suffix _preprocess.",
        None,
    )
