"""The settings of `export_to_tfhub.py`."""

import dataclasses

from albert_tf import flags
from albert_tf.weights.settings import CheckpointSettings, ModelFileSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class HubSettings(CheckpointSettings, ModelFileSettings):
    """What to export, and where to.

    Raises:
        InputError: the checkpoint is named twice.
    """

    albert_directory: str = flags.field(
        "Folder with weights of any format that convert_checkpoint.py reads, "
        "albert_config.json and the vocabulary; or a name to download, such as "
        "albert_base_v2."
    )
    checkpoint_name: str | None = flags.field(
        "The weights in that folder, such as model.ckpt-40; by default --checkpoint "
        "decides.",
        None,
        instead_of=("checkpoint",),
    )
    use_einsum: bool = flags.field(
        "Accepted for the commands of the released code, and without effect: no "
        "Einsum operation is ever exported.",
        True,
    )
    export_path: str = flags.field("Folder of the encoder; is made.")
    preprocess_export_path: str | None = flags.field(
        "Folder of the preprocessing; by default --export_path with _preprocess added.",
        None,
    )
